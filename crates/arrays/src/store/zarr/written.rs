//! Chunk files that are written and closed but perhaps not yet on stable storage.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use penstock_engine::{Error, Result};

use super::Chunks;
use crate::store::change;
use crate::store::file::{self, lock};

/// The chunks that one server has written. Syncing each as it is closed would wait for the disk
/// each time; instead each begins to be written back, and all are waited for at the end. That
/// takes 8 bytes a file.
#[derive(Default)]
pub(super) struct Written {
    closed: Mutex<Vec<u64>>,
    /// Directories in which others were made.
    grown: Mutex<BTreeSet<PathBuf>>,
}

impl Written {
    /// Opens a chunk's file for writing, creating it and the directories above it.
    pub(super) fn create(&self, chunks: &Chunks, object: u64) -> Result<File> {
        let path = &chunks.path(object);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        let file = match (change::create(&options, path), path.parent()) {
            (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
                // The directory of all chunks must be there: it goes when the write is given up.
                if !chunks.home(object).is_dir() {
                    return Err(Error::io(&error, "creating", path));
                }
                let made = change::create_dir_all(parent)
                    .map_err(|e| Error::io(&e, "creating the directory", parent))?;
                let grown = made.iter().filter_map(|made| made.parent());
                lock(&self.grown).extend(grown.map(Path::to_path_buf));
                change::create(&options, path)
            }
            (answer, _) => answer,
        };
        file.map_err(|e| Error::io(&e, "creating", path))
    }

    /// Takes a file that is complete.
    pub(super) fn closed(&self, object: u64, path: &Path, file: File) -> Result<()> {
        file::start_writeback(&file, 0, 0, path)?;
        lock(&self.closed).push(object);
        Ok(())
    }

    /// Brings to its end what the server has of the array; with `sync`, all files taken, and the directories
    /// they are in, are then on stable storage.
    pub(super) fn finish(&self, chunks: &Chunks, sync: bool) -> Result<()> {
        if sync {
            self.sync(chunks)?;
        }
        match &chunks.files.spread {
            None => Ok(()),
            Some(of) => of.link_rest(chunks.server),
        }
    }

    fn sync(&self, chunks: &Chunks) -> Result<()> {
        let mut closed = std::mem::take(&mut *lock(&self.closed));
        // Those that were written again are there several times.
        closed.sort_unstable();
        closed.dedup();
        // Whoever makes something in a directory syncs that; what others may have left there is synced, too. A new
        // array's own directory is synced by the root, when all servers have made their files.
        let mut directories: BTreeSet<PathBuf> = BTreeSet::new();
        let is_new = chunks.files.is_new;
        let levels = if is_new { 1 } else { usize::MAX };
        let mut paths = Vec::with_capacity(closed.len());
        for object in closed {
            let (path, home) = (chunks.path(object), chunks.home(object));
            for directory in path.ancestors().skip(1).take(levels) {
                if !directory.starts_with(&home) || directories.contains(directory) {
                    break;
                }
                directories.insert(directory.to_path_buf());
            }
            paths.push(path);
        }
        directories.append(&mut lock(&self.grown));
        if is_new {
            directories.remove(&chunks.files.directory);
        }
        paths.extend(directories);
        file::sync_paths(&paths)
    }
}
