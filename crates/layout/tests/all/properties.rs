//! Random cases against the naive model, and phantom arrays against closed forms.

use crate::model::strategies::{distributions, grids, regions, schemas, shapes};
use crate::model::{Memory, element, indices, linear};
use penstock_layout::{
    Boxes, Direction, DiskSchema, Dist, Distribution, Dists, Edges, LayoutError, MemorySchema,
    Order, Region, Split,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const FILL: u8 = 255;
const WIDTHS: [usize; 7] = [1, 2, 3, 4, 8, 12, 16];

/// The layout of a memory: the nesting of dimensions, reversed dimensions, halos.
type Layout = (Vec<usize>, Vec<bool>, Vec<(u64, u64)>);

fn layouts(dims: usize) -> impl Strategy<Value = Layout> {
    let order: Vec<usize> = (0..dims).collect();
    (
        Just(order).prop_shuffle(),
        vec(any::<bool>(), dims),
        vec((0u64..3, 0u64..3), dims),
    )
}

fn lay(extents: &[u64], width: usize, layout: &Layout) -> Memory {
    Memory::new(extents, width, (&layout.0, &layout.1, &layout.2), FILL)
}

/// The elements of a share with their indices in its memory and in the array.
fn held(schema: &MemorySchema, rank: usize) -> Vec<(Vec<u64>, Vec<u64>)> {
    let share = schema.share(rank);
    if share.elements() == 0 {
        return Vec::new();
    }
    let locals = indices(&Region::whole(&share.extents())).into_iter();
    let index = |local: &Vec<u64>| {
        local
            .iter()
            .zip(share.dims())
            .map(|(i, dim)| dim.index(*i))
            .collect()
    };
    locals.map(|local| (index(&local), local)).collect()
}

fn inner(region: &Region, index: &[u64]) -> Vec<u64> {
    index
        .iter()
        .zip(&region.start)
        .map(|(i, start)| i - start)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn gather_and_scatter_move_exactly_the_elements(
        (shape, schema, region, layouts) in shapes().prop_flat_map(|shape| {
            let (schema, region) = (schemas(shape.clone()), regions(&shape));
            let dims = shape.len();
            (Just(shape), schema, region, [layouts(dims), layouts(dims)])
        }),
        width in select(&WIDTHS[..]),
    ) {
        let truth = |index: &[u64]| element(linear(&shape, index), width);
        let inside = |index: &Vec<u64>| region.contains(&Region::new(index, &vec![1; index.len()]));
        let mut gathered = lay(&region.shape, width, &layouts[0]);
        let mut expected = gathered.clone();
        let mut touching = Vec::new();
        let mut memories = Vec::new();
        for rank in 0..schema.ranks() + 1 {
            let held = held(&schema, rank);
            let share = schema.share(rank);
            let mut memory = match share.elements() {
                0 => Memory::dense(&[0], width, FILL),
                _ => lay(&share.extents(), width, &layouts[1]),
            };
            let empty = memory.clone();
            let mut part = memory.clone();
            for (index, local) in &held {
                memory.put(local, &truth(index));
                if inside(index) {
                    part.put(local, &truth(index));
                    expected.put(&inner(&region, index), &truth(index));
                }
            }
            if held.iter().any(|(index, _)| inside(index)) {
                touching.push(rank);
            }
            memories.push((memory, empty, part));
        }
        prop_assert_eq!(&schema.touching(&region), &touching);
        for &rank in &touching {
            let piece = schema.share(rank).intersect(&region).unwrap();
            let (memory, _, _) = &memories[rank];
            let strides = gathered.strides.clone();
            let copies = piece.copies(width, &strides, &memory.strides, Direction::Gather);
            let bytes: usize = copies.iter().map(|copy| copy.bytes()).sum();
            prop_assert_eq!(bytes as u64, piece.elements() * width as u64);
            for copy in copies {
                // SAFETY: the buffers hold all of the region and of the share.
                unsafe { copy.run(memory.source(), gathered.target()) }
            }
        }
        prop_assert_eq!(&gathered, &expected);
        for &rank in &touching {
            let piece = schema.share(rank).intersect(&region).unwrap();
            let (_, scattered, part) = &mut memories[rank];
            let strides = (&gathered.strides, scattered.strides.clone());
            for copy in piece.copies(width, strides.0, &strides.1, Direction::Scatter) {
                // SAFETY: as above.
                unsafe { copy.run(gathered.source(), scattered.target()) }
            }
            prop_assert_eq!(scattered, part);
        }
    }

    #[test]
    fn boxes_are_found_and_overlaps_too(
        shape in vec(1u64..12, 1..=3),
        picks in vec(vec((any::<Index>(), any::<Index>()), 3), 0..40),
        query in vec((any::<Index>(), any::<Index>()), 3),
    ) {
        let make = |picks: &Vec<(Index, Index)>, part: u64| {
            let start: Vec<u64> =
                shape.iter().zip(picks).map(|(n, (i, _))| i.index(*n as usize) as u64).collect();
            let extents = shape.iter().zip(&start).zip(picks).map(|((n, start), (_, i))| {
                (i.index((n - start) as usize + 1) as u64).div_ceil(part)
            });
            Region { shape: extents.collect(), start: start.clone() }
        };
        let boxes: Vec<Region> = picks.iter().map(|picks| make(picks, 3)).collect();
        let clash = (0..boxes.len()).find_map(|first| {
            let second = (first + 1..boxes.len()).find(|&r| boxes[first].intersect(&boxes[r]).is_some());
            second.map(|second| (first, second))
        });
        match (Boxes::new(&shape, boxes.clone()), clash) {
            (Ok(found), None) => {
                let region = make(&query, 1);
                let touching: Vec<usize> =
                    (0..boxes.len()).filter(|&r| boxes[r].intersect(&region).is_some()).collect();
                prop_assert_eq!(found.touching(&region), touching);
            }
            (Err(LayoutError::Overlap { first, second, at }), Some(clash)) => {
                prop_assert_eq!((first, second), clash);
                prop_assert_eq!(at, boxes[first].intersect(&boxes[second]).unwrap().start);
            }
            (result, clash) => prop_assert!(false, "{result:?}, expected {clash:?}"),
        }
    }

    #[test]
    fn regions_split_exactly(
        region in shapes().prop_flat_map(|shape| regions(&shape)),
        elements_max in 0u64..60,
    ) {
        let parts = region.split(elements_max);
        let all: Vec<_> = parts.iter().flat_map(indices).collect();
        prop_assert_eq!(all, indices(&region));
        prop_assert!(parts.iter().all(|part| part.elements() <= elements_max.max(1)));
    }
}

/// A disk schema, with its parameters.
#[derive(Debug, Clone)]
struct Disk {
    schema: DiskSchema,
    padded: bool,
    order: Order,
    inner: Option<Vec<u64>>,
}

fn disks(shape: Vec<u64>, width: u64) -> impl Strategy<Value = Disk> {
    let dims = shape.len();
    let flat = {
        let shape = shape.clone();
        (select(vec![Order::RowMajor, Order::ColumnMajor]), 0u64..100).prop_map(
            move |(order, max)| {
                let schema = DiskSchema::flat(&shape, width, order, max).unwrap();
                Disk {
                    schema,
                    padded: false,
                    order,
                    inner: None,
                }
            },
        )
    };
    let split = prop_oneof![
        Just(None),
        (0u64..100).prop_map(|max| Some(Ok(max))),
        vec(1u64..4, dims).prop_map(|counts| Some(Err(counts))),
    ];
    let rectilinear = {
        let shape = shape.clone();
        let part = prop_oneof![Just(vec![1; dims]), vec(1u64..4, dims)];
        let grid = part.prop_flat_map(move |part| (grids(&shape, &part), Just(part)));
        (grid, any::<bool>(), 0u64..100)
    };
    let of_grid = {
        let shape = shape.clone();
        rectilinear.prop_map(move |((edges, part), padded, max)| {
            let (split, inner) = match max {
                0..30 => (Split::Whole, None),
                30..60 => (Split::Inner(part.clone()), Some(part)),
                max => (Split::Contiguous(max), None),
            };
            let schema = DiskSchema::rectilinear(&shape, width, &edges).unwrap();
            let schema = if padded { schema } else { schema.unpadded() };
            Disk {
                schema: schema.split(split).unwrap(),
                padded,
                order: Order::RowMajor,
                inner,
            }
        })
    };
    let chunked =
        (vec(1u64..5, dims), any::<bool>(), split).prop_map(move |(part, padded, split)| {
            // Sub-chunks, if there are any, are `part`, and the chunk is a multiple of it.
            let (chunk, split, inner) = match split {
                None => (part, Split::Whole, None),
                Some(Ok(max)) => (part, Split::Contiguous(max), None),
                Some(Err(counts)) => {
                    let chunk = part.iter().zip(counts).map(|(p, n)| p * n).collect();
                    (chunk, Split::Inner(part.clone()), Some(part))
                }
            };
            let schema = DiskSchema::chunked(&shape, width, &chunk).unwrap();
            let schema = if padded { schema } else { schema.unpadded() };
            Disk {
                schema: schema.split(split).unwrap(),
                padded,
                order: Order::RowMajor,
                inner,
            }
        });
    prop_oneof![flat, chunked, of_grid]
}

/// The place of every element of a box of `extents`, stored in `order`, by definition.
fn places(extents: &[u64], order: Order) -> Vec<Vec<u64>> {
    match order {
        Order::RowMajor => indices(&Region::whole(extents)),
        Order::ColumnMajor => {
            let reversed: Vec<u64> = extents.iter().rev().copied().collect();
            let turned = indices(&Region::whole(&reversed)).into_iter();
            turned
                .map(|index| index.into_iter().rev().collect())
                .collect()
        }
    }
}

/// The start and the extents of the chunk at a place of the grid, by definition.
fn chunk_at(edges: &[Edges], place: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let dims = edges.iter().zip(place);
    dims.map(|(edges, &i)| match edges {
        Edges::Regular(extent) => (i * extent, *extent),
        Edges::Listed(extents) => {
            let before = &extents[..i as usize];
            (before.iter().sum::<u64>(), extents[i as usize])
        }
    })
    .unzip()
}

/// The elements of an object in their order in the object; `None` is padding.
fn object_elements(disk: &Disk, object: u64) -> Vec<Option<Vec<u64>>> {
    let shape = disk.schema.shape();
    let place = disk.schema.grid_index(object);
    let (start, chunk) = chunk_at(&disk.schema.edges(), &place);
    let cut = |start: &[u64], extents: &[u64]| -> Vec<u64> {
        let dims = start.iter().zip(extents).zip(shape);
        dims.map(|((s, e), n)| {
            if disk.padded {
                *e
            } else {
                (*e).min(n.saturating_sub(*s))
            }
        })
        .collect()
    };
    let stored = cut(&start, &chunk);
    let part = disk.inner.clone().unwrap_or_else(|| chunk.clone());
    let counts: Vec<u64> = stored
        .iter()
        .zip(&part)
        .map(|(n, p)| n.div_ceil(*p))
        .collect();
    let mut elements = Vec::new();
    for place in places(&counts, disk.order) {
        let corner: Vec<u64> = (0..place.len())
            .map(|d| start[d] + place[d] * part[d])
            .collect();
        for index in places(&cut(&corner, &part), disk.order) {
            let index: Vec<u64> = index.iter().zip(&corner).map(|(i, c)| i + c).collect();
            let exists = index.iter().zip(shape).all(|(i, n)| i < n);
            elements.push(exists.then_some(index));
        }
    }
    elements
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn blocks_cover_the_array_as_it_is_stored(
        (width, disk) in (shapes(), select(&WIDTHS[..])).prop_flat_map(|(shape, width)| {
            (Just(width), disks(shape, width as u64))
        }),
        servers in 1usize..=5,
    ) {
        let schema = &disk.schema;
        let empty = schema.bytes() == 0;
        prop_assert_eq!(schema.objects() == 0, empty);
        let mut files: Vec<Vec<u8>> =
            (0..schema.objects()).map(|o| vec![FILL; schema.object_bytes(o) as usize]).collect();
        let mut moved = vec![0u8; (schema.bytes() / schema.width()) as usize];
        let mut dealt = Vec::new();
        for server in 0..servers {
            let mut last = None;
            for block in schema.blocks(server, servers) {
                prop_assert!(last < Some((block.object, block.offset)), "not in order");
                last = Some((block.object, block.offset));
                prop_assert!(block.bytes <= schema.block_bytes_max());
                prop_assert_eq!(block.bytes, block.extents.iter().product::<u64>() * schema.width());
                prop_assert_eq!(block.is_padded(), block.region.shape != block.extents);
                let file = &mut files[block.object as usize];
                let file = &mut file[block.offset as usize..][..block.bytes as usize];
                let strides = block.byte_strides(schema.width());
                for index in indices(&block.region) {
                    let steps = inner(&block.region, &index);
                    let at: isize = steps.iter().zip(&strides).map(|(i, s)| *i as isize * s).sum();
                    let number = linear(schema.shape(), &index);
                    file[at as usize..][..width].copy_from_slice(&element(number, width));
                    moved[number as usize] += 1;
                }
                dealt.push((block.object, block.index));
            }
        }
        prop_assert!(moved.iter().all(|&times| times == 1));
        dealt.sort_unstable();
        let all = (0..schema.objects()).flat_map(|o| schema.object_blocks(o));
        prop_assert_eq!(dealt, all.map(|block| (block.object, block.index)).collect::<Vec<_>>());
        for (object, file) in files.iter().enumerate() {
            let elements = object_elements(&disk, object as u64);
            let expected: Vec<u8> = elements.into_iter().flat_map(|index| match index {
                Some(index) => element(linear(schema.shape(), &index), width),
                None => vec![FILL; width],
            }).collect();
            prop_assert_eq!(file, &expected);
        }
    }

    #[test]
    fn writing_all_blocks_and_reading_them_is_identity(
        (from, to, width, disk) in (shapes(), select(&WIDTHS[..])).prop_flat_map(|(shape, width)| {
            let schemas = (distributions(shape.clone()), distributions(shape.clone()));
            (schemas.0, schemas.1, Just(width), disks(shape, width as u64))
        }),
        servers in 1usize..=5,
    ) {
        let shape = from.shape().to_vec();
        let fill = |schema: &MemorySchema, known: bool| -> Vec<Memory> {
            (0..schema.ranks()).map(|rank| {
                let mut memory = Memory::dense(&schema.share(rank).extents(), width, FILL);
                for (index, local) in held(schema, rank).into_iter().filter(|_| known) {
                    memory.put(&local, &element(linear(&shape, &index), width));
                }
                memory
            }).collect()
        };
        let (written, mut read) = (fill(&from, true), fill(&to, false));
        for block in (0..servers).flat_map(|server| disk.schema.blocks(server, servers)) {
            let strides = block.byte_strides(width as u64);
            let mut buffer = vec![FILL; block.bytes as usize];
            for rank in from.touching(&block.region) {
                let piece = from.share(rank).intersect(&block.region).unwrap();
                for copy in piece.copies(width, &strides, &written[rank].strides, Direction::Gather) {
                    // SAFETY: the buffer holds the block and the memory the share.
                    unsafe { copy.run(written[rank].source(), buffer.as_mut_ptr()) }
                }
            }
            for rank in to.touching(&block.region) {
                let piece = to.share(rank).intersect(&block.region).unwrap();
                for copy in piece.copies(width, &strides, &read[rank].strides, Direction::Scatter) {
                    // SAFETY: as above.
                    unsafe { copy.run(buffer.as_ptr(), read[rank].target()) }
                }
            }
        }
        prop_assert_eq!(read, fill(&to, true));
    }
}

/// More than 2^32 elements a dimension and 2^45 bytes change nothing: no cost depends on their
/// number.
#[test]
fn phantom_cyclic_in_two_dimensions() {
    let n = (1u64 << 33) + 11;
    let memory =
        Distribution::new(&[n, 1 << 20], &"CYCLIC(3),CYCLIC".parse().unwrap(), &[7, 5]).unwrap();
    let held = |start: u64, end: u64, k: u64, ranks: u64, rank: u64| {
        let below =
            |i: u64| i / (k * ranks) * k + (i % (k * ranks)).saturating_sub(k * rank).min(k);
        below(end) - below(start)
    };
    let regions = [
        Region::whole(&[n, 1 << 20]),
        Region::new(&[(1 << 32) - 5, 3], &[(1 << 32) + 1, (1 << 20) - 4]),
        Region::new(&[n - 4, 1], &[4, 2]),
    ];
    for region in &regions {
        let mut total = 0;
        for rank in memory.touching(region) {
            let piece = memory.share(rank).intersect(region).unwrap();
            let (row, column) = (rank as u64 / 5, rank as u64 % 5);
            let rows = held(region.start[0], region.end(0), 3, 7, row);
            let columns = held(region.start[1], region.end(1), 1, 5, column);
            assert_eq!(piece.elements(), rows * columns, "rank {rank}");
            assert!(piece.dims().iter().all(|runs| runs.len() <= 3));
            let strides = [(1 << 20) * 8, 8];
            let copies = piece.copies(8, &strides, &strides, Direction::Gather);
            assert!(copies.len() <= 9);
            assert_eq!(
                copies.iter().map(|c| c.bytes() as u64).sum::<u64>(),
                rows * columns * 8
            );
            total += piece.elements();
        }
        assert_eq!(total, region.elements());
    }
}

#[test]
fn phantom_disk() {
    // The file has 2^43 bytes; a server's blocks are reached without passing the others'.
    let schema = DiskSchema::flat(&[1 << 20, 1 << 20], 8, Order::RowMajor, 1 << 20).unwrap();
    let block = schema.blocks(3, 5).nth(2).unwrap();
    assert_eq!(
        (block.index, block.offset, block.bytes),
        (13, 13 << 20, 1 << 20)
    );
    let schema = DiskSchema::chunked(&[1 << 21, 1 << 20], 8, &[1000, 1000]).unwrap();
    let grid = schema.grid();
    assert_eq!(grid, [2098, 1049]);
    let last = schema.object_blocks(schema.objects() - 1).next().unwrap();
    assert_eq!(
        last.region,
        Region::new(&[2_097_000, 1_048_000], &[152, 576])
    );
    assert_eq!(last.bytes, 8_000_000);
}

/// A grid of 2^40 chunks, listed along one dimension: none of them is passed to find another.
#[test]
fn phantom_rectilinear_disk() {
    let columns: Vec<u64> = (0..1 << 20).map(|i| 1 + i % 2).collect();
    let edges = [Edges::Regular(1), Edges::Listed(columns)];
    let schema = DiskSchema::rectilinear(&[1 << 20, 3 << 19], 8, &edges).unwrap();
    assert_eq!(schema.grid(), [1 << 20, 1 << 20]);
    assert_eq!(schema.chunk(), [1, 2]);
    let region = Region::new(&[77, (3 << 18) + 2], &[1, 2]);
    let found: Vec<u64> = schema
        .blocks_in(&region)
        .map(|block| block.object)
        .collect();
    assert_eq!(
        found,
        [(77 << 20) + (1 << 19) + 1, (77 << 20) + (1 << 19) + 2]
    );
    let second = schema.object_region(found[1]);
    assert_eq!(second, Region::new(&[77, (3 << 18) + 3], &[1, 1]));
}

#[test]
fn a_rectilinear_schema_from_outside_is_checked() {
    let edges = [Edges::Listed(vec![3, 5, 2]), Edges::Regular(4)];
    let schema = DiskSchema::rectilinear(&[9, 7], 8, &edges).unwrap();
    let bytes = postcard::to_stdvec(&schema).unwrap();
    assert_eq!(postcard::from_bytes::<DiskSchema>(&bytes).unwrap(), schema);
    for at in 0..bytes.len() {
        for byte in [0, 1, 2, 127, 255] {
            let mut changed = bytes.clone();
            changed[at] = byte;
            if let Ok(schema) = postcard::from_bytes::<DiskSchema>(&changed) {
                // What is taken fits together: its chunks are within reach of its own numbers.
                let last = schema.objects().saturating_sub(1);
                assert!(schema.object_region(last).end(0) <= schema.shape()[0]);
                assert!(schema.object_blocks(last).next().is_some() || schema.objects() == 0);
            }
        }
    }
}

#[test]
fn sub_chunks_divide_each_listed_chunk() {
    let edges = [Edges::Listed(vec![4, 8, 6])];
    let schema = DiskSchema::rectilinear(&[18], 8, &edges).unwrap();
    assert!(schema.clone().split(Split::Inner(vec![2])).is_ok());
    let error = schema.split(Split::Inner(vec![4])).unwrap_err();
    assert!(error.to_string().contains("[[4, 8, 6]]"), "{error}");
}

#[test]
fn meshes_larger_than_the_array() {
    let memory = Distribution::new(&[3, 2], &"BLOCK,CYCLIC(4)".parse().unwrap(), &[5, 2]).unwrap();
    let sizes: Vec<u64> = (0..12).map(|rank| memory.share(rank).elements()).collect();
    assert_eq!(sizes, [2, 0, 2, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(memory.touching(&Region::whole(&[3, 2])), [0, 2, 4]);
}

#[test]
fn more_ranks_than_memory_could_list() {
    let dists = Dists(vec![Dist::Cyclic(1 << 40), Dist::Block]);
    let memory = Distribution::new(&[100, 1 << 62], &dists, &[1 << 30, 1 << 30]).unwrap();
    let share = memory.share((1 << 30) - 1);
    assert_eq!(share.extents(), [100, 1 << 32]);
    assert_eq!(memory.touching(&Region::new(&[0, 5 << 32], &[100, 1])), [5]);
}
