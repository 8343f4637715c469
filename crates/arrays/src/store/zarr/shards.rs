//! Shards: sub-chunks encoded each by itself in one file, with an index of where each lies.
//!
//! ```text
//! +-------------+-------------+-----+--------------------------------------+
//! | sub-chunk 0 | sub-chunk 1 | ... | offset 0, bytes 0, offset 1, ... crc |
//! +-------------+-------------+-----+--------------------------------------+
//!    in the order of writing            u64, row-major; 2^64 - 1: missing
//! ```
//!
//! A shard is written by one server, sub-chunk by sub-chunk, so memory holds one sub-chunk and the
//! index. The index is written when the shard is given up: when enough other shards have been
//! begun, or at the end. Should a sub-chunk come after that, the index is taken up again.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use penstock_engine::{Error, Kind, Result};
use penstock_layout::Block;
use penstock_machines::Medium;
use zarrs::array::codec::ShardingIndexLocation;

use super::Chunks;
use super::coder::Coder;
use super::plain::{read_only, write_only};
use super::written::Written;
use crate::dtype;
use crate::store::file::{self, GivenUp, Open, damaged, lock};

/// Shards kept open: each disk thread is at one.
const OPEN_MAX: usize = 16;
/// Offset and length of a sub-chunk that is not there.
const MISSING: u64 = u64::MAX;

/// What every shard of an array has in common.
pub(super) struct Form {
    inner: Coder,
    /// Where the sub-chunks are the elements as they are: what must be reversed after reading.
    swap_width: Option<usize>,
    index: Coder,
    index_bytes: u64,
    index_location: ShardingIndexLocation,
    fill: Vec<u8>,
}

impl Form {
    /// # Errors
    /// When the index is of no fixed length.
    pub(super) fn new(
        inner: Coder,
        swap_width: Option<usize>,
        index: Coder,
        index_location: ShardingIndexLocation,
        fill: Vec<u8>,
    ) -> Result<Self> {
        let numbers = index
            .shape
            .iter()
            .try_fold(8_u64, |n, extent| n.checked_mul(extent.get()));
        if numbers.is_none_or(|bytes| bytes > i64::MAX as u64 / 2) {
            let cause = "a shard has more sub-chunks than can be counted";
            return Err(Error::new(Kind::Damaged, "reading", cause));
        }
        let index_bytes = index.encoded_bytes().ok_or_else(|| {
            Error::new(
                Kind::Unsupported,
                "reading",
                "a shard index of no fixed length",
            )
        })?;
        Ok(Self {
            inner,
            swap_width,
            index,
            index_bytes,
            index_location,
            fill,
        })
    }

    /// Numbers in an index: two for each sub-chunk.
    fn index_numbers(&self) -> usize {
        self.index.shape.iter().map(|n| n.get() as usize).product()
    }

    /// Reads the index of a shard.
    fn read_index(&self, file: &File, path: &Path) -> Result<Vec<u64>> {
        let length = file::length(file, path)?;
        let Some(end) = length.checked_sub(self.index_bytes) else {
            let cause = format!(
                "{length} bytes do not hold a shard's index of {}",
                self.index_bytes
            );
            return Err(damaged(path, cause));
        };
        let start = if self.index_location == ShardingIndexLocation::Start {
            0
        } else {
            end
        };
        let mut encoded = vec![0; self.index_bytes as usize];
        file::read_at(file, &mut encoded, start, path)?;
        let mut decoded = vec![0; self.index_numbers() * 8];
        self.index.decode(&encoded, &mut decoded).map_err(|e| {
            let e = e.at(path).in_bytes(start..start + self.index_bytes);
            Error {
                doing: "decoding the shard's index".to_string(),
                ..e
            }
        })?;
        Ok(decoded
            .as_chunks::<8>()
            .0
            .iter()
            .map(|number| u64::from_ne_bytes(*number))
            .collect())
    }

    fn encode_index(&self, numbers: &[u64]) -> Result<Vec<u8>> {
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .collect();
        self.index.encode(&bytes).map(std::borrow::Cow::into_owned)
    }
}

/// Appends sub-chunks to shards.
pub(super) struct Writer {
    chunks: Chunks,
    form: Form,
    open: Open<Mutex<Shard>>,
    written: Written,
}

/// A shard being written.
struct Shard {
    file: File,
    path: PathBuf,
    index: Vec<u64>,
    /// Where the next sub-chunk goes.
    end: u64,
}

impl Writer {
    pub(super) fn new(chunks: Chunks, form: Form) -> Self {
        Self {
            chunks,
            form,
            open: Open::new(OPEN_MAX),
            written: Written::default(),
        }
    }

    fn begin(&self, object: u64) -> Result<Mutex<Shard>> {
        let path = self.chunks.path(object);
        let file = self.written.create(&self.chunks, &path)?;
        let length = file::length(&file, &path)?;
        let (index, end) = if length == 0 {
            (vec![MISSING; self.form.index_numbers()], 0)
        } else {
            let index = self.form.read_index(&file, &path)?;
            let end = length - self.form.index_bytes;
            file.set_len(end)
                .map_err(|e| Error::io(&e, "taking up again", &path))?;
            (index, end)
        };
        Ok(Mutex::new(Shard {
            file,
            path,
            index,
            end,
        }))
    }

    fn end(&self, shards: GivenUp<Mutex<Shard>>) -> Result<()> {
        for (object, shard) in shards {
            // Nobody else has it: what is in use is not given up.
            let Some(shard) = Arc::into_inner(shard) else {
                continue;
            };
            let shard = shard
                .into_inner()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            let index = self
                .form
                .encode_index(&shard.index)
                .map_err(|e| e.at(&shard.path))?;
            file::write_at(&shard.file, &index, shard.end, &shard.path)?;
            self.written.closed(object, &shard.path, shard.file)?;
        }
        Ok(())
    }
}

impl Medium for Writer {
    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        let (shard, given_up) = self.open.get(block.object, || self.begin(block.object))?;
        {
            let mut shard = lock(&shard);
            let encoded = self
                .form
                .inner
                .encode(data)
                .map_err(|e| e.at(&shard.path))?;
            file::write_at(&shard.file, &encoded, shard.end, &shard.path)?;
            let entry = 2 * block.index as usize;
            shard.index[entry] = shard.end;
            shard.index[entry + 1] = encoded.len() as u64;
            shard.end += encoded.len() as u64;
        }
        self.end(given_up)
    }

    fn read(&self, block: &Block, _: &mut [u8]) -> Result<()> {
        Err(write_only(&self.chunks.path(block.object)))
    }

    fn finish(&self, sync: bool) -> Result<()> {
        self.end(self.open.drain())?;
        if sync {
            self.written.sync(&self.chunks)
        } else {
            Ok(())
        }
    }
}

/// Reads single sub-chunks.
pub(super) struct Reader {
    chunks: Chunks,
    form: Form,
    /// `None`: there is no such file.
    open: Open<Option<Found>>,
}

/// A shard that is there.
struct Found {
    file: File,
    bytes: u64,
    index: Vec<u64>,
}

impl Reader {
    pub(super) fn new(chunks: Chunks, form: Form) -> Self {
        Self {
            chunks,
            form,
            open: Open::new(OPEN_MAX),
        }
    }

    fn read_sub_chunk(
        &self,
        shard: &Found,
        block: &Block,
        data: &mut [u8],
        path: &Path,
    ) -> Result<()> {
        let entry = 2 * block.index as usize;
        let (offset, bytes) = (shard.index[entry], shard.index[entry + 1]);
        let file = &shard.file;
        if (offset, bytes) == (MISSING, MISSING) {
            super::fill(data, &self.form.fill);
            return Ok(());
        }
        if offset
            .checked_add(bytes)
            .is_none_or(|end| end > shard.bytes)
        {
            let cause = format!(
                "sub-chunk {} is said to be {bytes} bytes at {offset}, beyond the shard's {}",
                block.index, shard.bytes
            );
            return Err(damaged(path, cause));
        }
        if let Some(swap_width) = self.form.swap_width {
            if bytes != data.len() as u64 {
                let cause = format!(
                    "sub-chunk {} has {bytes} bytes, not {}",
                    block.index,
                    data.len()
                );
                return Err(damaged(path, cause).in_bytes(offset..offset + bytes));
            }
            file::read_at(file, data, offset, path)?;
            dtype::swap(data, swap_width);
            return Ok(());
        }
        let mut encoded = vec![0; bytes as usize];
        file::read_at(file, &mut encoded, offset, path)?;
        let decoded = self.form.inner.decode(&encoded, data);
        decoded.map_err(|e| e.at(path).in_bytes(offset..offset + bytes))
    }
}

impl Medium for Reader {
    fn write(&self, block: &Block, _: &[u8]) -> Result<()> {
        Err(read_only(&self.chunks.path(block.object)))
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        let path = self.chunks.path(block.object);
        let (shard, _) = self.open.get(block.object, || {
            let Some(file) = file::open_if_there(&path)? else {
                return Ok(None);
            };
            let index = self.form.read_index(&file, &path)?;
            Ok(Some(Found {
                bytes: file::length(&file, &path)?,
                file,
                index,
            }))
        })?;
        match shard.as_ref() {
            None => super::fill(data, &self.form.fill),
            Some(shard) => self.read_sub_chunk(shard, block, data, &path)?,
        }
        Ok(())
    }

    fn finish(&self, _sync: bool) -> Result<()> {
        Ok(())
    }
}
