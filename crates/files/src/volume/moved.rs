//! Cells that come from other servers.

use serde::{Deserialize, Serialize};

use super::cells::Leaf;

/// Leaves of a cell, with their numbers.
pub(crate) type Leaves = Vec<(u64, Leaf)>;

/// Cells of a file that come from other servers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MovedPart {
    pub(crate) has_checkpoint: bool,
    pub(crate) written: u64,
    pub(crate) cells: Vec<MovedCell>,
}

/// A cell that comes from another server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MovedCell {
    pub(crate) cell: u64,
    pub(crate) bytes: u64,
    pub(crate) kept_bytes: Option<u64>,
    pub(crate) leaves: Leaves,
}

impl MovedPart {
    /// The places of all blocks, each once.
    pub(crate) fn places(&self) -> impl Iterator<Item = u64> + '_ {
        let leaves = self.cells.iter().flat_map(|cell| &cell.leaves);
        leaves.flat_map(|(_, leaf)| leaf.places())
    }
}
