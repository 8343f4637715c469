//! Copies arrays and whole data sets into another arrangement, out of core: server-directed I/O
//! from disk to disk.
//!
//! | module | what it holds |
//! |---|---|
//! | `options` | the options of a copy |
//! | `contents` | the arrays that a copy moves, and how each is stored at the target |
//! | `schemas` | how an array is stored at the target |
//! | `hdf5` | HDF5 files as sources and targets |
//! | `job` | jobs, one an array, and the writes of their slabs |
//! | [`plan`] | the slabs in which an array is copied: pure |
//! | `walk` | the walk of one rank through the slabs |
//!
//! Each array goes through the memories of the ranks slab by slab: one collective read of a region,
//! one collective write of it. Ranks share a slab evenly. In memory a slab lies such that the
//! source's blocks are long runs; the servers transpose when they gather the target's blocks.
//!
//! A copy is written under a temporary name until all of it is there. A journal beside it describes
//! the copy and lists the slabs that are done, so that the same command goes on where a killed one
//! has stopped. (Slabs and journal are synced in that order only if the session syncs.)
//!
//! Chunks that hold nothing but the fill value are not stored. An array whose elements or codecs
//! Penstock does not understand keeps its chunk files as they are.

mod contents;
mod hdf5;
mod job;
mod options;
pub mod plan;
mod schemas;
mod walk;

use std::path::{Path, PathBuf};

use penstock_bucket::{is_in_repository, is_url, key_of};
use penstock_engine::{Error, Kind, Result};
use penstock_layout::DiskSchema;

use self::contents::{Contents, Item};
use self::job::{Agenda, Job, Shared, Work, between, lock};
pub use self::options::{Extents, Form, MEMORY_BYTES, Options};
use self::plan::{Plan, Resources, with_block_bytes};
use self::walk::Walk;
use super::ask::Ask;
use super::drafted::in_repository;
use super::session::Session;
use super::settings::{SessionOptions, Settings};
use crate::formats::whole_in_bucket;
use crate::write::CopyTarget;
use crate::{ArraySchema, Progress, Storage, Target};

/// The report of a copy.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The bytes of all arrays.
    pub bytes: u64,
    /// The wall time on this rank.
    pub seconds: f64,
    /// The decoded bytes that this attempt read from the source and from the stores in between.
    pub read_bytes: u64,
    /// The slabs of all passes of all arrays.
    pub slabs: u64,
    /// The slabs that a former attempt had done.
    pub slabs_found: u64,
    /// The arrays that were copied, by their paths in the source, each with its plan.
    pub plans: Vec<(String, Plan)>,
    /// What Penstock does not understand, and kept as it was: arrays with their chunk files,
    /// objects of HDF5.
    pub as_they_are: Vec<String>,
    /// What was left out, as the options allow.
    pub skipped: Vec<String>,
}

impl Session {
    /// Copies an array, a group with all of its arrays, or some arrays of a group from `source` to
    /// `target`. The target appears when all of it is written. On each rank, `tell` hears of the
    /// bytes that are copied, first of the bytes that a former attempt copied.
    ///
    /// # Errors
    /// The same on all ranks: as [`Session::read`] and [`Session::write`]; [`Kind::Schema`] when
    /// the target's schema does not fit, when the target exists and may not be replaced, or when
    /// the memory is too little. A failed copy keeps the finished slabs for another attempt, if
    /// there are any. An error of `tell` ends this rank's part alone: the rank must then leave the
    /// session.
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
        let begin = CopyPlanner {
            source: source.to_path_buf(),
            target: target.to_path_buf(),
            options: options.clone(),
            settings: self.settings().clone(),
            work: work.clone(),
        };
        let ask = Ask::Copy {
            source: source.into(),
            target: target.into(),
            options: options.clone(),
        };
        let agenda: Agenda = self.decide(ask, move || begin.agenda())?;
        let mut walk = Walk::new(self, &agenda, &work);
        let bytes_moved = |job: &Job| job.bytes() * job.plan.passes.len() as u64;
        tell(Progress::All(agenda.jobs.iter().map(bytes_moved).sum()))?;
        let mut read_bytes = 0;
        let mut slabs = 0;
        for (number, job) in agenda.jobs.iter().enumerate() {
            for (pass, way) in job.plan.passes.iter().enumerate() {
                let of_pass = walk::slabs_of(&job.shape, &way.slab)?;
                for (index, slab) in of_pass.enumerate() {
                    slabs += 1;
                    let place = (number, pass, index as u64);
                    if !agenda.done.contains(&place) {
                        read_bytes += walk.copy_slab(place, &slab)?;
                    }
                    tell(Progress::More(slab.elements() * job.element.width()))?;
                }
            }
        }
        let words = format!("copy {} to {}", said(source), said(target));
        let end = move || match lock(&work).take() {
            Some(work) => work.target.commit(&words),
            None => Ok(()),
        };
        self.decide(Ask::EndOfCopy, end)?;
        Ok(Report {
            bytes: agenda.jobs.iter().map(|job| job.bytes()).sum(),
            seconds: (self.now() - begun).as_secs_f64(),
            read_bytes,
            slabs,
            slabs_found: agenda.done.len() as u64,
            plans: agenda
                .jobs
                .into_iter()
                .map(|job| (job.path, job.plan))
                .collect(),
            as_they_are: agenda.as_they_are,
            skipped: agenda.skipped,
        })
    }
}

/// Copies on `ranks` threads of this process, as [`Session::copy`] does. One thread calls `tell`.
/// When `tell` fails or `interrupt` is true, the copy stops and keeps the finished slabs for
/// another attempt.
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

/// A path, in the words of a commit: of a place in a repository, its key, or `/` for the root.
fn said(path: &Path) -> String {
    let key = key_of(path).filter(|key| !key.is_empty());
    match is_in_repository(path) {
        true => key.unwrap_or("/").to_string(),
        false => path.display().to_string(),
    }
}

/// Makes or finds the target of a copy, and plans the copy.
struct CopyPlanner {
    source: PathBuf,
    target: PathBuf,
    options: Options,
    settings: Settings,
    work: Shared,
}

impl CopyPlanner {
    fn agenda(&self) -> Result<Agenda> {
        let contents = Contents::find(&self.source, &self.target, &self.options)?;
        let items = contents.items.iter();
        let plans = items
            .map(|item| self.plan(item))
            .collect::<Result<Vec<Plan>>>()?;
        let journal = self.journal(&contents, &plans)?;
        let path = contents.target(&self.target);
        let mut target = CopyTarget::create_or_resume(path, &contents.goal(), &journal)
            .map_err(in_repository)?;
        let (mut jobs, mut targets) = (Vec::new(), Vec::new());
        for (number, (item, plan)) in contents.items.into_iter().zip(plans).enumerate() {
            let (job, of_job) = self.job(number, item, plan, &mut target)?;
            jobs.push(job);
            targets.push(of_job);
        }
        let done = target.done().iter().copied().collect();
        *lock(&self.work) = Some(Work { target, targets });
        Ok(Agenda {
            jobs,
            done,
            as_they_are: contents.as_they_are,
            skipped: contents.skipped,
        })
    }

    fn block_bytes(&self) -> u64 {
        self.settings.options.block_bytes
    }

    fn plan(&self, item: &Item) -> Result<Plan> {
        let from = item.stored.disk_schema(self.block_bytes())?;
        let to = item.schema.disk_schema(self.block_bytes())?;
        let to = whole_in_bucket(&self.target, to)?;
        let means = Resources {
            memory_bytes: self.options.memory_bytes,
            servers: self.settings.servers(),
            writes_whole: is_url(&self.target),
        };
        plan::plan(&from, &to, means).map_err(|error| Error {
            doing: format!("planning a copy of '{}'", item.schema.name),
            ..error
        })
    }

    /// The journal of the copy: two copies have the same journal only if their plans are equal and
    /// the source has not changed between them.
    fn journal(&self, contents: &Contents, plans: &[Plan]) -> Result<String> {
        let mut said = vec![self.source.display().to_string()];
        for (item, plan) in contents.items.iter().zip(plans) {
            let of_item = serde_json::to_string(&(&item.path, &item.schema, plan));
            said.push(of_item.map_err(|e| Error::new(Kind::Io, "describing a copy", e))?);
            said.push(item.stored.target().stamp()?);
        }
        said.extend(contents.words()?);
        Ok(said.join("\n"))
    }

    /// The job of one array for the ranks, and the targets that servers write in its passes.
    fn job(
        &self,
        number: usize,
        item: Item,
        plan: Plan,
        target: &mut CopyTarget,
    ) -> Result<(Job, Vec<(Target, DiskSchema)>)> {
        let Item {
            path,
            place,
            stored,
            schema,
        } = item;
        let from = stored.disk_schema(self.block_bytes())?;
        let to = whole_in_bucket(&self.target, schema.disk_schema(self.block_bytes())?)?;
        let mut sources = vec![(place, stored.schema().name.clone(), from)];
        let mut targets = Vec::new();
        if let Some(chunk) = &plan.between {
            let name = between(number);
            let disk = Storage::plain_chunks(chunk.clone());
            let middle = ArraySchema::new(&name, &schema.shape, schema.element.clone(), disk);
            let disk = whole_in_bucket(&self.target, middle.disk_schema(self.block_bytes())?)?;
            let (directory, of_middle) = target.store_beside(&middle)?;
            targets.push((of_middle, disk.clone()));
            sources.push((directory, name, disk));
        }
        let last = target.targets()[number].clone();
        let last = match schema.disk {
            Storage::Chunks { .. } => last.leaving_out(schema.fill.element(&schema.element)),
            // Only chunks that are encoded may be missing.
            Storage::Hdf5 { .. } if !schema.disk.writes_parts() => {
                last.leaving_out(schema.fill.element(&schema.element))
            }
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
            name: schema.name,
            shape: schema.shape,
            element: schema.element,
            fill: schema.fill,
            plan,
        };
        Ok((job, targets))
    }
}
