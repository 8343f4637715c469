//! The extents of the chunks along one dimension: all alike, or each with its own.
//!
//! ```text
//! an extent of 10     4            chunks at 0, 4, 8; the last one reaches beyond the array
//!                     [3, 5, 2]    chunks at 0, 3, 8
//! ```
//!
//! Human-readable forms are the number and the list, as above. Cost: a chunk by its number takes
//! constant time, the chunk of an index a division, or a binary search in a list.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The extents of the chunks along one dimension.
#[derive(Clone, PartialEq, Eq)]
pub enum Edges {
    /// All chunks have this extent; the last one may reach beyond the array.
    Regular(u64),
    /// One extent for each chunk; the last one may reach beyond the array.
    Listed(Vec<u64>),
}

impl Edges {
    /// The edges of a regular grid with chunks of these extents.
    pub fn regular(chunk: &[u64]) -> Vec<Self> {
        chunk.iter().copied().map(Self::Regular).collect()
    }

    /// The extents of a chunk, if the grid is regular.
    pub fn regular_extents(grid: &[Self]) -> Option<Vec<u64>> {
        grid.iter().map(Self::extent).collect()
    }

    /// The extents of the largest chunk of a grid.
    pub fn largest_of(grid: &[Self]) -> Vec<u64> {
        grid.iter().map(Self::largest).collect()
    }

    /// The extent of all chunks, if they are alike.
    pub fn extent(&self) -> Option<u64> {
        match self {
            Self::Regular(extent) => Some(*extent),
            Self::Listed(_) => None,
        }
    }

    /// The number of chunks of a dimension of `n`.
    pub fn count(&self, n: u64) -> u64 {
        match self {
            _ if n == 0 => 0,
            Self::Regular(extent) => n.div_ceil(*extent),
            Self::Listed(extents) => extents.len() as u64,
        }
    }

    /// The starts of the chunks, ascending. Those of one extent have no end.
    pub fn starts(&self) -> impl Iterator<Item = u64> + '_ {
        let (step, listed) = match self {
            Self::Regular(extent) => (Some(*extent), [].as_slice()),
            Self::Listed(extents) => (None, extents.as_slice()),
        };
        let all = step.map(|step| (0..).map(move |number: u64| number.saturating_mul(step)));
        let starts = listed.iter().scan(0_u64, |end, extent| {
            let start = *end;
            *end = end.saturating_add(*extent);
            Some(start)
        });
        all.into_iter().flatten().chain(starts)
    }

    /// The elements of listed chunks together; `None` for chunks of one extent, and if there are
    /// more than can be counted.
    pub fn elements(&self) -> Option<u64> {
        match self {
            Self::Regular(_) => None,
            Self::Listed(extents) => extents.iter().try_fold(0, |n: u64, &e| n.checked_add(e)),
        }
    }

    /// The largest extent; 0 for an empty list.
    pub fn largest(&self) -> u64 {
        match self {
            Self::Regular(extent) => *extent,
            Self::Listed(extents) => extents.iter().copied().max().unwrap_or(0),
        }
    }

    /// Whether each extent is a multiple of `part`.
    pub fn are_multiples_of(&self, part: u64) -> bool {
        match self {
            Self::Regular(extent) => extent.is_multiple_of(part),
            Self::Listed(extents) => extents.iter().all(|extent| extent.is_multiple_of(part)),
        }
    }

    /// The same chunks as a single number where that says all: a list of equal extents.
    #[must_use]
    pub fn simplified(&self) -> Self {
        match self {
            Self::Listed(extents) => match extents.split_first() {
                Some((&first, rest)) if rest.iter().all(|&extent| extent == first) => {
                    Self::Regular(first)
                }
                _ => self.clone(),
            },
            Self::Regular(_) => self.clone(),
        }
    }

    /// The same division of a dimension that the chunks end with, as a single number where chunks
    /// are alike but for a last one that is smaller: stored, that one reaches beyond the dimension.
    #[must_use]
    pub fn as_regular(&self) -> Self {
        let Self::Listed(extents) = self else {
            return self.clone();
        };
        match extents.as_slice() {
            [first, others @ .., last]
                if last <= first && others.iter().all(|extent| extent == first) =>
            {
                Self::Regular(*first)
            }
            _ => self.simplified(),
        }
    }
}

impl From<u64> for Edges {
    fn from(extent: u64) -> Self {
        Self::Regular(extent)
    }
}

/// The number, or the list.
impl fmt::Debug for Edges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Regular(extent) => extent.fmt(f),
            Self::Listed(extents) => extents.fmt(f),
        }
    }
}

/// [`Edges`] as people read them.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Regular(u64),
    Listed(Vec<u64>),
}

/// [`Edges`] in messages.
#[derive(Serialize, Deserialize)]
enum Binary {
    Regular(u64),
    Listed(Vec<u64>),
}

impl Serialize for Edges {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let edges = self.clone();
        match (edges, to.is_human_readable()) {
            (Self::Regular(extent), true) => Text::Regular(extent).serialize(to),
            (Self::Listed(extents), true) => Text::Listed(extents).serialize(to),
            (Self::Regular(extent), false) => Binary::Regular(extent).serialize(to),
            (Self::Listed(extents), false) => Binary::Listed(extents).serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Edges {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            return Ok(match Text::deserialize(from)? {
                Text::Regular(extent) => Self::Regular(extent),
                Text::Listed(extents) => Self::Listed(extents),
            });
        }
        Ok(match Binary::deserialize(from)? {
            Binary::Regular(extent) => Self::Regular(extent),
            Binary::Listed(extents) => Self::Listed(extents),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_read_as_they_were_written() {
        for (edges, text) in [
            (Edges::Regular(4), "4"),
            (Edges::Listed(vec![3, 5, 2]), "[3,5,2]"),
            (Edges::Listed(vec![]), "[]"),
        ] {
            let bytes = postcard::to_stdvec(&edges).unwrap();
            assert_eq!(postcard::from_bytes::<Edges>(&bytes).unwrap(), edges);
            assert_eq!(serde_json::to_string(&edges).unwrap(), text);
            assert_eq!(serde_json::from_str::<Edges>(text).unwrap(), edges);
        }
    }

    #[test]
    fn a_list_of_equal_extents_is_one_number() {
        for (list, simplified) in [
            (vec![4], Edges::Regular(4)),
            (vec![4, 4, 4], Edges::Regular(4)),
            (vec![4, 4, 3], Edges::Listed(vec![4, 4, 3])),
            (vec![], Edges::Listed(vec![])),
        ] {
            assert_eq!(Edges::Listed(list).simplified(), simplified);
        }
    }

    #[test]
    fn a_smaller_last_chunk_is_of_a_regular_division() {
        for (list, regular) in [
            (vec![4], Some(4)),
            (vec![4, 4, 3], Some(4)),
            (vec![4, 3], Some(4)),
            (vec![3, 4], None),
            (vec![4, 3, 4], None),
            (vec![4, 4, 5], None),
        ] {
            let listed = Edges::Listed(list);
            assert_eq!(listed.as_regular().extent(), regular, "{listed:?}");
        }
    }

    #[test]
    fn starts_are_counted_through() {
        let starts = |edges: Edges| edges.starts().take(4).collect::<Vec<u64>>();
        assert_eq!(starts(Edges::Regular(3)), [0, 3, 6, 9]);
        assert_eq!(starts(Edges::Listed(vec![3, 5, 2])), [0, 3, 8]);
        assert_eq!(Edges::Regular(3).count(10), 4);
        assert_eq!(Edges::Listed(vec![3, 5, 2]).count(10), 3);
        assert_eq!(Edges::Listed(vec![3]).count(0), 0);
    }
}
