//! The block lists of a cell: where its blocks are stored, now and at the last checkpoint.
//!
//! A list is a sorted map of *leaves*, each of 256 blocks (section 4.4). A leaf has two entries a
//! block, the active one and that of the checkpoint; as long as all of them are alike, the leaf
//! keeps one set for both (section 4.6):
//!
//! ```text
//! checkpoint        leaf 0 |  a b c |            one set
//! write block 1     leaf 0 |  a d c | a b c |    place d is new, and b stays for the checkpoint
//! checkpoint        leaf 0 |  a d c |            b is free
//! rollback instead  leaf 0 |  a b c |            d is free
//! ```

use std::collections::BTreeMap;

use penstock_layout::exact;
use serde::{Deserialize, Serialize};

/// The blocks of a leaf.
pub(crate) const LEAF_BLOCKS: u64 = 256;

/// The place of a stored block on the disks of its server, and the CRC-32C of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) place: u64,
    pub(crate) sum: u32,
}

/// The entries of a leaf that are there, by the number of the block in the leaf.
type Entries = BTreeMap<u8, Stored>;

/// A leaf of a cell's block lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leaf {
    active: Entries,
    /// The entries of the checkpoint, where they are others.
    kept: Option<Entries>,
}

/// A version of a file.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub enum Version {
    /// The file as it is written.
    #[default]
    Active,
    /// The file as it was at its last checkpoint.
    Checkpoint,
}

/// A cell of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The bytes up to the cell's end.
    pub(crate) bytes: u64,
    /// The bytes at the last checkpoint, if there was one.
    pub(crate) kept_bytes: Option<u64>,
    leaves: BTreeMap<u64, Leaf>,
}

impl Cell {
    /// Makes a cell without blocks, with the bytes that it has at the file's checkpoint, if any.
    pub(crate) fn new(kept_bytes: Option<u64>) -> Self {
        Self {
            kept_bytes,
            ..Self::default()
        }
    }

    /// The bytes of a version; nothing if there was no checkpoint.
    pub(crate) fn bytes_of(&self, version: Version) -> Option<u64> {
        match version {
            Version::Active => Some(self.bytes),
            Version::Checkpoint => self.kept_bytes,
        }
    }

    /// The place of a block of a version.
    pub(crate) fn stored(&self, block: u64, version: Version) -> Option<Stored> {
        let (leaf, within) = split(block);
        let leaf = self.leaves.get(&leaf)?;
        leaf.entries(version).get(&within).copied()
    }

    /// Puts a block into the active list, or takes it out. Gives the place that nobody uses any
    /// more.
    pub(crate) fn replace(&mut self, block: u64, stored: Option<Stored>) -> Option<u64> {
        let (number, within) = split(block);
        let leaf = self.leaves.entry(number).or_default();
        if self.kept_bytes.is_some() && leaf.kept.is_none() {
            leaf.kept = Some(leaf.active.clone());
        }
        let former = match stored {
            Some(stored) => leaf.active.insert(within, stored),
            None => leaf.active.remove(&within),
        };
        let former = former.map(|former| former.place);
        let kept = leaf.kept.as_ref().and_then(|kept| kept.get(&within));
        former.filter(|&place| kept.is_none_or(|kept| kept.place != place))
    }

    /// Makes the active list that of the checkpoint. Gives the leaves that change, and the places
    /// that nobody uses any more.
    pub(crate) fn checkpoint(&mut self) -> (Vec<u64>, Vec<u64>) {
        self.kept_bytes = Some(self.bytes);
        self.settle(|leaf| {
            let kept = leaf.kept.take()?;
            Some(lost(&kept, &leaf.active))
        })
    }

    /// Makes the checkpoint's list the active one. Gives the leaves that change, and the places
    /// that nobody uses any more. Does nothing if there was no checkpoint.
    pub(crate) fn roll_back(&mut self) -> (Vec<u64>, Vec<u64>) {
        let Some(bytes) = self.kept_bytes else {
            return Default::default();
        };
        self.bytes = bytes;
        self.settle(|leaf| {
            let kept = leaf.kept.take()?;
            let active = std::mem::replace(&mut leaf.active, kept);
            Some(lost(&active, &leaf.active))
        })
    }

    /// Gives the cell a number of bytes. Blocks of `block_bytes` bytes behind them go. Gives the
    /// leaves that change, and the places that nobody uses any more.
    pub(crate) fn resize(&mut self, bytes: u64, block_bytes: u64) -> (Vec<u64>, Vec<u64>) {
        self.bytes = bytes;
        let gone = self.blocks_from(bytes.div_ceil(block_bytes));
        let leaves = gone.iter().map(|&block| split(block).0).collect();
        let unused = gone.iter().filter_map(|&block| self.replace(block, None));
        (leaves, unused.collect())
    }

    /// Applies a change to all leaves. A change that does not concern a leaf gives `None`.
    fn settle(&mut self, change: impl Fn(&mut Leaf) -> Option<Vec<u64>>) -> (Vec<u64>, Vec<u64>) {
        let (mut changed, mut free) = (Vec::new(), Vec::new());
        for (&number, leaf) in &mut self.leaves {
            if let Some(unused) = change(leaf) {
                changed.push(number);
                free.extend(unused);
            }
        }
        (changed, free)
    }

    /// The blocks of the active list from `block` on.
    fn blocks_from(&self, block: u64) -> Vec<u64> {
        let (first, _) = split(block);
        let leaves = self.leaves.range(first..);
        let blocks = leaves.flat_map(|(&number, leaf)| {
            let within = leaf.active.keys();
            within.map(move |&within| number * LEAF_BLOCKS + u64::from(within))
        });
        blocks.filter(|&found| found >= block).collect()
    }

    /// The blocks of a version, in their order.
    pub(crate) fn blocks(&self, version: Version) -> impl Iterator<Item = (u64, Stored)> + '_ {
        self.leaves.iter().flat_map(move |(&number, leaf)| {
            let entries = leaf.entries(version).iter();
            entries
                .map(move |(&within, &stored)| (number * LEAF_BLOCKS + u64::from(within), stored))
        })
    }

    /// Whether a leaf has other entries for the checkpoint.
    pub(crate) fn has_split_leaves(&self) -> bool {
        self.leaves.values().any(|leaf| leaf.kept.is_some())
    }

    /// Lets the entries of a block that name the place of one version name another place.
    pub(crate) fn relocate(&mut self, block: u64, version: Version, place: u64) {
        let Some(former) = self.stored(block, version) else {
            return;
        };
        let (number, within) = split(block);
        let leaves = self.leaves.get_mut(&number).into_iter();
        let entries = leaves.flat_map(|leaf| leaf.kept.iter_mut().chain([&mut leaf.active]));
        for stored in entries.filter_map(|entries| entries.get_mut(&within)) {
            if stored.place == former.place {
                stored.place = place;
            }
        }
    }

    /// A leaf as it is kept on disk; `None` if it has no entries.
    pub(crate) fn leaf(&self, number: u64) -> Option<&Leaf> {
        self.leaves.get(&number).filter(|leaf| !leaf.is_empty())
    }

    /// The numbers of all leaves.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = u64> + '_ {
        self.leaves.keys().copied()
    }

    /// Puts in a leaf that was kept on disk.
    pub(crate) fn add_leaf(&mut self, number: u64, leaf: Leaf) {
        self.leaves.insert(number, leaf);
    }

    /// All places in use, each once.
    pub(crate) fn places(&self) -> impl Iterator<Item = u64> + '_ {
        self.leaves.values().flat_map(Leaf::places)
    }
}

impl Leaf {
    fn entries(&self, version: Version) -> &Entries {
        match version {
            Version::Checkpoint => self.kept.as_ref().unwrap_or(&self.active),
            Version::Active => &self.active,
        }
    }

    /// All places in use, each once.
    pub(crate) fn places(&self) -> impl Iterator<Item = u64> + '_ {
        let active = self.active.values().map(|stored| stored.place);
        let kept = self.kept.iter();
        active.chain(kept.flat_map(|kept| lost(kept, &self.active)))
    }

    /// All blocks of the leaf, by their numbers in it: those of the checkpoint where they are
    /// others, too.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u8, Version, Stored)> + '_ {
        let of = |version| move |(&within, &stored)| (within, version, stored);
        let active = self.active.iter().map(of(Version::Active));
        let kept = self.kept.iter().flatten().map(of(Version::Checkpoint));
        let is_other =
            |(within, _, stored): &(u8, Version, Stored)| self.active.get(within) != Some(stored);
        active.chain(kept.filter(is_other))
    }

    /// The leaf with each block at another place; nothing if one has none.
    pub(crate) fn relocated(&self, place: impl Fn(Stored) -> Option<Stored>) -> Option<Self> {
        let relocate = |entries: &Entries| -> Option<Entries> {
            let entries = entries.iter();
            entries
                .map(|(&within, &stored)| Some((within, place(stored)?)))
                .collect()
        };
        let kept = match &self.kept {
            Some(kept) => Some(relocate(kept)?),
            None => None,
        };
        Some(Self {
            active: relocate(&self.active)?,
            kept,
        })
    }

    fn is_empty(&self) -> bool {
        self.active.is_empty() && self.kept.as_ref().is_none_or(Entries::is_empty)
    }
}

/// The places of `old` entries that `new` ones do not have.
fn lost(old: &Entries, new: &Entries) -> Vec<u64> {
    let is_lost = |(within, stored): &(&u8, &Stored)| {
        new.get(within).is_none_or(|new| new.place != stored.place)
    };
    let lost = old.iter().filter(is_lost);
    lost.map(|(_, stored)| stored.place).collect()
}

/// The leaf of a block, and the block's number in the leaf.
pub(crate) fn split(block: u64) -> (u64, u8) {
    (block / LEAF_BLOCKS, exact::<u8>(block % LEAF_BLOCKS))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn stored(place: u64) -> Option<Stored> {
        Some(Stored { place, sum: 0 })
    }

    /// S4: a checkpoint shares blocks that have not changed, and keeps others until it goes.
    #[test]
    fn a_checkpoint_keeps_the_places_it_needs() {
        let mut cell = Cell::default();
        assert_eq!(cell.replace(3, stored(30)), None);
        assert_eq!(cell.replace(3, stored(31)), Some(30));
        assert_eq!(cell.replace(700, stored(70)), None);
        cell.bytes = 800;
        assert_eq!(cell.checkpoint(), (vec![], vec![]));
        assert_eq!(
            cell.replace(3, stored(32)),
            None,
            "the checkpoint has place 31"
        );
        assert_eq!(cell.replace(3, stored(33)), Some(32));
        assert_eq!(cell.replace(4, stored(40)), None);
        assert_eq!(cell.stored(3, Version::Checkpoint), stored(31));
        assert_eq!(cell.stored(4, Version::Checkpoint), None);
        assert_eq!(cell.stored(700, Version::Checkpoint), stored(70));
        let places: BTreeSet<_> = cell.places().collect();
        assert_eq!(places, BTreeSet::from([31, 33, 40, 70]));
        cell.bytes = 900;
        let mut other = cell.clone();
        assert_eq!(cell.checkpoint(), (vec![0], vec![31]));
        assert_eq!(cell.stored(3, Version::Checkpoint), stored(33));
        let (changed, mut free) = other.roll_back();
        free.sort_unstable();
        assert_eq!((changed, free, other.bytes), (vec![0], vec![33, 40], 800));
        assert_eq!(other.stored(3, Version::Active), stored(31));
        assert_eq!(other.replace(3, None), None, "the checkpoint has it still");
        assert_eq!(other.blocks_from(4), [700]);
    }
}
