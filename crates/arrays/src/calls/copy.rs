//! Copying arrays and whole data sets into another arrangement, out of core: server-directed I/O from disk to disk.
//!
//! | module | what it holds |
//! |---|---|
//! | `contents` | what of a source is copied, and what becomes of it |
//! | [`plan`] | the slabs in which an array is copied: pure |
//! | `walk` | one rank's way through the slabs |
//!
//! Each array goes through the memories of the ranks slab by slab: one collective read of a region, one collective write of
//! it. Ranks share a slab evenly. In memory it lies such that the source's blocks are long runs; the servers transpose
//! when they gather the target's.
//!
//! What is written goes under a temporary name until all of it is there. Beside it a journal says what it is
//! and which slabs are done, so that the same command goes on where a killed one has stopped. (Journal and
//! slabs are synced in that order only if the session syncs.)
//!
//! Chunks that hold nothing but the fill value are not stored. An array whose elements or codecs Penstock does not
//! understand keeps its chunk files as they are.

mod contents;
pub mod plan;
mod walk;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_engine::{
    Ask, Decision, Director, Done, Error, Kind, Moved, Operation, RankBoxes, Request, Rest, Result,
};
use penstock_layout::DiskSchema;
use serde::{Deserialize, Serialize};

use self::contents::{Contents, Item};
use self::plan::{Means, Pass, Plan, with_block_bytes};
use self::walk::Walk;
use super::array::ArrayCall;
use super::session::Session;
use super::settings::{Method, SessionOptions, Settings};
use super::write::boxes_of;
use crate::write::{CopyTarget, Slab};
use crate::{ArraySchema, Disk, ElementType, Format, Progress, Target};

/// How a source is to be copied. All ranks must give the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Which arrays of the source, by their paths in it; none for all that is there.
    pub arrays: Vec<String>,
    /// The name of the array in the target, where only one is copied.
    pub name: Option<String>,
    /// What a raw file holds that says nothing of itself.
    pub raw: Option<(Vec<u64>, ElementType)>,
    /// How it is to be stored.
    pub form: Form,
    /// Memory of all ranks together, bytes: their slabs and the servers' buffers.
    pub memory_bytes: u64,
    /// Whether attributes may be lost where the target has no place for them.
    pub drops_attributes: bool,
    /// Whether what is at the target is replaced.
    pub overwrites: bool,
}

/// The memory that a copy has if nobody says: it copies little worse than with more.
pub const MEMORY_BYTES: u64 = 256 << 20;

impl Default for Options {
    /// All of it as it is.
    fn default() -> Self {
        Self {
            arrays: Vec::new(),
            name: None,
            raw: None,
            form: Form::default(),
            memory_bytes: MEMORY_BYTES,
            drops_attributes: false,
            overwrites: false,
        }
    }
}

/// How a copy is stored.
#[derive(Debug, Clone, PartialEq)]
pub enum Form {
    /// In Zarr's third format; what is not said is as in the source.
    Zarr {
        /// Extents of chunks.
        chunks: Option<Extents>,
        /// Extents of the sub-chunks of a chunk.
        subchunks: Option<Extents>,
        /// What is done to the bytes: see [`crate::codec`].
        codec: Option<String>,
    },
    /// One array in one file.
    RowMajor(Format),
}

impl Default for Form {
    fn default() -> Self {
        Self::Zarr {
            chunks: None,
            subchunks: None,
            codec: None,
        }
    }
}

/// Extents of chunks, of any array that they fit; `None` is the whole extent of a dimension.
///
/// In text `64,64,-1` or `time=1,lat=512`, where -1 is the whole extent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extents {
    /// One a dimension.
    InOrder(Vec<Option<u64>>),
    /// Of dimensions of these names; in others as they are.
    ByName(Vec<(String, Option<u64>)>),
}

impl FromStr for Extents {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            let cause =
                "write them as 64,64,-1 or as time=1,lat=512, where -1 is the whole dimension";
            Error::new(Kind::Schema, format!("reading the extents {text:?}"), cause)
        };
        let extent = |text: &str| match text.trim() {
            "-1" => Ok(None),
            number => number.parse().map(Some).map_err(|_| refused()),
        };
        let parts = text.split(',');
        if !text.contains('=') {
            return Ok(Self::InOrder(parts.map(extent).collect::<Result<_>>()?));
        }
        let named = parts.map(|part| {
            let (name, number) = part.split_once('=').ok_or_else(refused)?;
            Ok((name.trim().to_string(), extent(number)?))
        });
        Ok(Self::ByName(named.collect::<Result<_>>()?))
    }
}

impl fmt::Display for Extents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |extent: &Option<u64>| extent.map_or("-1".to_string(), |n| n.to_string());
        let parts: Vec<String> = match self {
            Self::InOrder(extents) => extents.iter().map(number).collect(),
            Self::ByName(extents) => {
                let named = extents.iter();
                named
                    .map(|(name, extent)| format!("{name}={}", number(extent)))
                    .collect()
            }
        };
        f.write_str(&parts.join(","))
    }
}

impl Options {
    /// In what ranks must agree.
    fn ask(&self, source: &Path, target: &Path) -> Ask {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "as it is".to_string());
        let raw = self.raw.as_ref();
        let ask = Ask::new(format!(
            "a copy of {} to {}",
            source.display(),
            target.display()
        ))
        .with("arrays", self.arrays.join(", "))
        .with("name", or_none(self.name.clone()))
        .with(
            "raw",
            or_none(raw.map(|(shape, element)| format!("{element} of {shape:?}"))),
        )
        .with("memory", self.memory_bytes)
        .with("drop attributes", self.drops_attributes)
        .with("overwrite", self.overwrites);
        match &self.form {
            Form::RowMajor(format) => ask.with("disk schema", Disk::RowMajor { format: *format }),
            Form::Zarr {
                chunks,
                subchunks,
                codec,
            } => ask
                .with("chunks", or_none(chunks.as_ref().map(Extents::to_string)))
                .with(
                    "sub-chunks",
                    or_none(subchunks.as_ref().map(Extents::to_string)),
                )
                .with("codec", or_none(codec.clone())),
        }
    }
}

/// What a copy has done.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Bytes of the arrays.
    pub bytes: u64,
    /// Wall time on this rank.
    pub seconds: f64,
    /// Bytes read from the source and the stores in between, decoded, by this attempt.
    pub read_bytes: u64,
    /// Slabs, of all passes of all arrays.
    pub slabs: u64,
    /// Slabs that a former attempt had done.
    pub slabs_found: u64,
    /// The arrays that were copied, by their paths in the source, and the way that was taken.
    pub plans: Vec<(String, Plan)>,
    /// Arrays that Penstock does not understand: their chunk files are as they were.
    pub as_they_are: Vec<String>,
}

/// What the director tells all ranks before the first slab.
#[derive(Serialize, Deserialize)]
struct Order {
    jobs: Vec<Job>,
    done: BTreeSet<Slab>,
    as_they_are: Vec<String>,
}

/// An array to be copied.
#[derive(Serialize, Deserialize)]
struct Job {
    /// Its path in the source.
    path: String,
    /// As it is stored at the target.
    schema: ArraySchema,
    plan: Plan,
    /// Where each pass reads from, by which name, and the extents of a block there.
    sources: Vec<(PathBuf, String, Vec<u64>)>,
}

/// Held by the rank that directs, from the first call to the last.
struct Work {
    target: CopyTarget,
    /// What each pass of each array writes to.
    targets: Vec<Vec<(Target, DiskSchema)>>,
}

type Shared = Arc<Mutex<Option<Work>>>;

fn lock(shared: &Shared) -> MutexGuard<'_, Option<Work>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Copies what is at `source` to `target`: an array, a group with all that is in it, or arrays of it. It is there
    /// when all of it is. `tell` hears, on each rank, of the bytes that are copied, at first those of a former attempt.
    ///
    /// # Errors
    /// The same on all ranks: as [`Session::read`] and [`Session::write`]; [`Kind::Schema`] when the target's
    /// schema does not fit, when something is at the target that may not be replaced, or the memory is too little. What
    /// is done is kept for another attempt, unless it fails before the first slab. What `tell` says, on this rank alone:
    /// it takes no part in the copy any more, and must leave the session.
    ///
    /// # Collective
    /// Over all clients.
    pub fn copy(
        &self,
        source: &Path,
        target: &Path,
        options: &Options,
        tell: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<Report> {
        let begun = self.now();
        let work = Shared::default();
        let begin = Begin {
            source: source.to_path_buf(),
            target: target.to_path_buf(),
            options: options.clone(),
            settings: self.settings().clone(),
            work: work.clone(),
        };
        let order: Order = self.decide(options.ask(source, target), move || begin.order())?;
        let mut walk = Walk::new(self, &order, &work);
        let bytes_moved = |job: &Job| job.schema.bytes() * job.plan.passes.len() as u64;
        tell(Progress::All(order.jobs.iter().map(bytes_moved).sum()))?;
        let mut read_bytes = 0;
        let mut slabs = 0;
        for (number, job) in order.jobs.iter().enumerate() {
            for (pass, way) in job.plan.passes.iter().enumerate() {
                let of_pass = walk::slabs_of(&job.schema.shape, &way.slab);
                for (index, slab) in of_pass.enumerate() {
                    slabs += 1;
                    let place = (number, pass, index as u64);
                    if !order.done.contains(&place) {
                        read_bytes += walk.copy_slab(place, &slab)?;
                    }
                    tell(Progress::More(slab.elements() * job.schema.element.width()))?;
                }
            }
        }
        let end = move || match lock(&work).take() {
            Some(work) => work.target.commit(),
            None => Ok(()),
        };
        self.decide(Ask::new("the end of a copy"), end)?;
        Ok(Report {
            bytes: order.jobs.iter().map(|job| job.schema.bytes()).sum(),
            seconds: (self.now() - begun).as_secs_f64(),
            read_bytes,
            slabs,
            slabs_found: order.done.len() as u64,
            plans: order
                .jobs
                .into_iter()
                .map(|job| (job.path, job.plan))
                .collect(),
            as_they_are: order.as_they_are,
        })
    }
}

/// Copies on so many threads of this process, as [`Session::copy`] does it. `tell` hears of it from one of them; where it
/// fails, and whenever `interrupt` says so, the copy is given up, and what is done is kept for another attempt.
///
/// # Errors
/// As [`Session::copy`].
pub fn on_threads(
    (source, target): (&Path, &Path),
    options: &Options,
    ranks: usize,
    sync: bool,
    interrupt: &dyn Fn() -> bool,
    tell: &(dyn Fn(Progress) -> Result<()> + Sync),
) -> Result<Report> {
    let setup = SessionOptions {
        sync,
        // A single rank has its servers beside it.
        dedicated: ranks == 1,
        ..SessionOptions::default()
    };
    let reports = super::on_threads(ranks, &setup, interrupt, |session| {
        let mut tell_one = |progress| match session.rank() {
            Some(0) => tell(progress),
            _ => Ok(()),
        };
        session.copy(source, target, options, &mut tell_one)
    })?;
    reports.into_iter().next().unwrap_or_else(|| {
        let cause = "there are no ranks";
        Err(Error::new(Kind::Schema, "copying", cause))
    })
}

/// Makes or finds the target, and plans.
struct Begin {
    source: PathBuf,
    target: PathBuf,
    options: Options,
    settings: Settings,
    work: Shared,
}

impl Begin {
    fn order(&self) -> Result<Order> {
        let contents = Contents::find(&self.source, &self.target, &self.options)?;
        let items = contents.items.iter();
        let plans = items
            .map(|item| self.plan(item))
            .collect::<Result<Vec<Plan>>>()?;
        let journal = self.journal(&contents, &plans)?;
        let target = CopyTarget::create_or_resume(&self.target, &contents.goal(), &journal)?;
        let (mut jobs, mut targets) = (Vec::new(), Vec::new());
        for (number, (item, plan)) in contents.items.into_iter().zip(plans).enumerate() {
            let (job, of_job) = self.job(number, item, plan, &target)?;
            jobs.push(job);
            targets.push(of_job);
        }
        let done = target.done().iter().copied().collect();
        *lock(&self.work) = Some(Work { target, targets });
        Ok(Order {
            jobs,
            done,
            as_they_are: contents.as_they_are,
        })
    }

    fn block_bytes(&self) -> u64 {
        self.settings.options.block_bytes
    }

    fn plan(&self, item: &Item) -> Result<Plan> {
        let from = item.stored.disk_schema(self.block_bytes())?;
        let to = item.schema.disk_schema(self.block_bytes())?;
        let means = Means {
            memory_bytes: self.options.memory_bytes,
            servers: self.settings.servers(),
        };
        plan::plan(&from, &to, means).map_err(|error| Error {
            doing: format!("planning a copy of '{}'", item.schema.name),
            ..error
        })
    }

    /// What says that another attempt is at the same copy, of a source that has not changed.
    fn journal(&self, contents: &Contents, plans: &[Plan]) -> Result<String> {
        let mut said = vec![self.source.display().to_string()];
        for (item, plan) in contents.items.iter().zip(plans) {
            let of_item = serde_json::to_string(&(&item.path, &item.schema, plan));
            said.push(of_item.map_err(|e| Error::new(Kind::Io, "describing a copy", e))?);
            said.push(item.stored.target().stamp()?);
        }
        said.extend(
            contents
                .nodes
                .iter()
                .map(|node| format!("{} {}", node.path, node.json)),
        );
        Ok(said.join("\n"))
    }

    /// What ranks do for an array, and what servers write to in each pass.
    fn job(
        &self,
        number: usize,
        item: Item,
        plan: Plan,
        target: &CopyTarget,
    ) -> Result<(Job, Vec<(Target, DiskSchema)>)> {
        let Item {
            path,
            place,
            stored,
            schema,
        } = item;
        let from = stored.disk_schema(self.block_bytes())?;
        let to = schema.disk_schema(self.block_bytes())?;
        let mut sources = vec![(place, stored.schema().name.clone(), from)];
        let mut targets = Vec::new();
        if let Some(chunk) = &plan.between {
            let name = between(number);
            let disk = Disk::plain_chunks(chunk.clone());
            let middle = ArraySchema::new(&name, &schema.shape, schema.element, disk);
            let disk = middle.disk_schema(self.block_bytes())?;
            let (directory, of_middle) = target.store_beside(&middle)?;
            targets.push((of_middle, disk.clone()));
            sources.push((directory, name, disk));
        }
        let last = target.targets()[number].clone();
        let last = match schema.disk {
            Disk::Chunks { .. } => last.leaving_out(schema.fill.element(schema.element)),
            _ => last,
        };
        targets.push((last, to));
        let sources = sources.into_iter().zip(&plan.passes);
        let sources = sources.map(|((place, name, disk), pass)| {
            let cut = with_block_bytes(&disk, pass.source_block_bytes);
            let first = cut.block_at(0, 0);
            let block = first.map_or_else(|| vec![1; schema.shape.len()], |block| block.extents);
            (place, name, block)
        });
        let job = Job {
            path,
            sources: sources.collect(),
            schema,
            plan,
        };
        Ok((job, targets))
    }
}

/// The name of the store between the two passes of an array.
fn between(number: usize) -> String {
    format!("between-{number}")
}

/// Writes a slab to where it goes.
struct SlabDirector {
    slab: Slab,
    /// Whether it is the last of its array.
    is_last: bool,
    way: Pass,
    array: ArrayCall,
    settings: Settings,
    work: Shared,
}

impl Director for SlabDirector {
    fn prepare(&mut self, boxes: RankBoxes) -> Result<Decision> {
        let boxes = boxes_of(&boxes, 0);
        let clients = self.settings.clients;
        let memory = self.array.memory_schema(Operation::Write, boxes, clients)?;
        let (number, pass, _) = self.slab;
        let work = lock(&self.work);
        let Some((target, disk)) = work.as_ref().map(|work| &work.targets[number][pass]) else {
            unreachable!("the first call has made them");
        };
        let disk = with_block_bytes(disk, self.way.target_block_bytes);
        let method = Method::disk_directed();
        let target = Some(target.clone());
        let request = self
            .settings
            .request(Operation::Write, method, memory, disk, target)?;
        let rest = match self.way.cuts_blocks {
            true => Rest::Keep,
            false => Rest::Fill(self.array.schema.fill.bytes().to_vec()),
        };
        Ok(Decision::Serve(vec![Request { rest, ..request }]))
    }

    fn conclude(&mut self, outcome: Result<Done>) -> Result<Moved> {
        let done = outcome?;
        if let Some(work) = &mut *lock(&self.work) {
            work.target.note_done(self.slab)?;
            if self.is_last {
                work.target.remove_beside(&between(self.slab.0))?;
            }
        }
        Ok(done.moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_read_as_they_are_written() {
        for (text, extents) in [
            ("64", Extents::InOrder(vec![Some(64)])),
            ("1,-1,512", Extents::InOrder(vec![Some(1), None, Some(512)])),
            (
                "time=1,lat=-1",
                Extents::ByName(vec![
                    ("time".to_string(), Some(1)),
                    ("lat".to_string(), None),
                ]),
            ),
        ] {
            assert_eq!(text.parse(), Ok(extents.clone()));
            assert_eq!(extents.to_string(), text);
        }
        for text in ["", ",", "1,", "1,x", "-2", "time=", "time=1,2", "time=1.5"] {
            assert!(text.parse::<Extents>().is_err(), "{text}");
        }
    }
}
