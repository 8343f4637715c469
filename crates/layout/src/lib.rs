//! Index mathematics alone: which elements of a distributed array belong to which rank, and where
//! they lie in its memory and on disk.
//!
//! Everything in Penstock comes down to one question, and this crate answers it: *which elements
//! of this disk region belong to which rank, at which offset of its memory?* The answer is found
//! per dimension and symbolically, never element by element, and only for the ranks that touch the
//! region.
//!
//! | module | contents |
//! |---|---|
//! | [`region`] | a box of array indices |
//! | [`distribution`] | High-Performance Fortran distributions over a mesh, in the terms of Panda and Kotz |
//! | [`boxes`] | irregular shares: boxes of ranks |
//! | [`memory`] | a distribution, boxes, or a copy on every rank, as a memory schema |
//! | [`share`] | the share of one rank, and its piece of a region, as runs |
//! | [`copy`] | nested strided copies: the kernels that gather and scatter a piece |
//! | [`disk`] | disk schemas: chunk grids, row-major order, parts, and the blocks a server moves |
//! | [`edges`] | the extents of the chunks along one dimension |
//! | [`grid`] | the grid of chunks that shares form |
//! | [`file_order`] | the blocks by number: blocks of a region, the next block, a block's slot |
//! | [`stretch`] | the part of a share in a block, as stretches without gaps |
//! | [`list`] | lists of elements, in a file and in memory, and their pieces of blocks |
//! | [`view`] | views of files of cells, and the bytes of cells in an access to a subfile (Vesta) |
//!
//! There is no I/O here, no clock, and nothing is asynchronous.
//!
//! ```
//! use penstock_layout::{Distribution, Region};
//!
//! // A 6 x 8 array, BLOCK in rows over 2, CYCLIC in columns over 2: four ranks.
//! let memory = Distribution::new(&[6, 8], &"BLOCK,CYCLIC".parse()?, &[2, 2])?;
//! // Rank 1 holds rows 0..3 and the odd columns. Of row 1, columns 4..8 it holds two elements.
//! let piece = memory.share(1).intersect(&Region::new(&[1, 4], &[1, 4])).unwrap();
//! assert_eq!(piece.elements(), 2);
//! # Ok::<(), penstock_layout::LayoutError>(())
//! ```

#![warn(missing_docs)]

pub mod boxes;
pub mod copy;
mod cuts;
pub mod disk;
pub mod distribution;
pub mod edges;
mod error;
mod exact;
pub mod file_order;
pub mod grid;
pub mod list;
pub mod memory;
pub mod piece;
pub mod region;
pub mod share;
pub mod stretch;
pub mod view;

pub use boxes::{Boxes, Holder};
pub use copy::{Axis, StridedCopy};
pub use disk::{Assignment, Block, DiskSchema, Order, Split};
pub use distribution::{Dist, Distribution, Dists};
pub use edges::Edges;
pub use error::LayoutError;
pub use exact::exact;
pub use grid::grid_of_shares;
pub use list::{Holding, List, ListPiece, Pieces};
pub use memory::{MemorySchema, Replicated};
pub use piece::Piece;
pub use region::Region;
pub use share::{DimShare, Direction, Run, Share, SharePiece};
pub use stretch::{Stretch, Stretches};
pub use view::{CellAccess, Subfile, SubfileOrder, View};

/// The strides, in elements, of a dense row-major array of `shape`: the last dimension has 1.
pub fn row_major_strides(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1u64; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d].saturating_mul(shape[d].max(1));
    }
    strides
}

/// The strides, in bytes, of a dense row-major array of `shape`, of elements of `width` bytes.
pub fn byte_strides(shape: &[u64], width: usize) -> Vec<isize> {
    let strides = row_major_strides(shape).into_iter();
    strides
        .map(|stride| exact::<isize>(stride) * width as isize)
        .collect()
}

/// The product, or the highest number if no `u64` holds it; 0 if any factor is 0.
fn saturating_product(factors: impl Iterator<Item = u64>) -> u64 {
    factors.fold(1, u64::saturating_mul)
}
