//! Chunk files that are written and closed but perhaps not yet on stable storage.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use penstock_engine::{Error, Kind, Result};

use super::chunks::Chunks;
use crate::fs::files::{self, lock};
use crate::fs::ops;

/// The chunk files that one server has written. A sync of each file as it is closed would wait for
/// the disk each time; instead the writeback of each file begins, and all are waited for at the
/// end. That takes the number of each file.
#[derive(Default)]
pub(super) struct ChunkFiles {
    closed: Mutex<BTreeSet<u64>>,
    /// The chunks that are written aside.
    aside: Mutex<BTreeSet<u64>>,
    /// The directories in which entries were made.
    grown: Mutex<BTreeSet<PathBuf>>,
}

impl ChunkFiles {
    /// Opens a chunk's file for writing, creating it and the directories above it.
    pub(super) fn create(&self, chunks: &Chunks, object: u64) -> Result<File> {
        let path = &chunks.path(object);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        let file = match (ops::create(&options, path), path.parent()) {
            (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
                self.make_directory(chunks, object, parent)?;
                ops::create(&options, path)
            }
            (answer, _) => answer,
        };
        file.map_err(|e| Error::io(&e, "creating", path))
    }

    /// Makes a chunk's file with these contents, unless it is there. The file appears with all of
    /// them: another rank may make it at the same time, and write to it as soon as it sees it.
    pub(super) fn create_filled(
        &self,
        chunks: &Chunks,
        object: u64,
        contents: impl FnOnce() -> Vec<u8>,
    ) -> Result<()> {
        let path = &chunks.path(object);
        if path.exists() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.make_directory(chunks, object, parent)?;
        }
        let own = chunks.path_of_new(object);
        files::write(&own, &contents())?;
        ops::rename_if_free(&own, path).map_err(|e| Error::io(&e, "linking into place", path))
    }

    /// Writes a chunk aside, to replace the former chunk at the end.
    pub(super) fn write_aside(&self, chunks: &Chunks, object: u64, bytes: &[u8]) -> Result<()> {
        let path = &chunks.path_aside(object);
        let file = self.create_aside(chunks, object, path)?;
        files::write_at(&file, bytes, 0, path)?;
        files::start_writeback(&file, 0, 0, path)?;
        self.is_now_aside(object);
        Ok(())
    }

    /// Creates an empty file, at a path in the directory of chunks that are written aside.
    pub(super) fn create_aside(&self, chunks: &Chunks, object: u64, path: &Path) -> Result<File> {
        if let Some(parent) = path.parent() {
            ops::create_dirs_below(&chunks.home(object), parent)
                .map_err(|e| Error::io(&e, "creating the directory", parent))?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        ops::create(&options, path).map_err(|e| Error::io(&e, "creating", path))
    }

    /// Notes that a chunk is complete in its file aside, from where it is put in its place.
    pub(super) fn is_now_aside(&self, object: u64) {
        lock(&self.aside).insert(object);
    }

    /// Notes that a chunk has been changed in its place.
    pub(super) fn changed(&self, object: u64) {
        lock(&self.closed).insert(object);
    }

    /// The file that holds a chunk, if there is one: aside, or in its place.
    pub(super) fn path(&self, chunks: &Chunks, object: u64) -> PathBuf {
        match self.is_aside(object) {
            true => chunks.path_aside(object),
            false => chunks.path(object),
        }
    }

    /// Whether a chunk has been written aside.
    pub(super) fn is_aside(&self, object: u64) -> bool {
        lock(&self.aside).contains(&object)
    }

    /// Makes the directory of a chunk, and all above it up to the directory of all chunks. That one
    /// must exist, and is never made again: an abandoned write has removed it.
    fn make_directory(&self, chunks: &Chunks, object: u64, directory: &Path) -> Result<()> {
        let home = chunks.home(object);
        if !home.is_dir() {
            let cause = "the array's directory is gone";
            return Err(Error::new(Kind::Missing, "creating a chunk in", cause).at(&home));
        }
        let made = ops::create_dirs_below(&home, directory)
            .map_err(|e| Error::io(&e, "creating the directory", directory))?;
        let grown = made.iter().filter_map(|made| made.parent());
        lock(&self.grown).extend(grown.map(Path::to_path_buf));
        Ok(())
    }

    /// Takes a complete file, and begins its writeback.
    pub(super) fn closed(&self, object: u64, path: &Path, file: File) -> Result<()> {
        files::start_writeback(&file, 0, 0, path)?;
        self.changed(object);
        Ok(())
    }

    /// Puts all chunks of the server in their places; with `sync`, all files, and the directories
    /// they are in, are then on stable storage.
    pub(super) fn finish(&self, chunks: &Chunks, sync: bool) -> Result<()> {
        self.put_in_place(chunks, sync)?;
        if sync {
            self.sync(chunks)?;
        }
        match &chunks.location.spread {
            None => Ok(()),
            Some(of) => of.link_rest(chunks.server),
        }
    }

    fn sync(&self, chunks: &Chunks) -> Result<()> {
        let closed = std::mem::take(&mut *lock(&self.closed));
        // A directory with new entries is synced; so are entries that others may have left there.
        let mut directories: BTreeSet<PathBuf> = std::mem::take(&mut *lock(&self.grown));
        let mut paths = Vec::with_capacity(closed.len());
        for object in closed {
            let (path, home) = (chunks.path(object), chunks.home(object));
            let above = path.ancestors().skip(1);
            for directory in above.take_while(|directory| directory.starts_with(&home)) {
                if !directories.insert(directory.to_path_buf()) {
                    break;
                }
            }
            paths.push(path);
        }
        paths.extend(directories);
        files::sync_paths(&paths)
    }

    /// Puts chunks that were written aside in their places. Until then readers see the old chunks;
    /// a chunk is one or the other at any moment, also after a crash.
    fn put_in_place(&self, chunks: &Chunks, sync: bool) -> Result<()> {
        let aside = std::mem::take(&mut *lock(&self.aside));
        if sync {
            let new = aside.iter().map(|&object| chunks.path_aside(object));
            files::sync_paths(&new.collect::<Vec<_>>())?;
        }
        for &object in &aside {
            let (from, path) = (chunks.path_aside(object), chunks.path(object));
            if let Some(parent) = path.parent() {
                self.make_directory(chunks, object, parent)?;
            }
            files::rename(&from, &path)?;
        }
        let mut emptied: BTreeSet<PathBuf> = BTreeSet::new();
        emptied.extend(
            aside
                .iter()
                .filter_map(|&o| Some(chunks.path_aside(o).parent()?.to_path_buf())),
        );
        for directory in emptied {
            ops::remove_dir(&directory)
                .map_err(|e| Error::io(&e, "removing the directory", &directory))?;
        }
        lock(&self.closed).extend(aside);
        Ok(())
    }
}
