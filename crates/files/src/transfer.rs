//! Import and export: the bytes of a subfile come from a sequence of bytes outside, or go there.
//!
//! The view decides the order of the bytes outside (section 4.6 of the paper): byte `n` of the
//! subfile is byte `n` outside. Bytes of ghost cells and of holes at the ends of cells are zero
//! outside, and an import moves them nowhere. Large subfiles are moved piece by piece; only the
//! order "column", which is an order within one access, takes memory for the whole subfile.
//!
//! One client moves all bytes. Several clients can share a transfer once the sequence is divided
//! among them, as each piece is moved by itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use penstock_engine::{Error, Kind, Operation, Result};
use penstock_layout::view::CELL_BYTES_MAX;
use penstock_layout::{SubfileOrder, View, exact};

use crate::client::Mode;
use crate::job::{FileSystem, Memory, OpenFile, OpenView};
use crate::messages::Moved;
use crate::names::FilePath;
use crate::object::{FileShape, at_path};
use crate::volume::cells::Version;

/// The part of a file that is moved, and how.
#[derive(Debug, Clone, Copy)]
pub struct TransferOptions {
    /// The view.
    pub view: View,
    /// The number of the subfile.
    pub subfile: u64,
    /// The order of its bytes.
    pub order: SubfileOrder,
    /// The version that is exported.
    pub version: Version,
    /// The memory that may be taken.
    pub memory_bytes: u64,
}

/// The bytes of a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transferred {
    /// The length of the sequence outside.
    pub bytes: u64,
    /// The bytes of it that are the file's; the others belong to ghost cells and holes.
    pub moved: u64,
}

/// A sequence of bytes outside, to which an export writes, with gaps that are zero.
pub trait Sink {
    /// Puts bytes at an offset, which is never below the end of the bytes before.
    ///
    /// # Errors
    /// Those of the system.
    fn put(&mut self, offset: u64, data: &[u8]) -> Result<()>;
}

/// What hears how many bytes of all have been moved.
pub type Listener<'a> = &'a mut dyn FnMut(u64, u64) -> Result<()>;

/// Moves the bytes of a local file into a subfile of a file that is there.
///
/// # Errors
/// Those of the local file and of the volume; [`Kind::Full`]; [`Kind::Schema`] when the order
/// "column" takes more memory than it may.
pub fn import(
    fs: &FileSystem,
    (local, local_path): (&File, &Path),
    to: &FilePath,
    options: &TransferOptions,
    tell: Listener<'_>,
) -> Result<Transferred> {
    let reading = |error: io::Error| Error::io(&error, "importing", local_path);
    let all = local.metadata().map_err(reading)?.len();
    let (file, view) = open(fs, to, options, Operation::Write)?;
    let mut done = Transferred::default();
    tell(0, all)?;
    while done.bytes < all {
        let piece = piece_bytes(to, options, all)?.min(all - done.bytes);
        let mut data = vec![0; exact::<usize>(piece)];
        local
            .read_exact_at(&mut data, done.bytes)
            .map_err(reading)?;
        done.moved += access(&view, Operation::Write, done.bytes, &mut data)?.bytes;
        done.bytes += piece;
        tell(done.bytes, all)?;
    }
    file.detach()?;
    Ok(done)
}

/// Moves the bytes of a subfile to a sequence outside.
///
/// # Errors
/// Those of the volume and of the sink; [`Kind::Schema`] as [`import`].
pub fn export(
    fs: &FileSystem,
    from: &FilePath,
    options: &TransferOptions,
    sink: &mut dyn Sink,
    tell: Listener<'_>,
) -> Result<Transferred> {
    let (file, view) = open(fs, from, options, Operation::Read)?;
    let shape = file.attachment().shape;
    // The ends of a checkpoint's cells are not told: pieces are read until whole rows are empty.
    let longest = match options.version {
        Version::Active => fs.stat(from.clone())?.1.into_values().max().unwrap_or(0),
        Version::Checkpoint => u64::MAX,
    };
    let bounded = |longest| end_of(options.view, shape, longest).unwrap_or(CELL_BYTES_MAX);
    let bound = bounded(longest).min(CELL_BYTES_MAX);
    let row = bounded(1);
    let mut done = Transferred::default();
    let mut offset = 0;
    while offset < bound && (longest < u64::MAX || offset - done.bytes <= row) {
        let piece = piece_bytes(from, options, bound)?.min(bound - offset);
        let mut data = vec![0; exact::<usize>(piece)];
        let Moved { bytes, reach } = access(&view, Operation::Read, offset, &mut data)?;
        if reach > 0 {
            sink.put(offset, &data[..exact::<usize>(reach)])?;
            done.bytes = offset + reach;
        }
        done.moved += bytes;
        offset += piece;
        tell(offset, if longest < u64::MAX { bound } else { offset })?;
    }
    file.detach()?;
    Ok(done)
}

/// The offset behind the last byte of any subfile of a view, if no cell has more than `longest`
/// bytes.
fn end_of(view: View, shape: FileShape, longest: u64) -> Option<u64> {
    let [vbs, vn, hbs, hn] = view.numbers();
    let blocks_down = longest
        .div_ceil(shape.bsu_bytes)
        .div_ceil(vbs.checked_mul(vn)?);
    let blocks_across = shape.cells.div_ceil(hbs.checked_mul(hn)?);
    let blocks = blocks_down.checked_mul(blocks_across)?;
    let block_bytes = vbs.checked_mul(hbs)?.checked_mul(shape.bsu_bytes)?;
    blocks.checked_mul(block_bytes)
}

/// The most bytes of one piece, of `all`.
fn piece_bytes(path: &FilePath, options: &TransferOptions, all: u64) -> Result<u64> {
    let most = options.memory_bytes.max(1);
    if options.order == SubfileOrder::Column && all > most {
        let cause = format!(
            "the order \"column\" is one within an access, and all of the subfile takes more than \
             the {most} bytes of memory that may be taken"
        );
        return Err(at_path(Kind::Schema, "moving a file", path, cause));
    }
    Ok(most)
}

fn open(
    fs: &FileSystem,
    path: &FilePath,
    options: &TransferOptions,
    operation: Operation,
) -> Result<(OpenFile, OpenView)> {
    let mode = Mode {
        reads: operation == Operation::Read,
        writes: operation == Operation::Write,
        is_reckless: false,
    };
    let file = fs.attach(path.clone(), mode)?;
    if options.version == Version::Checkpoint && file.attachment().object.checkpoints == 0 {
        let cause = "there is no checkpoint";
        return Err(at_path(Kind::Missing, "reading", path, cause));
    }
    let TransferOptions {
        view,
        subfile,
        order,
        version,
        ..
    } = *options;
    let opened = file.open(view, subfile, order, version, None)?;
    Ok((file, opened))
}

fn access(view: &OpenView, operation: Operation, offset: u64, data: &mut [u8]) -> Result<Moved> {
    // SAFETY: the access has ended when this returns, and nobody else has the bytes until then.
    let memory = unsafe { Memory::new(data.as_mut_ptr(), data.len() as u64, None) };
    view.access(operation, offset, memory)
}
