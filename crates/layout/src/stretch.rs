//! The part of a share in a block, as stretches without gaps.
//!
//! A *stretch* is a box of elements that lie one behind the other in a decoded block: a machine
//! without strided messages would move each with one message. From the contiguous dimension
//! outwards, a dimension is *whole* when the share holds the block's full extent of it, padding
//! included. The box of a stretch spans the whole dimensions and one run of indices of the first
//! dimension that is not whole; it has one index of each dimension outside.
//!
//! ```text
//! block 4 x 6, row-major            rows 1..3, all columns     one stretch, offset 6, 2 x 6
//!                                   columns 2..5               four: 2, 8, 14, 20, 1 x 3 each
//! array ends at column 5: padded    rows 1..3, columns 0..5    two: 6, 12, 1 x 5 each
//! ```
//!
//! The stretches are as large as such boxes can be. The end of one row and the start of the next
//! touch without forming a box, and are two stretches.
//!
//! Costs: a few divisions a dimension to begin with; then a stretch costs no more than its region.

use smallvec::SmallVec;

use crate::disk::Block;
use crate::region::Region;
use crate::share::{DimShare, Share};

/// A stretch is a box of elements that lie one behind the other in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// The elements, by their indices in the array.
    pub region: Region,
    /// The place of the first element, in elements from the block's first.
    pub offset: u64,
}

impl Share {
    /// The stretches of the share in `block`, by ascending offset.
    ///
    /// # Panics
    /// If the block has another number of dimensions than the array.
    pub fn stretches(&self, block: &Block) -> Stretches {
        let mut stretches = Stretches {
            walks: SmallVec::new(),
            column_major: block.strides.first() < block.strides.last(),
            offset: 0,
            ended: self.elements() == 0 || block.region.is_empty(),
        };
        if stretches.ended {
            return stretches;
        }
        let dims = self.dims().len();
        assert_eq!(
            dims,
            block.region.dims(),
            "share and block differ in dimensions"
        );
        for (d, dim) in self.dims().iter().enumerate() {
            let Some(walk) = Walk::new(dim, block, d) else {
                stretches.ended = true;
                return stretches;
            };
            stretches.offset += (walk.now.at - block.region.start[d]) * walk.pitch;
            stretches.walks.push(walk);
        }
        stretches.step_singly(&block.extents);
        stretches
    }
}

/// An iterator over the [`Stretch`]es of a share in a block: see [`Share::stretches`].
#[derive(Debug, Clone)]
pub struct Stretches {
    /// The walk of each dimension of the array.
    walks: SmallVec<[Walk; 4]>,
    /// Whether the first dimension is the contiguous one, not the last.
    column_major: bool,
    /// The offset of the next stretch.
    offset: u64,
    ended: bool,
}

impl Stretches {
    /// The dimension that is `depth`th from the contiguous one outwards.
    fn dim(&self, depth: usize) -> usize {
        if self.column_major {
            depth
        } else {
            self.walks.len() - 1 - depth
        }
    }

    /// Lets the dimensions outside the first that is not whole go by single indices.
    fn step_singly(&mut self, extents: &[u64]) {
        let mut whole = true;
        for depth in 0..self.walks.len() {
            let d = self.dim(depth);
            self.walks[d].singly = !whole;
            whole = whole && self.walks[d].now.indices() == extents[d];
        }
    }

    /// Goes to the next stretch, as an odometer does.
    fn advance(&mut self) {
        for depth in 0..self.walks.len() {
            let d = self.dim(depth);
            let walk = &mut self.walks[d];
            let before = walk.now.at;
            if walk.advance() {
                self.offset += (walk.now.at - before) * walk.pitch;
                return;
            }
            self.offset -= (before - walk.now.at) * walk.pitch;
        }
        self.ended = true;
    }
}

impl Iterator for Stretches {
    type Item = Stretch;

    fn next(&mut self) -> Option<Stretch> {
        if self.ended {
            return None;
        }
        let region = Region {
            start: self.walks.iter().map(|walk| walk.now.at).collect(),
            shape: self.walks.iter().map(Walk::indices).collect(),
        };
        let offset = self.offset;
        self.advance();
        Some(Stretch { region, offset })
    }
}

impl std::iter::FusedIterator for Stretches {}

/// A walk goes along the held indices of one dimension, run by run or one by one.
#[derive(Debug, Clone, Copy)]
struct Walk {
    now: RunStart,
    first: RunStart,
    /// The indices of a run that is not cut off, and the distance from one run to the next.
    block: u64,
    stride: u64,
    /// One past the last held index.
    end: u64,
    /// The distance from index to index in the block, in elements.
    pitch: u64,
    /// Whether the walk goes by single indices, not by runs.
    singly: bool,
}

/// The indices `at .. end`: the rest of a run that would begin at `run` were it not cut off.
#[derive(Debug, Clone, Copy)]
struct RunStart {
    run: u64,
    at: u64,
    end: u64,
}

impl RunStart {
    fn indices(&self) -> u64 {
        self.end - self.at
    }
}

impl Walk {
    /// Makes the walk over the indices of dimension `d` of `block` in `share`; `None` if there are
    /// none.
    fn new(share: &DimShare, block: &Block, d: usize) -> Option<Self> {
        let low = share.below(block.region.start[d]);
        let high = share.below(block.region.end(d));
        if low >= high {
            return None;
        }
        let (_, run, stride, _) = share.comb();
        let (at, end) = (share.index(low), share.index(high - 1) + 1);
        // Runs that touch become one.
        let (begin, run, stride) = if run == stride {
            (at, end - at, u64::MAX)
        } else {
            (at - low % run, run, stride)
        };
        let first = RunStart {
            run: begin,
            at,
            end: begin.saturating_add(run).min(end),
        };
        Some(Self {
            now: first,
            first,
            block: run,
            stride,
            end,
            pitch: block.strides[d],
            singly: false,
        })
    }

    /// The number of indices of the next stretch in this dimension.
    fn indices(&self) -> u64 {
        if self.singly { 1 } else { self.now.indices() }
    }

    /// Goes on, or goes back to the first run and returns `false`.
    fn advance(&mut self) -> bool {
        if self.singly && self.now.indices() > 1 {
            self.now.at += 1;
            return true;
        }
        let run = self.now.run.saturating_add(self.stride);
        if run >= self.end {
            self.now = self.first;
            return false;
        }
        self.now = RunStart {
            run,
            at: run,
            end: run.saturating_add(self.block).min(self.end),
        };
        true
    }
}
