//! Lists against the naive model: every element one by one.

use std::collections::HashSet;

use crate::copying::run;
use crate::model::disk::{Parts, all_schemas, listed_schemas};
use crate::model::strategies::grids;
use crate::model::{element, linear};
use penstock_layout::{
    Assignment, Block, Direction, DiskSchema, Holding, List, ListPiece, Order, Region, Split,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const FILL: u8 = 255;
const WIDTHS: [usize; 7] = [1, 2, 3, 4, 8, 12, 16];

/// The elements of a series, one by one.
fn elements_of(start: u64, length: u64, loops: &[(u64, i64)]) -> Vec<u64> {
    let mut starts = vec![start as i64];
    for &(count, stride) in loops {
        let turns = starts
            .iter()
            .flat_map(|start| (0..count as i64).map(move |turn| start + turn * stride));
        starts = turns.collect();
    }
    let runs = starts
        .iter()
        .flat_map(|&start| start..start + length as i64);
    runs.map(|place| place as u64).collect()
}

fn flat(list: &List) -> Vec<u64> {
    list.iter()
        .flat_map(|(start, length)| start..start + length)
        .collect()
}

fn list_of(elements: &[u64]) -> List {
    List::runs(elements, &vec![1; elements.len()]).unwrap()
}

fn has_none_twice(elements: &[u64]) -> bool {
    elements.iter().collect::<HashSet<_>>().len() == elements.len()
}

/// The array's element at each place of a block's buffer.
fn array_element(schema: &DiskSchema, block: &Block, place: u64) -> u64 {
    let dims = schema.shape().len();
    let mut by_stride: Vec<usize> = (0..dims).filter(|&d| block.extents[d] > 1).collect();
    by_stride.sort_by_key(|&d| std::cmp::Reverse(block.strides[d]));
    let (mut rest, mut index) = (place, block.region.start.clone());
    for d in by_stride {
        index[d] += rest / block.strides[d];
        rest %= block.strides[d];
    }
    let all = Region::whole(schema.shape());
    assert!(
        all.contains(&Region::new(&index, &vec![1; dims])),
        "{block:?} {place}"
    );
    linear(schema.shape(), &index)
}

/// The blocks with their elements: series may be cut in another way in another search.
fn by_places(pieces: impl Iterator<Item = (Block, ListPiece)>) -> Vec<(Block, Vec<(u64, u64)>)> {
    let sorted = |piece: ListPiece| {
        let mut all = places(&piece);
        all.sort_unstable();
        all
    };
    pieces
        .map(|(block, piece)| (block, sorted(piece)))
        .collect()
}

/// The elements of a piece: places in the buffer and in memory.
fn places(piece: &ListPiece) -> Vec<(u64, u64)> {
    let runs = piece.iter();
    runs.flat_map(|(buffer, memory, length)| (0..length).map(move |n| (buffer + n, memory + n)))
        .collect()
}

/// Checks that the pieces are the pairs of both lists, each once, in the order of each server.
fn check_pieces(schema: &DiskSchema, file: &[u64], memory: &[u64], holding: &Holding) {
    let what = || format!("{schema:?}\n{file:?}\n{memory:?}");
    let pieces: Vec<(Block, ListPiece)> = holding.pieces(schema).collect();
    let mut expected: Vec<(u64, u64)> = file.iter().copied().zip(memory.iter().copied()).collect();
    let mut found = Vec::new();
    for (block, piece) in &pieces {
        assert!(!piece.is_empty(), "{}", what());
        let buffer = block.bytes / schema.width();
        let memory = memory.iter().max().unwrap() + 1;
        assert!(
            piece.is_in(memory.max(file.len() as u64), buffer),
            "{}",
            what()
        );
        assert!(
            !piece.is_in(piece.memory_bounds().unwrap().end - 1, u64::MAX),
            "{}",
            what()
        );
        assert!(
            !piece.is_in(u64::MAX, piece.buffer_bounds().unwrap().end - 1),
            "{}",
            what()
        );
        let all = places(piece);
        assert_eq!(all.len() as u64, piece.elements());
        let array = |(place, memory): (u64, u64)| (array_element(schema, block, place), memory);
        found.extend(all.into_iter().map(array));
    }
    expected.sort_unstable();
    found.sort_unstable();
    assert!(found == expected, "{}\n{found:?}", what());
    let number = |(block, _): &(Block, ListPiece)| (block.object, block.index);
    assert!(
        pieces.is_sorted_by(|one, other| number(one) < number(other)),
        "{}",
        what()
    );
    for servers in [1, 2, 3, 7] {
        for server in 0..servers {
            let own = pieces
                .iter()
                .filter(|(block, _)| schema.server_of(block, servers) == server);
            let own = by_places(own.cloned());
            let search = || holding.pieces(schema).of_server(server, servers);
            assert!(by_places(search()) == own, "{} {server} {servers}", what());
            // In batches of two blocks.
            let (mut next, mut batches) = ((0, 0), Vec::new());
            loop {
                let batch = by_places(search().in_range(next..(u64::MAX, 0)).take(2));
                let Some((last, _)) = batch.last() else { break };
                let end = (last.object, last.index + 1);
                let again = by_places(search().in_range(next..end));
                assert!(again == batch, "{} {server} {servers}", what());
                next = end;
                batches.extend(batch);
            }
            assert!(batches == own, "{} {server} {servers}", what());
        }
    }
}

/// Checks that all pieces gather and scatter as a loop over elements does, on both ways.
fn check_copies(schema: &DiskSchema, memory: &[u64], holding: &Holding, width: usize) {
    let elements = memory.iter().max().map_or(0, |last| last + 1);
    let bytes_of = |n: u64| n as usize * width..(n as usize + 1) * width;
    let held: Vec<u8> = (0..elements).flat_map(|n| element(n, width)).collect();
    let (readable, writable) = (
        holding.is_disjoint_in_memory(),
        holding.is_disjoint_in_file(),
    );
    for (block, piece) in holding.pieces(schema) {
        let encoded = postcard::to_stdvec(&piece).unwrap();
        assert_eq!(postcard::from_bytes::<ListPiece>(&encoded).unwrap(), piece);
        let room = (block.bytes / schema.width()) as usize * width;
        let step = width as isize;
        let parcel_bytes = piece.elements() as usize * width;
        if writable {
            let mut expected = vec![FILL; room];
            for (place, memory) in places(&piece) {
                expected[bytes_of(place)].copy_from_slice(&held[bytes_of(memory)]);
            }
            let mut buffer = vec![FILL; room];
            piece.gather(width, &held, &mut buffer);
            assert!(buffer == expected, "{schema:?} {piece:?}");
            let mut parcel = vec![FILL; parcel_bytes];
            run(
                piece.packing(width, step, Direction::Gather),
                &held,
                &mut parcel,
            );
            buffer.fill(FILL);
            run(
                piece.unpacking(width, Direction::Gather),
                &parcel,
                &mut buffer,
            );
            assert!(buffer == expected, "{schema:?} {piece:?}");
            let apart: Vec<u8> = held
                .chunks(width)
                .flat_map(|one| [one, one].concat())
                .collect();
            buffer.fill(FILL);
            run(
                piece.copies(width, 2 * step, Direction::Gather),
                &apart,
                &mut buffer,
            );
            assert!(buffer == expected, "{schema:?} {piece:?}");
        }
        if readable {
            let stored: Vec<u8> = (0..room as u64).map(|n| (n * 7 % 251) as u8).collect();
            let mut expected = vec![FILL; held.len()];
            for (place, memory) in places(&piece) {
                expected[bytes_of(memory)].copy_from_slice(&stored[bytes_of(place)]);
            }
            let mut target = vec![FILL; held.len()];
            piece.scatter(width, &stored, &mut target);
            assert!(target == expected, "{schema:?} {piece:?}");
            let mut parcel = vec![FILL; parcel_bytes];
            run(
                piece.unpacking(width, Direction::Scatter),
                &stored,
                &mut parcel,
            );
            target.fill(FILL);
            run(
                piece.packing(width, step, Direction::Scatter),
                &parcel,
                &mut target,
            );
            assert!(target == expected, "{schema:?} {piece:?}");
        }
    }
}

#[test]
fn small_cases() {
    let shapes: [&[u64]; 7] = [&[], &[0, 3], &[7], &[1, 6], &[3, 4], &[4, 3], &[2, 3, 2]];
    for shape in shapes {
        let extent: u64 = shape.iter().product();
        let mut lists = Vec::new();
        for length in 1..=3 {
            for stride in [-3, -1, 1, 2, 4, 5] {
                for count in [1, 2, 3, 5] {
                    for start in 0..extent {
                        lists.push((start, length, vec![(count, stride)]));
                    }
                }
            }
        }
        lists.extend((0..extent).map(|start| (start, extent - start, vec![])));
        lists.push((0, 1, vec![(2, 6), (2, 1), (3, 2)]));
        let is_inside = |(start, length, loops): &(u64, u64, Vec<(u64, i64)>)| {
            let reach = |limit: fn(i64) -> i64| -> i64 {
                let last = loops
                    .iter()
                    .map(|&(n, stride)| limit((n as i64 - 1) * stride));
                last.sum()
            };
            let (start, end) = (*start as i64, (start + length) as i64);
            start + reach(|n| n.min(0)) >= 0 && end + reach(|n| n.max(0)) <= extent as i64
        };
        lists.retain(is_inside);
        let mut schemas = all_schemas(shape, if shape.len() == 3 { 2 } else { 3 });
        schemas.extend(listed_schemas(shape));
        for (nth, (start, length, loops)) in lists.iter().enumerate() {
            let list = List::strided(*start, *length, loops).unwrap();
            let elements = elements_of(*start, *length, loops);
            assert_eq!(flat(&list), elements);
            list.check(extent).unwrap();
            let memory: Vec<u64> = match nth % 3 {
                0 => (0..elements.len() as u64).collect(),
                1 => (0..elements.len() as u64).rev().map(|n| 2 * n).collect(),
                _ => (0..elements.len() as u64).map(|n| n + n / 2).collect(),
            };
            let holding = Holding::new(&list, &list_of(&memory)).unwrap();
            assert_eq!(holding.elements(), elements.len() as u64);
            // Each list with some of the schemas, so that all schemas have a turn.
            let some = schemas.iter().skip(nth % 11).step_by(11);
            for schema in some {
                check_pieces(schema, &elements, &memory, &holding);
                check_copies(schema, &memory, &holding, 3);
            }
        }
    }
}

/// A part of a list.
#[derive(Debug, Clone)]
enum Part {
    Runs(Vec<(u64, u64)>),
    Strided(u64, u64, Vec<(u64, i64)>),
}

impl Part {
    fn list(&self) -> List {
        match self {
            Self::Runs(runs) => {
                let (offsets, lengths): (Vec<_>, Vec<_>) = runs.iter().copied().unzip();
                List::runs(&offsets, &lengths).unwrap()
            }
            Self::Strided(start, length, loops) => List::strided(*start, *length, loops).unwrap(),
        }
    }

    fn elements(&self) -> Vec<u64> {
        match self {
            Self::Runs(runs) => runs.iter().flat_map(|&(at, n)| at..at + n).collect(),
            Self::Strided(start, length, loops) => elements_of(*start, *length, loops),
        }
    }
}

/// Makes lists of parts inside `0 .. extent`.
fn lists(extent: u64) -> impl Strategy<Value = Vec<Part>> {
    let run = (0..=extent, 0..9u64).prop_map(move |(at, n)| (at, n.min(extent - at)));
    let runs = vec(run, 0..12).prop_map(Part::Runs);
    let regular =
        (0..=extent, 1..5u64, 0..9i64, 0..20usize).prop_map(move |(at, n, gap, count)| {
            let stride = n as i64 + gap - 2;
            let places = (0..count as i64).map(|turn| at as i64 + turn * stride);
            let runs = places.filter(|&at| at >= 0 && at + n as i64 <= extent as i64);
            Part::Runs(runs.map(|at| (at as u64, n)).collect())
        });
    let loops = vec((0..7u64, -40..60i64), 0..4);
    let strided = (0..=extent, 0..6u64, loops).prop_map(move |(start, length, loops)| {
        let length = length.min(extent - start);
        let (mut low, mut end) = (start as i64, (start + length) as i64);
        let mut inside = Vec::new();
        for (count, stride) in loops {
            let last = (count as i64 - 1).max(0) * stride;
            if low + last.min(0) >= 0 && end + last.max(0) <= extent as i64 {
                (low, end) = (low + last.min(0), end + last.max(0));
                inside.push((count, stride));
            }
        }
        Part::Strided(start, length, inside)
    });
    vec(prop_oneof![2 => runs, 2 => regular, 4 => strided], 0..4)
}

/// Makes the places of `count` elements in a memory.
fn memories(count: u64) -> impl Strategy<Value = Vec<u64>> {
    let dense = (0..5u64).prop_map(move |first| (first..first + count).collect::<Vec<_>>());
    let strided = (1..5u64, 1..5u64, any::<bool>()).prop_map(move |(run, gap, is_backward)| {
        let places = (0..count).map(|n| n / run * (run + gap) + n % run);
        let mut places: Vec<u64> = places.collect();
        if is_backward {
            places.reverse();
        }
        places
    });
    let mixed = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
    let overlapping = (1..7u64).prop_map(move |all| (0..count).map(|n| n % all).collect());
    prop_oneof![4 => dense, 4 => strided, 2 => mixed, 1 => overlapping]
}

/// Makes schemas of every kind, windows too.
fn schemas(shape: Vec<u64>) -> impl Strategy<Value = DiskSchema> {
    let dims = shape.len();
    let split = prop_oneof![
        Just(None),
        (0u64..100).prop_map(|max| Some(Ok(max))),
        vec(1u64..4, dims).prop_map(|counts| Some(Err(counts))),
    ];
    let chunk: Vec<_> = shape.iter().map(|&n| 1..=n.max(1) + 2).collect();
    let order = select(vec![Order::RowMajor, Order::ColumnMajor]);
    let chunked = (chunk, any::<[bool; 2]>(), order.clone(), split).prop_map({
        let shape = shape.clone();
        move |(mut chunk, [padded, by_object], order, split)| {
            let split = match split {
                None => Split::Whole,
                Some(Ok(max)) => Split::Contiguous(max),
                Some(Err(counts)) => {
                    let inner = chunk
                        .iter()
                        .zip(&counts)
                        .map(|(n, count)| n.div_ceil(*count));
                    let inner: Vec<u64> = inner.collect();
                    chunk = inner
                        .iter()
                        .zip(&counts)
                        .map(|(n, count)| n * count)
                        .collect();
                    Split::Inner(inner)
                }
            };
            let assignment = match by_object {
                true => Assignment::Objects,
                false => Assignment::Blocks,
            };
            let shape = shape.clone();
            Parts {
                shape,
                width: 3,
                chunk,
                padded,
                order,
                split,
                assignment,
            }
            .schema()
        }
    });
    let flat = (order, 0u64..100).prop_map({
        let shape = shape.clone();
        move |(order, max)| DiskSchema::flat(&shape, 3, order, max).unwrap()
    });
    let listed = {
        let (shape, part) = (shape.clone(), vec![1; dims]);
        let grid = grids(&shape, &part);
        (grid, 0u64..100, any::<bool>()).prop_map(move |(edges, max, padded)| {
            let schema = DiskSchema::rectilinear(&shape, 3, &edges).unwrap();
            let schema = if padded { schema } else { schema.unpadded() };
            let split = match max {
                0..50 => Split::Whole,
                _ => Split::Contiguous(max),
            };
            schema.split(split).unwrap()
        })
    };
    let chunk: Vec<_> = shape.iter().map(|&n| 1..=n.max(1) + 2).collect();
    let window = (chunk, 0..9u64, 0u64..100).prop_map(move |(chunk, first, max)| {
        let mut taller = shape.clone();
        taller[0] += first + 3;
        let whole = DiskSchema::chunked(&taller, 3, &chunk).unwrap();
        let whole = whole.split(Split::Contiguous(max)).unwrap();
        whole.window(first..first + shape[0])
    });
    prop_oneof![3 => chunked, 2 => flat, 1 => window, 2 => listed]
}

fn shapes() -> impl Strategy<Value = Vec<u64>> {
    let extent = prop_oneof![1 => Just(1u64), 12 => 2u64..12, 4 => select(vec![7u64, 13, 29])];
    vec(extent, 1..=4).prop_filter("few enough elements", |shape| {
        shape.iter().product::<u64>() <= 2000
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1200))]

    #[test]
    fn pieces_are_exactly_the_pairs_of_both_lists(
        (schema, file, elements, memory) in shapes().prop_flat_map(|shape| {
            (schemas(shape.clone()), lists(shape.iter().product()))
        }).prop_flat_map(|(schema, parts)| {
            let file = List::concat(parts.iter().map(Part::list)).unwrap();
            let elements: Vec<u64> = parts.iter().flat_map(Part::elements).collect();
            let memory = memories(elements.len() as u64);
            (Just(schema), Just(file), Just(elements), memory)
        }),
        width in select(&WIDTHS[..]),
    ) {
        let memory_list = list_of(&memory);
        for (list, elements) in [(&file, &elements), (&memory_list, &memory)] {
            prop_assert_eq!(&flat(list), elements);
            prop_assert_eq!(list.elements(), elements.len() as u64);
            prop_assert_eq!(list.is_empty(), elements.is_empty());
            let bounds = elements.iter().min().zip(elements.iter().max());
            prop_assert_eq!(list.bounds(), bounds.map(|(low, last)| *low..last + 1));
            prop_assert_eq!(list.is_disjoint(), has_none_twice(elements));
            let encoded = postcard::to_stdvec(list).unwrap();
            prop_assert_eq!(&postcard::from_bytes::<List>(&encoded).unwrap(), list);
            let end = list.bounds().map_or(0, |bounds| bounds.end);
            prop_assert!(list.check(end).is_ok());
            prop_assert!(end == 0 || list.check(end - 1).is_err());
        }
        let holding = Holding::new(&file, &memory_list).unwrap();
        prop_assert_eq!(holding.elements(), elements.len() as u64);
        prop_assert_eq!(holding.bytes(3), 3 * elements.len() as u64);
        prop_assert_eq!(holding.file_bounds(), file.bounds());
        prop_assert_eq!(holding.memory_bounds(), memory_list.bounds());
        prop_assert_eq!(holding.is_disjoint_in_file(), has_none_twice(&elements));
        prop_assert_eq!(holding.is_disjoint_in_memory(), has_none_twice(&memory));
        check_pieces(&schema, &elements, &memory, &holding);
        check_copies(&schema, &memory, &holding, width);
    }
}
