//! Describes the contents of a path: a group with timesteps and checkpoints, any other Zarr
//! hierarchy, or an array of any form.

use std::collections::BTreeMap;
use std::path::Path;

use penstock_bucket::is_url;
use penstock_engine::{Error, Kind, Result};
use penstock_hdf5::Member;
use serde_json::{Map, Value, json};

use super::found::{Catalog, Checkpoint, Shapes};
use super::in_file;
use super::metadata::Metadata;
use super::objects::{checkpoint_sums_object, read_sums};
use crate::formats::hdf5;
use crate::formats::record::{self, ATTRIBUTE, CHECKPOINTS, Growth, Record};
use crate::formats::spread::{Spread, of_server};
use crate::formats::sums::{self, Sums};
use crate::formats::zarr::{self, Node};
use crate::fs::files::{self, damaged, read_json};
use crate::read::StoredArray;
use crate::schema::ArraySchema;

/// Opens an array, as [`StoredArray::open`] does. The length of an array that is saved with a group
/// comes from the record, also after a crash has left the array's own metadata behind.
///
/// # Errors
/// As [`StoredArray::open`].
pub fn open(path: &Path, name: Option<&str>) -> Result<StoredArray> {
    StoredArray::open_with(path, name, &record::length_in)
}

/// The schema of an array on disk.
///
/// # Errors
/// As [`open`].
pub fn open_schema(path: &Path, name: Option<&str>) -> Result<ArraySchema> {
    Ok(open(path, name)?.schema().clone())
}

impl Catalog {
    /// Reads the catalog of the group at `path`; `None` if it is no group with timesteps.
    ///
    /// # Errors
    /// [`Kind::Missing`] when nothing is at `path`, [`Kind::Damaged`] when the group cannot be
    /// understood.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let path = files::absolute(path)?;
        let first = of_server(&path, 0);
        if !is_url(&first) && !first.exists() {
            let cause = "nothing is there";
            return Err(Error::new(Kind::Missing, "opening a group", cause).at(&first));
        }
        if !is_url(&first)
            && let Some(catalog) = in_file::catalog(&first)?
        {
            return Ok(Some(catalog));
        }
        let Some(record) = Record::read(&first)? else {
            return Ok(None);
        };
        let metadata = Metadata::read(&first, &record)?;
        let node = Node::read(&first)?;
        let mut attributes = node.map_or(Ok(Map::new()), |node| node.attributes())?;
        attributes.remove(ATTRIBUTE);
        let arrays = record.arrays.keys().map(|name| {
            let mut schema = metadata.moment(&record, name)?;
            if let Some(Growth::Rows(_)) = record.arrays.get(name) {
                schema.shape[0] = record.length(name).unwrap_or(0);
            }
            Ok(schema)
        });
        Ok(Some(Self {
            attributes,
            timesteps: record.timesteps,
            time_chunk: record.time_chunk,
            arrays: arrays.collect::<Result<_>>()?,
            rows: record.rows.clone().into_iter().collect(),
            checkpoints: all_checkpoints(&path)?,
            name: record.group,
        }))
    }
}

/// A node that was found at a path.
#[derive(Debug)]
pub struct Entry {
    /// The path of the node, relative to the path that was listed; empty for the node at that path
    /// itself.
    pub path: String,
    /// The contents of the node.
    pub contents: Contents,
}

/// The contents of a node.
#[derive(Debug)]
pub enum Contents {
    Array(Box<ArraySchema>),
    /// A group, with its attributes.
    Group(Map<String, Value>),
    /// An unreadable node, with the reason.
    Unreadable(Error),
}

/// Lists the contents of `path`: an array of any form, or a Zarr node or an HDF5 file with all of
/// its nodes. The record of Penstock is left out.
///
/// # Errors
/// [`Kind::Missing`] when nothing is at `path`; the error of the operating system. Unreadable nodes
/// are in the list.
pub fn list(path: &Path) -> Result<Vec<Entry>> {
    let path = files::absolute(path)?;
    if !is_url(&path)
        && let Some(entries) = list_datasets(&path)?
    {
        return Ok(entries);
    }
    let first = of_server(&path, 0);
    let node = match Node::find(&first) {
        Ok(node) => node,
        Err(error) => {
            return Ok(vec![Entry {
                path: String::new(),
                contents: Contents::Unreadable(error),
            }]);
        }
    };
    let mut entries = Vec::new();
    match node {
        Some(node) if node.kind() == zarr::Kind::Group => {
            list_group(&path, &node, String::new(), &mut entries)?;
        }
        Some(_) => entries.push(array_entry(String::new(), open_schema(&path, None))),
        None => entries.push(array_entry(String::new(), Ok(open_schema(&path, None)?))),
    }
    Ok(entries)
}

/// Describes the contents of `path` for programs: arrays, groups and unreadable nodes by their
/// paths; for a group of Penstock also its timesteps and checkpoints.
///
/// ```text
/// {"arrays": [{"path": "u", "name": "u", "shape": [3, 4], "element": "f8", "disk": {...}, ...}],
///  "groups": [{"path": "", "attributes": {...}}],
///  "unreadable": [{"path": "s", "kind": "Unsupported", "cause": "..."}],
///  "group": {"name": "sim", "timesteps": 3, "time_chunk": 1, "arrays": ["u"], "rows": {},
///            "checkpoints": [...]}}
/// ```
///
/// # Errors
/// As [`list`].
pub fn describe(path: &Path) -> Result<Value> {
    let (mut arrays, mut groups, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    for Entry { path, contents } in list(path)? {
        match contents {
            Contents::Array(schema) => {
                let mut about = json!(schema);
                about["path"] = path.into();
                about["bytes"] = schema.bytes().into();
                arrays.push(about);
            }
            Contents::Group(attributes) => {
                groups.push(json!({ "path": path, "attributes": attributes }));
            }
            Contents::Unreadable(error) => unreadable.push(json!({
                "path": path,
                "kind": format!("{:?}", error.kind),
                "cause": error.cause,
            })),
        }
    }
    // The list says why the group cannot be read.
    let catalog = Catalog::read(path).unwrap_or(None);
    let group = catalog.map(|catalog| {
        let arrays = catalog.arrays.iter().map(|array| array.name.as_str());
        let checkpoints = catalog.checkpoints.iter().map(|checkpoint| {
            let mut about = json!(checkpoint);
            let name = checkpoint.path.file_name().unwrap_or_default();
            about["name"] = name.to_string_lossy().into();
            about["attributes"] = checkpoint.attributes.clone().into();
            about
        });
        json!({
            "name": catalog.name,
            "timesteps": catalog.timesteps,
            "time_chunk": catalog.time_chunk,
            "arrays": arrays.collect::<Vec<_>>(),
            "rows": catalog.rows.iter().cloned().collect::<BTreeMap<_, _>>(),
            "checkpoints": checkpoints.collect::<Vec<_>>(),
        })
    });
    Ok(json!({ "arrays": arrays, "groups": groups, "unreadable": unreadable, "group": group }))
}

/// Lists the groups and datasets of an HDF5 file, or of a group of one; `None` if the path is
/// neither.
fn list_datasets(path: &Path) -> Result<Option<Vec<Entry>>> {
    let named = hdf5::name::split(path);
    let (file, above) = named.unwrap_or_else(|| (path.to_path_buf(), String::new()));
    if !hdf5::describe::is_hdf5_file(&file) {
        return Ok(None);
    }
    let opened = hdf5::describe::open(&file)?;
    if !above.is_empty() && opened.dataset(&above)?.is_some() {
        return Ok(None);
    }
    let group = |path: &str| -> Result<Entry> {
        let attributes = opened.attributes(&format!("{above}{path}"))?;
        let mut attributes = hdf5::attributes::to_json(attributes, opened.is_netcdf());
        if above.is_empty() && path.is_empty() {
            attributes.remove(ATTRIBUTE);
        }
        Ok(Entry {
            path: path.trim_start_matches('/').to_string(),
            contents: Contents::Group(attributes),
        })
    };
    let first = match group("") {
        Err(_) if !above.is_empty() => return Ok(None), // no group is there
        first => first?,
    };
    let mut entries = vec![first];
    for (place, member) in opened.members(&above)? {
        let path = &place[above.len()..];
        match member {
            Member::Group => entries.push(group(path)?),
            Member::Dataset => {
                let described = hdf5::describe::describe(&opened, &file, &place);
                let schema = described.map(|(schema, _)| schema);
                let path = path.trim_start_matches('/').to_string();
                entries.push(array_entry(path, schema));
            }
            Member::Dimension | Member::Type | Member::Link => {} // no array, and no group
        }
    }
    Ok(Some(entries))
}

fn array_entry(path: String, schema: Result<ArraySchema>) -> Entry {
    let contents = match schema {
        Ok(schema) => Contents::Array(Box::new(schema)),
        Err(error) => Contents::Unreadable(error),
    };
    Entry { path, contents }
}

fn list_group(place: &Path, group: &Node, path: String, entries: &mut Vec<Entry>) -> Result<()> {
    let mut attributes = group.attributes()?;
    attributes.remove(ATTRIBUTE);
    let prefix = match path.as_str() {
        "" => String::new(),
        path => format!("{path}/"),
    };
    entries.push(Entry {
        path,
        contents: Contents::Group(attributes),
    });
    for (name, node) in group.children()? {
        let path = format!("{prefix}{name}");
        match node {
            Err(error) => entries.push(Entry {
                path,
                contents: Contents::Unreadable(error),
            }),
            Ok(node) if node.kind() == zarr::Kind::Group => {
                list_group(&place.join(&name), &node, path, entries)?;
            }
            Ok(_) => entries.push(array_entry(path, open_schema(place, Some(&name)))),
        }
    }
    Ok(())
}

/// All checkpoints of the group at `path`, which may contain `{server}`, the newest last.
pub(super) fn all_checkpoints(path: &Path) -> Result<Vec<Checkpoint>> {
    let directory = record::checkpoints(&of_server(path, 0));
    let mut all = Vec::new();
    for name in files::directories_in(&directory)? {
        // A checkpoint may be removed while it is read.
        let Some(json) = read_json(&directory.join(&name).join("zarr.json"))? else {
            continue;
        };
        let mut attributes = json["attributes"].as_object().cloned().unwrap_or_default();
        let about = attributes.remove(ATTRIBUTE).unwrap_or_default();
        let Ok(checkpoint) = serde_json::from_value::<Checkpoint>(about) else {
            continue; // what others have put there
        };
        all.push(Checkpoint {
            path: record::checkpoints(path).join(name),
            attributes,
            ..checkpoint
        });
    }
    all.sort_by_key(|checkpoint| checkpoint.number);
    Ok(all)
}

/// The spreads of an array in the timesteps and in each checkpoint; none if the group is in one
/// place.
pub(super) fn spreads(place: &Path, metadata: &Metadata, name: &str) -> Result<Vec<Spread>> {
    let mut all: Vec<Spread> = metadata.spread(place, name)?.into_iter().collect();
    for checkpoint in all_checkpoints(place)? {
        let stored = StoredArray::open(&checkpoint.path, Some(name))?;
        all.extend(stored.target().spread().map(|of| of.spread.clone()));
    }
    Ok(all)
}

/// The checksums of an array of a checkpoint, which has `objects` objects; `None` if the checkpoint
/// is a file, which has none.
///
/// # Errors
/// [`Kind::Damaged`] when the checksums are missing.
pub(crate) fn checkpoint_sums(checkpoint: &Path, name: &str, objects: u64) -> Result<Option<Sums>> {
    let checkpoint = of_server(checkpoint, 0);
    if hdf5::describe::is_hdf5_file(&checkpoint) {
        return Ok(None);
    }
    // A checkpoint may have been copied from a bucket to a directory, or back.
    if let Some(known) = read_sums(&checkpoint_sums_object(&checkpoint), name, objects)? {
        return Ok(Some(known));
    }
    let former = checkpoint.join(".penstock").join("sums.json");
    let sums = match former.exists() {
        true => former_sums(&former, name, objects),
        false => sums::read(&record::checkpoint_sums_file(&checkpoint, name), objects),
    };
    sums.map(Some)
}

/// The shapes of the arrays of a checkpoint, by name.
///
/// # Errors
/// As [`list`].
pub(crate) fn shapes_of(checkpoint: &Path) -> Result<Shapes> {
    if let Some(shapes) = in_file::shapes_in(checkpoint)? {
        return Ok(shapes);
    }
    let arrays = list(checkpoint)?.into_iter();
    let shapes = arrays.filter_map(|entry| match entry.contents {
        Contents::Array(schema) => Some((entry.path, schema.shape)),
        _ => None,
    });
    Ok(shapes.collect())
}

/// The checksums of an array in a file of the first version, which holds the checksums of all
/// arrays of a moment.
pub(super) fn former_sums(file: &Path, name: &str, objects: u64) -> Result<Sums> {
    let text = files::read_if_there(file)?;
    let text = text.ok_or_else(|| damaged(file, "the checksums are missing"))?;
    let mut all =
        crate::json::parse(&text).map_err(|e| damaged(file, format!("no checksums: {e}")))?;
    let known: Sums = serde_json::from_value(all[name].take())
        .map_err(|e| damaged(file, format!("no checksums: {e}")))?;
    if known.len() as u64 == objects {
        return Ok(known);
    }
    let cause = format!(
        "{} checksums for the {objects} chunks of {name:?}",
        known.len()
    );
    Err(damaged(file, cause))
}

/// The names of a group's own nodes.
pub(super) fn own_names(record: &Record) -> Vec<String> {
    let mut names = record.names();
    names.push(CHECKPOINTS.to_string());
    names
}
