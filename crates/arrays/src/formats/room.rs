//! Room at the end of a file, which several servers take, and notes of what is where.
//!
//! Encoded chunks have lengths that nobody knows before. A server takes room for one when it has
//! encoded it: under a lock, it looks where the file ends, and makes it longer. It notes the places
//! of its chunks in files of the temporary, from which the root makes the metadata.
//!
//! ```text
//! .run.h5~.penstock/
//!   room                   locked while a server takes room
//!   notes-0-89ab...        where chunks of array 0 are: three numbers a chunk
//! ```

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use penstock_engine::{Error, Result};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::fs::files::{self, damaged, lock};
use crate::fs::ops;
use crate::fs::temporary::nonce;

/// The file in a temporary that servers lock while they take room.
const ROOM: &str = "room";

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

/// Where notes of the chunks of an array go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notes {
    /// A temporary.
    pub(crate) directory: PathBuf,
    /// The number of the array among those that are written.
    pub(crate) number: usize,
    /// Whether a crash must leave notes of all that was finished and synced: another process may go
    /// on from there.
    pub(crate) are_lasting: bool,
}

impl Notes {
    /// The beginning of the names of the notes.
    fn stem(&self) -> String {
        format!("notes-{}-", self.number)
    }

    /// The places of all chunks that servers have written.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Damaged`] when a note is none.
    pub(crate) fn read(&self) -> Result<BTreeMap<u64, Place>> {
        let mut places = BTreeMap::new();
        let stem = self.stem();
        for entry in files::entries(&self.directory)? {
            if !entry.file_name().to_string_lossy().starts_with(&stem) {
                continue;
            }
            let path = entry.path();
            let bytes = files::read_if_there(&path)?.unwrap_or_default();
            let (notes, rest) = bytes.as_chunks::<24>();
            if !rest.is_empty() {
                return Err(damaged(&path, "a note is cut short"));
            }
            places.extend(notes.iter().map(decode));
        }
        Ok(places)
    }

    /// Writes notes of chunks, which are there as a whole or not at all.
    fn write(&self, written: &BTreeMap<u64, Place>, sync: bool) -> Result<()> {
        let number = nonce();
        let new = self.directory.join(format!("new-{number}"));
        let notes = self.directory.join(format!("{}{number}", self.stem()));
        let bytes: Vec<u8> = written.iter().flat_map(encode).collect();
        if !(sync && self.are_lasting) {
            files::write(&new, &bytes)?;
            return files::rename(&new, &notes);
        }
        files::write_synced(&new, &bytes)?;
        files::rename(&new, &notes)?;
        files::sync_path(&self.directory)
    }
}

/// The bytes of a note: three numbers of 8 bytes.
fn encode((&object, place): (&u64, &Place)) -> Vec<u8> {
    [object, place.at, place.bytes]
        .map(u64::to_le_bytes)
        .concat()
}

fn decode(note: &[u8; 24]) -> (u64, Place) {
    let number = |at: usize| u64::from_le_bytes(note[at..at + 8].try_into().unwrap_or_default());
    let place = Place {
        at: number(8),
        bytes: number(16),
        skipped: 0,
    };
    (number(0), place)
}

/// A server's chunks at the end of a file.
pub(crate) struct Room {
    file: File,
    path: PathBuf,
    /// The file that is locked while room is taken.
    turn: File,
    notes: Notes,
    /// The places of the chunks that have room.
    taken: Mutex<BTreeMap<u64, Place>>,
}

impl Room {
    /// Opens the room at the end of `file`, which is at `path`.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn new(file: File, path: &Path, notes: &Notes) -> Result<Self> {
        let turn = notes.directory.join(ROOM);
        let mut options = OpenOptions::new();
        options.write(true).create(true);
        Ok(Self {
            turn: ops::create(&options, &turn).map_err(|e| Error::io(&e, "opening", &turn))?,
            taken: Mutex::default(),
            path: path.to_path_buf(),
            notes: notes.clone(),
            file,
        })
    }

    /// The place of a chunk that has room.
    pub(crate) fn place_of(&self, object: u64) -> Option<Place> {
        lock(&self.taken).get(&object).copied()
    }

    /// Writes the bytes of a chunk where there is room.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn put(&self, object: u64, encoded: &[u8]) -> Result<()> {
        let bytes = encoded.len() as u64;
        let at = self.take(bytes)?;
        files::write_at(&self.file, encoded, at, &self.path)?;
        let skipped = 0;
        lock(&self.taken).insert(object, Place { at, bytes, skipped });
        Ok(())
    }

    /// The place of a chunk, which gets room if it has none: bytes that `fill` makes.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn place_or_take(
        &self,
        object: u64,
        bytes: u64,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Place> {
        let mut taken = lock(&self.taken);
        if let Some(place) = taken.get(&object) {
            return Ok(*place);
        }
        let at = self.take(bytes)?;
        let mut data = files::zeros(bytes)?;
        fill(&mut data);
        if data.iter().any(|&byte| byte != 0) {
            files::write_at(&self.file, &data, at, &self.path)?;
        }
        let skipped = 0;
        let place = Place { at, bytes, skipped };
        taken.insert(object, place);
        Ok(place)
    }

    /// Takes `bytes` bytes at the end of the file, which other servers do, too.
    fn take(&self, bytes: u64) -> Result<u64> {
        let path = &self.path;
        let failed = |e: io::Error| Error::io(&e, "taking room in", path);
        let turn = |operation| rustix::fs::flock(&self.turn, operation).map_err(io::Error::from);
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

    /// Reads the bytes of a chunk that has been put.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn read(&self, place: Place) -> Result<Vec<u8>> {
        let mut encoded = files::zeros(place.bytes)?;
        files::read_at(&self.file, &mut encoded, place.at, &self.path)?;
        Ok(encoded)
    }

    /// Notes where the chunks are, after a sync of them if wanted.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn finish(&self, sync: bool) -> Result<()> {
        let taken = lock(&self.taken);
        if taken.is_empty() {
            return Ok(());
        }
        if sync {
            ops::sync(&self.file, &self.path).map_err(|e| Error::io(&e, "syncing", &self.path))?;
        }
        self.notes.write(&taken, sync)
    }
}
