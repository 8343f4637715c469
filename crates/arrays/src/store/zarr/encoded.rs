//! Chunks through a codec chain: one chunk, one file, one piece of work.

use penstock_engine::{Error, Result};
use penstock_layout::Block;
use penstock_machines::Medium;

use super::Chunks;
use super::coder::Coder;
use super::plain::read_only;
use super::written::Written;
use crate::store::{change, file};

/// Encodes and writes whole chunks.
pub(super) struct Writer {
    chunks: Chunks,
    coder: Coder,
    written: Written,
}

impl Writer {
    pub(super) fn new(chunks: Chunks, coder: Coder) -> Self {
        Self {
            chunks,
            coder,
            written: Written::default(),
        }
    }
}

impl Medium for Writer {
    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        let path = self.chunks.path(block.object);
        let encoded = self.coder.encode(data).map_err(|e| e.at(&path))?;
        let file = self.written.create(&self.chunks, block.object)?;
        file::write_at(&file, &encoded, 0, &path)?;
        // Written before, it may have been longer.
        if file::length(&file, &path)? > encoded.len() as u64 {
            change::set_len(&file, encoded.len() as u64)
                .map_err(|e| Error::io(&e, "setting the length of", &path))?;
        }
        self.written.closed(block.object, &path, file)
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        read_chunk(&self.chunks, &self.coder, block, data)
    }

    fn finish(&self, sync: bool) -> Result<()> {
        self.written.finish(&self.chunks, sync)
    }
}

/// Reads and decodes whole chunks.
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
    fn write(&self, block: &Block, _: &[u8]) -> Result<()> {
        Err(read_only(&self.chunks.path(block.object)))
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        read_chunk(&self.chunks, &self.coder, block, data)
    }

    fn finish(&self, _sync: bool) -> Result<()> {
        Ok(())
    }
}

fn read_chunk(chunks: &Chunks, coder: &Coder, block: &Block, data: &mut [u8]) -> Result<()> {
    let base = chunks.base_path(block.object);
    for path in [Some(chunks.path(block.object)), base].iter().flatten() {
        if let Some(encoded) = file::read_if_there(path)? {
            return coder.decode(&encoded, data).map_err(|e| e.at(path));
        }
    }
    super::fill(data, coder.fill_value.as_ne_bytes());
    Ok(())
}
