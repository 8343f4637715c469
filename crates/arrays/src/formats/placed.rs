//! Chunks that lie at places within one file, as those of an HDF5 dataset do, as a medium.
//!
//! | chunks | written by | read by |
//! |---|---|---|
//! | elements as they are | one `pwrite` a block, straight from the staging buffer | one `pread` a block |
//! | encoded, where they are | | one `pread` a chunk, then the codec chain |
//! | encoded, at the end of the file as they come | the codec chain, then one `pwrite` a chunk | the same |
//!
//! Encoded chunks have lengths that nobody knows before. Servers that write them take room at the
//! end of the file in turn, and leave notes of where each chunk is, from which the root makes the
//! metadata.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Block, DiskSchema};
use penstock_machines::Medium;
use penstock_machines::disk::medium::no_parts;
use penstock_machines::memory::buffer::fill;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::zarr::{Coder, read_only, read_rows};
use crate::codec::bytes_codec;
use crate::dtype::{self, ByteOrder, ElementType};
use crate::fill::Fill;
use crate::fs::direct::{AccessMode, DataFile};
use crate::fs::files::{self, damaged, lock};
use crate::fs::ops;
use crate::fs::temporary::nonce;

/// The file in a temporary that servers lock while they take room, and the beginning of the names
/// of their notes.
const ROOM: &str = "room";
const NOTES: &str = "notes-";

/// The chunks of an array within a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Location {
    pub(crate) file: PathBuf,
    pub(crate) element: ElementType,
    /// The order of bytes in the file.
    pub(crate) order: ByteOrder,
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
    /// New chunks, at the end of the file; notes of their places go into this directory.
    New(PathBuf),
}

/// The place of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The first byte.
    pub(crate) at: u64,
    /// The encoded bytes.
    pub(crate) bytes: u64,
    /// The codecs that were not applied: the bit of each one's number.
    pub(crate) skipped: u32,
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
        let (location, schema) = (self.clone(), schema.clone());
        let Places::New(notes) = &self.places else {
            self.check_updatable()?;
            let file = DataFile::new(file, way, path)?;
            return Ok(Arc::new(Plain {
                file,
                location,
                schema,
            }));
        };
        let room = notes.join(ROOM);
        let mut options = OpenOptions::new();
        options.write(true).create(true);
        Ok(Arc::new(Writer {
            room: ops::create(&options, &room).map_err(|e| Error::io(&e, "opening", &room))?,
            coder: self.coder(&schema, 0)?,
            notes: notes.clone(),
            written: Mutex::default(),
            file,
            location,
            schema,
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
        let (location, schema) = (self.clone(), schema.clone());
        if self.codecs.is_empty() {
            return Ok(Arc::new(Plain {
                file,
                location,
                schema,
            }));
        }
        Ok(Arc::new(Reader {
            bytes: files::length(file.file(), path)?,
            coders: Mutex::default(),
            file,
            location,
            schema,
        }))
    }

    /// Refuses chunks that are encoded: each has the room that it has.
    ///
    /// # Errors
    /// [`Kind::Unsupported`].
    pub(crate) fn check_updatable(&self) -> Result<()> {
        if self.codecs.is_empty() {
            return Ok(());
        }
        let cause = "its chunks are encoded, and stay as they are: write the array anew";
        Err(Error::new(Kind::Unsupported, "writing", cause).at(&self.file))
    }

    /// The codec chain of chunks that were stored without the codecs in `skipped`.
    fn coder(&self, schema: &DiskSchema, skipped: u32) -> Result<Coder> {
        let applied = self.codecs.iter().enumerate();
        let applied = applied.filter(|(number, _)| (skipped >> number.min(&31)) & 1 == 0);
        let parsed = |(_, codec): (usize, &String)| {
            serde_json::from_str(codec).map_err(|e| damaged(&self.file, e))
        };
        let applied: Vec<Value> = applied.map(parsed).collect::<Result<_>>()?;
        let bytes = bytes_codec(self.element, self.order);
        let chain: Vec<Value> = std::iter::once(bytes).chain(applied).collect();
        Coder::of_chain(&chain, self.element, &self.fill, schema.chunk())
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
            Places::Known(_) => self.place_of_chunk(block.object)?.at,
            Places::New(_) => return None,
        };
        chunk.checked_add(schema.offset_in_chunk(block.object) + block.offset)
    }

    /// The place of a chunk, if places are known and the chunk is stored.
    fn place_of_chunk(&self, object: u64) -> Option<Place> {
        let Places::Known(places) = &self.places else {
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
}

impl Plain {
    fn swap_width(&self) -> usize {
        self.location.element.swap_width_from(self.location.order)
    }

    /// The place of a block; `None` if its chunk is not stored.
    fn place(&self, block: &Block) -> Option<u64> {
        self.location.place_in_file(&self.schema, block)
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
        let place = self.place(block).ok_or_else(|| stays_unstored(path))?;
        let data = dtype::swapped(data, self.swap_width());
        self.file.write_at(&data, place + offset, path)
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        let Some(place) = self.place(block) else {
            self.location.fill(data);
            return Ok(());
        };
        let place = place.saturating_add(offset);
        self.file.read_at(data, place, &self.location.file)?;
        dtype::swap(data, self.swap_width());
        Ok(())
    }

    fn finish(&self, sync: bool) -> Result<()> {
        match sync {
            true => sync_file(self.file.file(), &self.location.file),
            false => Ok(()),
        }
    }

    fn sums(&self) -> Vec<(u64, u32)> {
        Vec::new()
    }
}

fn stays_unstored(path: &Path) -> Error {
    let cause = "a chunk of it is not stored: write the array anew";
    Error::new(Kind::Unsupported, "writing", cause).at(path)
}

fn sync_file(file: &File, path: &Path) -> Result<()> {
    ops::sync(file, path).map_err(|e| Error::io(&e, "syncing", path))
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

    fn sums(&self) -> Vec<(u64, u32)> {
        Vec::new()
    }
}

/// Encodes chunks, and writes them where there is room.
struct Writer {
    file: File,
    /// The file that is locked while room is taken.
    room: File,
    coder: Coder,
    location: Location,
    notes: PathBuf,
    schema: DiskSchema,
    /// The places of the chunks that were written.
    written: Mutex<BTreeMap<u64, Place>>,
}

impl Writer {
    /// Takes room for `bytes` bytes at the end of the file, which other servers do, too.
    fn take_room(&self, bytes: u64) -> Result<u64> {
        let path = &self.location.file;
        let failed = |e: io::Error| Error::io(&e, "taking room in", path);
        let turn = |operation| rustix::fs::flock(&self.room, operation).map_err(io::Error::from);
        turn(FlockOperation::LockExclusive).map_err(failed)?;
        let taken = files::length(&self.file, path).and_then(|end| {
            let room = end
                .checked_add(bytes)
                .ok_or_else(|| files::too_long(path))?;
            ops::set_len(&self.file, room, path).map_err(failed)?;
            Ok(end)
        });
        turn(FlockOperation::Unlock).map_err(failed)?;
        taken
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
        let path = &self.location.file;
        let encoded = self.coder.encode(data).map_err(|e| e.at(path))?;
        let bytes = encoded.len() as u64;
        let at = self.take_room(bytes)?;
        files::write_at(&self.file, &encoded, at, path)?;
        let skipped = 0;
        lock(&self.written).insert(block.object, Place { at, bytes, skipped });
        Ok(())
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        let written = lock(&self.written).get(&block.object).copied();
        let Some(place) = written else {
            self.location.fill(data);
            return Ok(());
        };
        let path = &self.location.file;
        let mut encoded = files::zeros(place.bytes)?;
        files::read_at(&self.file, &mut encoded, place.at, path)?;
        let read = |data: &mut [u8]| self.coder.decode(&encoded, data).map_err(|e| e.at(path));
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
        let written = lock(&self.written);
        if written.is_empty() {
            return Ok(());
        }
        if sync {
            sync_file(&self.file, &self.location.file)?;
        }
        let notes = self.notes.join(format!("{NOTES}{}", nonce()));
        // The notes need not outlive a crash: a write that was killed begins anew.
        files::write(&notes, &encode_notes(&written))
    }

    fn sums(&self) -> Vec<(u64, u32)> {
        Vec::new()
    }
}

/// The bytes of notes: three numbers of 8 bytes for each chunk.
fn encode_notes(written: &BTreeMap<u64, Place>) -> Vec<u8> {
    let numbers = written.iter();
    let numbers = numbers.flat_map(|(&object, place)| [object, place.at, place.bytes]);
    numbers.flat_map(u64::to_le_bytes).collect()
}

/// The places of all chunks that servers have written, from their notes in `directory`.
///
/// # Errors
/// [`Kind::Damaged`] when a note is none.
pub(crate) fn read_notes(directory: &Path) -> Result<BTreeMap<u64, Place>> {
    let mut places = BTreeMap::new();
    for entry in files::entries(directory)? {
        if !entry.file_name().to_string_lossy().starts_with(NOTES) {
            continue;
        }
        let path = entry.path();
        let bytes = files::read_if_there(&path)?.unwrap_or_default();
        let (notes, rest) = bytes.as_chunks::<24>();
        if !rest.is_empty() {
            return Err(damaged(&path, "a note is cut short"));
        }
        for note in notes {
            let number = |at: usize| {
                let bytes = note[at..at + 8].try_into().unwrap_or_default();
                u64::from_le_bytes(bytes)
            };
            let (object, at, bytes) = (number(0), number(8), number(16));
            places.insert(
                object,
                Place {
                    at,
                    bytes,
                    skipped: 0,
                },
            );
        }
    }
    Ok(places)
}
