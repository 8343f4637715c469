//! Moves chunks through a codec chain: one chunk, one file, one piece of work.
//!
//! In an array that grows, a block is some rows of a chunk. The chunk's other rows are decoded, and
//! all of the chunk is encoded again, aside: readers see the old chunk until the new one takes its
//! place. In an array that is changed in place that holds for all chunks.

use std::path::Path;

use penstock_engine::{Digest, Error, Result};
use penstock_layout::{Block, DiskSchema, exact};
use penstock_machines::Medium;
use penstock_machines::disk::medium::no_parts;

use super::chunks::Chunks;
use super::coder::Coder;
use super::plain::read_only;
use super::written::ChunkFiles;
use crate::fs::{files, ops};

/// Encodes and writes chunks.
pub(super) struct Writer {
    chunks: Chunks,
    coder: Coder,
    /// Whether all chunks are written aside: others may look at the chunks that are there.
    is_aside: bool,
    written: ChunkFiles,
}

impl Writer {
    /// A writer of chunks at which nobody looks yet, but for those that keep other rows.
    pub(super) fn new(chunks: Chunks, coder: Coder) -> Self {
        Self {
            chunks,
            coder,
            is_aside: false,
            written: ChunkFiles::default(),
        }
    }

    /// A writer of chunks that take the places of others whenever it is finished.
    pub(super) fn updater(chunks: Chunks, coder: Coder) -> Self {
        Self {
            is_aside: true,
            ..Self::new(chunks, coder)
        }
    }

    fn write_whole(&self, object: u64, data: &[u8], path: &Path) -> Result<()> {
        let coder = self.chunks.coder(&self.coder, object);
        let encoded = coder.encode(data).map_err(|e| e.at(path))?;
        if self.is_aside {
            return self.written.write_aside(&self.chunks, object, &encoded);
        }
        let file = self.written.create(&self.chunks, object)?;
        files::write_at(&file, &encoded, 0, path)?;
        // The file may have been longer.
        if files::length(&file, path)? > encoded.len() as u64 {
            ops::set_len(&file, encoded.len() as u64, path)
                .map_err(|e| Error::io(&e, "setting the length of", path))?;
        }
        self.written.closed(object, path, file)
    }

    /// Writes rows of a chunk, and keeps its other rows.
    fn write_rows(&self, block: &Block, data: &[u8], path: &Path) -> Result<()> {
        let mut whole = files::zeros(self.chunks.bytes(block.object))?;
        self.read_chunk(block.object, &mut whole)?;
        let start = exact::<usize>(self.chunks.offset(block));
        whole[start..start + data.len()].copy_from_slice(data);
        let coder = self.chunks.coder(&self.coder, block.object);
        let encoded = coder.encode(&whole).map_err(|e| e.at(path))?;
        self.written
            .write_aside(&self.chunks, block.object, &encoded)
    }

    /// Reads a whole chunk, as this writer has last written it.
    fn read_chunk(&self, object: u64, data: &mut [u8]) -> Result<()> {
        match self.written.is_aside(object) {
            true => {
                let coder = self.chunks.coder(&self.coder, object);
                decode(&coder, &self.chunks.path_aside(object), data).map(drop)
            }
            false => read_chunk(&self.chunks, &self.coder, object, data),
        }
    }
}

impl Medium for Writer {
    fn position(&self, _: &Block) -> Option<u64> {
        None // a file is opened for each chunk as it is moved, and not before
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        let path = self.chunks.path(block.object);
        match data.len() as u64 == self.chunks.bytes(block.object) {
            true => self.write_whole(block.object, data, &path),
            false => self.write_rows(block, data, &path),
        }
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        let read = |data: &mut [u8]| self.read_chunk(block.object, data);
        read_rows(&self.chunks.schema, block, data, read)
    }

    fn moves_parts(&self) -> bool {
        false
    }

    fn write_part(&self, _: &Block, _: u64, _: &[u8]) -> Result<()> {
        Err(no_parts("writing"))
    }

    fn read_part(&self, _: &Block, _: u64, _: &mut [u8]) -> Result<()> {
        Err(no_parts("reading"))
    }

    fn finish(&self, sync: bool) -> Result<()> {
        self.written.finish(&self.chunks, sync)
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Reads and decodes chunks.
pub(super) struct Reader {
    chunks: Chunks,
    coder: Coder,
}

impl Reader {
    pub(super) fn new(chunks: Chunks, coder: Coder) -> Self {
        Self { chunks, coder }
    }
}

impl Medium for Reader {
    fn position(&self, _: &Block) -> Option<u64> {
        None // a file is opened for each chunk as it is moved, and not before
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, _: &[u8]) -> Result<()> {
        Err(read_only(&self.chunks.path(block.object)))
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        let read = |data: &mut [u8]| read_chunk(&self.chunks, &self.coder, block.object, data);
        read_rows(&self.chunks.schema, block, data, read)
    }

    fn moves_parts(&self) -> bool {
        false
    }

    fn write_part(&self, block: &Block, _: u64, _: &[u8]) -> Result<()> {
        Err(read_only(&self.chunks.path(block.object)))
    }

    fn read_part(&self, _: &Block, _: u64, _: &mut [u8]) -> Result<()> {
        Err(no_parts("reading"))
    }

    fn finish(&self, _sync: bool) -> Result<()> {
        Ok(())
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Reads a block, which is all of a chunk or rows of it, from the whole chunk.
pub(crate) fn read_rows(
    schema: &DiskSchema,
    block: &Block,
    data: &mut [u8],
    read: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<()> {
    let bytes = schema.chunk_bytes(block.object);
    if data.len() as u64 == bytes {
        return read(data);
    }
    let mut whole = files::zeros(bytes)?;
    read(&mut whole)?;
    let start = exact::<usize>(schema.offset_in_chunk(block.object) + block.offset);
    data.copy_from_slice(&whole[start..start + data.len()]);
    Ok(())
}

/// Reads a whole chunk of the array, or of the array that is changed.
fn read_chunk(chunks: &Chunks, coder: &Coder, object: u64, data: &mut [u8]) -> Result<()> {
    let base = chunks.base_path(object);
    let coder = chunks.coder(coder, object);
    for path in [Some(chunks.path(object)), base].iter().flatten() {
        if decode(&coder, path, data)? {
            return Ok(());
        }
    }
    coder.fill(data);
    Ok(())
}

/// Decodes a file. Gives false if there is none.
fn decode(coder: &Coder, path: &Path, data: &mut [u8]) -> Result<bool> {
    let Some(encoded) = files::read_if_there(path)? else {
        return Ok(false);
    };
    coder.decode(&encoded, data).map_err(|e| e.at(path))?;
    Ok(true)
}
