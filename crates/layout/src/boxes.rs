//! Irregular shares: boxes of ranks, as adaptive meshes and users of ADIOS and HDF5 have them.
//!
//! A box holds the indices `{ i | start <= i < start + shape }`. A rank has one box, or a list of
//! boxes. Boxes are disjoint and lie inside the array; they need not cover it, and any box may be
//! empty. Boxes that are only read into may overlap.
//!
//! Each box is a *share*, and shares are numbered through all ranks:
//!
//! ```text
//! rank       0        1     2                 3
//! boxes      a b c    d     (none)            e
//! share      0 1 2    3                       4      holder of share 2: rank 0, part 2
//! ```
//!
//! The boxes are sorted once into a tree of bounding boxes, so that the boxes that touch a region
//! are found without looking at the others. A node halves its boxes at the median of the dimension
//! in which their centres spread widest, so that slabs are cut across and never along:
//!
//! ```text
//! 0 0 0 1 1        {0 1 2 3}          region 0..1 x 4..5 enters {0 1} only
//! 0 0 0 1 1         /     \
//! 2 3 3 3 3      {0 1}   {2 3}
//! 2 3 3 3 3
//! ```
//!
//! Costs, for n boxes of d dimensions: `O(n log n)` to build, which includes the search for
//! overlaps, `O(log n + found)` a query for boxes of like shape, and about `(2 + 4 / LEAF) d n`
//! numbers of memory. The tree is not serialised: it is built, and the boxes checked, again.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::LayoutError;
use crate::region::Region;
use crate::share::Share;

/// The most boxes in a leaf of the tree: few enough to look at each, enough to keep the tree small.
const LEAF: usize = 8;

/// The boxes of all ranks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Encoded", into = "Encoded")]
pub struct Boxes {
    shape: Vec<u64>,
    boxes: Vec<Region>,
    /// The number of each rank's first share; empty if each rank has one share.
    firsts: Vec<usize>,
    may_overlap: bool,
    tree: Tree,
}

/// The holder of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The rank of the holder.
    pub rank: usize,
    /// The share's number among the rank's shares, from 0.
    pub part: usize,
}

/// The serialised part of [`Boxes`].
#[derive(Serialize, Deserialize)]
#[serde(rename = "Boxes", deny_unknown_fields)]
struct Encoded {
    shape: Vec<u64>,
    boxes: Vec<Region>,
    firsts: Vec<usize>,
    may_overlap: bool,
}

impl Boxes {
    /// Makes boxes in which rank `r` holds box `boxes[r]` of an array of `shape`.
    ///
    /// # Errors
    /// When a box has another number of dimensions than the array, reaches out of it, or shares
    /// elements with another box.
    pub fn new(shape: &[u64], boxes: Vec<Region>) -> Result<Self, LayoutError> {
        Self::overlapping(shape, boxes)?.disjoint()
    }

    /// Makes boxes in which rank `r` holds the boxes of list `lists[r]`.
    ///
    /// # Errors
    /// Like [`Boxes::new`]; boxes of one rank must be disjoint, too, unless boxes may overlap.
    pub fn of_lists(
        shape: &[u64],
        lists: Vec<Vec<Region>>,
        may_overlap: bool,
    ) -> Result<Self, LayoutError> {
        let firsts = lists.iter().scan(0, |next, list| {
            let first = *next;
            *next += list.len();
            Some(first)
        });
        let stored = Encoded {
            shape: shape.to_vec(),
            firsts: match lists.iter().all(|list| list.len() == 1) {
                true => Vec::new(),
                false => firsts.collect(),
            },
            boxes: lists.into_iter().flatten().collect(),
            may_overlap,
        };
        stored.try_into()
    }

    /// Refuses boxes that share elements.
    fn disjoint(mut self) -> Result<Self, LayoutError> {
        self.may_overlap = false;
        for (first, region) in self.boxes.iter().enumerate() {
            // Shares below have been compared with all others, so the other share is always higher.
            let mut touching = self.touching(region).into_iter();
            if let Some(second) = touching.find(|&share| share != first) {
                let both = region.intersect(&self.boxes[second]);
                return Err(LayoutError::Overlap {
                    first: self.holder(first).rank,
                    second: self.holder(second).rank,
                    at: both.map(|both| both.start).unwrap_or_default(),
                });
            }
        }
        Ok(self)
    }

    /// Makes boxes that may share elements: they can be read into, not written from.
    ///
    /// # Errors
    /// When a box has another number of dimensions than the array, or reaches out of it.
    pub fn overlapping(shape: &[u64], boxes: Vec<Region>) -> Result<Self, LayoutError> {
        for (rank, region) in boxes.iter().enumerate() {
            check_inside(shape, rank, region)?;
        }
        let tree = Tree::new(&boxes);
        Ok(Self {
            shape: shape.to_vec(),
            boxes,
            firsts: Vec::new(),
            may_overlap: true,
            tree,
        })
    }

    /// Whether boxes may share elements.
    pub fn may_overlap(&self) -> bool {
        self.may_overlap
    }

    /// The array's shape.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        match self.firsts.len() {
            0 => self.boxes.len(),
            ranks => ranks,
        }
    }

    /// The boxes of all ranks, by share.
    pub fn boxes(&self) -> &[Region] {
        &self.boxes
    }

    /// The smallest box around all boxes; `None` if all are empty.
    pub fn bounds(&self) -> Option<&Region> {
        self.tree.nodes.first().map(|root| &root.bounds)
    }

    /// The shares of `rank`: none if `rank` lies beyond the list.
    pub fn shares_of(&self, rank: usize) -> Range<usize> {
        let all = self.boxes.len();
        let first = |rank: usize| match self.firsts.is_empty() {
            true => rank.min(all),
            false => self.firsts.get(rank).copied().unwrap_or(all),
        };
        first(rank)..first(rank + 1)
    }

    /// The holder of a share.
    pub fn holder(&self, share: usize) -> Holder {
        if self.firsts.is_empty() {
            return Holder {
                rank: share,
                part: 0,
            };
        }
        // Ranks without a share have the same first as the next rank that has one.
        let rank = self.firsts.partition_point(|&first| first <= share) - 1;
        Holder {
            rank,
            part: share - self.firsts[rank],
        }
    }

    /// The elements of a share: none if the share lies beyond the list.
    pub fn share(&self, share: usize) -> Share {
        self.boxes
            .get(share)
            .map_or_else(|| Share::empty(self.shape.len()), Share::of_box)
    }

    /// The shares that hold an element of `region`, ascending.
    pub fn touching(&self, region: &Region) -> Vec<usize> {
        self.tree.touching(&self.boxes, region)
    }
}

/// Two boxes are equal whatever their trees, since a tree follows from its boxes.
impl PartialEq for Boxes {
    fn eq(&self, other: &Self) -> bool {
        let kind = (&self.shape, &self.firsts, self.may_overlap);
        kind == (&other.shape, &other.firsts, other.may_overlap) && self.boxes == other.boxes
    }
}

impl Eq for Boxes {}

impl From<Boxes> for Encoded {
    fn from(boxes: Boxes) -> Self {
        Self {
            shape: boxes.shape,
            boxes: boxes.boxes,
            firsts: boxes.firsts,
            may_overlap: boxes.may_overlap,
        }
    }
}

impl TryFrom<Encoded> for Boxes {
    type Error = LayoutError;

    fn try_from(stored: Encoded) -> Result<Self, LayoutError> {
        let Encoded {
            shape,
            boxes,
            firsts,
            may_overlap,
        } = stored;
        let is_list = firsts.first().is_none_or(|&first| first == 0)
            && firsts.is_sorted()
            && firsts.last().is_none_or(|&last| last <= boxes.len());
        if !is_list {
            return Err(LayoutError::ShareNumbers { firsts });
        }
        let all = Self::overlapping(&shape, boxes).map_err(|error| of_rank(error, &firsts))?;
        let all = Self { firsts, ..all };
        match may_overlap {
            true => Ok(all),
            false => all.disjoint(),
        }
    }
}

/// Puts the rank in the place of the share in an error.
fn of_rank(mut error: LayoutError, firsts: &[usize]) -> LayoutError {
    if let LayoutError::OutOfBounds { rank, .. } = &mut error
        && !firsts.is_empty()
    {
        *rank = firsts.partition_point(|&first| first <= *rank) - 1;
    }
    error
}

fn check_inside(array: &[u64], rank: usize, region: &Region) -> Result<(), LayoutError> {
    for given in [&region.start, &region.shape] {
        if given.len() != array.len() {
            let (given, dims) = (given.clone(), array.len());
            return Err(LayoutError::DimCount {
                what: "the box",
                given,
                dims,
            });
        }
    }
    let mut dims = region.start.iter().zip(&region.shape).zip(array);
    if dims.all(|((start, n), extent)| start.checked_add(*n).is_some_and(|end| end <= *extent)) {
        return Ok(());
    }
    let (start, extents) = (region.start.clone(), region.shape.clone());
    Err(LayoutError::OutOfBounds {
        rank,
        start,
        extents,
        array: array.to_vec(),
    })
}

/// A binary tree over the boxes that are not empty.
#[derive(Debug, Clone, Default)]
struct Tree {
    /// The ranks, in an order in which every node has a range.
    ranks: Vec<usize>,
    /// The nodes in preorder: the first child of node `i` is node `i + 1`.
    nodes: Vec<Node>,
}

#[derive(Debug, Clone)]
struct Node {
    /// The smallest box around the node's boxes.
    bounds: Region,
    /// The node's part of [`Tree::ranks`].
    ranks: Range<usize>,
    /// The second child; `None` at a leaf.
    second: Option<usize>,
}

impl Tree {
    fn new(boxes: &[Region]) -> Self {
        let ranks: Vec<usize> = (0..boxes.len())
            .filter(|&rank| !boxes[rank].is_empty())
            .collect();
        let mut tree = Self {
            ranks,
            nodes: Vec::new(),
        };
        if !tree.ranks.is_empty() {
            tree.grow(boxes, 0..tree.ranks.len());
        }
        tree
    }

    /// Adds the node of `ranks` and all nodes below it.
    fn grow(&mut self, boxes: &[Region], ranks: Range<usize>) {
        let held = &mut self.ranks[ranks.clone()];
        let bounds = bounds(held.iter().map(|&rank| &boxes[rank]));
        let node = self.nodes.len();
        let median = ranks.start + ranks.len() / 2;
        let leaf = ranks.len() <= LEAF;
        if let Some(d) = widest(boxes, held).filter(|_| !leaf) {
            held.select_nth_unstable_by_key(ranks.len() / 2, |&rank| centre(&boxes[rank], d));
        }
        self.nodes.push(Node {
            bounds,
            ranks: ranks.clone(),
            second: None,
        });
        if !leaf {
            self.grow(boxes, ranks.start..median);
            self.nodes[node].second = Some(self.nodes.len());
            self.grow(boxes, median..ranks.end);
        }
    }

    /// The ranks whose boxes share an element with `region`, ascending.
    fn touching(&self, boxes: &[Region], region: &Region) -> Vec<usize> {
        let mut found = Vec::new();
        let mut open = if self.nodes.is_empty() {
            Vec::new()
        } else {
            vec![0]
        };
        while let Some(node) = open.pop() {
            let Node {
                bounds,
                ranks,
                second,
            } = &self.nodes[node];
            if !meets(bounds, region) {
                continue;
            }
            match second {
                Some(second) => open.extend([*second, node + 1]),
                None => found.extend(
                    self.ranks[ranks.clone()]
                        .iter()
                        .filter(|&&rank| meets(&boxes[rank], region)),
                ),
            }
        }
        found.sort_unstable();
        found
    }
}

/// Whether two boxes share an element: [`Region::intersect`] without making the region.
fn meets(one: &Region, other: &Region) -> bool {
    (0..one.dims()).all(|d| one.start[d].max(other.start[d]) < one.end(d).min(other.end(d)))
}

fn centre(region: &Region, d: usize) -> u64 {
    region.start[d] + region.shape[d] / 2
}

/// The dimension in which the centres of the boxes of `ranks` lie farthest apart; `None` if there
/// is no dimension.
fn widest(boxes: &[Region], ranks: &[usize]) -> Option<usize> {
    let dims = ranks.first().map_or(0, |&rank| boxes[rank].dims());
    (0..dims).max_by_key(|&d| {
        let centres = ranks.iter().map(|&rank| centre(&boxes[rank], d));
        let (low, high) = centres.fold((u64::MAX, 0), |(low, high), c| (low.min(c), high.max(c)));
        high - low
    })
}

/// The smallest box around `boxes`, at least one.
fn bounds<'a>(boxes: impl Iterator<Item = &'a Region>) -> Region {
    let around = boxes.fold(None, |around: Option<Region>, region| {
        let Some(mut around) = around else {
            return Some(region.clone());
        };
        for d in 0..around.dims() {
            let end = around.end(d).max(region.end(d));
            around.start[d] = around.start[d].min(region.start[d]);
            around.shape[d] = end - around.start[d];
        }
        Some(around)
    });
    around.unwrap_or_else(|| Region::whole(&[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let unit = |start: &[u64]| Region::new(start, &vec![1; start.len()]);
        #[rustfmt::skip]
        let table = [
            (vec![unit(&[0])],
             LayoutError::DimCount { what: "the box", given: vec![0], dims: 2 }),
            (vec![unit(&[0, 0]), unit(&[4, 6])],
             LayoutError::OutOfBounds { rank: 1, start: vec![4, 6], extents: vec![1, 1], array: vec![5, 6] }),
            (vec![Region::new(&[1, 1], &[1, u64::MAX])],
             LayoutError::OutOfBounds { rank: 0, start: vec![1, 1], extents: vec![1, u64::MAX], array: vec![5, 6] }),
            (vec![Region::new(&[0, 0], &[2, 3]), unit(&[4, 4]), Region::new(&[1, 1], &[2, 3])],
             LayoutError::Overlap { first: 0, second: 2, at: vec![1, 1] }),
        ];
        for (boxes, error) in table {
            assert_eq!(Boxes::new(&[5, 6], boxes), Err(error));
        }
    }

    #[test]
    fn scalars() {
        let scalar = Region::whole(&[]);
        let one = Boxes::new(&[], vec![scalar.clone()]).unwrap();
        assert_eq!(one.touching(&scalar), [0]);
        assert_eq!((one.share(0).elements(), one.share(1).elements()), (1, 0));
        let two = Boxes::new(&[], vec![scalar.clone(), scalar]);
        assert_eq!(
            two,
            Err(LayoutError::Overlap {
                first: 0,
                second: 1,
                at: vec![]
            })
        );
    }

    /// A query enters few nodes, whatever the boxes' form: tiles, rows, columns.
    #[test]
    fn queries_do_not_visit_all() {
        for (rows, columns) in [(64, 64), (4096, 1), (1, 4096)] {
            let tile = |rank: u64| {
                Region::new(
                    &[
                        rank / columns * 4096 / rows,
                        rank % columns * 4096 / columns,
                    ],
                    &[4096 / rows, 4096 / columns],
                )
            };
            let boxes = Boxes::new(&[4096, 4096], (0..4096).map(tile).collect()).unwrap();
            for rank in (0..4096).step_by(97) {
                let region = tile(rank);
                assert_eq!(boxes.touching(&region), [rank as usize]);
                let entered = boxes
                    .tree
                    .nodes
                    .iter()
                    .filter(|node| meets(&node.bounds, &region));
                assert!(entered.count() <= 12, "rank {rank} of {rows} x {columns}");
            }
        }
    }
}
