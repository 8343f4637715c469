//! Import and export: the bytes of a subfile come from a sequence of bytes outside, or go there.
//!
//! The view decides the order of the bytes outside (section 4.6 of the paper): byte `n` of the
//! subfile is byte `n` outside. Bytes of ghost cells and of holes at the ends of cells are zero
//! outside, and an import moves them nowhere. Large subfiles are moved piece by piece; only the
//! order "column", which is an order within one access, takes memory for the whole subfile.
//!
//! One client moves all bytes, or all clients of the program together, each a part of the sequence
//! (a collective call). An exported file is there when all of it has been written.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

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
    /// The memory that each client may take.
    pub memory_bytes: u64,
    /// Who moves the bytes.
    pub party: Party,
}

/// The clients that move the bytes of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// One client, without the others.
    Alone,
    /// All clients of the program.
    All,
}

impl Party {
    /// Whether this client does what is done once.
    fn is_first(self, fs: &FileSystem) -> bool {
        self == Self::Alone || fs.rank() == Some(0)
    }

    /// Lets all members hear of the error of one, and gives the sum of what they have done.
    ///
    /// # Errors
    /// The error of the lowest rank that has one.
    pub fn agree(self, fs: &FileSystem, done: Result<u64>) -> Result<u64> {
        match self {
            Self::Alone => done,
            Self::All => fs.agree(done),
        }
    }

    /// Lets the first member do something, and all hear of its error.
    fn once(self, fs: &FileSystem, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let done = match self.is_first(fs) {
            true => act(),
            false => Ok(()),
        };
        self.agree(fs, done.map(|()| 0)).map(|_| ())
    }

    /// The part of `bytes` bytes that this client moves. An order within one access has one part.
    fn share(self, fs: &FileSystem, order: SubfileOrder, bytes: u64) -> Range<u64> {
        let (rank, clients) = match self {
            Self::Alone => (0, 1),
            Self::All => (fs.rank().unwrap_or(0) as u64, fs.clients() as u64),
        };
        let part = match order {
            SubfileOrder::Column => bytes,
            _ => bytes.div_ceil(clients).next_multiple_of(fs.block_bytes()),
        };
        let begins = part.saturating_mul(rank).min(bytes);
        begins..begins.saturating_add(part).min(bytes)
    }
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

/// Moves the bytes of a local file into a subfile of a file, and saves that. A file that is not
/// there is made: cells, bytes of a BSU and base as in [`FileSystem::create`], and its mode.
///
/// # Errors
/// Those of the local file and of the volume; [`Kind::Full`]; [`Kind::Schema`] when the order
/// "column" takes more memory than it may. They are the same on all clients that take part.
///
/// # Collective
/// Over all clients of the program, if the party is all of them.
pub fn import(
    fs: &FileSystem,
    local: &Path,
    to: &FilePath,
    (shape, mode): ((u64, u64, Option<usize>), u16),
    options: &TransferOptions,
    tell: Listener<'_>,
) -> Result<Transferred> {
    let party = options.party;
    let reading = |error: io::Error| Error::io(&error, "importing", local);
    let opened = File::open(local)
        .and_then(|file| Ok((file.metadata()?.len(), file)))
        .map_err(reading);
    party.agree(fs, opened.as_ref().map(|_| 0).map_err(Error::clone))?;
    let (all, opened) = opened?;
    party.once(fs, || match fs.stat(to.clone()) {
        Err(error) if error.kind == Kind::Missing => fs.create(to.clone(), shape, mode).map(|_| ()),
        found => found.map(|_| ()),
    })?;
    let share = party.share(fs, options.order, all);
    let moved = import_share(fs, (&opened, local), to, (options, share), tell);
    let moved = party.agree(fs, moved)?;
    party.once(fs, || fs.sync())?;
    Ok(Transferred { bytes: all, moved })
}

/// Moves a part of the bytes of a local file, and gives how many of them are the file's.
fn import_share(
    fs: &FileSystem,
    (local, local_path): (&File, &Path),
    to: &FilePath,
    (options, share): (&TransferOptions, Range<u64>),
    tell: Listener<'_>,
) -> Result<u64> {
    let (file, view) = open(fs, to, options, Operation::Write)?;
    let mut moved = 0;
    for_pieces(to, (options, share), tell, |offset, data| {
        let read = local.read_exact_at(data, offset);
        read.map_err(|error| Error::io(&error, "importing", local_path))?;
        moved += access(&view, Operation::Write, offset, data)?.bytes;
        Ok(())
    })?;
    file.detach()?;
    Ok(moved)
}

/// Moves a part of a sequence of bytes piece by piece. Each piece has its offset, and bytes that
/// are zero.
fn for_pieces(
    path: &FilePath,
    (options, share): (&TransferOptions, Range<u64>),
    tell: Listener<'_>,
    mut act: impl FnMut(u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let bytes = share.end - share.start;
    let most = piece_bytes(path, options, bytes)?;
    let mut offset = share.start;
    tell(0, bytes)?;
    while offset < share.end {
        let piece = most.min(share.end - offset);
        act(offset, &mut vec![0; exact::<usize>(piece)])?;
        offset += piece;
        tell(offset - share.start, bytes)?;
    }
    Ok(())
}

/// A new local file.
struct LocalFile<'a>(File, &'a Path);

impl Sink for LocalFile<'_> {
    fn put(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let written = self.0.write_all_at(data, offset); // gaps stay holes
        written.map_err(|error| {
            let end = offset + data.len() as u64;
            Error::io(&error, "exporting", self.1).in_bytes(offset..end)
        })
    }
}

/// Moves the bytes of a subfile to a local file, which is not there before all has been written.
///
/// # Errors
/// [`Kind::Exists`] when it is there and must not be replaced; those of the volume and of the local
/// file; [`Kind::Schema`] as [`import`]. They are the same on all clients that take part.
///
/// # Collective
/// Over all clients of the program, if the party is all of them. All of them see the local file.
pub fn export(
    fs: &FileSystem,
    from: &FilePath,
    (local, replaces): (&Path, bool),
    options: &TransferOptions,
    tell: Listener<'_>,
) -> Result<Transferred> {
    let party = options.party;
    let writing = |error: io::Error| Error::io(&error, "exporting", local);
    let part = part_of(local, fs.program());
    party.once(fs, || {
        if local.exists() && !replaces {
            let error = Error::new(
                Kind::Exists,
                "exporting",
                "a file is there already: overwrite=True or --overwrite replaces it",
            );
            return Err(error.at(local));
        }
        File::create_new(&part).map(|_| ()).map_err(writing)
    })?;
    let mut write_share = || {
        let file = File::options().write(true).open(&part).map_err(writing)?;
        let mut sink = LocalFile(file, local);
        let moved = export_to(fs, from, options, &mut sink, tell)?.moved;
        sink.0.sync_all().map_err(writing)?;
        Ok(moved)
    };
    let moved = party.agree(fs, write_share());
    party.once(fs, || match &moved {
        Ok(_) => std::fs::rename(&part, local).map_err(writing),
        Err(_) => std::fs::remove_file(&part).map_err(writing),
    })?;
    let moved = moved?;
    let bytes = local.metadata().map_err(writing)?.len();
    Ok(Transferred { bytes, moved })
}

/// The place of a local file until all of it has been written.
fn part_of(local: &Path, program: u64) -> PathBuf {
    let mut name = local.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{program:x}.part"));
    local.with_file_name(name)
}

/// Moves the bytes of a subfile to a sink; of all clients, if the party is all of them, each moves
/// a part.
///
/// # Errors
/// Those of the volume and of the sink; [`Kind::Schema`] as [`import`].
pub fn export_to(
    fs: &FileSystem,
    from: &FilePath,
    options: &TransferOptions,
    sink: &mut dyn Sink,
    tell: Listener<'_>,
) -> Result<Transferred> {
    let (file, view) = open(fs, from, options, Operation::Read)?;
    let (object, shape) = (file.attachment().object.clone(), file.attachment().shape);
    let ends = fs.cell_bytes(object, options.version)?;
    let longest = ends.into_values().max().unwrap_or(0);
    let all = end_of(options.view, shape, longest).unwrap_or(CELL_BYTES_MAX);
    let share = options
        .party
        .share(fs, options.order, all.min(CELL_BYTES_MAX));
    let mut done = Transferred::default();
    for_pieces(from, (options, share), tell, |offset, data| {
        let Moved { bytes, reach } = access(&view, Operation::Read, offset, data)?;
        if reach > 0 {
            sink.put(offset, &data[..exact::<usize>(reach)])?;
            done.bytes = offset + reach;
        }
        done.moved += bytes;
        Ok(())
    })?;
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
