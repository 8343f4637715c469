//! The form of an array's shards: the encoding of sub-chunks and indexes, and the place of the
//! index.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Block, exact};
use penstock_machines::memory::buffer::fill;
use zarrs::array::codec::ShardingIndexLocation;

use super::coder::Coder;
use crate::dtype::StoredElement;
use crate::fs::files::{self, damaged};

/// The offset and length of a missing sub-chunk.
pub(super) const MISSING: u64 = u64::MAX;

/// Bytes at offsets: a file, or an object in a bucket.
pub(super) trait Bytes {
    /// Fills all of `data` from `offset`. Bytes that end before that are damaged.
    fn read_at(&self, data: &mut [u8], offset: u64, path: &Path) -> Result<()>;
}

impl Bytes for File {
    fn read_at(&self, data: &mut [u8], offset: u64, path: &Path) -> Result<()> {
        files::read_at(self, data, offset, path)
    }
}

/// The form that all shards of an array have in common.
pub(super) struct ShardForm {
    pub(super) inner: Coder,
    /// The element in sub-chunks that hold the elements and nothing else.
    pub(super) plain: Option<StoredElement>,
    pub(super) fill: Vec<u8>,
    /// The index of the largest shard.
    index: IndexForm,
}

/// The form of a shard's index.
#[derive(Clone)]
pub(super) struct IndexForm {
    coder: Coder,
    pub(super) bytes: u64,
    location: ShardingIndexLocation,
}

impl IndexForm {
    /// # Errors
    /// When the index is of no fixed length, or has too many numbers.
    pub(super) fn new(coder: Coder, location: ShardingIndexLocation) -> Result<Self> {
        let numbers = coder
            .shape
            .iter()
            .try_fold(8_u64, |n, extent| n.checked_mul(extent.get()));
        if numbers.is_none_or(|bytes| bytes > i64::MAX as u64 / 2) {
            let cause = "a shard has more sub-chunks than can be counted";
            return Err(Error::new(Kind::Damaged, "reading", cause));
        }
        let bytes = coder.encoded_bytes().ok_or_else(|| {
            Error::new(
                Kind::Unsupported,
                "reading",
                "a shard index of no fixed length",
            )
        })?;
        Ok(Self {
            coder,
            bytes,
            location,
        })
    }

    /// Whether the index is at the end of the shard.
    pub(super) fn is_at_end(&self) -> bool {
        self.location == ShardingIndexLocation::End
    }

    /// The count of numbers in an index: two for each sub-chunk.
    pub(super) fn numbers(&self) -> usize {
        self.coder
            .shape
            .iter()
            .map(|n| exact::<usize>(n.get()))
            .product()
    }

    /// Reads the index of a shard of `length` bytes.
    pub(super) fn read(&self, shard: &impl Bytes, length: u64, path: &Path) -> Result<Vec<u64>> {
        let Some(end) = length.checked_sub(self.bytes) else {
            let cause = format!(
                "{length} bytes do not hold a shard's index of {}",
                self.bytes
            );
            return Err(damaged(path, cause));
        };
        let start = match self.is_at_end() {
            true => end,
            false => 0,
        };
        let mut encoded = files::zeros(self.bytes)?;
        shard.read_at(&mut encoded, start, path)?;
        let mut decoded = files::zeros(self.numbers() as u64 * 8)?;
        self.coder.decode(&encoded, &mut decoded).map_err(|e| {
            let e = e.at(path).in_bytes(start..start + self.bytes);
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

    pub(super) fn encode(&self, numbers: &[u64]) -> Result<Vec<u8>> {
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .collect();
        self.coder.encode(&bytes).map(Cow::into_owned)
    }
}

impl ShardForm {
    pub(super) fn new(
        inner: Coder,
        plain: Option<StoredElement>,
        index: IndexForm,
        fill: Vec<u8>,
    ) -> Self {
        Self {
            inner,
            plain,
            fill,
            index,
        }
    }

    /// The index of a shard of these extents.
    ///
    /// # Errors
    /// As [`IndexForm::new`].
    pub(super) fn index_of(&self, extents: &[u64]) -> Result<Cow<'_, IndexForm>> {
        let inner = self.inner.shape.iter();
        let mut counts: Vec<u64> = extents
            .iter()
            .zip(inner)
            .map(|(extent, part)| extent / part.get())
            .collect();
        counts.push(2);
        Ok(match self.index.coder.of_extents(&counts) {
            Cow::Borrowed(_) => Cow::Borrowed(&self.index),
            Cow::Owned(coder) => Cow::Owned(IndexForm::new(coder, self.index.location)?),
        })
    }

    /// Whether the index is at the end, where Penstock writes it.
    pub(super) fn ends_with_index(&self) -> bool {
        self.index.is_at_end()
    }

    /// Reads the sub-chunk at the offset and length of the index, in a shard of `shard_bytes`
    /// bytes.
    pub(super) fn read_sub_chunk(
        &self,
        shard: &impl Bytes,
        ((offset, bytes), shard_bytes): ((u64, u64), u64),
        block: &Block,
        data: &mut [u8],
        path: &Path,
    ) -> Result<()> {
        if (offset, bytes) == (MISSING, MISSING) {
            fill(data, &self.fill);
            return Ok(());
        }
        check_within((offset, bytes), shard_bytes, block.index, path)?;
        if let Some(element) = &self.plain {
            if bytes != data.len() as u64 {
                let cause = format!(
                    "sub-chunk {} has {bytes} bytes, not {}",
                    block.index,
                    data.len()
                );
                return Err(damaged(path, cause).in_bytes(offset..offset + bytes));
            }
            shard.read_at(data, offset, path)?;
            element.swap(data);
            return Ok(());
        }
        let mut encoded = files::zeros(bytes)?;
        shard.read_at(&mut encoded, offset, path)?;
        let decoded = self.inner.decode(&encoded, data);
        decoded.map_err(|e| e.at(path).in_bytes(offset..offset + bytes))
    }
}

/// Checks that the place of a sub-chunk, an offset and a length, is within the bytes of its shard.
pub(super) fn check_within(
    (offset, bytes): (u64, u64),
    shard_bytes: u64,
    number: u64,
    path: &Path,
) -> Result<()> {
    let end = offset.checked_add(bytes);
    if end.is_some_and(|end| end <= shard_bytes) {
        return Ok(());
    }
    let cause = format!(
        "sub-chunk {number} is said to be {bytes} bytes at {offset}, beyond the shard's {shard_bytes}"
    );
    Err(damaged(path, cause))
}
