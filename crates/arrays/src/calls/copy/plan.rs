//! Plans a copy from one disk schema to another in bounded memory. Pure: touches no file.
//!
//! The array is cut into *slabs*, boxes of equal extents, which are copied one after the other: a
//! slab is read into memory from all source blocks that hold its elements, and is then written.
//! Where the target's chunks have different extents, a slab is of as many chunks as fit into its
//! extent. In one dimension of extent n,
//!
//! ```text
//! slabs    |         |         |         |      n / e of them
//! blocks   |     |     |     |     |     |    a block is read once for each slab that it touches:
//! read       1     2     2     1 ...            blocks + slab boundaries inside of blocks
//! ```
//!
//! so the bytes read are the array's bytes times the product of this ratio over all dimensions, and
//! a target block that a boundary cuts is read and written again. Blocks of elements without codec
//! can be made small; a chunk that is encoded is one block. A plan is the best of some thousand
//! choices of slab and block extents. If the best still reads the source more than twice, the copy
//! goes through a store in between, of chunks without codec: first in slabs that suit the source,
//! then in slabs that suit the target (as rechunker does). Time: in proportion to the choices.
//! Memory: negligible.

use penstock_engine::{Error, Kind, Result};
use penstock_layout::{DiskSchema, Edges, Split, exact};
use serde::{Deserialize, Serialize};

/// The most that a copy may read, as a multiple of the source.
pub const READS_MAX: f64 = 2.0;
/// The block sizes to choose from, where the store leaves a choice. A disk access costs as much as
/// `ACCESS_BYTES` more bytes.
const BLOCK_BYTES: [u64; 9] = [
    1 << 20,
    1 << 19,
    1 << 18,
    1 << 17,
    1 << 16,
    1 << 15,
    1 << 14,
    1 << 13,
    1 << 12,
];
const ACCESS_BYTES: f64 = 16384.0;
/// The search for a memory that would do begins at `MEMORY_BYTES_MIN`, and goes up an eighth at a
/// time, at most `MORE_MAX` times.
const MEMORY_BYTES_MIN: u64 = 1 << 20;
const MORE_MAX: usize = 160;
/// The cost of a slab beside its bytes.
const SLAB_BYTES: f64 = (1 << 20) as f64;
/// The most choices of slabs that are compared.
const CHOICES_MAX: usize = 1 << 15;
/// The most boundaries that are counted: of more, the first stand for all.
const BOUNDARIES_MAX: u64 = 1 << 10;

/// One pass over the array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// The extents of slabs along each dimension.
    pub slab: Vec<Edges>,
    /// The most bytes of a source block, where the store leaves a choice.
    pub source_block_bytes: u64,
    /// The most bytes of a target block, where the store leaves a choice.
    pub target_block_bytes: u64,
    /// The source bytes that are read, as a multiple of the array's bytes.
    pub reads: f64,
    /// Whether a slab's boundary may cut a target block.
    pub cuts_blocks: bool,
}

/// The plan of a copy of one array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The extents of the chunks of the store in between, if there is one.
    pub between: Option<Vec<u64>>,
    /// One pass, or two.
    pub passes: Vec<Pass>,
}

/// The resources of a copy.
#[derive(Debug, Clone, Copy)]
pub struct Resources {
    /// The memory of all ranks together, in bytes.
    pub memory_bytes: u64,
    /// The number of servers, each with two buffers.
    pub servers: usize,
    /// Whether a store in between takes whole chunks only, as one in a bucket does.
    pub writes_whole: bool,
}

/// Finds the cheapest plan for a copy from `source` to `target`, which have one shape and one
/// element width.
///
/// # Errors
/// [`Kind::Schema`] when the memory is too little; the error says how much would do.
pub fn plan(source: &DiskSchema, target: &DiskSchema, means: Resources) -> Result<Plan> {
    find(source, target, means).ok_or_else(|| {
        let given = means.memory_bytes;
        let more =
            std::iter::successors(Some(given.max(MEMORY_BYTES_MIN)), |&m| m.checked_add(m / 8));
        let would_do = more.take(MORE_MAX).find(|&memory_bytes| {
            let means = Resources {
                memory_bytes,
                ..means
            };
            find(source, target, means).is_some()
        });
        let advice = match would_do {
            Some(bytes) => format!("{} MiB would do", bytes.div_ceil(1 << 20)),
            None => "much more is needed".to_string(),
        };
        let cause = format!("{given} bytes of memory are too little for its chunks: {advice}");
        Error::new(Kind::Schema, "planning a copy", cause)
    })
}

fn find(source: &DiskSchema, target: &DiskSchema, means: Resources) -> Option<Plan> {
    if let Some(pass) = best_pass(source, target, means)
        && pass.reads <= READS_MAX
    {
        return Some(Plan {
            between: None,
            passes: vec![pass],
        });
    }
    for chunk in between(source, target, means) {
        let Ok(mut middle) = plain(source.shape(), source.width(), &chunk) else {
            continue;
        };
        if means.writes_whole {
            middle = middle.split(Split::Whole).ok()?;
        }
        let first = best_pass(source, &middle, means);
        let second = best_pass(&middle, target, means);
        if let (Some(first), Some(second)) = (first, second)
            && first.reads <= READS_MAX
            && second.reads <= READS_MAX
        {
            return Some(Plan {
                between: Some(chunk),
                passes: vec![first, second],
            });
        }
    }
    None
}

/// A disk schema of chunks without codec.
///
/// # Errors
/// When the chunks do not fit the array.
pub fn plain(shape: &[u64], width: u64, chunk: &[u64]) -> Result<DiskSchema> {
    DiskSchema::chunked(shape, width, chunk)
        .and_then(|chunked| chunked.split(Split::Contiguous(BLOCK_BYTES[0])))
        .map_err(crate::schema::of_layout)
}

/// Whether the blocks of a schema may be of any size.
fn is_divisible(schema: &DiskSchema) -> bool {
    matches!(schema.split_of(), Split::Contiguous(_))
}

/// The bytes of a block that must be moved whole; 0 if blocks may be of any size.
fn whole_block(schema: &DiskSchema) -> u64 {
    match is_divisible(schema) {
        true => 0,
        false => schema.block_bytes_max(),
    }
}

/// The schema with blocks of at most `bytes` bytes, if it leaves that open.
pub fn with_block_bytes(schema: &DiskSchema, bytes: u64) -> DiskSchema {
    match is_divisible(schema) {
        // A schema that fits together with one block size does with another.
        true => schema
            .clone()
            .split(Split::Contiguous(bytes))
            .unwrap_or_else(|_| schema.clone()),
        false => schema.clone(),
    }
}

/// The extent that each slab must be a multiple of in a dimension: the extent of a target object
/// that is encoded whole, otherwise 1. Objects of different extents are put together by
/// [`grouped`].
fn unit(target: &DiskSchema, edges: &Edges) -> u64 {
    match is_divisible(target) {
        true => 1,
        false => edges.extent().unwrap_or(1),
    }
}

/// Slabs of at most `most` indices, each of whole chunks of a list; no chunk has more.
fn grouped(chunks: &[u64], most: u64) -> Edges {
    let mut slabs: Vec<u64> = Vec::new();
    for &chunk in chunks {
        match slabs.last_mut() {
            Some(slab) if *slab + chunk <= most => *slab += chunk,
            _ => slabs.push(chunk),
        }
    }
    Edges::Listed(slabs).simplified()
}

/// The mean number of times that a block of extents `block` is moved, if the array is moved in
/// slabs of extents `slab`.
fn repeats(schema: &DiskSchema, block: &[u64], slab: &[&Edges]) -> f64 {
    let dims = 0..slab.len();
    dims.map(|d| match (slab[d].extent(), schema.is_regular()) {
        (Some(slab), true) => repeats_in(schema.shape()[d], schema.chunk()[d], block[d], slab),
        _ => repeats_along(schema, d, block[d], slab[d]),
    })
    .product()
}

/// As [`repeats_in`], for slabs or chunks of different extents.
fn repeats_along(schema: &DiskSchema, d: usize, block: u64, slab: &Edges) -> f64 {
    let (extent, block) = (schema.shape()[d], block.max(1));
    let boundaries = slab.count(extent).saturating_sub(1);
    let counted = boundaries.min(BOUNDARIES_MAX);
    let starts = slab.starts().skip(1).take(exact::<usize>(counted));
    let cutting = starts.filter(|&start| {
        let (chunk, _) = schema.object_span(start, d);
        !(start - chunk).is_multiple_of(block)
    });
    let cuts = cutting.count() as f64 * boundaries as f64 / counted.max(1) as f64;
    let blocks = schema.grid()[d].max(extent.div_ceil(block)).max(1);
    1.0 + cuts / blocks as f64
}

fn repeats_in(extent: u64, chunk: u64, block: u64, slab: u64) -> f64 {
    let (block, slab) = (block.max(1), slab.max(1));
    let boundaries = extent.div_ceil(slab).saturating_sub(1);
    if boundaries == 0 {
        return 1.0;
    }
    let counted = boundaries.min(BOUNDARIES_MAX);
    let cutting = (1..=counted).filter(|k| !(k * slab % chunk).is_multiple_of(block));
    let cuts = cutting.count() as f64 * boundaries as f64 / counted as f64;
    let blocks = (extent / chunk * chunk.div_ceil(block) + (extent % chunk).div_ceil(block)).max(1);
    1.0 + cuts / blocks as f64
}

/// The cheapest way to move a schema in slabs of extents `slab`: the moved bytes as a multiple of
/// the array, the cost, and the most bytes of a block.
fn moved(schema: &DiskSchema, slab: &[&Edges], is_target: bool) -> (f64, f64, u64) {
    let sizes: &[u64] = match is_divisible(schema) {
        true => &BLOCK_BYTES,
        false => &BLOCK_BYTES[..1],
    };
    let of_size = |&bytes: &u64| {
        let cut = with_block_bytes(schema, bytes);
        let block = cut.block_at(0, 0)?;
        let repeats = repeats(&cut, &block.extents, slab);
        // A target block that is cut is read before it is written again.
        let again = if is_target {
            2.0 * (repeats - 1.0)
        } else {
            0.0
        };
        let accesses = 1.0 + ACCESS_BYTES / block.bytes.max(1) as f64;
        Some((repeats, (repeats + again) * accesses, bytes))
    };
    let choices = sizes.iter().filter_map(of_size);
    choices
        .min_by(|one, other| one.1.total_cmp(&other.1))
        .unwrap_or((1.0, 1.0, BLOCK_BYTES[0]))
}

/// The cheapest pass, if any fits into memory.
fn best_pass(source: &DiskSchema, target: &DiskSchema, means: Resources) -> Option<Pass> {
    // A server has two buffers, and takes memory beside them to encode and decode.
    let encoded = 2 * whole_block(source).max(whole_block(target));
    let buffers = (2 * BLOCK_BYTES[0].max(encoded) + encoded) * means.servers as u64;
    let budget = means.memory_bytes.checked_sub(buffers)?;
    let shape = source.shape();
    let edges = target.edges();
    let candidates: Vec<Vec<Edges>> = (0..shape.len())
        .map(|d| candidates(shape[d], source.chunk()[d], target, &edges[d]))
        .collect();
    let numbers = candidates.iter().map(|each| (0..each.len()).collect());
    let numbers: Vec<Vec<usize>> = numbers.collect();
    let bytes: u64 = source.bytes();
    let mut best: Option<(f64, Pass)> = None;
    for choice in choices(&numbers) {
        let slab = choice.iter().zip(&candidates);
        let slab: Vec<&Edges> = slab.map(|(&number, each)| &each[number]).collect();
        let elements = slab
            .iter()
            .try_fold(source.width(), |n, e| n.checked_mul(e.largest()));
        if elements.is_none_or(|slab_bytes| slab_bytes > budget) {
            continue;
        }
        let (reads, read_cost, source_block_bytes) = moved(source, &slab, false);
        let (writes, write_cost, target_block_bytes) = moved(target, &slab, true);
        let slabs: f64 = (0..shape.len())
            .map(|d| slab[d].count(shape[d]) as f64)
            .product();
        let mut cost = (read_cost + write_cost) * bytes as f64 + slabs * SLAB_BYTES;
        if reads > READS_MAX {
            cost *= 1e6; // only to say how bad it is
        }
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            let may_cut = |d: usize| is_cut_anywhere(&edges[d], slab[d], shape[d]);
            let pass = Pass {
                cuts_blocks: writes > 1.0 || (0..shape.len()).any(may_cut),
                slab: slab.into_iter().cloned().collect(),
                source_block_bytes,
                target_block_bytes,
                reads,
            };
            best = Some((cost, pass));
        }
    }
    best.map(|(_, pass)| pass)
}

/// Whether slabs of equal extents lie across listed chunks: not all of their boundaries are
/// counted.
fn is_cut_anywhere(chunks: &Edges, slab: &Edges, extent: u64) -> bool {
    chunks.extent().is_none() && slab.extent().is_some_and(|slab| slab < extent)
}

/// The slabs in one dimension that are worth a look, by ascending extents.
fn candidates(extent: u64, source_chunk: u64, target: &DiskSchema, edges: &Edges) -> Vec<Edges> {
    let unit = unit(target, edges);
    let extent = extent.max(1);
    let mut all = Vec::new();
    for base in [unit, edges.largest(), source_chunk] {
        let base = base.next_multiple_of(unit);
        let mut times = 1;
        while base * times < extent {
            all.extend([base * times, base * (times + times.div_ceil(2))]);
            times *= 2;
        }
    }
    all.push(extent.next_multiple_of(unit));
    all.retain(|&e| e % unit == 0 && e <= extent.next_multiple_of(unit));
    all.sort_unstable();
    all.dedup();
    let slabs = all.into_iter().filter_map(|most| match edges {
        Edges::Listed(chunks) if edges.largest() <= most => Some(grouped(chunks, most)),
        Edges::Listed(_) if !is_divisible(target) => None,
        _ => Some(Edges::Regular(most)),
    });
    let mut slabs: Vec<Edges> = slabs.collect();
    slabs.dedup();
    slabs
}

/// All combinations of the candidates, thinned out if there are too many.
fn choices(candidates: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut candidates = candidates.to_vec();
    while candidates.iter().map(Vec::len).product::<usize>() > CHOICES_MAX {
        let Some(longest) = candidates.iter_mut().max_by_key(|each| each.len()) else {
            break;
        };
        let last = longest.len() - 1;
        let mut place = 0;
        longest.retain(|_| {
            place += 1;
            (place - 1_usize).is_multiple_of(2) || place - 1 == last
        });
    }
    let mut all = vec![Vec::new()];
    for each in &candidates {
        let longer = all.iter().flat_map(|slab: &Vec<usize>| {
            each.iter()
                .map(|&number| [slab.as_slice(), &[number]].concat())
        });
        all = longer.collect();
    }
    all
}

/// Chunks for a store in between: the smaller of the chunks that suit the source and the target.
fn between(source: &DiskSchema, target: &DiskSchema, means: Resources) -> Vec<Vec<u64>> {
    let budget = means.memory_bytes / 2;
    let grown = |schema: &DiskSchema, inner_first: bool| {
        let shape = schema.shape();
        let mut extents: Vec<u64> = schema.chunk().to_vec();
        let dims: Vec<usize> = match inner_first {
            true => (0..shape.len()).rev().collect(),
            false => (0..shape.len()).collect(),
        };
        for d in dims {
            let others: u64 = schema.width()
                * (0..extents.len())
                    .filter(|&o| o != d)
                    .map(|o| extents[o])
                    .product::<u64>();
            let fit = budget / others.max(1) / extents[d].max(1) * extents[d];
            extents[d] = fit.clamp(extents[d], shape[d].max(extents[d]));
        }
        extents
    };
    let mut all = Vec::new();
    for (of_source, of_target) in [(true, true), (false, false), (true, false), (false, true)] {
        let (one, other) = (grown(source, of_source), grown(target, of_target));
        let extents = one.iter().zip(&other).zip(source.shape());
        let chunk: Vec<u64> = extents
            .map(|((one, other), extent)| one.min(other).min(extent).max(&1))
            .copied()
            .collect();
        if !all.contains(&chunk) {
            all.push(chunk);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn means(memory_bytes: u64) -> Resources {
        Resources {
            memory_bytes,
            servers: 2,
            writes_whole: false,
        }
    }

    fn encoded(shape: &[u64], chunk: &[u64]) -> DiskSchema {
        DiskSchema::chunked(shape, 8, chunk).unwrap()
    }

    #[test]
    fn what_is_not_encoded_is_read_once() {
        let shape = [512, 512, 512];
        let source = plain(&shape, 8, &[512, 512, 1]).unwrap();
        let target = plain(&shape, 8, &[1, 512, 512]).unwrap();
        for memory in [32, 64, 256, 1024] {
            let plan = plan(&source, &target, means(memory * MIB)).unwrap();
            assert_eq!(plan.between, None);
            assert!(plan.passes[0].reads < 1.01, "{plan:?}");
            let slab: u64 = Edges::largest_of(&plan.passes[0].slab).iter().product();
            assert!(slab * 8 <= memory * MIB);
        }
    }

    #[test]
    fn what_is_encoded_goes_through_a_store_in_between() {
        let shape = [512, 512, 512];
        let source = encoded(&shape, &[512, 512, 1]);
        let target = encoded(&shape, &[1, 512, 512]);
        let plan = plan(&source, &target, means(128 * MIB)).unwrap();
        assert_eq!(plan.passes.len(), 2, "{plan:?}");
        assert!(plan.passes.iter().all(|pass| pass.reads <= READS_MAX));
        // With memory for half of the array, the source is read twice instead.
        let plan = super::plan(&source, &target, means(800 * MIB)).unwrap();
        assert_eq!(plan.passes.len(), 1, "{plan:?}");
    }

    #[test]
    fn too_little_memory_is_refused() {
        let source = encoded(&[1024, 1024], &[1024, 1024]);
        let target = plain(&[1024, 1024], 8, &[64, 64]).unwrap();
        for (source, target, memory) in [
            (&source, &target, 4 * MIB),
            (&target, &source, 4 * MIB),
            (&target, &target, 1),
            (
                &encoded(&[73, 211, 97], &[10, 64, 97]),
                &plain(&[73, 211, 97], 8, &[73, 211, 97]).unwrap(),
                4 * MIB,
            ),
        ] {
            let error = plan(source, target, means(memory)).unwrap_err();
            let words: Vec<&str> = error.cause.split(' ').collect();
            let at = words.iter().position(|&word| word == "MiB").unwrap();
            let would_do = words[at - 1].parse::<u64>().unwrap() * MIB;
            assert!(would_do > memory, "{error}");
            assert!(plan(source, target, means(would_do)).is_ok(), "{error}");
        }
    }

    #[test]
    fn any_shape_has_a_plan() {
        for shape in [
            vec![],
            vec![0],
            vec![1],
            vec![7, 0, 3],
            vec![1000, 3, 2, 2, 5, 7],
        ] {
            let chunk: Vec<u64> = shape.iter().map(|n| n / 2 + 1).collect();
            let source = encoded(&shape, &chunk);
            let target = plain(&shape, 8, &vec![1; shape.len()]).unwrap();
            let plan = plan(&source, &target, means(64 * MIB)).unwrap();
            assert!(plan.passes.iter().all(|pass| pass.reads <= READS_MAX));
        }
    }

    #[test]
    fn slabs_are_of_whole_chunks_where_these_are_listed() {
        let chunks: Vec<u64> = (0..64).map(|i| 4 + i % 5).collect();
        let n: u64 = chunks.iter().sum();
        let shape = [n, 512];
        let edges = [Edges::Listed(chunks.clone()), Edges::Regular(512)];
        let listed = |split| {
            let schema = DiskSchema::rectilinear(&shape, 8, &edges).unwrap();
            schema.split(split).unwrap()
        };
        let (whole, divisible) = (listed(Split::Whole), listed(Split::Contiguous(MIB)));
        let others = encoded(&shape, &[7, 512]);
        // Little memory: a slab is smaller than the array.
        for (source, target) in [
            (&whole, &whole),
            (&others, &whole),
            (&whole, &others),
            (&divisible, &whole),
            (&others, &divisible),
        ] {
            let means = means(9 * MIB);
            let plan = plan(source, target, means).unwrap();
            for pass in &plan.passes {
                assert!(pass.reads <= READS_MAX, "{plan:?}");
            }
            let last = plan.passes.last().unwrap();
            if target.split_of() == &Split::Whole {
                assert!(!last.cuts_blocks, "{plan:?}");
            }
            if let Edges::Listed(slabs) = &last.slab[0] {
                assert_eq!(slabs.iter().sum::<u64>(), n);
                let mut starts = last.slab[0].starts();
                assert!(starts.all(|start| target.object_span(start, 0).0 == start));
            }
        }
        assert_eq!(grouped(&[3, 5, 2, 2, 9], 9), Edges::Listed(vec![8, 4, 9]));
        assert_eq!(grouped(&[3, 5, 4, 4], 8), Edges::Regular(8));
        assert_eq!(grouped(&[3, 5], 100), Edges::Regular(8));
    }

    #[test]
    fn repeats_are_those_of_counting() {
        for (extent, chunk, block, slab) in
            [(20, 7, 3, 4), (20, 20, 5, 8), (9, 3, 3, 3), (50, 10, 4, 7)]
        {
            let mut pairs = 0;
            let mut blocks = 0;
            for start in (0..extent).step_by(chunk) {
                let end = (start + chunk).min(extent);
                for begin in (start..end).step_by(block) {
                    let last = (begin + block).min(end) - 1;
                    blocks += 1;
                    pairs += last / slab - begin / slab + 1;
                }
            }
            let counted = pairs as f64 / blocks as f64;
            let found = repeats_in(extent as u64, chunk as u64, block as u64, slab as u64);
            assert!((counted - found).abs() < 1e-9, "{counted} {found}");
        }
    }
}
