//! A box of array indices, half-open in every dimension.

use serde::{Deserialize, Serialize};

use crate::error::LayoutError;
use crate::saturating_product;

/// A region is the indices `start[d] .. start[d] + shape[d]` of every dimension `d`. A region of
/// zero dimensions holds one element, as a NumPy scalar does.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Encoded")]
pub struct Region {
    /// The first index in each dimension.
    pub start: Vec<u64>,
    /// The number of indices in each dimension.
    pub shape: Vec<u64>,
}

/// A [`Region`] from outside, not yet checked.
#[derive(Deserialize)]
#[serde(rename = "Region")]
struct Encoded {
    start: Vec<u64>,
    shape: Vec<u64>,
}

impl TryFrom<Encoded> for Region {
    type Error = LayoutError;

    fn try_from(Encoded { start, shape }: Encoded) -> Result<Self, LayoutError> {
        match start.len() == shape.len() {
            true => Ok(Self { start, shape }),
            false => Err(LayoutError::DimCount {
                what: "the start of a box",
                given: start,
                dims: shape.len(),
            }),
        }
    }
}

impl Region {
    /// Makes the region of `shape` elements at `start`.
    ///
    /// # Panics
    /// If `start` and `shape` differ in length.
    pub fn new(start: &[u64], shape: &[u64]) -> Self {
        assert_eq!(
            start.len(),
            shape.len(),
            "a region's start and shape differ in length"
        );
        Self {
            start: start.to_vec(),
            shape: shape.to_vec(),
        }
    }

    /// Makes the region of all of an array of `shape`.
    pub fn whole(shape: &[u64]) -> Self {
        Self {
            start: vec![0; shape.len()],
            shape: shape.to_vec(),
        }
    }

    /// One past the last index of dimension `d`, or the highest number if no `u64` holds it.
    pub fn end(&self, d: usize) -> u64 {
        self.start[d].saturating_add(self.shape[d])
    }

    /// The number of dimensions.
    pub fn dims(&self) -> usize {
        self.start.len()
    }

    /// The number of elements, or the highest number if no `u64` holds it.
    pub fn elements(&self) -> u64 {
        saturating_product(self.shape.iter().copied())
    }

    /// Whether the region holds no element.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// The elements of both regions, or `None` if there are none.
    pub fn intersect(&self, other: &Region) -> Option<Region> {
        let mut both = self.clone();
        for d in 0..self.dims() {
            let start = self.start[d].max(other.start[d]);
            let end = self.end(d).min(other.end(d));
            if start >= end {
                return None;
            }
            both.start[d] = start;
            both.shape[d] = end - start;
        }
        Some(both)
    }

    /// Whether all of `other` lies inside the region.
    pub fn contains(&self, other: &Region) -> bool {
        (0..self.dims()).all(|d| self.start[d] <= other.start[d] && other.end(d) <= self.end(d))
    }

    /// Cuts the region into boxes of at most `elements_max` elements (at least one each), outermost
    /// dimension first, so that each box is a run of whole inner rows.
    pub fn split(&self, elements_max: u64) -> Vec<Region> {
        if self.elements() <= elements_max.max(1) {
            return vec![self.clone()];
        }
        let Some(d) = self.shape.iter().position(|&n| n > 1) else {
            return vec![self.clone()]; // one element
        };
        let inner = saturating_product(self.shape[d + 1..].iter().copied());
        let step = (elements_max / inner).max(1).min(self.shape[d]);
        let mut parts = Vec::new();
        let mut at = 0;
        while at < self.shape[d] {
            let mut part = self.clone();
            part.start[d] += at;
            part.shape[d] = step.min(self.shape[d] - at);
            at += part.shape[d];
            parts.extend(part.split(elements_max));
        }
        parts
    }
}
