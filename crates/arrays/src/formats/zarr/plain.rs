//! Moves chunks without codec: as fast as a flat file, and around the page cache if a user chooses
//! so.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Block, exact};
use penstock_machines::Medium;
use penstock_machines::memory::buffer::fill;

use super::chunks::Chunks;
use super::written::ChunkFiles;
use crate::dtype;
use crate::fs::direct::{AccessMode, DataFile};
use crate::fs::files::{self, ClosedObjects, Open};
use crate::fs::ops;

/// The most chunk files that are kept open: each disk thread is at one.
const OPEN_MAX: usize = 16;

/// Writes blocks of chunks.
pub(super) struct Writer {
    chunks: Chunks,
    fill: Vec<u8>,
    way: AccessMode,
    open: Open<DataFile>,
    written: ChunkFiles,
}

impl Writer {
    pub(super) fn new(chunks: Chunks, fill: Vec<u8>, way: AccessMode) -> Self {
        Self {
            chunks,
            fill,
            way,
            open: Open::new(OPEN_MAX),
            written: ChunkFiles::default(),
        }
    }

    /// Opens or makes a chunk's file at its full length, so that unwritten padding reads as zeros,
    /// or as the fill value. A new file begins as the chunk of the array that is changed.
    fn create(&self, object: u64, path: &Path) -> Result<DataFile> {
        let bytes = self.chunks.bytes(object);
        let base = self.chunks.open_base(object)?;
        if base.is_none() && self.fill.iter().any(|&byte| byte != 0) {
            let filled = || {
                let mut filled = vec![0; exact::<usize>(bytes)];
                fill(&mut filled, &self.fill);
                filled
            };
            self.written.create_filled(&self.chunks, object, filled)?;
        }
        let file = self.written.create(&self.chunks, object)?;
        let is_new = files::length(&file, path)? == 0;
        match base.filter(|_| is_new) {
            Some((base, base_path)) => {
                check_length(&base, bytes, &base_path)?;
                ops::copy(&base, &file, path).map_err(|e| Error::io(&e, "copying to", path))?;
            }
            None if !is_new && self.chunks.location.grows => check_length(&file, bytes, path)?,
            None => ops::set_len(&file, bytes, path)
                .map_err(|e| Error::io(&e, "setting the length of", path))?,
        }
        DataFile::new(file, self.way, path)
    }

    /// Opens or makes a chunk's file for a block that is the whole chunk.
    fn create_bare(&self, object: u64, path: &Path) -> Result<DataFile> {
        let file = self.written.create(&self.chunks, object)?;
        DataFile::new(file, self.way, path)
    }

    fn is_whole(&self, block: &Block) -> bool {
        block.bytes == self.chunks.bytes(block.object)
    }

    fn close(&self, files: ClosedObjects<DataFile>) -> Result<()> {
        for (object, file) in files {
            // The file has no other owner: files in use are not closed.
            if let Some(file) = Arc::into_inner(file) {
                self.written
                    .closed(object, &self.chunks.path(object), file.into_file())?;
            }
        }
        Ok(())
    }
}

impl Medium for Writer {
    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        if !self.is_whole(block) {
            return self.write_part(block, 0, data);
        }
        let path = self.chunks.path(block.object);
        let file = match self.open.take(block.object) {
            Some(file) => file,
            None => self.create_bare(block.object, &path)?,
        };
        file.write_at(data, 0, &path)?;
        self.written.closed(block.object, &path, file.into_file())
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.read_part(block, 0, data)
    }

    fn moves_parts(&self) -> bool {
        true
    }

    fn write_part(&self, block: &Block, offset: u64, data: &[u8]) -> Result<()> {
        let path = self.chunks.path(block.object);
        let (file, given_up) = self
            .open
            .get(block.object, || self.create(block.object, &path))?;
        file.write_at(data, self.chunks.offset(block) + offset, &path)?;
        self.close(given_up)
    }

    /// Reads a chunk that this call has written, at its full length, or else the chunk of the array
    /// that is changed.
    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        let path = self.chunks.path(block.object);
        let found = match files::open_if_there(&path)? {
            Some(file) => Some((file, path)),
            None => self.chunks.open_base(block.object)?,
        };
        match found {
            None => fill(data, &self.fill),
            Some((file, path)) => {
                let file = DataFile::new(file, self.way, &path)?;
                file.read_at(data, self.chunks.offset(block) + offset, &path)?;
            }
        }
        Ok(())
    }

    fn finish(&self, sync: bool) -> Result<()> {
        self.close(self.open.drain())?;
        self.written.finish(&self.chunks, sync)
    }

    fn sums(&self) -> Vec<(u64, u32)> {
        Vec::new()
    }
}

/// Checks the length of a chunk: without codec it is fixed.
fn check_length(file: &File, bytes: u64, path: &Path) -> Result<()> {
    let length = files::length(file, path)?;
    if length == bytes {
        return Ok(());
    }
    let cause = format!("the chunk has {length} bytes where {bytes} belong");
    Err(files::damaged(path, cause))
}

/// The error of a write to an array that is open for reading.
pub(super) fn read_only(path: &Path) -> Error {
    Error::new(Kind::ReadOnly, "writing", "the array is open for reading").at(path)
}

/// Reads blocks of chunks.
pub(super) struct Reader {
    chunks: Chunks,
    swap_width: usize,
    fill: Vec<u8>,
    way: AccessMode,
    /// The open files; `None` for a missing one.
    open: Open<Option<DataFile>>,
}

impl Reader {
    pub(super) fn new(chunks: Chunks, swap_width: usize, fill: Vec<u8>, way: AccessMode) -> Self {
        Self {
            chunks,
            swap_width,
            fill,
            way,
            open: Open::new(OPEN_MAX),
        }
    }

    /// Opens a chunk's file, and checks its length once.
    fn open(&self, object: u64, path: &Path) -> Result<Arc<Option<DataFile>>> {
        let open = || {
            let Some(file) = files::open_if_there(path)? else {
                return Ok(None);
            };
            check_length(&file, self.chunks.bytes(object), path)?;
            DataFile::new(file, self.way, path).map(Some)
        };
        self.open.get(object, open).map(|(file, _)| file)
    }
}

impl Medium for Reader {
    fn write(&self, block: &Block, _: &[u8]) -> Result<()> {
        Err(read_only(&self.chunks.path(block.object)))
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.read_part(block, 0, data)
    }

    fn moves_parts(&self) -> bool {
        true
    }

    fn write_part(&self, block: &Block, _: u64, _: &[u8]) -> Result<()> {
        Err(read_only(&self.chunks.path(block.object)))
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        let path = self.chunks.path(block.object);
        match &*self.open(block.object, &path)? {
            None => fill(data, &self.fill),
            Some(file) => {
                file.read_at(data, self.chunks.offset(block) + offset, &path)?;
                dtype::swap(data, self.swap_width);
            }
        }
        Ok(())
    }

    fn finish(&self, _sync: bool) -> Result<()> {
        Ok(())
    }

    fn sums(&self) -> Vec<(u64, u32)> {
        Vec::new()
    }
}
