//! The holders of an array's elements.

use penstock_layout::{MemorySchema, Share};
use serde::{Deserialize, Serialize};

/// Holders say which rank holds which elements of an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holders {
    /// A schema, which everybody can evaluate.
    Schema(MemorySchema),
    /// A list of each rank's own, as a [`penstock_layout::Holding`] of that rank: nobody else has
    /// it. Each client sends each server the pieces of the blocks that this server moves.
    Lists {
        /// The array's shape.
        shape: Vec<u64>,
        /// The number of ranks with a list.
        ranks: usize,
    },
}

impl Holders {
    /// The schema, if there is one.
    pub fn schema(&self) -> Option<&MemorySchema> {
        match self {
            Self::Schema(memory) => Some(memory),
            Self::Lists { .. } => None,
        }
    }

    /// The array's shape.
    pub fn shape(&self) -> &[u64] {
        match self {
            Self::Schema(memory) => memory.shape(),
            Self::Lists { shape, .. } => shape,
        }
    }

    /// The number of ranks: ranks beyond hold nothing.
    pub fn ranks(&self) -> usize {
        match self {
            Self::Schema(memory) => memory.ranks(),
            Self::Lists { ranks, .. } => *ranks,
        }
    }

    /// Whether it is known that several ranks may hold one element, so that the array can be read,
    /// but not written.
    pub fn are_shared(&self) -> bool {
        match self {
            Self::Schema(memory) => memory.is_shared(),
            Self::Lists { .. } => false,
        }
    }

    /// The elements of a share of the schema: none if there is no share of that number, or if ranks
    /// have lists.
    pub fn share(&self, share: usize) -> Share {
        let memory = self.schema();
        memory.map_or_else(
            || Share::empty(self.shape().len()),
            |memory| memory.share(share),
        )
    }

    /// Whether each rank has a list of its own.
    pub fn are_lists(&self) -> bool {
        matches!(self, Self::Lists { .. })
    }
}

impl<T: Into<MemorySchema>> From<T> for Holders {
    fn from(memory: T) -> Self {
        Self::Schema(memory.into())
    }
}
