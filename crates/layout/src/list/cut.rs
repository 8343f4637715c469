//! Cuts of strands by their places on disk.
//!
//! A dimension of an array repeats with a *period*: dimension `d` of place `x` has the index
//! `x % R[d - 1] / R[d]`, where `R` are the array's row-major strides. Loops whose stride is a
//! multiple of the period do not change the index; they are *idle*. A strand is *aligned* to a
//! period if all that its other loops reach lies within one.
//!
//! ```text
//! period 10      start 4, length 2, loop (6, 5):   . . . . 4 5 . . . 9
//!                9 and 10 are in two periods       0 . . . 4 5 . . . 9
//! aligned        4 + (3, 10), length 2             0 . . . 4 5 . . . 9
//!                9 + (3, 10), 10 + (3, 10)         0 . . . . . . . . .
//! ```
//!
//! Costs: a cut at a place makes at most two strands a loop if loops are nested; of loops that
//! reach into each other, the turns at the cut become strands. Alignment of a loop of stride `s` to
//! a period `P` makes a few strands for each of the `s / gcd(s, P)` periods after which the pattern
//! begins again, and for each period if it does not.

use super::divisor::greatest_divisor;
use super::series::{Pair, Place, Strand};

/// The period of a dimension that all indices of an array fit into.
pub(super) const NO_PERIOD: i64 = i64::MAX;

/// The parts of strands on both sides of a cut.
#[derive(Debug, Default)]
pub(super) struct Halves {
    pub(super) below: Vec<Strand>,
    pub(super) above: Vec<Strand>,
}

impl Strand {
    /// The first place and one past the last that loops reach which are not idle, from the begin of
    /// the period on.
    fn reach(&self, period: i64) -> (i64, i64) {
        let low = self.start.stored % period;
        let busy = self
            .loops
            .iter()
            .filter(|inner| is_busy(inner.stride, period));
        let span: i64 = busy
            .map(|inner| (inner.count - 1) * inner.stride.stored)
            .sum();
        (low, low + span + self.length)
    }

    /// The first place, from the begin of the period on.
    pub(super) fn low(&self, period: i64) -> i64 {
        self.start.stored % period
    }

    /// The loop of the longest stride that is not idle.
    fn widest(&self, period: i64) -> Option<usize> {
        let busy = |&nth: &usize| is_busy(self.loops[nth].stride, period);
        let all = (0..self.loops.len()).filter(busy);
        all.max_by_key(|&nth| self.loops[nth].stride.stored)
    }
}

fn is_busy(stride: Pair, period: i64) -> bool {
    stride.stored % period != 0
}

/// Cuts a strand that is aligned to `period` at place `at` of the period.
pub(super) fn split(strand: Strand, period: i64, at: i64, halves: &mut Halves) {
    let (low, end) = strand.reach(period);
    if end <= at {
        halves.below.push(strand);
        return;
    }
    if low >= at {
        halves.above.push(strand);
        return;
    }
    let Some(nth) = strand.widest(period) else {
        let (first, rest) = strand.cut_run(at - low);
        halves.below.push(first);
        halves.above.push(rest);
        return;
    };
    let (count, stride) = (strand.loops[nth].count, strand.loops[nth].stride.stored);
    let turn = end - low - (count - 1) * stride;
    let below = turns_before(at, low + turn, stride).min(count);
    let until = ((at - low - 1) / stride + 1).min(count);
    if below > 0 {
        halves.below.push(strand.part(nth, 0, below));
    }
    for turn in below..until {
        split(strand.part(nth, turn, turn + 1), period, at, halves);
    }
    if until < count {
        halves.above.push(strand.part(nth, until, count));
    }
}

/// The number of turns that end at `at` or before, if the first ends at `end`.
fn turns_before(at: i64, end: i64, stride: i64) -> i64 {
    if end <= at {
        (at - end) / stride + 1
    } else {
        0
    }
}

/// Adds to `aligned` the parts of a strand that are aligned to `period`.
pub(super) fn align(strand: Strand, period: i64, aligned: &mut Vec<Strand>) {
    let mut strand = strand;
    loop {
        let (low, end) = strand.reach(period);
        if end <= period {
            aligned.push(strand);
            return;
        }
        let Some(nth) = strand.widest(period) else {
            return align_run(strand, low, period, aligned);
        };
        let (count, stride) = (strand.loops[nth].count, strand.loops[nth].stride);
        // After this number of turns the place in the period is the same again.
        let lap = period / greatest_divisor(stride.stored, period);
        let laps = count / lap;
        let done = if laps >= 2 {
            let mut first = strand.part(nth, 0, lap);
            first.repeat(laps, Pair::along(0).on(stride, lap));
            align(first, period, aligned);
            laps * lap
        } else {
            let turn = end - low - (count - 1) * stride.stored;
            let whole = turns_before(period, low + turn, stride.stored).min(count);
            match whole {
                0 => align(strand.part(nth, 0, 1), period, aligned),
                _ => aligned.push(strand.part(nth, 0, whole)),
            }
            whole.max(1)
        };
        if done == count {
            return;
        }
        strand = strand.part(nth, done, count);
    }
}

/// Cuts a run that begins at place `low` of a period into the end of that period, whole periods,
/// and the begin of another. Loops of the strand are idle.
fn align_run(strand: Strand, low: i64, period: i64, aligned: &mut Vec<Strand>) {
    let mut rest = strand;
    if low > 0 {
        let (head, behind) = rest.cut_run(period - low);
        aligned.push(head);
        rest = behind;
    }
    let periods = rest.length / period;
    if periods > 0 {
        let (mut whole, tail) = rest.cut_run(periods * period);
        whole.length = period;
        whole.repeat(periods, Pair::along(period));
        aligned.push(whole);
        rest = tail;
    }
    if rest.length > 0 {
        aligned.push(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::super::series::{Loop, Series};
    use super::*;

    /// Makes the strand of a series that lies in memory as it does on disk.
    fn strand(start: i64, length: i64, loops: &[(i64, i64)]) -> Strand {
        let loops = loops.iter().map(|&(count, stride)| Loop {
            count,
            stride: Pair::along(stride),
        });
        Series {
            start: Pair::along(start),
            length,
            loops: loops.collect(),
        }
    }

    #[test]
    fn alignments() {
        #[rustfmt::skip]
        let table = [
            (strand(4, 2, &[(6, 5)]), 10,
             vec![strand(4, 2, &[(3, 10)]), strand(9, 1, &[(3, 10)]), strand(10, 1, &[(3, 10)])]),
            // a run of several periods
            (strand(7, 36, &[]), 10,
             vec![strand(7, 3, &[]), strand(10, 10, &[(3, 10)]), strand(40, 3, &[])]),
            // what is idle stays as it is
            (strand(7, 2, &[(5, 20)]), 10, vec![strand(7, 2, &[(5, 20)])]),
            (strand(7, 6, &[(5, 20)]), 10,
             vec![strand(7, 3, &[(5, 20)]), strand(10, 3, &[(5, 20)])]),
            // the pattern comes again after 3 periods, and ends before
            (strand(0, 1, &[(12, 4)]), 6,
             vec![strand(0, 1, &[(4, 12), (2, 4)]), strand(8, 1, &[(4, 12)])]),
            (strand(0, 1, &[(4, 4)]), 9, vec![strand(0, 1, &[(3, 4)]), strand(12, 1, &[])]),
        ];
        for (given, period, expected) in table {
            let mut aligned = Vec::new();
            align(given, period, &mut aligned);
            assert_eq!(aligned, expected);
        }
    }

    #[test]
    fn cuts() {
        #[rustfmt::skip]
        let table = [
            // at a gap, and in a run
            (strand(3, 2, &[(5, 10)]), 20, vec![strand(3, 2, &[(2, 10)])],
             vec![strand(23, 2, &[(3, 10)])]),
            (strand(3, 2, &[(5, 10)]), 24, vec![strand(3, 2, &[(2, 10)]), strand(23, 1, &[])],
             vec![strand(24, 1, &[]), strand(33, 2, &[(2, 10)])]),
            // loops in loops
            (strand(0, 1, &[(3, 100), (4, 10)]), 111,
             vec![strand(0, 1, &[(4, 10)]), strand(100, 1, &[(2, 10)])],
             vec![strand(120, 1, &[(2, 10)]), strand(200, 1, &[(4, 10)])]),
            (strand(5, 4, &[]), 9, vec![strand(5, 4, &[])], vec![]),
            (strand(5, 4, &[]), 5, vec![], vec![strand(5, 4, &[])]),
        ];
        for (given, at, below, above) in table {
            let mut halves = Halves::default();
            split(given, NO_PERIOD, at, &mut halves);
            assert_eq!((halves.below, halves.above), (below, above));
        }
    }
}
