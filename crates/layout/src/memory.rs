//! Memory schemas: a regular distribution over a mesh, irregular boxes, or a copy on every rank.
//!
//! An element of a distribution or of disjoint boxes has one holder at most, so that such arrays
//! can be written and read. A [`Replicated`] array has as many holders as there are ranks, and
//! boxes may be allowed to overlap: such arrays can be read only, and [`MemorySchema::is_shared`]
//! says so.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::boxes::{Boxes, Holder};
use crate::distribution::Distribution;
use crate::region::Region;
use crate::share::Share;

/// A memory schema says how an array is spread over the memories of the ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemorySchema {
    /// The array is dealt out over a mesh of ranks.
    Distribution(Distribution),
    /// Each rank holds boxes.
    Boxes(Boxes),
    /// Each rank holds the whole array.
    Replicated(Replicated),
}

/// A replicated array is whole on every rank: pattern `ra` of Kotz (TOCS 1997), in which all
/// processors read the entire file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replicated {
    shape: Vec<u64>,
    ranks: usize,
}

impl Replicated {
    /// Makes the schema of an array of `shape`, whole on each of `ranks` ranks.
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

    /// The number of ranks that hold the array.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// The share of `rank`: the whole array, or nothing if `rank` lies beyond the ranks.
    pub fn share(&self, rank: usize) -> Share {
        if rank < self.ranks {
            Share::of_box(&Region::whole(&self.shape))
        } else {
            Share::empty(self.shape.len())
        }
    }

    /// The ranks that hold an element of `region`, ascending: all, or none if the array has no
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

    /// The number of ranks of the schema: ranks beyond hold nothing.
    pub fn ranks(&self) -> usize {
        match self {
            Self::Distribution(distribution) => distribution.ranks(),
            Self::Boxes(boxes) => boxes.ranks(),
            Self::Replicated(replicated) => replicated.ranks(),
        }
    }

    /// Whether several ranks may hold one element: such a schema can be read, but not written.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::Distribution(_) => false,
            Self::Boxes(boxes) => boxes.may_overlap(),
            Self::Replicated(_) => true,
        }
    }

    /// The numbers of the shares of `rank`. Except in lists of boxes there is one, with the number
    /// of the rank.
    pub fn shares_of(&self, rank: usize) -> Range<usize> {
        match self {
            Self::Boxes(boxes) => boxes.shares_of(rank),
            Self::Distribution(_) | Self::Replicated(_) => rank..rank + 1,
        }
    }

    /// The holder of a share.
    pub fn holder(&self, share: usize) -> Holder {
        match self {
            Self::Boxes(boxes) => boxes.holder(share),
            Self::Distribution(_) | Self::Replicated(_) => Holder {
                rank: share,
                part: 0,
            },
        }
    }

    /// The elements of a share: none if there is no share of that number.
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
