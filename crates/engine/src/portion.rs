//! A portion of a block.

use penstock_layout::Piece;

/// A portion is the elements that one rank has of a block, by a share or by its list.
#[derive(Debug, Clone)]
pub struct Portion {
    /// The rank that holds the elements.
    pub rank: usize,
    /// The number of the share among the rank's shares, from 0.
    pub part: usize,
    /// The elements, and their place in the rank's memory.
    pub piece: Piece,
}
