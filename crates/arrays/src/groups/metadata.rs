//! The metadata of a group that is written to: of the arrays that are saved, and of all nodes that
//! others have added.
//!
//! Each array's own `zarr.json` says how the array is stored; the record says how long it is. The
//! consolidated metadata in the group's `zarr.json` follow from these two.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use penstock_engine::Result;
use penstock_layout::Edges;
use serde_json::{Map, Value, json};

use super::declared::{ArrayDeclaration, Declaration};
use crate::dtype::ElementType;
use crate::formats::record::{self, ATTRIBUTE, CHECKPOINTS, Growth, Record, TIME};
use crate::formats::spread::{SPREAD, Spread, is_template};
use crate::formats::zarr::{self, Node, consolidated};
use crate::fs::files::{self, damaged, make_directory};
use crate::schema::{ArraySchema, Storage};

/// The number of timesteps whose times, or counts of rows, are in one chunk: 8 KiB.
pub(super) const TIMES: u64 = 1024;

/// The metadata of a group.
#[derive(Debug, Clone, Default)]
pub(super) struct Metadata {
    /// The metadata of the group itself.
    root: Value,
    /// The metadata of the group as they are stored, consolidated.
    stored_root: Value,
    /// The metadata of the arrays that are saved, the times and counts of rows among them.
    arrays: BTreeMap<String, Value>,
    /// The metadata of these arrays as they are stored.
    stored: BTreeMap<String, Value>,
    /// The metadata of all other nodes, by path.
    others: Map<String, Value>,
}

impl Metadata {
    /// Reads the metadata of the group at `path`.
    ///
    /// # Errors
    /// When the metadata are missing, or cannot be understood.
    pub(super) fn read(path: &Path, record: &Record) -> Result<Self> {
        let Some(node) = Node::read(path)? else {
            return Err(damaged(&path.join("zarr.json"), "it is gone"));
        };
        let mut arrays = BTreeMap::new();
        for name in record.names() {
            let Some(array) = Node::read(&path.join(&name))? else {
                return Err(damaged(&path.join(name), "this array of the group is gone"));
            };
            arrays.insert(name, array.json().clone());
        }
        let mut root = consolidated::without(node.json().clone());
        if let Some(attributes) = root["attributes"].as_object_mut() {
            attributes.remove(ATTRIBUTE); // of the first version
        }
        Ok(Self {
            root,
            stored_root: node.json().clone(),
            others: others(&node, &arrays)?,
            stored: arrays.clone(),
            arrays,
        })
    }

    /// Whether the group has a node with this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.arrays.contains_key(name) || self.others.contains_key(name)
    }

    /// The length of an array in its own metadata.
    pub(super) fn own_length(&self, name: &str) -> Option<u64> {
        self.arrays.get(name)?["shape"][0].as_u64()
    }

    /// The schema of a stored array.
    ///
    /// # Errors
    /// When the array's metadata make no sense.
    pub(super) fn schema(&self, name: &str) -> Result<ArraySchema> {
        let json = self.arrays.get(name).cloned().unwrap_or_default();
        let place = Path::new(name).join("zarr.json");
        let mut schema = zarr::Metadata::parse(json, &place)?.schema(name, Map::new());
        schema.attributes.remove(SPREAD);
        Ok(schema)
    }

    /// The form of an array's chunks, as servers need it.
    ///
    /// # Errors
    /// When the array's metadata make no sense.
    pub(super) fn chunk_form(&self, name: &str) -> Result<zarr::ChunkForm> {
        let json = self.arrays.get(name).cloned().unwrap_or_default();
        Ok(zarr::Metadata::parse(json, Path::new(name))?.chunk_form())
    }

    /// The schema of an array at one moment: without the dimension of time, if the array grows with
    /// time.
    ///
    /// # Errors
    /// When the array's chunks are not chunks of the group's timesteps.
    pub(super) fn moment(&self, record: &Record, name: &str) -> Result<ArraySchema> {
        let mut schema = self.schema(name)?;
        if let Some(Growth::Time) = record.arrays.get(name) {
            take_time(&mut schema, record.time_chunk)?;
        }
        Ok(schema)
    }

    /// Whether the stored array has the declared chunks and codecs, as far as some are declared.
    pub(super) fn is_stored_as(&self, record: &Record, array: &ArrayDeclaration) -> Result<bool> {
        let asked = zarr::array_json(&grown(array, record.time_chunk))?;
        let there = &self.arrays[&array.schema.name];
        let word = |json: &Value| {
            let codecs = json["codecs"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            crate::codec::Codec::of_zarr(codecs, &array.schema.element)
        };
        let shape = [&[0], array.schema.shape.as_slice()].concat();
        let shape = &shape[usize::from(array.is_ragged)..];
        let (grid, asked_grid) = (&there["chunk_grid"], &asked["chunk_grid"]);
        let has_chunks = array.is_natural || zarr::is_same_grid(grid, asked_grid, shape);
        Ok(has_chunks && (!array.says_codec || word(there) == word(&asked)))
    }

    /// The spread of an array over servers, if it is spread. The group was found at `place`.
    pub(super) fn spread(&self, place: &Path, name: &str) -> Result<Option<Spread>> {
        let mark = self
            .arrays
            .get(name)
            .and_then(|json| json["attributes"].get(SPREAD));
        let mut spread = Spread::of_mark(mark.cloned(), Path::new(name))?;
        if let Some(spread) = spread.as_mut().filter(|_| is_template(place)) {
            spread.move_to(place);
        }
        Ok(spread)
    }

    /// Makes the directories of arrays in the group at `path`, with metadata without rows, and the
    /// directories of times and counts of rows if they are missing. Gives the paths that are yet to
    /// be synced.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn add(
        &mut self,
        path: &Path,
        record: &Record,
        arrays: &[&ArrayDeclaration],
        spread: Option<&Spread>,
    ) -> Result<Vec<PathBuf>> {
        let mut made = vec![path.to_path_buf()];
        let mut new = Vec::new();
        for array in arrays {
            let mut json = zarr::array_json(&grown(array, record.time_chunk))?;
            if let Some(spread) = spread {
                spread.mark(&mut json)?;
            }
            new.push((array.schema.name.clone(), json));
        }
        new.push((
            TIME.to_string(),
            zarr::array_json(&of_time(TIME, ElementType::F8))?,
        ));
        for dimension in record.rows.keys() {
            for (name, about) in about_rows(dimension) {
                let mut json = zarr::array_json(&of_time(&name, ElementType::I8))?;
                json["attributes"] = about;
                new.push((name, json));
            }
        }
        for (name, mut json) in new {
            if self.arrays.contains_key(&name) {
                continue;
            }
            json["shape"][0] = record.length(&name).unwrap_or(0).into();
            let directory = path.join(&name);
            // An abandoned save may have made the directory.
            files::remove_if_there(&directory)?;
            make_directory(&directory)?;
            files::write_json(&directory.join("zarr.json"), &json)?;
            made.extend([directory.join("zarr.json"), directory]);
            self.stored.insert(name.clone(), json.clone());
            self.arrays.insert(name, json);
        }
        Ok(made)
    }

    /// Takes in the declared attributes. Other attributes that are stored stay.
    pub(super) fn declare(&mut self, declared: &Declaration) {
        merge(&mut self.root["attributes"], &declared.attributes);
        for array in &declared.arrays {
            if let Some(json) = self.arrays.get_mut(&array.schema.name) {
                merge(&mut json["attributes"], &array.schema.attributes);
            }
        }
        if let Some(json) = self.arrays.get_mut(TIME) {
            merge(&mut json["attributes"], &declared.time_attributes);
        }
    }

    /// The metadata of a saved array, with the length of the record.
    fn own(&self, record: &Record, name: &str) -> Value {
        let mut json = self.arrays.get(name).cloned().unwrap_or_default();
        json["shape"][0] = record.length(name).unwrap_or(0).into();
        json
    }

    /// The metadata of the group, consolidated, if they must change.
    pub(super) fn whole(&self, record: &Record) -> Option<Value> {
        let mut all = self.others.clone();
        for name in self.arrays.keys() {
            all.insert(name.clone(), self.own(record, name));
        }
        let whole = consolidated::with(self.root.clone(), all);
        (whole != self.stored_root).then_some(whole)
    }

    /// The metadata files of saved arrays that must change, with their new contents.
    pub(super) fn own_files(&self, path: &Path, record: &Record) -> Vec<(PathBuf, Value)> {
        let names = self.arrays.keys();
        let all = names.map(|name| (name, self.own(record, name)));
        let changed = all.filter(|(name, json)| self.stored.get(*name) != Some(json));
        changed
            .map(|(name, json)| (path.join(name).join("zarr.json"), json))
            .collect()
    }

    /// Takes in that all metadata are stored, as they are with this record.
    pub(super) fn is_stored(&mut self, record: &Record) {
        let names = self.arrays.keys();
        let stored = names.map(|name| (name.clone(), self.own(record, name)));
        self.stored = stored.collect();
    }

    /// Reads again the nodes that others may have changed. `added` and `gone` are checkpoints that
    /// will have come and gone.
    ///
    /// # Errors
    /// When a node cannot be understood.
    pub(super) fn look_again(
        &mut self,
        path: &Path,
        added: &[(String, Value)],
        gone: &[String],
    ) -> Result<()> {
        let Some(node) = Node::read(path)? else {
            return Err(damaged(&path.join("zarr.json"), "it is gone"));
        };
        let mut root = consolidated::without(node.json().clone());
        if let (Some(new), Some(own)) = (
            root["attributes"].as_object_mut(),
            self.root["attributes"].as_object(),
        ) {
            new.remove(ATTRIBUTE);
            new.extend(
                own.iter()
                    .map(|(name, value)| (name.clone(), value.clone())),
            );
        }
        self.root = root;
        self.stored_root = node.json().clone();
        self.others = others(&node, &self.arrays)?;
        for name in gone {
            let own = format!("{CHECKPOINTS}/{name}");
            let below = format!("{own}/");
            self.others
                .retain(|path, _| *path != own && !path.starts_with(&below));
        }
        for (path, json) in added {
            self.others.insert(path.clone(), json.clone());
        }
        Ok(())
    }
}

fn merge(attributes: &mut Value, given: &Map<String, Value>) {
    if !attributes.is_object() {
        *attributes = json!({});
    }
    for (name, value) in given {
        attributes[name] = value.clone();
    }
}

/// The metadata of a group's nodes besides the saved arrays, by path. For subgroups the
/// consolidated metadata are taken, as far as the nodes still exist: there may be many.
fn others(group: &Node, saved: &BTreeMap<String, Value>) -> Result<Map<String, Value>> {
    let nothing = Map::new();
    let known = consolidated::of(group.json()).unwrap_or(&nothing);
    let mut all = Map::new();
    for (name, node) in group.children_but(&|name| saved.contains_key(name))? {
        let node = node?;
        if node.is_second() {
            continue;
        }
        all.insert(name.clone(), consolidated::entry(node.json()));
        if node.kind() == zarr::Kind::Group {
            let below = format!("{name}/");
            let is_known = |path: &str| known.contains_key(path);
            all.extend(still_there(group.directory(), &below, known));
            consolidated::scan(node.directory(), &below, &is_known, &mut all)?;
        }
    }
    Ok(all)
}

/// The nodes below a subgroup that are in the consolidated metadata and still exist.
fn still_there(group: &Path, below: &str, known: &Map<String, Value>) -> Map<String, Value> {
    let mut is_there: BTreeMap<&str, bool> = BTreeMap::new();
    let nodes = known.iter().filter(|(path, _)| path.starts_with(below));
    let nodes = nodes.filter(|(path, _)| {
        // Nodes come and go with the directory that is directly in the subgroup.
        let rest = &path[below.len()..];
        let top = &path[..below.len() + rest.find('/').unwrap_or(rest.len())];
        *is_there
            .entry(top)
            .or_insert_with(|| files::is_there(&group.join(top).join("zarr.json")))
    });
    nodes
        .map(|(path, json)| (path.clone(), json.clone()))
        .collect()
}

/// The arrays that count a dimension's rows, with what their attributes say.
pub(super) fn about_rows(dimension: &str) -> [(String, Value); 2] {
    let [start, count] = record::row_arrays(dimension);
    let of_start = json!({ "long_name": format!("first index of {dimension} of the timestep") });
    let of_count = json!({
        "long_name": format!("number of {dimension} of the timestep"),
        "sample_dimension": dimension,
    });
    [(start, of_start), (count, of_count)]
}

/// The chunk with the number of a timestep, in an array of one number a timestep.
pub(super) fn number_path(group: &Path, array: &str, index: u64) -> PathBuf {
    let chunk = (index / TIMES).to_string();
    group.join(array).join("c").join(chunk)
}

/// The schema of an array with one number for each timestep.
fn of_time(name: &str, element: ElementType) -> ArraySchema {
    ArraySchema {
        dimension_names: Some(vec![TIME.to_string()]),
        ..ArraySchema::new(name, &[0], element, Storage::plain_chunks(vec![TIMES]))
    }
}

/// The schema of an array as it is stored through time, without rows yet.
pub(super) fn grown(array: &ArrayDeclaration, time_chunk: u64) -> ArraySchema {
    let mut schema = array.schema.clone();
    schema.dimension_names = Some(schema.names_of_dimensions());
    if array.is_ragged {
        schema.shape[0] = 0;
        return schema;
    }
    schema.shape.insert(0, 0);
    match &mut schema.disk {
        Storage::Chunks {
            chunk, subchunks, ..
        } => {
            chunk.insert(0, Edges::Regular(time_chunk));
            if let Some(subchunks) = subchunks {
                subchunks.insert(0, 1);
            }
        }
        Storage::Hdf5 {
            chunk: Some(chunk), ..
        } => chunk.insert(0, time_chunk),
        _ => {}
    }
    if let Some(names) = &mut schema.dimension_names {
        names.insert(0, TIME.to_string());
    }
    schema
}

/// Takes the dimension of time from the schema of an array that grows with time.
///
/// # Errors
/// When the array's chunks are not of `time_chunk` timesteps.
pub(super) fn take_time(schema: &mut ArraySchema, time_chunk: u64) -> Result<()> {
    let is_of_time = match &mut schema.disk {
        Storage::Chunks {
            chunk, subchunks, ..
        } if chunk.first() == Some(&Edges::Regular(time_chunk)) => {
            chunk.remove(0);
            if let Some(subchunks) = subchunks {
                subchunks.remove(0);
            }
            true
        }
        Storage::Hdf5 {
            chunk: Some(chunk), ..
        } if chunk.first() == Some(&time_chunk) => {
            chunk.remove(0);
            true
        }
        _ => false,
    };
    if !is_of_time {
        return Err(damaged(
            Path::new(&schema.name),
            "its chunks are not of timesteps",
        ));
    }
    schema.shape.remove(0);
    if let Some(names) = &mut schema.dimension_names {
        names.remove(0);
    }
    Ok(())
}
