//! Parts of arrays, as subarrays and distributed arrays are: some indices of each dimension.
//!
//! ```text
//! 10 indices, runs of 2 dealt out to 2 processes      0 0 1 1 0 0 1 1 0 0
//! of process 1                                        2 whole runs, 4 apart, from 2 on; no rest
//! 9 indices, runs of 3, 2 processes, of process 0     0 0 0 1 1 1 0 0 0
//! ```

use crate::flat::Type;
use crate::tree::Tree;

/// The indices of one dimension: some whole runs at equal distances, and the rest of one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indices {
    first: u64,
    /// The indices of a run.
    length: u64,
    /// The number of whole runs.
    turns: u64,
    /// The distance from one run to the next.
    cycle: u64,
    /// The indices of the last run, if it is no whole one.
    rest: u64,
}

impl Indices {
    /// `count` indices from `first` on.
    pub fn block(first: u64, count: u64) -> Self {
        Self {
            first,
            length: count,
            turns: 1,
            cycle: count,
            rest: 0,
        }
    }

    /// The indices of the process at this place, if runs of `length` of `size` indices are dealt
    /// out to `along` processes in turn.
    pub fn cyclic(length: u64, place: u64, along: u64, size: u64) -> Self {
        let (cycle, first) = (length * along, (place * length).min(size));
        let behind = size - first;
        let (whole, left) = (behind / cycle, (behind % cycle).min(length));
        let is_whole = left == length;
        Self {
            first,
            length,
            turns: whole + u64::from(is_whole),
            cycle,
            rest: if is_whole { 0 } else { left },
        }
    }

    /// The number of indices.
    fn count(&self) -> u64 {
        self.turns * self.length + self.rest
    }

    /// The tree of `inner` at these indices, which are `stride` bytes apart.
    fn tree(&self, inner: &Tree, stride: i64) -> Tree {
        let place = |index: u64| index as i64 * stride;
        let run = |length| inner.clone().repeated(length, stride);
        let whole = run(self.length).repeated(self.turns, place(self.cycle));
        let rest = run(self.rest).shifted(place(self.turns * self.cycle));
        Tree::sequence([whole, rest]).shifted(place(self.first))
    }
}

/// The part of an array of `sizes` of a type that has these indices in each dimension. The first
/// dimension is the fastest in Fortran, and the last in C.
pub fn part_of_array(old: &Type, sizes: &[i64], parts: &[Indices], is_fortran: bool) -> Type {
    let (mut tree, mut stride, mut count) = (old.tree.clone(), old.extent, 1);
    let mut extend = |(indices, size): (&Indices, &i64)| {
        tree = indices.tree(&tree, stride);
        count *= indices.count();
        stride *= size;
    };
    let dims = parts.iter().zip(sizes);
    match is_fortran {
        true => dims.for_each(&mut extend),
        false => dims.rev().for_each(&mut extend),
    }
    Type {
        tree,
        lower: 0,
        extent: stride,
        items: old.items.repeated(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of the data of a type.
    fn places(datatype: &Type) -> Vec<i64> {
        let mut places = Vec::new();
        datatype.tree.walk(0, 0..datatype.size(), &mut |series| {
            series.runs(&mut |start, length| places.extend(start..start + length as i64));
        });
        places
    }

    #[test]
    fn runs_are_dealt_out_in_turn() {
        for size in 0..14u64 {
            for length in 1..5 {
                for along in 1..4 {
                    for place in 0..along {
                        let indices = Indices::cyclic(length, place, along, size);
                        let own: Vec<i64> = (0..size)
                            .filter(|index| index / length % along == place)
                            .map(|index| index as i64)
                            .collect();
                        assert_eq!(indices.count(), own.len() as u64);
                        let line = part_of_array(&Type::byte(), &[size as i64], &[indices], false);
                        assert_eq!(places(&line), own, "{indices:?} of {size}");
                    }
                }
            }
        }
    }

    #[test]
    fn parts_of_arrays_in_both_orders() {
        let parts = [Indices::block(1, 2), Indices::cyclic(1, 1, 2, 5)];
        let in_c = part_of_array(&Type::byte(), &[4, 5], &parts, false);
        assert_eq!(places(&in_c), [6, 8, 11, 13]);
        assert_eq!((in_c.extent, in_c.items.count()), (20, 4));
        let in_fortran = part_of_array(&Type::byte(), &[4, 5], &parts, true);
        assert_eq!(places(&in_fortran), [5, 6, 13, 14]);
        assert_eq!(in_fortran.extent, 20);
    }
}
