//! Blocks by number: the order of a file, and its consequences.
//!
//! A block is known by its object and by its index within the object. *File order* is the order of
//! these pairs: objects as their grid counts them, row-major, and within an object the blocks as
//! they lie one behind the other. All functions here compute with the two numbers; nothing keeps a
//! list of blocks.
//!
//! ```text
//! columns 0..12, chunks of 6, blocks of 2      object  0  0  0  1  1  1
//!                                              index   0  1  2  0  1  2
//!   2 servers, objects dealt out               server  0  0  0  1  1  1
//!                                              slot    0  1  2  0  1  2
//!   2 servers, blocks dealt out                server  0  1  0  0  1  0
//!                                              slot    0  0  1  2  1  3
//!   conforming, 2 ranks, objects dealt out     rank    0  0  0  1  1  1
//!   conforming, 2 ranks, blocks dealt out      rank    0  1  1  0  1  1
//! ```
//!
//! Costs: a block from its numbers, or the next block of its server, takes time in proportion to
//! the dimensions, plus any blocks of padding alone that are passed over. The blocks of a region
//! take time in proportion to their number, for the grids of objects and of blocks are both cut to
//! the region a dimension at a time.

use std::ops::Range;

use crate::disk::{Assignment, Block, Cut, DiskSchema};
use crate::exact::exact;
use crate::region::Region;

impl DiskSchema {
    /// Block `index` of `object`; `None` if there is no such block, or if it is all padding.
    pub fn block_at(&self, object: u64, index: u64) -> Option<Block> {
        if object >= self.objects() {
            return None;
        }
        let cut = self.cut(object);
        if index >= cut.blocks() {
            return None;
        }
        self.block(object, index, &cut)
    }

    /// The server, of `servers`, that moves `block`: the block is in its [`DiskSchema::blocks`].
    ///
    /// # Panics
    /// If `servers` is 0.
    pub fn server_of(&self, block: &Block, servers: usize) -> usize {
        assert!(servers > 0, "no server to move a block");
        match self.assignment() {
            Assignment::Objects => self.server_of_object(block.object, servers),
            Assignment::Blocks => exact::<usize>(block.index % servers as u64),
        }
    }

    /// The block that its server moves next; `None` after the last.
    ///
    /// # Panics
    /// If `servers` is 0.
    pub fn successor(&self, block: &Block, servers: usize) -> Option<Block> {
        let server = self.server_of(block, servers) as u64;
        let (object_step, index_first, index_step) = match self.assignment() {
            Assignment::Objects => (servers, 0, 1),
            Assignment::Blocks => (1, server, servers),
        };
        let next = |object: u64, index: u64| {
            let cut = self.cut(object);
            let indices = self.wanted(object, &cut, index..cut.blocks(), index_step as u64);
            self.numbered_blocks(object, cut, indices).next()
        };
        next(block.object, block.index + index_step as u64).or_else(|| {
            (block.object + object_step as u64..self.objects())
                .step_by(object_step)
                .find_map(|object| next(object, index_first))
        })
    }

    /// The slot of `block` on its server's disk: a number that no other block of the server has and
    /// that grows along [`DiskSchema::blocks`], from 0 on. Every object has room for as many blocks
    /// as the largest has. Smaller objects leave slots empty, and so do blocks of padding alone.
    ///
    /// # Panics
    /// If `servers` is 0.
    pub fn slot(&self, block: &Block, servers: usize) -> u64 {
        let server = self.server_of(block, servers) as u64;
        let servers = servers as u64;
        let room = self.object_blocks_max();
        match self.assignment() {
            Assignment::Objects => {
                let turn = self.turn(servers);
                let round = (turn + block.object) / servers;
                (round - u64::from(server < turn)) * room + block.index
            }
            Assignment::Blocks => {
                let room = room.saturating_sub(server).div_ceil(servers);
                block.object * room + block.index / servers
            }
        }
    }

    /// The blocks that hold an element of `region`, in file order. No block holds indices beyond
    /// the array.
    ///
    /// # Panics
    /// If the region has another number of dimensions than the array.
    pub fn blocks_in(&self, region: &Region) -> impl Iterator<Item = Block> + use<'_> {
        let dims = self.shape().len();
        assert_eq!(region.dims(), dims, "region and array differ in dimensions");
        let region = self.clip(region);
        let mut in_chunks = region.clone();
        for d in 0..dims {
            in_chunks.start[d] += self.before(d);
        }
        let objects = Tiles {
            touched: self.touched_objects(&in_chunks),
            counts: self.grid(),
            inner_to_outer: (0..dims).rev().collect(),
        };
        objects.numbers().flat_map(move |object| {
            let cut = self.cut(object);
            let indices = self.indices_in(&region, &cut);
            self.numbered_blocks(object, cut, indices)
        })
    }

    /// The objects that hold an element of `region`, as a box of their grid.
    fn touched_objects(&self, region: &Region) -> Region {
        tiles_of(region, |index, d| self.object_of(index, d))
    }

    /// The part of `rank` in the conforming distribution of two-phase I/O (del Rosario, Bordawekar
    /// and Choudhary 1993; Kotz, TOCS 1997, section 4). The blocks in file order are cut into
    /// `ranks` consecutive parts that are as equal as can be. If whole objects are dealt out to the
    /// servers, the parts are of whole objects; if blocks are, each object is cut by itself. A rank
    /// beyond has nothing.
    pub fn conforming(&self, rank: usize, ranks: usize) -> impl Iterator<Item = Block> + use<'_> {
        let assignment = self.assignment();
        let objects = match assignment {
            Assignment::Objects => part(self.objects(), rank, ranks),
            Assignment::Blocks => 0..self.objects(),
        };
        objects.flat_map(move |object| {
            let cut = self.cut(object);
            let own = match assignment {
                Assignment::Objects => 0..cut.blocks(),
                Assignment::Blocks => part(cut.blocks(), rank, ranks),
            };
            let indices = self.wanted(object, &cut, own, 1);
            self.numbered_blocks(object, cut, indices)
        })
    }

    /// The rank with `block` in its conforming part, and the block's place in it: a number below
    /// [`DiskSchema::conforming_blocks_max`] that no other block of the part has and that grows
    /// along [`DiskSchema::conforming`]. Smaller objects and blocks of padding alone leave numbers
    /// out.
    ///
    /// # Panics
    /// If `ranks` is 0.
    pub fn conforming_place(&self, block: &Block, ranks: usize) -> (usize, u64) {
        let room = self.object_blocks_max();
        match self.assignment() {
            Assignment::Objects => {
                let (rank, nth) = part_of(self.objects(), block.object, ranks);
                (rank, nth * room + block.index)
            }
            Assignment::Blocks => {
                let blocks = self.cut(block.object).blocks();
                let (rank, nth) = part_of(blocks, block.index, ranks);
                (rank, block.object * room.div_ceil(ranks as u64) + nth)
            }
        }
    }

    /// The most blocks of a part of the conforming distribution over `ranks`.
    ///
    /// # Panics
    /// If `ranks` is 0.
    pub fn conforming_blocks_max(&self, ranks: usize) -> u64 {
        let blocks = self.object_blocks_max();
        match self.assignment() {
            Assignment::Objects => self.objects().div_ceil(ranks as u64) * blocks,
            Assignment::Blocks => self.objects() * blocks.div_ceil(ranks as u64),
        }
    }

    /// The numbers of an object's blocks that hold an element of `region`, which lies inside the
    /// array, ascending.
    pub(crate) fn indices_in(
        &self,
        region: &Region,
        cut: &Cut,
    ) -> impl Iterator<Item = u64> + use<> {
        // The region touches the object, so both have elements in common.
        let nothing = Region::new(&cut.stored.start, &vec![0; region.dims()]);
        let held = cut.stored.intersect(region).unwrap_or(nothing);
        let blocks = Tiles {
            touched: touched(&held, &cut.stored.start, &cut.step),
            counts: cut.counts.clone(),
            inner_to_outer: self.inner_to_outer().collect(),
        };
        blocks.numbers()
    }
}

/// Part `rank` of `0 .. count`, cut into `ranks` parts whose sizes differ by one at most.
fn part(count: u64, rank: usize, ranks: usize) -> Range<u64> {
    if rank >= ranks {
        return 0..0;
    }
    let cut = |rank: usize| exact::<u64>(rank as u128 * u128::from(count) / ranks as u128);
    cut(rank)..cut(rank + 1)
}

/// The [`part`] that number `nth` is in, and its place there.
fn part_of(count: u64, nth: u64, ranks: usize) -> (usize, u64) {
    // This is the last rank whose part begins at `nth` or before: (nth + 1) * ranks > rank * count.
    let rank = ((nth as u128 + 1) * ranks as u128 - 1) / u128::from(count);
    let rank = rank as usize;
    (rank, nth - part(count, rank, ranks).start)
}

/// The tiles that hold an element of `region`, as a box of the grid. The grid begins at `origin`,
/// and its tiles have `step` extents.
fn touched(region: &Region, origin: &[u64], step: &[u64]) -> Region {
    tiles_of(region, |index, d| (index - origin[d]) / step[d])
}

/// The tiles that hold an element of `region`, as a box of the grid: `tile_of` gives the place of
/// an index in the grid, along a dimension.
fn tiles_of(region: &Region, tile_of: impl Fn(u64, usize) -> u64) -> Region {
    let mut tiles = Region::whole(&region.shape);
    for d in 0..region.dims() {
        if region.shape[d] > 0 {
            let first = tile_of(region.start[d], d);
            let last = tile_of(region.end(d) - 1, d);
            tiles.start[d] = first;
            tiles.shape[d] = last - first + 1;
        }
    }
    tiles
}

/// A box of tiles in a grid of `counts`. Tiles are numbered along the dimensions in the order of
/// `inner_to_outer`.
struct Tiles {
    touched: Region,
    counts: Vec<u64>,
    inner_to_outer: Vec<usize>,
}

impl Tiles {
    /// The numbers of the tiles, ascending.
    fn numbers(self) -> impl Iterator<Item = u64> {
        (0..self.touched.elements()).map(move |nth| {
            let (mut rest, mut number, mut weight) = (nth, 0, 1);
            for &d in &self.inner_to_outer {
                let extent = self.touched.shape[d];
                number += (self.touched.start[d] + rest % extent) * weight;
                rest /= extent;
                weight *= self.counts[d];
            }
            number
        })
    }
}
