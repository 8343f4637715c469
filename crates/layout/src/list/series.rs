//! A series: a run of elements that is repeated in nested loops.
//!
//! A series holds `{ start + i0 * loops[0].stride + i1 * loops[1].stride + .. + j }` for
//! `0 <= i < count` and `0 <= j < length`, in the order of the loops, the first outermost. Its
//! places are numbers of elements ([`i64`], for a list) or pairs of such ([`Pair`]: a place in the
//! file or in a block, and one in memory).
//!
//! ```text
//! start 2, length 2, loops (2, 20) (3, 5)      2 3 . . . 7 8 . . . 12 13   and, 20 on,
//!                                              22 23 . . 27 28 . . 32 33
//! ```
//!
//! A *sound* series has a length of 1 at least, counts of 2 at least, and all its places in
//! `0 .. 2^63 - 1`. Its arithmetic cannot overflow: a partial sum is the place of an element, and a
//! product of a stride and `count - 1` the distance of two.
//!
//! Costs: all functions take time in proportion to the loops, at most 62.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::copy::{Axis, StridedCopy};
use crate::exact::exact;
use crate::share::Direction;

/// A place of an element, or the distance of two places.
pub(crate) trait Place: Copy + Eq + Debug {
    /// The distance of `elements` elements along a run.
    fn along(elements: i64) -> Self;

    /// The place `times` strides on; `None` if no number holds it.
    fn checked_on(self, stride: Self, times: i64) -> Option<Self>;

    /// The distance from `start` to this place; `None` if no number holds it.
    fn distance_from(self, start: Self) -> Option<Self>;

    /// The place `times` strides on.
    ///
    /// # Panics
    /// If no number holds it: both are places of a sound series.
    fn on(self, stride: Self, times: i64) -> Self;
}

impl Place for i64 {
    fn along(elements: i64) -> Self {
        elements
    }

    fn checked_on(self, stride: Self, times: i64) -> Option<Self> {
        self.checked_add(stride.checked_mul(times)?)
    }

    fn distance_from(self, start: Self) -> Option<Self> {
        self.checked_sub(start)
    }

    fn on(self, stride: Self, times: i64) -> Self {
        self + stride * times
    }
}

/// A pair is a place on disk and a place in memory, or two distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pair {
    /// The element of the file, or of the block's buffer.
    pub(crate) stored: i64,
    /// The element of the rank's memory.
    pub(crate) memory: i64,
}

impl Place for Pair {
    fn along(elements: i64) -> Self {
        Self {
            stored: elements,
            memory: elements,
        }
    }

    fn checked_on(self, stride: Self, times: i64) -> Option<Self> {
        Some(Self {
            stored: self.stored.checked_on(stride.stored, times)?,
            memory: self.memory.checked_on(stride.memory, times)?,
        })
    }

    fn distance_from(self, start: Self) -> Option<Self> {
        Some(Self {
            stored: self.stored.distance_from(start.stored)?,
            memory: self.memory.distance_from(start.memory)?,
        })
    }

    fn on(self, stride: Self, times: i64) -> Self {
        Self {
            stored: self.stored.on(stride.stored, times),
            memory: self.memory.on(stride.memory, times),
        }
    }
}

/// A loop repeats what is inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loop<P> {
    /// The number of turns.
    pub(crate) count: i64,
    /// The distance from one turn to the next.
    pub(crate) stride: P,
}

/// The loops of a series: most have one at most.
pub(crate) type Loops<P> = SmallVec<[Loop<P>; 1]>;

/// A series is a run of elements that is repeated in nested loops, the first outermost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Series<P> {
    /// The place of the first element.
    pub(crate) start: P,
    /// The elements of the run.
    pub(crate) length: i64,
    pub(crate) loops: Loops<P>,
}

/// A strand is a series of elements with their places on disk and in memory.
pub(crate) type Strand = Series<Pair>;

impl<P: Place> Series<P> {
    /// Makes a single run.
    pub(crate) fn run(start: P, length: i64) -> Self {
        Self {
            start,
            length,
            loops: Loops::new(),
        }
    }

    /// The number of elements; `None` if the series has an empty loop or run, or too many elements
    /// to be counted with a sign.
    pub(crate) fn counted(&self) -> Option<i64> {
        let mut counts = self.loops.iter().map(|inner| inner.count);
        let first = Some(self.length).filter(|&length| length > 0);
        let product = |all: i64, count: i64| all.checked_mul(count).filter(|_| count > 1);
        counts.try_fold(first?, product)
    }

    /// The number of elements of a sound series.
    pub(crate) fn elements(&self) -> i64 {
        self.turns() * self.length
    }

    /// The number of runs of a sound series.
    pub(crate) fn turns(&self) -> i64 {
        self.loops.iter().map(|inner| inner.count).product()
    }

    /// The lowest place and one past the highest, as `side` sees places. No series from outside
    /// makes this overflow.
    pub(crate) fn wide_bounds(&self, side: impl Fn(P) -> i64) -> (i128, i128) {
        let start = i128::from(side(self.start));
        let mut bounds = (start, start.saturating_add(i128::from(self.length)));
        for Loop { count, stride } in &self.loops {
            let last = i128::from(count.saturating_sub(1)) * i128::from(side(*stride));
            bounds.0 = bounds.0.saturating_add(last.min(0));
            bounds.1 = bounds.1.saturating_add(last.max(0));
        }
        bounds
    }

    /// The lowest place of a sound series and one past the highest, as `side` sees places.
    pub(crate) fn bounds(&self, side: impl Fn(P) -> i64) -> (i64, i64) {
        let (low, end) = self.wide_bounds(side);
        (exact::<i64>(low), exact::<i64>(end))
    }

    /// Whether all places, as `side` sees them, are in `0 .. extent`.
    pub(crate) fn is_within(&self, extent: i64, side: impl Fn(P) -> i64) -> bool {
        let (low, end) = self.wide_bounds(side);
        low >= 0 && end <= i128::from(extent)
    }

    /// The series as `side` sees its places.
    pub(crate) fn seen<Q: Place>(&self, side: impl Fn(P) -> Q) -> Series<Q> {
        let loops = self.loops.iter().map(|&Loop { count, stride }| Loop {
            count,
            stride: side(stride),
        });
        Series {
            start: side(self.start),
            length: self.length,
            loops: loops.collect(),
        }
    }

    /// The turns `first .. end` of loop `nth`. A loop of one turn is left out.
    pub(crate) fn part(&self, nth: usize, first: i64, end: i64) -> Self {
        let mut part = self.clone();
        part.start = part.start.on(part.loops[nth].stride, first);
        part.loops[nth].count = end - first;
        if end - first == 1 {
            part.loops.remove(nth);
        }
        part
    }

    /// The first `length` elements of a single run, and the rest.
    pub(crate) fn cut_run(self, length: i64) -> (Self, Self) {
        let mut rest = self.clone();
        rest.start = rest.start.on(P::along(1), length);
        rest.length -= length;
        (Self { length, ..self }, rest)
    }

    /// Puts a loop of `count` turns around the series, if that is more than one.
    pub(crate) fn repeat(&mut self, count: i64, stride: P) {
        if count > 1 {
            self.loops.insert(0, Loop { count, stride });
        }
    }

    /// Merges loops that continue each other, and a loop that continues the run. The order of the
    /// elements stays.
    pub(crate) fn merge(&mut self) {
        let mut merged = Loops::new();
        for outer in self.loops.drain(..).rev() {
            match merged.last_mut() {
                None if outer.stride == P::along(self.length) => self.length *= outer.count,
                None => merged.push(outer),
                Some(inner) => match P::along(0).checked_on(inner.stride, inner.count) {
                    Some(span) if span == outer.stride => inner.count *= outer.count,
                    _ => merged.push(outer),
                },
            }
        }
        merged.reverse();
        self.loops = merged;
    }

    /// Joins the series that comes next in order to this one, if both are one series. Gives whether
    /// they are.
    fn join(&mut self, next: &Self) -> bool {
        let is_next = |place: Option<P>| place == Some(next.start);
        let (own, others) = (&self.loops, &next.loops);
        if own.is_empty() && others.is_empty() {
            let end = self.start.checked_on(P::along(1), self.length);
            if is_next(end) {
                self.length += next.length;
                return true;
            }
        }
        if self.length != next.length {
            return false;
        }
        if let Some((outer, inner)) = own.split_first()
            && is_next(self.start.checked_on(outer.stride, outer.count))
        {
            let more = match others.split_first() {
                _ if inner == &others[..] => Some(1),
                Some((other, deeper)) if inner == deeper && other.stride == outer.stride => {
                    Some(other.count)
                }
                _ => None,
            };
            if let Some(count) = more.and_then(|more| outer.count.checked_add(more)) {
                self.loops[0].count = count;
                return true;
            }
        }
        if let Some((outer, inner)) = others.split_first()
            && inner == &own[..]
            && is_next(self.start.checked_on(outer.stride, 1))
            && let Some(count) = outer.count.checked_add(1)
        {
            self.loops = others.clone();
            self.loops[0].count = count;
            return true;
        }
        match next.start.distance_from(self.start) {
            Some(stride) if own == others => {
                self.repeat(2, stride);
                true
            }
            _ => false,
        }
    }

    /// The places of the runs, in order.
    pub(crate) fn starts(&self) -> Starts<'_, P> {
        Starts {
            series: self,
            turns: self.loops.iter().map(|_| 0).collect(),
            next: Some(self.start),
        }
    }
}

/// Adds the series that comes next in order to `all`. Runs that touch become one, and equal series
/// at equal distances become a loop. Each addition but one leaves no more series than before, so
/// that n additions take time in proportion to n.
///
/// ```text
/// runs of one length at      0    10   |  100    110   |  200    210
/// series after each          run  (2, 10)   run  (2, 100) (2, 10)     (3, 100) (2, 10)
/// ```
pub(crate) fn append<P: Place>(all: &mut Vec<Series<P>>, next: Series<P>) {
    let mut next = next;
    while let Some(mut last) = all.pop() {
        if !last.join(&next) {
            all.push(last);
            break;
        }
        next = last;
    }
    all.push(next);
}

/// An iterator over the places of the runs of a series.
#[derive(Debug, Clone)]
pub(crate) struct Starts<'a, P> {
    series: &'a Series<P>,
    /// The turns that are done of each loop.
    turns: SmallVec<[i64; 4]>,
    next: Option<P>,
}

impl<P: Place> Iterator for Starts<'_, P> {
    type Item = P;

    fn next(&mut self) -> Option<P> {
        let now = self.next?;
        let mut next = now;
        self.next = None;
        for (turn, inner) in self.turns.iter_mut().zip(&self.series.loops).rev() {
            if *turn + 1 < inner.count {
                *turn += 1;
                self.next = Some(next.on(inner.stride, 1));
                break;
            }
            next = next.on(inner.stride, -*turn);
            *turn = 0;
        }
        Some(now)
    }
}

impl Series<i64> {
    /// Whether loops do not reach into each other: the longest strides outermost, a turn of each is
    /// no longer than its stride. Such a series has no element twice.
    pub(crate) fn is_nested(&self) -> bool {
        let strides = self.loops.iter();
        let mut loops: SmallVec<[(u64, i64); 4]> = strides
            .map(|inner| (inner.stride.unsigned_abs(), inner.count))
            .collect();
        loops.sort_unstable();
        let mut span = i128::from(self.length);
        for (stride, count) in loops {
            if span > i128::from(stride) {
                return false;
            }
            span += i128::from(count - 1) * i128::from(stride);
        }
        true
    }
}

impl Strand {
    /// Puts the loops into an order that does not depend on the order of the elements: strides on
    /// disk ascend in each loop and descend from loop to loop.
    pub(crate) fn arrange(&mut self) {
        for inner in &mut self.loops {
            if inner.stride.stored < 0 {
                self.start = self.start.on(inner.stride, inner.count - 1);
                inner.stride = Pair::along(0).on(inner.stride, -1);
            }
        }
        let strides = |inner: &Loop<Pair>| (inner.stride.stored, inner.stride.memory.abs());
        self.loops
            .sort_by_key(|inner| std::cmp::Reverse(strides(inner)));
        self.merge();
    }

    /// The strand with places made of its own and of those of `packed`, which has the same loops.
    pub(crate) fn beside(&self, packed: &Series<i64>, place: impl Fn(Pair, i64) -> Pair) -> Self {
        let mut beside = self.clone();
        beside.start = place(self.start, packed.start);
        for (inner, other) in beside.loops.iter_mut().zip(&packed.loops) {
            inner.stride = place(inner.stride, other.stride);
        }
        beside
    }

    /// The copy that moves the strand between a buffer and a memory, in which elements of `width`
    /// bytes lie `step` bytes apart.
    pub(crate) fn copy(&self, width: usize, step: isize, direction: Direction) -> StridedCopy {
        let ordered = |pair: Pair| {
            let stored = exact::<isize>(pair.stored) * width as isize;
            let memory = exact::<isize>(pair.memory) * step;
            match direction {
                Direction::Gather => (memory, stored),
                Direction::Scatter => (stored, memory),
            }
        };
        let (source, target) = ordered(self.start);
        let axis = |count: i64, stride: Pair| {
            let (source, target) = ordered(stride);
            let count = exact::<usize>(count);
            Axis {
                count,
                source,
                target,
            }
        };
        let loops = self.loops.iter();
        let mut axes: SmallVec<[Axis; 6]> =
            loops.map(|inner| axis(inner.count, inner.stride)).collect();
        let mut run = exact::<usize>(self.length) * width;
        if step != width as isize {
            axes.push(axis(self.length, Pair::along(1)));
            run = width;
        }
        StridedCopy {
            width: run,
            source,
            target,
            axes,
        }
    }
}

/// Puts strands into the order of their places on disk, and makes one strand of several where they
/// are regular.
pub(crate) fn arrange_all(strands: Vec<Strand>) -> Vec<Strand> {
    let mut strands = strands;
    let place = |strand: &Strand| (strand.start.stored, strand.start.memory);
    strands.iter_mut().for_each(Strand::arrange);
    strands.sort_by_key(place);
    let mut all = Vec::new();
    for strand in strands {
        append(&mut all, strand);
    }
    all.iter_mut().for_each(Strand::arrange);
    all.sort_by_key(place);
    all
}
