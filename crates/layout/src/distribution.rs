//! High-Performance Fortran distributions over a process mesh.
//!
//! Every form is one rule. Dimension `d` of extent `N` is dealt out to `P` mesh coordinates in
//! blocks of `b`: coordinate `p` holds the indices `{ i | (i / b) mod P = p, 0 <= i < N }`.
//!
//! | written | b | P |
//! |---|---|---|
//! | `BLOCK` | ceil(N / P) | mesh extent |
//! | `CYCLIC(k)` | k | mesh extent |
//! | `CYCLIC` | 1 | mesh extent |
//! | `*` | N | 1 (takes no mesh extent) |
//!
//! The mesh has one extent for each distributed dimension, in order, as in Panda (Seamons et al.,
//! SC'95, Figure 2). Ranks count through the mesh in row-major order, the last coordinate fastest.
//! A rank beyond the mesh holds nothing. BLOCK over extents that do not divide leaves the last
//! shares short or empty.
//!
//! Costs: a distribution is a few numbers a dimension. Finding the ranks that touch a region takes
//! time in proportion to their number.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::LayoutError;
use crate::exact::exact;
use crate::region::Region;
use crate::saturating_product;
use crate::share::{DimShare, Share};

/// The distribution of one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dist {
    /// Each coordinate has one contiguous block.
    Block,
    /// Blocks of this number of indices are dealt in turn.
    Cyclic(u64),
    /// The dimension is not distributed: `*`.
    Whole,
}

impl FromStr for Dist {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, LayoutError> {
        let unknown = || LayoutError::UnknownDist(text.trim().to_string());
        let word = text.trim().to_ascii_uppercase();
        match word.as_str() {
            "BLOCK" => Ok(Dist::Block),
            "CYCLIC" => Ok(Dist::Cyclic(1)),
            "*" => Ok(Dist::Whole),
            _ => {
                let k = word
                    .strip_prefix("CYCLIC(")
                    .and_then(|rest| rest.strip_suffix(')'));
                match k.ok_or_else(unknown)?.trim().parse() {
                    Ok(k) if k > 0 => Ok(Dist::Cyclic(k)),
                    _ => Err(unknown()),
                }
            }
        }
    }
}

impl fmt::Display for Dist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dist::Block => write!(f, "BLOCK"),
            Dist::Cyclic(1) => write!(f, "CYCLIC"),
            Dist::Cyclic(k) => write!(f, "CYCLIC({k})"),
            Dist::Whole => write!(f, "*"),
        }
    }
}

/// The distributions of all dimensions; parses from and prints as `BLOCK,CYCLIC(4),*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dists(pub Vec<Dist>);

impl FromStr for Dists {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, LayoutError> {
        if text.trim().is_empty() {
            return Ok(Dists(Vec::new()));
        }
        text.split(',')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map(Dists)
    }
}

impl fmt::Display for Dists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(Dist::to_string).collect();
        write!(f, "{}", words.join(","))
    }
}

/// A dimension of `extent` indices, dealt in blocks of `block` over `coordinates` mesh coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dealt {
    extent: u64,
    block: u64,
    coordinates: u64,
}

impl Dealt {
    fn share(&self, coordinate: u64) -> DimShare {
        let stride = self.block.saturating_mul(self.coordinates);
        let first = self.block.saturating_mul(coordinate);
        DimShare::dealt(self.extent, first, self.block, stride)
    }

    /// The coordinates that hold an index of `start .. end`, ascending. No coordinate holds indices
    /// beyond the extent.
    fn touching(&self, start: u64, end: u64) -> Vec<u64> {
        let end = end.min(self.extent);
        if start >= end {
            return Vec::new();
        }
        let (first, last) = (start / self.block, (end - 1) / self.block);
        if last - first + 1 >= self.coordinates {
            return (0..self.coordinates).collect();
        }
        let mut touched: Vec<u64> = (first..=last).map(|b| b % self.coordinates).collect();
        touched.sort_unstable();
        touched
    }
}

/// A distribution deals an array's shape out over a mesh of ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Encoded", into = "Encoded")]
pub struct Distribution {
    shape: Vec<u64>,
    dists: Dists,
    mesh: Vec<u64>,
    dims: Vec<Dealt>,
}

/// The serialised part of a [`Distribution`]; the rest follows from it, and is checked again.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Distribution", deny_unknown_fields)]
struct Encoded {
    shape: Vec<u64>,
    dists: Dists,
    mesh: Vec<u64>,
}

impl From<Distribution> for Encoded {
    fn from(distribution: Distribution) -> Self {
        let Distribution {
            shape, dists, mesh, ..
        } = distribution;
        Self { shape, dists, mesh }
    }
}

impl TryFrom<Encoded> for Distribution {
    type Error = LayoutError;

    fn try_from(stored: Encoded) -> Result<Self, LayoutError> {
        Self::new(&stored.shape, &stored.dists, &stored.mesh)
    }
}

impl Distribution {
    /// Makes the distribution of `shape` by `dists` over `mesh`.
    ///
    /// # Errors
    /// When the numbers of distributions and dimensions differ, when a distribution is CYCLIC(0),
    /// when the mesh has not one extent for each distributed dimension, or when a mesh extent is
    /// zero.
    pub fn new(shape: &[u64], dists: &Dists, mesh: &[u64]) -> Result<Self, LayoutError> {
        if dists.0.len() != shape.len() {
            return Err(LayoutError::DistCount {
                dists: dists.0.len(),
                dims: shape.len(),
            });
        }
        if let Some(zero) = dists.0.iter().find(|dist| **dist == Dist::Cyclic(0)) {
            return Err(LayoutError::UnknownDist(zero.to_string()));
        }
        let distributed = dists.0.iter().filter(|d| **d != Dist::Whole).count();
        if distributed != mesh.len() {
            return Err(LayoutError::MeshRank {
                mesh: mesh.to_vec(),
                distributed,
            });
        }
        if mesh.contains(&0) {
            return Err(LayoutError::ZeroExtent {
                what: "the mesh",
                given: mesh.to_vec(),
            });
        }
        let mut extents = mesh.iter();
        let dims = dists.0.iter().zip(shape).map(|(dist, &extent)| {
            let coordinates = if *dist == Dist::Whole {
                1
            } else {
                *extents.next().unwrap_or(&1)
            };
            let block = match dist {
                Dist::Block | Dist::Whole => extent.div_ceil(coordinates).max(1),
                Dist::Cyclic(k) => *k,
            };
            Dealt {
                extent,
                block,
                coordinates,
            }
        });
        let dims = dims.collect();
        Ok(Self {
            shape: shape.to_vec(),
            dists: dists.clone(),
            mesh: mesh.to_vec(),
            dims,
        })
    }

    /// The array's shape.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The distribution of each dimension.
    pub fn dists(&self) -> &Dists {
        &self.dists
    }

    /// The mesh, one extent for each distributed dimension.
    pub fn mesh(&self) -> &[u64] {
        &self.mesh
    }

    /// The number of ranks in the mesh: 1 if nothing is distributed.
    pub fn ranks(&self) -> usize {
        usize::try_from(saturating_product(self.mesh.iter().copied())).unwrap_or(usize::MAX)
    }

    /// The share of `rank`: empty if `rank` lies beyond the mesh.
    pub fn share(&self, rank: usize) -> Share {
        if rank >= self.ranks() {
            return Share::empty(self.shape.len());
        }
        let mut rest = rank as u64;
        let mut shares: Vec<DimShare> = Vec::with_capacity(self.dims.len());
        for dim in self.dims.iter().rev() {
            shares.push(dim.share(rest % dim.coordinates));
            rest /= dim.coordinates;
        }
        shares.reverse();
        Share::new(shares)
    }

    /// The ranks that hold an element of `region`, ascending.
    pub fn touching(&self, region: &Region) -> Vec<usize> {
        if region.is_empty() {
            return Vec::new();
        }
        let mut ranks = vec![0u64];
        for (d, dim) in self.dims.iter().enumerate() {
            let coordinates = dim.touching(region.start[d], region.end(d));
            let deeper = ranks.iter().flat_map(|rank| {
                coordinates
                    .iter()
                    .map(move |coordinate| rank * dim.coordinates + coordinate)
            });
            ranks = deeper.collect();
        }
        ranks.into_iter().map(exact::<usize>).collect()
    }
}
