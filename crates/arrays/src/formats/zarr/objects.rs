//! Chunks that are objects in a bucket, as media.
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
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use penstock_bucket::Place;
use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Block, Split, exact, row_major_strides};
use penstock_machines::Medium;
use penstock_machines::disk::medium::no_parts;
use penstock_machines::memory::buffer::fill;

use super::chunks::Chunks;
use super::encoded::read_rows;
use super::metadata::{Layout, Plain};
use super::plain::{check_bytes, read_only};
use super::shard_form::{Bytes, ShardForm};
use crate::dtype;
use crate::fs::files::{self, Open, damaged, lock};

/// The most indexes of shards that a server keeps.
const INDEXES_MAX: usize = 64;
/// The locks of an updater: chunks whose numbers differ by this have the same.
const LOCKS: usize = 64;

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

    /// The bytes of a chunk, or of the chunk of the array that is changed, and their place; `None`
    /// if neither is stored.
    fn stored(&self, object: u64) -> Result<Option<(Place, impl AsRef<[u8]> + use<>)>> {
        let base = self.chunks.base_key(object);
        for key in [Some(self.chunks.key(object)), base].iter().flatten() {
            let place = self.home.below(key)?;
            if let Some((bytes, _)) = place.read()? {
                return Ok(Some((place, bytes)));
            }
        }
        Ok(None)
    }

    /// Decodes a chunk. A chunk that is not stored is of the fill value.
    fn read(&self, layout: &Layout, object: u64, data: &mut [u8]) -> Result<()> {
        self.decode(layout, object, &self.stored(object)?, data)
    }

    fn decode(
        &self,
        layout: &Layout,
        object: u64,
        stored: &Option<(Place, impl AsRef<[u8]>)>,
        data: &mut [u8],
    ) -> Result<()> {
        match (layout, stored) {
            (Layout::Plain(plain), None) => fill(data, &plain.fill),
            (Layout::Plain(plain), Some((place, bytes))) => {
                let bytes = bytes.as_ref();
                check_bytes(bytes.len() as u64, data.len() as u64, place.url())?;
                data.copy_from_slice(bytes);
                dtype::swap(data, plain.swap_width);
            }
            (Layout::Encoded(coder), None) => fill(data, coder.fill_value.as_ne_bytes()),
            (Layout::Encoded(coder), Some((place, bytes))) => {
                let decoded = self
                    .chunks
                    .coder(coder, object)
                    .decode(bytes.as_ref(), data);
                decoded.map_err(|e| e.at(place.url()))?;
            }
            (Layout::Shards(_), _) => return Err(no_parts("reading")),
        }
        Ok(())
    }

    /// Encodes a chunk.
    fn encode(&self, layout: &Layout, object: u64, data: &[u8]) -> Result<Vec<u8>> {
        match layout {
            Layout::Plain(plain) => Ok(dtype::swapped(data, plain.swap_width).into_owned()),
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
        let read = |data: &mut [u8]| self.objects.read(&self.layout, block.object, data);
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

    fn sums(&self) -> Vec<(u64, u32)> {
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
                let stored = there.map(|there| (place.clone(), there));
                objects.decode(&self.layout, object, &stored, &mut whole)?;
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
        let read = |data: &mut [u8]| self.objects.read(&self.layout, block.object, data);
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

    fn sums(&self) -> Vec<(u64, u32)> {
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
pub(super) struct Reader {
    objects: Objects,
    layout: Layout,
    /// The indexes of shards, with the shards' lengths; `None` for a missing shard.
    indexes: Open<Option<(Vec<u64>, u64)>>,
}

impl Reader {
    pub(super) fn new(objects: Objects, layout: Layout) -> Self {
        Self {
            objects,
            layout,
            indexes: Open::new(INDEXES_MAX),
        }
    }

    fn read_plain(&self, block: &Block, data: &mut [u8], plain: &Plain) -> Result<()> {
        let place = self.objects.place(block.object)?;
        match place.read_part(data, self.objects.chunks.offset(block))? {
            true => dtype::swap(data, plain.swap_width),
            false => fill(data, &plain.fill),
        }
        Ok(())
    }

    fn read_sub_chunk(&self, block: &Block, data: &mut [u8], form: &ShardForm) -> Result<()> {
        let place = self.objects.place(block.object)?;
        let shard = Object(&place);
        let open = || {
            let Some(about) = place.about()? else {
                return Ok(None);
            };
            let extents = self.objects.chunks.schema.chunk_extents(block.object);
            let index = form.index_of(&extents)?;
            let index = index.read(&shard, about.bytes, place.url())?;
            Ok(Some((index, about.bytes)))
        };
        let (found, _) = self.indexes.get(block.object, open)?;
        let Some((index, bytes)) = &*found else {
            fill(data, &form.fill);
            return Ok(());
        };
        let at = 2 * exact::<usize>(block.index);
        let part = ((index[at], index[at + 1]), *bytes);
        form.read_sub_chunk(&shard, part, block, data, place.url())
    }
}

/// An object, as a source of bytes.
struct Object<'a>(&'a Place);

impl Bytes for Object<'_> {
    fn read_at(&self, data: &mut [u8], offset: u64, path: &Path) -> Result<()> {
        match self.0.read_part(data, offset)? {
            true => Ok(()),
            false => Err(damaged(path, "the shard went away while it was read")),
        }
    }
}

impl Medium for Reader {
    fn position(&self, _: &Block) -> Option<u64> {
        None
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, _: &[u8]) -> Result<()> {
        Err(read_only(&self.objects.chunks.path(block.object)))
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        match &self.layout {
            Layout::Plain(plain) => self.read_plain(block, data, plain),
            Layout::Shards(form) => self.read_sub_chunk(block, data, form),
            Layout::Encoded(_) => {
                let read = |data: &mut [u8]| self.objects.read(&self.layout, block.object, data);
                read_rows(&self.objects.chunks.schema, block, data, read)
            }
        }
    }

    fn moves_parts(&self) -> bool {
        false
    }

    fn write_part(&self, block: &Block, _: u64, _: &[u8]) -> Result<()> {
        Err(read_only(&self.objects.chunks.path(block.object)))
    }

    fn read_part(&self, _: &Block, _: u64, _: &mut [u8]) -> Result<()> {
        Err(no_parts("reading"))
    }

    fn finish(&self, _: bool) -> Result<()> {
        Ok(())
    }

    fn sums(&self) -> Vec<(u64, u32)> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Reads and changes chunks that are there. Each chunk is the old or the new one at any moment.
pub(super) struct Updater {
    reader: Reader,
    /// The layout of whole chunks.
    whole: Layout,
    locks: [Mutex<()>; LOCKS],
}

impl Updater {
    pub(super) fn new(reader: Reader, whole: Layout) -> Self {
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
        let (objects, object) = (&self.reader.objects, block.object);
        let _lock = lock(&self.locks[exact::<usize>(object % LOCKS as u64)]);
        let bytes = objects.chunks.bytes(object);
        let changed = match data.len() as u64 == bytes {
            true => Cow::Borrowed(data),
            false => {
                let mut whole = files::zeros(bytes)?;
                objects.read(&self.whole, object, &mut whole)?;
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

    fn sums(&self) -> Vec<(u64, u32)> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}
