//! The director of calls in which servers work on the elements of a stored array: of selections and
//! reductions.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use penstock_engine::{
    Decision, Director, Operation, RankParts, Request, Result, Sifting, Tally, Traffic,
};
use penstock_layout::DiskSchema;
use serde::{Deserialize, Serialize};

use super::array::{ArrayCall, all_boxes};
use super::desk::Desk;
use super::errand::{Errand, Topic};
use super::settings::{Method, Settings};
use super::write::boxes_of;
use crate::StoredArray;
use crate::expression::Condition;
use crate::formats::spread::of_server;
use crate::groups::bounds_of;
use crate::read::Witness;
use crate::sieve::{Recipients, SieveOrder, Work};

/// The errand of work at the servers.
#[derive(Serialize, Deserialize)]
pub(super) struct SiftErrand {
    /// The path of the array itself, of its group, or of its file.
    path: PathBuf,
    array: ArrayCall,
    work: Work,
}

impl SiftErrand {
    pub(super) fn new(path: PathBuf, array: ArrayCall, work: Work) -> Self {
        Self { path, array, work }
    }
}

impl Errand for SiftErrand {
    fn topic(&self) -> Topic {
        match self.work {
            Work::Select { .. } | Work::Count { .. } => Topic::Select,
            Work::Reduce(_) => Topic::Reduce,
        }
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.path]
    }

    fn director(self, desk: &Arc<Desk>) -> Box<dyn Director + Send> {
        Box::new(SiftDirector {
            errand: self,
            settings: desk.settings.clone(),
            witness: None,
        })
    }
}

/// Opens the stored array, and tells servers what to do with its elements.
struct SiftDirector {
    errand: SiftErrand,
    settings: Settings,
    witness: Option<Witness>,
}

impl SiftDirector {
    /// What servers are to do.
    ///
    /// # Errors
    /// When they cannot do it to this array.
    fn sifting(&self, stored: &StoredArray, disk: &DiskSchema) -> Result<Sifting> {
        let SiftErrand { array, work, .. } = &self.errand;
        let (called, there) = (&array.schema, stored.schema());
        let dims = called.dimension_names.clone();
        let mut order = SieveOrder {
            name: called.name.clone(),
            element: called.element.clone(),
            shape: called.shape.clone(),
            dims: dims.or_else(|| there.dimension_names.clone()),
            ruled_out: Vec::new(),
            work: work.clone(),
        };
        order.check()?;
        if let Some(condition) = work.condition() {
            let condition = Condition::read(condition, &order.scope())?;
            order.ruled_out = ruled_out(&condition, stored, disk)?;
        }
        let is_dealt = matches!(
            work,
            Work::Select {
                recipients: Recipients::Evenly,
                ..
            }
        );
        Ok(Sifting {
            words: order.words()?,
            is_dealt,
        })
    }
}

/// The objects whose stored bounds leave no element for which a condition could hold.
fn ruled_out(
    condition: &Condition,
    stored: &StoredArray,
    disk: &DiskSchema,
) -> Result<Vec<Range<u64>>> {
    let mut ruled_out: Vec<Range<u64>> = Vec::new();
    if !condition.looks_at_elements() {
        return Ok(ruled_out); // servers see by its place what a block has
    }
    let bounds = bounds_of(stored, disk)?.unwrap_or_default();
    for (object, bounds) in (0..).zip(bounds) {
        if bounds.is_none() || condition.may_hold(bounds, &disk.object_region(object)) {
            continue;
        }
        match ruled_out.last_mut() {
            Some(last) if last.end == object => last.end += 1,
            _ => ruled_out.push(object..object + 1),
        }
    }
    Ok(ruled_out)
}

impl Director for SiftDirector {
    fn prepare(&mut self, parts: RankParts) -> Result<Decision> {
        let SiftErrand { path, array, work } = &self.errand;
        let witness = Witness::of(&of_server(path, 0), &array.schema.name);
        let stored = array.open_stored(path);
        let stored = stored.or_else(|error| witness.check().and(Err(error)))?;
        let clients = self.settings.clients;
        let holders = match work {
            Work::Select { .. } | Work::Count { .. } => {
                array.holders(Operation::Read, boxes_of(&parts, 0), clients)?
            }
            // Rank 0 stands for all.
            Work::Reduce(reduction) => {
                let region = vec![(0, vec![reduction.region.clone()])];
                all_boxes(&array.schema.shape, region, clients, true)?
            }
        };
        let disk = stored.disk_schema(self.settings.options.block_bytes)?;
        let sifting = self.sifting(&stored, &disk)?;
        let target = Some(stored.target().clone());
        let read = self.settings.request(
            Operation::Read,
            Method::disk_directed(),
            holders,
            disk,
            target,
        )?;
        self.witness = Some(witness);
        Ok(Decision::Serve(vec![Request {
            sifting: Some(sifting),
            ..read
        }]))
    }

    fn conclude(&mut self, outcome: Result<Tally>) -> Result<Traffic> {
        self.witness.iter().try_for_each(Witness::check)?;
        outcome.map(|done| done.moved)
    }
}
