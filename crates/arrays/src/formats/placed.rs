//! Chunks that lie at places within one file, as those of an HDF5 dataset do, as a medium.
//!
//! | chunks | written by | read by |
//! |---|---|---|
//! | elements as they are | one `pwrite` a block, straight from the staging buffer | one `pread` a block |
//! | encoded, where they are | | one `pread` a chunk, then the codec chain |
//! | encoded, at the end of the file as they come | the codec chain, then one `pwrite` a chunk | the same |
//!
//! Servers find [`Room`] for new chunks, and leave notes of where they are. A chunk that is encoded
//! is never overwritten: a changed one gets room, too.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use penstock_engine::{Digest, Error, Kind, Result};
use penstock_layout::{Block, DiskSchema, exact};
use penstock_machines::Medium;
use penstock_machines::disk::medium::no_parts;
use penstock_machines::memory::buffer::fill;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::room::{Notes, Place, Room};
use super::zarr::{Coder, read_only, read_rows};
use crate::codec::bytes_codec;
use crate::dtype::{ByteOrder, StoredElement};
use crate::fill::Fill;
use crate::fs::direct::{AccessMode, DataFile};
use crate::fs::files::{self, damaged, lock};
use crate::fs::ops;

/// The chunks of an array within a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Location {
    pub(crate) file: PathBuf,
    /// The element as the file has it, without padding.
    pub(crate) element: StoredElement,
    pub(crate) fill: Fill,
    /// The codecs of Zarr through which elements go, in this order, behind `bytes`: JSON texts.
    pub(crate) codecs: Vec<String>,
    pub(crate) places: Places,
}

/// The places of the chunks, by object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Places {
    /// Elements as they are, one chunk behind the other from this byte on.
    Run(u64),
    /// The chunks that are stored.
    Known(Vec<Option<Place>>),
    /// Chunks that are written go to the end of the file unless they are elements as they are that
    /// have a place; notes say where. The chunks that are stored already have places.
    New(Notes, Vec<Option<Place>>),
}

impl Location {
    /// Opens the chunks for writing, and for reading what was written.
    pub(crate) fn open_write(
        &self,
        schema: &DiskSchema,
        way: AccessMode,
    ) -> Result<Arc<dyn Medium>> {
        let path = &self.file;
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|e| Error::io(&e, "opening for writing", path))?;
        let room = match &self.places {
            Places::New(notes, _) => {
                let file = file.try_clone();
                let file = file.map_err(|e| Error::io(&e, "opening for writing", path))?;
                Some(Room::new(file, path, notes)?)
            }
            Places::Run(_) | Places::Known(_) => None,
        };
        let file = DataFile::new(file, way, path)?;
        if self.codecs.is_empty() {
            return Ok(Arc::new(Plain {
                file,
                location: self.clone(),
                schema: schema.clone(),
                room,
            }));
        }
        let Some(room) = room else {
            return Err(encoded_stay(path));
        };
        Ok(Arc::new(Writer {
            former: self.reader(file, schema)?,
            coder: self.coder(schema, 0)?,
            room,
            location: self.clone(),
            schema: schema.clone(),
        }))
    }

    /// Opens the chunks for reading.
    pub(crate) fn open_read(
        &self,
        schema: &DiskSchema,
        way: AccessMode,
    ) -> Result<Arc<dyn Medium>> {
        let path = &self.file;
        let file = File::open(path).map_err(|e| Error::io(&e, "opening", path))?;
        let file = DataFile::new(file, way, path)?;
        if self.codecs.is_empty() {
            return Ok(Arc::new(Plain {
                file,
                location: self.clone(),
                schema: schema.clone(),
                room: None,
            }));
        }
        Ok(Arc::new(self.reader(file, schema)?))
    }

    fn reader(&self, file: DataFile, schema: &DiskSchema) -> Result<Reader> {
        Ok(Reader {
            bytes: files::length(file.file(), &self.file)?,
            coders: Mutex::default(),
            file,
            location: self.clone(),
            schema: schema.clone(),
        })
    }

    /// Refuses chunks that are encoded: each has the room that it has.
    ///
    /// # Errors
    /// [`Kind::Unsupported`].
    pub(crate) fn check_updatable(&self) -> Result<()> {
        if self.codecs.is_empty() {
            return Ok(());
        }
        Err(encoded_stay(&self.file))
    }

    /// The codec chain of chunks that were stored without the codecs in `skipped`.
    fn coder(&self, schema: &DiskSchema, skipped: u32) -> Result<Coder> {
        let applied = self.codecs.iter().enumerate();
        let applied = applied.filter(|(number, _)| (skipped >> number.min(&31)) & 1 == 0);
        let parsed = |(_, codec): (usize, &String)| {
            serde_json::from_str(codec).map_err(|e| damaged(&self.file, e))
        };
        let applied: Vec<Value> = applied.map(parsed).collect::<Result<_>>()?;
        let bytes = bytes_codec(self.element.element(), ByteOrder::NATIVE);
        let chain: Vec<Value> = std::iter::once(bytes).chain(applied).collect();
        Coder::of_chain(&chain, &self.element, &self.fill, schema.chunk())
            .map_err(|e| e.at(&self.file))
    }

    /// Fills a block that is not stored.
    fn fill(&self, data: &mut [u8]) {
        fill(data, self.fill.bytes());
    }

    /// The file of a block, and the block's offset in it if the file holds the elements as they
    /// are.
    pub(crate) fn place_of(&self, schema: &DiskSchema, block: &Block) -> (PathBuf, Option<u64>) {
        let is_plain = self.codecs.is_empty();
        let place = is_plain.then(|| self.place_in_file(schema, block));
        (self.file.clone(), place.flatten())
    }

    /// The first byte of a block of elements as they are; `None` if its chunk is not stored.
    fn place_in_file(&self, schema: &DiskSchema, block: &Block) -> Option<u64> {
        let chunk = match &self.places {
            Places::Run(start) => start + block.object * schema.chunk_bytes(block.object),
            Places::Known(_) | Places::New(..) => self.place_of_chunk(block.object)?.at,
        };
        chunk.checked_add(schema.offset_in_chunk(block.object) + block.offset)
    }

    /// The place of a chunk, if places are known and the chunk is stored.
    pub(crate) fn place_of_chunk(&self, object: u64) -> Option<Place> {
        let (Places::Known(places) | Places::New(_, places)) = &self.places else {
            return None;
        };
        *places.get(usize::try_from(object).ok()?)?
    }
}

/// Moves chunks of elements as they are.
struct Plain {
    file: DataFile,
    location: Location,
    schema: DiskSchema,
    /// Room for chunks that are not stored.
    room: Option<Room>,
}

impl Plain {
    /// The place of a block; `None` if its chunk is not stored.
    fn place(&self, block: &Block) -> Option<u64> {
        let stored = self.location.place_in_file(&self.schema, block);
        stored.or_else(|| {
            let place = self.room.as_ref()?.place_of(block.object)?;
            Some(place.at + self.offset(block))
        })
    }

    fn offset(&self, block: &Block) -> u64 {
        self.schema.offset_in_chunk(block.object) + block.offset
    }

    /// The place of a block that is written: its chunk gets room if it has none.
    fn place_or_take(&self, block: &Block) -> Result<u64> {
        if let Some(place) = self.place(block) {
            return Ok(place);
        }
        let path = &self.location.file;
        let room = self.room.as_ref().ok_or_else(|| stays_unstored(path))?;
        let bytes = self.schema.chunk_bytes(block.object);
        let place = room.place_or_take(block.object, bytes, |data| {
            self.location.fill(data);
            self.location.element.swap(data);
        })?;
        Ok(place.at + self.offset(block))
    }
}

impl Medium for Plain {
    fn position(&self, block: &Block) -> Option<u64> {
        self.file.position(self.place(block)?)
    }

    fn is_in_order(&self) -> bool {
        matches!(self.location.places, Places::Run(_)) && self.file.is_in_order()
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
        let path = &self.location.file;
        let place = self.place_or_take(block)?;
        let data = self.location.element.swapped(data);
        self.file.write_at(&data, place + offset, path)
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        let Some(place) = self.place(block) else {
            self.location.fill(data);
            return Ok(());
        };
        let place = place.saturating_add(offset);
        self.file.read_at(data, place, &self.location.file)?;
        self.location.element.swap(data);
        Ok(())
    }

    fn finish(&self, sync: bool) -> Result<()> {
        if sync {
            let path = &self.location.file;
            ops::sync(self.file.file(), path).map_err(|e| Error::io(&e, "syncing", path))?;
        }
        match &self.room {
            Some(room) => room.finish(sync),
            None => Ok(()),
        }
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}

fn stays_unstored(path: &Path) -> Error {
    let cause = "a chunk of it is not stored: write the array anew";
    Error::new(Kind::Unsupported, "writing", cause).at(path)
}

fn encoded_stay(path: &Path) -> Error {
    let cause = "its chunks are encoded, and stay as they are: write the array, or a part of it, by \
        a call of its own";
    Error::new(Kind::Unsupported, "writing", cause).at(path)
}

/// Reads chunks wherever they are.
struct Reader {
    file: DataFile,
    bytes: u64,
    location: Location,
    schema: DiskSchema,
    /// The codec chains, by the codecs that were not applied.
    coders: Mutex<BTreeMap<u32, Arc<Coder>>>,
}

impl Reader {
    fn coder(&self, skipped: u32) -> Result<Arc<Coder>> {
        let mut coders = lock(&self.coders);
        if let Some(coder) = coders.get(&skipped) {
            return Ok(coder.clone());
        }
        let coder = Arc::new(self.location.coder(&self.schema, skipped)?);
        coders.insert(skipped, coder.clone());
        Ok(coder)
    }

    fn read_chunk(&self, object: u64, data: &mut [u8]) -> Result<()> {
        let Some(place) = self.location.place_of_chunk(object) else {
            self.location.fill(data);
            return Ok(());
        };
        let path = &self.location.file;
        let end = place.at.checked_add(place.bytes);
        if end.is_none_or(|end| end > self.bytes) {
            let cause = format!("chunk {object} ends behind the file, which is cut short");
            return Err(
                damaged(path, cause).in_bytes(place.at..place.at.saturating_add(place.bytes))
            );
        }
        let mut encoded = files::zeros(place.bytes)?;
        self.file.read_at(&mut encoded, place.at, path)?;
        let coder = self.coder(place.skipped)?;
        let decoded = coder.decode(&encoded, data);
        decoded.map_err(|e| e.at(path).in_bytes(place.at..place.at + place.bytes))
    }
}

impl Medium for Reader {
    fn position(&self, block: &Block) -> Option<u64> {
        self.file
            .position(self.location.place_of_chunk(block.object)?.at)
    }

    /// Chunks come to a file in any order.
    fn is_in_order(&self) -> bool {
        false
    }

    fn write(&self, _: &Block, _: &[u8]) -> Result<()> {
        Err(read_only(&self.location.file))
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        let read = |data: &mut [u8]| self.read_chunk(block.object, data);
        read_rows(&self.schema, block, data, read)
    }

    fn moves_parts(&self) -> bool {
        false
    }

    fn write_part(&self, _: &Block, _: u64, _: &[u8]) -> Result<()> {
        Err(read_only(&self.location.file))
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

/// Encodes chunks, and writes them where there is room.
struct Writer {
    /// The chunks that are stored already.
    former: Reader,
    coder: Coder,
    room: Room,
    location: Location,
    schema: DiskSchema,
}

impl Writer {
    /// Reads a whole chunk, as this writer has last written it.
    fn read_chunk(&self, object: u64, data: &mut [u8]) -> Result<()> {
        let Some(place) = self.room.place_of(object) else {
            return self.former.read_chunk(object, data);
        };
        let encoded = self.room.read(place)?;
        let decoded = self.coder.decode(&encoded, data);
        decoded.map_err(|e| e.at(&self.location.file))
    }
}

impl Medium for Writer {
    fn position(&self, _: &Block) -> Option<u64> {
        None // new chunks have none yet
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        let mut whole = Vec::new();
        let bytes = self.schema.chunk_bytes(block.object);
        if data.len() as u64 != bytes {
            // In an array that grows, a block may be some rows of a chunk, which keeps the others.
            whole = files::zeros(bytes)?;
            self.read_chunk(block.object, &mut whole)?;
            let start = self.schema.offset_in_chunk(block.object) + block.offset;
            let start = exact::<usize>(start);
            whole[start..start + data.len()].copy_from_slice(data);
        }
        let data = if whole.is_empty() { data } else { &whole };
        let path = &self.location.file;
        let encoded = self.coder.encode(data).map_err(|e| e.at(path))?;
        self.room.put(block.object, &encoded)
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        let read = |data: &mut [u8]| self.read_chunk(block.object, data);
        read_rows(&self.schema, block, data, read)
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
        self.room.finish(sync)
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}
