//! The pieces of a holding, block by block.
//!
//! The search goes down a tree. Its levels are the dimensions of the grid of objects and then of
//! the grid of an object's blocks, in the order in which these count; its nodes are tiles. A node
//! has the strands of the holding that lie in its tile, and hands each tile below it the parts that
//! lie there:
//!
//! ```text
//! array 4 x 6, chunks of 2 x 3       rows of objects      objects
//!  .  .  . |  .  4  5                0: 4..12             0: 6..9
//!  6  7  8 |  9 10 11                                     1: 4..6, 9..12
//!  --------+---------                1: 12..14            2: 12..14
//! 12 13  . |  .  .  .
//! ```
//!
//! A node takes its strands by their first places: what lies in the next tile is cut off, and the
//! rest waits. Tiles without a wanted block are passed over at once.
//!
//! Costs: each strand is cut at most twice a loop for each tile that it touches and that is
//! looked at. A search holds the strands of one path down the tree. At its root, where the array
//! is cut along its first dimension, strands are taken one by one; where it is cut along another
//! alone, all are aligned to the rows of the array at first.

use std::collections::BTreeMap;
use std::ops::Range;

use super::cut::{Halves, NO_PERIOD, align, split};
use super::piece::ListPiece;
use super::series::{Loop, Pair, Strand};
use crate::cuts::Cuts;
use crate::disk::{Assignment, Block, Cut, DiskSchema};
use crate::exact::exact;
use crate::row_major_strides;

/// An iterator over the blocks that a holding touches, in file order, each with its piece.
#[derive(Debug)]
pub struct Pieces<'a> {
    /// The holding's strands, until the search begins.
    root: Option<&'a [Strand]>,
    schema: &'a DiskSchema,
    bounds: Range<(u64, u64)>,
    /// The server and the number of servers whose blocks are wanted.
    server: (u64, u64),
    object_levels: Vec<Level<'a>>,
    /// The path down the tree.
    nodes: Vec<Node<'a>>,
    /// The object whose blocks are being found.
    object: Option<Opened<'a>>,
}

/// An object whose blocks are being found.
#[derive(Debug)]
struct Opened<'a> {
    object: u64,
    cut: Cut,
    levels: Vec<Level<'a>>,
}

/// A level is one dimension of a grid of tiles.
#[derive(Debug, Clone)]
struct Level<'a> {
    /// The elements from one index of the dimension to the next, and the period of its indices.
    unit: i64,
    period: i64,
    /// The first index of tile 0, which may be before the array, and the indices of a tile.
    origin: i64,
    step: i64,
    /// The cuts between tiles that are not alike.
    cuts: Option<&'a Cuts>,
    /// The number of blocks or objects from one tile to the next.
    weight: u64,
}

impl Level<'_> {
    /// The first place of a tile.
    fn begin_of(&self, tile: u64) -> i64 {
        let index = match self.cuts {
            Some(cuts) => exact::<i64>(cuts.start(tile)),
            None => self
                .step
                .saturating_mul(exact::<i64>(tile))
                .saturating_add(self.origin),
        };
        index.saturating_mul(self.unit)
    }

    /// The tile of a place.
    fn tile_of(&self, place: i64) -> u64 {
        let index = place / self.unit;
        match self.cuts {
            Some(cuts) => cuts.chunk_of(exact::<u64>(index)),
            None => exact::<u64>((index - self.origin) / self.step),
        }
    }
}

/// The numbers of wanted objects or blocks: all of a range, or each `every`th of it.
#[derive(Debug, Clone)]
struct Wanted {
    numbers: Range<u64>,
    every: u64,
    residue: u64,
}

impl Wanted {
    /// The first tile from `tile` on that has a wanted number, of tiles of `weight` numbers from
    /// `base` on.
    fn tile_from(&self, tile: u64, base: u64, weight: u64) -> Option<u64> {
        let mut tile = tile.max(self.numbers.start.saturating_sub(base) / weight);
        if weight == 1 {
            let past = (base + tile) % self.every;
            tile += (self.residue + self.every - past) % self.every;
        }
        (base + tile * weight < self.numbers.end).then_some(tile)
    }

    fn contains(&self, number: u64) -> bool {
        self.tile_from(0, number, 1) == Some(0)
    }
}

/// A node of the tree, with the strands that lie in its tile and are not yet handed down.
#[derive(Debug)]
struct Node<'a> {
    level: Level<'a>,
    /// The number of the first object or block of the tile.
    base: u64,
    wanted: Wanted,
    /// Strands by their first places.
    begun: BTreeMap<i64, Vec<Strand>>,
    /// Strands that are not yet begun, by ascending first place.
    behind: &'a [Strand],
}

impl<'a> Node<'a> {
    fn new(level: Level<'a>, base: u64, wanted: Wanted, strands: Strands<'a>) -> Self {
        let mut node = Self {
            level,
            base,
            wanted,
            begun: BTreeMap::new(),
            behind: &[],
        };
        let period = node.level.period;
        let mut aligned = Vec::new();
        match strands {
            Strands::All(all) if period == NO_PERIOD => node.behind = all,
            Strands::All(all) => {
                for strand in all {
                    align(strand.clone(), period, &mut aligned);
                }
            }
            Strands::Some(some) => {
                for strand in some {
                    align(strand, period, &mut aligned);
                }
            }
        }
        node.keep(aligned);
        node
    }

    fn keep(&mut self, strands: Vec<Strand>) {
        for strand in strands {
            let low = strand.low(self.level.period);
            self.begun.entry(low).or_default().push(strand);
        }
    }

    /// The first place of all strands.
    fn first(&self) -> Option<i64> {
        let begun = self.begun.keys().next().copied();
        let behind = self.behind.first().map(|strand| strand.start.stored);
        begun.into_iter().chain(behind).min()
    }

    /// The parts of strands before place `end`, which are given up by the node.
    fn take_below(&mut self, end: i64) -> Vec<Strand> {
        let mut halves = Halves::default();
        let (period, behind) = (self.level.period, self.behind);
        let next = behind.partition_point(|strand| strand.start.stored < end);
        let (now, later) = behind.split_at(next);
        self.behind = later;
        for strand in now {
            split(strand.clone(), period, end, &mut halves);
        }
        while let Some(entry) = self.begun.first_entry().filter(|entry| *entry.key() < end) {
            for strand in entry.remove() {
                split(strand, period, end, &mut halves);
            }
        }
        self.keep(halves.above);
        halves.below
    }

    /// The next tile that is wanted and touched: its first object or block, and the strands in it.
    fn next_tile(&mut self) -> Option<(u64, Vec<Strand>)> {
        loop {
            let touched = self.level.tile_of(self.first()?);
            let weight = self.level.weight;
            let wanted = self.wanted.tile_from(touched, self.base, weight)?;
            if wanted == touched {
                let strands = self.take_below(self.level.begin_of(touched + 1));
                return Some((self.base + touched * weight, strands));
            }
            self.take_below(self.level.begin_of(wanted));
        }
    }
}

/// The strands of a tile: all of the holding, or some.
enum Strands<'a> {
    All(&'a [Strand]),
    Some(Vec<Strand>),
}

impl<'a> Pieces<'a> {
    pub(super) fn new(strands: &'a [Strand], schema: &'a DiskSchema) -> Self {
        Self {
            root: Some(strands),
            schema,
            bounds: (0, 0)..(u64::MAX, u64::MAX),
            server: (0, 1),
            object_levels: object_levels(schema),
            nodes: Vec::new(),
            object: None,
        }
    }

    /// Leaves out the blocks that `server` of `servers` does not move.
    ///
    /// # Panics
    /// If there is no such server.
    pub fn of_server(mut self, server: usize, servers: usize) -> Self {
        assert!(server < servers, "server {server} of {servers}");
        self.server = (server as u64, servers as u64);
        self
    }

    /// Leaves out the blocks that are not in the range, in file order: each end is the number of
    /// an object, and the number of a block in it. A client that has sent the blocks up to one goes
    /// on with those from the next number on.
    pub fn in_range(mut self, blocks: Range<(u64, u64)>) -> Self {
        self.bounds = blocks;
        self
    }

    /// The objects that may have wanted blocks.
    fn wanted_objects(&self) -> Wanted {
        let (server, servers) = self.server;
        let (object, index) = self.bounds.end;
        let end = object.saturating_add(u64::from(index > 0));
        let numbers = self.bounds.start.0..end;
        let (every, residue) = match self.schema.assignment() {
            Assignment::Objects => {
                let turn = self.schema.turn(servers);
                (servers, (server + servers - turn) % servers)
            }
            Assignment::Blocks => (1, 0),
        };
        Wanted {
            numbers,
            every,
            residue,
        }
    }

    /// The wanted blocks of an object.
    fn wanted_blocks(&self, object: u64) -> Wanted {
        let Range { start, end } = self.bounds;
        let first = if object == start.0 { start.1 } else { 0 };
        let last = if object == end.0 { end.1 } else { u64::MAX };
        let (every, residue) = match self.schema.assignment() {
            Assignment::Objects => (1, 0),
            Assignment::Blocks => (self.server.1, self.server.0),
        };
        Wanted {
            numbers: first..last,
            every,
            residue,
        }
    }

    /// Goes one level down, from a tile whose first object, or block, is `number`. At a block this
    /// gives its piece.
    fn descend(&mut self, number: u64, strands: Strands<'a>) -> Option<(Block, ListPiece)> {
        let depth = self.nodes.len();
        let of_objects = self.object_levels.len();
        if depth < of_objects {
            let level = self.object_levels[depth].clone();
            let wanted = self.wanted_objects();
            self.nodes.push(Node::new(level, number, wanted, strands));
            return None;
        }
        let mut number = number;
        if depth == of_objects {
            if !self.wanted_objects().contains(number) {
                return None;
            }
            let cut = self.schema.cut(number);
            let levels = block_levels(self.schema, &cut);
            self.object = Some(Opened {
                object: number,
                cut,
                levels,
            });
            number = 0;
        }
        let opened = self.object.as_ref()?;
        let wanted = self.wanted_blocks(opened.object);
        if let Some(level) = opened.levels.get(depth - of_objects) {
            let node = Node::new(level.clone(), number, wanted, strands);
            self.nodes.push(node);
            return None;
        }
        if !wanted.contains(number) {
            return None;
        }
        let block = self.schema.block(opened.object, number, &opened.cut)?;
        let strands = match strands {
            Strands::All(all) => all.to_vec(),
            Strands::Some(some) => some,
        };
        let piece = ListPiece::new(in_block(strands, &block, self.schema.shape()));
        Some((block, piece))
    }
}

impl Iterator for Pieces<'_> {
    type Item = (Block, ListPiece);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(root) = self.root.take() {
            let found = Some(Strands::All(root)).filter(|_| !root.is_empty());
            if let Some(found) = self.descend(0, found?) {
                return Some(found);
            }
        }
        while let Some(node) = self.nodes.last_mut() {
            match node.next_tile() {
                None => {
                    self.nodes.pop();
                }
                Some((number, strands)) => {
                    if let Some(found) = self.descend(number, Strands::Some(strands)) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }
}

impl std::iter::FusedIterator for Pieces<'_> {}

/// The dimensions along which the grid of objects has several, the first first.
fn object_levels(schema: &DiskSchema) -> Vec<Level<'_>> {
    let counts = schema.grid();
    let dims = counts.len();
    let units = row_major_strides(schema.shape());
    let several = (0..dims).filter(|&d| counts[d] > 1);
    several
        .map(|d| Level {
            unit: exact::<i64>(units[d]),
            period: period_of(schema.shape(), &units, d),
            origin: -exact::<i64>(schema.before(d)),
            step: exact::<i64>(schema.chunk()[d]),
            cuts: schema.cuts_of(d),
            weight: counts[d + 1..].iter().product(),
        })
        .collect()
}

/// The dimensions along which an object has several blocks, in the order in which blocks count.
fn block_levels<'a>(schema: &DiskSchema, cut: &Cut) -> Vec<Level<'a>> {
    let units = row_major_strides(schema.shape());
    let mut levels = Vec::new();
    let mut weight = 1;
    for d in schema.inner_to_outer() {
        if cut.counts[d] > 1 {
            levels.push(Level {
                unit: exact::<i64>(units[d]),
                period: period_of(schema.shape(), &units, d),
                origin: exact::<i64>(cut.stored.start[d]),
                step: exact::<i64>(cut.step[d]),
                cuts: None,
                weight,
            });
        }
        weight *= cut.counts[d];
    }
    levels.reverse();
    levels
}

/// The period of dimension `d` of an array.
fn period_of(shape: &[u64], units: &[u64], d: usize) -> i64 {
    match shape[..d].iter().all(|&extent| extent == 1) {
        true => NO_PERIOD,
        false => exact::<i64>(units[d - 1]),
    }
}

/// The strands of one block, by their places in its buffer instead of in the file.
fn in_block(strands: Vec<Strand>, block: &Block, shape: &[u64]) -> Vec<Strand> {
    let units = row_major_strides(shape);
    let axes = axes_of(block, shape, &units);
    let mut strands = strands;
    // Along an axis that does not go on where the next one ends, strands must not carry over.
    for (unit, _) in axes.iter().rev().skip(1).rev() {
        let mut aligned = Vec::new();
        for strand in strands {
            align(strand, *unit, &mut aligned);
        }
        strands = aligned;
    }
    for strand in &mut strands {
        let place = exact::<u64>(strand.start.stored);
        let along =
            |d: usize| (place / units[d] % shape[d] - block.region.start[d]) * block.strides[d];
        strand.start.stored = exact::<i64>((0..shape.len()).map(along).sum::<u64>());
        for inner in &mut strand.loops {
            let stride = &mut inner.stride.stored;
            if let Some((unit, step)) = axes.iter().find(|(unit, _)| *stride % unit == 0) {
                *stride = *stride / unit * step;
            }
        }
        let step = axes.last().map_or(1, |(_, step)| *step);
        if step != 1 && strand.length > 1 {
            let stride = Pair {
                stored: step,
                memory: 1,
            };
            strand.loops.push(Loop {
                count: strand.length,
                stride,
            });
            strand.length = 1;
        }
    }
    strands
}

/// The strides of the dimensions in the array and in a block. Dimensions that the block holds as
/// the array does are one.
fn axes_of(block: &Block, shape: &[u64], units: &[u64]) -> Vec<(i64, i64)> {
    let dims = shape.len();
    let goes_on = |d: &usize| {
        let inner = *d + 1;
        inner < dims && block.strides[*d] == block.strides[inner] * shape[inner]
    };
    (0..dims)
        .filter(|d| !goes_on(d))
        .map(|d| (exact::<i64>(units[d]), exact::<i64>(block.strides[d])))
        .collect()
}
