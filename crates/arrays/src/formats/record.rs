//! The record that Penstock keeps in a group of timesteps and checkpoints.
//!
//! Standard tools rewrite a group's `zarr.json`: `zarr.consolidate_metadata` the metadata of its
//! nodes, xarray its attributes. So the record, which counts the timesteps, is where these tools do
//! not look: in a hidden group, in the directory of a Zarr array, which by the format holds only
//! that array's chunks.
//!
//! ```text
//! sim2.zarr/
//!   .penstock/
//!     zarr.json             a group, so that other tools know this directory
//!     record/
//!       zarr.json           an array of one element; the rest of its directory is Penstock's
//!       group.json          the record
//!       lock                held (flock) by the process that saves
//!       sums/u              checksums of the timesteps of the array u
//!       bounds/u            bounds of its elements, if a program has asked for them
//!       new, old            a checkpoint that is being written, or removed
//!       new-*               files that are about to take their places
//! ```
//!
//! In a bucket the array is one of texts, the record is an attribute of it, and its chunks are the
//! checksums: see [`crate::groups`].
//!
//! The record is the truth: a timestep exists if the record counts it. Metadata follow the record,
//! and the next save brings them up to it if a crash has left them behind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use penstock_bucket::is_url;
use penstock_engine::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::zarr::consolidated;
use crate::fs::files::{self, damaged, read_json};

/// The version of the format.
pub(crate) const VERSION: u64 = 2;
/// The name of the hidden group.
pub(crate) const HIDDEN: &str = ".penstock";
/// The attribute that tells people what the record is.
const ABOUT: &str = "Beside this array stands what Penstock knows of the group. Leave it alone.";
/// The attribute of a group of the first version, and of a checkpoint.
pub(crate) const ATTRIBUTE: &str = "penstock";

/// The name of the coordinate of a group's timesteps.
pub(crate) const TIME: &str = "time";
/// The name of the group of checkpoints.
pub(crate) const CHECKPOINTS: &str = "checkpoints";

/// The record of a group with timesteps and checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// The version of the format.
    pub(crate) penstock: u64,
    pub(crate) group: String,
    /// An id of 16 digits that no other group has: it tells whether a group was replaced.
    #[serde(default)]
    pub(crate) id: String,
    /// The number of timesteps.
    pub(crate) timesteps: u64,
    /// The former number of timesteps, while timesteps are dropped. Rows on disk beyond `timesteps`
    /// are void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dropped_from: Option<u64>,
    /// The number of timesteps in a chunk.
    pub(crate) time_chunk: u64,
    /// The arrays that are saved with each timestep, by name.
    pub(crate) arrays: BTreeMap<String, Growth>,
    /// The number of rows of each dimension that grows by another number of rows in each timestep.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) rows: BTreeMap<String, u64>,
    /// The names of the arrays for which all saves keep the bounds of chunks. Timesteps that were
    /// saved before an array came here have none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) bounded: BTreeSet<String>,
}

/// The growth of an array with a timestep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Growth {
    /// One row, the timestep: the first dimension is time.
    Time,
    /// As many rows as ranks bring: the name is the first dimension's.
    Rows(String),
}

/// The nodes at a path that are saved together, so that no write may change one alone.
pub(crate) enum SavedContents {
    Nothing,
    /// The arrays of these names.
    Arrays(Vec<String>),
    /// All nodes: the path is a checkpoint.
    Checkpoint,
}

/// The directory of the record of a group.
pub(crate) fn directory(group: &Path) -> PathBuf {
    group.join(HIDDEN).join("record")
}

/// The directory in which a group of the first version keeps its checksums and its lock.
pub(crate) fn former_directory(group: &Path) -> PathBuf {
    group.join(HIDDEN)
}

/// The record's own file.
pub(crate) fn file(group: &Path) -> PathBuf {
    directory(group).join("group.json")
}

/// The object whose attribute is the record, in a bucket.
pub(crate) fn object(group: &Path) -> PathBuf {
    directory(group).join("zarr.json")
}

/// The record's array in a bucket, which has the record as an attribute.
pub(crate) fn in_array(record: &Value) -> Value {
    let attributes = json!({ "about": ABOUT, ATTRIBUTE: record });
    array_of_texts(record["timesteps"].as_u64().unwrap_or(0), attributes)
}

/// An array of texts, each of them a chunk.
pub(crate) fn array_of_texts(length: u64, attributes: Value) -> Value {
    json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": [length],
        "data_type": "string",
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": [1] } },
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
        "fill_value": "",
        "codecs": [{ "name": "vlen-utf8", "configuration": {} }, { "name": "crc32c" }],
        "attributes": attributes,
        "dimension_names": [TIME],
    })
}

/// The place of the checkpoints of a group.
pub(crate) fn checkpoints(group: &Path) -> PathBuf {
    group.join(CHECKPOINTS)
}

/// The file of the checksums of an array of a checkpoint.
pub(crate) fn checkpoint_sums_file(checkpoint: &Path, name: &str) -> PathBuf {
    checkpoint.join(name).join(".sums")
}

/// The file of the checksums of an array's timesteps.
pub(crate) fn sums_file(group: &Path, array: &str) -> PathBuf {
    directory(group).join("sums").join(array)
}

/// The file of the bounds of an array of a checkpoint.
pub(crate) fn checkpoint_bounds_file(checkpoint: &Path, name: &str) -> PathBuf {
    checkpoint.join(name).join(".bounds")
}

/// The directory of the files of bounds.
pub(crate) fn bounds_directory(group: &Path) -> PathBuf {
    directory(group).join("bounds")
}

/// The file of the bounds of an array's timesteps.
pub(crate) fn bounds_file(group: &Path, array: &str) -> PathBuf {
    bounds_directory(group).join(array)
}

/// The names of the arrays that count a dimension's rows: the first row of each timestep, and the
/// number of rows.
pub(crate) fn row_arrays(dimension: &str) -> [String; 2] {
    [format!("{dimension}_start"), format!("{dimension}_count")]
}

impl Record {
    /// Reads the record of the group at `path`; `None` if it is no group of Penstock.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the record cannot be understood, [`Kind::Unsupported`] when a later
    /// version has written it.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        let Some((json, place)) = Self::stored(path)? else {
            return match is_url(path) {
                true => Ok(None), // the first version was in directories only
                false => Self::former(path),
            };
        };
        if json["penstock"] != VERSION {
            let cause = format!(
                "version {} of a group, and this reads 1 and {VERSION}",
                json["penstock"]
            );
            return Err(Error::new(Kind::Unsupported, "opening a group", cause).at(&place));
        }
        let record: Self = serde_json::from_value(json)
            .map_err(|e| damaged(&place, format!("it is no record of a group: {e}")))?;
        record.check(&place)?;
        Ok(Some(record))
    }

    /// Checks that a record that was read at `place` fits together.
    ///
    /// # Errors
    /// [`Kind::Damaged`]; [`Kind::Unsupported`] when another version has written it.
    pub(crate) fn check(&self, place: &Path) -> Result<()> {
        if self.penstock != VERSION {
            let cause = format!(
                "version {} of a group, and this reads {VERSION}",
                self.penstock
            );
            return Err(Error::new(Kind::Unsupported, "opening a group", cause).at(place));
        }
        let are_known = self.arrays.values().all(|growth| match growth {
            Growth::Time => true,
            Growth::Rows(dimension) => self.rows.contains_key(dimension),
        });
        let are_there = self
            .bounded
            .iter()
            .all(|name| self.arrays.contains_key(name));
        match are_known && are_there && self.time_chunk > 0 {
            true => Ok(()),
            false => Err(damaged(place, "it does not fit together")),
        }
    }

    /// The record as it is stored, and where. A group that another tool has copied to a bucket, or
    /// out of one, has the other's record.
    fn stored(path: &Path) -> Result<Option<(Value, PathBuf)>> {
        let (file, object) = (file(path), object(path));
        if !is_url(path)
            && let Some(json) = read_json(&file)?
        {
            return Ok(Some((json, file)));
        }
        let Some(array) = read_json(&object)? else {
            return Ok(None);
        };
        match array["attributes"].get(ATTRIBUTE) {
            Some(record) => Ok(Some((record.clone(), object))),
            None if is_url(path) => Ok(read_json(&file)?.map(|json| (json, file))),
            None => Ok(None),
        }
    }

    /// Makes the record of a group of the first version from its attributes and consolidated
    /// metadata.
    fn former(path: &Path) -> Result<Option<Self>> {
        /// The attribute of a group.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Mark {
            version: u64,
            group: String,
        }
        let place = path.join("zarr.json");
        let Some(json) = read_json(&place)? else {
            return Ok(None);
        };
        let mark = serde_json::from_value::<Mark>(json["attributes"][ATTRIBUTE].clone()).ok();
        if let Some(mark) = &mark
            && mark.version != 1
        {
            let cause = format!(
                "version {} of a group, and this reads 1 and {VERSION}",
                mark.version
            );
            return Err(Error::new(Kind::Unsupported, "opening a group", cause).at(&place));
        }
        let known = consolidated::of(&json)
            .and_then(|all| all.get(TIME)?["shape"][0].as_u64().zip(Some(all)));
        match (mark, known) {
            (Some(mark), Some((timesteps, all)))
                if all.iter().all(|(_, json)| json["shape"][0] == timesteps) =>
            {
                let names = all.keys().filter(|name| *name != TIME);
                Ok(Some(Self {
                    penstock: 1,
                    group: mark.group,
                    id: String::new(),
                    timesteps,
                    dropped_from: None,
                    time_chunk: 1,
                    arrays: names.map(|name| (name.clone(), Growth::Time)).collect(),
                    rows: BTreeMap::new(),
                    bounded: BTreeSet::new(),
                }))
            }
            // Another tool has rewritten the metadata that counted the timesteps.
            (mark, _) if mark.is_some() || former_directory(path).join("sums").is_dir() => {
                let cause = "another tool has rewritten its metadata, which told in this version of Penstock's groups \
                             what they hold: `penstock repair` finds that out from what is on disk";
                Err(damaged(&place, cause))
            }
            _ => Ok(None),
        }
    }

    /// The record as JSON.
    pub(crate) fn json(&self) -> Value {
        json!(self)
    }

    /// The extent of an array's first dimension; `None` if the array does not grow with timesteps.
    pub(crate) fn length(&self, name: &str) -> Option<u64> {
        if name == TIME {
            return Some(self.timesteps);
        }
        match self.arrays.get(name) {
            Some(Growth::Time) => Some(self.timesteps),
            Some(Growth::Rows(dimension)) => self.rows.get(dimension).copied(),
            None => {
                let mut counted = self.rows.keys().flat_map(|dimension| row_arrays(dimension));
                counted.any(|array| array == name).then_some(self.timesteps)
            }
        }
    }

    /// The names of all arrays that a timestep writes.
    pub(crate) fn names(&self) -> Vec<String> {
        let counted = self.rows.keys().flat_map(|dimension| row_arrays(dimension));
        let names = self.arrays.keys().cloned().chain(counted);
        names.chain([TIME.to_string()]).collect()
    }
}

/// The length of an array in the group at `path`, if the array grows with the group's timesteps.
///
/// # Errors
/// As [`Record::read`].
pub(crate) fn length_in(path: &Path, name: &str) -> Result<Option<u64>> {
    Ok(Record::read(path)?.and_then(|record| record.length(name)))
}

/// The nodes at `path` that are saved together.
///
/// # Errors
/// As [`Record::read`].
pub(crate) fn saved_in(path: &Path) -> Result<SavedContents> {
    if let Some(record) = Record::read(path)? {
        let mut names = record.names();
        names.push(CHECKPOINTS.to_string());
        return Ok(SavedContents::Arrays(names));
    }
    let json = read_json(&path.join("zarr.json"))?.unwrap_or_default();
    match json["attributes"][ATTRIBUTE].is_object() {
        true => Ok(SavedContents::Checkpoint),
        false => Ok(SavedContents::Nothing),
    }
}

/// Makes the directory of a record, in a form that standard tools understand. Existing files stay.
/// Gives the paths that are yet to be synced. In a bucket there is the hidden group alone, since
/// the record's array is the record.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn make_directory(group: &Path) -> Result<Vec<PathBuf>> {
    if is_url(group) {
        let place = group.join(HIDDEN).join("zarr.json");
        if !files::is_there(&place) {
            files::write_json(&place, &super::zarr::group_json())?;
        }
        return Ok(Vec::new());
    }
    let array = json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": [],
        "data_type": "uint8",
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": [] } },
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
        "fill_value": 0,
        "codecs": [{ "name": "bytes" }],
        "attributes": { "about": ABOUT },
        "dimension_names": [],
    });
    let record = directory(group);
    let nodes = [
        (group.join(HIDDEN), super::zarr::group_json()),
        (record.clone(), array),
    ];
    let mut made = vec![group.to_path_buf()];
    for (directory, _) in &nodes {
        if !directory.is_dir() {
            files::make_directory(directory)?;
        }
        made.push(directory.clone());
    }
    for (directory, json) in &nodes {
        let file = directory.join("zarr.json");
        if !file.exists() {
            // Readers look for a record in it: there is all of it, or nothing.
            files::put_json(&record.join("new-zarr.json"), json, &file)?;
        }
    }
    let sums = record.join("sums");
    if !sums.is_dir() {
        files::make_directory(&sums)?;
        made.push(sums);
    }
    Ok(made)
}
