//! `penstock fs import`, `export` and `cat`: the bytes of a file as a view shows them.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use penstock_engine::{Error, Kind};
use penstock_files::Version;
use penstock_files::job::FileSystem;
use penstock_files::transfer::{self, Sink, TransferOptions, Transferred};
use penstock_layout::SubfileOrder;

use super::arguments::{Cat, Export, Import, Order, Shown};
use super::{create, path};
use crate::failure::Failure;
use crate::output;
use crate::progress::Bar;
use crate::sizes::bytes;

fn options(shown: &Shown, is_checkpoint: bool) -> Result<TransferOptions, Failure> {
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

/// Copies a local file into a file of the volume.
pub(super) fn import(fs: &FileSystem, asked: &Import) -> Result<(), Failure> {
    let options = options(&asked.shown, false)?;
    let (local, to) = (&asked.local, path(&asked.path)?);
    let opened = File::open(local).map_err(|error| Error::io(&error, "importing", local))?;
    match fs.stat(to.clone()) {
        Ok(_) => {}
        Err(error) if error.kind == Kind::Missing => create(fs, to.clone(), &asked.structure)?,
        Err(error) => return Err(error.into()),
    }
    let (bar, begun) = (Bar::new(), Instant::now());
    let moved = transfer::import(fs, (&opened, local), &to, &options, &mut |done, all| {
        bar.tell_position(done, all);
        Ok(())
    })?;
    drop(bar);
    fs.sync()?;
    output::text(&said("imported", moved, begun))
}

/// A new local file.
struct LocalFile<'a>(File, &'a Path);

impl Sink for LocalFile<'_> {
    fn put(&mut self, offset: u64, data: &[u8]) -> penstock_engine::Result<()> {
        let written = self.0.write_all_at(data, offset); // gaps stay holes
        written.map_err(|error| {
            let end = offset + data.len() as u64;
            Error::io(&error, "exporting", self.1).in_bytes(offset..end)
        })
    }
}

/// Copies a file of the volume into a local file, which is not there before all has been written.
pub(super) fn export(fs: &FileSystem, asked: &Export) -> Result<(), Failure> {
    let (local, from) = (&asked.local, path(&asked.path)?);
    let options = options(&asked.shown, asked.checkpoint)?;
    if local.exists() && !asked.overwrite {
        let error = Error::new(Kind::Exists, "exporting", "--overwrite replaces it");
        return Err(error.at(local).into());
    }
    let mut name = local.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    let part = local.with_file_name(name);
    let exported = export_to(fs, &from, &options, &part).and_then(|said| {
        let renamed = std::fs::rename(&part, local);
        renamed.map_err(|error| Error::io(&error, "exporting", local))?;
        Ok(said)
    });
    match exported {
        Ok(said) => output::text(&said),
        Err(failure) => {
            let _ = std::fs::remove_file(&part); // it may not be there
            Err(failure)
        }
    }
}

fn export_to(
    fs: &FileSystem,
    from: &penstock_files::FilePath,
    options: &TransferOptions,
    local: &Path,
) -> Result<String, Failure> {
    let writing = |error: std::io::Error| Error::io(&error, "exporting", local);
    let file = File::create_new(local).map_err(writing)?;
    let mut sink = LocalFile(file, local);
    let (bar, begun) = (Bar::new(), Instant::now());
    let moved = transfer::export(fs, from, options, &mut sink, &mut |done, all| {
        bar.tell_position(done, all);
        Ok(())
    })?;
    drop(bar);
    sink.0.sync_all().map_err(writing)?;
    Ok(said("exported", moved, begun))
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
    let options = options(&asked.shown, asked.checkpoint)?;
    let from = path(&asked.path)?;
    let moved = transfer::export(fs, &from, &options, &mut sink, &mut |_, _| Ok(()));
    if let Some(failure) = sink.failure {
        return Err(failure);
    }
    moved?;
    std::io::stdout().lock().flush().map_err(output::to_stdout)
}
