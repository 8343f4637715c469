//! Calls of the operating system for files of a volume. Errors name the path.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;

/// The bytes that are written at once where a file system cannot allocate.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Files that nobody else may use as long as this lives.
#[derive(Debug, Default)]
pub(super) struct Lock(Vec<File>);

impl Drop for Lock {
    /// Unlocks. To close the files would not be enough: a process that this one is about to start
    /// may have them open for another moment.
    fn drop(&mut self) {
        for file in &self.0 {
            let _ = rustix::fs::flock(file, FlockOperation::Unlock); // a device was not locked
        }
    }
}

impl Lock {
    /// Locks an open file or directory.
    ///
    /// # Errors
    /// [`Kind::Busy`] when somebody else has locked it; [`Kind::Unsupported`] where there are no
    /// locks.
    pub(super) fn take(file: File, path: &Path) -> Result<Self> {
        let error = |kind, cause: &str| Error::new(kind, "locking", cause).at(path);
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(vec![file])),
            Err(Errno::WOULDBLOCK) => Err(error(Kind::Busy, "another server or command uses it")),
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK) => {
                let cause = "the file system has no locks, and two servers could use the volume";
                Err(error(Kind::Unsupported, cause))
            }
            Err(other) => Err(Error::io(&other.into(), "locking", path)),
        }
    }

    /// Locks what `other` has locked, too.
    pub(super) fn add(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Claims a raw device: nobody mounts it or claims it meanwhile.
    ///
    /// # Errors
    /// [`Kind::Busy`] when it is claimed, or a file system on it is mounted.
    pub(super) fn claim(device: &Path) -> Result<Self> {
        let mut options = File::options();
        let exclusive = exact::<i32>((OFlags::EXCL | OFlags::CLOEXEC).bits());
        options.read(true).write(true).custom_flags(exclusive);
        match options.open(device) {
            Ok(file) => Ok(Self(vec![file])),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                let cause = "another server uses the device, or it is mounted";
                Err(Error::new(Kind::Busy, "claiming", cause).at(device))
            }
            Err(error) => Err(Error::io(&error, "claiming", device)),
        }
    }
}

/// Syncs a file or a directory by its name.
pub(super) fn sync(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| Error::io(&error, "syncing", path))
}

/// Makes a directory, unless it is there, and syncs the one above. Gives whether it is new.
pub(super) fn make_directory(path: &Path) -> Result<bool> {
    match std::fs::create_dir(path) {
        Ok(()) => {
            sync(&above(path))?;
            Ok(true)
        }
        Err(_) if path.is_dir() => Ok(false),
        Err(_) if path.exists() => {
            let cause = "it is there already, and is no directory";
            Err(Error::new(Kind::Exists, "making a directory", cause).at(path))
        }
        Err(error) => Err(Error::io(&error, "making the directory", path)),
    }
}

/// The directory above a path.
pub(super) fn above(path: &Path) -> std::path::PathBuf {
    match path.parent() {
        Some(above) if above.as_os_str().is_empty() => ".".into(),
        Some(above) => above.into(),
        None => path.into(),
    }
}

/// Makes a new file, which is yet to be synced.
pub(super) fn make_file(path: &Path) -> Result<File> {
    let mut options = File::options();
    let made = options.read(true).write(true).create_new(true).open(path);
    made.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Error::new(Kind::Exists, "making", error).at(path),
        _ => Error::io(&error, "making", path),
    })
}

/// Makes a small file, and syncs it.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = make_file(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.map_err(|error| Error::io(&error, "writing", path))
}

/// Reads an open file of at most `bytes_max` bytes.
pub(super) fn read(file: &File, bytes_max: u64, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes);
    read.map_err(|error| Error::io(&error, "reading", path))?;
    match bytes.len() as u64 > bytes_max {
        true => {
            let cause = format!("it has more than {bytes_max} bytes");
            Err(Error::new(Kind::Damaged, "reading", cause).at(path))
        }
        false => Ok(bytes),
    }
}

/// Removes a file, if it is there.
pub(super) fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io(&error, "removing", path)),
    }
}

/// Renames a file in its directory, which is synced then.
pub(super) fn rename(from: &Path, to: &Path) -> Result<()> {
    let renamed = std::fs::rename(from, to);
    renamed.map_err(|error| Error::io(&error, "renaming into place", to))?;
    sync(&above(to))
}

/// Allocates the first `bytes` bytes of a file.
///
/// # Errors
/// [`Kind::Full`].
pub(super) fn allocate(file: &File, bytes: u64, path: &Path) -> Result<()> {
    let answer = loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::INTR) => {}
            answer => break answer,
        }
    };
    let allocated = match answer {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => fill(file, bytes),
        answer => answer.map_err(Into::into),
    };
    allocated.map_err(|error| Error::io(&error, "allocating", path).in_bytes(0..bytes))
}

/// Writes zeros.
fn fill(file: &File, bytes: u64) -> std::io::Result<()> {
    let mut offset = 0;
    while offset < bytes {
        let piece = (ZEROS.len() as u64).min(bytes - offset);
        file.write_all_at(&ZEROS[..exact::<usize>(piece)], offset)?;
        offset += piece;
    }
    Ok(())
}

/// The free bytes of the file system of a directory.
pub(super) fn free_bytes(directory: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(directory);
    let found = found.map_err(|error| Error::io(&error.into(), "looking at", directory))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The bytes of a raw device.
pub(super) fn device_bytes(device: &Path) -> Result<u64> {
    let found = File::open(device).and_then(|mut file| file.seek(SeekFrom::End(0)));
    found.map_err(|error| Error::io(&error, "looking at", device))
}
