//! Blocks by number, stretches and replicated arrays, against lists of all blocks and elements.

use crate::model;
use std::collections::BTreeMap;

use crate::model::disk::{Parts, Value, all_schemas, from_fields, listed_schemas};
use crate::model::strategies::{grids, regions, schemas, shapes};
use crate::model::{indices, linear};
use penstock_layout::{
    Assignment, Block, DiskSchema, Dist, Distribution, Dists, Edges, MemorySchema, Order, Region,
    Replicated, Share, Split, Stretch,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// The numbers of servers and of ranks: one, some, more than there are blocks in a small case.
const COUNTS: [usize; 5] = [1, 2, 3, 5, 40];

fn all_blocks(schema: &DiskSchema) -> Vec<Block> {
    schema.blocks(0, 1).collect()
}

fn by_object(blocks: &[Block]) -> BTreeMap<u64, Vec<&Block>> {
    let mut objects: BTreeMap<u64, Vec<&Block>> = BTreeMap::new();
    for block in blocks {
        objects.entry(block.object).or_default().push(block);
    }
    objects
}

/// Whether no object has a block of padding alone.
fn all_listed(schema: &DiskSchema, blocks: &[Block]) -> bool {
    by_object(blocks).iter().all(|(&object, blocks)| {
        let bytes: u64 = blocks.iter().map(|block| block.bytes).sum();
        bytes == schema.object_bytes(object)
    })
}

/// Checks that `block_at` knows the blocks of the list, and no others.
fn check_numbers(schema: &DiskSchema, blocks: &[Block]) {
    let number = |block: &Block| (block.object, block.index);
    assert!(blocks.is_sorted_by(|a, b| number(a) < number(b)));
    let most = blocks.iter().map(|block| block.index).max().unwrap_or(0);
    let mut listed = blocks.iter().peekable();
    for object in 0..schema.objects() + 2 {
        for index in (0..most + 3).chain([u64::MAX]) {
            let block = listed.next_if(|block| number(block) == (object, index));
            assert_eq!(schema.block_at(object, index), block.cloned(), "{schema:?}");
        }
    }
    assert_eq!(schema.block_at(u64::MAX, 0), None);
}

/// Checks server, slot and successor against the servers' lists.
fn check_servers(schema: &DiskSchema, blocks: &[Block], servers: usize) {
    let objects = by_object(blocks);
    let alike = objects
        .values()
        .all(|blocks| blocks.len() == objects[&0].len());
    let is_regular = Edges::regular_extents(&schema.edges()).is_some();
    let dense = alike && is_regular && all_listed(schema, blocks);
    for server in 0..servers {
        let mine: Vec<Block> = schema.blocks(server, servers).collect();
        let mut slot_last = None;
        for (at, block) in mine.iter().enumerate() {
            let what = || format!("{schema:?} {servers} {block:?}");
            assert_eq!(schema.server_of(block, servers), server, "{}", what());
            let next = schema.successor(block, servers);
            assert_eq!(next.as_ref(), mine.get(at + 1), "{}", what());
            let slot = schema.slot(block, servers);
            assert!(slot_last < Some(slot), "{}", what());
            assert!(
                slot >= at as u64 && (!dense || slot == at as u64),
                "{}",
                what()
            );
            slot_last = Some(slot);
        }
    }
}

/// Checks that the blocks of a window lie where the whole array has them, on the same server.
fn check_window(schema: &DiskSchema, rows: std::ops::Range<u64>, servers: usize) {
    let window = schema.window(rows.clone());
    let blocks = all_blocks(&window);
    check_numbers(&window, &blocks);
    check_servers(&window, &blocks, servers);
    check_conforming(&window, &blocks, servers);
    check_region(&window, &blocks, &Region::whole(window.shape()));
    let others: u64 = schema.grid().iter().skip(1).product();
    let first = rows.start / schema.chunk()[0] * others;
    let mut held = 0;
    for block in &blocks {
        let what = || format!("{schema:?} {rows:?}: {block:?}");
        let object = first + block.object;
        assert!(object < schema.objects(), "{}", what());
        assert!(block.bytes <= window.block_bytes_max(), "{}", what());
        let server = schema.server_of_object(object, servers);
        assert_eq!(window.server_of(block, servers), server, "{}", what());
        let mut extents = schema.object_extents(object);
        extents[0] = schema.chunk()[0];
        let bytes = extents.iter().product::<u64>() * schema.width();
        assert_eq!(window.chunk_bytes(block.object), bytes, "{}", what());
        let corner = schema.object_region(object).start;
        // Sub-chunks lie one behind the other, each by itself.
        let is_linear = !matches!(window.split_of(), Split::Inner(_));
        for index in indices(&block.region).into_iter().filter(|_| is_linear) {
            let steps = index.iter().zip(&block.region.start).zip(&block.strides);
            let inside: u64 = steps.map(|((i, start), stride)| (i - start) * stride).sum();
            let offset = window.offset_in_chunk(block.object) + block.offset;
            let mut place = index.clone();
            place[0] += rows.start;
            place.iter_mut().zip(&corner).for_each(|(i, c)| *i -= c);
            let expected = linear(&extents, &place) * schema.width();
            assert_eq!(offset + inside * schema.width(), expected, "{}", what());
        }
        held += block.region.elements();
    }
    assert_eq!(
        held,
        window.shape().iter().product::<u64>(),
        "{schema:?} {rows:?}"
    );
}

/// Checks that the conforming parts are nearly equal and together are the file, in order.
fn check_conforming(schema: &DiskSchema, blocks: &[Block], ranks: usize) {
    let parts: Vec<Vec<Block>> = (0..ranks)
        .map(|r| schema.conforming(r, ranks).collect())
        .collect();
    assert_eq!(schema.conforming(ranks, ranks).next(), None);
    for (rank, part) in parts.iter().enumerate() {
        let mut free = 0..schema.conforming_blocks_max(ranks);
        for block in part {
            let (owner, place) = schema.conforming_place(block, ranks);
            assert_eq!(owner, rank, "{schema:?} {ranks}: {block:?}");
            assert!(free.contains(&place), "{schema:?} {ranks}: {block:?}");
            free.start = place + 1;
        }
    }
    let level = |sizes: &[usize]| {
        let (most, fewest) = (sizes.iter().max().unwrap(), sizes.iter().min().unwrap());
        assert!(most - fewest <= 1, "{schema:?} {ranks}: {sizes:?}");
    };
    match schema.assignment() {
        Assignment::Objects => {
            assert_eq!(parts.concat(), blocks, "{schema:?} {ranks}");
            let sizes: Vec<usize> = parts.iter().map(|part| by_object(part).len()).collect();
            level(&sizes);
            assert_eq!(
                sizes.iter().sum::<usize>() as u64,
                schema.objects(),
                "an object was cut"
            );
        }
        Assignment::Blocks => {
            for (&object, expected) in &by_object(blocks) {
                let of_object = |part: &Vec<Block>| -> Vec<Block> {
                    part.iter()
                        .filter(|block| block.object == object)
                        .cloned()
                        .collect()
                };
                let parts: Vec<Vec<Block>> = parts.iter().map(of_object).collect();
                assert!(
                    parts.concat().iter().eq(expected.iter().copied()),
                    "{schema:?} {ranks}"
                );
                if all_listed(schema, blocks) {
                    level(&parts.iter().map(Vec::len).collect::<Vec<usize>>());
                }
            }
            let total: usize = parts.iter().map(Vec::len).sum();
            assert_eq!(total, blocks.len());
            for part in &parts {
                assert!(part.is_sorted_by_key(|block| (block.object, block.index)));
            }
        }
    }
}

/// Checks that `blocks_in` finds the blocks that an element-wise look finds.
fn check_region(schema: &DiskSchema, blocks: &[Block], region: &Region) {
    let inside = |index: &Vec<u64>| {
        (0..index.len()).all(|d| region.start[d] <= index[d] && index[d] < region.end(d))
    };
    let expected = blocks
        .iter()
        .filter(|block| indices(&block.region).iter().any(inside));
    let found: Vec<Block> = schema.blocks_in(region).collect();
    assert!(
        found.iter().eq(expected),
        "{schema:?} {region:?}: {found:?}"
    );
}

/// Lists the elements of a share in a block by offset, cut where the next element does not follow
/// or the longest box from the first on ends.
fn naive_stretches(share: &Share, block: &Block) -> Vec<Stretch> {
    let mut elements: Vec<(u64, Vec<u64>)> = Vec::new();
    if share.elements() > 0 {
        let locals = indices(&Region::whole(&share.extents())).into_iter();
        let held = locals.map(|local| -> Vec<u64> {
            local
                .iter()
                .zip(share.dims())
                .map(|(i, dim)| dim.index(*i))
                .collect()
        });
        let one = |index: &Vec<u64>| Region::new(index, &vec![1; index.len()]);
        for index in held.filter(|index| block.region.contains(&one(index))) {
            let steps = index.iter().zip(&block.region.start).zip(&block.strides);
            let offset = steps.map(|((i, start), stride)| (i - start) * stride).sum();
            elements.push((offset, index));
        }
    }
    elements.sort();
    let mut stretches = Vec::new();
    let mut rest = elements.as_slice();
    while let Some((offset, first)) = rest.first() {
        let mut longest = 0;
        let (mut low, mut high) = (first.clone(), first.clone());
        let mut found = Region::whole(&[]);
        for (nth, (at, index)) in rest.iter().enumerate() {
            if *at != offset + nth as u64 {
                break;
            }
            for d in 0..index.len() {
                low[d] = low[d].min(index[d]);
                high[d] = high[d].max(index[d]);
            }
            let extents: Vec<u64> = low.iter().zip(&high).map(|(l, h)| h - l + 1).collect();
            let around = Region::new(&low, &extents);
            if around.elements() == nth as u64 + 1 {
                (longest, found) = (nth + 1, around);
            }
        }
        let (region, offset) = (found, *offset);
        stretches.push(Stretch { region, offset });
        rest = &rest[longest..];
    }
    stretches
}

fn check_stretches(memory: &MemorySchema, blocks: &[Block]) {
    for rank in 0..memory.ranks() + 1 {
        let share = memory.share(rank);
        for block in blocks {
            let found: Vec<Stretch> = share.stretches(block).collect();
            let expected = naive_stretches(&share, block);
            assert_eq!(found, expected, "{memory:?} rank {rank} of {block:?}");
        }
    }
}

#[test]
fn all_small_schemas() {
    let shapes: [&[u64]; 10] = [
        &[],
        &[0],
        &[1],
        &[5],
        &[7],
        &[0, 3],
        &[3, 2],
        &[4, 4],
        &[5, 3],
        &[2, 3, 3],
    ];
    for shape in shapes {
        // Regions also reach beyond the array, where there is nothing.
        let beyond: Vec<u64> = shape.iter().map(|n| n + 1).collect();
        let regions = model::regions(&beyond);
        let step = if shape.len() > 2 { 37 } else { 1 };
        let schemas = all_schemas(shape, if shape.len() > 2 { 2 } else { 4 });
        for schema in schemas.into_iter().chain(listed_schemas(shape)) {
            let blocks = all_blocks(&schema);
            check_numbers(&schema, &blocks);
            for count in COUNTS {
                check_servers(&schema, &blocks, count);
                check_conforming(&schema, &blocks, count);
            }
            for region in regions.iter().step_by(step) {
                check_region(&schema, &blocks, region);
            }
        }
    }
}

#[test]
fn all_small_stretches() {
    let dists = [
        (Dist::Whole, 1),
        (Dist::Block, 2),
        (Dist::Cyclic(1), 2),
        (Dist::Cyclic(2), 2),
        (Dist::Cyclic(1), 3),
    ];
    let shapes: [&[u64]; 8] = [&[], &[0], &[5], &[7], &[3, 2], &[4, 4], &[5, 3], &[2, 3, 3]];
    for shape in shapes {
        let of_memory: Vec<MemorySchema> = (0..dists.len().pow(shape.len() as u32))
            .map(|number| {
                let pick = |d: usize| dists[number / dists.len().pow(d as u32) % dists.len()];
                let picked: Vec<(Dist, u64)> = (0..shape.len()).map(pick).collect();
                let mesh: Vec<u64> = picked
                    .iter()
                    .filter(|p| p.0 != Dist::Whole)
                    .map(|p| p.1)
                    .collect();
                let dists = Dists(picked.iter().map(|p| p.0).collect());
                Distribution::new(shape, &dists, &mesh).unwrap().into()
            })
            .collect();
        let schemas = all_schemas(shape, if shape.len() > 2 { 2 } else { 4 });
        for schema in schemas
            .iter()
            .filter(|s| s.assignment() == Assignment::Objects)
        {
            let blocks = all_blocks(schema);
            of_memory
                .iter()
                .for_each(|memory| check_stretches(memory, &blocks));
        }
    }
}

/// Makes schemas of larger arrays.
fn disks(shape: Vec<u64>) -> impl Strategy<Value = Parts> {
    let dims = shape.len();
    let split = prop_oneof![
        Just(None),
        (0u64..100).prop_map(|max| Some(Ok(max))),
        vec(1u64..4, dims).prop_map(|counts| Some(Err(counts))),
    ];
    let orders = select(vec![Order::RowMajor, Order::ColumnMajor]);
    let assignments = select(vec![Assignment::Objects, Assignment::Blocks]);
    let flat = any::<bool>();
    let width = select(vec![1u64, 2, 3, 4, 8, 12, 16]);
    (
        vec(1u64..7, dims),
        any::<bool>(),
        split,
        orders,
        assignments,
        flat,
        width,
    )
        .prop_map(
            move |(part, padded, split, order, assignment, flat, width)| {
                let (chunk, split) = match split {
                    None => (part, Split::Whole),
                    Some(Ok(max)) if flat => (
                        shape.iter().map(|n| (*n).max(1)).collect(),
                        Split::Contiguous(max),
                    ),
                    Some(Ok(max)) => (part, Split::Contiguous(max)),
                    Some(Err(counts)) => (
                        part.iter().zip(counts).map(|(p, n)| p * n).collect(),
                        Split::Inner(part),
                    ),
                };
                let shape = shape.clone();
                Parts {
                    shape,
                    width,
                    chunk,
                    padded,
                    order,
                    split,
                    assignment,
                }
            },
        )
}

/// Makes schemas whose chunks have extents of their own.
fn rectilinear(shape: Vec<u64>) -> impl Strategy<Value = DiskSchema> {
    let part = prop_oneof![Just(vec![1; shape.len()]), vec(1u64..4, shape.len())];
    let width = select(vec![1u64, 2, 3, 4, 8, 12, 16]);
    part.prop_flat_map(move |part| {
        let shape = shape.clone();
        let splits = prop_oneof![
            Just(Split::Whole),
            Just(Split::Inner(part.clone())),
            (0u64..100).prop_map(Split::Contiguous),
        ];
        (grids(&shape, &part), splits, any::<bool>(), width.clone()).prop_map(
            move |(edges, split, padded, width)| {
                let schema = DiskSchema::rectilinear(&shape, width, &edges).unwrap();
                let schema = schema.split(split).unwrap();
                match padded {
                    true => schema,
                    false => schema.unpadded(),
                }
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn numbers_agree_with_the_lists(
        (parts, region) in shapes().prop_flat_map(|shape| {
            let region = regions(&shape);
            (disks(shape), region)
        }),
        count in 1usize..9,
    ) {
        let schema = parts.schema();
        let blocks = all_blocks(&schema);
        check_numbers(&schema, &blocks);
        check_servers(&schema, &blocks, count);
        check_conforming(&schema, &blocks, count);
        check_region(&schema, &blocks, &region);
    }

    #[test]
    fn numbers_agree_with_the_lists_of_rectilinear_grids(
        (schema, region) in shapes().prop_flat_map(|shape| {
            let region = regions(&shape);
            (rectilinear(shape), region)
        }),
        count in 1usize..9,
    ) {
        let blocks = all_blocks(&schema);
        check_numbers(&schema, &blocks);
        check_servers(&schema, &blocks, count);
        check_conforming(&schema, &blocks, count);
        check_region(&schema, &blocks, &region);
    }

    #[test]
    fn windows_of_rectilinear_grids_lie_where_the_whole_lies(
        schema in shapes().prop_flat_map(rectilinear),
        (start, end) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        count in 1usize..9,
    ) {
        let first = schema.edges().into_iter().next();
        prop_assume!(first.is_some_and(|edges| edges.extent().is_some()));
        let rows = schema.shape()[0] as usize + 1;
        let (start, end) = (start.index(rows) as u64, end.index(rows) as u64);
        check_window(&schema, start.min(end)..start.max(end), count);
    }

    #[test]
    fn windows_lie_where_the_whole_lies(
        mut parts in shapes().prop_flat_map(disks),
        (start, end) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        count in 1usize..9,
    ) {
        prop_assume!(!parts.shape.is_empty());
        (parts.order, parts.assignment) = (Order::RowMajor, Assignment::Objects);
        let rows = parts.shape[0] as usize + 1;
        let (start, end) = (start.index(rows) as u64, end.index(rows) as u64);
        check_window(&parts.schema(), start.min(end)..start.max(end), count);
    }

    #[test]
    fn stretches_are_the_longest_boxes_without_gaps(
        (parts, memory) in shapes().prop_flat_map(|shape| {
            let memory = schemas(shape.clone());
            (disks(shape), memory)
        }),
    ) {
        check_stretches(&memory, &all_blocks(&parts.schema()));
    }

    #[test]
    fn replicated_arrays_are_held_by_all(
        (shape, region) in shapes().prop_flat_map(|shape| {
            let region = regions(&shape);
            (Just(shape), region)
        }),
        ranks in 0usize..5,
    ) {
        let memory = MemorySchema::from(Replicated::new(&shape, ranks));
        prop_assert!(memory.is_shared());
        prop_assert_eq!((memory.shape(), memory.ranks()), (shape.as_slice(), ranks));
        let all = if region.is_empty() { 0 } else { ranks };
        prop_assert_eq!(memory.touching(&region), (0..all).collect::<Vec<usize>>());
        for rank in 0..ranks + 2 {
            let share = memory.share(rank);
            let elements = if rank < ranks { shape.iter().product() } else { 0 };
            prop_assert_eq!(share.elements(), elements);
            let piece = share.intersect(&region);
            prop_assert_eq!(piece.is_some(), rank < all);
            if let Some(piece) = piece {
                prop_assert_eq!(piece.memory_box(), region.clone());
            }
        }
    }
}

#[test]
fn only_replicated_arrays_are_shared() {
    let distribution = Distribution::new(&[4], &"BLOCK".parse().unwrap(), &[2]).unwrap();
    assert!(!MemorySchema::from(distribution).is_shared());
    let boxes = penstock_layout::Boxes::new(&[4], vec![Region::whole(&[4])]).unwrap();
    assert!(!MemorySchema::from(boxes).is_shared());
    let replicated = Replicated::new(&[4, 0], 3);
    assert_eq!(
        replicated.touching(&Region::new(&[0, 0], &[4, 9])),
        [0usize; 0]
    );
    assert_eq!(
        Replicated::new(&[4], 3).touching(&Region::new(&[4], &[1])),
        [0usize; 0]
    );
}

#[test]
fn replicated_arrays_from_outside() {
    let fields = vec![
        ("shape", Value::Numbers(vec![4, 0])),
        ("ranks", Value::Number(3)),
    ];
    assert_eq!(from_fields(fields.clone()), Ok(Replicated::new(&[4, 0], 3)));
    let unknown = [fields, vec![("halo", Value::Number(1))]].concat();
    assert!(from_fields::<Replicated>(unknown).is_err());
}

/// Checks the drawing at the head of `file_order`.
#[test]
fn file_order_as_drawn() {
    let mut parts = Parts {
        shape: vec![12],
        width: 4,
        chunk: vec![6],
        padded: true,
        order: Order::RowMajor,
        split: Split::Contiguous(8),
        assignment: Assignment::Objects,
    };
    #[rustfmt::skip]
    let table = [
        (Assignment::Objects, [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 1]),
        (Assignment::Blocks,  [0, 1, 0, 0, 1, 0], [0, 0, 1, 2, 1, 3], [0, 1, 1, 0, 1, 1]),
    ];
    for (assignment, servers, slots, ranks) in table {
        parts.assignment = assignment;
        let schema = parts.schema();
        let blocks = all_blocks(&schema);
        assert!(blocks.iter().map(|b| schema.server_of(b, 2)).eq(servers));
        assert!(blocks.iter().map(|b| schema.slot(b, 2)).eq(slots));
        let of_rank = |b: &Block| (0..2).position(|r| schema.conforming(r, 2).any(|c| c == *b));
        assert!(blocks.iter().map(|b| of_rank(b).unwrap()).eq(ranks));
    }
}

/// Checks the examples at the head of `stretch`.
#[test]
fn stretches_as_drawn() {
    let of = |columns: u64, start: [u64; 2], extents: [u64; 2]| -> Vec<(u64, Vec<u64>)> {
        let schema = DiskSchema::chunked(&[4, columns], 8, &[4, 6]).unwrap();
        let block = schema.block_at(0, 0).unwrap();
        let stretches = Share::of_box(&Region::new(&start, &extents)).stretches(&block);
        stretches
            .map(|stretch| (stretch.offset, stretch.region.shape))
            .collect()
    };
    assert_eq!(of(6, [1, 0], [2, 6]), [(6, vec![2, 6])]);
    assert_eq!(
        of(6, [0, 2], [4, 3]),
        [2, 8, 14, 20].map(|offset| (offset, vec![1, 3]))
    );
    assert_eq!(
        of(5, [1, 0], [2, 5]),
        [6, 12].map(|offset| (offset, vec![1, 5]))
    );
}

/// Checks the drawing of chunks with extents of their own at the head of `disk`.
#[test]
fn rectilinear_as_drawn() {
    let edges = [Edges::Listed(vec![2, 3]), Edges::Listed(vec![3, 1, 2])];
    let schema = DiskSchema::rectilinear(&[5, 6], 8, &edges).unwrap();
    let object = |row, column| {
        let element = Region::new(&[row, column], &[1, 1]);
        schema.blocks_in(&element).next().unwrap().object
    };
    for row in 0..5 {
        let below = if row < 2 { 0 } else { 3 };
        let objects = (0..6).map(|column| object(row, column) - below);
        assert!(objects.eq([0, 0, 0, 1, 2, 2]));
    }
}

/// A file of 2^40 elements and 2^30 blocks or more gives a block without passing the others.
#[test]
fn phantom_file() {
    let schema = DiskSchema::flat(&[1 << 20, 1 << 20], 8, Order::RowMajor, 8192).unwrap();
    let element = [(1 << 20) - 1, (1 << 20) - 5];
    let found: Vec<Block> = schema.blocks_in(&Region::new(&element, &[1, 1])).collect();
    let number = linear(schema.shape(), &element) / 1024;
    assert_eq!(
        found.iter().map(|b| b.index).collect::<Vec<u64>>(),
        [number]
    );
    assert_eq!(schema.block_at(0, number).as_ref(), Some(&found[0]));
    assert_eq!(schema.successor(&found[0], 16), None);
    let before = schema.block_at(0, number - 16).unwrap();
    assert_eq!(schema.successor(&before, 16).as_ref(), Some(&found[0]));
    assert_eq!(
        (schema.server_of(&found[0], 16), schema.slot(&found[0], 16)),
        (15, (1 << 26) - 1)
    );
    let first = schema.conforming(3, 7).next().unwrap();
    assert_eq!(first.index, 3 * (1 << 30) / 7);
    // A column of 2^20 rows has as many blocks; the first ones cost nothing more.
    let column = schema.blocks_in(&Region::new(&[0, 5], &[1 << 20, 1]));
    assert!(column.take(3).map(|b| b.index).eq([0, 1024, 2048]));
    // Chunks of 2^5 x 2^5 make 2^30 objects.
    let schema = DiskSchema::chunked(&[1 << 20, 1 << 20], 8, &[32, 32]).unwrap();
    let found: Vec<u64> = schema
        .blocks_in(&Region::new(&[31, 63], &[2, 2]))
        .map(|b| b.object)
        .collect();
    assert_eq!(found, [1, 2, (1 << 15) + 1, (1 << 15) + 2]);
    let last = schema.conforming((1 << 30) - 1, 1 << 30).last().unwrap();
    assert_eq!(
        (last.object, schema.slot(&last, 16)),
        ((1 << 30) - 1, (1 << 26) - 1)
    );
    assert_eq!(schema.successor(&last, 16), None);
}

/// A share of 2^40 elements in one block gives its first stretches at once.
#[test]
fn phantom_stretches() {
    let n = 1u64 << 20;
    let schema = DiskSchema::chunked(&[n, n], 8, &[n, n]).unwrap();
    let block = schema.block_at(0, 0).unwrap();
    let memory = Distribution::new(&[n, n], &"CYCLIC,CYCLIC(4)".parse().unwrap(), &[2, 2]).unwrap();
    let mut stretches = memory.share(3).stretches(&block);
    let nth = stretches.nth(n as usize / 8).unwrap();
    assert_eq!(
        (nth.region, nth.offset),
        (Region::new(&[3, 4], &[1, 4]), 3 * n + 4)
    );
    let all = Replicated::new(&[n, n], 1)
        .share(0)
        .stretches(&block)
        .collect::<Vec<_>>();
    assert_eq!(
        all,
        [Stretch {
            region: Region::whole(&[n, n]),
            offset: 0
        }]
    );
}

/// A chunk may be far larger than its array: this one has 2^36 blocks.
#[test]
fn blocks_of_padding_alone_are_not_looked_at() {
    for split in [Split::Inner(vec![4, 8]), Split::Contiguous(256)] {
        let schema = DiskSchema::chunked(&[12, 8], 8, &[1 << 38, 8]).unwrap();
        let schema = schema.split(split).unwrap();
        let held = |blocks: Vec<Block>| -> (usize, u64) {
            let elements = blocks.iter().map(|block| block.region.elements());
            (blocks.len(), elements.sum())
        };
        assert_eq!(held(schema.blocks(0, 2).collect()), (3, 96));
        assert_eq!(held(schema.blocks(1, 2).collect()), (0, 0));
        assert_eq!(held(schema.conforming(0, 1).collect()), (3, 96));
        let last = schema.blocks(0, 2).last().unwrap();
        assert_eq!(schema.successor(&last, 2), None);
    }
}
