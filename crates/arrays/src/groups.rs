//! Collective calls on groups: what only the rank that directs them does.
//!
//! Panda's timestep, checkpoint and restart (Seamons et al., SC'95, section 2 and Figure 2): one request for
//! all arrays of a group, which each server meets in one pass over its disk. What is stored, and how it
//! becomes visible, is in [`crate::store::group`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use penstock_engine::{
    Decision, Director, Done, Error, Kind, Moved, Operation, RankBoxes, Request, Result, Sum,
};
use penstock_layout::{DiskSchema, MemorySchema};
use serde_json::{Map, Value};

use crate::call::ArrayCall;
use crate::directors::{By, Setting, boxes_of};
use crate::schema::part_extents;
use crate::store::group::{Catalog, Declared, Group, Moment, of_timestep};
use crate::store::sums::Sums;
use crate::{ArraySchema, Disk, Format, Target};

/// A group as the ranks of a call see it.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupCall {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its arrays, in the order in which ranks bring their parts.
    pub arrays: Vec<ArrayCall>,
    /// What the user says about it.
    pub attributes: Map<String, Value>,
    /// How many checkpoints are kept.
    pub keep: usize,
}

impl fmt::Display for GroupCall {
    /// Everything in which ranks must agree.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {:?} at {}", self.name, self.path.display())?;
        write!(f, ", {} checkpoints kept", self.keep)?;
        if !self.attributes.is_empty() {
            write!(f, ", attributes {}", Value::from(self.attributes.clone()))?;
        }
        self.arrays
            .iter()
            .try_for_each(|array| write!(f, "; {array}"))
    }
}

/// What a call on a group is for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Save {
    /// One more timestep, at that time; `None` is its number.
    Timestep(Option<f64>),
    /// A checkpoint of that step and time; what is `None` is that of the last timestep.
    Checkpoint(Option<u64>, Option<f64>),
}

/// Where a session stands in a group.
#[derive(Debug, Default)]
pub struct Cursor {
    /// How many timesteps it must have; `None` as long as nobody has looked.
    pub timesteps: Option<u64>,
    /// After a restart: what came after it is to be dropped.
    pub restarted: Option<Restarted>,
}

/// Where a session has restarted: with its next save, all that came later is of a future that is no more.
#[derive(Debug, Clone, Copy)]
pub struct Restarted {
    /// The checkpoint's number; `None` where there was none.
    pub checkpoint: Option<u64>,
}

/// What a session knows of a group.
pub type SharedCursor = Arc<Mutex<Cursor>>;

/// Writes all arrays of a group.
pub struct SaveDirector {
    group: GroupCall,
    save: Save,
    setting: Setting,
    cursor: SharedCursor,
    open: Option<Open>,
}

/// A group that is being written to.
struct Open {
    group: Group,
    moment: Moment,
    arrays: Vec<ArraySchema>,
    disks: Vec<DiskSchema>,
}

impl SaveDirector {
    /// Of a save of `group`, by a session that stands at `cursor` in it.
    pub fn new(group: GroupCall, save: Save, setting: &Setting, cursor: &SharedCursor) -> Self {
        Self {
            group,
            save,
            setting: setting.clone(),
            cursor: cursor.clone(),
            open: None,
        }
    }

    /// Brings the group to where the session stands in it.
    fn align(&self, group: &mut Group) -> Result<()> {
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let there = group.timesteps();
        let expected = cursor.timesteps.unwrap_or(there);
        // Newer checkpoints first: one that stayed would be the newest to the next restart, and be of more
        // timesteps than there are.
        if let Some(number) = cursor.restarted.and_then(|restarted| restarted.checkpoint) {
            group.drop_checkpoints(number)?;
        }
        if there > expected && cursor.restarted.is_some() {
            group.drop_timesteps(expected)?;
        } else if there != expected {
            let cause = format!(
                "it has {there} timesteps, and this session left it with {expected}: another job writes to it"
            );
            return Err(Error::new(Kind::Busy, "writing to a group", cause).at(&self.group.path));
        }
        *cursor = Cursor {
            timesteps: Some(expected),
            restarted: None,
        };
        Ok(())
    }

    /// What is saved is of this moment.
    fn moment(&self, group: &Group) -> Result<Moment> {
        let index = group.timesteps();
        let last = group.last_time()?;
        match self.save {
            Save::Timestep(time) => {
                let time = time.unwrap_or(index as f64);
                if !time.is_finite() || last.is_some_and(|last| time <= last) {
                    let cause = match last {
                        Some(last) => format!(
                            "the time {time} is not after {last}, that of the last timestep there: restart, \
                             or write to another path"
                        ),
                        None => format!("{time} is no time"),
                    };
                    let error = Error::new(Kind::Schema, "writing a timestep", cause);
                    return Err(error.at(&self.group.path));
                }
                Ok(Moment {
                    step: index,
                    time: Some(time),
                })
            }
            Save::Checkpoint(step, time) => Ok(Moment {
                step: step.unwrap_or(index.saturating_sub(1)),
                time: time.or(last),
            }),
        }
    }

    fn targets(&self, open: &mut Open) -> Result<Vec<Target>> {
        match self.save {
            Save::Timestep(_) => {
                let names = open.arrays.iter().map(|array| &array.name);
                names.map(|name| open.group.timestep_target(name)).collect()
            }
            Save::Checkpoint(..) => {
                let servers = self.setting.servers();
                open.group.begin_checkpoint(&open.arrays, servers)
            }
        }
    }

    /// The checksums of what was written, one an object.
    fn sums(open: &Open, sums: &[Sum]) -> Sums {
        let mut all = Sums::new();
        let objects = open.disks.iter().map(DiskSchema::objects);
        for (array, objects) in open.arrays.iter().zip(objects) {
            all.insert(array.name.clone(), vec![None; objects as usize]);
        }
        for sum in sums {
            if let Some(of_array) = all.get_mut(&open.arrays[sum.array].name) {
                of_array[sum.object as usize] = Some(sum.crc32c);
            }
        }
        all
    }
}

impl Director for SaveDirector {
    fn prepare(&mut self, boxes: RankBoxes) -> Result<Decision> {
        let options = &self.setting.options;
        let memories = self.group.arrays.iter().enumerate().map(|(number, array)| {
            let boxes = boxes_of(&boxes, number);
            array.memory_schema(Operation::Write, boxes, self.setting.clients)
        });
        let memories: Vec<MemorySchema> = memories.collect::<Result<_>>()?;
        let arrays = self.group.arrays.iter().zip(&memories);
        let declared = Declared {
            name: self.group.name.clone(),
            attributes: self.group.attributes.clone(),
            arrays: arrays
                .map(|(array, memory)| in_chunks(&array.stored_schema(memory)))
                .collect::<Result<_>>()?,
            are_natural: self
                .group
                .arrays
                .iter()
                .map(|array| array.schema.disk == Disk::Natural)
                .collect(),
        };
        let mut group = Group::open(&self.group.path, &declared, self.setting.servers())?;
        if let Save::Timestep(_) = self.save {
            group.check_servers(self.setting.servers())?;
        }
        self.align(&mut group)?;
        let moment = self.moment(&group)?;
        let stored = declared.arrays.iter().map(|declared| {
            let there = group.array(&declared.name)?;
            Ok(ArraySchema {
                disk: there.disk,
                ..declared.clone()
            })
        });
        let arrays: Vec<ArraySchema> = stored.collect::<Result<_>>()?;
        let disks = arrays
            .iter()
            .map(|array| {
                let moment = array.disk_schema(options.block_bytes)?;
                Ok(match self.save {
                    Save::Timestep(_) => of_timestep(moment, group.timesteps()),
                    Save::Checkpoint(..) => moment,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let mut open = Open {
            group,
            moment,
            arrays,
            disks,
        };
        let targets = self.targets(&mut open)?;
        let parts = memories.into_iter().zip(&open.disks).zip(targets);
        let requests = parts.map(|((memory, disk), target)| {
            let disk = disk.clone();
            self.setting
                .request(Operation::Write, By::servers(), memory, disk, Some(target))
        });
        let requests: Vec<Request> = requests.collect::<Result<_>>()?;
        self.open = Some(open);
        Ok(Decision::Serve(requests))
    }

    fn conclude(&mut self, outcome: Result<Done>) -> Result<Moved> {
        let Some(mut open) = self.open.take() else {
            return outcome.map(|done| done.moved);
        };
        let saved = outcome.and_then(|done| {
            let sums = Self::sums(&open, &done.sums);
            let Open { group, moment, .. } = &mut open;
            match self.save {
                Save::Timestep(_) => {
                    let time = moment.time.unwrap_or_default();
                    group.commit_timestep(time, &sums)?;
                }
                Save::Checkpoint(..) => {
                    group.commit_checkpoint(moment, &sums, self.group.keep)?;
                }
            }
            Ok(done.moved)
        });
        if saved.is_err() {
            // What this fails to remove, the next write removes.
            let _ = match self.save {
                Save::Timestep(_) => open.group.abandon_timestep(),
                Save::Checkpoint(..) => open.group.abandon_checkpoint(),
            };
        }
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        cursor.timesteps = Some(open.group.timesteps());
        saved
    }
}

/// A group is a Zarr store: other disk schemas become the chunks that they come to. One row-major file is one
/// chunk, and the parts of a distribution are chunks of their size.
fn in_chunks(array: &ArraySchema) -> Result<ArraySchema> {
    let chunk = match &array.disk {
        Disk::Natural | Disk::Chunks { .. } => return Ok(array.clone()),
        Disk::RowMajor {
            format: Format::Npy,
        } => {
            let cause =
                "a group is a Zarr store, and has no .npy files: use Chunks or RowMajor(\"raw\")";
            let doing = format!("laying out the array {:?}", array.name);
            return Err(Error::new(Kind::Unsupported, doing, cause));
        }
        Disk::RowMajor {
            format: Format::Raw,
        } => array.shape.iter().map(|&n| n.max(1)).collect(),
        Disk::Parts(dists, mesh) => {
            array.disk_schema(1)?;
            part_extents(&array.shape, dists, mesh)
        }
    };
    Ok(ArraySchema {
        disk: Disk::plain_chunks(chunk),
        ..array.clone()
    })
}

/// Looks for a checkpoint, and tells all ranks of it in JSON; of none in an empty word.
pub struct FindDirector {
    /// The group's directory.
    pub path: PathBuf,
    /// Of that step, the newest; `None` of any.
    pub step: Option<u64>,
}

impl Director for FindDirector {
    fn prepare(&mut self, _boxes: RankBoxes) -> Result<Decision> {
        let found = match Catalog::read(&self.path) {
            Err(error) if error.kind == Kind::Missing => None,
            Err(error) => return Err(error),
            Ok(catalog) => {
                let mut of_step = catalog.checkpoints.into_iter().rev();
                of_step.find(|checkpoint| self.step.is_none_or(|step| checkpoint.step == step))
            }
        };
        if let (None, Some(step)) = (&found, self.step) {
            let cause = format!("there is no checkpoint of step {step}");
            return Err(Error::new(Kind::Missing, "restarting", cause).at(&self.path));
        }
        let note = found.map(|checkpoint| {
            let path = checkpoint.path.to_string_lossy().into_owned();
            serde_json::to_string(&(path, checkpoint))
        });
        let note = note.transpose().map_err(|e| {
            let error = Error::new(Kind::Io, "describing a checkpoint", e);
            error.at(Path::new(&self.path))
        })?;
        Ok(Decision::Meet(note.unwrap_or_default()))
    }

    fn conclude(&mut self, outcome: Result<Done>) -> Result<Moved> {
        outcome.map(|done| done.moved)
    }
}
