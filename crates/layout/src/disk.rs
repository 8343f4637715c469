//! Disk schemas: the cut of an array into objects and blocks, and the server that moves each.
//!
//! A store names an *object*: a chunk (or shard) of a Zarr array, the one flat file, a part file.
//! Objects form a grid over the array. A disk moves a *block* at once, through one staging buffer:
//! a whole object, or a piece of it that is contiguous in the object, or one sub-chunk of a shard.
//! Every form that Penstock stores is one [`DiskSchema`]:
//!
//! | stored as | chunk | padded | split |
//! |---|---|---|---|
//! | Zarr chunks without codec | chunk | yes | [`Split::Contiguous`] |
//! | Zarr chunks with codec | chunk | yes | [`Split::Whole`] |
//! | Zarr shards | shard | yes | [`Split::Inner`] |
//! | one row-major file (raw, npy) | the array | no | [`Split::Contiguous`] |
//! | BLOCK and `*` over a disk mesh | BLOCK sizes | no | [`Split::Contiguous`] |
//!
//! ```text
//! shape 5 x 6, chunk 2 x 4, padded: objects       0 | 1     object 1 covers columns 4..8; only
//!                                                 2 | 3     4..6 exist: its block has region
//!                                                 4 | 5     0..2 x 4..6 and strides 4, 1
//! ```
//!
//! Objects are alike, or each has extents of its own ([`DiskSchema::rectilinear`]): one list of
//! them for each dimension says where the grid is cut.
//!
//! ```text
//! shape 5 x 6, rows [2, 3], columns [3, 1, 2]     0 0 0 | 1 | 2 2
//!                                                 0 0 0 | 1 | 2 2
//!                                                 ------+---+----
//!                                                 3 3 3 | 4 | 5 5     and two rows more
//! ```
//!
//! A [`DiskSchema::window`] is the rows that one step adds to an array that grows along its first
//! dimension; they may begin and end within a chunk. The rows of a window in a chunk are contiguous
//! there:
//!
//! ```text
//! chunks of 4 rows    0 0 0 0 | 1 1 1 1 | 2 2 2 2
//! window 3..6               a | b b                 a begins at row 3 of its chunk, b at row 0
//! ```
//!
//! Chunks are assigned to servers in turn (Panda, section 2: "implicitly assigned in a round-robin
//! fashion"); the blocks of a single flat file are dealt out in turn instead. A server enumerates
//! its own blocks only.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::cuts::Cuts;
use crate::edges::Edges;
use crate::error::LayoutError;
use crate::exact::exact;
use crate::region::Region;
use crate::row_major_strides;

/// The order of the elements inside an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// The last dimension is contiguous, as in C.
    RowMajor,
    /// The first dimension is contiguous, as in Fortran.
    ColumnMajor,
}

/// The split of an object into blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Split {
    /// The object is moved whole, as a compressed chunk must be.
    Whole,
    /// The object is cut into contiguous pieces of at most this number of bytes (but of one element
    /// at least).
    Contiguous(u64),
    /// The object is cut into sub-chunks of these extents, which divide the chunk.
    Inner(Vec<u64>),
}

/// The assignment of objects or blocks to servers, in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Assignment {
    /// Whole objects are dealt out: one server writes all of a chunk.
    Objects,
    /// The blocks of each object are dealt out, so that several servers write one object.
    Blocks,
}

/// A disk schema says how an array lies on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Encoded")]
pub struct DiskSchema {
    shape: Vec<u64>,
    width: u64,
    /// The extents of the largest object.
    chunk: Vec<u64>,
    padded: bool,
    order: Order,
    split: Split,
    assignment: Assignment,
    dealt_before: u64,
    /// The rows of a window's first chunk that are before the window; `None` for a whole array. A
    /// window has no padding in the first dimension.
    window: Option<u64>,
    /// The cuts of each dimension, `None` where chunks are alike; empty if they are in all.
    cuts: Vec<Option<Cuts>>,
}

/// A [`DiskSchema`] from outside, not yet checked.
#[derive(Deserialize)]
#[serde(rename = "DiskSchema", deny_unknown_fields)]
struct Encoded {
    shape: Vec<u64>,
    width: u64,
    chunk: Vec<u64>,
    padded: bool,
    order: Order,
    split: Split,
    assignment: Assignment,
    #[serde(default)]
    dealt_before: u64,
    #[serde(default)]
    window: Option<u64>,
    #[serde(default)]
    cuts: Vec<Option<Vec<u64>>>,
}

impl TryFrom<Encoded> for DiskSchema {
    type Error = LayoutError;

    fn try_from(stored: Encoded) -> Result<Self, LayoutError> {
        let Encoded {
            shape,
            width,
            chunk,
            padded,
            order,
            split,
            assignment,
            dealt_before,
            window,
            cuts,
        } = stored;
        let mut edges = Edges::regular(&chunk);
        for (edges, cuts) in edges.iter_mut().zip(cuts) {
            if let Some(cuts) = cuts {
                let pairs = cuts.windows(2);
                let extents = pairs.map(|pair| pair[1].saturating_sub(pair[0]));
                *edges = Edges::Listed(extents.collect());
            }
        }
        let checked = Self::rectilinear(&shape, width, &edges)?.split(split)?;
        if let Some(before) = window
            && (checked.cuts_of(0).is_some()
                || checked.chunk.first().is_none_or(|&rows| before >= rows))
        {
            return Err(LayoutError::Window { before, chunk });
        }
        Ok(Self {
            padded,
            order,
            assignment,
            dealt_before,
            window,
            ..checked
        })
    }
}

/// A block is the part of an object that a disk moves at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The object's number: its place in the grid of objects, row-major.
    pub object: u64,
    /// The block's number within its object.
    pub index: u64,
    /// The byte of the object's decoded bytes at which the block begins. For [`Split::Inner`], the
    /// byte at which it would begin if the sub-chunks were stored one behind the other.
    pub offset: u64,
    /// Decoded bytes, padding included.
    pub bytes: u64,
    /// The elements of the array in the block; padding lies outside.
    pub region: Region,
    /// The extents of the decoded block, padding included.
    pub extents: Vec<u64>,
    /// The strides of the decoded block, in elements.
    pub strides: Vec<u64>,
}

impl Block {
    /// Whether some elements of the block lie outside the array.
    pub fn is_padded(&self) -> bool {
        self.region.shape != self.extents
    }

    /// The strides of the decoded block in bytes, for elements of `width` bytes.
    pub fn byte_strides(&self, width: u64) -> Vec<isize> {
        self.strides
            .iter()
            .map(|stride| exact::<isize>(stride * width))
            .collect()
    }
}

/// A cut of one object into blocks.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    /// The region that the object fills, with padding if it is stored.
    pub(crate) stored: Region,
    /// The extents of a block; blocks at the far edges may be smaller.
    pub(crate) step: Vec<u64>,
    /// The extents of the grid of blocks.
    pub(crate) counts: Vec<u64>,
}

impl Cut {
    /// The number of blocks, including blocks of padding alone.
    pub(crate) fn blocks(&self) -> u64 {
        self.counts.iter().product()
    }
}

impl DiskSchema {
    /// Makes the schema of an array of `shape`, with elements of `width` bytes, in objects of
    /// `chunk` extents, row-major, each object one block, objects dealt out in turn.
    ///
    /// # Errors
    /// When `chunk` has another number of dimensions or an extent of zero, when `width` is zero, or
    /// when the array, padded to whole chunks, has more than 2^63 - 1 bytes.
    pub fn chunked(shape: &[u64], width: u64, chunk: &[u64]) -> Result<Self, LayoutError> {
        Self::cut_up(shape, width, chunk, Vec::new())
    }

    /// As [`DiskSchema::chunked`], with objects whose extents `edges` says for each dimension.
    ///
    /// # Errors
    /// As [`DiskSchema::chunked`], and when a list of extents does not divide its dimension.
    pub fn rectilinear(shape: &[u64], width: u64, edges: &[Edges]) -> Result<Self, LayoutError> {
        let largest = Edges::largest_of(edges);
        if edges.len() != shape.len() || edges.iter().all(|edges| edges.extent().is_some()) {
            return Self::chunked(shape, width, &largest);
        }
        let dims = edges.iter().zip(shape).enumerate();
        let cuts = dims.map(|(d, (edges, &n))| match edges {
            Edges::Regular(_) => Ok(None),
            Edges::Listed(extents) => Cuts::new(extents, n, d).map(Some),
        });
        Self::cut_up(shape, width, &largest, cuts.collect::<Result<_, _>>()?)
    }

    fn cut_up(
        shape: &[u64],
        width: u64,
        chunk: &[u64],
        cuts: Vec<Option<Cuts>>,
    ) -> Result<Self, LayoutError> {
        if chunk.len() != shape.len() {
            let given = chunk.to_vec();
            return Err(LayoutError::DimCount {
                what: "the chunk",
                given,
                dims: shape.len(),
            });
        }
        for (what, given) in [("the chunk", chunk), ("the element width", &[width])] {
            if given.contains(&0) {
                return Err(LayoutError::ZeroExtent {
                    what,
                    given: given.to_vec(),
                });
            }
        }
        let schema = Self {
            shape: shape.to_vec(),
            width,
            chunk: chunk.to_vec(),
            padded: true,
            order: Order::RowMajor,
            split: Split::Whole,
            assignment: Assignment::Objects,
            dealt_before: 0,
            window: None,
            cuts,
        };
        // An array without elements still has a chunk, whose bytes must not overflow either.
        let mut padded = (0..shape.len()).map(|d| match schema.cuts_of(d) {
            None => shape[d].max(1).checked_next_multiple_of(chunk[d]),
            Some(cuts) => Some(cuts.end()),
        });
        let bytes = padded.try_fold(width, |bytes, n| bytes.checked_mul(n?));
        if bytes.is_none_or(|bytes| bytes > i64::MAX as u64) {
            return Err(LayoutError::TooLarge {
                shape: shape.to_vec(),
                width,
            });
        }
        Ok(schema)
    }

    /// Makes the schema of one object for the whole array, in contiguous blocks of at most
    /// `bytes_max`, which are dealt out to the servers in turn.
    ///
    /// # Errors
    /// When the array has more than 2^63 - 1 bytes.
    pub fn flat(
        shape: &[u64],
        width: u64,
        order: Order,
        bytes_max: u64,
    ) -> Result<Self, LayoutError> {
        let chunk: Vec<u64> = shape.iter().map(|&n| n.max(1)).collect();
        let mut schema = Self::chunked(shape, width, &chunk)?
            .unpadded()
            .split(Split::Contiguous(bytes_max))?;
        schema.order = order;
        schema.assignment = Assignment::Blocks;
        Ok(schema)
    }

    /// Cuts edge objects to the array instead of padding them.
    pub fn unpadded(mut self) -> Self {
        self.padded = false;
        self
    }

    /// The window of rows `rows` of the first dimension: an array of these rows, in the chunks of
    /// this schema. Its objects are numbered from the first chunk that it touches, which is
    /// [`row / chunk`](DiskSchema::chunk) of the array, and each stays with its server. Sub-chunks
    /// of several rows are given up: the chunk is then moved whole.
    ///
    /// # Panics
    /// If the array has no dimensions, is a window itself, or is not dealt out in row-major
    /// objects, or if the chunks of the first dimension have different extents.
    pub fn window(&self, rows: Range<u64>) -> Self {
        let is_dealt = (self.order, self.assignment) == (Order::RowMajor, Assignment::Objects);
        assert!(
            self.window.is_none() && is_dealt && self.cuts_of(0).is_none(),
            "there is no window of {self:?}"
        );
        let (first, before) = (rows.start / self.chunk[0], rows.start % self.chunk[0]);
        let others = self.grid().iter().skip(1).product::<u64>();
        let mut shape = self.shape.clone();
        shape[0] = rows.end.saturating_sub(rows.start);
        let split = match &self.split {
            Split::Inner(_) if self.chunk[0] > 1 => Split::Whole,
            split => split.clone(),
        };
        Self {
            shape,
            split,
            window: Some(before),
            dealt_before: first.saturating_mul(others),
            ..self.clone()
        }
    }

    /// The rows of a window's first chunk that are before the window; otherwise 0.
    pub fn rows_before(&self) -> u64 {
        self.before(0)
    }

    /// The decoded byte of the chunk at which an object of this schema begins: 0, except in the
    /// first row of chunks of a window.
    pub fn offset_in_chunk(&self, object: u64) -> u64 {
        let before = match self.grid_index(object).first() {
            Some(0) => self.window.unwrap_or(0),
            _ => 0,
        };
        let rows = self.object_extents(object);
        before * rows.iter().skip(1).product::<u64>() * self.width
    }

    /// The extents of an object's whole chunk, which may be more than the object in a window.
    pub fn chunk_extents(&self, object: u64) -> Vec<u64> {
        let mut extents = self.object_extents(object);
        if self.window.is_some() {
            extents[0] = self.chunk[0];
        }
        extents
    }

    /// The decoded bytes of an object's whole chunk.
    pub fn chunk_bytes(&self, object: u64) -> u64 {
        self.chunk_extents(object).iter().product::<u64>() * self.width
    }

    /// Cuts objects into blocks by `split`.
    ///
    /// # Errors
    /// When sub-chunks do not divide the chunk.
    pub fn split(mut self, split: Split) -> Result<Self, LayoutError> {
        if let Split::Inner(inner) = &split {
            if inner.len() != self.chunk.len() {
                let (given, dims) = (inner.clone(), self.chunk.len());
                return Err(LayoutError::DimCount {
                    what: "the sub-chunk",
                    given,
                    dims,
                });
            }
            let edges = self.edges();
            let mut pairs = edges.iter().zip(inner);
            if !pairs.all(|(edges, &part)| part > 0 && edges.are_multiples_of(part)) {
                return Err(LayoutError::InnerDoesNotDivide {
                    chunk: edges,
                    inner: inner.clone(),
                });
            }
        }
        self.split = split;
        Ok(self)
    }

    /// The array's shape.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The bytes of an element.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// The extents of the largest object: of all, if the grid is regular.
    pub fn chunk(&self) -> &[u64] {
        &self.chunk
    }

    /// The extents of objects along each dimension.
    pub fn edges(&self) -> Vec<Edges> {
        let dims = self.chunk.iter().enumerate();
        dims.map(|(d, &extent)| match self.cuts_of(d) {
            None => Edges::Regular(extent),
            Some(cuts) => Edges::Listed(cuts.extents()),
        })
        .collect()
    }

    /// Whether all objects have the same extents, but for padding.
    pub fn is_regular(&self) -> bool {
        self.cuts.is_empty()
    }

    /// The cuts of a dimension whose objects are not alike.
    pub(crate) fn cuts_of(&self, d: usize) -> Option<&Cuts> {
        self.cuts.get(d)?.as_ref()
    }

    /// The start and the extent, along dimension `d`, of the object that has index `index` there.
    /// The schema is no window.
    pub fn object_span(&self, index: u64, d: usize) -> (u64, u64) {
        let place = self.object_of(index, d);
        match self.cuts_of(d) {
            None => (place * self.chunk[d], self.chunk[d]),
            Some(cuts) => cuts.chunk(place),
        }
    }

    /// The place in the grid, along dimension `d`, of the object with index `index`.
    pub(crate) fn object_of(&self, index: u64, d: usize) -> u64 {
        match self.cuts_of(d) {
            None => index / self.chunk[d],
            Some(cuts) => cuts.chunk_of(index),
        }
    }

    /// The split of objects into blocks.
    pub fn split_of(&self) -> &Split {
        &self.split
    }

    /// The assignment to servers.
    pub fn assignment(&self) -> Assignment {
        self.assignment
    }

    /// The bytes of the array's elements.
    pub fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.width
    }

    /// The extents of the grid of objects.
    pub fn grid(&self) -> Vec<u64> {
        let dims = self.shape.iter().zip(&self.chunk).enumerate();
        dims.map(|(d, (n, c))| match (n, self.cuts_of(d)) {
            (0, _) => 0,
            (n, None) => (n + self.before(d)).div_ceil(*c),
            (_, Some(cuts)) => cuts.count(),
        })
        .collect()
    }

    /// The indices of the first chunk in a dimension that are before the array.
    pub(crate) fn before(&self, d: usize) -> u64 {
        match d {
            0 => self.window.unwrap_or(0),
            _ => 0,
        }
    }

    /// The number of objects.
    pub fn objects(&self) -> u64 {
        self.grid().iter().product()
    }

    /// The place of an object in the grid.
    pub fn grid_index(&self, object: u64) -> Vec<u64> {
        let mut rest = object;
        let mut index: Vec<u64> = Vec::with_capacity(self.shape.len());
        for extent in self.grid().into_iter().rev().map(|extent| extent.max(1)) {
            index.push(rest % extent);
            rest /= extent;
        }
        index.reverse();
        index
    }

    /// The extents of an object in the store, with padding if it is stored.
    pub fn object_extents(&self, object: u64) -> Vec<u64> {
        let whole = self.object_box(object);
        if self.padded {
            whole.shape
        } else {
            self.clip(&whole).shape
        }
    }

    /// The elements of the array in an object.
    pub fn object_region(&self, object: u64) -> Region {
        self.clip(&self.object_box(object))
    }

    /// The decoded bytes of an object.
    pub fn object_bytes(&self, object: u64) -> u64 {
        self.object_extents(object).iter().product::<u64>() * self.width
    }

    /// The most bytes of a block: the size of a staging buffer.
    pub fn block_bytes_max(&self) -> u64 {
        let chunk_bytes = self.largest().iter().product::<u64>() * self.width;
        match &self.split {
            Split::Whole => chunk_bytes,
            Split::Contiguous(bytes_max) => chunk_bytes.min((*bytes_max).max(self.width)),
            Split::Inner(inner) => inner.iter().product::<u64>() * self.width,
        }
    }

    /// The blocks that `server` of `servers` moves, in their order on disk.
    pub fn blocks(&self, server: usize, servers: usize) -> impl Iterator<Item = Block> + '_ {
        let objects = self.objects_of(server, servers);
        let (server, servers) = (server as u64, servers as u64);
        objects.flat_map(move |object| match self.assignment {
            Assignment::Objects => self.dealt_blocks(object, 0, 1),
            Assignment::Blocks => self.dealt_blocks(object, server, servers),
        })
    }

    /// The objects with blocks that `server` of `servers` moves.
    pub fn objects_of(&self, server: usize, servers: usize) -> impl Iterator<Item = u64> + use<> {
        let (first, step) = match self.assignment {
            Assignment::Objects => {
                let all = servers as u64;
                ((server as u64 + all - self.turn(all)) % all, servers)
            }
            Assignment::Blocks => (0, 1),
        };
        (first..self.objects()).step_by(step)
    }

    /// The server, of `servers`, that moves all of an object, if whole objects are dealt out.
    ///
    /// # Panics
    /// If `servers` is 0.
    pub fn server_of_object(&self, object: u64, servers: usize) -> usize {
        let servers = servers as u64;
        exact::<usize>((self.turn(servers) + object % servers) % servers)
    }

    /// The server, of `servers`, that moves the first object.
    pub(crate) fn turn(&self, servers: u64) -> u64 {
        self.dealt_before % servers
    }

    /// The blocks of one object, in order. Blocks of padding alone are left out.
    pub fn object_blocks(&self, object: u64) -> impl Iterator<Item = Block> + '_ {
        self.dealt_blocks(object, 0, 1)
    }

    /// The blocks `server`, `server + servers`, and so on, of one object.
    fn dealt_blocks(
        &self,
        object: u64,
        server: u64,
        servers: u64,
    ) -> impl Iterator<Item = Block> + use<'_> {
        let cut = self.cut(object);
        let indices = self.wanted(object, &cut, server..cut.blocks(), servers);
        self.numbered_blocks(object, cut, indices)
    }

    /// The numbers `own`, by steps of `step`, of an object's blocks, without blocks of padding
    /// alone: few in a chunk far larger than the array.
    pub(crate) fn wanted(
        &self,
        object: u64,
        cut: &Cut,
        own: Range<u64>,
        step: u64,
    ) -> impl Iterator<Item = u64> + use<> {
        let (all, some) = match self.padded {
            false => (Some(own.step_by(exact::<usize>(step))), None),
            true => {
                let inside = self.indices_in(&self.object_region(object), cut);
                let is_own = move |index: &u64| {
                    own.contains(index) && (index - own.start).is_multiple_of(step)
                };
                (None, Some(inside.filter(is_own)))
            }
        };
        all.into_iter().flatten().chain(some.into_iter().flatten())
    }

    /// The blocks of one object with these numbers, without blocks of padding alone.
    pub(crate) fn numbered_blocks<I: Iterator<Item = u64>>(
        &self,
        object: u64,
        cut: Cut,
        indices: I,
    ) -> impl Iterator<Item = Block> + use<'_, I> {
        indices.filter_map(move |index| self.block(object, index, &cut))
    }

    /// The extents of the largest object that is moved.
    fn largest(&self) -> Vec<u64> {
        let mut extents = self.chunk.clone();
        if self.window.is_some() {
            extents[0] = extents[0].min(self.shape[0].max(1));
        }
        extents
    }

    /// The cut of an object into blocks.
    pub(crate) fn cut(&self, object: u64) -> Cut {
        let whole = self.object_box(object);
        self.cut_of(match self.padded {
            true => whole,
            false => self.clip(&whole),
        })
    }

    /// The cut of an object that fills `stored` into blocks.
    fn cut_of(&self, stored: Region) -> Cut {
        let step = self.block_extents(&stored.shape);
        let counts = stored
            .shape
            .iter()
            .zip(&step)
            .map(|(n, s)| n.div_ceil((*s).max(1)))
            .collect();
        Cut {
            stored,
            step,
            counts,
        }
    }

    /// Block `index` of an object; `None` if it is all padding.
    pub(crate) fn block(&self, object: u64, index: u64, cut: &Cut) -> Option<Block> {
        let Cut {
            stored,
            step,
            counts,
        } = cut;
        let place = self.unravel(index, counts);
        let mut padded = Region {
            start: place,
            shape: step.clone(),
        };
        for (d, &step) in step.iter().enumerate() {
            let start = stored.start[d] + padded.start[d] * step;
            padded.start[d] = start;
            padded.shape[d] = step.min(stored.end(d) - start);
        }
        let region = self.clip(&padded);
        if region.is_empty() {
            return None;
        }
        let strides = self.strides(&padded.shape);
        let bytes = padded.elements() * self.width;
        let offset = self.elements_before(stored, &padded) * self.width;
        Some(Block {
            object,
            index,
            offset,
            bytes,
            region,
            extents: padded.shape,
            strides,
        })
    }

    /// The number of elements of `stored` in the blocks before `block`, if blocks follow each other
    /// in this schema's order.
    ///
    /// ```text
    /// stored 4 x 5, blocks of 2 x 2    0 0 1 1 2     before block 4: the 2 * 5 above,
    ///                                  0 0 1 1 2     and beside it on the left 2 * 2
    ///                                  3 3 4 4 5
    ///                                  3 3 4 4 5
    /// ```
    fn elements_before(&self, stored: &Region, block: &Region) -> u64 {
        let mut inside = 1;
        let mut before = 0;
        // The loop goes from the contiguous dimension outwards: first elements before the block in
        // its row of blocks, then the rows of blocks before, which count whole.
        for d in self.inner_to_outer() {
            before = before * block.shape[d] + (block.start[d] - stored.start[d]) * inside;
            inside *= stored.shape[d];
        }
        before
    }

    /// The box of an object. It may reach beyond the edges of the array, but not of a window.
    fn object_box(&self, object: u64) -> Region {
        let index = self.grid_index(object);
        let start: Vec<u64> = index.iter().zip(&self.chunk).map(|(i, c)| i * c).collect();
        let mut whole = Region::new(&start, &self.chunk);
        for (d, cuts) in self.cuts.iter().enumerate() {
            if let Some(cuts) = cuts {
                (whole.start[d], whole.shape[d]) = cuts.chunk(index[d]);
            }
        }
        if let Some(before) = self.window {
            let end = (whole.end(0) - before).min(self.shape[0]);
            whole.start[0] = whole.start[0].saturating_sub(before);
            whole.shape[0] = end.saturating_sub(whole.start[0]);
        }
        whole
    }

    /// The most blocks of an object.
    pub(crate) fn object_blocks_max(&self) -> u64 {
        if !self.cuts.is_empty() {
            // An object has no fewer blocks than one that is smaller in every dimension.
            return self.cut_of(Region::whole(&self.largest())).blocks();
        }
        // Objects at the far edges are no larger; a window's first object may be cut, and the
        // second not.
        let others = self.window.and_then(|_| {
            let second = self.grid().iter().skip(1).product::<u64>();
            (second < self.objects()).then_some(second)
        });
        let all = std::iter::once(0).chain(others);
        all.map(|object| self.cut(object).blocks())
            .max()
            .unwrap_or(0)
    }

    pub(crate) fn clip(&self, region: &Region) -> Region {
        let mut clipped = region.clone();
        for (d, &extent) in self.shape.iter().enumerate() {
            clipped.shape[d] = region.end(d).min(extent).saturating_sub(region.start[d]);
        }
        if clipped.is_empty() {
            clipped.shape.fill(0);
        }
        clipped
    }

    /// The extents of a block in an object of `stored` extents.
    fn block_extents(&self, stored: &[u64]) -> Vec<u64> {
        match &self.split {
            Split::Whole => stored.to_vec(),
            Split::Inner(inner) => inner.clone(),
            Split::Contiguous(bytes_max) => {
                let mut left = (bytes_max / self.width).max(1);
                let mut extents = vec![1; stored.len()];
                for d in self.inner_to_outer() {
                    extents[d] = stored[d].min(left).max(1);
                    if extents[d] < stored[d] {
                        break;
                    }
                    left = (left / extents[d]).max(1);
                }
                extents
            }
        }
    }

    /// The strides, in elements, of a box of `extents` stored in this schema's order.
    fn strides(&self, extents: &[u64]) -> Vec<u64> {
        match self.order {
            Order::RowMajor => row_major_strides(extents),
            Order::ColumnMajor => {
                let reversed: Vec<u64> = extents.iter().rev().copied().collect();
                row_major_strides(&reversed).into_iter().rev().collect()
            }
        }
    }

    /// The dimensions, the contiguous one first.
    pub(crate) fn inner_to_outer(&self) -> impl Iterator<Item = usize> + use<> {
        let (dims, order) = (self.shape.len(), self.order);
        (0..dims).map(move |depth| match order {
            Order::RowMajor => dims - 1 - depth,
            Order::ColumnMajor => depth,
        })
    }

    /// The place of block `index` in a grid of `counts` blocks, counted in this schema's order.
    fn unravel(&self, index: u64, counts: &[u64]) -> Vec<u64> {
        let mut rest = index;
        let mut place = vec![0; counts.len()];
        for d in self.inner_to_outer() {
            place[d] = rest % counts[d];
            rest /= counts[d];
        }
        place
    }
}
