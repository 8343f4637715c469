//! What a group says of itself: its `zarr.json`, in which the metadata of all its arrays stand together.

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Declared, VERSION, checkpoints};
use crate::dtype::ElementType;
use crate::schema::{ArraySchema, Disk};
use crate::store::file::{damaged, read_if_there};
use crate::store::pending::{make_directory, node, write_json};
use crate::store::spread::{Spread, is_template, of_server};
use crate::store::stored::{SPREAD, spread_of};
use crate::store::zarr::{self, Metadata};

/// Timesteps whose times stand in one chunk of the coordinate: 8 KiB.
pub(super) const TIMES: u64 = 1024;

/// A group's `zarr.json`, understood.
#[derive(Debug, Clone)]
pub(super) struct Document {
    json: Value,
    /// Names of the arrays, the coordinate apart.
    names: Vec<String>,
}

/// An attribute that says that a group is Penstock's.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mark {
    version: u64,
    group: String,
}

impl Document {
    /// Of a group without timesteps, whose arrays are spread over servers or not.
    pub(super) fn new(declared: &Declared, spread: Option<&Spread>) -> Result<Self> {
        let mut metadata = Map::new();
        let times = ArraySchema {
            dimension_names: Some(vec!["time".to_string()]),
            ..ArraySchema::new(
                "time",
                &[0],
                ElementType::F8,
                Disk::plain_chunks(vec![TIMES]),
            )
        };
        metadata.insert("time".to_string(), zarr::array_json(&times)?);
        for array in &declared.arrays {
            array.disk_schema(1)?;
            let mut json = zarr::array_json(&through_time(array, 0))?;
            if let Some(spread) = spread {
                spread.mark(&mut json)?;
            }
            metadata.insert(array.name.clone(), json);
        }
        let mut attributes = declared.attributes.clone();
        let mark = Mark {
            version: VERSION,
            group: declared.name.clone(),
        };
        attributes.insert("penstock".to_string(), json!(mark));
        Self::of(group_json(attributes, metadata), Path::new(&declared.name))
    }

    /// Of the group at `path`.
    ///
    /// # Errors
    /// [`Kind::Missing`] when nothing is there, [`Kind::Schema`] when it is not a group of Penstock's,
    /// [`Kind::Damaged`] when it is and cannot be understood.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let file = path.join("zarr.json");
        let Some(bytes) = read_if_there(&file)? else {
            let cause = match path.exists() {
                true => "it is not a group: it has no zarr.json",
                false => "nothing is there",
            };
            return Err(Error::new(Kind::Missing, "opening a group", cause).at(path));
        };
        let json: Value = serde_json::from_slice(&bytes)
            .map_err(|e| damaged(&file, format!("it is not JSON: {e}")))?;
        Self::of(json, &file)
    }

    fn of(json: Value, file: &Path) -> Result<Self> {
        let Ok(mark) = serde_json::from_value::<Mark>(json["attributes"]["penstock"].clone())
        else {
            let cause = "it has no timesteps of Penstock's: give another path";
            return Err(Error::new(Kind::Schema, "opening a group", cause).at(file));
        };
        if mark.version != VERSION {
            let cause = format!(
                "version {} of a group, and this reads {VERSION}",
                mark.version
            );
            return Err(Error::new(Kind::Unsupported, "opening a group", cause).at(file));
        }
        let metadata = json["consolidated_metadata"]["metadata"].as_object();
        let metadata =
            metadata.ok_or_else(|| damaged(file, "its consolidated metadata are gone"))?;
        let names: Vec<String> = metadata.keys().filter(|k| *k != "time").cloned().collect();
        let document = Self {
            names,
            json: json.clone(),
        };
        let is_whole = document.names.iter().all(|name| {
            let shape = document.array(name)["shape"].as_array();
            shape.is_some_and(|shape| shape.first() == Some(&json!(document.timesteps())))
        });
        match is_whole && document.array("time")["shape"][0].is_u64() {
            true => Ok(document),
            false => Err(damaged(
                file,
                "its arrays have different numbers of timesteps",
            )),
        }
    }

    pub(super) fn json(&self) -> &Value {
        &self.json
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    pub(super) fn group_name(&self) -> &str {
        self.json["attributes"]["penstock"]["group"]
            .as_str()
            .unwrap_or_default()
    }

    /// What the user says about the group.
    fn attributes(&self) -> Map<String, Value> {
        let all = self.json["attributes"].as_object().into_iter().flatten();
        let of_user = all.filter(|(name, _)| *name != "penstock");
        of_user
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    pub(super) fn timesteps(&self) -> u64 {
        self.array("time")["shape"][0].as_u64().unwrap_or(0)
    }

    /// The metadata of an array, as they are to stand in its own `zarr.json`.
    pub(super) fn array(&self, name: &str) -> &Value {
        &self.json["consolidated_metadata"]["metadata"][name]
    }

    /// The same with another number of timesteps.
    pub(super) fn with_timesteps(&self, timesteps: u64) -> Self {
        let mut next = self.clone();
        let metadata = &mut next.json["consolidated_metadata"]["metadata"];
        for array in metadata
            .as_object_mut()
            .into_iter()
            .flat_map(Map::values_mut)
        {
            array["shape"][0] = json!(timesteps);
        }
        next
    }

    /// The metadata of an array, understood.
    pub(super) fn metadata(&self, name: &str) -> Result<Metadata> {
        Metadata::parse(self.array(name).clone(), Path::new(name))
    }

    /// How an array of the group, which was found at `place`, is spread over servers, if it is.
    pub(super) fn spread(&self, place: &Path, name: &str) -> Result<Option<Spread>> {
        let mark = self.array(name)["attributes"].get(SPREAD);
        let mut spread = spread_of(mark.cloned(), Path::new(name))?;
        if let Some(spread) = spread.as_mut().filter(|_| is_template(place)) {
            spread.move_to(place);
        }
        Ok(spread)
    }

    /// An array at one moment: without its first dimension.
    pub(super) fn moment(&self, name: &str) -> Result<ArraySchema> {
        let mut schema = self.metadata(name)?.schema(name, Map::new());
        schema.attributes.remove(SPREAD);
        let wrong = || damaged(Path::new(name), "its chunks are not of one timestep each");
        let Disk::Chunks {
            chunk, subchunks, ..
        } = &mut schema.disk
        else {
            return Err(wrong());
        };
        let firsts = [Some(&mut schema.shape), Some(chunk), subchunks.as_mut()];
        for (place, extents) in firsts.into_iter().flatten().enumerate() {
            if extents.is_empty() || (place > 0 && extents[0] != 1) {
                return Err(wrong());
            }
            extents.remove(0);
        }
        if let Some(names) = &mut schema.dimension_names {
            names.remove(0);
        }
        Ok(schema)
    }

    /// Whether an array of that name has these chunks and codecs.
    pub(super) fn is_stored_as(&self, array: &ArraySchema) -> Result<bool> {
        let asked = zarr::array_json(&through_time(array, 0))?;
        let there = self.array(&array.name);
        Ok(["chunk_grid", "codecs"]
            .iter()
            .all(|key| there[key] == asked[key]))
    }

    /// Makes the directories of all arrays in `group`, with their metadata. Gives what is yet to be synced.
    pub(super) fn write_arrays(&self, group: &Path) -> Result<Vec<PathBuf>> {
        let mut made = Vec::new();
        for name in self.names.iter().map(String::as_str).chain(["time"]) {
            let directory = group.join(name);
            make_directory(&directory)?;
            write_json(&directory.join("zarr.json"), self.array(name))?;
            made.extend(node(&directory));
        }
        Ok(made)
    }
}

/// A Zarr group's metadata, with those of its arrays.
pub(super) fn group_json(attributes: Map<String, Value>, metadata: Map<String, Value>) -> Value {
    let mut json = zarr::group_json();
    json["attributes"] = Value::Object(attributes);
    json["consolidated_metadata"] = json!({
        "kind": "inline", "must_understand": false, "metadata": metadata,
    });
    json
}

/// An array with the dimension of time before its own.
fn through_time(array: &ArraySchema, timesteps: u64) -> ArraySchema {
    let mut schema = array.clone();
    schema.shape.insert(0, timesteps);
    if let Disk::Chunks {
        chunk, subchunks, ..
    } = &mut schema.disk
    {
        chunk.insert(0, 1);
        if let Some(subchunks) = subchunks {
            subchunks.insert(0, 1);
        }
    }
    let mut names = dimension_names(array);
    names.insert(0, "time".to_string());
    schema.dimension_names = Some(names);
    schema
}

/// xarray wants a name for each dimension, and one name to have one extent.
pub(super) fn dimension_names(array: &ArraySchema) -> Vec<String> {
    let own = |d| format!("{}_{d}", array.name);
    let named = || (0..array.shape.len()).map(own).collect();
    array.dimension_names.clone().unwrap_or_else(named)
}

/// A checkpoint that is complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Of what is stored.
    pub version: u64,
    /// The group's name.
    pub group: String,
    /// The how manyth checkpoint of the group it is, from 1 on: the newest has the highest.
    pub number: u64,
    /// The program's step.
    pub step: u64,
    /// The program's time.
    pub time: Option<f64>,
    /// How many timesteps the group had: those after them are of a future that is no more, should the
    /// program go on from here.
    pub timesteps: u64,
    /// Its directory; of a group that is spread over servers, with `{server}` in it.
    #[serde(skip)]
    pub path: PathBuf,
}

/// What a group holds, for those who look at it.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// Its name.
    pub name: String,
    /// What the user says about it.
    pub attributes: Map<String, Value>,
    /// Number of timesteps.
    pub timesteps: u64,
    /// Its arrays, each at one moment.
    pub arrays: Vec<ArraySchema>,
    /// Its checkpoints, the newest last.
    pub checkpoints: Vec<Checkpoint>,
}

impl Catalog {
    /// What the group at `path` holds.
    ///
    /// # Errors
    /// [`Kind::Missing`] when nothing is there, [`Kind::Schema`] when it is not a group of Penstock's,
    /// [`Kind::Damaged`] when it cannot be understood.
    pub fn read(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path).map_err(|e| Error::io(&e, "looking for", path))?;
        let document = Document::read(&of_server(&path, 0))?;
        let arrays = document.names().iter().map(|name| document.moment(name));
        Ok(Self {
            name: document.group_name().to_string(),
            attributes: document.attributes(),
            timesteps: document.timesteps(),
            arrays: arrays.collect::<Result<_>>()?,
            checkpoints: all_checkpoints(&path)?,
        })
    }
}

/// All checkpoints of the group at `path`, which may be one a server, the newest last.
pub(super) fn all_checkpoints(path: &Path) -> Result<Vec<Checkpoint>> {
    let directory = checkpoints(&of_server(path, 0));
    let looking = |e: std::io::Error| Error::io(&e, "looking into", &directory);
    let mut all = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(looking)? {
        let entry = entry.map_err(looking)?.path();
        let name = entry.file_name().unwrap_or_default();
        if !entry.is_dir() {
            continue;
        }
        let file = entry.join("zarr.json");
        // It may be removed while it is looked at.
        let Some(bytes) = read_if_there(&file)? else {
            continue;
        };
        let json: Value = serde_json::from_slice(&bytes)
            .map_err(|e| damaged(&file, format!("it is not JSON: {e}")))?;
        let about = json["attributes"]["penstock"].clone();
        let checkpoint: Checkpoint = serde_json::from_value(about)
            .map_err(|e| damaged(&file, format!("it is not a checkpoint: {e}")))?;
        all.push(Checkpoint {
            path: checkpoints(path).join(name),
            ..checkpoint
        });
    }
    all.sort_by_key(|checkpoint| checkpoint.number);
    Ok(all)
}

/// The checksums of a checkpoint.
pub(super) fn sums_of(checkpoint: &Path) -> PathBuf {
    super::private(&of_server(checkpoint, 0)).join("sums.json")
}

impl Checkpoint {
    /// Where its checksums stand.
    pub fn sums(&self) -> PathBuf {
        sums_of(&self.path)
    }
}
