//! What is found in a group: its contents in short, and its checkpoints.

use std::path::PathBuf;

use penstock_engine::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::group::Moment;
use crate::formats::record::{Record, VERSION};
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

impl Checkpoint {
    /// The next checkpoint of a group with this record, which has those that are `there`.
    pub(super) fn next(there: &[Self], record: &Record, moment: &Moment) -> Self {
        Self {
            version: VERSION,
            group: record.group.clone(),
            number: there.last().map_or(1, |newest| newest.number + 1),
            step: moment.step,
            time: moment.time,
            timesteps: record.timesteps,
            attributes: Map::new(),
            path: PathBuf::new(),
        }
    }

    /// The name of a checkpoint of `step` that none has. A run from which the program has restarted
    /// may have saved the same step.
    pub(super) fn free_name(step: u64, is_taken: impl Fn(&str) -> bool) -> Result<String> {
        let names = std::iter::once(step.to_string()).chain((2..).map(|n| format!("{step}-{n}")));
        let mut free = names.filter(|name| !is_taken(name));
        free.next().ok_or_else(|| {
            let cause = "there is no free name for it";
            Error::new(Kind::Full, "saving a checkpoint", cause)
        })
    }

    /// Those that go when there is one more, and `keep` are kept.
    pub(super) fn outdated(there: &[Self], keep: usize) -> &[Self] {
        let gone = (there.len() + 1).saturating_sub(keep.max(1));
        &there[..gone.min(there.len())]
    }
}
