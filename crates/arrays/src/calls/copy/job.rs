//! The jobs of a copy, one an array, and the writes of their slabs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_engine::{
    Decision, Director, Operation, RankParts, Request, Rest, Result, Tally, Traffic,
};
use penstock_layout::DiskSchema;
use serde::{Deserialize, Serialize};

use super::plan::{Pass, Plan, with_block_bytes};
use crate::calls::array::ArrayCall;
use crate::calls::drafted::in_repository;
use crate::calls::settings::{Method, Settings};
use crate::calls::write::boxes_of;
use crate::write::{CopyTarget, Slab};
use crate::{ElementType, Fill, Target};

/// The agenda of a copy, which the director tells all ranks before the first slab.
#[derive(Serialize, Deserialize)]
pub(super) struct Agenda {
    pub(super) jobs: Vec<Job>,
    pub(super) done: BTreeSet<Slab>,
    pub(super) as_they_are: Vec<String>,
    pub(super) skipped: Vec<String>,
}

/// An array to be copied.
#[derive(Serialize, Deserialize)]
pub(super) struct Job {
    /// The path of the array in the source.
    pub(super) path: String,
    /// The name, extents and elements at the target.
    pub(super) name: String,
    pub(super) shape: Vec<u64>,
    pub(super) element: ElementType,
    pub(super) fill: Fill,
    pub(super) plan: Plan,
    /// The source of each pass: its path, its name, and the extents of a block.
    pub(super) sources: Vec<(PathBuf, String, Vec<u64>)>,
}

impl Job {
    /// The bytes of the array.
    pub(super) fn bytes(&self) -> u64 {
        let elements = self.shape.iter().copied().fold(1, u64::saturating_mul);
        elements.saturating_mul(self.element.width())
    }
}

/// The state of a copy, which the rank that directs keeps from the first call to the last.
pub(super) struct Work {
    pub(super) target: CopyTarget,
    /// The target of each pass of each array.
    pub(super) targets: Vec<Vec<(Target, DiskSchema)>>,
}

pub(super) type Shared = Arc<Mutex<Option<Work>>>;

pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, Option<Work>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of the store between the two passes of an array.
pub(super) fn between(number: usize) -> String {
    format!("between-{number}")
}

/// Directs the write of one slab.
pub(super) struct SlabDirector {
    pub(super) slab: Slab,
    /// Whether the slab is the last of its array.
    pub(super) is_last: bool,
    pub(super) way: Pass,
    pub(super) array: ArrayCall,
    pub(super) settings: Settings,
    pub(super) work: Shared,
}

impl Director for SlabDirector {
    fn prepare(&mut self, parts: RankParts) -> Result<Decision> {
        let boxes = boxes_of(&parts, 0);
        let clients = self.settings.clients;
        let holders = self.array.holders(Operation::Write, boxes, clients)?;
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
            .request(Operation::Write, method, holders, disk, target)?;
        let rest = match self.way.cuts_blocks {
            true => Rest::Keep,
            false => Rest::Fill(self.array.schema.fill.bytes().to_vec()),
        };
        Ok(Decision::Serve(vec![Request { rest, ..request }]))
    }

    fn conclude(&mut self, outcome: Result<Tally>) -> Result<Traffic> {
        let done = outcome.map_err(in_repository)?;
        if let Some(work) = &mut *lock(&self.work) {
            let (number, pass, _) = self.slab;
            let is_between = pass + 1 < work.targets[number].len();
            work.target.merge(is_between, &done.changes)?;
            work.target.note_done(self.slab)?;
            if self.is_last {
                work.target.remove_beside(&between(self.slab.0))?;
            }
        }
        Ok(done.moved)
    }
}
