//! A session's calls on groups.

use std::path::Path;
use std::sync::PoisonError;

use penstock_engine::{Error, Kind, Operation, Result};

use super::{Asked, Report, Session};
use crate::call::Local;
use crate::directors::{By, ReadDirector, Source};
use crate::groups::{Cursor, FindDirector, GroupCall, Restarted, Save, SaveDirector, SharedCursor};
use crate::store::group::Checkpoint;

impl Session {
    /// Saves all arrays of a group as one timestep or checkpoint, each rank its parts, in the order of the
    /// group's arrays. Disk-directed, whatever the session's strategy.
    ///
    /// # Errors
    /// The same on all ranks: as [`Session::write`]; [`Kind::Schema`] when the group there is of other arrays,
    /// or when the time is not after the last; [`Kind::Busy`] when another job writes to it. The group is
    /// then as it was.
    ///
    /// # Collective
    /// Over all clients.
    pub fn save(&self, given: Result<(GroupCall, Vec<Local>)>, save: Save) -> Result<Report> {
        let asked = given.and_then(|(group, locals)| {
            let what = match save {
                Save::Timestep(time) => format!("a timestep at {time:?}"),
                Save::Checkpoint(step, time) => format!("a checkpoint of {step:?} at {time:?}"),
            };
            for array in &group.arrays {
                self.check_outstanding(Operation::Write, &group.path, array)?;
            }
            let cursor = self.cursor(&group.path);
            Ok(Asked {
                words: format!("{what} of {group}"),
                bytes: group.arrays.iter().map(|array| array.bytes()).sum(),
                given: pairs(&group, locals)?,
                director: Some(Box::new(SaveDirector::new(
                    group,
                    save,
                    &self.setting,
                    &cursor,
                ))),
            })
        });
        self.move_all(Operation::Write, asked)
    }

    /// The newest checkpoint of the group at `path`, or the newest of a step; `None` where there is none. The
    /// session goes on from there: its next save drops the timesteps and checkpoints that came after it.
    ///
    /// # Errors
    /// The same on all ranks: [`Kind::Schema`] when something else stands there, [`Kind::Missing`] when there
    /// is no checkpoint of that step.
    ///
    /// # Collective
    /// Over all clients.
    pub fn find_checkpoint(&self, path: &Path, step: Option<u64>) -> Result<Option<Checkpoint>> {
        let words = format!("a restart from {step:?} of {}", path.display());
        let director = FindDirector {
            path: path.to_path_buf(),
            step,
        };
        let note = self.meet_with(&words, Box::new(director))?;
        let found = match note.as_str() {
            "" => None,
            note => {
                let (place, found): (String, Checkpoint) = serde_json::from_str(note)
                    .map_err(|e| Error::new(Kind::Io, "reading of a checkpoint", e))?;
                Some(Checkpoint {
                    path: place.into(),
                    ..found
                })
            }
        };
        let cursor = self.cursor(path);
        *cursor.lock().unwrap_or_else(PoisonError::into_inner) = Cursor {
            timesteps: Some(found.as_ref().map_or(0, |found| found.timesteps)),
            restarted: Some(Restarted {
                checkpoint: found.as_ref().map(|found| found.number),
            }),
        };
        Ok(found)
    }

    /// Reads all arrays of a checkpoint of a group, each rank its parts, and compares them with their
    /// checksums.
    ///
    /// # Errors
    /// As [`Session::read`]; [`Kind::Damaged`] when it is not what was written.
    ///
    /// # Collective
    /// Over all clients.
    pub fn restart(
        &self,
        checkpoint: &Checkpoint,
        given: Result<(GroupCall, Vec<Local>)>,
    ) -> Result<Report> {
        let asked = given.and_then(|(group, locals)| {
            let given = pairs(&group, locals)?;
            let sources = group.arrays.iter().map(|array| Source {
                path: checkpoint.path.clone(),
                array: array.clone(),
                sums: Some(checkpoint.sums()),
            });
            let by = By::servers();
            Ok(Asked {
                words: format!("checkpoint {} of {group}", checkpoint.number),
                bytes: group.arrays.iter().map(|array| array.bytes()).sum(),
                given,
                director: Some(Box::new(ReadDirector::new(
                    sources.collect(),
                    &self.setting,
                    by,
                ))),
            })
        });
        self.move_all(Operation::Read, asked)
    }

    fn cursor(&self, path: &Path) -> SharedCursor {
        let mut cursors = self.cursors.borrow_mut();
        cursors.entry(path.to_path_buf()).or_default().clone()
    }
}

/// Each array with this rank's part.
fn pairs(group: &GroupCall, locals: Vec<Local>) -> Result<Vec<(crate::call::ArrayCall, Local)>> {
    if group.arrays.len() != locals.len() {
        let cause = format!(
            "{} parts for the {} arrays of group {:?}",
            locals.len(),
            group.arrays.len(),
            group.name
        );
        return Err(Error::new(Kind::Schema, "bringing local parts", cause));
    }
    Ok(group.arrays.iter().cloned().zip(locals).collect())
}
