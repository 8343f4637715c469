//! Chunks without codec: as fast as a flat file.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::Block;
use penstock_machines::Medium;

use super::Chunks;
use super::written::Written;
use crate::dtype;
use crate::store::file::{self, GivenUp, Open};

/// Chunk files kept open: each disk thread is at one.
const OPEN_MAX: usize = 16;

/// Writes blocks of chunks.
pub(super) struct Writer {
    chunks: Chunks,
    open: Open<File>,
    written: Written,
}

impl Writer {
    pub(super) fn new(chunks: Chunks) -> Self {
        Self {
            chunks,
            open: Open::new(OPEN_MAX),
            written: Written::default(),
        }
    }

    /// A chunk's file, at its full length, so that padding which nobody writes reads as zeros.
    fn create(&self, path: &Path, bytes: u64) -> Result<File> {
        let file = self.written.create(&self.chunks, path)?;
        file.set_len(bytes)
            .map_err(|e| Error::io(&e, "setting the length of", path))?;
        Ok(file)
    }

    fn close(&self, files: GivenUp<File>) -> Result<()> {
        for (object, file) in files {
            // Nobody else has it: what is in use is not given up.
            if let Some(file) = Arc::into_inner(file) {
                self.written
                    .closed(object, &self.chunks.path(object), file)?;
            }
        }
        Ok(())
    }
}

impl Medium for Writer {
    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        let path = self.chunks.path(block.object);
        let object_bytes = self.chunks.schema.object_bytes(block.object);
        if block.bytes == object_bytes {
            let file = self.written.create(&self.chunks, &path)?;
            file::write_at(&file, data, 0, &path)?;
            return self.written.closed(block.object, &path, file);
        }
        self.write_part(block, 0, data)
    }

    /// What this call has written: its chunks have the full length.
    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        let path = self.chunks.path(block.object);
        match file::open_if_there(&path)? {
            None => data.fill(0),
            Some(file) => file::read_at(&file, data, block.offset, &path)?,
        }
        Ok(())
    }

    fn moves_parts(&self) -> bool {
        true
    }

    fn write_part(&self, block: &Block, offset: u64, data: &[u8]) -> Result<()> {
        let path = self.chunks.path(block.object);
        let object_bytes = self.chunks.schema.object_bytes(block.object);
        let (file, given_up) = self
            .open
            .get(block.object, || self.create(&path, object_bytes))?;
        file::write_at(&file, data, block.offset + offset, &path)?;
        self.close(given_up)
    }

    fn finish(&self, sync: bool) -> Result<()> {
        self.close(self.open.drain())?;
        if sync {
            self.written.sync(&self.chunks)
        } else {
            Ok(())
        }
    }
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
    /// `None`: there is no such file.
    open: Open<Option<File>>,
}

impl Reader {
    pub(super) fn new(chunks: Chunks, swap_width: usize, fill: Vec<u8>) -> Self {
        Self {
            chunks,
            swap_width,
            fill,
            open: Open::new(OPEN_MAX),
        }
    }

    /// A chunk's file, whose length is checked once.
    fn open(&self, path: &Path, bytes: u64) -> Result<Option<File>> {
        let Some(file) = file::open_if_there(path)? else {
            return Ok(None);
        };
        let length = file::length(&file, path)?;
        if length != bytes {
            let cause = format!("the chunk has {length} bytes where {bytes} belong");
            return Err(file::damaged(path, cause));
        }
        Ok(Some(file))
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

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        let path = self.chunks.path(block.object);
        let bytes = self.chunks.schema.object_bytes(block.object);
        let (file, _) = self.open.get(block.object, || self.open(&path, bytes))?;
        match file.as_ref() {
            None => super::fill(data, &self.fill),
            Some(file) => {
                file::read_at(file, data, block.offset + offset, &path)?;
                dtype::swap(data, self.swap_width);
            }
        }
        Ok(())
    }

    fn finish(&self, _sync: bool) -> Result<()> {
        Ok(())
    }
}
