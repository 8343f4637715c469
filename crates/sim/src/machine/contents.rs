//! The contents of a disk: what its blocks hold, and what they hold after a crash.
//!
//! A write is safe once its file has been finished and synced. Of a block that was written since
//! then, the disk also keeps what it held at the last sync:
//!
//! ```text
//! write A | finish | write B | write C | crash    A is left, or C, or sectors of C and then of A
//! ```
//!
//! A write under way at the crash has left the block alone.

use std::collections::{BTreeMap, HashMap};

use penstock_layout::exact;

use crate::random::Random;

/// The bytes that a disk writes whole, or not at all.
pub(crate) const SECTOR_BYTES: usize = 512;

/// The name of a block on a disk: the number of its file, its object, and its index there.
pub(crate) type BlockName = (usize, u64, u64);

/// The contents of a disk.
#[derive(Default)]
pub(crate) struct Contents {
    stored: HashMap<BlockName, Vec<u8>>,
    /// What each block that was written since held at its file's last sync: nothing, if it had
    /// never been written.
    synced: BTreeMap<BlockName, Option<Vec<u8>>>,
}

impl Contents {
    /// The bytes of a block, if it was written.
    pub(crate) fn get(&self, name: BlockName) -> Option<&[u8]> {
        self.stored.get(&name).map(Vec::as_slice)
    }

    /// Puts bytes into a block of `bytes` bytes, from byte `at` on.
    pub(crate) fn put(&mut self, name: BlockName, at: u64, data: Option<&[u8]>, bytes: u64) {
        let Some(data) = data else { return };
        let stored = &mut self.stored;
        let synced = self.synced.entry(name);
        synced.or_insert_with(|| stored.get(&name).cloned());
        let block = stored.entry(name).or_default();
        block.resize(exact::<usize>(bytes), 0);
        let at = exact::<usize>(at);
        block[at..at + data.len()].copy_from_slice(data);
    }

    /// Makes the writes to a file safe.
    pub(crate) fn sync(&mut self, file: usize) {
        self.synced.retain(|(of_file, ..), _| *of_file != file);
    }

    /// Loses writes that are not safe, or all but their first sectors, or none, by chance.
    pub(crate) fn crash(&mut self, random: &mut Random) {
        for (name, old) in std::mem::take(&mut self.synced) {
            let Some(block) = self.stored.get_mut(&name) else {
                continue;
            };
            let sectors = block.len().div_ceil(SECTOR_BYTES);
            let kept = match random.below(3) {
                0 => 0,
                1 => sectors,
                _ => exact::<usize>(random.below(sectors as u64 + 1)),
            };
            let kept = block.len().min(kept * SECTOR_BYTES);
            if old.is_none() && kept == 0 {
                self.stored.remove(&name);
                continue;
            }
            let mut old = old.unwrap_or_default();
            old.resize(block.len(), 0);
            block[kept..].copy_from_slice(&old[kept..]);
        }
    }
}
