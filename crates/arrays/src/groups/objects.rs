//! The store of a group in a bucket.
//!
//! Nothing can be renamed there, so all is put where it belongs: chunks beyond the length that
//! readers know, or under the name of a checkpoint that is not there yet. One put under a condition
//! then makes the change, as one rename does in a directory. The record is not a file of its own:
//! stores that take keys of Zarr alone have it, too.
//!
//! ```text
//! sim2.zarr/
//!   zarr.json                a Zarr group with consolidated metadata
//!   u/c/7/0                  a chunk: put if none is there, or if it is still the one that was
//! read   checkpoints/50/
//!     zarr.json              put last: then the checkpoint is there; removed first
//!     .penstock/c/0          the checksums of its arrays: the text of a JSON object
//!   .penstock/record/
//!     zarr.json              an array of texts, one a timestep; the record is its attribute
//!     c/7                    the checksums of timestep 7: the text of a JSON object, in which
//!                            the bounds of an array `u` are under `.bounds/u`
//!     .penstock              the lease of the save that is under way
//! ```
//!
//! In a repository all of this is a draft, and a commit makes the change: there is no lease, and
//! the metadata of arrays come before their chunks.
//!
//! A writer that slept, and whose lease another one has taken over, does no harm: its chunks, its
//! record and its checkpoint find another object in their place, and the save fails.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use penstock_bucket::{Place, Version};
use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;
use serde_json::{Map, Value, json};

use super::coordinate::{text_chunk, text_of_chunk};
use super::group::SavedArray;
use super::metadata::{TIMES, number_path};
use super::store::{Change, Commit, GroupStore, Remains};
use crate::formats::bounds::{self, AllBounds};
use crate::formats::record;
use crate::formats::sums::Sums;
use crate::formats::zarr::Node;
use crate::fs::files::{self, damaged};
use crate::json;
use crate::write::Lease;

/// The digits of a checksum; an object without a checksum has as many lines.
const DIGITS: usize = 8;
const ABSENT: &str = "--------";

/// A group in a bucket.
pub(super) struct Objects {
    path: PathBuf,
    home: Place,
    /// None in a repository.
    lease: Option<Lease>,
    /// The record that is there, and the group's metadata as they were when they were held.
    record: Option<Version>,
    metadata: Option<Version>,
    /// The checksums and bounds of the timestep that is being written, by array.
    digests: Map<String, Value>,
}

impl Objects {
    /// Keeps other writers away from the group at a URL, which need not be there.
    ///
    /// # Errors
    /// [`Kind::Busy`] when another job saves to the group; [`Kind::ReadOnly`] for a web server; the
    /// error of the service.
    pub(super) fn lease(path: &Path) -> Result<Self> {
        let home = Place::at(path)?;
        home.check_writable()?;
        let lease = match home.is_in_repository() {
            true => None,
            false => Some(Lease::take(&Place::at(&record::directory(path))?)),
        };
        let lease = lease.transpose().map_err(|error| error.at(path))?;
        // What is there is read after the lease: nobody else replaces it now.
        let record = Place::at(&record::object(path))?.read()?;
        Ok(Self {
            path: path.to_path_buf(),
            home,
            lease,
            record: record.map(|(_, version)| version),
            metadata: None,
            digests: Map::new(),
        })
    }

    fn check_lease(&self) -> Result<()> {
        let kept = self.lease.as_ref().map_or(Ok(()), Lease::check);
        kept.map_err(|error| error.at(&self.path))
    }

    fn busy(&self) -> Error {
        let cause = "another job has saved to the group meanwhile";
        Error::new(Kind::Busy, "writing to a group", cause).at(&self.path)
    }
}

/// Puts an object if it is still of this version, or is still missing. Gives its new version.
fn put(place: &Place, json: &Value, version: Option<&Version>) -> Result<Option<Version>> {
    let text = json::text(json);
    match version {
        None => place.create(&text),
        Some(version) => place.replace(&text, version),
    }
}

impl GroupStore for Objects {
    fn hold_metadata(&mut self) -> Result<()> {
        let there = self.home.below("zarr.json")?.about()?;
        self.metadata = there.map(|about| about.version);
        Ok(())
    }

    fn announce(&mut self, own: &[(PathBuf, Value)]) -> Result<()> {
        match self.home.is_in_repository() {
            true => write_all(own),
            false => Ok(()),
        }
    }

    fn stage(&mut self, change: &Change, _: Vec<PathBuf>) -> Result<()> {
        if let Commit::Record(record) = &change.commit
            && let Some(last) = record["timesteps"].as_u64().and_then(|n| n.checked_sub(1))
            && !self.digests.is_empty()
        {
            self.announce(&[(record::object(&self.path), record::in_array(record))])?;
            let text = json::line(&Value::Object(std::mem::take(&mut self.digests)));
            files::write(
                &timestep_sums_object(&self.path, last),
                &text_chunk(&[text]),
            )?;
        }
        Ok(())
    }

    fn show(&mut self, change: &Change) -> Result<bool> {
        self.check_lease()?;
        match &change.commit {
            Commit::Nothing => {}
            Commit::Record(json) => {
                let place = Place::at(&record::object(&self.path))?;
                let version = put(&place, &record::in_array(json), self.record.as_ref())?;
                self.record = Some(version.ok_or_else(|| self.busy())?);
            }
            Commit::Checkpoint {
                place, metadata, ..
            } => {
                let place = Place::at(&place.join("zarr.json"))?;
                put(&place, metadata, None)?.ok_or_else(|| self.busy())?;
            }
        }
        let Some(group) = &change.group else {
            return Ok(true);
        };
        let put = put(
            &self.home.below("zarr.json")?,
            group,
            self.metadata.as_ref(),
        )?;
        Ok(put.is_some())
    }

    fn follow(&mut self, change: &Change) -> Result<()> {
        write_all(&change.own)
    }

    fn write_number(&mut self, array: &str, index: u64, number: [u8; 8]) -> Result<Vec<PathBuf>> {
        let place = Place::at(&number_path(&self.path, array, index))?;
        let there = place.read()?;
        let (mut numbers, version) = match there {
            Some((numbers, version)) => (numbers.to_vec(), Some(version)),
            None => (files::zeros(TIMES * 8)?, None),
        };
        let at = exact::<usize>(index % TIMES * 8);
        let room = numbers.get_mut(at..at + 8);
        let room = room.ok_or_else(|| damaged(place.url(), "it is cut short"))?;
        room.copy_from_slice(&number);
        match place.write_over(numbers, version.as_ref())? {
            true => Ok(Vec::new()),
            false => Err(self.busy()),
        }
    }

    fn write_sums(&mut self, name: &str, _: u64, sums: &Sums) -> Result<Vec<PathBuf>> {
        self.digests.insert(name.to_string(), text_of(sums).into());
        Ok(Vec::new())
    }

    fn write_bounds(&mut self, name: &str, _: u64, bounds: &AllBounds) -> Result<Vec<PathBuf>> {
        let text = text_of_bounds(bounds).into();
        self.digests.insert(key_of_bounds(name), text);
        Ok(Vec::new())
    }

    /// Removes checkpoints that have no metadata: they are not there yet, or not any more. A writer
    /// that has lost its lease removes nothing, since it may be the other one's.
    fn remove_leftovers(&mut self, _: &[String]) -> Result<()> {
        self.digests = Map::new();
        self.check_lease()?;
        let all = record::checkpoints(&self.path);
        for name in files::directories_in(&all)? {
            let place = all.join(name);
            if Node::read(&place)?.is_none() {
                files::remove_if_there(&place)?;
            }
        }
        Ok(())
    }

    fn remove_chunks(&mut self, array: &str, first: u64, remains: Remains) -> Result<()> {
        let chunks = self.home.below(array)?.below("c")?;
        if remains == Remains::Row {
            return chunks.below(&first.to_string())?.remove_tree();
        }
        let is_gone = |key: &str| {
            let number = key.split('/').next().unwrap_or_default().parse::<u64>();
            number.is_ok_and(|number| number >= first)
        };
        chunks.remove_all(&chunks.keys_below(is_gone)?)
    }

    fn new_checkpoint(&self, name: &str) -> PathBuf {
        record::checkpoints(&self.path).join(name)
    }

    fn write_checkpoint_digests(
        &mut self,
        new: &Path,
        arrays: &[SavedArray],
    ) -> Result<Vec<PathBuf>> {
        let mut known = BTreeMap::new();
        for array in arrays {
            known.insert(array.name.clone(), text_of(&array.sums));
            if let Some(bounds) = &array.bounds {
                known.insert(key_of_bounds(&array.name), text_of_bounds(bounds));
            }
        }
        let text = json::line(&json!(known));
        let array = new.join(record::HIDDEN).join("zarr.json");
        files::write_json(&array, &record::array_of_texts(1, json!({})))?;
        files::write(&checkpoint_sums_object(new), &text_chunk(&[text]))?;
        Ok(Vec::new())
    }

    fn remove_checkpoint(&mut self, checkpoint: &Path) -> Result<()> {
        Place::at(&checkpoint.join("zarr.json"))?.remove()?;
        files::remove_if_there(checkpoint)
    }
}

/// Puts the metadata of arrays.
fn write_all(metadata: &[(PathBuf, Value)]) -> Result<()> {
    let mut all = metadata.iter();
    all.try_for_each(|(place, json)| files::write_json(place, json))
}

/// The object with the checksums of a timestep, in a group in a bucket.
pub(super) fn timestep_sums_object(group: &Path, timestep: u64) -> PathBuf {
    let chunks = record::directory(group).join("c");
    chunks.join(timestep.to_string())
}

/// The object with the checksums of a checkpoint in a bucket.
pub(super) fn checkpoint_sums_object(checkpoint: &Path) -> PathBuf {
    checkpoint.join(record::HIDDEN).join("c").join("0")
}

/// The checksums of an array in an object of the checksums of all arrays at one moment; `None` if
/// there is no such object, or it knows nothing of the array.
///
/// # Errors
/// [`Kind::Damaged`] when the object cannot be understood, or has not `count` checksums.
pub(super) fn read_sums(object: &Path, name: &str, count: u64) -> Result<Option<Sums>> {
    let Some(text) = read_text(object, name)? else {
        return Ok(None);
    };
    let known = sums_of(&text).ok_or_else(|| damaged(object, "these are no checksums"))?;
    if known.len() as u64 == count {
        return Ok(Some(known));
    }
    let cause = format!("{} checksums for {count} chunks of {name:?}", known.len());
    Err(damaged(object, cause))
}

/// The bounds of an array in such an object; `None` if there are none.
///
/// # Errors
/// [`Kind::Damaged`] when the object cannot be understood.
pub(super) fn read_bounds(object: &Path, name: &str) -> Result<Option<AllBounds>> {
    let Some(text) = read_text(object, &key_of_bounds(name))? else {
        return Ok(None);
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    match bytes {
        Some(bytes) if rest.is_empty() => bounds::decode(&bytes, object).map(Some),
        _ => Err(damaged(object, "these are no bounds of chunks")),
    }
}

/// The text under a key of an object of checksums.
fn read_text(object: &Path, key: &str) -> Result<Option<String>> {
    let Some(bytes) = files::read_if_there(object)? else {
        return Ok(None);
    };
    let text = text_of_chunk(&bytes).ok_or_else(|| damaged(object, "these are no checksums"))?;
    let all = json::parse(text.as_bytes()).map_err(|e| damaged(object, e))?;
    Ok(all[key].as_str().map(str::to_string))
}

/// The key of an array's bounds: no array has such a name.
fn key_of_bounds(name: &str) -> String {
    format!(".bounds/{name}")
}

/// Bounds as a text: the bytes that a file would have, two hexadecimal digits each.
fn text_of_bounds(all: &AllBounds) -> String {
    let bytes = bounds::encode(all);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checksums as a text of 8 hexadecimal digits each.
fn text_of(sums: &Sums) -> String {
    let text = |sum: &Option<u32>| sum.map_or(ABSENT.to_string(), |sum| format!("{sum:08x}"));
    sums.iter().map(text).collect()
}

fn sums_of(text: &str) -> Option<Sums> {
    let sum = |digits: &[u8]| match std::str::from_utf8(digits).ok()? {
        ABSENT => Some(None),
        digits => Some(Some(u32::from_str_radix(digits, 16).ok()?)),
    };
    let is_whole = text.len().is_multiple_of(DIGITS);
    let sums = text.as_bytes().chunks_exact(DIGITS).map(sum);
    is_whole.then(|| sums.collect::<Option<Sums>>())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_come_back_from_their_text() {
        let sums = vec![Some(0), None, Some(u32::MAX), Some(0x12ab)];
        assert_eq!(text_of(&sums), "00000000--------ffffffff000012ab");
        assert_eq!(sums_of(&text_of(&sums)), Some(sums));
        assert_eq!(sums_of(""), Some(Vec::new()));
        for other in ["0", "0000000g", "000000000", "é000000"] {
            assert_eq!(sums_of(other), None, "{other}");
        }
    }
}
