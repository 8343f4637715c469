//! Sieves and catches together, without machines between them, against every element by itself.

use std::collections::BTreeMap;

use penstock_engine::{Addressee, Catch, Delivery, portions};
use penstock_layout::{Block, Boxes, DiskSchema, Distribution, MemorySchema, Order, Region};

use super::count::CountCatch;
use super::reduce::{How, ReduceCatch, Reduction};
use super::runs::indices_of;
use super::select::SelectCatch;
use super::{Recipients, SieveOrder, Work, heard};
use crate::dtype::ElementType;

const SHAPE: [u64; 3] = [4, 5, 6];

/// The number of elements.
const ELEMENTS: u64 = 4 * 5 * 6;

/// The element with this number: eighths, so that sums are exact, with one that is no number.
fn element(number: u64) -> f64 {
    match number {
        77 => f64::NAN,
        number => (number * 37 % 101) as f64 / 8.0 - 5.0,
    }
}

fn indices(number: u64) -> Vec<u64> {
    let mut indices = vec![0; SHAPE.len()];
    indices_of(&SHAPE, number, &mut indices);
    indices
}

fn order(work: Work) -> SieveOrder {
    SieveOrder {
        name: "u".to_string(),
        element: ElementType::F8,
        shape: SHAPE.to_vec(),
        dims: None,
        ruled_out: Vec::new(),
        work,
    }
}

/// The bytes of a block.
fn data(block: &Block) -> Vec<u8> {
    let mut data = vec![0; usize::try_from(block.bytes).unwrap()];
    for number in 0..ELEMENTS {
        let at = indices(number);
        let one = Region::new(&at, &[1, 1, 1]);
        if block.region.contains(&one) {
            let place = at.iter().zip(&block.region.start).zip(&block.strides);
            let place: u64 = place.map(|((at, start), by)| (at - start) * by).sum();
            let place = usize::try_from(place).unwrap() * 8;
            data[place..place + 8].copy_from_slice(&element(number).to_ne_bytes());
        }
    }
    data
}

/// Gives a delivery to its catches, in pieces.
fn give(catches: &[&dyn Catch], server: usize, delivery: &Delivery, piece: usize) {
    for (rank, catch) in catches.iter().enumerate() {
        if matches!(delivery.to, Addressee::All) || delivery.to == Addressee::Rank(rank) {
            for bytes in delivery.bytes.chunks(piece) {
                catch.take(server, bytes).unwrap();
            }
        }
    }
}

/// An array as it is stored: its blocks, with their bytes.
struct Stored {
    disk: DiskSchema,
    blocks: Vec<(Block, Vec<u8>)>,
}

impl Stored {
    fn new(disk: DiskSchema) -> Self {
        let blocks = disk.blocks(0, 1).map(|block| {
            let data = data(&block);
            (block, data)
        });
        Self {
            blocks: blocks.collect(),
            disk,
        }
    }

    /// Sifts all blocks on so many servers.
    fn sift(
        &self,
        order: &SieveOrder,
        memory: &MemorySchema,
        servers: usize,
        catches: &[&dyn Catch],
    ) {
        let words = order.words().unwrap();
        for server in 0..servers {
            let sieve = heard(&words).unwrap();
            for (block, data) in &self.blocks {
                if self.disk.server_of(block, servers) == server {
                    let all: Vec<_> = portions(memory, block).collect();
                    for delivery in sieve.sift(block, &all, data).unwrap() {
                        give(catches, server, &delivery, 1 + server);
                    }
                }
            }
            while let Some(delivery) = sieve.rest().unwrap() {
                give(catches, server, &delivery, 5);
            }
        }
    }
}

fn stored() -> Vec<Stored> {
    let disks = [
        DiskSchema::chunked(&SHAPE, 8, &[2, 2, 4]).unwrap(),
        DiskSchema::chunked(&SHAPE, 8, &SHAPE).unwrap(),
        DiskSchema::flat(&SHAPE, 8, Order::RowMajor, 100).unwrap(),
        DiskSchema::flat(&SHAPE, 8, Order::ColumnMajor, 136).unwrap(),
    ];
    disks.into_iter().map(Stored::new).collect()
}

#[test]
fn each_rank_gets_the_elements_that_it_holds_or_its_equal_part() {
    let dists = "BLOCK,CYCLIC,*".parse().unwrap();
    let memory = Distribution::new(&SHAPE, &dists, &[2, 2]).unwrap();
    let memory = MemorySchema::from(memory);
    let stored = stored();
    for (stored, servers) in stored.iter().flat_map(|one| [(one, 1), (one, 3)]) {
        for recipients in [Recipients::Holders, Recipients::Evenly] {
            let catch = || SelectCatch::new(&SHAPE, &ElementType::F8, servers);
            let catches = [catch(), catch(), catch(), catch()];
            let given: Vec<&dyn Catch> = catches.iter().map(|one| one as &dyn Catch).collect();
            let work = Work::Select {
                condition: "u > 0 and i1 % 2 == 0 or isnan(u)".to_string(),
                fields: None,
                recipients: recipients.clone(),
                ranks: 4,
            };
            stored.sift(&order(work), &memory, servers, &given);
            for (rank, catch) in catches.iter().enumerate() {
                let is_its_own = |number: u64| {
                    let one = Region::new(&indices(number), &[1, 1, 1]);
                    match recipients {
                        Recipients::Evenly => number * 4 / ELEMENTS == rank as u64,
                        _ => memory.share(rank).intersect(&one).is_some(),
                    }
                };
                let is_true = |number: u64| {
                    let value = element(number);
                    value > 0.0 && indices(number)[1].is_multiple_of(2) || value.is_nan()
                };
                let expected = (0..ELEMENTS).filter(|n| is_its_own(*n) && is_true(*n));
                let expected: Vec<u64> = expected.collect();
                let found = catch.take_result().unwrap();
                assert_eq!(found.places, expected, "{:?}, rank {rank}", stored.disk);
                let values = expected.iter().flat_map(|n| element(*n).to_ne_bytes());
                assert_eq!(found.values, values.collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn an_even_deal_of_counted_elements_gives_each_rank_as_many() {
    let dists = "BLOCK,CYCLIC,*".parse().unwrap();
    let memory = Distribution::new(&SHAPE, &dists, &[2, 2]).unwrap();
    let memory = MemorySchema::from(memory);
    let condition = "u > 2 or isnan(u)".to_string();
    let is_true = |number: &u64| element(*number) > 2.0 || element(*number).is_nan();
    let all: Vec<u64> = (0..ELEMENTS).filter(is_true).collect();
    let stored = stored();
    for (stored, servers) in stored.iter().flat_map(|one| [(one, 1), (one, 3)]) {
        for (parts, ranks) in [(1, 4), (7, 4), (120, 5), (1000, 150)] {
            let counts = CountCatch::new(&SHAPE, parts, servers);
            let count = Work::Count {
                condition: condition.clone(),
                parts,
            };
            stored.sift(&order(count), &memory, servers, &[&counts]);
            let dues = counts.counts().unwrap().dues(ranks);
            let work = Work::Select {
                condition: condition.clone(),
                fields: None,
                recipients: Recipients::Ranges(dues.iter().map(|due| due.places.clone()).collect()),
                ranks,
            };
            let catch = |due| SelectCatch::new(&SHAPE, &ElementType::F8, servers).with_due(due);
            let catches: Vec<SelectCatch> = dues.into_iter().map(catch).collect();
            let given: Vec<&dyn Catch> = catches.iter().map(|one| one as &dyn Catch).collect();
            stored.sift(&order(work), &memory, servers, &given);
            for (rank, catch) in catches.iter().enumerate() {
                catch.count().unwrap();
                let (start, end) = (all.len() * rank / ranks, all.len() * (rank + 1) / ranks);
                let found = catch.take_result().unwrap();
                assert_eq!(found.places, all[start..end], "rank {rank} of {ranks}");
            }
        }
    }
}

#[test]
fn words_of_no_ranks_or_parts_are_refused() {
    let condition = "True".to_string();
    let select = |recipients| Work::Select {
        condition: condition.clone(),
        fields: None,
        recipients,
        ranks: 0,
    };
    let count = Work::Count {
        condition: condition.clone(),
        parts: 0,
    };
    for work in [count, select(Recipients::Evenly)] {
        let words = order(work).words().unwrap();
        assert!(heard(&words).is_err());
    }
    let crossed = Recipients::Ranges(vec![5..9, 0..3]);
    assert!(heard(&order(select(crossed)).words().unwrap()).is_err());
}

/// The result of a reduction, from the elements of each cell.
fn naive(reduction: &Reduction) -> Vec<u8> {
    let mut cells: BTreeMap<Vec<u64>, Vec<f64>> = BTreeMap::new();
    for number in 0..ELEMENTS {
        let at = indices(number);
        if reduction.region.contains(&Region::new(&at, &[1, 1, 1])) {
            let cell = reduction.kept.iter().map(|dim| at[*dim]).collect();
            cells.entry(cell).or_default().push(element(number));
        }
    }
    let mut result = Vec::new();
    for elements in cells.into_values() {
        let has_nan = elements.iter().any(|value| value.is_nan());
        let or_nan = |value: f64| if has_nan { f64::NAN } else { value };
        let sum: f64 = elements.iter().sum();
        let least = elements.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = elements.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        match &reduction.how {
            How::Min => result.extend(or_nan(least).to_ne_bytes()),
            How::Max => result.extend(or_nan(greatest).to_ne_bytes()),
            How::Sum => result.extend(or_nan(sum).to_ne_bytes()),
            How::Mean => result.extend(or_nan(sum / elements.len() as f64).to_ne_bytes()),
            How::Count => {
                let count = elements.iter().filter(|value| !value.is_nan()).count();
                result.extend((count as u64).to_ne_bytes());
            }
            How::Histogram(edges) => {
                for bin in 0..edges.len() - 1 {
                    let is_last = bin == edges.len() - 2;
                    let is_in = |value: &&f64| {
                        let (low, high) = (edges[bin], edges[bin + 1]);
                        low <= **value && (**value < high || is_last && **value == high)
                    };
                    let count = elements.iter().filter(is_in).count();
                    result.extend((count as u64).to_ne_bytes());
                }
            }
        }
    }
    result
}

#[test]
fn reductions_are_those_of_each_cell_by_itself() {
    let hows = [
        How::Min,
        How::Max,
        How::Sum,
        How::Mean,
        How::Count,
        How::Histogram(vec![-5.0, -1.0, 0.0, 2.5, 7.5]),
    ];
    let kept: [&[usize]; 6] = [&[], &[0], &[2], &[0, 1], &[1, 2], &[0, 1, 2]];
    let regions = [
        Region::whole(&SHAPE),
        Region::new(&[1, 0, 2], &[3, 4, 3]),
        Region::new(&[3, 4, 5], &[1, 1, 1]),
    ];
    let stored = stored();
    for (how, region) in hows
        .iter()
        .flat_map(|how| regions.each_ref().map(|r| (how, r)))
    {
        for kept in kept {
            let reduction = Reduction {
                how: how.clone(),
                region: region.clone(),
                kept: kept.to_vec(),
                field: None,
            };
            let held = vec![vec![region.clone()]];
            let memory = Boxes::of_lists(&SHAPE, held, true).unwrap().into();
            let expected = naive(&reduction);
            for (stored, servers) in stored.iter().flat_map(|one| [(one, 1), (one, 3)]) {
                let new = || ReduceCatch::new(&reduction, (&SHAPE, &ElementType::F8), servers);
                let catches = [new().unwrap(), new().unwrap()];
                let given: Vec<&dyn Catch> = catches.iter().map(|one| one as &dyn Catch).collect();
                let work = Work::Reduce(reduction.clone());
                stored.sift(&order(work), &memory, servers, &given);
                for catch in &catches {
                    catch.count().unwrap();
                    assert_eq!(
                        catch.result(),
                        expected,
                        "{reduction:?} of {:?}",
                        stored.disk
                    );
                }
            }
        }
    }
}

#[test]
fn what_is_no_box_of_cells_is_refused() {
    let reduction = Reduction {
        how: How::Count,
        region: Region::whole(&SHAPE),
        kept: vec![0],
        field: None,
    };
    for (bytes, words) in [
        (vec![3, 3, 2, 1], "not in the result"),
        (vec![3, 0, 2, 1], "ends"),
        (vec![5, 0, 2, 1, 1, 1], "more folds"),
        (vec![0], "ends"),
    ] {
        let catch = ReduceCatch::new(&reduction, (&SHAPE, &ElementType::F8), 1).unwrap();
        let error = catch.take(0, &bytes).unwrap_err();
        assert!(error.cause.contains(words), "{bytes:?}: {error}");
    }
    let catch = ReduceCatch::new(&reduction, (&SHAPE, &ElementType::F8), 1).unwrap();
    catch.take(0, &[4, 0]).unwrap();
    assert!(catch.count().unwrap_err().cause.contains("within a box"));
    assert!(catch.take(1, &[]).is_err());
    let other = Reduction {
        kept: vec![3],
        ..reduction
    };
    assert!(ReduceCatch::new(&other, (&SHAPE, &ElementType::F8), 1).is_err());
}
