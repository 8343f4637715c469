//! The counts of selected elements in the parts of an array: what an even deal needs to know where
//! ranks cannot pass elements on to each other.
//!
//! Servers tell all ranks how many selected elements lie in each part that has any: the distance of
//! the part from the one before, and the number. Of 400 elements in 4 parts:
//!
//! ```text
//! selected are elements 5, 9 and 300     0 2 | 3 1
//! ```
//!
//! All ranks add up what all servers tell, so all know which rank is to have which of the selected
//! elements, and in which parts of the array these lie. A second selection delivers each rank what
//! lies in its parts. Only the first and the last of them have elements of other ranks, which are
//! cut off: at most what two parts have crosses the network in vain for each rank.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use penstock_engine::{Addressee, Catch, Delivery, Portion, Result, equal_part};
use penstock_layout::Block;
use penstock_machines::BlockSieve;

use super::numbers::{Reading, put, refusal};
use super::select::{Due, SelectSieve};

/// The parts of an array for each rank, and for few ranks.
const PARTS_PER_RANK: usize = 64;
const PARTS_MIN: usize = 4096;

/// The number of parts in which elements are counted, for this number of ranks.
pub(crate) fn parts_for(ranks: usize) -> usize {
    ranks.saturating_mul(PARTS_PER_RANK).max(PARTS_MIN)
}

/// The sieve of a count on one server.
pub(super) struct CountSieve {
    /// It deals out elements evenly, to parts.
    pub(super) selecting: SelectSieve,
    /// The number of selected elements of each part that has any.
    pub(super) counts: Mutex<BTreeMap<usize, u64>>,
}

impl CountSieve {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<usize, u64>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockSieve for CountSieve {
    fn wants(&self, block: &Block) -> bool {
        self.selecting.wants(block)
    }

    fn sift(&self, block: &Block, portions: &[Portion], data: &[u8]) -> Result<Vec<Delivery>> {
        let mut counts = self.counts();
        self.selecting
            .each_dealt(block, portions, data, &mut |_, _, part| {
                *counts.entry(part).or_default() += 1;
            })?;
        Ok(Vec::new())
    }

    fn rest(&self) -> Result<Option<Delivery>> {
        let counts = std::mem::take(&mut *self.counts());
        let (mut bytes, mut before) = (Vec::new(), 0);
        for (part, count) in &counts {
            put(&mut bytes, (part - before) as u64);
            put(&mut bytes, *count);
            before = *part;
        }
        let to = Addressee::All;
        Ok((!counts.is_empty()).then_some(Delivery { to, bytes }))
    }
}

/// What one rank hears of a count.
pub(crate) struct CountCatch {
    elements: u64,
    parts: usize,
    /// What each server has delivered.
    streams: Mutex<Vec<Vec<u8>>>,
}

impl CountCatch {
    /// What a rank hears of an array in this number of parts from this number of servers.
    pub(crate) fn new(shape: &[u64], parts: usize, servers: usize) -> Self {
        Self {
            elements: shape.iter().fold(1, |all: u64, n| all.saturating_mul(*n)),
            parts,
            streams: Mutex::new(vec![Vec::new(); servers]),
        }
    }

    fn streams(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts of all servers together.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Peer`] when servers have delivered something else.
    pub(crate) fn counts(&self) -> Result<Counts> {
        let mut of_parts = vec![0u64; self.parts];
        for stream in &*self.streams() {
            let (mut reading, mut part) = (Reading(stream), 0usize);
            while !reading.is_at_end() {
                let next = part.checked_add(reading.count()?);
                part = next
                    .filter(|next| *next < self.parts)
                    .ok_or_else(|| refusal("there is no such part"))?;
                let sum = of_parts[part].checked_add(reading.number()?);
                of_parts[part] = sum.ok_or_else(|| refusal("a number is too large"))?;
            }
        }
        let mut before = vec![0u64];
        let mut all = 0u64;
        for count in of_parts {
            all = all
                .checked_add(count)
                .filter(|all| *all <= self.elements)
                .ok_or_else(|| refusal("there are more elements than the array has"))?;
            before.push(all);
        }
        let elements = self.elements;
        Ok(Counts { elements, before })
    }
}

impl Catch for CountCatch {
    fn take(&self, server: usize, bytes: &[u8]) -> Result<()> {
        let mut streams = self.streams();
        let stream = streams.get_mut(server);
        stream
            .ok_or_else(|| refusal("there is no such server"))?
            .extend_from_slice(bytes);
        Ok(())
    }

    fn count(&self) -> Result<u64> {
        self.counts().map(|counts| counts.all())
    }

    fn cut(&self, _records: Range<u64>) -> Result<Vec<u8>> {
        Err(refusal("counts are not dealt out"))
    }

    fn keep(&self, _records: &[u8]) -> Result<()> {
        Err(refusal("counts are not dealt out"))
    }
}

/// The number of selected elements in each part of an array.
pub(crate) struct Counts {
    /// The number of elements of the array.
    elements: u64,
    /// The number of selected elements before each part, and of all.
    before: Vec<u64>,
}

impl Counts {
    /// The number of selected elements.
    fn all(&self) -> u64 {
        self.before[self.parts()]
    }

    fn parts(&self) -> usize {
        self.before.len() - 1
    }

    /// What each rank is to have.
    pub(crate) fn dues(&self, ranks: usize) -> Vec<Due> {
        (0..ranks).map(|rank| self.due(ranks, rank)).collect()
    }

    fn due(&self, ranks: usize, rank: usize) -> Due {
        let own = equal_part(self.all(), ranks, rank);
        if own.is_empty() {
            return Due {
                places: 0..0,
                delivered: 0,
                own: 0..0,
            };
        }
        // The part in which the first of its elements lies, and the end of the one with the last.
        let first = self.before.partition_point(|sum| *sum <= own.start) - 1;
        let end = self.before.partition_point(|sum| *sum < own.end);
        let start_of = |part| equal_part(self.elements, self.parts(), part).start;
        let base = self.before[first];
        Due {
            places: start_of(first)..start_of(end),
            delivered: self.before[end] - base,
            own: own.start - base..own.end - base,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catch(elements: u64, parts: usize, streams: &[&[u8]]) -> CountCatch {
        let catch = CountCatch::new(&[elements], parts, streams.len());
        for (server, stream) in streams.iter().enumerate() {
            for byte in *stream {
                catch.take(server, &[*byte]).unwrap();
            }
        }
        catch
    }

    #[test]
    fn each_rank_is_to_have_as_many_and_hears_where_they_lie() {
        // Parts of 100: 3 elements in the first, 4 in the third, 1 in the last.
        let catch = catch(400, 4, &[&[0, 2, 2, 4], &[0, 1, 3, 1]]);
        assert_eq!(catch.count().unwrap(), 8);
        let counts = catch.counts().unwrap();
        let due = |places, delivered, own| Due {
            places,
            delivered,
            own,
        };
        let dues = counts.dues(3);
        let expected = [
            due(0..100, 3, 0..2),
            due(0..300, 7, 2..5),
            due(200..400, 5, 2..5),
        ];
        assert_eq!(dues, expected);
        let many = counts.dues(20);
        let own = |due: &Due| due.own.end - due.own.start;
        assert_eq!(many.iter().map(own).sum::<u64>(), 8);
        assert_eq!(many[0], due(0..0, 0, 0..0));
        assert_eq!(many[2], due(0..100, 3, 0..1));
    }

    #[test]
    fn what_are_no_counts_is_refused() {
        let cases: [(&[u8], &str); 5] = [
            (&[4, 1], "no such part"),
            (&[1, 1, 3, 1], "no such part"),
            (&[0], "ends"),
            (&[0, 101], "more elements"),
            (&[0, 50, 0, 51], "more elements"),
        ];
        for (bytes, words) in cases {
            let error = catch(100, 4, &[bytes]).count().unwrap_err();
            assert!(error.cause.contains(words), "{bytes:?}: {error}");
        }
        assert!(catch(100, 4, &[]).take(0, &[]).is_err());
    }
}
