//! The naive model that the tests compare with: it takes every element, one by one.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod disk;
pub mod strategies;

use penstock_layout::{Dist, Distribution, Region};

/// All indices of a region, the last dimension fastest.
pub fn indices(region: &Region) -> Vec<Vec<u64>> {
    let mut all = vec![Vec::new()];
    for (&start, &extent) in region.start.iter().zip(&region.shape) {
        let deeper = all.iter().flat_map(|outer: &Vec<u64>| {
            (start..start + extent).map(move |i| [outer.as_slice(), &[i]].concat())
        });
        all = deeper.collect();
    }
    all
}

/// All regions inside `shape`, empty ones included.
pub fn regions(shape: &[u64]) -> Vec<Region> {
    let mut all = vec![Region::whole(&[])];
    for &extent in shape {
        let ranges = (0..=extent).flat_map(|start| (start..=extent).map(move |end| (start, end)));
        let ranges: Vec<(u64, u64)> = ranges.collect();
        let deeper = all.iter().flat_map(|outer| {
            ranges.iter().map(|&(start, end)| {
                let start = [outer.start.as_slice(), &[start]].concat();
                Region::new(
                    &start,
                    &[outer.shape.as_slice(), &[end - start[start.len() - 1]]].concat(),
                )
            })
        });
        all = deeper.collect();
    }
    all
}

/// The place of an index in a dense array of `shape`, the last dimension fastest.
pub fn linear(shape: &[u64], index: &[u64]) -> u64 {
    shape.iter().zip(index).fold(0, |at, (n, i)| at * n + i)
}

/// The mesh coordinate that holds index `i` of one dimension.
pub fn coordinate(dist: Dist, extent: u64, coordinates: u64, i: u64) -> u64 {
    match dist {
        Dist::Whole => 0,
        Dist::Block => i / extent.div_ceil(coordinates),
        Dist::Cyclic(k) => i / k % coordinates,
    }
}

/// The rank that holds the element at `index`, and its index in that rank's memory.
pub fn owner(memory: &Distribution, index: &[u64]) -> (usize, Vec<u64>) {
    let mut mesh = memory.mesh().iter();
    let (mut rank, mut local) = (0, Vec::new());
    for (d, dist) in memory.dists().0.iter().enumerate() {
        let extent = memory.shape()[d];
        let coordinates = if *dist == Dist::Whole {
            1
        } else {
            *mesh.next().unwrap()
        };
        let mine = coordinate(*dist, extent, coordinates, index[d]);
        let below = (0..index[d]).filter(|&i| coordinate(*dist, extent, coordinates, i) == mine);
        rank = rank * coordinates + mine;
        local.push(below.count() as u64);
    }
    (rank as usize, local)
}

/// A strided array of bytes with room around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    pub strides: Vec<isize>,
    /// The byte at which the element of index 0 lies.
    pub base: isize,
    /// All bytes, halo included.
    pub bytes: Vec<u8>,
}

impl Memory {
    /// Makes room for `extents` elements of `width` bytes, all of it `fill`: dimensions nested in
    /// `order` (the first is outermost), with `halo` elements before and behind each, and
    /// dimensions in `reversed` running backwards.
    pub fn new(
        extents: &[u64],
        width: usize,
        (order, reversed, halo): (&[usize], &[bool], &[(u64, u64)]),
        fill: u8,
    ) -> Self {
        let mut strides = vec![0; extents.len()];
        let (mut base, mut bytes) = (0, width as isize);
        for &d in order.iter().rev() {
            let (before, behind) = halo[d];
            let all = (extents[d] + before + behind) as isize;
            if reversed[d] {
                strides[d] = -bytes;
                base += (all - 1 - before as isize).max(0) * bytes;
            } else {
                strides[d] = bytes;
                base += before as isize * bytes;
            }
            bytes *= all;
        }
        Self {
            strides,
            base,
            bytes: vec![fill; bytes as usize],
        }
    }

    /// Makes room that is row-major and dense.
    pub fn dense(extents: &[u64], width: usize, fill: u8) -> Self {
        let order: Vec<usize> = (0..extents.len()).collect();
        let (straight, bare) = (vec![false; extents.len()], vec![(0, 0); extents.len()]);
        Self::new(extents, width, (&order, &straight, &bare), fill)
    }

    pub fn at(&self, index: &[u64]) -> usize {
        let along = self
            .strides
            .iter()
            .zip(index)
            .map(|(stride, &i)| stride * i as isize);
        (self.base + along.sum::<isize>()) as usize
    }

    pub fn put(&mut self, index: &[u64], element: &[u8]) {
        let at = self.at(index);
        self.bytes[at..at + element.len()].copy_from_slice(element);
    }

    pub fn source(&self) -> *const u8 {
        self.bytes.as_ptr().wrapping_offset(self.base)
    }

    pub fn target(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr().wrapping_offset(self.base)
    }
}

/// The bytes of the element with the number `n`: no two alike below 250 * 249, none of them 255.
pub fn element(n: u64, width: usize) -> Vec<u8> {
    (0..width as u64)
        .map(|byte| ((n + byte * 83 + n / 250 * 7) % 250) as u8)
        .collect()
}
