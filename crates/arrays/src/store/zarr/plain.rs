//! Chunks without codec: as fast as a flat file, and like one moved around the page cache if asked.

use std::path::Path;
use std::sync::Arc;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::Block;
use penstock_machines::Medium;

use super::Chunks;
use super::written::Written;
use crate::dtype;
use crate::store::direct::DataFile;
use crate::store::file::{self, GivenUp, Open};

/// Chunk files kept open: each disk thread is at one.
const OPEN_MAX: usize = 16;

/// Writes blocks of chunks.
pub(super) struct Writer {
    chunks: Chunks,
    direct: bool,
    open: Open<DataFile>,
    written: Written,
}

impl Writer {
    pub(super) fn new(chunks: Chunks, direct: bool) -> Self {
        Self {
            chunks,
            direct,
            open: Open::new(OPEN_MAX),
            written: Written::default(),
        }
    }

    /// A chunk's file, at its full length, so that padding which nobody writes reads as zeros.
    fn create(&self, path: &Path, bytes: u64) -> Result<DataFile> {
        let file = self.written.create(&self.chunks, path)?;
        file.set_len(bytes)
            .map_err(|e| Error::io(&e, "setting the length of", path))?;
        DataFile::new(file, self.direct, path)
    }

    fn close(&self, files: GivenUp<DataFile>) -> Result<()> {
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
        let path = self.chunks.path(block.object);
        let object_bytes = self.chunks.schema.object_bytes(block.object);
        if block.bytes == object_bytes {
            let file = self.written.create(&self.chunks, &path)?;
            let file = DataFile::new(file, self.direct, &path)?;
            file.write_at(data, 0, &path)?;
            return self.written.closed(block.object, &path, file.into_file());
        }
        self.write_part(block, 0, data)
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.read_part(block, 0, data)
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
        file.write_at(data, block.offset + offset, &path)?;
        self.close(given_up)
    }

    /// What this call has written: its chunks have the full length.
    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        let path = self.chunks.path(block.object);
        match file::open_if_there(&path)? {
            None => data.fill(0),
            Some(file) => {
                let file = DataFile::new(file, self.direct, &path)?;
                file.read_at(data, block.offset + offset, &path)?;
            }
        }
        Ok(())
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
    direct: bool,
    /// `None`: there is no such file.
    open: Open<Option<DataFile>>,
}

impl Reader {
    pub(super) fn new(chunks: Chunks, swap_width: usize, fill: Vec<u8>, direct: bool) -> Self {
        Self {
            chunks,
            swap_width,
            fill,
            direct,
            open: Open::new(OPEN_MAX),
        }
    }

    /// A chunk's file, whose length is checked once.
    fn open(&self, path: &Path, bytes: u64) -> Result<Option<DataFile>> {
        let Some(file) = file::open_if_there(path)? else {
            return Ok(None);
        };
        let length = file::length(&file, path)?;
        if length != bytes {
            let cause = format!("the chunk has {length} bytes where {bytes} belong");
            return Err(file::damaged(path, cause));
        }
        DataFile::new(file, self.direct, path).map(Some)
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
                file.read_at(data, block.offset + offset, &path)?;
                dtype::swap(data, self.swap_width);
            }
        }
        Ok(())
    }

    fn finish(&self, _sync: bool) -> Result<()> {
        Ok(())
    }
}
