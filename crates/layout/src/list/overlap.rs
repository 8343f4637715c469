//! The search for elements that series have in common.
//!
//! Series whose bounds are apart have nothing in common. Series whose bounds meet form a *chain*,
//! and may still interleave, as the real and the imaginary parts of complex numbers do. If all the
//! outer strides of a chain are multiples of `g`, and the series lie apart modulo `g`, then they
//! are apart:
//!
//! ```text
//! start 0, (5, 6), length 2     0 1 . . . . 6 7 . . . .      g = 6: 0..2 and 3..5 are apart
//! start 9, (5, 6), length 2     . . . 9 10 . . . . 15 16 .
//! ```
//!
//! Otherwise a sweep goes from low to high places. What is lowest is compared with the series that
//! begin before its end, modulo a common divisor if they are few; the longest of them is cut into
//! two halves if that does not help. A run in which another series begins is an overlap.
//!
//! Costs: `O(n log n)` for n series whose bounds are apart or that a divisor tells apart; at most
//! `O(r log r)` for r runs.

use std::collections::BTreeMap;

use super::divisor::greatest_divisor;
use super::series::{Loop, Series};

/// The most series that a sweep compares at once.
const AT_ONCE: usize = 16;

/// Whether no element is in two of the series, or in one of them twice.
pub(super) fn are_disjoint(series: impl Iterator<Item = Series<i64>>) -> bool {
    // No search has as many steps.
    are_disjoint_within(series, u64::MAX).unwrap_or(false)
}

/// Whether no element is in two of the series, or in one of them twice; nothing if a search of
/// `steps_max` steps does not tell.
pub(super) fn are_disjoint_within(
    series: impl Iterator<Item = Series<i64>>,
    steps_max: u64,
) -> Option<bool> {
    let mut all: Vec<Series<i64>> = series.map(ascending).collect();
    if all.iter().any(is_repeated) {
        return Some(false);
    }
    all.sort_by_key(|series| series.start);
    let mut steps = steps_max;
    for chain in chains(all) {
        let is_disjoint = match chain.as_slice() {
            [one] if one.is_nested() => true,
            chain => are_apart(chain) || Sweep::new(chain).finds_none(&mut steps)?,
        };
        if !is_disjoint {
            return Some(false);
        }
    }
    Some(true)
}

/// A sweep over series from low to high places.
struct Sweep {
    /// The series that are not yet compared, by their first places.
    left: BTreeMap<i64, Series<i64>>,
    /// Whether two series began at the same place.
    is_clash: bool,
}

impl Sweep {
    fn new(chain: &[Series<i64>]) -> Self {
        let mut sweep = Self {
            left: BTreeMap::new(),
            is_clash: false,
        };
        chain.iter().for_each(|series| sweep.add(series.clone()));
        sweep
    }

    fn add(&mut self, series: Series<i64>) {
        let other = self.left.insert(series.start, series);
        self.is_clash |= other.is_some();
    }

    /// Whether no element is met twice; nothing if that takes more steps than are left.
    fn finds_none(mut self, steps: &mut u64) -> Option<bool> {
        while let Some((start, lowest)) = self.left.pop_first()
            && !self.is_clash
        {
            *steps = steps.checked_sub(1)?;
            let end = lowest.bounds(|place| place).1;
            let others = self.left.range(..end).take(AT_ONCE);
            let mut near: Vec<Series<i64>> = others.map(|(_, other)| other.clone()).collect();
            if near.is_empty() && lowest.is_nested() {
                continue;
            }
            if lowest.loops.is_empty() {
                return Some(false);
            }
            let are_all = near.len() < AT_ONCE;
            near.insert(0, lowest);
            if are_all && are_apart(&near) {
                continue;
            }
            // If there are many others, only the lowest is cut.
            let reach = |series: &&Series<i64>| series.bounds(|place| place).1 - series.start;
            let several = near.iter().filter(|series| !series.loops.is_empty());
            let longest = several.max_by_key(reach).filter(|_| are_all);
            let longest = longest.unwrap_or(&near[0]);
            if longest.start != start {
                self.left.remove(&longest.start);
                self.add(near[0].clone());
            }
            halves(longest).for_each(|half| self.add(half));
        }
        Some(!self.is_clash)
    }
}

/// The elements of `series` in another order: strides are positive, and descend from loop to loop.
fn ascending(series: Series<i64>) -> Series<i64> {
    let mut series = series;
    series.start = series.bounds(|place| place).0;
    for inner in &mut series.loops {
        inner.stride = inner.stride.abs();
    }
    series
        .loops
        .sort_by_key(|inner| std::cmp::Reverse(inner.stride));
    series
}

fn is_repeated(series: &Series<i64>) -> bool {
    series.loops.iter().any(|inner| inner.stride == 0)
}

/// Cuts series that are sorted by their starts into sets whose bounds are apart.
fn chains(sorted: Vec<Series<i64>>) -> Vec<Vec<Series<i64>>> {
    let mut all: Vec<Vec<Series<i64>>> = Vec::new();
    let mut chain_end = 0;
    for series in sorted {
        let end = series.bounds(|place| place).1;
        match all.last_mut() {
            Some(chain) if series.start < chain_end => chain.push(series),
            _ => all.push(vec![series]),
        }
        chain_end = chain_end.max(end);
    }
    all
}

/// Whether the series are apart modulo a common divisor of their strides. If not, they may be
/// apart all the same.
fn are_apart(chain: &[Series<i64>]) -> bool {
    let depth = chain.iter().map(|series| series.loops.len()).max();
    chain.iter().all(Series::is_nested)
        && (1..=depth.unwrap_or(0)).any(|depth| are_apart_within(chain, depth))
}

/// Whether the series are apart modulo a common divisor of their outermost `depth` strides.
fn are_apart_within(chain: &[Series<i64>], depth: usize) -> bool {
    let outer = |series: &Series<i64>| series.loops.len().min(depth);
    let strides = chain
        .iter()
        .flat_map(|series| &series.loops[..outer(series)]);
    let divisor = strides.fold(0, |divisor, inner| greatest_divisor(divisor, inner.stride));
    if divisor == 0 {
        return false;
    }
    let range = |series: &Series<i64>| {
        let inner = Series {
            start: series.start % divisor,
            length: series.length,
            loops: series.loops[outer(series)..].iter().copied().collect(),
        };
        inner.bounds(|place| place)
    };
    let mut ranges: Vec<(i64, i64)> = chain.iter().map(range).collect();
    ranges.sort_unstable();
    let around = ranges[0].0 + divisor;
    let ends_last = ranges.last().is_some_and(|last| last.1 <= around);
    ends_last && ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0)
}

/// The two halves of a series, by its outermost loop.
fn halves(series: &Series<i64>) -> impl Iterator<Item = Series<i64>> + use<> {
    let (first, second) = match series.loops.first() {
        Some(&Loop { count, .. }) => {
            let second = series.part(0, count / 2, count);
            (series.part(0, 0, count / 2), Some(second))
        }
        None => (series.clone(), None),
    };
    std::iter::once(first).chain(second)
}
