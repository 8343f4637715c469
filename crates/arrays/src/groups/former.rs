//! Groups of the first version, whose consolidated metadata counted the timesteps, and groups that
//! have lost their record.
//!
//! | version | the count of timesteps | checksums |
//! |---|---|---|
//! | 1 | `zarr.json`: the attribute `penstock`, and the lengths in its consolidated metadata | `.penstock/sums/<timestep>.json` |
//! | 2 | `.penstock/record/group.json` | `.penstock/record/sums/<array>` |
//!
//! The first save to a group of the first version brings it up to the second. If another tool has
//! rewritten the `zarr.json` of a group of the first version, [`repair`] finds the timesteps from
//! the files on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crc32c::crc32c;
use penstock_bucket::is_url;
use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;
use serde_json::Value;

use super::catalog::former_sums;
use super::metadata::Metadata;
use super::store::Directory;
use super::timestep::{Rows, digests_place, time_of};
use super::{Declaration, ZarrGroup, hold, hold_by};
use crate::formats::record::{self, ATTRIBUTE, Growth, Record, TIME, VERSION};
use crate::formats::spread::of_server;
use crate::formats::sums::{self, SUM_BYTES, Sums};
use crate::formats::zarr::{Kind as NodeKind, Node, rows_of_chunk};
use crate::fs::files::{self, damaged, remove_if_there};
use crate::fs::temporary::nonce;
use crate::json;

fn sums_directory(path: &Path) -> PathBuf {
    record::former_directory(path).join("sums")
}

/// Checks that `path` is a group with a record, or a Zarr group in which a record can be made.
///
/// # Errors
/// [`Kind::Schema`].
pub(super) fn check_adoptable(path: &Path, declared: &Declaration) -> Result<()> {
    let refused = |cause: &str| Err(Error::new(Kind::Schema, "writing to a group", cause).at(path));
    if Record::read(path)?.is_some() {
        return Ok(());
    }
    match Node::read(path)? {
        Some(node) if !node.is_second() && node.kind() == NodeKind::Group => {
            if node.json()["attributes"][ATTRIBUTE].is_object() {
                return refused("it is a checkpoint: give another path");
            }
        }
        Some(_) => return refused("it is no group of Zarr format 3: give another path"),
        None => return refused("it is a directory, but not a group"),
    }
    // Empty arrays of an abandoned save may be replaced.
    for name in super::catalog::own_names(&Record::of(declared)) {
        let there = Node::read(&path.join(&name))?;
        let is_taken = there.is_some_and(|node| match node.kind() {
            NodeKind::Array => node.json()["shape"][0] != 0,
            NodeKind::Group => node.children().is_ok_and(|children| !children.is_empty()),
        });
        if is_taken {
            let cause = format!(
                "{name:?} is there, and Penstock has made no timesteps in this group: give another path"
            );
            return refused(&cause);
        }
    }
    Ok(())
}

/// The record of the group at `path`, brought up to this version; `None` if there is none. The
/// caller holds the group's lock.
///
/// # Errors
/// As [`Record::read`]; what the operating system says.
pub(super) fn bring_up(path: &Path) -> Result<Option<Record>> {
    let Some(record) = Record::read(path)? else {
        return Ok(None);
    };
    if record.penstock == VERSION {
        remove_former(path)?;
        return Ok(Some(record));
    }
    // A program of the first version may be writing to the group.
    let _lock = hold_by(path, &record::former_directory(path), "writing")?;
    let record = Record {
        penstock: VERSION,
        id: nonce(),
        ..record
    };
    write_record(path, &record)?;
    Ok(Some(record))
}

/// Writes the record of a group that has none of this version, with the checksums that are stored.
fn write_record(path: &Path, record: &Record) -> Result<()> {
    let mut made = record::make_directory(path)?;
    let metadata = Metadata::read(path, record)?;
    for name in record.arrays.keys() {
        made.extend(convert_sums(path, &metadata, record, name)?);
    }
    let times = record::sums_file(path, TIME);
    if sums_directory(path).is_dir() || !times.exists() {
        // The first version had no checksums of times.
        remove_if_there(&times)?;
        let sum = |timestep| time_of(path, timestep).map(|time| Some(crc32c(&time.to_ne_bytes())));
        let known = (0..record.timesteps).map(sum).collect::<Result<Sums>>()?;
        files::write(&times, &sums::encode(&known))?;
        made.push(times);
    }
    files::sync_paths(&made)?;
    let new = record::directory(path).join("new-record");
    files::put_json(&new, &record.json(), &record::file(path))?;
    remove_former(path)
}

/// Writes the checksums of an array's timesteps in the format of this version. Timesteps without
/// checksums are left out.
fn convert_sums(
    path: &Path,
    metadata: &Metadata,
    record: &Record,
    name: &str,
) -> Result<Vec<PathBuf>> {
    if !sums_directory(path).is_dir() {
        return Ok(Vec::new());
    }
    let objects = metadata.moment(record, name)?.disk_schema(1)?.objects();
    let mut bytes = Vec::new();
    for timestep in 0..record.timesteps {
        let rows = Rows {
            timestep,
            start: timestep,
            count: 1,
        };
        if let Ok(known) = timestep_sums(path, name, timestep, objects) {
            let place = digests_place(metadata, record, name, rows)?;
            let offset = exact::<usize>(place * SUM_BYTES);
            bytes.resize(bytes.len().max(offset), 0);
            bytes.truncate(offset);
            bytes.extend(sums::encode(&known));
        }
    }
    let place = record::sums_file(path, name);
    remove_if_there(&place)?;
    files::write(&place, &bytes)?;
    Ok(vec![place])
}

/// The checksums of a timestep of an array of the first version.
///
/// # Errors
/// [`penstock_engine::Kind::Damaged`] when the checksums are missing.
pub(super) fn timestep_sums(path: &Path, name: &str, timestep: u64, objects: u64) -> Result<Sums> {
    let file = sums_directory(path).join(format!("{timestep}.json"));
    former_sums(&file, name, objects)
}

/// Removes the files that the first version kept beside the record.
fn remove_former(path: &Path) -> Result<()> {
    if !sums_directory(path).is_dir() {
        return Ok(());
    }
    files::remove_but(&["zarr.json", "record"], &record::former_directory(path))
}

/// Repairs the record of a group that is lost, damaged or behind: finds from the files on disk how
/// long the arrays are, which arrays grow with time, and which checkpoints exist. Gives the
/// findings, a line each; none if the group was sound.
///
/// # Errors
/// [`Kind::Schema`] when `path` is no group of Penstock; [`Kind::Damaged`] when the files do not
/// tell; [`Kind::Busy`] when a job writes to the group.
pub fn repair(path: &Path) -> Result<Vec<String>> {
    if is_url(path) {
        let cause = "the next save mends a group in a bucket; what else is lost, a copy in a \
            directory may be repaired of";
        return Err(Error::new(Kind::Unsupported, "repairing", cause).at(path));
    }
    let path = files::absolute(path)?;
    let path = of_server(&path, 0);
    let node = Node::read(&path)?;
    let is_group = node.is_some_and(|node| !node.is_second() && node.kind() == NodeKind::Group);
    if !is_group || !record::former_directory(&path).is_dir() {
        let cause = "Penstock has saved no timesteps or checkpoints there";
        return Err(Error::new(Kind::Schema, "repairing", cause).at(&path));
    }
    files::sync_paths(&record::make_directory(&path)?)?;
    let lock = hold(&path, "repairing")?;
    let mut said = Vec::new();
    let known = match Record::read(&path) {
        Ok(Some(record)) => Some(record),
        Ok(None) => None,
        Err(error) if error.kind == Kind::Damaged => None,
        Err(error) => return Err(error),
    };
    let found = match &known {
        Some(record) => longer(&path, record)?,
        None => from_arrays(&path)?,
    };
    if known.as_ref() != Some(&found) {
        said.push(format!(
            "{} timesteps of {}",
            found.timesteps,
            found.arrays.keys().cloned().collect::<Vec<_>>().join(", ")
        ));
        write_record(&path, &found)?;
    }
    if found.bounded.is_empty() {
        // Nothing says which timesteps they are of.
        remove_if_there(&record::bounds_directory(&path))?;
    }
    let mut group = ZarrGroup {
        metadata: Metadata::read(&path, &found)?,
        record: found,
        path: path.clone(),
        template: None,
        begun: None,
        store: Box::new(Directory::new(&path, Some(lock))),
    };
    let before = files::read_if_there(&path.join("zarr.json"))?;
    group.store.remove_leftovers(&group.record.names())?;
    group.write_metadata(Vec::new())?;
    if before != files::read_if_there(&path.join("zarr.json"))? {
        said.push("consolidated metadata are those of what is there".to_string());
    }
    Ok(said)
}

/// A record that counts the timesteps that another program has added to all arrays alike.
fn longer(path: &Path, record: &Record) -> Result<Record> {
    let metadata = Metadata::read(path, record)?;
    let lengths = record.names().into_iter().filter_map(|name| {
        let grows_with_time = !matches!(record.arrays.get(&name), Some(Growth::Rows(_)));
        let length = metadata.own_length(&name)?;
        grows_with_time.then_some((name, length))
    });
    let lengths: Vec<(String, u64)> = lengths.collect();
    let most = lengths.iter().map(|(_, length)| *length).max().unwrap_or(0);
    if most <= record.timesteps || record.dropped_from.is_some() {
        return Ok(Record {
            penstock: VERSION,
            ..record.clone()
        });
    }
    if let Some((name, length)) = lengths.iter().find(|(_, length)| *length < most) {
        let cause = format!(
            "another program has made the arrays {most} timesteps long, but {name:?} is {length} long: bring all to one \
             length first"
        );
        return Err(Error::new(Kind::Schema, "repairing", cause).at(path));
    }
    if !record.rows.is_empty() {
        let cause = "another program has added timesteps to arrays whose rows are counted: their counts must be written \
                     by it, too";
        return Err(Error::new(Kind::Unsupported, "repairing", cause).at(path));
    }
    Ok(Record {
        penstock: VERSION,
        timesteps: most,
        bounded: BTreeSet::new(),
        ..record.clone()
    })
}

/// A record made from the arrays' own metadata.
fn from_arrays(path: &Path) -> Result<Record> {
    let names = names_with_sums(path)?;
    if names.is_empty() {
        let cause = "no checksums tell which arrays Penstock has saved";
        return Err(damaged(&record::former_directory(path), cause));
    }
    let mut timesteps = Vec::new();
    let mut time_chunk = 1;
    let mut arrays = BTreeMap::new();
    let mut rows = BTreeMap::new();
    for name in names {
        let Some(node) = Node::read(&path.join(&name))? else {
            continue; // it was removed
        };
        let json = node.json();
        let length = json["shape"][0].as_u64().unwrap_or(0);
        let dimension = json["dimension_names"][0]
            .as_str()
            .unwrap_or(TIME)
            .to_string();
        if dimension == TIME {
            timesteps.push(length);
            let rows = rows_of_chunk(&json["chunk_grid"], length);
            time_chunk = rows.unwrap_or(1).max(1);
            arrays.insert(name, Growth::Time);
        } else {
            rows.insert(dimension.clone(), length);
            arrays.insert(name, Growth::Rows(dimension));
        }
    }
    // Times and counts have checksums, too.
    let counts = rows
        .keys()
        .flat_map(|dimension| record::row_arrays(dimension));
    for name in counts.chain([TIME.to_string()]).collect::<Vec<_>>() {
        arrays.remove(&name);
    }
    let own = Node::read(&path.join(TIME))?;
    let own = own.and_then(|node| node.json()["shape"][0].as_u64());
    let timesteps = timesteps.into_iter().chain(own).max().unwrap_or(0);
    // A timestep without a time does not count.
    if let Some(last) = timesteps.checked_sub(1) {
        time_of(path, last)?;
    }
    Ok(Record {
        penstock: VERSION,
        group: name_of(path),
        id: nonce(),
        timesteps,
        dropped_from: None,
        time_chunk,
        arrays,
        rows,
        bounded: BTreeSet::new(),
    })
}

/// The names of arrays that have checksums.
fn names_with_sums(path: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let current = record::directory(path).join("sums");
    if current.is_dir() {
        let there = files::entries(&current)?.into_iter();
        names.extend(there.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    }
    let former = sums_directory(path);
    if former.is_dir() {
        for entry in files::entries(&former)? {
            let text = files::read_if_there(&entry.path())?.unwrap_or_default();
            if let Ok(Value::Object(sums)) = json::parse(&text) {
                names.extend(sums.keys().cloned());
                break; // all are of the same arrays
            }
        }
    }
    Ok(names)
}

/// The group's name, if its metadata or a checkpoint still have it.
fn name_of(path: &Path) -> String {
    let of_node = |path: &Path| {
        let node = Node::read(path).ok().flatten()?;
        let about = &node.json()["attributes"][ATTRIBUTE]["group"];
        about.as_str().map(str::to_string)
    };
    let checkpoints = Node::read(&record::checkpoints(path)).ok().flatten();
    let children = checkpoints.and_then(|node| node.children().ok());
    let mut children = children.into_iter().flatten();
    of_node(path)
        .or_else(|| children.find_map(|(_, node)| of_node(node.ok()?.directory())))
        .unwrap_or_default()
}
