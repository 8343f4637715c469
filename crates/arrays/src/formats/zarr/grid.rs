//! Chunk grids in Zarr's words: `regular`, and `rectilinear` with one list of extents a dimension.
//!
//! ```text
//! { "name": "rectilinear",
//!   "configuration": { "kind": "inline", "chunk_shapes": [[[4, 2], 3], 5] } }
//!
//! dimension 0: chunks of 4, 4 and 3 indices; [4, 2] is two chunks of 4
//! dimension 1: chunks of 5 indices, as many as there are
//! ```
//!
//! The listed chunks reach the end of the array or go beyond it: a chunk is stored whole. Chunks
//! that begin behind the end are not stored, and are not kept here.

use penstock_layout::Edges;
use serde_json::{Value, json};

use crate::schema::CHUNKS_LISTED_MAX;

/// What is wrong with a grid.
#[derive(Debug, PartialEq)]
pub(super) enum Fault {
    /// It is no grid that Zarr defines.
    Damaged(String),
    /// It is a grid that Penstock does not read.
    Unsupported(String),
}

/// The grid with these chunks: a regular one if it can be, which all readers know.
pub(super) fn grid_json(chunk: &[Edges]) -> Value {
    let chunk: Vec<Edges> = chunk.iter().map(Edges::simplified).collect();
    if let Some(extents) = Edges::regular_extents(&chunk) {
        return json!({ "name": "regular", "configuration": { "chunk_shape": extents } });
    }
    let shapes: Vec<Value> = chunk.iter().map(edges_json).collect();
    json!({
        "name": "rectilinear",
        "configuration": { "kind": "inline", "chunk_shapes": shapes },
    })
}

fn edges_json(edges: &Edges) -> Value {
    let extents = match edges {
        Edges::Regular(extent) => return json!(extent),
        Edges::Listed(extents) => extents,
    };
    let runs = extents.chunk_by(|one, next| one == next);
    runs.map(|run| match run {
        [extent] => json!(extent),
        _ => json!([run[0], run.len()]),
    })
    .collect()
}

/// The chunks of a grid, for an array of `shape`.
pub(super) fn chunks_of(grid: &Value, shape: &[u64]) -> Result<Vec<Edges>, Fault> {
    let configuration = &grid["configuration"];
    if grid["name"] == "regular" {
        let extents = all(&configuration["chunk_shape"], shape)?;
        let edges = extents
            .iter()
            .map(|extent| positive(extent).map(Edges::Regular));
        return edges.collect();
    }
    if grid["name"] != "rectilinear" || configuration["kind"] != "inline" {
        return Err(Fault::Unsupported(format!("the chunk grid {grid}")));
    }
    let all = all(&configuration["chunk_shapes"], shape)?;
    let edges = all.iter().zip(shape).enumerate();
    edges
        .map(|(d, (edges, &n))| match edges.as_array() {
            None => positive(edges).map(Edges::Regular),
            Some(runs) => listed(runs, n, d),
        })
        .collect()
}

/// Whether two grids have the same chunks of an array of `shape`.
pub(crate) fn is_same_grid(one: &Value, other: &Value, shape: &[u64]) -> bool {
    match (chunks_of(one, shape), chunks_of(other, shape)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// The number of rows of the first dimension in a chunk; `None` if chunks have different numbers.
pub(crate) fn rows_of_chunk(grid: &Value, rows: u64) -> Option<u64> {
    let configuration = &grid["configuration"];
    let first = |shapes: &Value| match shapes[0].as_array() {
        None => shapes[0].as_u64(),
        Some(runs) => listed(runs, rows, 0).ok()?.extent(),
    };
    match grid["name"] == "rectilinear" {
        true => first(&configuration["chunk_shapes"]),
        false => configuration["chunk_shape"][0].as_u64(),
    }
}

/// One value for each dimension.
fn all<'a>(values: &'a Value, shape: &[u64]) -> Result<&'a [Value], Fault> {
    let values = values.as_array().map(Vec::as_slice);
    values
        .filter(|values| values.len() == shape.len())
        .ok_or_else(|| {
            let dims = shape.len();
            Fault::Damaged(format!("its chunks are not of {dims} dimensions"))
        })
}

fn positive(value: &Value) -> Result<u64, Fault> {
    let number = value.as_u64().filter(|&number| number > 0);
    number.ok_or_else(|| Fault::Damaged(format!("a chunk's extent is {value}")))
}

/// The listed chunks that have an index of a dimension of `n`. Chunks that are alike are one
/// number, however many they are.
fn listed(runs: &[Value], n: u64, d: usize) -> Result<Edges, Fault> {
    let mut kept: Vec<(u64, u64)> = Vec::new();
    let mut end: u64 = 0;
    for run in runs {
        let (extent, count) = match run.as_array().map(Vec::as_slice) {
            None => (positive(run)?, 1),
            Some([extent, count]) => (positive(extent)?, positive(count)?),
            Some(_) => return Err(Fault::Damaged(format!("a run of chunks is {run}"))),
        };
        let missing = n.max(1).saturating_sub(end);
        let count = count.min(missing.div_ceil(extent));
        if count > 0 {
            // An overflow reaches the end of every array.
            end = end.saturating_add(extent.saturating_mul(count));
            kept.push((extent, count));
        }
    }
    if end < n.max(1) {
        return Err(Fault::Damaged(format!(
            "its chunks end at {end} in dimension {d}, and the array at {n}"
        )));
    }
    let first = kept.first().map_or(1, |(extent, _)| *extent);
    if kept.iter().all(|(extent, _)| *extent == first) {
        return Ok(Edges::Regular(first));
    }
    let chunks = kept.iter().map(|(_, count)| *count);
    if chunks.fold(0, u64::saturating_add) > CHUNKS_LISTED_MAX {
        return Err(Fault::Unsupported(format!(
            "a list of more than {CHUNKS_LISTED_MAX} chunks in dimension {d}"
        )));
    }
    let extents = kept
        .into_iter()
        .flat_map(|(extent, count)| (0..count).map(move |_| extent));
    Ok(Edges::Listed(extents.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rectilinear(shapes: Value) -> Value {
        json!({
            "name": "rectilinear",
            "configuration": { "kind": "inline", "chunk_shapes": shapes },
        })
    }

    #[test]
    fn grids_are_read_as_they_were_written() {
        let list = |extents: &[u64]| Edges::Listed(extents.to_vec());
        for (chunk, shape, json) in [
            (vec![], vec![], None),
            (vec![Edges::Regular(3), Edges::Regular(4)], vec![5, 9], None),
            (
                vec![list(&[4, 4, 3]), Edges::Regular(5)],
                vec![11, 7],
                Some(json!([[[4, 2], 3], 5])),
            ),
            (
                vec![list(&[1, 2, 3]), list(&[2, 2, 1, 1])],
                vec![6, 6],
                Some(json!([[1, 2, 3], [[2, 2], [1, 2]]])),
            ),
        ] {
            let written = grid_json(&chunk);
            let expected = json.map_or_else(
                || {
                    let extents = Edges::regular_extents(&chunk).unwrap();
                    json!({ "name": "regular", "configuration": { "chunk_shape": extents } })
                },
                rectilinear,
            );
            assert_eq!(written, expected);
            assert_eq!(chunks_of(&written, &shape).unwrap(), chunk);
        }
    }

    #[test]
    fn chunks_that_are_alike_are_a_regular_grid() {
        let equal = [Edges::Listed(vec![2, 2]), Edges::Listed(vec![5])];
        assert_eq!(grid_json(&equal)["name"], "regular");
        let many = rectilinear(json!([[[4, 1_u64 << 60]], [[3, 2], 3, [3, 9]], [7]]));
        let shape = [1 << 61, 8, 0];
        let found = chunks_of(&many, &shape).unwrap();
        assert_eq!(found, Edges::regular(&[4, 3, 7]));
    }

    #[test]
    fn chunks_beyond_the_array_are_not_kept() {
        let found = chunks_of(&rectilinear(json!([[3, 5, 2, [9, u64::MAX]]])), &[8]);
        assert_eq!(found, Ok(vec![Edges::Listed(vec![3, 5])]));
        let found = chunks_of(&rectilinear(json!([[3, [5, u64::MAX]]])), &[9]);
        assert_eq!(found, Ok(vec![Edges::Listed(vec![3, 5, 5])]));
    }

    #[test]
    fn what_is_no_grid_is_refused() {
        for (shapes, shape) in [
            (json!(null), vec![3]),
            (json!([]), vec![3]),
            (json!([3, 3]), vec![3]),
            (json!([0]), vec![3]),
            (json!([-1]), vec![3]),
            (json!([2.5]), vec![3]),
            (json!(["3"]), vec![3]),
            (json!([[]]), vec![3]),
            (json!([[]]), vec![0]),
            (json!([[1, 0, 2]]), vec![3]),
            (json!([[1, [2, 0]]]), vec![3]),
            (json!([[1, [2, 1, 1]]]), vec![3]),
            (json!([[1, [[2, 1], 1]]]), vec![3]),
            (json!([[1, 1]]), vec![3]),
        ] {
            let found = chunks_of(&rectilinear(shapes.clone()), &shape);
            assert!(matches!(found, Err(Fault::Damaged(_))), "{shapes}");
        }
        let many = rectilinear(json!([[1, [2, 1_u64 << 40]]]));
        let mut other_kind = rectilinear(json!([3]));
        other_kind["configuration"]["kind"] = json!("by reference");
        for grid in [many, other_kind, json!({ "name": "hexagonal" })] {
            let found = chunks_of(&grid, &[1 << 40]);
            assert!(matches!(found, Err(Fault::Unsupported(_))), "{grid}");
        }
    }
}
