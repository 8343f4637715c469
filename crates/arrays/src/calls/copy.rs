//! Copying arrays and whole data sets into another arrangement, out of core: server-directed I/O
//! from disk to disk.
//!
//! | module | what it holds |
//! |---|---|
//! | `options` | what a user says about a copy |
//! | `contents` | what of a source is copied, and what becomes of it |
//! | `job` | jobs, one an array, and the writes of their slabs |
//! | [`plan`] | the slabs in which an array is copied: pure |
//! | `walk` | one rank's way through the slabs |
//!
//! Each array goes through the memories of the ranks slab by slab: one collective read of a region,
//! one collective write of it. Ranks share a slab evenly. In memory it lies such that the source's
//! blocks are long runs; the servers transpose when they gather the target's.
//!
//! What is written goes under a temporary name until all of it is there. Beside it a journal says
//! what it is and which slabs are done, so that the same command goes on where a killed one has
//! stopped. (Journal and slabs are synced in that agenda only if the session syncs.)
//!
//! Chunks that hold nothing but the fill value are not stored. An array whose elements or codecs
//! Penstock does not understand keeps its chunk files as they are.

mod contents;
mod job;
mod options;
pub mod plan;
mod walk;

use std::path::{Path, PathBuf};

use penstock_engine::{Ask, Error, Kind, Result};
use penstock_layout::DiskSchema;

use self::contents::{Contents, Item};
use self::job::{Agenda, Job, Shared, Work, between, lock};
pub use self::options::{Extents, Form, MEMORY_BYTES, Options};
use self::plan::{Plan, Resources, with_block_bytes};
use self::walk::Walk;
use super::session::Session;
use super::settings::{SessionOptions, Settings};
use crate::write::CopyTarget;
use crate::{ArraySchema, Progress, Storage, Target};

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

impl Session {
    /// Copies what is at `source` to `target`: an array, a group with all that is in it, or arrays
    /// of it. It is there when all of it is. `tell` hears, on each rank, of the bytes that are
    /// copied, at first those of a former attempt.
    ///
    /// # Errors
    /// The same on all ranks: as [`Session::read`] and [`Session::write`]; [`Kind::Schema`] when
    /// the target's schema does not fit, when something is at the target that may not be replaced,
    /// or the memory is too little. What is done is kept for another attempt, unless it fails
    /// before the first slab. What `tell` says, on this rank alone: it takes no part in the copy
    /// any more, and must leave the session.
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
        let agenda: Agenda = self.decide(options.ask(source, target), move || begin.agenda())?;
        let mut walk = Walk::new(self, &agenda, &work);
        let bytes_moved = |job: &Job| job.schema.bytes() * job.plan.passes.len() as u64;
        tell(Progress::All(agenda.jobs.iter().map(bytes_moved).sum()))?;
        let mut read_bytes = 0;
        let mut slabs = 0;
        for (number, job) in agenda.jobs.iter().enumerate() {
            for (pass, way) in job.plan.passes.iter().enumerate() {
                let of_pass = walk::slabs_of(&job.schema.shape, &way.slab);
                for (index, slab) in of_pass.enumerate() {
                    slabs += 1;
                    let place = (number, pass, index as u64);
                    if !agenda.done.contains(&place) {
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
            bytes: agenda.jobs.iter().map(|job| job.schema.bytes()).sum(),
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
        })
    }
}

/// Copies on so many threads of this process, as [`Session::copy`] does it. `tell` hears of it from
/// one of them; where it fails, and whenever `interrupt` says so, the copy is given up, and what is
/// done is kept for another attempt.
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
        let target = CopyTarget::create_or_resume(&self.target, &contents.goal(), &journal)?;
        let (mut jobs, mut targets) = (Vec::new(), Vec::new());
        for (number, (item, plan)) in contents.items.into_iter().zip(plans).enumerate() {
            let (job, of_job) = self.job(number, item, plan, &target)?;
            jobs.push(job);
            targets.push(of_job);
        }
        let done = target.done().iter().copied().collect();
        *lock(&self.work) = Some(Work { target, targets });
        Ok(Agenda {
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
        let means = Resources {
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
            let disk = Storage::plain_chunks(chunk.clone());
            let middle = ArraySchema::new(&name, &schema.shape, schema.element, disk);
            let disk = middle.disk_schema(self.block_bytes())?;
            let (directory, of_middle) = target.store_beside(&middle)?;
            targets.push((of_middle, disk.clone()));
            sources.push((directory, name, disk));
        }
        let last = target.targets()[number].clone();
        let last = match schema.disk {
            Storage::Chunks { .. } => last.leaving_out(schema.fill.element(schema.element)),
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
