//! The elements that portions have of a block, as runs in the row-major order of the array.
//!
//! ```text
//! array 4 x 6, a block of columns 2..5     row 0: a run at 2, of 3 elements, numbered in the array
//!  . . a a a .                             row 1: a run at 8, of 3 elements
//!  . . a a a .
//! ```
//!
//! Costs: a run for each row of a block; where rows follow each other in the array and in the
//! buffer, one for all of them, unless the caller wants rows.

use penstock_engine::Portion;
use penstock_layout::{Block, Piece, SharePiece, exact, row_major_strides};

/// Elements that follow each other in the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The number of the first element in the row-major order of the array.
    pub(super) first: u64,
    /// The number of elements.
    pub(super) count: usize,
    /// The byte of the block at which the first element lies.
    pub(super) byte: usize,
    /// The bytes from one element to the next.
    pub(super) step: usize,
}

impl Run {
    fn end(&self) -> u64 {
        self.first + self.count as u64
    }

    /// The run without its first elements.
    pub(super) fn after(self, elements: usize) -> Self {
        Self {
            first: self.first + elements as u64,
            count: self.count - elements,
            byte: self.byte + elements * self.step,
            ..self
        }
    }

    /// The bytes of the elements, one behind the other.
    pub(super) fn copy_to(&self, bytes: &mut Vec<u8>, data: &[u8], width: usize) {
        if self.step == width {
            bytes.extend_from_slice(&data[self.byte..self.byte + self.count * width]);
            return;
        }
        for nth in 0..self.count {
            let at = self.byte + nth * self.step;
            bytes.extend_from_slice(&data[at..at + width]);
        }
    }
}

/// Finds the runs of portions of one block.
pub(super) struct Runs<'a> {
    block: &'a Block,
    /// The elements from one index of the array to the next, in each dimension.
    strides: Vec<u64>,
    /// The bytes of an element.
    width: usize,
    /// Whether no run may go on in the next row.
    are_rows: bool,
}

impl<'a> Runs<'a> {
    /// Finds runs in a block of an array of this shape, of elements of `width` bytes.
    pub(super) fn new(block: &'a Block, shape: &[u64], width: usize) -> Self {
        Self {
            block,
            strides: row_major_strides(shape),
            width,
            are_rows: false,
        }
    }

    /// Lets no run go on in the next row of the array.
    pub(super) fn in_rows(self) -> Self {
        let are_rows = true;
        Self { are_rows, ..self }
    }

    /// The runs of the portions together, in ascending order, each element once.
    pub(super) fn of<'p>(&self, portions: impl IntoIterator<Item = &'p Portion>) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut pieces = 0;
        for portion in portions {
            pieces += 1;
            match &portion.piece {
                Piece::Share(piece) => self.of_share(piece, &mut runs),
                Piece::List(piece) => {
                    pieces += 1; // its runs may be in any order, and lie over each other
                    for (place, _, elements) in piece.iter() {
                        self.of_buffer(place, elements, &mut runs);
                    }
                }
            }
        }
        if pieces > 1 {
            runs = apart(runs);
        }
        match self.are_rows {
            true => runs,
            false => self.joined(runs),
        }
    }

    /// Adds the runs of a share's piece.
    fn of_share(&self, piece: &SharePiece, runs: &mut Vec<Run>) {
        let block = self.block;
        let Some((inner, outer)) = piece.dims().split_last() else {
            runs.push(self.run(&[], 1)); // an array without dimensions
            return;
        };
        let last = outer.len();
        let indices: Vec<Vec<u64>> = outer
            .iter()
            .enumerate()
            .map(|(d, of_dim)| {
                let blocks = of_dim
                    .iter()
                    .flat_map(|run| (0..run.count).map(move |nth| (start_of(run, nth), run.block)));
                let indices = blocks.flat_map(|(start, count)| start..start + count);
                indices.map(|index| index + block.region.start[d]).collect()
            })
            .collect();
        if indices.iter().any(Vec::is_empty) {
            return;
        }
        let mut turns = vec![0; outer.len()];
        let mut coordinates: Vec<u64> = indices.iter().map(|of_dim| of_dim[0]).collect();
        coordinates.push(0);
        loop {
            for run in inner {
                for nth in 0..run.count {
                    coordinates[last] = block.region.start[last] + start_of(run, nth);
                    runs.push(self.run(&coordinates, exact::<usize>(run.block)));
                }
            }
            // The next row, the last dimension of the outer ones first.
            let mut d = last;
            loop {
                if d == 0 {
                    return;
                }
                d -= 1;
                turns[d] += 1;
                if turns[d] < indices[d].len() {
                    coordinates[d] = indices[d][turns[d]];
                    break;
                }
                turns[d] = 0;
                coordinates[d] = indices[d][0];
            }
        }
    }

    /// Adds the runs of elements that follow each other in the block's buffer.
    fn of_buffer(&self, place: u64, elements: u64, runs: &mut Vec<Run>) {
        let Block {
            extents,
            strides,
            region,
            ..
        } = self.block;
        let dims = extents.len();
        // The dimensions by descending strides; of those with one stride the last has several
        // indices at most.
        let mut order: Vec<usize> = (0..dims).collect();
        order.sort_by_key(|d| (std::cmp::Reverse(strides[*d]), *d));
        let (mut place, end) = (place, place + elements);
        while place < end {
            let (mut rest, mut coordinates) = (place, vec![0; dims]);
            for &d in &order {
                coordinates[d] = (rest / strides[d].max(1)).min(extents[d].saturating_sub(1));
                rest -= coordinates[d] * strides[d];
            }
            let row = match order.last() {
                Some(&d) if d + 1 == dims && strides[d] == 1 => extents[d] - coordinates[d],
                _ => 1, // the next in the buffer is not the next in the array
            };
            let count = row.min(end - place);
            let start = region.start.iter();
            let in_array = coordinates.iter().zip(start).map(|(at, start)| at + start);
            runs.push(self.run(&in_array.collect::<Vec<_>>(), exact::<usize>(count)));
            place += count;
        }
    }

    /// The run of `count` elements of a row from these indices of the array on.
    fn run(&self, coordinates: &[u64], count: usize) -> Run {
        let Block {
            region, strides, ..
        } = self.block;
        let first = coordinates.iter().zip(&self.strides);
        let place = coordinates.iter().zip(&region.start).zip(strides);
        let place: u64 = place
            .map(|((at, start), stride)| (at - start) * stride)
            .sum();
        Run {
            first: first.map(|(at, stride)| at * stride).sum(),
            count,
            byte: exact::<usize>(place) * self.width,
            step: strides
                .last()
                .map_or(self.width, |stride| exact::<usize>(*stride) * self.width),
        }
    }

    /// Joins runs that follow each other in the array and in the buffer.
    fn joined(&self, runs: Vec<Run>) -> Vec<Run> {
        let mut joined: Vec<Run> = Vec::with_capacity(runs.len());
        for run in runs {
            match joined.last_mut() {
                Some(last)
                    if last.step == self.width
                        && run.step == self.width
                        && last.end() == run.first
                        && last.byte + last.count * self.width == run.byte =>
                {
                    last.count += run.count;
                }
                _ => joined.push(run),
            }
        }
        joined
    }
}

fn start_of(run: &penstock_layout::Run, nth: u64) -> u64 {
    match nth {
        0 => run.region, // the stride of a single block has no meaning
        nth => run.region + nth * run.region_stride,
    }
}

/// Sorts runs, and leaves each element in one of them.
fn apart(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable_by_key(|run| run.first);
    let mut end = 0;
    let mut apart = Vec::with_capacity(runs.len());
    for run in runs {
        let covered = exact::<usize>(end.max(run.first) - run.first);
        if covered < run.count {
            let run = run.after(covered);
            end = run.end();
            apart.push(run);
        }
    }
    apart
}

/// The indices of an element of an array of this shape, by its number.
pub(super) fn indices_of(shape: &[u64], mut number: u64, indices: &mut [u64]) {
    for (index, &extent) in indices.iter_mut().zip(shape).rev() {
        *index = number % extent.max(1);
        number /= extent.max(1);
    }
}

#[cfg(test)]
mod tests {
    use penstock_engine::portions;
    use penstock_layout::{
        Boxes, DiskSchema, Distribution, Dists, Holding, List, MemorySchema, Order, Region,
    };

    use super::*;

    /// Checks the runs of a memory schema, rank by rank, against the elements one by one.
    fn check(memory: &MemorySchema, disk: &DiskSchema, shape: &[u64]) {
        for block in disk.blocks(0, 1) {
            for rank in 0..memory.ranks() {
                let all: Vec<Portion> = portions(memory, &block).collect();
                let own: Vec<_> = all.iter().filter(|one| one.rank == rank).collect();
                let mut expected = Vec::new();
                let mut indices = vec![0; shape.len()];
                let elements: u64 = shape.iter().product();
                for number in 0..elements {
                    indices_of(shape, number, &mut indices);
                    let one = Region::new(&indices, &vec![1; shape.len()]);
                    let is_held = memory.touching(&one).into_iter().any(|share| {
                        memory.holder(share).rank == rank
                            && memory.share(share).intersect(&one).is_some()
                    });
                    if is_held && block.region.contains(&one) {
                        let place = indices.iter().zip(&block.region.start).zip(&block.strides);
                        let place: u64 = place.map(|((at, start), by)| (at - start) * by).sum();
                        expected.push((number, place * 4));
                    }
                }
                for are_rows in [false, true] {
                    let runs = Runs::new(&block, shape, 4);
                    let runs = if are_rows { runs.in_rows() } else { runs };
                    let found = runs.of(own.iter().copied());
                    let found = found.iter().flat_map(|run| {
                        let each =
                            move |nth| (run.first + nth as u64, (run.byte + nth * run.step) as u64);
                        (0..run.count).map(each)
                    });
                    assert_eq!(found.collect::<Vec<_>>(), expected, "{block:?} of {rank}");
                }
            }
        }
    }

    #[test]
    fn runs_are_the_elements_of_each_rank_in_the_order_of_the_array() {
        for (shape, chunk) in [
            (vec![5, 7], vec![2, 3]),
            (vec![4, 6], vec![4, 6]),
            (vec![9], vec![4]),
            (vec![3, 2, 5], vec![2, 2, 2]),
            (vec![], vec![]),
        ] {
            let disks = [
                DiskSchema::chunked(&shape, 4, &chunk).unwrap(),
                DiskSchema::flat(&shape, 4, Order::RowMajor, 32).unwrap(),
                DiskSchema::flat(&shape, 4, Order::ColumnMajor, 32).unwrap(),
            ];
            let mut memories = Vec::new();
            for dist in ["BLOCK", "CYCLIC", "CYCLIC(2)"] {
                let names = vec![dist; shape.len()].join(",");
                let dists: Dists = match shape.len() {
                    0 => continue,
                    _ => names.parse().unwrap(),
                };
                let mesh = vec![2; shape.len()];
                memories.push(Distribution::new(&shape, &dists, &mesh).unwrap().into());
            }
            let whole = Region::whole(&shape);
            let part = Region::new(
                &vec![0; shape.len()],
                &shape.iter().map(|n| n.div_ceil(2)).collect::<Vec<_>>(),
            );
            let both = vec![vec![whole, part.clone()], vec![part]];
            memories.push(Boxes::of_lists(&shape, both, true).unwrap().into());
            for disk in &disks {
                memories
                    .iter()
                    .for_each(|memory| check(memory, disk, &shape));
            }
        }
    }

    #[test]
    fn runs_of_lists_are_sorted_and_each_element_is_in_one() {
        let shape = [6, 5];
        let file = List::runs(&[20, 3, 4, 3, 28], &[6, 4, 1, 2, 2]).unwrap();
        let memory = List::runs(&[0], &[15]).unwrap();
        let holding = Holding::new(&file, &memory).unwrap();
        for disk in [
            DiskSchema::chunked(&shape, 2, &[4, 3]).unwrap(),
            DiskSchema::flat(&shape, 2, Order::ColumnMajor, 20).unwrap(),
            DiskSchema::flat(&shape, 2, Order::RowMajor, 20).unwrap(),
        ] {
            let mut found = Vec::new();
            for (block, piece) in holding.pieces(&disk) {
                let portion = Portion {
                    rank: 0,
                    part: 0,
                    piece: piece.into(),
                };
                let runs = Runs::new(&block, &shape, 2).of([&portion]);
                assert!(runs.is_sorted_by(|one, next| one.end() <= next.first));
                for run in runs {
                    for nth in 0..run.count {
                        let number = run.first + nth as u64;
                        let mut indices = [0; 2];
                        indices_of(&shape, number, &mut indices);
                        let place = indices.iter().zip(&block.region.start).zip(&block.strides);
                        let place: u64 = place.map(|((at, start), by)| (at - start) * by).sum();
                        assert_eq!(place * 2, (run.byte + nth * run.step) as u64);
                        found.push(number);
                    }
                }
            }
            found.sort_unstable();
            assert_eq!(found, [3, 4, 5, 6, 20, 21, 22, 23, 24, 25, 28, 29]);
        }
    }
}
