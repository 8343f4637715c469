//! All small cases against the naive model.

use crate::model::{Memory, element, indices, linear, owner, regions};
use penstock_layout::{Direction, Dist, Distribution, Dists, Region};

const FILL: u8 = 255;

/// Every distribution of one dimension over up to three mesh coordinates.
fn all_dists() -> Vec<(Dist, u64)> {
    let mut all = vec![(Dist::Whole, 1)];
    for coordinates in 1..=3 {
        for dist in [
            Dist::Block,
            Dist::Cyclic(1),
            Dist::Cyclic(2),
            Dist::Cyclic(3),
        ] {
            all.push((dist, coordinates));
        }
    }
    all
}

fn check(shape: &[u64], dists: &[(Dist, u64)], regions: &[Region], width: usize) {
    let mesh: Vec<u64> = dists
        .iter()
        .filter(|(dist, _)| *dist != Dist::Whole)
        .map(|(_, n)| *n)
        .collect();
    let memory = Distribution::new(
        shape,
        &Dists(dists.iter().map(|(dist, _)| *dist).collect()),
        &mesh,
    )
    .unwrap();
    // Each rank holds numbers of elements, each with its place in the rank's memory.
    let mut held: Vec<Vec<(Vec<u64>, Vec<u64>)>> = vec![Vec::new(); memory.ranks()];
    for index in indices(&Region::whole(shape)) {
        let (rank, local) = owner(&memory, &index);
        held[rank].push((index, local));
    }
    let mut memories = Vec::new();
    for (rank, held) in held.iter().enumerate() {
        let share = memory.share(rank);
        assert_eq!(
            share.elements(),
            held.len() as u64,
            "{memory:?} rank {rank}"
        );
        let mut bytes = Memory::dense(&share.extents(), width, FILL);
        for (index, local) in held {
            for d in 0..shape.len() {
                assert_eq!(
                    share.dims()[d].index(local[d]),
                    index[d],
                    "{memory:?} rank {rank}"
                );
            }
            bytes.put(local, &element(linear(shape, index), width));
        }
        memories.push(bytes);
    }
    for region in regions {
        let touching: Vec<usize> = (0..memory.ranks())
            .filter(|&rank| held[rank].iter().any(|(index, _)| inside(region, index)))
            .collect();
        assert_eq!(memory.touching(region), touching, "{memory:?} {region:?}");
        let mut gathered = Memory::dense(&region.shape, width, FILL);
        for rank in 0..memory.ranks() {
            let piece = memory.share(rank).intersect(region);
            assert_eq!(
                piece.is_some(),
                touching.contains(&rank),
                "{memory:?} {region:?} {rank}"
            );
            let Some(piece) = piece else { continue };
            let mine: Vec<_> = held[rank]
                .iter()
                .filter(|(i, _)| inside(region, i))
                .collect();
            assert_eq!(piece.elements(), mine.len() as u64);
            assert!(piece.dims().iter().all(|runs| runs.len() <= 3));
            let stretches = mine
                .iter()
                .zip(mine.iter().skip(1))
                .filter(|((a, _), (b, _))| place(region, a) + 1 != place(region, b));
            assert_eq!(piece.stretches(&region.shape), stretches.count() as u64 + 1);
            let strides = (&gathered.strides.clone(), &memories[rank].strides);
            for copy in piece.copies(width, strides.0, strides.1, Direction::Gather) {
                // SAFETY: both buffers hold the region and the share, densely.
                unsafe { copy.run(memories[rank].source(), gathered.target()) }
            }
            let mut scattered = Memory::dense(&memory.share(rank).extents(), width, FILL);
            let mut expected = scattered.clone();
            for (index, local) in mine {
                expected.put(local, &element(linear(shape, index), width));
            }
            for copy in piece.copies(width, strides.0, strides.1, Direction::Scatter) {
                // SAFETY: as above.
                unsafe { copy.run(gathered.source(), scattered.target()) }
            }
            assert_eq!(scattered, expected, "{memory:?} {region:?} {rank}");
        }
        let mut expected = Memory::dense(&region.shape, width, FILL);
        for index in indices(region) {
            let inner: Vec<u64> = index
                .iter()
                .zip(&region.start)
                .map(|(i, s)| i - s)
                .collect();
            expected.put(&inner, &element(linear(shape, &index), width));
        }
        assert_eq!(gathered, expected, "{memory:?} {region:?}");
    }
}

fn inside(region: &Region, index: &[u64]) -> bool {
    (0..index.len()).all(|d| region.start[d] <= index[d] && index[d] < region.end(d))
}

fn place(region: &Region, index: &[u64]) -> u64 {
    let inner: Vec<u64> = index
        .iter()
        .zip(&region.start)
        .map(|(i, s)| i - s)
        .collect();
    linear(&region.shape, &inner)
}

#[test]
fn no_dimension() {
    check(&[], &[], &regions(&[]), 8);
}

#[test]
fn one_dimension() {
    for extent in 0..=9 {
        let regions = regions(&[extent]);
        for dist in all_dists() {
            check(&[extent], &[dist], &regions, 3);
        }
    }
}

#[test]
fn two_dimensions() {
    for shape in [
        [0, 3],
        [1, 4],
        [4, 1],
        [2, 3],
        [3, 3],
        [4, 2],
        [3, 5],
        [4, 4],
    ] {
        let regions = regions(&shape);
        for outer in all_dists() {
            for inner in all_dists() {
                check(&shape, &[outer, inner], &regions, 2);
            }
        }
    }
}

#[test]
fn three_dimensions() {
    let dists = [
        (Dist::Whole, 1),
        (Dist::Block, 2),
        (Dist::Cyclic(1), 3),
        (Dist::Cyclic(2), 2),
        (Dist::Cyclic(3), 3),
    ];
    for shape in [[2, 4, 3], [3, 1, 4]] {
        let regions = regions(&shape);
        for outer in dists {
            for middle in dists {
                for inner in dists {
                    check(&shape, &[outer, middle, inner], &regions, 1);
                }
            }
        }
    }
}

#[test]
fn region_beyond_the_array_is_nobodys() {
    let memory = Distribution::new(&[5], &"BLOCK".parse().unwrap(), &[2]).unwrap();
    assert_eq!(memory.touching(&Region::new(&[5], &[3])), [0usize; 0]);
    assert_eq!(memory.touching(&Region::new(&[2], &[u64::MAX])), [0, 1]);
    assert_eq!(
        memory
            .share(1)
            .intersect(&Region::new(&[4], &[u64::MAX]))
            .unwrap()
            .elements(),
        1
    );
}
