//! Opening the disks of a server, under its lock.

use std::fs::File;
use std::path::Path;

use penstock_engine::{Error, Opening, Result};
use penstock_machines::disk::extents::is_raw;

use super::description::{
    DESCRIPTION, Description, RECORDS, no_description, read_description, server_directory,
};
use super::records::DiskRecords;
use super::system::Lock;

/// The disks of a server of a volume. As long as the records live, nobody else can open them.
pub struct ServerDisk {
    /// What the volume is.
    pub description: Description,
    /// The records.
    pub records: DiskRecords,
    /// How a node whose opener is a [`BlockOpener`](super::BlockOpener) opens each disk.
    pub openings: Vec<Opening>,
    /// The blocks of each disk.
    pub blocks: u64,
}

/// Opens the disks of a server of a volume.
///
/// # Errors
/// [`penstock_engine::Kind::Missing`] when there is no such volume, its creation has not ended, or
/// a disk of it is not there; [`penstock_engine::Kind::Busy`] when it is open already;
/// [`penstock_engine::Kind::Damaged`]; [`penstock_engine::Kind::Unsupported`] for another version.
pub fn open(template: &str, server: usize) -> Result<ServerDisk> {
    let directory = server_directory(template, server);
    let directory = absolute(&directory)?;
    let path = directory.join(DESCRIPTION);
    let opened = File::options().read(true).write(true).open(&path);
    let file = opened.map_err(|error| no_description(&error, &path))?;
    let reading = file.try_clone();
    let mut lock = Lock::take(file, &path)?;
    let reading = reading.map_err(|error| Error::io(&error, "opening a volume", &path))?;
    let description = read_description(&reading, server, &path)?;
    for disk in description.disk_paths(&directory) {
        let opened = File::open(&disk);
        let opened = opened.map_err(|error| Error::io(&error, "opening a disk", &disk))?;
        if is_raw(&opened) {
            drop(opened);
            lock.add(Lock::claim(&disk)?);
        }
    }
    let records = DiskRecords::open(&directory.join(RECORDS))?.with_lock(lock);
    Ok(ServerDisk {
        openings: description.openings(&directory)?,
        blocks: description.blocks,
        description,
        records,
    })
}

/// The path with the working directory in front, which may change later.
fn absolute(path: &Path) -> Result<std::path::PathBuf> {
    std::path::absolute(path).map_err(|error| Error::io(&error, "opening a volume", path))
}
