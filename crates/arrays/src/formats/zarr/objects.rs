//! Chunks that are objects in a bucket, as media. Chunks of references are read in the same way.
//!
//! | chunks | written by | read by |
//! |---|---|---|
//! | plain | one put a chunk | one ranged get a block, or several at once |
//! | encoded | the codec chain, then one put | one get, then the codec chain |
//! | shards | as encoded | one ranged get of the index, then one a sub-chunk |
//!
//! A chunk is put whole, so a server that changes a part of one gets the chunk first. Calls for
//! different blocks of one chunk may come at the same time: several workers serve a bucket.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use penstock_bucket::Place;
use penstock_engine::{Digest, Error, Kind, Result};
use penstock_layout::{Block, Split, exact, row_major_strides};
use penstock_machines::Medium;
use penstock_machines::disk::medium::no_parts;
use penstock_machines::memory::buffer::fill;

use super::chunks::Chunks;
use super::encoded::read_rows;
use super::metadata::{Layout, Plain};
use super::plain::{check_bytes, read_only};
use super::shard_form::{Bytes, ShardForm};
use crate::fs::files::{self, Open, damaged, lock};

/// The most indexes of shards that a server keeps.
const INDEXES_MAX: usize = 64;
/// The locks of an updater: chunks whose numbers differ by this have the same.
const LOCKS: usize = 64;

/// The stored bytes of chunks, which are moved by requests for ranges.
pub(super) trait Stored: Send + Sync {
    fn chunks(&self) -> &Chunks;

    /// The place of a chunk, for errors.
    fn path(&self, object: u64) -> PathBuf;

    /// The bytes of a chunk; `None` if it is not stored.
    ///
    /// # Errors
    /// The error of the file or the service.
    fn whole(&self, object: u64) -> Result<Option<impl AsRef<[u8]>>>;

    /// Fills `data` with a chunk's bytes from `offset` on. Gives whether the chunk is stored.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the chunk ends before that; else as [`Stored::whole`].
    fn part(&self, object: u64, data: &mut [u8], offset: u64) -> Result<bool>;

    /// The number of stored bytes of a chunk; `None` if it is not stored.
    ///
    /// # Errors
    /// As [`Stored::whole`].
    fn length(&self, object: u64) -> Result<Option<u64>>;
}

/// Reads a chunk. A chunk that is not stored is of the fill value.
fn read_chunk(stored: &impl Stored, layout: &Layout, object: u64, data: &mut [u8]) -> Result<()> {
    let bytes = stored.whole(object)?;
    let bytes = bytes.as_ref().map(AsRef::as_ref);
    decode_chunk(stored, layout, (object, bytes), data)
}

/// Decodes a chunk, if it is stored.
fn decode_chunk(
    stored: &impl Stored,
    layout: &Layout,
    (object, bytes): (u64, Option<&[u8]>),
    data: &mut [u8],
) -> Result<()> {
    match (layout, bytes) {
        (Layout::Plain(plain), None) => fill(data, &plain.fill),
        (Layout::Plain(plain), Some(bytes)) => {
            check_bytes(bytes.len() as u64, data.len() as u64, &stored.path(object))?;
            data.copy_from_slice(bytes);
            plain.element.swap(data);
        }
        (Layout::Encoded(coder), None) => coder.fill(data),
        (Layout::Encoded(coder), Some(bytes)) => {
            let decoded = stored.chunks().coder(coder, object).decode(bytes, data);
            decoded.map_err(|e| e.at(&stored.path(object)))?;
        }
        (Layout::Shards(_), _) => return Err(no_parts("reading")),
    }
    Ok(())
}

/// The chunks of an array in a bucket, as one server has them open.
pub(super) struct Objects {
    chunks: Chunks,
    /// The place of the array.
    home: Place,
    /// The changes of a fork of a repository, once a medium that writes is finished.
    changes: OnceLock<Vec<u8>>,
}

impl Objects {
    /// # Errors
    /// When the environment does not say how to reach the bucket; the error of the repository.
    pub(super) fn new(chunks: Chunks) -> Result<Self> {
        let directory = &chunks.location.directory;
        let home = match &chunks.location.fork {
            Some(fork) => Place::in_fork(directory, fork)?,
            None => Place::at(directory)?,
        };
        let changes = OnceLock::new();
        Ok(Self {
            chunks,
            home,
            changes,
        })
    }

    /// The place of a chunk.
    fn place(&self, object: u64) -> Result<Place> {
        self.home.below(&self.chunks.key(object))
    }

    /// Encodes a chunk.
    fn encode(&self, layout: &Layout, object: u64, data: &[u8]) -> Result<Vec<u8>> {
        match layout {
            Layout::Plain(plain) => Ok(plain.element.swapped(data).into_owned()),
            Layout::Encoded(coder) => {
                let coder = self.chunks.coder(coder, object);
                let encoded = coder.encode(data);
                let encoded = encoded.map_err(|e| e.at(&self.chunks.path(object)))?;
                Ok(encoded.into_owned())
            }
            Layout::Shards(_) => Err(no_parts("writing")),
        }
    }

    /// Ends the writes. A service answers a put when the object is on stable storage.
    fn finish(&self) -> Result<()> {
        let changes = self.home.changes()?;
        let _ = self.changes.set(changes); // a medium is finished once
        Ok(())
    }

    /// The changes of a fork of a repository.
    fn changes(&self) -> Vec<u8> {
        self.changes.get().cloned().unwrap_or_default()
    }

    /// Encodes and puts a chunk.
    fn write(&self, layout: &Layout, object: u64, data: &[u8]) -> Result<()> {
        let encoded = self.encode(layout, object, data)?;
        self.place(object)?.write(encoded)
    }
}

impl Stored for Objects {
    fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    fn path(&self, object: u64) -> PathBuf {
        self.chunks.path(object)
    }

    /// The chunk may be one of the array that is changed.
    fn whole(&self, object: u64) -> Result<Option<impl AsRef<[u8]>>> {
        let base = self.chunks.base_key(object);
        for key in [Some(self.chunks.key(object)), base].iter().flatten() {
            if let Some((bytes, _)) = self.home.below(key)?.read()? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    fn part(&self, object: u64, data: &mut [u8], offset: u64) -> Result<bool> {
        self.place(object)?.read_part(data, offset)
    }

    fn length(&self, object: u64) -> Result<Option<u64>> {
        Ok(self.place(object)?.about()?.map(|about| about.bytes))
    }
}

/// Puts the bytes of a block into those of its chunk.
fn put_block(chunks: &Chunks, block: &Block, data: &[u8], whole: &mut [u8]) {
    let schema = &chunks.schema;
    if !matches!(schema.split_of(), Split::Inner(_)) {
        let start = exact::<usize>(chunks.offset(block));
        whole[start..start + data.len()].copy_from_slice(data);
        return;
    }
    let strides = row_major_strides(&schema.chunk_extents(block.object));
    let origin = schema.object_region(block.object).start;
    let first = block.region.start.iter().zip(&origin).zip(&strides);
    let first: u64 = first
        .map(|((start, of), stride)| (start - of) * stride)
        .sum();
    let row_bytes = block.extents.last().copied().unwrap_or(1) * schema.width();
    let (row_bytes, outer) = (exact::<usize>(row_bytes), block.extents.len().max(1) - 1);
    for (row, mut number) in data.chunks_exact(row_bytes).zip(0_u64..) {
        let mut place = first;
        for d in (0..outer).rev() {
            place += number % block.extents[d] * strides[d];
            number /= block.extents[d];
        }
        let start = exact::<usize>(place * schema.width());
        whole[start..start + row_bytes].copy_from_slice(row);
    }
}

/// Puts the chunks of an array that nobody sees yet.
pub(super) struct Writer {
    objects: Objects,
    layout: Layout,
}

impl Writer {
    pub(super) fn new(objects: Objects, layout: Layout) -> Self {
        Self { objects, layout }
    }
}

impl Medium for Writer {
    fn position(&self, _: &Block) -> Option<u64> {
        None
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        let chunks = &self.objects.chunks;
        if data.len() as u64 != chunks.bytes(block.object) {
            let cause = "a chunk is put into a bucket whole";
            let error = Error::new(Kind::Unsupported, "writing", cause);
            return Err(error.at(&chunks.path(block.object)));
        }
        self.objects.write(&self.layout, block.object, data)
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        let read = |data: &mut [u8]| read_chunk(&self.objects, &self.layout, block.object, data);
        read_rows(&self.objects.chunks.schema, block, data, read)
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

    fn finish(&self, _: bool) -> Result<()> {
        self.objects.finish()
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        self.objects.changes()
    }
}

/// Puts rows of an array that grows: chunks that nobody sees yet, and chunks that have other rows
/// already, which they keep. A chunk is put if it is still what it was, so that no two writers put
/// rows into one.
pub(super) struct Grower {
    objects: Objects,
    layout: Layout,
    locks: [Mutex<()>; LOCKS],
}

impl Grower {
    pub(super) fn new(objects: Objects, layout: Layout) -> Self {
        Self {
            objects,
            layout,
            locks: no_locks(),
        }
    }
}

impl Medium for Grower {
    fn position(&self, _: &Block) -> Option<u64> {
        None
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        let (objects, object) = (&self.objects, block.object);
        let _lock = lock(&self.locks[exact::<usize>(object % LOCKS as u64)]);
        let place = objects.place(object)?;
        let bytes = objects.chunks.bytes(object);
        let (whole, version) = match data.len() as u64 == bytes {
            true => (Cow::Borrowed(data), None),
            false => {
                let (there, version) = place.read()?.unzip();
                let mut whole = files::zeros(bytes)?;
                let there = there.as_ref().map(AsRef::as_ref);
                decode_chunk(objects, &self.layout, (object, there), &mut whole)?;
                put_block(&objects.chunks, block, data, &mut whole);
                (Cow::Owned(whole), version)
            }
        };
        let encoded = objects.encode(&self.layout, object, &whole)?;
        if place.write_over(encoded, version.as_ref())? {
            return Ok(());
        }
        let cause = "another job has put this chunk meanwhile";
        Err(Error::new(Kind::Busy, "writing", cause).at(place.url()))
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        let read = |data: &mut [u8]| read_chunk(&self.objects, &self.layout, block.object, data);
        read_rows(&self.objects.chunks.schema, block, data, read)
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

    fn finish(&self, _: bool) -> Result<()> {
        self.objects.finish()
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        self.objects.changes()
    }
}

fn no_locks() -> [Mutex<()>; LOCKS] {
    std::array::from_fn(|_| Mutex::default())
}

/// Gets blocks of chunks.
pub(super) struct Reader<S> {
    stored: S,
    layout: Layout,
    /// The indexes of shards, with the shards' lengths; `None` for a missing shard.
    indexes: Open<Option<(Vec<u64>, u64)>>,
}

impl<S: Stored> Reader<S> {
    pub(super) fn new(stored: S, layout: Layout) -> Self {
        Self {
            stored,
            layout,
            indexes: Open::new(INDEXES_MAX),
        }
    }

    fn read_plain(&self, block: &Block, data: &mut [u8], plain: &Plain) -> Result<()> {
        let offset = self.stored.chunks().offset(block);
        match self.stored.part(block.object, data, offset)? {
            true => plain.element.swap(data),
            false => fill(data, &plain.fill),
        }
        Ok(())
    }

    fn read_sub_chunk(&self, block: &Block, data: &mut [u8], form: &ShardForm) -> Result<()> {
        let (stored, object) = (&self.stored, block.object);
        let (path, shard) = (stored.path(object), Shard { stored, object });
        let open = || {
            let Some(bytes) = stored.length(object)? else {
                return Ok(None);
            };
            let index = form.index_of(&stored.chunks().schema.chunk_extents(object))?;
            Ok(Some((index.read(&shard, bytes, &path)?, bytes)))
        };
        let (found, _) = self.indexes.get(object, open)?;
        let Some((index, bytes)) = &*found else {
            fill(data, &form.fill);
            return Ok(());
        };
        let at = 2 * exact::<usize>(block.index);
        let part = ((index[at], index[at + 1]), *bytes);
        form.read_sub_chunk(&shard, part, block, data, &path)
    }
}

/// A shard, as a source of bytes.
struct Shard<'a, S> {
    stored: &'a S,
    object: u64,
}

impl<S: Stored> Bytes for Shard<'_, S> {
    fn read_at(&self, data: &mut [u8], offset: u64, path: &Path) -> Result<()> {
        match self.stored.part(self.object, data, offset)? {
            true => Ok(()),
            false => Err(damaged(path, "the shard went away while it was read")),
        }
    }
}

impl<S: Stored> Medium for Reader<S> {
    fn position(&self, _: &Block) -> Option<u64> {
        None
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, _: &[u8]) -> Result<()> {
        Err(read_only(&self.stored.path(block.object)))
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        match &self.layout {
            Layout::Plain(plain) => self.read_plain(block, data, plain),
            Layout::Shards(form) => self.read_sub_chunk(block, data, form),
            Layout::Encoded(_) => {
                let read =
                    |data: &mut [u8]| read_chunk(&self.stored, &self.layout, block.object, data);
                read_rows(&self.stored.chunks().schema, block, data, read)
            }
        }
    }

    fn moves_parts(&self) -> bool {
        false
    }

    fn write_part(&self, block: &Block, _: u64, _: &[u8]) -> Result<()> {
        Err(read_only(&self.stored.path(block.object)))
    }

    fn read_part(&self, _: &Block, _: u64, _: &mut [u8]) -> Result<()> {
        Err(no_parts("reading"))
    }

    fn finish(&self, _: bool) -> Result<()> {
        Ok(())
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Reads and changes chunks that are there. Each chunk is the old or the new one at any moment.
pub(super) struct Updater {
    reader: Reader<Objects>,
    /// The layout of whole chunks.
    whole: Layout,
    locks: [Mutex<()>; LOCKS],
}

impl Updater {
    pub(super) fn new(reader: Reader<Objects>, whole: Layout) -> Self {
        Self {
            reader,
            whole,
            locks: no_locks(),
        }
    }
}

impl Medium for Updater {
    fn position(&self, _: &Block) -> Option<u64> {
        None
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        let (objects, object) = (&self.reader.stored, block.object);
        let _lock = lock(&self.locks[exact::<usize>(object % LOCKS as u64)]);
        let bytes = objects.chunks.bytes(object);
        let changed = match data.len() as u64 == bytes {
            true => Cow::Borrowed(data),
            false => {
                let mut whole = files::zeros(bytes)?;
                read_chunk(objects, &self.whole, object, &mut whole)?;
                put_block(&objects.chunks, block, data, &mut whole);
                Cow::Owned(whole)
            }
        };
        objects.write(&self.whole, object, &changed)?;
        drop(self.reader.indexes.take(object));
        Ok(())
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        let object = block.object;
        let _lock = lock(&self.locks[exact::<usize>(object % LOCKS as u64)]);
        self.reader.read(block, data)
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

    fn finish(&self, _: bool) -> Result<()> {
        Ok(())
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}
