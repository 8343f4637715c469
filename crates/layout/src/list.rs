//! Lists of elements: what a rank holds when that is no share.
//!
//! Number the elements of an array by their row-major order, `0 .. N`, and those of a rank's memory
//! `0 .. M`. A [`List`] is a sequence `f(0), f(1), .., f(n - 1)` of such numbers, and a [`Holding`]
//! the pairs `{ (f(i), m(i)) }` of a list `f` in the array and a list `m` in memory: element `f(i)`
//! lies in memory at `m(i)`. It is asked, for a block `B` of a [`DiskSchema`](crate::DiskSchema)
//! with the place `b(x)` of element `x` in its buffer, for the [`ListPiece`]
//! `{ (b(f(i)), m(i)) | f(i) in B }`.
//!
//! A list is kept as runs that are repeated in nested loops, as Kotz proposes (TOCS 1997, section
//! 7.2) and Galley has them; a flattened MPI datatype is one. What is given as runs becomes
//! loops where it is regular.
//!
//! ```text
//! array of 4 x 8, chunks of 2 x 4     the file's list: runs of 2 at 1, 5, .. 29: a loop (8, 4)
//!  .  1  2  . |  .  5  6  .           the memory's list: 0..16
//!  .  9 10  . |  . 13 14  .           piece of chunk 0: 2 at 1 + (2, 4) of the buffer,
//!  -----------+------------                             at 0 + (2, 4) of the memory
//!  . 17 18  . |  . 21 22  .           piece of chunk 3: 2 at 1 + (2, 4) of the buffer,
//!  . 25 26  . |  . 29 30  .                             at 10 + (2, 4) of the memory
//! ```
//!
//! | step | where | cost |
//! |---|---|---|
//! | lists from runs | rank | linear in the runs |
//! | pairing of two lists | rank | a strand a series if the runs of one fit into those of the other; at most linear in the runs of both, and a sort of the strands |
//! | pieces of a server | rank | for each tile of the grid that is touched and looked at, a few cuts of each series that touches it; memory for the series in one row of tiles |
//! | a piece on its way | | 10 to 20 bytes a series, whatever its elements |
//! | [`ListPiece::is_in`] | server | linear in the series |
//! | copy | server or rank | the kernels of [`copy`](crate::copy), one call a series |
//!
//! A million irregular runs cost the rank that holds them linear time and tens of bytes each, and a
//! server the runs in its own blocks, a block at a time.
//!
//! A list may have an element twice. It can be read so, and each place in memory gets its value; it
//! must not be written: [`Holding::is_disjoint_in_file`] tells. Likewise a memory that is read into
//! must be [disjoint](Holding::is_disjoint_in_memory).
//!
//! What is not done here: a loop around unlike runs is not kept as such, but as all its runs; no
//! one compares the lists of several ranks; and a list of a block is not cut any further.
//!
//! ```
//! use penstock_layout::{DiskSchema, Holding, List};
//!
//! // Columns 1 and 2 of 4, 5 and 6 of 8, as above.
//! let file = List::strided(1, 2, &[(8, 4)])?;
//! let memory = List::runs(&[0], &[16])?;
//! file.check(4 * 8)?;
//! let holding = Holding::new(&file, &memory)?;
//! let disk = DiskSchema::chunked(&[4, 8], 1, &[2, 4])?;
//! let (block, piece) = holding.pieces(&disk).last().unwrap();
//! assert_eq!((block.object, piece.elements(), piece.series()), (3, 4, 1));
//! let (values, mut buffer) = (Vec::from_iter(100..116), [0; 8]);
//! piece.gather(1, &values, &mut buffer);
//! assert_eq!(buffer, [0, 110, 111, 0, 0, 114, 115, 0]);
//! # Ok::<(), penstock_layout::LayoutError>(())
//! ```

mod cut;
mod divisor;
mod elements;
mod holding;
mod overlap;
mod pairing;
mod piece;
mod pieces;
mod series;

pub use elements::List;
pub use holding::Holding;
pub use piece::ListPiece;
pub use pieces::Pieces;
