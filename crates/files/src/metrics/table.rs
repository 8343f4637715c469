//! Rows of numbers by client or by file, of which there are not too many.
//!
//! What has no row of its own is counted with others. Where the table is full, the row that was
//! used least recently gives way to a new one, if it has not been used for five minutes.

use std::hash::Hash;
use std::ops::AddAssign;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// The nanoseconds after which a row may give way to another: five minutes.
const IDLE: u64 = 300_000_000_000;

/// The turnover of a client or a file: requests, and bytes that were moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turnover {
    /// The requests that have been answered.
    pub requests: u64,
    /// The bytes that were read.
    pub read_bytes: u64,
    /// The bytes that were written.
    pub written_bytes: u64,
    /// The nanoseconds from the coming of each request to its answer.
    pub ns: u64,
}

impl AddAssign for Turnover {
    fn add_assign(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.written_bytes = self.written_bytes.saturating_add(other.written_bytes);
        self.ns = self.ns.saturating_add(other.ns);
    }
}

impl Turnover {
    /// What has come since an earlier state.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            ns: self.ns.saturating_sub(before.ns),
        }
    }
}

struct Row<L> {
    label: L,
    turnover: Turnover,
    /// The time of its last use, in nanoseconds.
    used: u64,
}

/// Rows by key, each with a label.
pub(super) struct Table<K, L> {
    rows: FxHashMap<K, Row<L>>,
    rows_max: usize,
    others: Turnover,
    /// No row may give way before this time.
    idle_from: u64,
}

impl<K: Copy + Eq + Hash, L> Table<K, L> {
    /// Makes an empty table for at most `rows_max` rows.
    pub(super) fn new(rows_max: usize) -> Self {
        Self {
            rows: FxHashMap::default(),
            rows_max,
            others: Turnover::default(),
            idle_from: 0,
        }
    }

    /// The turnover of a key, or that of all others if the key gets no row: there is no room for
    /// it, or it has no label.
    pub(super) fn at(
        &mut self,
        key: K,
        now: u64,
        label: impl FnOnce() -> Option<L>,
    ) -> &mut Turnover {
        if !self.rows.contains_key(&key)
            && self.has_room(now)
            && let Some(label) = label()
        {
            let turnover = Turnover::default();
            let row = Row {
                label,
                turnover,
                used: now,
            };
            self.rows.insert(key, row);
        }
        match self.rows.get_mut(&key) {
            Some(row) => {
                row.used = now;
                &mut row.turnover
            }
            None => &mut self.others,
        }
    }

    /// Whether there is room for a row, for which an idle one goes.
    fn has_room(&mut self, now: u64) -> bool {
        if self.rows.len() < self.rows_max {
            return true;
        }
        if now < self.idle_from {
            return false;
        }
        let used = self.rows.iter().map(|(key, row)| (row.used, *key));
        let Some((used, key)) = used.min_by_key(|(used, _)| *used) else {
            return false;
        };
        self.idle_from = used.saturating_add(IDLE);
        let is_idle = now >= self.idle_from;
        if is_idle {
            self.rows.remove(&key);
        }
        is_idle
    }

    /// The label of a key that has a row.
    pub(super) fn label(&mut self, key: K) -> Option<&mut L> {
        self.rows.get_mut(&key).map(|row| &mut row.label)
    }

    /// Drops the row of a key.
    pub(super) fn remove(&mut self, key: K) {
        self.rows.remove(&key);
    }

    /// Drops the row of a key if it has no numbers.
    pub(super) fn remove_unused(&mut self, key: K) {
        let row = self.rows.get(&key);
        if row.is_some_and(|row| row.turnover == Turnover::default()) {
            self.rows.remove(&key);
        }
    }

    /// All rows, in no order.
    pub(super) fn rows(&self) -> impl Iterator<Item = (K, &L, &Turnover)> {
        let rows = self.rows.iter();
        rows.map(|(key, row)| (*key, &row.label, &row.turnover))
    }

    /// What has no row.
    pub(super) fn others(&self) -> Turnover {
        self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Turnover {
        Turnover {
            requests: 1,
            ..Turnover::default()
        }
    }

    fn requests(table: &Table<u32, u32>) -> Vec<(u32, u64)> {
        let rows = table
            .rows()
            .map(|(key, _, turnover)| (key, turnover.requests));
        let mut rows: Vec<_> = rows.collect();
        rows.sort_unstable();
        rows
    }

    #[test]
    fn keys_beyond_the_most_are_counted_together() {
        let mut table = Table::new(3);
        for key in 0..10 {
            for _ in 0..=key {
                *table.at(key, 5, || Some(100 + key)) += one();
            }
        }
        assert_eq!(requests(&table), [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(table.others().requests, 4 + 5 + 6 + 7 + 8 + 9 + 10);
        assert_eq!(table.label(2), Some(&mut 102));
        assert_eq!(table.label(3), None);
        *table.at(11, 5, || None) += one();
        // One that has gone makes room, and one without a label takes none.
        table.remove(1);
        *table.at(12, 5, || None) += one();
        assert_eq!(table.others().requests, 49 + 2);
        *table.at(7, 6, || Some(107)) += one();
        assert_eq!(requests(&table), [(0, 1), (2, 3), (7, 1)]);
    }

    #[test]
    fn an_idle_row_gives_way_and_the_one_used_least_recently_first() {
        let mut table = Table::new(2);
        *table.at(1, 10, || Some(0)) += one();
        *table.at(2, 20, || Some(0)) += one();
        *table.at(1, 30, || Some(0)) += one();
        *table.at(3, 20 + IDLE - 1, || Some(0)) += one();
        assert_eq!(requests(&table), [(1, 2), (2, 1)]);
        *table.at(3, 20 + IDLE, || Some(0)) += one();
        assert_eq!(requests(&table), [(1, 2), (3, 1)]);
        *table.at(4, 30 + IDLE, || Some(0)) += one();
        assert_eq!(requests(&table), [(3, 1), (4, 1)]);
        assert_eq!(table.others().requests, 1);
    }

    #[test]
    fn numbers_go_up_to_the_greatest_and_not_beyond() {
        let mut sum = Turnover {
            ns: u64::MAX - 1,
            ..one()
        };
        sum += Turnover { ns: 5, ..one() };
        assert_eq!((sum.requests, sum.ns), (2, u64::MAX));
        assert_eq!(one().since(&sum), Turnover::default());
    }
}
