//! Shards: sub-chunks, each encoded by itself, in one file with an index of their places.
//!
//! ```text
//! +-------------+-------------+-----+--------------------------------------+
//! | sub-chunk 0 | sub-chunk 1 | ... | offset 0, bytes 0, offset 1, ... crc |
//! +-------------+-------------+-----+--------------------------------------+
//!    in order                           u64, row-major; 2^64 - 1: missing
//! ```
//!
//! One server writes a shard, sub-chunk by sub-chunk, so memory holds one sub-chunk and the index.
//! The index is written when the shard is closed: when enough other shards have been begun, or at
//! the end. If a sub-chunk comes after that, the index is read and written again.
//!
//! The same elements give the same file, in whatever order they are written: a sub-chunk that comes
//! a little too early is kept until all before it have come, and a shard in which some came too
//! late, or twice, is copied into order when it is closed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use penstock_engine::{Digest, Error, Result};
use penstock_layout::{Block, DiskSchema, exact};
use penstock_machines::Medium;
use penstock_machines::disk::medium::no_parts;
use penstock_machines::memory::buffer::fill;

use super::chunks::Chunks;
use super::plain::read_only;
use super::shard_form::{IndexForm, MISSING, ShardForm, check_within};
use super::written::ChunkFiles;
use crate::fs::files::{self, ClosedObjects, Open, lock};
use crate::fs::ops;

/// The most shards that are kept open: each server's worker is at one.
pub(super) const OPEN_MAX: usize = 16;
/// The most sub-chunks of a shard that are kept until all before them have come.
const EARLY_MAX: usize = 4;

/// Appends sub-chunks to shards.
pub(super) struct Writer {
    chunks: Chunks,
    form: ShardForm,
    open: Open<Mutex<Shard>>,
    written: ChunkFiles,
}

/// A shard under way.
struct Shard {
    file: File,
    path: PathBuf,
    index: Vec<u64>,
    /// The offset of the next sub-chunk.
    end: u64,
    /// The number of the sub-chunk that is to follow; `None` after the last.
    next: Option<u64>,
    /// The encoded sub-chunks whose turn has not come.
    early: BTreeMap<u64, Vec<u8>>,
    /// Whether all sub-chunks lie in order, one behind the other.
    is_tidy: bool,
}

impl Shard {
    /// The offset and length of a sub-chunk.
    fn entry(&self, number: u64) -> (u64, u64) {
        let at = 2 * exact::<usize>(number);
        (self.index[at], self.index[at + 1])
    }

    fn has(&self, number: u64) -> bool {
        self.entry(number) != (MISSING, MISSING)
    }

    fn append(&mut self, number: u64, encoded: &[u8]) -> Result<()> {
        files::write_at(&self.file, encoded, self.end, &self.path)?;
        let at = 2 * exact::<usize>(number);
        self.index[at] = self.end;
        self.index[at + 1] = encoded.len() as u64;
        self.end += encoded.len() as u64;
        Ok(())
    }

    /// Copies the sub-chunks in order into a new file, which replaces this one.
    fn tidy(&mut self) -> Result<()> {
        let failed = |e: std::io::Error, path: &Path| Error::io(&e, "putting in order", path);
        let mut name = self.path.clone().into_os_string();
        name.push(".tidy");
        let path = PathBuf::from(name);
        let file = ops::create_new(&path).map_err(|e| failed(e, &path))?;
        let old = std::mem::replace(&mut self.file, file);
        self.end = 0;
        for number in 0..self.index.len() as u64 / 2 {
            if self.has(number) {
                let (offset, bytes) = self.entry(number);
                let mut encoded = vec![0; exact::<usize>(bytes)];
                files::read_at(&old, &mut encoded, offset, &self.path)?;
                self.append(number, &encoded)?;
            }
        }
        ops::rename(&path, &self.path).map_err(|e| failed(e, &self.path))?;
        self.is_tidy = true;
        Ok(())
    }
}

impl Writer {
    pub(super) fn new(chunks: Chunks, form: ShardForm) -> Self {
        Self {
            chunks,
            form,
            open: Open::new(OPEN_MAX),
            written: ChunkFiles::default(),
        }
    }

    fn index_form(&self, object: u64) -> Result<Cow<'_, IndexForm>> {
        let extents = self.chunks.schema.chunk_extents(object);
        self.form.index_of(&extents)
    }

    fn begin(&self, object: u64) -> Result<Mutex<Shard>> {
        let path = self.chunks.path(object);
        let file = self.written.create(&self.chunks, object)?;
        if files::length(&file, &path)? == 0
            && let Some((base, _)) = self.chunks.open_base(object)?
        {
            ops::copy(&base, &file, &path).map_err(|e| Error::io(&e, "copying to", &path))?;
        }
        let length = files::length(&file, &path)?;
        let form = self.index_form(object)?;
        let (index, end) = if length == 0 {
            (vec![MISSING; form.numbers()], 0)
        } else {
            let index = form.read(&file, length, &path)?;
            let end = length - form.bytes;
            ops::set_len(&file, end, &path).map_err(|e| Error::io(&e, "taking up again", &path))?;
            (index, end)
        };
        let mut shard = Shard {
            file,
            path,
            index,
            end,
            next: Some(0),
            early: BTreeMap::new(),
            is_tidy: true,
        };
        let numbers = 0..shard.index.len() as u64 / 2;
        if let Some(last) = numbers.rev().find(|&number| shard.has(number)) {
            shard.next = self.after(object, last);
        }
        Ok(Mutex::new(shard))
    }

    /// The next sub-chunk of the same shard, if there is one: sub-chunks of padding alone are
    /// passed over.
    fn after(&self, object: u64, number: u64) -> Option<u64> {
        let schema = &self.chunks.schema;
        let next = schema.successor(&schema.block_at(object, number)?, 1)?;
        (next.object == object).then_some(next.index)
    }

    /// Appends an encoded sub-chunk, or keeps it until its turn has come.
    fn take(&self, shard: &mut Shard, object: u64, number: u64, encoded: &[u8]) -> Result<()> {
        let is_early = shard.next.is_some_and(|next| number > next);
        if is_early && !shard.has(number) {
            shard.early.insert(number, encoded.to_vec());
            if shard.early.len() > EARLY_MAX
                && let Some((first, encoded)) = shard.early.pop_first()
            {
                self.append_with_followers(shard, object, first, &encoded)?;
            }
            return Ok(());
        }
        if shard.next == Some(number) {
            return self.append_with_followers(shard, object, number, encoded);
        }
        shard.is_tidy = false;
        shard.append(number, encoded)
    }

    /// Appends a sub-chunk, and all kept ones that follow it.
    fn append_with_followers(
        &self,
        shard: &mut Shard,
        object: u64,
        number: u64,
        encoded: &[u8],
    ) -> Result<()> {
        shard.append(number, encoded)?;
        shard.next = self.after(object, number);
        while let Some(next) = shard.next
            && let Some(encoded) = shard.early.remove(&next)
        {
            shard.append(next, &encoded)?;
            shard.next = self.after(object, next);
        }
        Ok(())
    }

    fn end(&self, shards: ClosedObjects<Mutex<Shard>>) -> Result<()> {
        for (object, shard) in shards {
            // The shard has no other owner: shards in use are not closed.
            let Some(shard) = Arc::into_inner(shard) else {
                continue;
            };
            let mut shard = shard
                .into_inner()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            for (number, encoded) in std::mem::take(&mut shard.early) {
                shard.append(number, &encoded)?;
            }
            if !shard.is_tidy {
                shard.tidy()?;
            }
            let index = self.index_form(object)?.encode(&shard.index);
            let index = index.map_err(|e| e.at(&shard.path))?;
            files::write_at(&shard.file, &index, shard.end, &shard.path)?;
            self.written.closed(object, &shard.path, shard.file)?;
        }
        Ok(())
    }
}

impl Medium for Writer {
    fn position(&self, _: &Block) -> Option<u64> {
        None // sub-chunks of a shard follow each other in the order of the schema
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        let (shard, given_up) = self.open.get(block.object, || self.begin(block.object))?;
        {
            let mut shard = lock(&shard);
            let encoded = self
                .form
                .inner
                .encode(data)
                .map_err(|e| e.at(&shard.path))?;
            self.take(&mut shard, block.object, block.index, &encoded)?;
        }
        self.end(given_up)
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        let is_there = self.open.peek(block.object).is_some()
            || files::open_if_there(&self.chunks.path(block.object))?.is_some()
            || self.chunks.open_base(block.object)?.is_some();
        if !is_there {
            fill(data, &self.form.fill);
            return Ok(());
        }
        let (shard, given_up) = self.open.get(block.object, || self.begin(block.object))?;
        {
            let shard = lock(&shard);
            match shard.early.get(&block.index) {
                Some(encoded) => self.form.inner.decode(encoded, data)?,
                None => {
                    let part = (shard.entry(block.index), shard.end);
                    self.form
                        .read_sub_chunk(&shard.file, part, block, data, &shard.path)?;
                }
            }
        }
        self.end(given_up)
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
        self.end(self.open.drain())?;
        self.written.finish(&self.chunks, sync)
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Reads single sub-chunks.
pub(super) struct Reader {
    chunks: Chunks,
    form: ShardForm,
    found: FoundShards,
}

/// An existing shard.
pub(super) struct FoundShard {
    file: File,
    bytes: u64,
    index: Vec<u64>,
}

impl FoundShard {
    /// The offset and length of a sub-chunk.
    fn entry(&self, number: u64) -> (u64, u64) {
        let at = 2 * exact::<usize>(number);
        (self.index[at], self.index[at + 1])
    }

    /// The bytes of a sub-chunk as they are stored; `None` if it is missing.
    pub(super) fn encoded(&self, number: u64, path: &Path) -> Result<Option<Vec<u8>>> {
        let (offset, bytes) = self.entry(number);
        if (offset, bytes) == (MISSING, MISSING) {
            return Ok(None);
        }
        check_within((offset, bytes), self.bytes, number, path)?;
        let mut encoded = files::zeros(bytes)?;
        files::read_at(&self.file, &mut encoded, offset, path)?;
        Ok(Some(encoded))
    }
}

/// The shards that are open for reading; `None` for a missing one.
pub(super) struct FoundShards(Open<Option<FoundShard>>);

impl FoundShards {
    pub(super) fn new(capacity: usize) -> Self {
        Self(Open::new(capacity))
    }

    /// The shard at `path`, opened if need be.
    pub(super) fn get(
        &self,
        form: &ShardForm,
        schema: &DiskSchema,
        object: u64,
        path: &Path,
    ) -> Result<Arc<Option<FoundShard>>> {
        let open = || {
            let Some(file) = files::open_if_there(path)? else {
                return Ok(None);
            };
            let bytes = files::length(&file, path)?;
            let index = form.index_of(&schema.chunk_extents(object))?;
            let index = index.read(&file, bytes, path)?;
            Ok(Some(FoundShard { file, bytes, index }))
        };
        self.0.get(object, open).map(|(shard, _)| shard)
    }

    /// Reads the sub-chunk `block` of the shard at `path`.
    pub(super) fn read(
        &self,
        form: &ShardForm,
        schema: &DiskSchema,
        block: &Block,
        data: &mut [u8],
        path: &Path,
    ) -> Result<()> {
        match &*self.get(form, schema, block.object, path)? {
            None => fill(data, &form.fill),
            Some(shard) => {
                let part = (shard.entry(block.index), shard.bytes);
                form.read_sub_chunk(&shard.file, part, block, data, path)?;
            }
        }
        Ok(())
    }

    /// Forgets a shard: another file takes its place.
    pub(super) fn forget(&self, object: u64) {
        drop(self.0.take(object));
    }
}

impl Reader {
    pub(super) fn new(chunks: Chunks, form: ShardForm) -> Self {
        Self {
            chunks,
            form,
            found: FoundShards::new(OPEN_MAX),
        }
    }
}

impl Medium for Reader {
    fn position(&self, _: &Block) -> Option<u64> {
        None // sub-chunks of a shard follow each other in the order of the schema
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, _: &[u8]) -> Result<()> {
        Err(read_only(&self.chunks.path(block.object)))
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        let path = self.chunks.path(block.object);
        self.found
            .read(&self.form, &self.chunks.schema, block, data, &path)
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
