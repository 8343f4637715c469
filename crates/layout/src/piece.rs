//! The elements that one rank has of one block, whether it holds a share of the array or a list.
//!
//! A piece lies in three places: in the rank's memory, in the block's buffer, and on its way in a
//! parcel, which holds the piece alone. For each two of them there are copies.
//!
//! ```text
//! memory --packing--> parcel --unpacking--> buffer
//!        ------------copies--------------->
//! ```

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::copy::StridedCopy;
use crate::exact::exact;
use crate::list::ListPiece;
use crate::share::{Direction, SharePiece};

/// A piece is the elements that one rank has of one block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piece {
    /// Elements of a share.
    Share(SharePiece),
    /// Elements of a list. The rank's memory has one dimension.
    List(ListPiece),
}

impl From<SharePiece> for Piece {
    fn from(piece: SharePiece) -> Self {
        Self::Share(piece)
    }
}

impl From<ListPiece> for Piece {
    fn from(piece: ListPiece) -> Self {
        Self::List(piece)
    }
}

impl Piece {
    /// The number of elements, or the highest number if no `u64` holds it.
    pub fn elements(&self) -> u64 {
        match self {
            Self::Share(piece) => piece.elements(),
            Self::List(piece) => piece.elements(),
        }
    }

    /// The number of dimensions of the rank's memory.
    pub fn dims(&self) -> usize {
        match self {
            Self::Share(piece) => piece.dims().len(),
            Self::List(_) => 1,
        }
    }

    /// Whether the piece lies in a memory of these extents. Ask before a piece is used that has
    /// come from elsewhere.
    pub fn is_in(&self, extents: &[u64]) -> bool {
        match (self, extents) {
            (Self::Share(piece), _) => piece.is_in(extents),
            (Self::List(piece), &[extent]) => piece.is_in_memory(extent),
            (Self::List(_), _) => false,
        }
    }

    /// The bytes of a buffer that the piece reaches, the first and one past the last, if elements
    /// of `width` bytes have these strides there, in bytes from place 0. `None` if the strides are
    /// of other dimensions.
    pub fn reach(&self, width: usize, strides: &[isize]) -> Option<Range<i128>> {
        let width = width as i128;
        match self {
            Self::Share(piece) if piece.dims().len() != strides.len() => None,
            Self::Share(piece) => {
                let mut reach = 0..width;
                let bounds = piece.region_starts().zip(piece.region_ends());
                for (&stride, (start, end)) in strides.iter().zip(bounds) {
                    let ends = [start, end.saturating_sub(1)];
                    let [one, other] = ends.map(|index| i128::from(index) * stride as i128);
                    reach.start += one.min(other);
                    reach.end += one.max(other);
                }
                Some(reach)
            }
            Self::List(piece) => {
                let bounds = piece.buffer_bounds().unwrap_or_default();
                Some(i128::from(bounds.start) * width..i128::from(bounds.end) * width)
            }
        }
    }

    /// The number of contiguous stretches into which a dense row-major region of this shape cuts
    /// the piece.
    pub fn stretches(&self, region_shape: &[u64]) -> u64 {
        match self {
            Self::Share(piece) => piece.stretches(region_shape),
            Self::List(piece) => piece.runs(),
        }
    }

    /// The copies that move the piece between a memory and a buffer: see [`SharePiece::copies`] and
    /// [`ListPiece::copies`].
    pub fn copies(
        &self,
        width: usize,
        region_strides: &[isize],
        memory_strides: &[isize],
        direction: Direction,
    ) -> impl Iterator<Item = StridedCopy> + '_ {
        let (of_share, of_list) = match self {
            Self::Share(piece) => {
                let copies = piece.copies(width, region_strides, memory_strides, direction);
                (copies, None)
            }
            Self::List(piece) => {
                let step = step_of(memory_strides, width);
                (Vec::new(), Some(piece.copies(width, step, direction)))
            }
        };
        of_share.into_iter().chain(of_list.into_iter().flatten())
    }

    /// The copies that move the piece between a memory and a parcel.
    pub fn packing(
        &self,
        width: usize,
        memory_strides: &[isize],
        direction: Direction,
    ) -> impl Iterator<Item = StridedCopy> + '_ {
        let (of_share, of_list) = match self {
            Self::Share(piece) => (piece.packing(width, memory_strides, direction), None),
            Self::List(piece) => {
                let step = step_of(memory_strides, width);
                (Vec::new(), Some(piece.packing(width, step, direction)))
            }
        };
        of_share.into_iter().chain(of_list.into_iter().flatten())
    }

    /// The copies that move the piece between a parcel, in the place of the memory, and a buffer.
    pub fn unpacking(
        &self,
        width: usize,
        region_strides: &[isize],
        direction: Direction,
    ) -> impl Iterator<Item = StridedCopy> + '_ {
        let (of_share, of_list) = match self {
            Self::Share(piece) => (piece.unpacking(width, region_strides, direction), None),
            Self::List(piece) => (Vec::new(), Some(piece.unpacking(width, direction))),
        };
        of_share.into_iter().chain(of_list.into_iter().flatten())
    }

    /// The bytes of the piece in a parcel, of elements of `width` bytes.
    pub fn packed_bytes(&self, width: usize) -> usize {
        exact::<usize>(self.elements()).saturating_mul(width)
    }
}

/// The distance of the elements of a memory of one dimension.
fn step_of(memory_strides: &[isize], width: usize) -> isize {
    memory_strides.first().copied().unwrap_or(width as isize)
}
