//! Saves groups: the calls of every rank, and the director.
//!
//! These are Panda's timestep and checkpoint (Seamons et al., SC'95, section 2 and Figure 2): one
//! request for all arrays of a group, which each server meets in one pass over its disk. The format
//! of a group, and how a moment becomes visible, are in [`crate::groups`].

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use penstock_engine::{
    Decision, Digest, Director, Error, Holders, Kind, Operation, RankParts, Request, Rest, Result,
    Strategy, Tally, Traffic,
};
use penstock_layout::{DiskSchema, Edges, exact};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::array::{ArrayCall, LocalPart};
use super::ask::{Ask, GroupAsk, SaveAsk};
use super::cursor::SharedCursor;
use super::desk::Desk;
use super::errand::{Direction, Errand, Topic};
use super::session::{CallArguments, Session};
use super::settings::{Background, Method, Outstanding, Report, Settings, SplitOptions, Subject};
use super::write::{boxes_of, rest_of_new};
use crate::formats::whole_in_bucket;
use crate::groups::{self, ArrayDeclaration, Coordinate, Declaration, Group, Moment, SavedArray};
use crate::json::as_text;
use crate::schema::part_extents;
use crate::{ArraySchema, Format, Storage, Target, json};

/// A group as the ranks of a call see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupCall {
    pub name: String,
    pub path: PathBuf,
    /// The arrays, in the order in which ranks bring their parts.
    pub arrays: Vec<ArrayCall>,
    /// The static variables.
    pub coordinates: Vec<Coordinate>,
    /// The attributes of the group.
    #[serde(with = "as_text")]
    pub attributes: Map<String, Value>,
    /// The attributes of its times.
    #[serde(with = "as_text")]
    pub time_attributes: Map<String, Value>,
    /// The number of timesteps in a chunk; `None` takes it from the group on disk.
    pub time_chunk: Option<u64>,
    /// The number of checkpoints that are kept.
    pub keep: usize,
    /// The names of the arrays for which saves keep the bounds of chunks.
    pub bounded: BTreeSet<String>,
}

impl GroupCall {
    /// All in which ranks must agree. Of coordinates only the names are compared.
    pub(super) fn ask(&self) -> GroupAsk {
        let attributes = |map: &Map<String, Value>| json::line(&map.clone().into());
        let coordinates = self.coordinates.iter();
        GroupAsk {
            name: self.name.clone(),
            path: self.path.as_path().into(),
            keep: self.keep,
            bounded: self.bounded.iter().cloned().collect(),
            time_chunk: self.time_chunk,
            coordinates: coordinates.map(|known| known.name.clone()).collect(),
            attributes: attributes(&self.attributes),
            time_attributes: attributes(&self.time_attributes),
            arrays: self.arrays.iter().map(ArrayCall::ask).collect(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        let bytes = self.arrays.iter().map(ArrayCall::asked_bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Each array with this rank's parts.
    pub(super) fn pairs(
        &self,
        locals: Vec<Vec<LocalPart>>,
    ) -> Result<Vec<(ArrayCall, Vec<LocalPart>)>> {
        if self.arrays.len() != locals.len() {
            let cause = format!(
                "{} parts for the {} arrays of group {:?}",
                locals.len(),
                self.arrays.len(),
                self.name
            );
            return Err(Error::new(Kind::Schema, "bringing local parts", cause));
        }
        Ok(self.arrays.iter().cloned().zip(locals).collect())
    }
}

/// The kind of a save.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Save {
    /// One more timestep, at this time; `None` takes the timestep's number as its time.
    Timestep(Option<f64>),
    Checkpoint {
        /// The program's step; `None` is the number of the last timestep.
        step: Option<u64>,
        /// The program's time; `None` is the time of the last timestep.
        time: Option<f64>,
        /// The attributes of the checkpoint.
        #[serde(with = "as_text")]
        attributes: Map<String, Value>,
    },
}

impl Save {
    fn ask(&self) -> SaveAsk {
        match self {
            Self::Timestep(time) => SaveAsk::Timestep(*time),
            Self::Checkpoint {
                step,
                time,
                attributes,
            } => SaveAsk::Checkpoint {
                step: *step,
                time: *time,
                attributes: json::line(&attributes.clone().into()),
            },
        }
    }
}

impl Session {
    /// Saves all arrays of a group as one timestep or checkpoint: each rank brings its parts in the
    /// order of the group's arrays. The save is disk-directed, whatever the session's strategy.
    ///
    /// # Errors
    /// The same on all ranks: as [`Session::write`]; [`Kind::Schema`] when the group on disk has
    /// other arrays, or when the time is not after the last; [`Kind::Busy`] when another job writes
    /// to the group. The group is then as it was.
    ///
    /// # Collective
    /// Over all clients.
    pub fn save(
        &self,
        group: GroupCall,
        locals: Vec<Vec<LocalPart>>,
        save: Save,
    ) -> Result<Report> {
        match self.asked_to_save(group, locals, save, Method::disk_directed()) {
            Ok(asked) => self.transfer(Operation::Write, asked),
            Err(error) => Err(self.refuse(error)),
        }
    }

    /// Begins a save, as [`Session::save`] does; [`Session::end`] ends it. Until then nobody may
    /// change `locals`, and the session keeps `keeps`, which owns their memory.
    ///
    /// # Errors
    /// As [`Session::begin_write`].
    ///
    /// # Collective
    /// Over all clients, in the same order.
    pub fn begin_save(
        &self,
        group: GroupCall,
        locals: Vec<Vec<LocalPart>>,
        save: Save,
        background: Option<Background>,
        keeps: Box<dyn Any + Send>,
    ) -> Result<Outstanding> {
        let subject = Subject::of_group(&group.path);
        let options = SplitOptions {
            strategy: Some(Strategy::default()),
            background,
        };
        let ask = |method| self.asked_to_save(group, locals, save, method);
        self.begin_split(subject, options, ask, keeps)
    }

    fn asked_to_save(
        &self,
        group: GroupCall,
        locals: Vec<Vec<LocalPart>>,
        save: Save,
        method: Method,
    ) -> Result<CallArguments> {
        for array in &group.arrays {
            self.check_outstanding(Operation::Write, &group.path, array)?;
        }
        for coordinate in &group.coordinates {
            coordinate.check()?;
        }
        let given = group.pairs(locals)?;
        let rows = given.iter().filter(|(array, _)| array.is_ragged());
        check_rows(rows.map(|(array, _)| array))?;
        Ok(CallArguments {
            ask: Ask::Save(save.ask(), group.ask(), None),
            bytes: group.bytes(),
            in_time: matches!(save, Save::Timestep(_)),
            direction: Direction::of(SaveErrand::new(group, save, method)),
            given,
        })
    }
}

/// Checks that a rank brings equally many rows of all arrays that share a first dimension.
fn check_rows<'a>(arrays: impl Iterator<Item = &'a ArrayCall>) -> Result<()> {
    let mut counts: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for array in arrays {
        let name = &array.schema.name;
        let dimension = array.schema.names_of_dimensions().first().cloned();
        let count = array
            .own_boxes()
            .and_then(|own| own.first()?.shape.first().copied());
        let (Some(dimension), Some(count)) = (dimension, count) else {
            continue;
        };
        let (known, first) = counts
            .entry(dimension.clone())
            .or_insert((count, name.clone()));
        if *known != count {
            let cause = format!(
                "{known} of {first:?} and {count} of {name:?}, which both have {dimension:?}"
            );
            return Err(Error::new(Kind::Schema, "bringing rows of a group", cause));
        }
    }
    Ok(())
}

/// The errand of a save.
#[derive(Serialize, Deserialize)]
pub(super) struct SaveErrand {
    group: GroupCall,
    save: Save,
    method: Method,
}

impl SaveErrand {
    pub(super) fn new(group: GroupCall, save: Save, method: Method) -> Self {
        Self {
            group,
            save,
            method,
        }
    }
}

impl Errand for SaveErrand {
    fn topic(&self) -> Topic {
        match self.save {
            Save::Timestep(_) => Topic::Timestep,
            Save::Checkpoint { .. } => Topic::Checkpoint,
        }
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.group.path]
    }

    fn written(&mut self) -> Option<&mut PathBuf> {
        Some(&mut self.group.path)
    }

    fn words(&self) -> String {
        let what = match &self.save {
            Save::Timestep(_) => "timestep".to_string(),
            Save::Checkpoint { step, .. } => step.map_or("checkpoint".to_string(), |step| {
                format!("checkpoint {step}")
            }),
        };
        format!("{what} of {}", self.group.name)
    }

    fn director(self, desk: &Arc<Desk>) -> Box<dyn Director + Send> {
        Box::new(SaveDirector {
            cursor: desk.cursor(&self.group.path),
            group: self.group,
            save: self.save,
            method: self.method,
            settings: desk.settings.clone(),
            open: None,
        })
    }
}

/// Directs the write of all arrays of a group.
struct SaveDirector {
    group: GroupCall,
    save: Save,
    method: Method,
    settings: Settings,
    cursor: SharedCursor,
    open: Option<OpenGroup>,
}

/// A group that is being written to.
struct OpenGroup {
    group: Box<dyn Group>,
    moment: Moment,
    /// The part of each array that is written.
    parts: Vec<Part>,
}

/// The part of one array that is written.
struct Part {
    name: String,
    /// The number of rows of its first dimension in this timestep.
    rows: u64,
    holders: Holders,
    disk: DiskSchema,
    target: Target,
    rest: Rest,
}

impl SaveDirector {
    fn declared(&self, holders: &[Holders]) -> Result<Declaration> {
        let disks = self.group.arrays.iter().map(|array| &array.schema.disk);
        let file = groups::kind_of_file(&self.group.path, disks)?;
        let arrays = self
            .group
            .arrays
            .iter()
            .zip(holders)
            .map(|(array, holders)| {
                let is_natural = array.schema.disk.is_natural();
                let schema = match file {
                    Some(is_netcdf) => in_dataset(array, holders, is_netcdf)?,
                    None => {
                        let stored = array.stored_schema(holders)?;
                        check_chunks_of_rows(array, &stored)?;
                        in_chunks(&stored)?
                    }
                };
                Ok(ArrayDeclaration {
                    schema,
                    is_natural: is_natural
                        || matches!(array.schema.disk, Storage::Hdf5 { chunk: None, .. }),
                    says_codec: array.schema.disk != Storage::Natural,
                    is_ragged: array.is_ragged(),
                })
            });
        Ok(Declaration {
            name: self.group.name.clone(),
            attributes: self.group.attributes.clone(),
            time_attributes: self.group.time_attributes.clone(),
            time_chunk: self.group.time_chunk,
            arrays: arrays.collect::<Result<_>>()?,
            coordinates: self.group.coordinates.clone(),
            bounded: self.group.bounded.clone(),
        })
    }

    /// Checks that the group on disk is where the session left it, and drops all moments that are
    /// newer than a restart.
    fn align(&self, group: &mut dyn Group) -> Result<()> {
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let there = group.timesteps();
        // A group that has replaced the former group at this path is new to this session.
        let seen = cursor.seen.take().filter(|(id, _)| id == group.id());
        let restarted = cursor.restarted.take();
        let expected = match (&restarted, &seen) {
            (Some(restarted), _) => restarted.timesteps,
            (None, Some((_, timesteps))) => *timesteps,
            (None, None) => there,
        };
        // Newer checkpoints are dropped first: a newer one that remained would be the newest for
        // the next restart, and would count more timesteps than the group has.
        if let Some(number) = restarted.and_then(|restarted| restarted.checkpoint) {
            group.drop_checkpoints(number)?;
        }
        if there > expected && restarted.is_some() {
            group.drop_timesteps(expected)?;
        } else if there != expected {
            let cause = format!(
                "it has {there} timesteps, and this session left it with {expected}: another job writes to it"
            );
            cursor.seen = seen;
            return Err(Error::new(Kind::Busy, "writing to a group", cause).at(&self.group.path));
        }
        cursor.seen = Some((group.id().to_string(), expected));
        Ok(())
    }

    /// The moment that is saved.
    fn moment(&self, group: &dyn Group) -> Result<Moment> {
        let index = group.timesteps();
        let last = group.last_time()?;
        match &self.save {
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
                    attributes: Map::new(),
                })
            }
            Save::Checkpoint {
                step,
                time,
                attributes,
            } => Ok(Moment {
                step: step.unwrap_or(index.saturating_sub(1)),
                time: time.or(last),
                attributes: attributes.clone(),
            }),
        }
    }

    /// The parts of a timestep: rows of each array, which follow the rows that are stored.
    fn timestep_parts(&self, group: &mut dyn Group, parts: &RankParts) -> Result<Vec<Part>> {
        let arrays = self.group.arrays.iter().enumerate().map(|(number, array)| {
            let array = array.in_time();
            let boxes = boxes_of(parts, number).into_iter().map(|(rank, mut own)| {
                if !array.is_ragged() {
                    for region in &mut own {
                        region.start.insert(0, 0);
                        region.shape.insert(0, 1);
                    }
                }
                (rank, own)
            });
            let clients = self.settings.clients;
            let holders = array.holders(Operation::Write, boxes.collect(), clients)?;
            Ok((holders, array.schema.fill.bytes().to_vec()))
        });
        let arrays: Vec<(Holders, Vec<u8>)> = arrays.collect::<Result<_>>()?;
        let rows = self.group.arrays.iter().zip(&arrays);
        let rows =
            rows.map(|(array, (holders, _))| (array.schema.name.clone(), holders.shape()[0]));
        let rows: Vec<(String, u64)> = rows.collect();
        let targets = group.begin_timestep(&rows, self.settings.options.block_bytes)?;
        let parts = rows.into_iter().zip(arrays).zip(targets);
        let parts = parts.map(
            |(((name, rows), (holders, element)), (disk, target))| Part {
                name,
                rows,
                holders,
                disk,
                target,
                // A chunk that several timesteps share must keep nothing of a timestep that was
                // abandoned.
                rest: match group.time_chunk() {
                    1 => Rest::Fill(element),
                    _ => Rest::FillAll(element),
                },
            },
        );
        Ok(parts.collect())
    }

    /// The parts of a checkpoint: whole arrays, stored as the group stores them.
    fn checkpoint_parts(
        &self,
        group: &mut dyn Group,
        moment: &Moment,
        declared: Declaration,
        holders: Vec<Holders>,
    ) -> Result<Vec<Part>> {
        let arrays = declared.arrays.into_iter().map(|array| {
            Ok(ArraySchema {
                disk: group
                    .moment(&array.schema.name)?
                    .disk
                    .of_shape(&array.schema.shape),
                ..array.schema
            })
        });
        let arrays: Vec<ArraySchema> = arrays.collect::<Result<_>>()?;
        let targets = group.begin_checkpoint(moment, &arrays, self.settings.servers())?;
        let parts = arrays.into_iter().zip(holders).zip(targets);
        let parts = parts.map(|((array, holders), target)| {
            let disk = array.disk_schema(self.settings.options.block_bytes)?;
            Ok(Part {
                rows: holders.shape().first().copied().unwrap_or(1),
                holders,
                disk: whole_in_bucket(&self.group.path, disk)?,
                target,
                rest: rest_of_new(&array),
                name: array.name,
            })
        });
        parts.collect()
    }

    /// The arrays that were written, with what is known of their objects.
    fn saved(parts: &[Part], digests: &[(usize, Digest)]) -> Vec<SavedArray> {
        let saved = parts.iter().enumerate().map(|(number, part)| {
            let objects = exact::<usize>(part.disk.objects());
            let mut array = SavedArray {
                name: part.name.clone(),
                rows: part.rows,
                sums: vec![None; objects],
                bounds: None,
            };
            let own = digests.iter().filter(|(array, _)| *array == number);
            for (_, digest) in own {
                let object = exact::<usize>(digest.object);
                if let Some(sum) = array.sums.get_mut(object) {
                    *sum = Some(digest.crc32c);
                }
                if digest.bounds.is_some() {
                    let all = array.bounds.get_or_insert_with(|| vec![None; objects]);
                    if let Some(bounds) = all.get_mut(object) {
                        *bounds = digest.bounds;
                    }
                }
            }
            array
        });
        saved.collect()
    }
}

impl Director for SaveDirector {
    fn prepare(&mut self, parts: RankParts) -> Result<Decision> {
        let holders = self.group.arrays.iter().enumerate().map(|(number, array)| {
            let boxes = boxes_of(&parts, number);
            array.holders(Operation::Write, boxes, self.settings.clients)
        });
        let holders: Vec<Holders> = holders.collect::<Result<_>>()?;
        let declared = self.declared(&holders)?;
        let is_first = {
            let cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
            cursor.seen.is_none()
        };
        let servers = self.settings.servers();
        let mut group = groups::open_to_save(&self.group.path, &declared, servers, is_first)?;
        if let Save::Timestep(_) = self.save {
            group.check_servers(servers)?;
        }
        self.align(group.as_mut())?;
        let moment = self.moment(group.as_ref())?;
        let parts = match self.save {
            Save::Timestep(_) => self.timestep_parts(group.as_mut(), &parts)?,
            Save::Checkpoint { .. } => {
                self.checkpoint_parts(group.as_mut(), &moment, declared, holders)?
            }
        };
        let requests = parts.iter().map(|part| {
            let (holders, disk) = (part.holders.clone(), part.disk.clone());
            let target = Some(part.target.clone());
            let request =
                self.settings
                    .request(Operation::Write, self.method, holders, disk, target)?;
            Ok(Request {
                rest: part.rest.clone(),
                ..request
            })
        });
        let requests: Vec<Request> = requests.collect::<Result<_>>()?;
        self.open = Some(OpenGroup {
            group,
            moment,
            parts,
        });
        Ok(Decision::Serve(requests))
    }

    fn conclude(&mut self, outcome: Result<Tally>) -> Result<Traffic> {
        let Some(mut open) = self.open.take() else {
            return outcome.map(|done| done.moved);
        };
        let saved = outcome.and_then(|done| {
            let saved = Self::saved(&open.parts, &done.digests);
            match self.save {
                Save::Timestep(_) => {
                    let time = open.moment.time.unwrap_or_default();
                    open.group.commit_timestep(time, &saved)?;
                }
                Save::Checkpoint { .. } => {
                    open.group
                        .commit_checkpoint(&open.moment, &saved, self.group.keep)?;
                }
            }
            Ok(done.moved)
        });
        if saved.is_err() {
            // The next write removes all files that this step fails to remove.
            let _ = match self.save {
                Save::Timestep(_) => open.group.abandon_timestep(),
                Save::Checkpoint { .. } => open.group.abandon_checkpoint(),
            };
        }
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        cursor.seen = Some((open.group.id().to_string(), open.group.timesteps()));
        saved
    }
}

/// Refuses chunks that do not go on when an array of rows grows: each timestep has other numbers of
/// rows, and nobody knows them before.
fn check_chunks_of_rows(array: &ArrayCall, stored: &ArraySchema) -> Result<()> {
    let is_of_one_moment = match &array.schema.disk {
        Storage::Shares { .. } => true,
        Storage::Chunks { .. } => stored.disk.chunk_rows().is_none(),
        _ => false,
    };
    if !array.is_ragged() || !is_of_one_moment {
        return Ok(());
    }
    let doing = format!("laying out the array {:?}", stored.name);
    let cause =
        "an array of rows grows with each timestep of a group: give one number of rows a chunk";
    Err(Error::new(Kind::Unsupported, doing, cause))
}

/// The array with its disk schema as chunks: a group is a Zarr store. One row-major file becomes
/// one chunk, and the parts of a distribution become chunks of their size.
fn in_chunks(array: &ArraySchema) -> Result<ArraySchema> {
    let refused = |cause| {
        let doing = format!("laying out the array {:?}", array.name);
        Err(Error::new(Kind::Unsupported, doing, cause))
    };
    let chunk = match &array.disk {
        Storage::Natural | Storage::Shares { .. } | Storage::Chunks { .. } => {
            return Ok(array.clone());
        }
        Storage::Hdf5 { .. } => return refused("the group is no file of HDF5: use Chunks"),
        Storage::RowMajor {
            format: Format::Npy,
        } => {
            return refused(
                "a group is a Zarr store, and has no .npy files: use Chunks or RowMajor(\"raw\")",
            );
        }
        Storage::RowMajor {
            format: Format::Raw,
        } => array.shape.iter().map(|&n| n.max(1)).collect(),
        Storage::Parts(dists, mesh) => {
            array.disk_schema(1)?;
            part_extents(&array.shape, dists, mesh)
        }
    };
    Ok(ArraySchema {
        disk: Storage::plain_chunks(chunk),
        ..array.clone()
    })
}

/// The array as a dataset that grows, in the chunks that it names, or in natural ones.
fn in_dataset(array: &ArrayCall, holders: &Holders, is_netcdf: bool) -> Result<ArraySchema> {
    let mut natural = array.clone();
    natural.schema.disk = Storage::Natural;
    let mut schema = natural.stored_schema(holders)?;
    let (dataset, chunk, filters) = match &array.schema.disk {
        Storage::Hdf5 {
            dataset,
            chunk,
            filters,
            ..
        } => (dataset.clone(), chunk.clone(), filters.clone()),
        _ => (String::new(), None, "none".to_string()),
    };
    let mut chunk = match (chunk, &schema.disk) {
        (Some(chunk), _) => chunk,
        (None, Storage::Chunks { chunk: natural, .. }) => {
            let mut chunk: Vec<u64> = natural.iter().filter_map(Edges::extent).collect();
            fit_chunk(&mut chunk, schema.element.width());
            chunk
        }
        (None, _) => schema.shape.clone(),
    };
    // HDF5 has no chunk that is larger than an array that does not grow.
    let fixed = chunk.iter_mut().zip(&schema.shape);
    for (extent, &n) in fixed.skip(usize::from(array.is_ragged())) {
        *extent = n.max(1).min(*extent);
    }
    schema.disk = Storage::Hdf5 {
        chunk: Some(chunk),
        dataset,
        filters,
        is_netcdf,
    };
    Ok(schema)
}

/// Halves the extents of a chunk until HDF5 can have it.
fn fit_chunk(chunk: &mut [u64], width: u64) {
    while chunk.iter().product::<u64>().saturating_mul(width) > u64::from(u32::MAX) {
        let Some(longest) = chunk.iter_mut().max() else {
            return;
        };
        *longest = longest.div_ceil(2);
    }
}
