//! The cuts of a dimension into chunks of different extents. A chunk by its number takes constant
//! time, the chunk of an index a binary search.

use serde::{Deserialize, Serialize};

use crate::error::LayoutError;
use crate::exact::exact;

/// The cuts of a dimension into chunks of differing extents: the start of each, and the end of the
/// last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Cuts(Vec<u64>);

impl Cuts {
    /// The cuts between chunks of these extents.
    ///
    /// # Errors
    /// When a chunk has no extent, when the chunks end before `n` or beyond what can be counted, or
    /// when a chunk begins at `n` or behind it.
    pub(crate) fn new(extents: &[u64], n: u64, dim: usize) -> Result<Self, LayoutError> {
        let mut cuts = Vec::with_capacity(extents.len() + 1);
        cuts.push(0);
        let mut end: u64 = 0;
        let fits = extents.iter().all(|&extent| {
            let begins_inside = end < n.max(1);
            end = end.saturating_add(extent);
            cuts.push(end);
            begins_inside && extent > 0
        });
        match fits && end >= n.max(1) && end < u64::MAX {
            true => Ok(Self(cuts)),
            false => Err(LayoutError::Edges {
                dim,
                chunks: extents.len(),
                elements: extents.iter().copied().fold(0, u64::saturating_add),
                extent: n,
            }),
        }
    }

    /// The extents of the chunks.
    pub(crate) fn extents(&self) -> Vec<u64> {
        self.0.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// The number of chunks.
    pub(crate) fn count(&self) -> u64 {
        self.0.len() as u64 - 1
    }

    /// The end of the last chunk.
    pub(crate) fn end(&self) -> u64 {
        self.0[self.0.len() - 1]
    }

    /// The start and the extent of a chunk.
    pub(crate) fn chunk(&self, number: u64) -> (u64, u64) {
        let at = exact::<usize>(number);
        (self.0[at], self.0[at + 1] - self.0[at])
    }

    /// The start of a chunk; behind the last, its end.
    pub(crate) fn start(&self, number: u64) -> u64 {
        self.0[exact::<usize>(number.min(self.count()))]
    }

    /// The number of the chunk that has an index.
    pub(crate) fn chunk_of(&self, index: u64) -> u64 {
        self.0.partition_point(|&start| start <= index) as u64 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_found_in_their_chunks() {
        let cuts = Cuts::new(&[3, 5, 2], 9, 0).unwrap();
        assert_eq!((cuts.count(), cuts.end()), (3, 10));
        assert_eq!(cuts.extents(), [3, 5, 2]);
        assert_eq!(cuts.chunk(1), (3, 5));
        let starts = [0, 2, 3, u64::MAX].map(|number| cuts.start(number));
        assert_eq!(starts, [0, 8, 10, 10]);
        let chunks: Vec<u64> = (0..10).map(|index| cuts.chunk_of(index)).collect();
        assert_eq!(chunks, [0, 0, 0, 1, 1, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn lists_that_do_not_fit_are_refused() {
        for (extents, n) in [
            (vec![], 0),
            (vec![], 3),
            (vec![3, 0], 3),
            (vec![0, 3], 3),
            (vec![3, 5], 9),
            (vec![3, 5, 2], 8),
            (vec![1, 1], 0),
            (vec![1, u64::MAX], u64::MAX),
        ] {
            let error = Cuts::new(&extents, n, 1).unwrap_err();
            assert!(error.to_string().contains("dimension 1"), "{error}");
        }
        assert_eq!(Cuts::new(&[2], 0, 0).unwrap().count(), 1);
    }
}
