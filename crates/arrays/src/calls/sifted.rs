//! The director of calls in which servers work on the elements of a stored array: of selections and
//! reductions.

use std::path::PathBuf;
use std::sync::Arc;

use penstock_engine::{
    Decision, Director, Operation, RankParts, Request, Result, Sifting, Tally, Traffic,
};
use serde::{Deserialize, Serialize};

use super::array::{ArrayCall, all_boxes};
use super::desk::Desk;
use super::errand::{Errand, Topic};
use super::settings::{Method, Settings};
use super::write::boxes_of;
use crate::StoredArray;
use crate::formats::spread::of_server;
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
            Work::Select { .. } => Topic::Select,
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
    fn sifting(&self, stored: &StoredArray) -> Result<Sifting> {
        let SiftErrand { array, work, .. } = &self.errand;
        let (called, there) = (&array.schema, stored.schema());
        let dims = called.dimension_names.clone();
        let order = SieveOrder {
            name: called.name.clone(),
            element: called.element.clone(),
            shape: called.shape.clone(),
            dims: dims.or_else(|| there.dimension_names.clone()),
            work: work.clone(),
        };
        order.check()?;
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

impl Director for SiftDirector {
    fn prepare(&mut self, parts: RankParts) -> Result<Decision> {
        let SiftErrand { path, array, work } = &self.errand;
        let witness = Witness::of(&of_server(path, 0), &array.schema.name);
        let stored = array.open_stored(path);
        let stored = stored.or_else(|error| witness.check().and(Err(error)))?;
        let sifting = self.sifting(&stored)?;
        let clients = self.settings.clients;
        let holders = match work {
            Work::Select { .. } => array.holders(Operation::Read, boxes_of(&parts, 0), clients)?,
            // Rank 0 stands for all.
            Work::Reduce(reduction) => {
                let region = vec![(0, vec![reduction.region.clone()])];
                all_boxes(&array.schema.shape, region, clients, true)?
            }
        };
        let disk = stored.disk_schema(self.settings.options.block_bytes)?;
        let target = Some(stored.target().clone());
        let way = Method::disk_directed().way();
        let read = self
            .settings
            .request(Operation::Read, way, holders, disk, target)?;
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
