//! The grid of chunks that shares form: each share one chunk, whatever its extents.
//!
//! ```text
//! a grid: each box is a cell, and a cell may        no grid: the cut between boxes 0 and 1
//! be without a box                                  goes through box 2
//!
//! 0 0 | 1 | 2 2 2                                   0 0 | 1
//! 0 0 | 1 | 2 2 2                                   0 0 | 1
//! ----+---+------                                   2 2   2
//! 3 3 | 4 |
//! ```
//!
//! Cost: `O(n log n)` for each dimension, for `n` boxes.

use crate::distribution::{Dist, Distribution};
use crate::edges::Edges;
use crate::error::LayoutError;
use crate::memory::MemorySchema;
use crate::region::Region;

/// The grid in which each share is a chunk. Chunks of a dimension that are alike, but for a last
/// one that is smaller, are [`Edges::Regular`].
///
/// # Errors
/// When boxes form no grid, and when a share has several runs in a dimension, as CYCLIC shares
/// have.
pub fn grid_of_shares(memory: &MemorySchema) -> Result<Vec<Edges>, LayoutError> {
    match memory {
        MemorySchema::Distribution(distribution) => grid_of_distribution(distribution),
        MemorySchema::Boxes(boxes) => grid_of_boxes(memory.shape(), boxes.boxes()),
        MemorySchema::Replicated(_) => {
            let extents = memory.shape().iter().map(|&n| n.max(1));
            Ok(extents.map(Edges::Regular).collect())
        }
    }
}

fn grid_of_distribution(distribution: &Distribution) -> Result<Vec<Edges>, LayoutError> {
    let mut mesh = distribution.mesh().iter().copied();
    let dims = distribution.shape().iter().zip(&distribution.dists().0);
    dims.enumerate()
        .map(|(dim, (&n, &dist))| {
            let places = match dist {
                Dist::Whole => 1,
                _ => mesh.next().unwrap_or(1),
            };
            let extent = match dist {
                Dist::Whole | Dist::Block => n.div_ceil(places),
                Dist::Cyclic(_) if places == 1 => n,
                // Each place has one run at most.
                Dist::Cyclic(k) if n <= k.saturating_mul(places) => k.min(n),
                Dist::Cyclic(_) => {
                    let dist = dist.to_string();
                    return Err(LayoutError::ScatteredShares { dim, dist });
                }
            };
            Ok(Edges::Regular(extent.max(1)))
        })
        .collect()
}

fn grid_of_boxes(shape: &[u64], boxes: &[Region]) -> Result<Vec<Edges>, LayoutError> {
    let held = || boxes.iter().filter(|own| !own.is_empty());
    let mut grid = Vec::with_capacity(shape.len());
    for (dim, &n) in shape.iter().enumerate() {
        let ends = held().flat_map(|own| [own.start[dim], own.end(dim)]);
        let mut cuts: Vec<u64> = ends.chain([0, n.max(1)]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        for own in held() {
            let first = cuts.partition_point(|&cut| cut <= own.start[dim]);
            if let Some(&at) = cuts.get(first).filter(|&&cut| cut < own.end(dim)) {
                return Err(LayoutError::NoGrid {
                    dim,
                    at,
                    start: own.start.clone(),
                    extents: own.shape.clone(),
                });
            }
        }
        let extents = cuts.windows(2).map(|pair| pair[1] - pair[0]);
        grid.push(Edges::Listed(extents.collect()).as_regular());
    }
    Ok(grid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boxes::Boxes;

    fn of_boxes(shape: &[u64], boxes: &[([u64; 2], [u64; 2])]) -> Result<Vec<Edges>, LayoutError> {
        let boxes = boxes.iter().map(|(start, shape)| Region::new(start, shape));
        grid_of_shares(&Boxes::new(shape, boxes.collect()).unwrap().into())
    }

    #[test]
    fn boxes_are_cells_of_a_grid() {
        let drawn = [
            ([0, 0], [2, 2]),
            ([0, 2], [2, 1]),
            ([0, 3], [2, 3]),
            ([2, 0], [1, 2]),
            ([2, 2], [1, 1]),
        ];
        let columns = Edges::Listed(vec![2, 1, 3]);
        assert_eq!(
            of_boxes(&[3, 6], &drawn).unwrap(),
            [Edges::Regular(2), columns.clone()]
        );
        // What nobody holds is a cell of its own.
        let fewer = &drawn[1..2];
        let rows = Edges::Listed(vec![2, 3]);
        assert_eq!(of_boxes(&[5, 6], fewer).unwrap(), [rows, columns]);
        // Empty boxes cut nothing.
        let all = [([0, 0], [3, 6]), ([1, 2], [0, 4])];
        let whole = [Edges::Regular(3), Edges::Regular(6)];
        assert_eq!(of_boxes(&[3, 6], &all).unwrap(), whole);
        assert_eq!(
            of_boxes(&[0, 6], &[([0, 0], [0, 6])]).unwrap(),
            [Edges::Regular(1), Edges::Regular(6)]
        );
    }

    #[test]
    fn boxes_that_form_no_grid_are_named() {
        let boxes = [([0, 0], [2, 2]), ([0, 2], [2, 1]), ([2, 0], [1, 3])];
        let error = of_boxes(&[3, 3], &boxes).unwrap_err().to_string();
        assert!(
            error.contains("dimension 1") && error.contains("start [2, 0]"),
            "{error}"
        );
    }

    #[test]
    fn distributions_have_shares_of_one_extent() {
        for (dists, mesh, expected) in [
            ("BLOCK,*", vec![3], Some([4, 7])),
            ("BLOCK,BLOCK", vec![20, 2], Some([1, 4])),
            ("CYCLIC(5),*", vec![2], Some([5, 7])),
            ("CYCLIC(4),*", vec![3], Some([4, 7])),
            ("CYCLIC,*", vec![1], Some([10, 7])),
            ("CYCLIC(4),*", vec![2], None),
            ("*,CYCLIC", vec![2], None),
        ] {
            let distribution = Distribution::new(&[10, 7], &dists.parse().unwrap(), &mesh).unwrap();
            let found = grid_of_shares(&distribution.into());
            match expected {
                Some(extents) => assert_eq!(found.unwrap(), Edges::regular(&extents)),
                None => assert!(found.unwrap_err().to_string().contains("CYCLIC")),
            }
        }
    }
}
