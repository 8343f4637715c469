//! Memory schemas: a regular distribution over a mesh, or irregular boxes.

use serde::{Deserialize, Serialize};

use crate::boxes::Boxes;
use crate::distribution::Distribution;
use crate::region::Region;
use crate::share::Share;

/// How an array is spread over the memories of the ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemorySchema {
    /// Dealt out over a process mesh.
    Distribution(Distribution),
    /// One box a rank.
    Boxes(Boxes),
}

impl MemorySchema {
    /// The array's shape.
    pub fn shape(&self) -> &[u64] {
        match self {
            Self::Distribution(distribution) => distribution.shape(),
            Self::Boxes(boxes) => boxes.shape(),
        }
    }

    /// How many ranks it speaks of: those beyond hold nothing.
    pub fn ranks(&self) -> usize {
        match self {
            Self::Distribution(distribution) => distribution.ranks(),
            Self::Boxes(boxes) => boxes.ranks(),
        }
    }

    /// What `rank` holds.
    pub fn share(&self, rank: usize) -> Share {
        match self {
            Self::Distribution(distribution) => distribution.share(rank),
            Self::Boxes(boxes) => boxes.share(rank),
        }
    }

    /// The ranks that hold an element of `region`, ascending.
    pub fn touching(&self, region: &Region) -> Vec<usize> {
        match self {
            Self::Distribution(distribution) => distribution.touching(region),
            Self::Boxes(boxes) => boxes.touching(region),
        }
    }
}

impl From<Distribution> for MemorySchema {
    fn from(distribution: Distribution) -> Self {
        Self::Distribution(distribution)
    }
}

impl From<Boxes> for MemorySchema {
    fn from(boxes: Boxes) -> Self {
        Self::Boxes(boxes)
    }
}
