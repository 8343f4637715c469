//! Selections where the data are: servers deliver the elements that satisfy a condition.
//!
//! What goes to a rank of one block is a parcel of elements in the order of the array: how many
//! they are, the bytes of their places, the places, and the elements themselves, one behind the
//! other. A place is told by its distance from the one before, so that most take one byte:
//!
//! ```text
//! elements 5, 9 and 300 of an array of int16     3 | 4 | 5 4 163 2 | six bytes
//! ```
//!
//! A rank collects parcels, and sorts them when all have come. If the elements are dealt out
//! evenly, servers first deliver each rank an equal part of the array's places, so that what all
//! ranks have is in order; the ranks then deal ([`penstock_engine::Catch`]). Where they do not
//! reach each other, elements are counted first ([`super::count`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_engine::{Addressee, Catch, Delivery, Error, Kind, Portion, Result};
use penstock_layout::{Block, exact};
use penstock_machines::BlockSieve;

use super::numbers::{Reading, put, refusal};
use super::recipients::Deal;
use super::runs::{Run, Runs, indices_of};
use crate::dtype::{ElementType, Record};
use crate::expression::{Column, Condition, Elements, Expression};

/// The elements that are looked at together: they and what is computed of them stay in the caches
/// of a processor.
const COLUMN_ELEMENTS: usize = 2048;

/// The sieve of a selection on one server.
pub(super) struct SelectSieve {
    pub(super) condition: Condition,
    pub(super) fields: Fields,
    /// To whom elements go, if not to who holds them.
    pub(super) deal: Option<Deal>,
    pub(super) shape: Vec<u64>,
    /// The objects for which the condition holds nowhere: [`super::SieveOrder::ruled_out`].
    pub(super) ruled_out: Vec<Range<u64>>,
}

/// The elements of one rank, on their way.
#[derive(Default)]
struct Parcel {
    count: u64,
    /// The place of the last element.
    last: u64,
    places: Vec<u8>,
    values: Vec<u8>,
}

impl Parcel {
    /// Adds some bytes of an element.
    fn push(&mut self, place: u64, value: &[u8], parts: &[Range<usize>]) {
        put(&mut self.places, place - self.last);
        self.last = place;
        self.count += 1;
        for part in parts {
            self.values.extend_from_slice(&value[part.clone()]);
        }
    }

    fn deliver(&self, rank: usize) -> Delivery {
        let mut bytes = Vec::with_capacity(self.places.len() + self.values.len() + 16);
        put(&mut bytes, self.count);
        put(&mut bytes, self.places.len() as u64);
        bytes.extend_from_slice(&self.places);
        bytes.extend_from_slice(&self.values);
        let to = Addressee::Rank(rank);
        Delivery { to, bytes }
    }
}

impl BlockSieve for SelectSieve {
    fn wants(&self, block: &Block) -> bool {
        let before = self
            .ruled_out
            .partition_point(|range| range.end <= block.object);
        let is_ruled_out = self.ruled_out.get(before);
        !is_ruled_out.is_some_and(|range| range.contains(&block.object))
            && self.condition.may_hold(None, &block.region)
    }

    fn sift(&self, block: &Block, portions: &[Portion], data: &[u8]) -> Result<Vec<Delivery>> {
        let parts = &self.fields.parts;
        let mut parcels: BTreeMap<usize, Parcel> = BTreeMap::new();
        if self.deal.is_some() {
            self.each_dealt(block, portions, data, &mut |place, value, rank| {
                parcels.entry(rank).or_default().push(place, value, parts);
            })?;
        } else {
            let find = Runs::new(block, &self.shape, self.fields.width);
            let mut by_rank: Vec<&Portion> = portions.iter().collect();
            by_rank.sort_by_key(|portion| portion.rank);
            for own in by_rank.chunk_by(|one, next| one.rank == next.rank) {
                let parcel = parcels.entry(own[0].rank).or_default();
                let runs = find.of(own.iter().copied());
                self.each(&runs, data, &mut |place, value, _| {
                    parcel.push(place, value, parts);
                })?;
            }
        }
        let all = parcels.iter().filter(|(_, parcel)| parcel.count > 0);
        Ok(all.map(|(rank, parcel)| parcel.deliver(*rank)).collect())
    }

    fn rest(&self) -> Result<Option<Delivery>> {
        Ok(None)
    }
}

impl SelectSieve {
    /// Tells of each element of a block that satisfies the condition and that some rank holds: its
    /// place in the array, its bytes, and the rank to whom it is dealt.
    pub(super) fn each_dealt(
        &self,
        block: &Block,
        portions: &[Portion],
        data: &[u8],
        tell: &mut dyn FnMut(u64, &[u8], usize),
    ) -> Result<()> {
        let find = Runs::new(block, &self.shape, self.fields.width);
        self.each(&find.of(portions), data, tell)
    }

    /// Tells of each element of the runs that satisfies the condition: its place in the array, its
    /// bytes, and each rank to whom it is dealt; 0 without a deal.
    fn each(
        &self,
        runs: &[Run],
        data: &[u8],
        tell: &mut dyn FnMut(u64, &[u8], usize),
    ) -> Result<()> {
        let mut batch = Batch::default();
        for run in runs {
            let mut rest = *run;
            while rest.count > 0 {
                let room = COLUMN_ELEMENTS - batch.count;
                let (now, later) = rest.split(room.min(rest.count));
                batch.count += now.count;
                batch.runs.push(now);
                rest = later;
                if batch.count == COLUMN_ELEMENTS {
                    self.tell_of(&mut batch, data, tell)?;
                }
            }
        }
        self.tell_of(&mut batch, data, tell)
    }

    /// Tells of the elements of a batch, and empties it.
    fn tell_of(
        &self,
        batch: &mut Batch,
        data: &[u8],
        tell: &mut dyn FnMut(u64, &[u8], usize),
    ) -> Result<()> {
        let Batch { runs, count, bytes } = batch;
        if *count == 0 {
            return Ok(());
        }
        let width = self.fields.width;
        bytes.clear();
        runs.iter().for_each(|run| run.copy_to(bytes, data, width));
        let condition = self.condition.expression();
        let truths = self.condition.holds(
            &Elements {
                values: &condition.columns(bytes, width),
                indices: &self.indices(condition, runs, *count),
            },
            *count,
        )?;
        let ranks = match &self.deal {
            Some(Deal::ByValue(key)) if truths.contains(&true) => {
                let values = key.expression.columns(bytes, width);
                let indices = self.indices(&key.expression, runs, *count);
                let elements = Elements {
                    values: &values,
                    indices: &indices,
                };
                Some(key.ranks(&*key.expression.values(&elements)?, *count))
            }
            _ => None,
        };
        let mut at = 0;
        for run in runs.iter() {
            let own = &truths[at..at + run.count];
            for (nth, _) in own.iter().enumerate().filter(|(_, truth)| **truth) {
                let (place, byte) = (run.first + nth as u64, (at + nth) * width);
                let value = &bytes[byte..byte + width];
                match (&self.deal, &ranks) {
                    (Some(Deal::Evenly(parts)), _) => tell(place, value, parts.part_of(place)),
                    (Some(Deal::Ranges(ranges)), _) => ranges
                        .ranks_of(place)
                        .for_each(|rank| tell(place, value, rank)),
                    (_, Some(ranks)) => tell(place, value, ranks[at + nth]),
                    _ => tell(place, value, 0),
                }
            }
            at += run.count;
        }
        runs.clear();
        *count = 0;
        Ok(())
    }

    /// The indices of the elements of runs along each dimension that the expression looks at.
    fn indices(&self, expression: &Expression, runs: &[Run], count: usize) -> Vec<Column> {
        let dims = self.shape.len();
        let is_looked_at: Vec<bool> = (0..dims).map(|dim| expression.looks_at(dim)).collect();
        let mut columns: Vec<Vec<i64>> = is_looked_at
            .iter()
            .map(|is| Vec::with_capacity(if *is { count } else { 0 }))
            .collect();
        if is_looked_at.contains(&true) {
            let mut indices = vec![0; dims];
            for run in runs {
                indices_of(&self.shape, run.first, &mut indices);
                for _ in 0..run.count {
                    for (dim, column) in columns.iter_mut().enumerate() {
                        if is_looked_at[dim] {
                            column.push(exact::<i64>(indices[dim]));
                        }
                    }
                    next(&self.shape, &mut indices);
                }
            }
        }
        columns.into_iter().map(Column::I8).collect()
    }
}

/// Elements that are looked at together.
#[derive(Default)]
struct Batch {
    runs: Vec<Run>,
    count: usize,
    bytes: Vec<u8>,
}

/// The indices of the next element, in row-major order.
fn next(shape: &[u64], indices: &mut [u64]) {
    for (index, &extent) in indices.iter_mut().zip(shape).rev() {
        *index += 1;
        if *index < extent {
            return;
        }
        *index = 0;
    }
}

/// The fields of elements that are delivered, one behind the other; all, if elements are no
/// records.
pub(crate) struct Fields {
    /// The type of what is delivered.
    pub(crate) element: ElementType,
    /// The bytes of an element.
    width: usize,
    /// The bytes of the fields in an element.
    parts: Vec<Range<usize>>,
}

impl Fields {
    /// The fields of these names, in this order; all of the element without names.
    ///
    /// # Errors
    /// [`Kind::Schema`] for elements without fields, for a name that is none, and for one that is
    /// given twice.
    pub(crate) fn of(element: &ElementType, names: Option<&[String]>) -> Result<Self> {
        let width = exact::<usize>(element.width());
        let Some(names) = names else {
            return Ok(Self {
                element: element.clone(),
                width,
                parts: std::iter::once(0..width).collect(),
            });
        };
        let wrong = |cause: String| Error::new(Kind::Schema, "selecting fields", cause);
        let record = element
            .record()
            .ok_or_else(|| wrong(format!("elements are {element}, which has none")))?;
        let (mut fields, mut parts) = (Vec::new(), Vec::new());
        for name in names {
            let there_are = || {
                wrong(format!(
                    "there is no '{name}': there are {}",
                    record.names()
                ))
            };
            let (field, start) = record.field(name).ok_or_else(there_are)?;
            let bytes = field.element.width() * field.count();
            parts.push(exact::<usize>(start)..exact::<usize>(start + bytes));
            fields.push(field.clone());
        }
        Ok(Self {
            element: ElementType::Record(Arc::new(Record::new(fields)?)),
            width,
            parts,
        })
    }
}

/// Elements with their places, in the order of the array.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PlacedElements {
    /// The number of each element in the row-major order of the array.
    pub(crate) places: Vec<u64>,
    /// The bytes of the elements, in the machine's byte order.
    pub(crate) values: Vec<u8>,
}

impl PlacedElements {
    /// The indices of the elements, one row after the other.
    pub(crate) fn indices(&self, shape: &[u64]) -> Vec<i64> {
        let mut all = Vec::with_capacity(self.places.len() * shape.len());
        let mut indices = vec![0; shape.len()];
        for place in &self.places {
            indices_of(shape, *place, &mut indices);
            all.extend(indices.iter().map(|index| exact::<i64>(*index)));
        }
        all
    }

    /// Leaves the elements with these numbers among them.
    fn keep(&mut self, numbers: Range<u64>, width: usize) {
        let (start, end) = (exact::<usize>(numbers.start), exact::<usize>(numbers.end));
        self.places.truncate(end);
        self.places.drain(..start);
        self.values.truncate(end * width);
        self.values.drain(..start * width);
    }

    /// Adds the parcels of a server: elements of `width` bytes, of an array with `elements` of
    /// them.
    fn add(&mut self, stream: &[u8], (elements, width): (u64, usize)) -> Result<()> {
        let mut reading = Reading(stream);
        while !reading.is_at_end() {
            let (count, bytes) = (reading.count()?, reading.count()?);
            let mut places = Reading(reading.bytes(bytes)?);
            let mut place = 0u64;
            for nth in 0..count {
                let step = places.number()?;
                let next = place.checked_add(step).filter(|next| *next < elements);
                place = next.ok_or_else(|| refusal("an element lies beyond the array"))?;
                if step == 0 && nth > 0 {
                    return Err(refusal("an element comes twice"));
                }
                self.places.push(place);
            }
            if !places.is_at_end() {
                return Err(refusal("there are more places than elements"));
            }
            let bytes = count.checked_mul(width);
            let bytes = bytes.ok_or_else(|| refusal("a number is too large"))?;
            self.values.extend_from_slice(reading.bytes(bytes)?);
        }
        Ok(())
    }

    /// Brings the elements into the order of the array.
    fn sort(&mut self, width: usize) {
        if self.places.is_sorted() {
            return;
        }
        let numbered = self.places.iter().copied().zip(0usize..);
        let mut order: Vec<(u64, usize)> = numbered.collect();
        // What each server delivers is mostly in order: this sort finds such runs, and merges them.
        order.sort_by_key(|(place, _)| *place);
        let mut values = Vec::with_capacity(self.values.len());
        for (_, at) in &order {
            values.extend_from_slice(&self.values[at * width..(at + 1) * width]);
        }
        self.values = values;
        self.places = order.into_iter().map(|(place, _)| place).collect();
    }
}

/// What a rank is to have of an even deal of elements that were counted before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// The elements that it gets: their numbers in the row-major order of the array lie in this
    /// range.
    pub(crate) places: Range<u64>,
    /// How many selected elements lie there.
    pub(crate) delivered: u64,
    /// The elements that are its own, by their numbers among these.
    pub(crate) own: Range<u64>,
}

/// What one rank gets of a selection.
pub(crate) struct SelectCatch {
    elements: u64,
    width: usize,
    /// What it is to have, if elements were counted before.
    due: Option<Due>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What each server has delivered.
    streams: Vec<Vec<u8>>,
    /// What has come, once it is sorted.
    got: Option<PlacedElements>,
    /// What this rank has after the deal.
    dealt: Option<PlacedElements>,
}

impl SelectCatch {
    /// What a rank gets of an array from this number of servers.
    pub(crate) fn new(shape: &[u64], element: &ElementType, servers: usize) -> Self {
        let state = State {
            streams: vec![Vec::new(); servers],
            ..State::default()
        };
        Self {
            elements: shape.iter().fold(1, |all: u64, n| all.saturating_mul(*n)),
            width: exact::<usize>(element.width()),
            due: None,
            state: Mutex::new(state),
        }
    }

    /// The same for a rank that is to have some of what it gets, of elements that were counted
    /// before.
    pub(crate) fn with_due(self, due: Due) -> Self {
        let due = Some(due);
        Self { due, ..self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The elements that have come, in order.
    fn sorted<'a>(&self, state: &'a mut State) -> Result<&'a PlacedElements> {
        if state.got.is_none() {
            let mut got = PlacedElements::default();
            for stream in state.streams.drain(..) {
                got.add(&stream, (self.elements, self.width))?;
            }
            got.sort(self.width);
            state.got = Some(got);
        }
        state
            .got
            .as_ref()
            .ok_or_else(|| refusal("nothing has come"))
    }

    /// What this rank has in the end.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Peer`] when servers have delivered something else.
    pub(crate) fn take_result(&self) -> Result<PlacedElements> {
        let mut state = self.state();
        if let Some(dealt) = state.dealt.take() {
            return Ok(dealt);
        }
        self.sorted(&mut state)?;
        let mut got = state.got.take().unwrap_or_default();
        if let Some(due) = &self.due {
            got.keep(due.own.clone(), self.width);
        }
        Ok(got)
    }
}

impl Catch for SelectCatch {
    fn take(&self, server: usize, bytes: &[u8]) -> Result<()> {
        let mut state = self.state();
        let stream = state.streams.get_mut(server);
        stream
            .ok_or_else(|| refusal("there is no such server"))?
            .extend_from_slice(bytes);
        Ok(())
    }

    fn count(&self) -> Result<u64> {
        let mut state = self.state();
        let count = self.sorted(&mut state)?.places.len() as u64;
        match &self.due {
            Some(due) if due.delivered != count => {
                let cause = "elements that satisfy the condition came or went between the count \
                             and the selection: select again";
                Err(Error::new(Kind::Busy, "dealing elements out", cause))
            }
            _ => Ok(count),
        }
    }

    fn cut(&self, records: Range<u64>) -> Result<Vec<u8>> {
        let (start, end) = (exact::<usize>(records.start), exact::<usize>(records.end));
        let mut state = self.state();
        let got = self.sorted(&mut state)?;
        let places = got.places.get(start..end);
        let values = got.values.get(start * self.width..end * self.width);
        let (Some(places), Some(values)) = (places, values) else {
            return Err(refusal("there are no such elements"));
        };
        let mut bytes: Vec<u8> = places
            .iter()
            .flat_map(|place| place.to_le_bytes())
            .collect();
        bytes.extend_from_slice(values);
        Ok(bytes)
    }

    fn keep(&self, records: &[u8]) -> Result<()> {
        let each = size_of::<u64>() + self.width;
        if !records.len().is_multiple_of(each) {
            return Err(refusal("a part of an element has been dealt"));
        }
        let (places, values) = records.split_at(records.len() / each * size_of::<u64>());
        let mut state = self.state();
        let dealt = state.dealt.get_or_insert_default();
        let places = places
            .as_chunks()
            .0
            .iter()
            .map(|place| u64::from_le_bytes(*place));
        dealt.places.extend(places);
        dealt.values.extend_from_slice(values);
        match dealt.places.last() {
            Some(place) if *place >= self.elements => {
                Err(refusal("an element lies beyond the array"))
            }
            _ => Ok(()),
        }
    }
}

impl Run {
    /// The first `count` elements, and the rest.
    fn split(self, count: usize) -> (Self, Self) {
        (Self { count, ..self }, self.after(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parcels_come_back_sorted() {
        let mut one = Parcel::default();
        let mut other = Parcel::default();
        one.push(5, &[1, 0, 2], &[0..1, 2..3]);
        one.push(300, &[3, 0, 4], &[0..1, 2..3]);
        other.push(0, &[5, 0, 6], &[0..1, 2..3]);
        other.push(9, &[7, 0, 8], &[0..1, 2..3]);
        let catch = SelectCatch::new(&[10, 40], &ElementType::I2, 2);
        for parcel in [&one, &other] {
            for byte in parcel.deliver(0).bytes {
                catch.take(1, &[byte]).unwrap();
            }
        }
        assert!(catch.take(2, &[]).is_err());
        assert_eq!(catch.count().unwrap(), 4);
        let cut = catch.cut(1..3).unwrap();
        let taken = catch.take_result().unwrap();
        assert_eq!(taken.places, [0, 5, 9, 300]);
        assert_eq!(taken.values, [5, 6, 1, 2, 7, 8, 3, 4]);
        assert_eq!(taken.indices(&[10, 40]), [0, 0, 0, 5, 0, 9, 7, 20]);
        let dealt = SelectCatch::new(&[10, 40], &ElementType::I2, 2);
        dealt.keep(&cut).unwrap();
        assert!(dealt.keep(&cut[1..]).is_err());
        assert_eq!(dealt.take_result().unwrap().places, [5, 9]);
    }

    #[test]
    fn of_what_was_counted_a_rank_has_its_own_and_sees_what_came_or_went() {
        let due = |delivered| Due {
            places: 0..400,
            delivered,
            own: 1..3,
        };
        let mut parcel = Parcel::default();
        for place in [2, 5, 9, 300] {
            parcel.push(place, &[0, place.to_le_bytes()[0]], &[0..1, 1..2]);
        }
        for (delivered, is_right) in [(4, true), (3, false), (5, false)] {
            let catch = SelectCatch::new(&[400], &ElementType::I2, 1).with_due(due(delivered));
            catch.take(0, &parcel.deliver(0).bytes).unwrap();
            if is_right {
                assert_eq!(catch.count().unwrap(), 4);
                let own = catch.take_result().unwrap();
                assert_eq!((own.places, own.values), (vec![5, 9], vec![0, 5, 0, 9]));
            } else {
                let error = catch.count().unwrap_err();
                assert_eq!(error.kind, Kind::Busy, "{error}");
            }
        }
    }

    #[test]
    fn what_is_no_parcel_is_refused() {
        for (bytes, words) in [
            (vec![1], "ends"),
            (vec![1, 1, 5], "too early"),
            (vec![1, 2, 5, 5, 1, 1], "more places"),
            (vec![2, 1, 5], "ends"),
            (vec![2, 2, 5, 0, 1, 1, 1, 1], "twice"),
            (vec![1, 2, 0x80, 0x10, 0, 0], "beyond"),
            (vec![0xff; 30], "too long"),
        ] {
            let catch = SelectCatch::new(&[20], &ElementType::I2, 1);
            catch.take(0, &bytes).unwrap();
            let error = catch.count().unwrap_err();
            assert!(error.cause.contains(words), "{bytes:?}: {error}");
        }
    }
}
