//! Trees: where the bytes of a datatype lie, in the order of its data.
//!
//! A datatype is a sequence of bytes `0 .. size`, each with a place, which may be negative in
//! memory. A tree keeps the places as the datatype was made: loops stay loops, and only what has no
//! order is a list of runs.
//!
//! ```text
//! vector of 3 blocks of 2 doubles, 4 apart            loop of 3, 32 bytes apart, of a run of 16
//! 2 x 3 of an array of 4 x 8 floats, from (1, 2)      from 40 on, loop of 2, 32 apart, of 12
//! indexed, 1 at 5, 2 at 9, of bytes                   runs: 1 at 5, 2 at 9
//! ```
//!
//! A tree answers two questions about a part of its data: which series of bytes it is
//! ([`Tree::walk`]), and how much of it lies before a place ([`Tree::data_before`]). The first
//! takes time in proportion to the series, the second to the logarithm of the turns and runs.
//!
//! Memory: 8 bytes a run where all runs are equally long, 16 elsewhere; nothing for turns of loops.

use std::ops::Range;
use std::sync::Arc;

use penstock_layout::exact;
use smallvec::SmallVec;

/// The nested loops of a series, each a count and a stride in bytes, the first outermost.
pub type Loops = SmallVec<[(u64, i64); 4]>;

/// A series: `length` bytes from `start` on, repeated in nested loops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// The place of the first byte.
    pub start: i64,
    /// The bytes of a run.
    pub length: u64,
    /// The loops around the run.
    pub loops: Loops,
}

impl Series {
    /// Gives `sink` the runs, each a place and a length, in the order of data.
    pub fn runs(&self, sink: &mut dyn FnMut(i64, u64)) {
        fn nested(loops: &[(u64, i64)], start: i64, length: u64, sink: &mut dyn FnMut(i64, u64)) {
            match loops.split_first() {
                None => sink(start, length),
                Some((&(count, stride), inner)) => (0..count as i64)
                    .for_each(|turn| nested(inner, start + turn * stride, length, sink)),
            }
        }
        nested(&self.loops, self.start, self.length, sink);
    }
}

/// A tree says where the bytes of a datatype lie.
#[derive(Debug, Clone)]
pub struct Tree {
    /// The distance of the tree's origin from that of the tree around it.
    offset: i64,
    /// The bytes of data.
    size: u64,
    /// The lowest place, and one past the highest, from the origin of the tree around it on.
    bounds: (i64, i64),
    /// How many series the data are, and how many runs.
    series: u64,
    runs: u64,
    shape: Shape,
}

#[derive(Debug, Clone)]
enum Shape {
    /// `size` bytes one behind the other, or none.
    Run,
    /// A tree that is repeated.
    Loop {
        count: u64,
        stride: i64,
        inner: Arc<Tree>,
    },
    /// Trees one behind the other in the order of data, each with the data before it.
    Sequence(Arc<[(u64, Tree)]>),
    /// Runs one behind the other in the order of data.
    Runs { offsets: Arc<Vec<i64>>, ends: Ends },
}

/// The data up to the end of each run.
#[derive(Debug, Clone)]
enum Ends {
    /// All runs are of this length.
    Even(u64),
    Uneven(Arc<Vec<u64>>),
}

impl Ends {
    fn end(&self, run: usize) -> u64 {
        match self {
            Self::Even(length) => length * (run as u64 + 1),
            Self::Uneven(ends) => ends[run],
        }
    }

    fn begin(&self, run: usize) -> u64 {
        run.checked_sub(1).map_or(0, |before| self.end(before))
    }

    /// The run that has byte `at` of the data.
    fn run_of(&self, at: u64) -> usize {
        match self {
            Self::Even(length) => exact::<usize>(at / length),
            Self::Uneven(ends) => ends.partition_point(|&end| end <= at),
        }
    }
}

impl Tree {
    /// Makes the tree of `size` bytes from the origin on.
    pub fn run(size: u64) -> Self {
        Self {
            offset: 0,
            size,
            bounds: (0, size as i64),
            series: u64::from(size > 0),
            runs: u64::from(size > 0),
            shape: Shape::Run,
        }
    }

    /// The tree, `distance` bytes further on.
    #[must_use]
    pub fn shifted(mut self, distance: i64) -> Self {
        if self.size > 0 {
            self.offset += distance;
            self.bounds.0 += distance;
            self.bounds.1 += distance;
        }
        self
    }

    /// The tree `count` times, each `stride` bytes from the one before.
    #[must_use]
    pub fn repeated(self, count: u64, stride: i64) -> Self {
        if self.size == 0 || count == 0 {
            return Self::run(0);
        }
        if count == 1 {
            return self;
        }
        if matches!(self.shape, Shape::Run) && stride == self.size as i64 {
            let offset = self.offset;
            return Self::run(self.size * count).shifted(offset);
        }
        let (offset, inner) = (self.offset, self.shifted_to_origin());
        if let Shape::Loop {
            count: turns,
            stride: step,
            inner: deeper,
        } = &inner.shape
            && stride == step * *turns as i64
        {
            // The turns go on where the last one has ended.
            let deeper = Tree::clone(deeper);
            return deeper.repeated(turns * count, *step).shifted(offset);
        }
        let last = stride * (count - 1) as i64;
        let series = match inner.is_one_series() {
            true => 1,
            false => inner.series.saturating_mul(count),
        };
        Self {
            offset,
            size: inner.size * count,
            bounds: (
                offset + inner.bounds.0 + last.min(0),
                offset + inner.bounds.1 + last.max(0),
            ),
            series,
            runs: inner.runs.saturating_mul(count),
            shape: Shape::Loop {
                count,
                stride,
                inner: Arc::new(inner),
            },
        }
    }

    fn shifted_to_origin(self) -> Self {
        let offset = self.offset;
        self.shifted(-offset)
    }

    /// The trees one behind the other.
    pub fn sequence(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut filled: Vec<Self> = parts.into_iter().filter(|part| part.size > 0).collect();
        if filled.iter().all(|part| matches!(part.shape, Shape::Run)) {
            return Self::runs(filled.iter().map(|part| (part.offset, part.size)));
        }
        if filled.len() == 1 {
            return filled.remove(0);
        }
        let (mut size, mut series, mut runs) = (0u64, 0u64, 0u64);
        let mut bounds = (i64::MAX, i64::MIN);
        let placed: Vec<_> = filled
            .into_iter()
            .map(|part| {
                let before = size;
                size += part.size;
                series = series.saturating_add(part.series);
                runs = runs.saturating_add(part.runs);
                bounds = (bounds.0.min(part.bounds.0), bounds.1.max(part.bounds.1));
                (before, part)
            })
            .collect();
        Self {
            offset: 0,
            size,
            bounds,
            series,
            runs,
            shape: Shape::Sequence(placed.into()),
        }
    }

    /// The runs one behind the other, each a place and a length. Runs that touch become one, and
    /// runs at equal distances a loop.
    pub fn runs(runs: impl IntoIterator<Item = (i64, u64)>) -> Self {
        let runs = runs.into_iter();
        let most = runs.size_hint().1.unwrap_or(0);
        let mut offsets: Vec<i64> = Vec::with_capacity(most);
        let mut lengths: Vec<u64> = Vec::with_capacity(most);
        for (offset, length) in runs {
            if length == 0 {
                continue;
            }
            match (offsets.last(), lengths.last_mut()) {
                (Some(&last), Some(before)) if last + *before as i64 == offset => *before += length,
                _ => {
                    offsets.push(offset);
                    lengths.push(length);
                }
            }
        }
        let Some((&first, &length)) = offsets.first().zip(lengths.first()) else {
            return Self::run(0);
        };
        let is_even = lengths.iter().all(|&other| other == length);
        if let [first, second, ..] = offsets[..]
            && is_even
            && offsets
                .windows(2)
                .all(|pair| pair[1] - pair[0] == second - first)
        {
            let one = Self::run(length).shifted(first);
            return one.repeated(offsets.len() as u64, second - first);
        }
        if offsets.len() == 1 {
            return Self::run(length).shifted(first);
        }
        let ends = offsets.iter().zip(&lengths);
        let ends = ends.map(|(&offset, &length)| offset + length as i64);
        let bounds = (
            offsets.iter().copied().min().unwrap_or(0),
            ends.max().unwrap_or(0),
        );
        let size: u64 = lengths.iter().sum();
        let ends = match is_even {
            true => Ends::Even(length),
            false => {
                let (mut ends, mut end) = (lengths, 0);
                for length in &mut ends {
                    end += *length;
                    *length = end;
                }
                ends.shrink_to_fit();
                Ends::Uneven(Arc::new(ends))
            }
        };
        offsets.shrink_to_fit();
        Self {
            offset: 0,
            size,
            bounds,
            series: offsets.len() as u64,
            runs: offsets.len() as u64,
            shape: Shape::Runs {
                offsets: Arc::new(offsets),
                ends,
            },
        }
    }

    /// The bytes of data.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The lowest place, and one past the highest.
    pub fn bounds(&self) -> Range<i64> {
        self.bounds.0..self.bounds.1
    }

    /// How many series the data are.
    pub fn series(&self) -> u64 {
        self.series
    }

    /// How many runs the data are.
    pub fn run_count(&self) -> u64 {
        self.runs
    }

    /// Whether the data are one run.
    pub fn is_run(&self) -> bool {
        matches!(self.shape, Shape::Run)
    }

    fn is_one_series(&self) -> bool {
        match &self.shape {
            Shape::Run => true,
            Shape::Loop { inner, .. } => inner.is_one_series(),
            Shape::Sequence(_) | Shape::Runs { .. } => false,
        }
    }

    /// All data as one series from `base` on, if they are one.
    fn as_series(&self, base: i64) -> Option<Series> {
        let (mut tree, mut start, mut loops) = (self, base, Loops::new());
        loop {
            start += tree.offset;
            match &tree.shape {
                Shape::Run => {
                    return Some(Series {
                        start,
                        length: tree.size,
                        loops,
                    });
                }
                Shape::Loop {
                    count,
                    stride,
                    inner,
                } => {
                    loops.push((*count, *stride));
                    tree = inner;
                }
                Shape::Sequence(_) | Shape::Runs { .. } => return None,
            }
        }
    }

    /// Gives `sink` the series of the data `from .. to`, in the order of data. `base` is the place
    /// of the tree's origin.
    pub fn walk(&self, base: i64, data: Range<u64>, sink: &mut dyn FnMut(Series)) {
        let data = data.start..data.end.min(self.size);
        if data.is_empty() {
            return;
        }
        let origin = base + self.offset;
        match &self.shape {
            Shape::Run => sink(Series {
                start: origin + data.start as i64,
                length: data.end - data.start,
                loops: Loops::new(),
            }),
            Shape::Loop {
                count: _,
                stride,
                inner,
            } => walk_turns(inner, (origin, *stride), data, sink),
            Shape::Sequence(parts) => {
                let first =
                    parts.partition_point(|(before, part)| before + part.size <= data.start);
                for (before, part) in &parts[first..] {
                    if *before >= data.end {
                        break;
                    }
                    let from = data.start.saturating_sub(*before);
                    part.walk(origin, from..data.end - before, sink);
                }
            }
            Shape::Runs { offsets, ends } => {
                for run in ends.run_of(data.start)..offsets.len() {
                    let begin = ends.begin(run);
                    if begin >= data.end {
                        break;
                    }
                    let from = data.start.max(begin);
                    sink(Series {
                        start: origin + offsets[run] + (from - begin) as i64,
                        length: data.end.min(ends.end(run)) - from,
                        loops: Loops::new(),
                    });
                }
            }
        }
    }

    /// How many bytes of data lie before `place`, if the tree's origin is at 0. The places must
    /// ascend in the order of data.
    pub fn data_before(&self, place: i64) -> u64 {
        if place <= self.bounds.0 {
            return 0;
        }
        if place >= self.bounds.1 {
            return self.size;
        }
        let place = place - self.offset;
        match &self.shape {
            Shape::Run => place as u64, // within, as was just seen
            Shape::Loop {
                count,
                stride,
                inner,
            } => {
                // The turns whose first bytes lie before the place; only the last of them may reach
                // beyond it.
                let first = inner.bounds.0;
                let begun = ((place - first - 1) / (*stride).max(1) + 1).max(0) as u64;
                let begun = begun.min(*count);
                let Some(whole) = begun.checked_sub(1) else {
                    return 0;
                };
                whole * inner.size + inner.data_before(place - whole as i64 * stride)
            }
            Shape::Sequence(parts) => {
                let begun = parts.partition_point(|(_, part)| part.bounds.0 < place);
                let last = begun.checked_sub(1).and_then(|last| parts.get(last));
                last.map_or(0, |(before, part)| before + part.data_before(place))
            }
            Shape::Runs { offsets, ends } => {
                let begun = offsets.partition_point(|&offset| offset < place);
                let Some(last) = begun.checked_sub(1) else {
                    return 0;
                };
                let (begin, end) = (ends.begin(last), ends.end(last));
                (begin + (place - offsets[last]) as u64).min(end)
            }
        }
    }

    /// Whether the places ascend in the order of data, and none is there twice: a filetype must be
    /// so, for reading it may repeat places.
    pub fn ascends(&self) -> bool {
        match &self.shape {
            Shape::Run => true,
            Shape::Loop { stride, inner, .. } => {
                inner.ascends() && inner.bounds.1 - inner.bounds.0 <= *stride
            }
            Shape::Sequence(parts) => {
                let apart = parts.windows(2);
                let mut apart = apart.map(|pair| pair[0].1.bounds.1 <= pair[1].1.bounds.0);
                apart.all(|is_apart| is_apart) && parts.iter().all(|(_, part)| part.ascends())
            }
            Shape::Runs { offsets, ends } => (1..offsets.len()).all(|run| {
                let before = run - 1;
                let length = ends.end(before) - ends.begin(before);
                offsets[before] + length as i64 <= offsets[run]
            }),
        }
    }
}

/// Gives `sink` the series of the data `from .. to` of endless turns of a tree. `origin` is the
/// place of the first, and `stride` the distance of two.
pub fn walk_turns(
    tree: &Tree,
    (origin, stride): (i64, i64),
    data: Range<u64>,
    sink: &mut dyn FnMut(Series),
) {
    let size = tree.size;
    if data.is_empty() || size == 0 {
        return;
    }
    let place = |turn: u64| origin + turn as i64 * stride;
    let (first, last) = (data.start / size, (data.end - 1) / size);
    if first == last {
        let begin = first * size;
        tree.walk(place(first), data.start - begin..data.end - begin, sink);
        return;
    }
    let mut whole = first;
    if !data.start.is_multiple_of(size) {
        tree.walk(place(first), data.start % size..size, sink);
        whole += 1;
    }
    let end = data.end / size; // one past the last whole turn
    match tree.as_series(place(whole)) {
        Some(series) if end > whole => sink(around(series, end - whole, stride)),
        _ => (whole..end).for_each(|turn| tree.walk(place(turn), 0..size, sink)),
    }
    tree.walk(place(end), 0..data.end % size, sink);
}

/// A series within one more loop.
fn around(mut series: Series, count: u64, stride: i64) -> Series {
    if series.loops.is_empty() && stride == series.length as i64 {
        series.length *= count;
    } else if count > 1 {
        series.loops.insert(0, (count, stride));
    }
    series
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A tree, and the places of its data one by one.
    #[derive(Debug, Clone)]
    struct Both {
        tree: Tree,
        places: Vec<i64>,
    }

    /// Trees whose places ascend, made as datatypes are.
    fn ascending() -> impl Strategy<Value = Both> {
        let run = (0u64..5).prop_map(|size| Both {
            tree: Tree::run(size),
            places: (0..size as i64).collect(),
        });
        run.prop_recursive(4, 200, 4, |inner| {
            let repeated = (inner.clone(), 0u64..4, 0i64..5).prop_map(|(both, count, gap)| {
                let span = both.places.last().map_or(0, |last| last + 1);
                let stride = span + gap;
                let turns = 0..count as i64;
                let places = turns
                    .flat_map(|turn| both.places.iter().map(move |place| place + turn * stride));
                Both {
                    places: places.collect(),
                    tree: both.tree.repeated(count, stride),
                }
            });
            let parts = prop::collection::vec((inner, 0i64..4), 0..4);
            let sequence = parts.prop_map(|parts| {
                let (mut end, mut places, mut trees) = (0, Vec::new(), Vec::new());
                for (part, gap) in parts {
                    let start = end + gap;
                    places.extend(part.places.iter().map(|place| place + start));
                    end = places.last().map_or(end, |last| (last + 1).max(end));
                    trees.push(part.tree.shifted(start));
                }
                Both {
                    places,
                    tree: Tree::sequence(trees),
                }
            });
            prop_oneof![repeated, sequence]
        })
    }

    /// Any trees, as memory has them.
    fn any_tree() -> impl Strategy<Value = Both> {
        let run = (0u64..5).prop_map(|size| Both {
            tree: Tree::run(size),
            places: (0..size as i64).collect(),
        });
        run.prop_recursive(4, 200, 4, |inner| {
            let repeated = (inner.clone(), 0u64..4, -9i64..9).prop_map(|(both, count, stride)| {
                let turns = 0..count as i64;
                let places = turns
                    .flat_map(|turn| both.places.iter().map(move |place| place + turn * stride));
                Both {
                    places: places.collect(),
                    tree: both.tree.repeated(count, stride),
                }
            });
            let parts = prop::collection::vec((inner, -9i64..9), 0..4);
            let sequence = parts.prop_map(|parts| {
                let places = parts
                    .iter()
                    .flat_map(|(part, start)| part.places.iter().map(move |place| place + start));
                Both {
                    places: places.collect(),
                    tree: Tree::sequence(
                        parts
                            .iter()
                            .map(|(part, start)| part.tree.clone().shifted(*start)),
                    ),
                }
            });
            prop_oneof![repeated, sequence]
        })
    }

    fn places_of(walk: impl FnOnce(&mut dyn FnMut(Series))) -> Vec<i64> {
        let mut places = Vec::new();
        walk(&mut |series| {
            series.runs(&mut |start, length| places.extend(start..start + length as i64));
        });
        places
    }

    fn cut(places: &[i64], from: usize, to: usize) -> (usize, usize) {
        let one = from % (places.len() + 1);
        let other = to % (places.len() + 1);
        (one.min(other), one.max(other))
    }

    proptest! {
        #[test]
        fn a_walk_gives_each_place_of_a_part(both in any_tree(), from in 0usize..99, to in 0usize..99) {
            let Both { tree, places } = both;
            prop_assert_eq!(tree.size(), places.len() as u64);
            let (from, to) = cut(&places, from, to);
            let data = from as u64..to as u64;
            let walked = places_of(|sink| tree.walk(7, data, sink));
            let expected: Vec<_> = places[from..to].iter().map(|place| place + 7).collect();
            prop_assert_eq!(walked, expected);
            if let (Some(low), Some(high)) = (places.iter().min(), places.iter().max()) {
                prop_assert_eq!(tree.bounds(), *low..high + 1);
            }
        }

        #[test]
        fn turns_are_walked_as_one_sequence(
            both in any_tree(),
            stride in -20i64..20,
            from in 0usize..99,
            to in 0usize..99,
        ) {
            let Both { tree, places } = both;
            let turns = 0..4i64;
            let all: Vec<i64> = turns
                .flat_map(|turn| places.iter().map(move |place| place + turn * stride + 3))
                .collect();
            let (from, to) = cut(&all, from, to);
            let data = from as u64..to as u64;
            let walked = places_of(|sink| walk_turns(&tree, (3, stride), data, sink));
            prop_assert_eq!(&walked, &all[from..to]);
        }

        #[test]
        fn data_before_a_place_are_counted(both in ascending(), place in -3i64..99) {
            let Both { tree, places } = both;
            prop_assert!(tree.ascends());
            let before = places.iter().filter(|&&other| other < place).count();
            prop_assert_eq!(tree.data_before(place), before as u64);
        }

        #[test]
        fn series_and_runs_are_not_underestimated(both in any_tree()) {
            let Both { tree, places } = both;
            let mut series = 0;
            tree.walk(0, 0..tree.size(), &mut |_| series += 1);
            prop_assert!(tree.series() >= series);
            let starts = places.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
            prop_assert!(tree.run_count() >= u64::from(!places.is_empty()) + starts as u64);
        }
    }

    #[test]
    fn what_is_regular_is_kept_as_loops() {
        let column = Tree::run(8).repeated(4, 32);
        let block = Tree::run(8).repeated(2, 8).repeated(4, 32).repeated(3, 128);
        assert_eq!((column.series(), column.run_count()), (1, 4));
        assert_eq!((block.series(), block.run_count()), (1, 12));
        let runs = Tree::runs((0..1000).map(|run| (run * 10, 2)));
        assert_eq!((runs.series(), runs.run_count()), (1, 1000));
        assert!(Tree::run(4).repeated(100, 4).is_run());
        let irregular = Tree::runs([(0, 2), (7, 2), (9, 1), (100, 3)]);
        assert_eq!(irregular.series(), 3);
    }

    #[test]
    fn a_filetype_that_goes_back_is_told() {
        assert!(!Tree::run(8).repeated(3, 7).ascends());
        assert!(!Tree::run(8).repeated(3, -8).ascends());
        assert!(!Tree::runs([(10, 2), (0, 2)]).ascends());
        assert!(Tree::runs([(0, 2), (2, 2), (9, 1)]).ascends());
        let interleaved = Tree::run(1).repeated(3, 4);
        let both = Tree::sequence([interleaved.clone(), interleaved.shifted(1)]);
        assert!(!both.ascends());
    }
}
