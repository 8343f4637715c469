//! Restarts from a checkpoint: the rank that directs finds the checkpoint, and all ranks read it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use penstock_engine::encoding::decode;
use penstock_engine::{Director, Error, Kind, Operation, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::array::LocalPart;
use super::ask::Ask;
use super::cursor::{Cursor, RestartPoint};
use super::desk::Desk;
use super::errand::{Direction, Errand, Saying, Topic};
use super::read::{ReadErrand, Source};
use super::save::GroupCall;
use super::session::{CallArguments, Session};
use super::settings::{Method, Report};
use crate::groups::{self, Catalog, Checkpoint};
use crate::json::as_text;

/// A checkpoint, as all ranks hear of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FoundCheckpoint {
    /// The checkpoint's entry in the catalog of its group.
    pub checkpoint: Checkpoint,
    /// The directory of the checkpoint.
    pub path: PathBuf,
    /// The attributes of the checkpoint.
    #[serde(with = "as_text")]
    pub attributes: Map<String, Value>,
    /// The shapes of its arrays, by name.
    pub shapes: Vec<(String, Vec<u64>)>,
}

impl Session {
    /// Finds the newest checkpoint of the group at `path`, or the newest of `step`; `None` if the
    /// group has none. The session goes on from this checkpoint: its next save drops all later
    /// timesteps and checkpoints.
    ///
    /// # Errors
    /// The same on all ranks: [`Kind::Schema`] when `path` is no group of Penstock,
    /// [`Kind::Missing`] when there is no checkpoint of that step.
    ///
    /// # Collective
    /// Over all clients.
    pub fn find_checkpoint(
        &self,
        path: &Path,
        step: Option<u64>,
    ) -> Result<Option<FoundCheckpoint>> {
        let ask = Ask::FindCheckpoint {
            path: path.into(),
            step,
        };
        let errand = Direction::of(FindErrand::new(path.to_path_buf(), step));
        decode(&self.call(ask, None, errand)?.answer)
    }

    /// Reads all arrays of a checkpoint, each rank its parts, and compares them with their
    /// checksums.
    ///
    /// # Errors
    /// As [`Session::read`]; [`Kind::Damaged`] when an array does not match its checksums.
    ///
    /// # Collective
    /// Over all clients.
    pub fn restart(
        &self,
        found: &FoundCheckpoint,
        group: &GroupCall,
        locals: Vec<Vec<LocalPart>>,
    ) -> Result<Report> {
        let asked = group.pairs(locals).map(|given| {
            let sources = group.arrays.iter().map(|array| Source {
                path: found.path.clone(),
                array: array.clone(),
                is_checkpoint: true,
            });
            let sources = sources.collect();
            let method = Method::disk_directed();
            CallArguments {
                ask: Ask::Restart(found.checkpoint.number, group.ask()),
                bytes: group.bytes(),
                given,
                in_time: false,
                direction: Direction::of(ReadErrand::new(sources, method)),
            }
        });
        match asked {
            Ok(asked) => self.transfer(Operation::Read, asked),
            Err(error) => Err(self.refuse(error)),
        }
    }
}

/// The errand of the search for a checkpoint.
#[derive(Serialize, Deserialize)]
pub(super) struct FindErrand {
    path: PathBuf,
    step: Option<u64>,
}

impl FindErrand {
    pub(super) fn new(path: PathBuf, step: Option<u64>) -> Self {
        Self { path, step }
    }
}

impl Errand for FindErrand {
    fn topic(&self) -> Topic {
        Topic::FindCheckpoint
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.path]
    }

    fn director(self, desk: &Arc<Desk>) -> Box<dyn Director + Send> {
        let cursor = desk.cursor(&self.path);
        Box::new(Saying::new(move || {
            let found = find(&self.path, self.step)?;
            let restarted = RestartPoint {
                checkpoint: found.as_ref().map(|found| found.checkpoint.number),
                timesteps: found.as_ref().map_or(0, |found| found.checkpoint.timesteps),
            };
            *cursor.lock().unwrap_or_else(PoisonError::into_inner) = Cursor {
                seen: None,
                restarted: Some(restarted),
            };
            Ok(found)
        }))
    }
}

/// Finds a checkpoint on disk.
fn find(path: &Path, step: Option<u64>) -> Result<Option<FoundCheckpoint>> {
    let catalog = match Catalog::read(path) {
        Err(error) if error.kind == Kind::Missing => None,
        Err(error) => return Err(error),
        Ok(Some(catalog)) => Some(catalog),
        Ok(None) => {
            let cause = "it has no timesteps of Penstock's: give another path";
            return Err(Error::new(Kind::Schema, "restarting", cause).at(path));
        }
    };
    let all = catalog.map_or(Vec::new(), |catalog| catalog.checkpoints);
    let mut of_step = all.into_iter().rev();
    let found = of_step.find(|checkpoint| step.is_none_or(|step| checkpoint.step == step));
    let Some(mut checkpoint) = found else {
        return match step {
            None => Ok(None),
            Some(step) => {
                let cause = format!("there is no checkpoint of step {step}");
                Err(Error::new(Kind::Missing, "restarting", cause).at(path))
            }
        };
    };
    Ok(Some(FoundCheckpoint {
        shapes: groups::shapes_of(&checkpoint.path)?,
        attributes: std::mem::take(&mut checkpoint.attributes),
        path: std::mem::take(&mut checkpoint.path),
        checkpoint,
    }))
}
