//! An HDF5 file that is there, and that this process alone changes.
//!
//! It is locked as the HDF5 library locks it: other writers are kept out all the time, and readers
//! while the metadata change.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use penstock_engine::{Error, Kind, Result};
use penstock_hdf5::{Changes, Hdf5File, is_hdf5};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::checks::{in_the_way, writable};
use crate::formats::hdf5::describe;
use crate::formats::hdf5::journal::{JOURNAL, Journal};
use crate::fs::files;
use crate::fs::ops;
use crate::fs::temporary::Temporary;

/// The wait for readers to close a file, before its metadata change.
const LOCK_TRIES: u32 = 1000;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A file that is there, and locked.
pub(crate) struct LockedFile {
    pub(crate) file: File,
    path: PathBuf,
    /// Its length before anything is added.
    bytes: u64,
    /// The file as it was before it is changed.
    opened: Hdf5File,
    /// Whether new metadata lead to what was added.
    is_changed: AtomicBool,
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if !self.is_changed.load(Ordering::Relaxed) {
            // A failure leaves bytes behind the end, which the next write removes.
            let _ = ops::set_len(&self.file, self.bytes, &self.path);
        }
    }
}

impl LockedFile {
    /// Opens and locks a file that is there; `None` if there is none.
    ///
    /// # Errors
    /// [`Kind::Schema`] when something else is there; [`Kind::Busy`] when another program has the
    /// file open.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        if std::fs::symlink_metadata(path).is_err() {
            return Ok(None);
        }
        let file = File::options().read(true).write(true).open(path);
        let file = file.map_err(|e| Error::io(&e, "opening for writing", path))?;
        if !files::metadata(&file, path)?.is_file() || !is_hdf5(&file) {
            return Err(in_the_way(path, "it is there, and no HDF5 file"));
        }
        writable(path)?;
        // Nobody else changes the file from here on. Readers may come until its metadata change.
        lock_once(&file, FlockOperation::NonBlockingLockExclusive, path)?;
        lock_once(&file, FlockOperation::NonBlockingLockShared, path)?;
        Ok(Some(Self {
            bytes: files::length(&file, path)?,
            opened: describe::open(path)?,
            is_changed: AtomicBool::new(false),
            path: path.to_path_buf(),
            file,
        }))
    }

    /// The file as it was before it is changed.
    pub(crate) fn opened(&self) -> &Hdf5File {
        &self.opened
    }

    /// Opens the metadata to change them, with `over` as if it were written. Elements end at `end`.
    ///
    /// # Errors
    /// As [`Hdf5File::change_over`].
    pub(crate) fn change_over(&self, over: &Changes, end: u64) -> Result<Hdf5File> {
        let copy = self.file.try_clone();
        let copy = copy.map_err(|e| Error::io(&e, "opening", &self.path))?;
        Hdf5File::change_over(copy, &self.path, end, over)
    }

    /// Opens the metadata to change them. Elements end where the file does.
    ///
    /// # Errors
    /// As [`Hdf5File::change_over`].
    pub(crate) fn change(&self) -> Result<Hdf5File> {
        let end = files::length(&self.file, &self.path)?;
        self.change_over(&Changes::default(), end)
    }

    /// The end of what is in use.
    pub(crate) fn end(&self) -> u64 {
        self.opened.end()
    }

    /// Makes the file end at `end`, behind what is in use. What is new reads as zeros.
    pub(crate) fn make_room(&self, end: u64) -> Result<()> {
        let failed = |e: std::io::Error| Error::io(&e, "making room in", &self.path);
        // First without what a killed write has left.
        ops::set_len(&self.file, self.end(), &self.path).map_err(failed)?;
        ops::set_len(&self.file, end, &self.path).map_err(failed)
    }

    /// Keeps readers out, too, and makes changes of metadata, whole or not at all.
    pub(crate) fn install(
        &self,
        changes: impl FnOnce() -> Result<Changes>,
        temporary: &Temporary,
    ) -> Result<()> {
        self.lock_alone()?;
        let journal = Journal::new(
            changes()?,
            &self.file,
            self.bytes.min(self.end()),
            &self.path,
        )?;
        journal.make_behind(&self.file, &self.path)?;
        journal.keep(temporary)?;
        self.is_changed.store(true, Ordering::Relaxed);
        journal.make_within(&self.file, &self.path)
    }

    /// Lets readers come again after changes, before others are made.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn go_on(&mut self) -> Result<()> {
        self.bytes = files::length(&self.file, &self.path)?;
        self.opened = describe::open(&self.path)?;
        self.is_changed = AtomicBool::new(false);
        lock_once(
            &self.file,
            FlockOperation::NonBlockingLockShared,
            &self.path,
        )
    }

    /// Keeps readers out, too, until the file is closed.
    fn lock_alone(&self) -> Result<()> {
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        for _ in 1..LOCK_TRIES {
            match lock_once(&self.file, exclusive, &self.path) {
                Err(error) if error.kind == Kind::Busy => std::thread::sleep(LOCK_PAUSE),
                locked => return locked,
            }
        }
        lock_once(&self.file, exclusive, &self.path)
    }
}

/// Makes the changes of metadata that a killed process has left.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn recover(path: &Path) -> Result<()> {
    let has_journal = |temporary: &Path| temporary.join(JOURNAL).exists();
    let Some(mut temporary) = Temporary::adopt(path, &has_journal)? else {
        return Ok(());
    };
    if let Some(journal) = Journal::left(path)? {
        let file = File::options().read(true).write(true).open(path);
        let file = file.map_err(|e| Error::io(&e, "opening for writing", path))?;
        journal.make(&file, path)?;
    }
    temporary.remove()
}

fn lock_once(file: &File, operation: FlockOperation, path: &Path) -> Result<()> {
    match rustix::fs::flock(file, operation) {
        Err(Errno::WOULDBLOCK) => {
            let cause = "another program has it open: close it there first";
            Err(Error::new(Kind::Busy, "writing", cause).at(path))
        }
        _ => Ok(()), // also on file systems without locks, as the HDF5 library does
    }
}
