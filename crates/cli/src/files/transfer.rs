//! `penstock fs import`, `export` and `cat`: the bytes of a file as a view shows them.

use std::io::Write;
use std::time::Instant;

use penstock_engine::{Error, Kind};
use penstock_files::Version;
use penstock_files::job::FileSystem;
use penstock_files::transfer::{self, Party, Sink, TransferOptions, Transferred};
use penstock_layout::SubfileOrder;
use penstock_trace::sizes::bytes;

use super::arguments::{Cat, Export, Import, Order, Shown};
use super::{path, shape};
use crate::failure::Failure;
use crate::output;
use crate::progress::Bar;

fn options(shown: &Shown, is_checkpoint: bool, party: Party) -> Result<TransferOptions, Failure> {
    Ok(TransferOptions {
        view: shown.view,
        subfile: shown.subfile,
        order: match shown.order {
            Order::Block => SubfileOrder::Block,
            Order::Row => SubfileOrder::Row,
            Order::Column => SubfileOrder::Column,
        },
        version: match is_checkpoint {
            true => Version::Checkpoint,
            false => Version::Active,
        },
        memory_bytes: bytes(&shown.memory)?,
        party,
    })
}

/// The report of a transfer in a line.
fn said(verb: &str, moved: Transferred, begun: Instant) -> String {
    let seconds = begun.elapsed().as_secs_f64();
    let rate = moved.bytes as f64 / 1e6 / seconds.max(1e-9);
    let mut text = format!(
        "{verb} {} bytes in {seconds:.2} s, {rate:.0} MB/s",
        moved.bytes
    );
    if moved.moved < moved.bytes {
        let others = moved.bytes - moved.moved;
        text += &format!(", of which {others} belong to ghost cells or holes");
    }
    text + "\n"
}

/// The bar of the client that shows the progress, which is that of its own part.
fn bar(fs: &FileSystem) -> Option<Bar> {
    (fs.rank() == Some(0)).then(Bar::new)
}

fn show(bar: Option<&Bar>) -> impl FnMut(u64, u64) -> penstock_engine::Result<()> + use<'_> {
    move |done, all| {
        if let Some(bar) = bar {
            bar.tell_position(done, all);
        }
        Ok(())
    }
}

/// Copies a local file into a file of the volume.
pub(super) fn import(fs: &FileSystem, asked: &Import, party: Party) -> Result<(), Failure> {
    let options = options(&asked.shown, false, party)?;
    let structure = (shape(fs, &asked.structure)?, asked.structure.mode);
    let (local, to) = (&asked.local, path(&asked.path)?);
    let (bar, begun) = (bar(fs), Instant::now());
    let moved = transfer::import(fs, local, &to, structure, &options, &mut show(bar.as_ref()))?;
    drop(bar);
    tell(fs, &said("imported", moved, begun))
}

/// Copies a file of the volume into a local file.
pub(super) fn export(fs: &FileSystem, asked: &Export, party: Party) -> Result<(), Failure> {
    let (local, from) = ((&*asked.local, asked.overwrite), path(&asked.path)?);
    let options = options(&asked.shown, asked.checkpoint, party)?;
    let (bar, begun) = (bar(fs), Instant::now());
    let moved = transfer::export(fs, &from, local, &options, &mut show(bar.as_ref()));
    drop(bar);
    tell(fs, &said("exported", moved?, begun))
}

/// Lets the first client speak for all.
fn tell(fs: &FileSystem, text: &str) -> Result<(), Failure> {
    match fs.rank() {
        Some(0) => output::text(text),
        _ => Ok(()),
    }
}

/// The standard output, to which gaps go as zeros.
struct StandardOutput {
    position: u64,
    failure: Option<Failure>,
}

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

impl StandardOutput {
    fn write(&mut self, data: &[u8]) -> penstock_engine::Result<()> {
        let written = std::io::stdout().lock().write_all(data);
        self.position += data.len() as u64;
        written.map_err(|error| {
            let stopped = Error::new(Kind::Io, "writing the standard output", &error);
            self.failure = Some(output::to_stdout(error));
            stopped
        })
    }
}

impl Sink for StandardOutput {
    fn put(&mut self, offset: u64, data: &[u8]) -> penstock_engine::Result<()> {
        while self.position < offset {
            let gap = (offset - self.position).min(ZEROS.len() as u64);
            self.write(&ZEROS[..penstock_layout::exact::<usize>(gap)])?;
        }
        self.write(data)
    }
}

/// Writes a file to the standard output.
pub(super) fn cat(fs: &FileSystem, asked: &Cat) -> Result<(), Failure> {
    let mut sink = StandardOutput {
        position: 0,
        failure: None,
    };
    let options = options(&asked.shown, asked.checkpoint, Party::Alone)?;
    let from = path(&asked.path)?;
    let moved = transfer::export_to(fs, &from, &options, &mut sink, &mut |_, _| Ok(()));
    if let Some(failure) = sink.failure {
        return Err(failure);
    }
    moved?;
    std::io::stdout().lock().flush().map_err(output::to_stdout)
}
