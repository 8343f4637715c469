//! Chunks without codec: as fast as a flat file, and like one moved around the page cache if asked.

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

/// Chunk files kept open: each disk thread is at one.
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

    /// A chunk's file, at its full length, so that padding which nobody writes reads as zeros. It
    /// begins as the chunk of the array that is changed.
    fn create(&self, object: u64, path: &Path) -> Result<DataFile> {
        let bytes = self.chunks.bytes(object);
        let file = self.written.create(&self.chunks, object)?;
        let is_new = files::length(&file, path)? == 0;
        match self.chunks.open_base(object)?.filter(|_| is_new) {
            Some((base, base_path)) => {
                check_length(&base, bytes, &base_path)?;
                ops::copy(&base, &file, path).map_err(|e| Error::io(&e, "copying to", path))?;
            }
            None if !is_new && self.chunks.location.grows => check_length(&file, bytes, path)?,
            None => {
                ops::set_len(&file, bytes, path)
                    .map_err(|e| Error::io(&e, "setting the length of", path))?;
                if is_new && self.fill.iter().any(|&byte| byte != 0) {
                    let mut filled = vec![0; exact::<usize>(bytes)];
                    fill(&mut filled, &self.fill);
                    files::write_at(&file, &filled, 0, path)?;
                }
            }
        }
        DataFile::new(file, self.way, path)
    }

    /// A chunk's file, for a block that is all of it.
    fn create_bare(&self, object: u64, path: &Path) -> Result<DataFile> {
        let file = self.written.create(&self.chunks, object)?;
        DataFile::new(file, self.way, path)
    }

    fn is_whole(&self, block: &Block) -> bool {
        block.bytes == self.chunks.bytes(block.object)
    }

    fn close(&self, files: ClosedObjects<DataFile>) -> Result<()> {
        for (object, file) in files {
            // Nobody else has it: what is in use is not given up.
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

    /// What this call has written, whose chunks have the full length, or what stands in the array
    /// that it changes.
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

/// A chunk without codec has one length.
fn check_length(file: &File, bytes: u64, path: &Path) -> Result<()> {
    let length = files::length(file, path)?;
    if length == bytes {
        return Ok(());
    }
    let cause = format!("the chunk has {length} bytes where {bytes} belong");
    Err(files::damaged(path, cause))
}

/// What is open for reading is not written.
pub(super) fn read_only(path: &Path) -> Error {
    Error::new(Kind::ReadOnly, "writing", "the array is open for reading").at(path)
}

/// Reads blocks of chunks.
pub(super) struct Reader {
    chunks: Chunks,
    swap_width: usize,
    fill: Vec<u8>,
    way: AccessMode,
    /// `None`: there is no such file.
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

    /// A chunk's file, whose length is checked once.
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
