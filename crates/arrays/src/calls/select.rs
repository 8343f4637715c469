//! Selects elements of arrays: the call of every rank. The director is that of `sifted`.

use std::path::Path;
use std::sync::Arc;

use penstock_engine::{Catch, Operation, Result, Traffic};

use super::array::ArrayCall;
use super::ask::Ask;
use super::errand::Direction;
use super::session::Session;
use super::settings::Report;
use super::sifted::SiftErrand;
use crate::ElementType;
use crate::expression::Scope;
use crate::sieve::{CountCatch, Fields, Recipients, SampledKey, SelectCatch, Work, parts_for};

/// The runs of a sample, and the elements of each: where runs lie, chance has less to say than
/// their number. A run is at most a block for servers to read.
const SAMPLE_RUNS: u64 = 128;
const SAMPLE_RUN: u64 = 512;

/// The options of a selection.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectOptions {
    /// The condition on the elements: the grammar is at the head of `crate::expression`.
    pub condition: String,
    /// The fields that are wanted of records, in this order; all without.
    pub fields: Option<Vec<String>>,
    /// To whom elements go.
    pub recipients: Recipients,
}

/// The elements of one rank that a selection has found.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectedElements {
    /// The indices of the elements in the array, one element after the other, in row-major order.
    pub indices: Vec<i64>,
    /// The type of what is selected: of the elements, or of some of their fields.
    pub element: ElementType,
    /// The bytes of the elements, in the machine's byte order.
    pub values: Vec<u8>,
    /// What servers moved: `bytes` are those that they sent to all ranks.
    pub report: Report,
}

impl Session {
    /// Selects the elements of an array at `path` that satisfy a condition: servers look at the
    /// elements, and send each rank those that it holds, or deal them out evenly or by a value.
    /// Disk-directed. What ranks get is in the order of the array.
    ///
    /// An element that several ranks hold goes to each of them, once; if elements are dealt out,
    /// each goes to one rank. Dealt out evenly, the numbers of any two ranks differ by one at most.
    /// A rank's memory is not touched.
    ///
    /// Clients of servers that stand do not reach each other: then the servers count first, and an
    /// even deal reads twice.
    ///
    /// # Errors
    /// The same on all ranks: as [`Session::read`]; [`penstock_engine::Kind::Schema`] for a
    /// condition that makes no sense, with the column; [`penstock_engine::Kind::Busy`] when
    /// elements that satisfy it came or went after they were counted.
    ///
    /// # Collective
    /// Over all clients.
    pub fn select(
        &self,
        path: &Path,
        array: &ArrayCall,
        options: SelectOptions,
    ) -> Result<SelectedElements> {
        self.flush_changed()?;
        if let Err(error) = self.check_outstanding(Operation::Read, path, array) {
            return Err(self.refuse(error));
        }
        let SelectOptions {
            condition,
            fields,
            recipients,
        } = options;
        let (shape, element) = (&array.schema.shape, &array.schema.element);
        let wanted = Fields::of(element, fields.as_deref()).map_err(|error| self.refuse(error))?;
        let ask = Ask::Select {
            path: path.into(),
            array: array.ask(),
            condition: condition.clone(),
            fields: fields.clone(),
            recipients: recipients.clone(),
        };
        let (ranks, servers) = (self.clients(), self.servers());
        let sift = |work: Work, catch: Arc<dyn Catch>| {
            let errand = SiftErrand::new(path.to_path_buf(), array.clone(), work);
            self.sift(ask.clone(), array, Direction::of(errand), catch)
        };
        let mut catch = SelectCatch::new(shape, &wanted.element, servers);
        let (mut recipients, mut counted) = (recipients, None);
        if recipients == Recipients::Evenly && self.party().stands {
            let parts = parts_for(ranks);
            let work = Work::Count {
                condition: condition.clone(),
                parts,
            };
            let counts = Arc::new(CountCatch::new(shape, parts, servers));
            counted = Some(sift(work, counts.clone())?);
            let mut dues = counts.counts()?.dues(ranks);
            recipients = Recipients::Ranges(dues.iter().map(|due| due.places.clone()).collect());
            if let Some(rank) = self.rank() {
                catch = catch.with_due(dues.swap_remove(rank));
            }
        }
        let work = Work::Select {
            condition,
            fields,
            recipients,
            ranks,
        };
        let catch = Arc::new(catch);
        let mut report = sift(work, catch.clone())?;
        if let Some(counted) = counted {
            report.bytes += counted.bytes;
            report.seconds += counted.seconds;
            report.moved = Traffic {
                buffer_bytes: report.moved.buffer_bytes,
                ..report.moved.and(&counted.moved)
            };
        }
        let selected = catch.take_result()?;
        Ok(SelectedElements {
            indices: selected.indices(shape),
            element: wanted.element,
            values: selected.values,
            report,
        })
    }

    /// Splitters by which a value of the elements of an array deals them out evenly, but for
    /// chance: one fewer than ranks, for [`Recipients::ByValue`]. They come from some runs of
    /// elements, evenly spread over the array, of those that satisfy the condition. The same on all
    /// ranks. An expression has the names of dimensions that the call gives.
    ///
    /// # Errors
    /// As [`Session::select`].
    ///
    /// # Collective
    /// Over all clients.
    pub fn sampled_splitters(
        &self,
        path: &Path,
        array: &ArrayCall,
        condition: String,
        expression: &str,
    ) -> Result<Vec<f64>> {
        let (schema, ranks) = (&array.schema, self.clients());
        let names = schema.dimension_names.as_deref();
        let scope = Scope::new(&schema.name, &schema.element, names, schema.shape.len());
        let by = SampledKey::new(expression, ranks, &scope);
        let prepared = by.and_then(|by| Ok((by, array.sample(SAMPLE_RUNS, SAMPLE_RUN)?)));
        let (by, sample) = prepared.map_err(|error| self.refuse(error))?;
        let options = SelectOptions {
            condition,
            fields: None,
            recipients: Recipients::Holders,
        };
        let SelectedElements {
            indices, values, ..
        } = self.select(path, &sample, options)?;
        by.splitters(&values, &indices, schema)
    }
}
