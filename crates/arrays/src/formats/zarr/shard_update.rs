//! Changes sub-chunks of shards that are there.
//!
//! ```text
//! the shard         | 0 | 1 | 2 | 3 | index |     changed: 1, encoded and kept in memory
//! the next, aside   | 0 | 1'| 2 | 3 | index'|     0, 2 and 3 are copied as they are
//! ```
//!
//! Changed sub-chunks are kept, encoded, until the medium is finished or [`KEPT_BYTES_MAX`] are
//! kept; then their shards are written anew, aside. A finish puts these in their places, each by a
//! rename: a reader finds the old shard or the new. The same elements give the same file as the
//! collective writer's. Memory: the kept sub-chunks, and one sub-chunk more.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use penstock_engine::{Digest, Result};
use penstock_layout::{Block, exact};
use penstock_machines::Medium;
use penstock_machines::disk::medium::no_parts;

use super::chunks::Chunks;
use super::shard_form::{IndexForm, MISSING, ShardForm};
use super::shards::{FoundShards, OPEN_MAX};
use super::written::ChunkFiles;
use crate::fs::files::{self, damaged};

/// The most bytes of encoded sub-chunks that are kept: enough that a shard is mostly written once
/// for many changes, and little beside the staging buffers of a server.
pub(super) const KEPT_BYTES_MAX: u64 = 64 << 20;

/// Reads and changes sub-chunks of shards.
pub(super) struct Updater {
    chunks: Chunks,
    form: ShardForm,
    kept: RwLock<Kept>,
    found: FoundShards,
    written: ChunkFiles,
    kept_bytes_max: u64,
}

/// The changed sub-chunks that are in no file yet.
#[derive(Default)]
struct Kept {
    /// The encoded sub-chunks, by number, of each shard.
    shards: BTreeMap<u64, Changes>,
    bytes: u64,
}

/// The changed sub-chunks of one shard.
#[derive(Default)]
struct Changes {
    encoded: BTreeMap<u64, Vec<u8>>,
    bytes: u64,
}

impl Kept {
    /// Keeps a sub-chunk in the place of a former one.
    fn insert(&mut self, object: u64, number: u64, encoded: Vec<u8>) {
        let changes = self.shards.entry(object).or_default();
        let more = encoded.len() as u64;
        let former = changes.encoded.insert(number, encoded);
        let less = former.map_or(0, |former| former.len() as u64);
        changes.bytes = (changes.bytes + more).saturating_sub(less);
        self.bytes = (self.bytes + more).saturating_sub(less);
    }

    /// The shard with the most bytes kept.
    fn largest(&self) -> Option<u64> {
        let shards = self.shards.iter();
        shards
            .max_by_key(|(_, changes)| changes.bytes)
            .map(|(&object, _)| object)
    }

    fn remove(&mut self, object: u64) {
        if let Some(changes) = self.shards.remove(&object) {
            self.bytes = self.bytes.saturating_sub(changes.bytes);
        }
    }
}

/// A shard that is being written anew.
struct Next<'a> {
    form: &'a IndexForm,
    file: File,
    path: PathBuf,
    index: Vec<u64>,
    end: u64,
}

impl Next<'_> {
    fn append(&mut self, number: u64, encoded: &[u8]) -> Result<()> {
        files::write_at(&self.file, encoded, self.end, &self.path)?;
        let (at, bytes) = (2 * exact::<usize>(number), encoded.len() as u64);
        self.index[at] = self.end;
        self.index[at + 1] = bytes;
        let beyond = || damaged(&self.path, "a shard would have more than 2^64 bytes");
        self.end = self.end.checked_add(bytes).ok_or_else(beyond)?;
        Ok(())
    }

    fn write_index(&self) -> Result<()> {
        let index = self.form.encode(&self.index);
        let index = index.map_err(|e| e.at(&self.path))?;
        let offset = match self.form.is_at_end() {
            true => self.end,
            false => 0,
        };
        files::write_at(&self.file, &index, offset, &self.path)?;
        files::start_writeback(&self.file, 0, 0, &self.path)
    }
}

impl Updater {
    pub(super) fn new(chunks: Chunks, form: ShardForm) -> Self {
        Self {
            chunks,
            form,
            kept: RwLock::default(),
            found: FoundShards::new(OPEN_MAX),
            written: ChunkFiles::default(),
            kept_bytes_max: KEPT_BYTES_MAX,
        }
    }

    fn looking(&self) -> RwLockReadGuard<'_, Kept> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> RwLockWriteGuard<'_, Kept> {
        self.kept.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file that holds a shard now.
    fn path(&self, object: u64) -> PathBuf {
        self.written.path(&self.chunks, object)
    }

    /// Writes a shard anew, aside, with its kept changes, which are then kept no more.
    fn rewrite(&self, kept: &mut Kept, object: u64) -> Result<()> {
        let Some(changes) = kept.shards.get(&object) else {
            return Ok(());
        };
        let aside = self.chunks.path_aside(object);
        let path = beside(&aside);
        let file = self.written.create_aside(&self.chunks, object, &path)?;
        let form = self
            .form
            .index_of(&self.chunks.schema.chunk_extents(object))?;
        let start = match form.is_at_end() {
            true => 0,
            false => form.bytes,
        };
        let mut next = Next {
            form: &form,
            file,
            path,
            index: vec![MISSING; form.numbers()],
            end: start,
        };
        self.fill(&mut next, object, changes)?;
        next.write_index()?;
        files::rename(&next.path, &aside)?;
        self.written.is_now_aside(object);
        self.found.forget(object);
        kept.remove(object);
        Ok(())
    }

    /// Copies the sub-chunks of a shard, in order: changed ones from memory, others as they are.
    fn fill(&self, next: &mut Next<'_>, object: u64, changes: &Changes) -> Result<()> {
        let former_path = self.path(object);
        let schema = &self.chunks.schema;
        let found = self.found.get(&self.form, schema, object, &former_path)?;
        for number in 0..next.index.len() as u64 / 2 {
            if let Some(encoded) = changes.encoded.get(&number) {
                next.append(number, encoded)?;
            } else if let Some(shard) = found.as_ref()
                && let Some(encoded) = shard.encoded(number, &former_path)?
            {
                next.append(number, &encoded)?;
            }
        }
        Ok(())
    }
}

/// The name of a file that is to become the file at `path`.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(".next");
    PathBuf::from(name)
}

impl Medium for Updater {
    fn position(&self, _: &Block) -> Option<u64> {
        None // sub-chunks of a shard follow each other in the order of the schema
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        let encoded = self.form.inner.encode(data);
        let encoded = encoded.map_err(|e| e.at(&self.chunks.path(block.object)))?;
        let mut kept = self.changing();
        kept.insert(block.object, block.index, encoded.into_owned());
        while kept.bytes > self.kept_bytes_max
            && let Some(object) = kept.largest()
        {
            self.rewrite(&mut kept, object)?;
        }
        Ok(())
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        // Shards that are written anew wait until the block is read.
        let kept = self.looking();
        let changes = kept.shards.get(&block.object);
        match changes.and_then(|changes| changes.encoded.get(&block.index)) {
            Some(encoded) => self.form.inner.decode(encoded, data),
            None => {
                let (schema, path) = (&self.chunks.schema, self.path(block.object));
                self.found.read(&self.form, schema, block, data, &path)
            }
        }
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
        let mut kept = self.changing();
        while let Some((&object, _)) = kept.shards.first_key_value() {
            self.rewrite(&mut kept, object)?;
        }
        self.written.finish(&self.chunks, sync)
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}
