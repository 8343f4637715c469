//! Memory schemas: a regular distribution over a mesh, irregular boxes, or a copy on every rank.
//!
//! Of the first two every element has one holder at most, so that they can be written and read. A
//! [`Replicated`] array has as many holders as there are ranks, and boxes may be allowed to
//! overlap: these can be read only, and [`MemorySchema::is_shared`] says so.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::boxes::{Boxes, Holder};
use crate::distribution::Distribution;
use crate::region::Region;
use crate::share::Share;

/// How an array is spread over the memories of the ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemorySchema {
    /// Dealt out over a process mesh.
    Distribution(Distribution),
    /// Boxes of ranks.
    Boxes(Boxes),
    /// All of it on every rank.
    Replicated(Replicated),
}

/// The whole array on every rank: pattern `ra` of Kotz (TOCS 1997), all processors read the entire
/// file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replicated {
    shape: Vec<u64>,
    ranks: usize,
}

impl Replicated {
    /// All of an array of `shape` on each of `ranks` ranks.
    pub fn new(shape: &[u64], ranks: usize) -> Self {
        Self {
            shape: shape.to_vec(),
            ranks,
        }
    }

    /// The array's shape.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Number of ranks that hold it.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// What `rank` holds: everything, or nothing where it lies beyond the ranks.
    pub fn share(&self, rank: usize) -> Share {
        if rank < self.ranks {
            Share::of_box(&Region::whole(&self.shape))
        } else {
            Share::empty(self.shape.len())
        }
    }

    /// The ranks that hold an element of `region`, ascending: all, or none where the array has no
    /// element there.
    pub fn touching(&self, region: &Region) -> Vec<usize> {
        match Region::whole(&self.shape).intersect(region) {
            Some(_) => (0..self.ranks).collect(),
            None => Vec::new(),
        }
    }
}

impl MemorySchema {
    /// The array's shape.
    pub fn shape(&self) -> &[u64] {
        match self {
            Self::Distribution(distribution) => distribution.shape(),
            Self::Boxes(boxes) => boxes.shape(),
            Self::Replicated(replicated) => replicated.shape(),
        }
    }

    /// How many ranks it speaks of: those beyond hold nothing.
    pub fn ranks(&self) -> usize {
        match self {
            Self::Distribution(distribution) => distribution.ranks(),
            Self::Boxes(boxes) => boxes.ranks(),
            Self::Replicated(replicated) => replicated.ranks(),
        }
    }

    /// Whether an element may be held by several ranks: such a schema can be read, but not written.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::Distribution(_) => false,
            Self::Boxes(boxes) => boxes.may_overlap(),
            Self::Replicated(_) => true,
        }
    }

    /// The numbers of the shares that `rank` holds: one, but for lists of boxes, and that of the
    /// rank.
    pub fn shares_of(&self, rank: usize) -> Range<usize> {
        match self {
            Self::Boxes(boxes) => boxes.shares_of(rank),
            Self::Distribution(_) | Self::Replicated(_) => rank..rank + 1,
        }
    }

    /// Who holds a share.
    pub fn holder(&self, share: usize) -> Holder {
        match self {
            Self::Boxes(boxes) => boxes.holder(share),
            Self::Distribution(_) | Self::Replicated(_) => Holder {
                rank: share,
                part: 0,
            },
        }
    }

    /// The elements of a share: none where there is no share of that number.
    pub fn share(&self, share: usize) -> Share {
        match self {
            Self::Distribution(distribution) => distribution.share(share),
            Self::Boxes(boxes) => boxes.share(share),
            Self::Replicated(replicated) => replicated.share(share),
        }
    }

    /// The shares that hold an element of `region`, ascending.
    pub fn touching(&self, region: &Region) -> Vec<usize> {
        match self {
            Self::Distribution(distribution) => distribution.touching(region),
            Self::Boxes(boxes) => boxes.touching(region),
            Self::Replicated(replicated) => replicated.touching(region),
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

impl From<Replicated> for MemorySchema {
    fn from(replicated: Replicated) -> Self {
        Self::Replicated(replicated)
    }
}
