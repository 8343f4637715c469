//! Shares of ranks, and their pieces of regions.
//!
//! A rank's share is a product of sets, one a dimension, and each set is a comb: blocks of `block`
//! indices, `stride` apart, from `first` on. In memory the blocks lie one behind the other.
//!
//! ```text
//! CYCLIC(3) over 2, extent 16, coordinate 1:
//!   index    0 . . 3 4 5 . . . 9 10 11 . . . 15
//!   memory         0 1 2       3  4  5        6       first 3, block 3, stride 6, extent 7
//!   region                 [7 ........... 14)         meets memory 3..6, in one run
//! ```
//!
//! Because the memory index grows with the array index, the held indices in `[a, b)` are always one
//! range of memory indices, found by counting the held indices below `a` and below `b`. As seen
//! from the region they are at most three [`Run`]s: a cut block, whole blocks, a cut block. A
//! [`SharePiece`] is the product of the runs of all dimensions, and a copy of it a handful of
//! nested strided loops: its size does not depend on the number of elements.

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use crate::copy::{Axis, StridedCopy};
use crate::exact::exact;
use crate::region::Region;
use crate::{byte_strides, saturating_product};

/// The indices of one dimension that a rank holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DimShare {
    first: u64,
    block: u64,
    stride: u64,
    extent: u64,
}

impl DimShare {
    /// Makes the share of blocks of `block` from `first` on, `stride` apart, of the indices below
    /// `array_extent`.
    pub(crate) fn dealt(array_extent: u64, first: u64, block: u64, stride: u64) -> Self {
        let unbounded = Self {
            first,
            block,
            stride,
            extent: u64::MAX,
        };
        Self {
            extent: unbounded.below(array_extent),
            ..unbounded
        }
    }

    /// Makes the share of the indices `start .. start + extent`.
    pub(crate) fn interval(start: u64, extent: u64) -> Self {
        Self {
            first: start,
            block: extent.max(1),
            stride: u64::MAX,
            extent,
        }
    }

    /// The number of indices held.
    pub fn extent(&self) -> u64 {
        self.extent
    }

    /// Whether all held indices are below `array_extent`, and all can be counted.
    fn is_within(&self, array_extent: u64) -> bool {
        let Self {
            first,
            block,
            stride,
            extent,
        } = *self;
        let Some(last) = extent.checked_sub(1) else {
            return block > 0 && stride > 0;
        };
        if block == 0 || stride < block {
            return false;
        }
        let in_block = first.checked_add(last % block);
        let blocks = (last / block).checked_mul(stride);
        let index = in_block
            .zip(blocks)
            .and_then(|(at, blocks)| at.checked_add(blocks));
        index.is_some_and(|index| index < array_extent)
    }

    /// The number of held indices below `index`: the memory index of the first that is not below.
    pub(crate) fn below(&self, index: u64) -> u64 {
        if index <= self.first {
            return 0;
        }
        let past = index - self.first;
        (past / self.stride * self.block + (past % self.stride).min(self.block)).min(self.extent)
    }

    /// The array index of memory index `memory`.
    pub fn index(&self, memory: u64) -> u64 {
        self.first + (memory / self.block).saturating_mul(self.stride) + memory % self.block
    }

    /// The held indices as a slice `(start, stop, step)`; `None` if they are blocks with gaps.
    pub fn slice(&self) -> Option<(u64, u64, u64)> {
        match self.extent {
            0 => Some((0, 0, 1)),
            extent if extent <= self.block || self.stride == self.block => {
                Some((self.first, self.first + extent, 1))
            }
            extent if self.block == 1 => {
                Some((self.first, self.index(extent - 1) + 1, self.stride))
            }
            _ => None,
        }
    }

    /// The held indices as `(first, block, stride, extent)`: blocks of `block` indices, `stride`
    /// apart, `extent` in all.
    pub fn comb(&self) -> (u64, u64, u64, u64) {
        (self.first, self.block, self.stride, self.extent)
    }

    /// The held indices of `start .. start + extent`, as at most three runs.
    fn runs(&self, start: u64, extent: u64) -> SmallVec<[Run; 3]> {
        let (low, high) = (self.below(start), self.below(start.saturating_add(extent)));
        let run = |memory: u64, block: u64, count: u64| Run {
            region: self.index(memory) - start,
            memory,
            block,
            count,
            region_stride: self.stride,
            memory_stride: self.block,
        };
        if low >= high {
            return SmallVec::new();
        }
        let count = high - low;
        if self.stride == self.block || low / self.block == (high - 1) / self.block {
            return smallvec![run(low, count, 1)];
        }
        let mut runs = SmallVec::new();
        let head = low.next_multiple_of(self.block) - low;
        if head > 0 {
            runs.push(run(low, head, 1));
        }
        let (whole, tail) = ((count - head) / self.block, (count - head) % self.block);
        if whole > 0 {
            runs.push(run(low + head, self.block, whole));
        }
        if tail > 0 {
            runs.push(run(high - tail, tail, 1));
        }
        runs
    }
}

/// A run is `count` blocks of `block` indices. Block `j` lies at `region + j * region_stride` in
/// the region and at `memory + j * memory_stride` in the rank's memory, both in elements of one
/// dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The first index, counted from the region's start.
    pub region: u64,
    /// The first index in the rank's memory.
    pub memory: u64,
    /// The number of indices of a block.
    pub block: u64,
    /// The number of blocks.
    pub count: u64,
    /// The distance from block to block in the region, without meaning if `count` is 1.
    pub region_stride: u64,
    /// The distance from block to block in memory, without meaning if `count` is 1.
    pub memory_stride: u64,
}

impl Run {
    /// One past the last index in the region.
    fn region_end(&self) -> u64 {
        // The stride has no meaning if there is one block, and may be anything.
        let blocks = if self.count > 1 {
            (self.count - 1) * self.region_stride
        } else {
            0
        };
        self.region + blocks + self.block
    }
}

/// Whether these are runs of one range of memory indices below `extent`, and no index of theirs
/// is too large to be counted with a sign.
fn are_in(runs: &[Run], extent: u64) -> bool {
    const INDICES_MAX: u64 = isize::MAX as u64;
    let mut next = runs.first().map(|run| run.memory);
    for run in runs {
        let is_dense = run.count == 1 || run.memory_stride == run.block;
        if run.block == 0 || run.count == 0 || !is_dense || Some(run.memory) != next {
            return false;
        }
        let held = run.block.checked_mul(run.count);
        next = held.and_then(|held| run.memory.checked_add(held));
        let blocks = match run.count {
            1 => Some(0),
            _ => run.region_stride.checked_mul(run.count - 1),
        };
        let end = blocks.and_then(|blocks| run.region.checked_add(blocks)?.checked_add(run.block));
        if end.is_none_or(|end| end > INDICES_MAX) {
            return false;
        }
    }
    next.is_some_and(|end| end <= extent.min(INDICES_MAX))
}

/// The number of indices of a dimension's runs.
fn indices(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.block * run.count).sum()
}

/// A share is the elements that a rank holds of an array, as a product of one set a dimension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    dims: Vec<DimShare>,
}

impl Share {
    pub(crate) fn new(dims: Vec<DimShare>) -> Self {
        Self { dims }
    }

    /// The smallest box around the share, if the share holds any element.
    pub fn bounds(&self) -> Option<Region> {
        let extent = |dim: &DimShare| dim.index(dim.extent() - 1) + 1 - dim.index(0);
        (self.elements() > 0).then(|| Region {
            start: self.dims.iter().map(|dim| dim.index(0)).collect(),
            shape: self.dims.iter().map(extent).collect(),
        })
    }

    /// Makes an empty share of an array of `dims` dimensions.
    pub fn empty(dims: usize) -> Self {
        // An array without dimensions gets one dimension without indices, which makes the share
        // empty.
        Self {
            dims: vec![DimShare::interval(0, 0); dims.max(1)],
        }
    }

    /// Makes the share of a box.
    pub fn of_box(region: &Region) -> Self {
        let dims = region.start.iter().zip(&region.shape);
        Self {
            dims: dims
                .map(|(&start, &extent)| DimShare::interval(start, extent))
                .collect(),
        }
    }

    /// Whether the share is one of an array of this shape. Ask before a share is used that has come
    /// from elsewhere.
    pub fn is_within(&self, shape: &[u64]) -> bool {
        let mut dims = self.dims.iter().zip(shape);
        self.dims.len() == shape.len() && dims.all(|(dim, &extent)| dim.is_within(extent))
    }

    /// The share of each dimension.
    pub fn dims(&self) -> &[DimShare] {
        &self.dims
    }

    /// The shape of the share in memory, without any halo.
    pub fn extents(&self) -> Vec<u64> {
        self.dims.iter().map(DimShare::extent).collect()
    }

    /// The number of elements, or the highest number if no `u64` holds it.
    pub fn elements(&self) -> u64 {
        saturating_product(self.dims.iter().map(DimShare::extent))
    }

    /// The piece of the share in `region`, or `None` if it is empty.
    ///
    /// # Panics
    /// If the region has another number of dimensions than the array.
    pub fn intersect(&self, region: &Region) -> Option<SharePiece> {
        if self.elements() == 0 || region.is_empty() {
            return None;
        }
        assert_eq!(
            self.dims.len(),
            region.dims(),
            "share and region differ in dimensions"
        );
        let ranges = self.dims.iter().zip(region.start.iter().zip(&region.shape));
        let mut dims = Vec::with_capacity(self.dims.len());
        for (dim, (&start, &extent)) in ranges {
            let runs = dim.runs(start, extent);
            if runs.is_empty() {
                return None;
            }
            dims.push(runs);
        }
        Some(SharePiece { dims })
    }
}

/// The direction of a copy of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// Elements go from the rank's memory to the region's buffer.
    Gather,
    /// Elements go from the region's buffer to the rank's memory.
    Scatter,
}

/// A share piece is the elements that one share has of one region: the product of the runs of each
/// dimension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharePiece {
    dims: Vec<SmallVec<[Run; 3]>>,
}

impl SharePiece {
    /// The number of elements, or the highest number if no `u64` holds it.
    pub fn elements(&self) -> u64 {
        saturating_product(self.dims.iter().map(|runs| indices(runs)))
    }

    /// The runs of each dimension.
    pub fn dims(&self) -> &[SmallVec<[Run; 3]>] {
        &self.dims
    }

    /// The box of the rank's memory that the piece comes from. The elements of a piece always form
    /// a box there, whatever the distribution.
    pub fn memory_box(&self) -> Region {
        let start: Vec<u64> = self.dims.iter().map(|runs| runs[0].memory).collect();
        let extents = self
            .dims
            .iter()
            .map(|runs| runs.iter().map(|run| run.block * run.count).sum());
        Region {
            start,
            shape: extents.collect(),
        }
    }

    /// Whether the piece lies in a memory of these extents, as the pieces of a share of these
    /// extents do. Ask before a piece is used that has come from elsewhere.
    pub fn is_in(&self, extents: &[u64]) -> bool {
        let mut dims = self.dims.iter().zip(extents);
        self.dims.len() == extents.len() && dims.all(|(runs, &extent)| are_in(runs, extent))
    }

    /// One past the last index of the region that the piece has in each dimension.
    pub fn region_ends(&self) -> impl Iterator<Item = u64> {
        let end_of = |runs: &SmallVec<[Run; 3]>| runs.iter().map(Run::region_end).max();
        self.dims.iter().map(move |runs| end_of(runs).unwrap_or(0))
    }

    /// The first index of the region that the piece has in each dimension.
    pub fn region_starts(&self) -> impl Iterator<Item = u64> {
        let start_of = |runs: &SmallVec<[Run; 3]>| runs.iter().map(|run| run.region).min();
        self.dims
            .iter()
            .map(move |runs| start_of(runs).unwrap_or(0))
    }

    /// The number of contiguous stretches into which a dense row-major region cuts the piece: an
    /// element-by-element protocol would send one message for each.
    pub fn stretches(&self, region_shape: &[u64]) -> u64 {
        // The loop goes from the inside out. It keeps the stretches of one index of dimension d,
        // and whether the first and the last element of that index are held, so that neighbours
        // join.
        let mut stretches = 1u64;
        let mut joins = true;
        for (runs, &extent) in self.dims.iter().zip(region_shape).rev() {
            let blocks: u64 = runs.iter().map(|run| run.count).sum();
            let joints = if joins { indices(runs) - blocks } else { 0 };
            stretches = stretches
                .saturating_mul(indices(runs))
                .saturating_sub(joints);
            let first = runs.first().is_some_and(|run| run.region == 0);
            let last = runs.last().is_some_and(|run| run.region_end() == extent);
            joins = joins && first && last;
        }
        stretches
    }

    /// The nested strided copies that move the piece between a buffer in which the region has
    /// `region_strides` and a memory in which the share has `memory_strides`, all in bytes, for
    /// elements of `width` bytes. There are at most three for each dimension, multiplied.
    pub fn copies(
        &self,
        width: usize,
        region_strides: &[isize],
        memory_strides: &[isize],
        direction: Direction,
    ) -> Vec<StridedCopy> {
        let mut copies = vec![StridedCopy::element(width)];
        for (d, runs) in self.dims.iter().enumerate() {
            let (region, memory) = (region_strides[d], memory_strides[d]);
            let deeper = copies.iter().flat_map(|outer| {
                runs.iter()
                    .map(move |run| outer.deeper(run, region, memory, direction))
            });
            copies = deeper.collect();
        }
        copies.iter_mut().for_each(StridedCopy::simplify);
        copies
    }

    /// The copies that move the piece's box of a memory, in which the share has `memory_strides`,
    /// to and from a parcel that holds nothing else, row-major.
    pub fn packing(
        &self,
        width: usize,
        memory_strides: &[isize],
        direction: Direction,
    ) -> Vec<StridedCopy> {
        let taken = self.memory_box();
        let ranges = taken.start.iter().zip(&taken.shape);
        let dims = ranges.map(|(&memory, &block)| {
            smallvec![Run {
                region: 0,
                memory,
                block,
                count: 1,
                region_stride: 0,
                memory_stride: 0,
            }]
        });
        let whole = Self {
            dims: dims.collect(),
        };
        let dense = byte_strides(&taken.shape, width);
        whole.copies(width, &dense, memory_strides, direction)
    }

    /// The copies that move the piece between a parcel of [`SharePiece::packing`], in the place of
    /// the memory, and a buffer in which the region has `region_strides`.
    pub fn unpacking(
        &self,
        width: usize,
        region_strides: &[isize],
        direction: Direction,
    ) -> Vec<StridedCopy> {
        let mut packed = self.clone();
        for runs in &mut packed.dims {
            let first = runs[0].memory;
            runs.iter_mut().for_each(|run| run.memory -= first);
        }
        let dense = byte_strides(&self.memory_box().shape, width);
        packed.copies(width, region_strides, &dense, direction)
    }
}

impl StridedCopy {
    /// Puts the loops of `run` inside the loops of this copy.
    fn deeper(&self, run: &Run, region: isize, memory: isize, direction: Direction) -> Self {
        let ordered = |region: isize, memory: isize| match direction {
            Direction::Gather => (memory, region),
            Direction::Scatter => (region, memory),
        };
        let mut copy = self.clone();
        let (source, target) = ordered(
            exact::<isize>(run.region) * region,
            exact::<isize>(run.memory) * memory,
        );
        copy.source += source;
        copy.target += target;
        if run.count > 1 {
            let (source, target) = ordered(
                exact::<isize>(run.region_stride) * region,
                exact::<isize>(run.memory_stride) * memory,
            );
            copy.axes.push(Axis {
                count: exact::<usize>(run.count),
                source,
                target,
            });
        }
        if run.block > 1 {
            let (source, target) = ordered(region, memory);
            copy.axes.push(Axis {
                count: exact::<usize>(run.block),
                source,
                target,
            });
        }
        copy
    }
}
