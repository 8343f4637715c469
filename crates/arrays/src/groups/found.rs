//! What is found in a group: its contents in short, and its checkpoints.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::schema::ArraySchema;

/// Shapes of arrays, by name.
pub(crate) type Shapes = Vec<(String, Vec<u64>)>;

/// A checkpoint that is complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The version of the format.
    pub version: u64,
    /// The name of the group.
    pub group: String,
    /// The number of the checkpoint. The checkpoints of a group are numbered from 1 on: the newest
    /// has the highest number.
    pub number: u64,
    /// The program's step.
    pub step: u64,
    /// The program's time.
    pub time: Option<f64>,
    /// The number of timesteps that the group had: a restart from here drops all later ones.
    pub timesteps: u64,
    /// The attributes of the checkpoint.
    #[serde(skip)]
    pub attributes: Map<String, Value>,
    /// The directory of the checkpoint; with `{server}` in it if the group is spread over servers.
    #[serde(skip)]
    pub path: PathBuf,
}

/// The contents of a group with timesteps and checkpoints.
#[derive(Debug, Clone)]
pub struct Catalog {
    pub name: String,
    /// The attributes of the group.
    pub attributes: Map<String, Value>,
    /// The number of timesteps.
    pub timesteps: u64,
    /// The number of timesteps in a chunk.
    pub time_chunk: u64,
    /// The arrays, each at one moment; an array of rows has the rows of all timesteps.
    pub arrays: Vec<ArraySchema>,
    /// The number of rows of all timesteps together, for each dimension that rows have.
    pub rows: Vec<(String, u64)>,
    /// The checkpoints, the newest last.
    pub checkpoints: Vec<Checkpoint>,
}
