//! One row-major file as a medium, with or without a header.
//!
//! A block is a run of the file's bytes, so it costs one `pread` or `pwrite`, straight from or into
//! the staging buffer. Bytes are swapped if the file's order is not the machine's, and records with
//! padding go through another buffer. Parts of blocks are runs of bytes too, and ranks may write
//! theirs side by side. With direct I/O, the whole pages of a run go around the page cache.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;

use penstock_engine::{Digest, Error, Result};
use penstock_layout::{Block, exact};
use penstock_machines::Medium;
use serde::{Deserialize, Serialize};

use crate::dtype::StoredElement;
use crate::fs::direct::{AccessMode, DataFile};
use crate::fs::files;
use crate::fs::ops;

/// The bytes with padding that are read or written at once.
const PADDED_BYTES: u64 = 1 << 20;

/// The place of a row-major file, and the form of its elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Location {
    pub(crate) file: PathBuf,
    /// The bytes before the first element.
    pub(crate) header_bytes: u64,
    pub(crate) element: StoredElement,
}

impl Location {
    /// Opens the file for writing and reading, as it is.
    pub(crate) fn open_write(&self, way: AccessMode) -> Result<Arc<dyn Medium>> {
        let path = &self.file;
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|e| Error::io(&e, "opening for writing", path))?;
        Ok(Arc::new(FlatFile {
            file: DataFile::new(file, way, path)?,
            path: path.clone(),
            header_bytes: self.header_bytes,
            element: self.element.clone(),
        }))
    }

    pub(crate) fn open_read(&self, way: AccessMode) -> Result<Arc<dyn Medium>> {
        let path = &self.file;
        let file = File::open(path).map_err(|e| Error::io(&e, "opening", path))?;
        Ok(Arc::new(FlatFile {
            file: DataFile::new(file, way, path)?,
            path: path.clone(),
            header_bytes: self.header_bytes,
            element: self.element.clone(),
        }))
    }

    /// The file of a block, and the block's offset in it.
    pub(crate) fn place_of(&self, block: &Block) -> (PathBuf, Option<u64>) {
        let offset = self.element.stored_bytes(block.offset);
        (self.file.clone(), Some(self.header_bytes + offset))
    }
}

/// One file that holds the whole array.
struct FlatFile {
    file: DataFile,
    path: PathBuf,
    header_bytes: u64,
    element: StoredElement,
}

impl FlatFile {
    /// The offset in the file of an offset in a block.
    fn offset(&self, block: &Block, offset: u64) -> u64 {
        self.header_bytes + self.element.stored_bytes(block.offset + offset)
    }

    /// The bytes of elements that go together between memory and the file, of `bytes` in all:
    /// padding may make many bytes of few.
    fn piece_bytes(&self, bytes: usize) -> usize {
        if !self.element.has_padding() {
            return bytes.max(1);
        }
        let elements = (PADDED_BYTES / self.element.width()).max(1);
        exact::<usize>(elements * self.element.element().width())
    }
}

impl Medium for FlatFile {
    fn position(&self, block: &Block) -> Option<u64> {
        self.file.position(self.offset(block, 0))
    }

    fn is_in_order(&self) -> bool {
        self.file.is_in_order()
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        self.write_part(block, 0, data)
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.read_part(block, 0, data)
    }

    fn moves_parts(&self) -> bool {
        true
    }

    fn write_part(&self, block: &Block, offset: u64, data: &[u8]) -> Result<()> {
        let mut offset = self.offset(block, offset);
        for elements in data.chunks(self.piece_bytes(data.len())) {
            let stored = self.element.stored(elements);
            self.file.write_at(&stored, offset, &self.path)?;
            offset += stored.len() as u64;
        }
        Ok(())
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        let mut offset = self.offset(block, offset);
        if !self.element.has_padding() {
            self.file.read_at(data, offset, &self.path)?;
            self.element.swap(data);
            return Ok(());
        }
        for elements in data.chunks_mut(self.piece_bytes(data.len())) {
            let mut stored = files::zeros(self.element.stored_bytes(elements.len() as u64))?;
            self.file.read_at(&mut stored, offset, &self.path)?;
            self.element.pack(&stored, elements);
            offset += stored.len() as u64;
        }
        Ok(())
    }

    fn finish(&self, sync: bool) -> Result<()> {
        if !sync {
            return Ok(());
        }
        ops::sync(self.file.file(), &self.path).map_err(|e| Error::io(&e, "syncing", &self.path))
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}
