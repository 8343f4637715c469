//! Random arrays, shares and regions.

use penstock_layout::{Boxes, Dist, Distribution, Dists, Edges, MemorySchema, Region};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Makes shapes of up to three dimensions, primes among them; now and then none, and extents of
/// zero.
pub fn shapes() -> impl Strategy<Value = Vec<u64>> {
    let extent = prop_oneof![1 => Just(0u64), 12 => 1u64..14, 4 => select(vec![7u64, 11, 13, 29])];
    prop_oneof![1 => Just(Vec::new()), 24 => vec(extent, 1..=3)]
        .prop_filter("few enough elements", |shape| {
            shape.iter().product::<u64>() <= 2000
        })
}

pub fn distributions(shape: Vec<u64>) -> impl Strategy<Value = MemorySchema> {
    let dist = prop_oneof![
        Just(Dist::Whole),
        Just(Dist::Block),
        (1u64..6).prop_map(Dist::Cyclic),
    ];
    vec((dist, 1u64..4), shape.len()).prop_map(move |dims| {
        let distributed = dims.iter().filter(|(dist, _)| *dist != Dist::Whole);
        let mesh: Vec<u64> = distributed.map(|(_, n)| *n).collect();
        let dists = Dists(dims.iter().map(|(dist, _)| *dist).collect());
        Distribution::new(&shape, &dists, &mesh).unwrap().into()
    })
}

/// Makes boxes by cutting the array in two again and again; some are dropped, some are empty.
pub fn disjoint_boxes(shape: Vec<u64>) -> impl Strategy<Value = Boxes> {
    vec(
        (any::<Index>(), any::<Index>(), any::<Index>(), 0..8u8),
        0..12,
    )
    .prop_map(move |cuts| {
        let mut boxes = vec![Region::whole(&shape)];
        for (which, d, at, fate) in cuts {
            let which = which.index(boxes.len());
            if !shape.is_empty() {
                let d = d.index(shape.len());
                let at = at.index(boxes[which].shape[d] as usize + 1) as u64;
                let mut rest = boxes[which].clone();
                boxes[which].shape[d] = at;
                rest.start[d] += at;
                rest.shape[d] -= at;
                boxes.push(rest);
            }
            if fate == 0 && boxes.len() > 1 {
                boxes.swap_remove(which);
            }
        }
        Boxes::new(&shape, boxes).unwrap()
    })
}

pub fn schemas(shape: Vec<u64>) -> impl Strategy<Value = MemorySchema> {
    let boxes = disjoint_boxes(shape.clone()).prop_map(MemorySchema::Boxes);
    prop_oneof![distributions(shape), boxes]
}

pub fn regions(shape: &[u64]) -> impl Strategy<Value = Region> + use<> {
    // Most regions are large: a share that is dealt out shows its three runs only there.
    let range = |n: u64| {
        let any = (0..=n, 0..=n).prop_map(|(a, b)| (a.min(b), a.abs_diff(b)));
        prop_oneof![1 => any.clone(), 3 => (0..=n / 3, n - n / 3..=n).prop_map(|(a, b)| (a, b - a))]
    };
    let dims: Vec<_> = shape.iter().map(|&n| range(n)).collect();
    dims.prop_map(|dims| {
        let (start, shape): (Vec<u64>, Vec<u64>) = dims.into_iter().unzip();
        Region { start, shape }
    })
}

/// Makes a grid of chunks for an array of `shape`, each extent a multiple of `part`. Listed chunks
/// end at the array's end or beyond it.
pub fn grids(shape: &[u64], part: &[u64]) -> impl Strategy<Value = Vec<Edges>> + use<> {
    let dims = shape.iter().zip(part).map(|(&n, &part)| {
        let listed = vec(1u64..4, n.max(1) as usize).prop_map(move |counts| {
            let mut end = 0;
            let extents = counts.into_iter().map(|count| count * part);
            let inside = extents.take_while(|extent| {
                let start = end;
                end += extent;
                start < n.max(1)
            });
            Edges::Listed(inside.collect())
        });
        prop_oneof![
            (1u64..4).prop_map(move |count| Edges::Regular(count * part)),
            listed
        ]
    });
    dims.collect::<Vec<_>>()
}
