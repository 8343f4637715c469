//! Arrays that the cases move, and how they are spread over nodes.

use penstock_layout::{Boxes, Distribution, MemorySchema, Region, Replicated, Share};

/// An array spread over nodes, and the boxes in which it is moved.
pub(super) struct Spread {
    pub(super) memory: MemorySchema,
    /// Together they hold every element once.
    pub(super) regions: Vec<Region>,
}

impl Spread {
    fn new(memory: MemorySchema, chunk: &[u64]) -> Self {
        let shape = memory.shape();
        let counts: Vec<u64> = shape
            .iter()
            .zip(chunk)
            .map(|(n, c)| n.div_ceil(*c))
            .collect();
        let region = |place: Vec<u64>| {
            let start: Vec<u64> = place.iter().zip(chunk).map(|(i, c)| i * c).collect();
            let dims = start.iter().zip(shape).zip(chunk);
            let extents: Vec<u64> = dims.map(|((s, n), c)| (*c).min(n - s)).collect();
            Region::new(&start, &extents)
        };
        let regions = crate::truth::indices(&counts).map(region).collect();
        Self { memory, regions }
    }

    fn dealt(shape: &[u64], dists: &str, mesh: &[u64], chunk: &[u64]) -> Self {
        let dists = dists.parse().unwrap();
        let dealt = Distribution::new(shape, &dists, mesh).unwrap();
        Self::new(dealt.into(), chunk)
    }

    /// The shares of a node: one, or one for each box of a list.
    pub(super) fn shares(&self, node: usize) -> Vec<Share> {
        let numbers = self.memory.shares_of(node);
        numbers.map(|number| self.memory.share(number)).collect()
    }
}

/// Every node holds one share of these arrays, which may be empty.
pub(super) fn spreads(nodes: usize) -> Vec<Spread> {
    let n = nodes as u64;
    let columns = |rank: u64| Region::new(&[rank % 2, 2 * rank], &[5, 2]);
    let boxes = Boxes::new(&[6, 2 * n + 1], (0..n).map(columns).collect()).unwrap();
    vec![
        Spread::new(Replicated::new(&[], nodes).into(), &[]),
        Spread::dealt(&[0], "BLOCK", &[n], &[1]),
        Spread::dealt(&[17], "CYCLIC", &[n], &[5]),
        Spread::dealt(&[40], "CYCLIC(3)", &[n], &[19]),
        Spread::dealt(&[5, 13], "BLOCK,*", &[n], &[2, 7]),
        Spread::dealt(&[6, 11], "*,CYCLIC(2)", &[n], &[4, 4]),
        Spread::dealt(&[4, 3, 9], "*,*,BLOCK", &[n], &[3, 2, 9]),
        Spread::dealt(&[3, 7, 4], "CYCLIC,*,*", &[n], &[3, 7, 1]),
        Spread::new(boxes.into(), &[4, 3]),
    ]
}

/// An array of more dimensions than most programs have, a row of it on each node.
pub(super) fn of_many_dimensions(nodes: usize) -> Spread {
    let (shape, chunk) = ([2, 1, 2, 1, 3, 1, 2, 2, 2], [2, 1, 1, 1, 2, 1, 2, 2, 1]);
    Spread::dealt(&shape, "*,*,*,*,CYCLIC,*,*,*,*", &[nodes as u64], &chunk)
}

/// Every node holds several boxes of this array, the last node none.
pub(super) fn lists_of_boxes(nodes: usize) -> Spread {
    let list = |rank: u64| {
        let left = Region::new(&[3 * rank, 0], &[2, 3]);
        let right = Region::new(&[3 * rank + 1, 4], &[2, 5]);
        let one = Region::new(&[3 * rank, 9], &[1, 1]);
        vec![left, right, one]
    };
    let n = nodes as u64;
    let mut lists: Vec<_> = (0..n).map(list).collect();
    if nodes > 1 {
        lists[nodes - 1].clear();
    }
    let boxes = Boxes::of_lists(&[3 * n + 1, 10], lists, false).unwrap();
    Spread::new(boxes.into(), &[4, 6])
}
