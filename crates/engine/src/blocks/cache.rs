//! The cache of a node's servers: blocks of open files in memory.
//!
//! This is bookkeeping alone: no disk, no messages. When a block is to come in and the cache has no
//! room, the block used least recently goes (LRU), and a clean one before one with bytes to be
//! written. Blocks that somebody claims stay.

use std::collections::BTreeMap;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// An entry is a block in memory.
struct Entry<V> {
    value: V,
    bytes: u64,
    /// Bytes that clients have put in since the block was written last.
    dirty: u64,
    used: u64,
}

/// The room for one more block says what must happen before it can come in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room<K> {
    /// There is room, and it is the caller's.
    Taken,
    /// The named block must be written first.
    Dirty(K),
    /// All blocks are in use.
    None,
}

/// A cache of blocks: `K` names one, and `V` holds its bytes.
pub(super) struct Cache<K, V> {
    bytes_max: u64,
    bytes: u64,
    uses: u64,
    entries: FxHashMap<K, Entry<V>>,
    clean: BTreeMap<u64, K>,
    dirty: BTreeMap<u64, K>,
}

impl<K: Copy + Ord + Hash, V> Cache<K, V> {
    /// Makes an empty cache for at most `bytes_max` bytes. A block with more is alone in it.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            uses: 0,
            entries: FxHashMap::default(),
            clean: BTreeMap::new(),
            dirty: BTreeMap::new(),
        }
    }

    /// The bytes of the blocks in memory, and of the room that was taken for others.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Uses a block that is in memory.
    pub(super) fn get(&mut self, block: &K) -> Option<&V> {
        let entry = self.entries.get_mut(block)?;
        let order = match entry.dirty {
            0 => &mut self.clean,
            _ => &mut self.dirty,
        };
        order.remove(&entry.used);
        self.uses += 1;
        entry.used = self.uses;
        order.insert(entry.used, *block);
        Some(&entry.value)
    }

    /// A block that is in memory, without a use of it.
    pub(super) fn peek(&self, block: &K) -> Option<&V> {
        self.entries.get(block).map(|entry| &entry.value)
    }

    /// Takes room for `bytes` bytes, for which clean blocks go that nobody claims.
    pub(super) fn room(&mut self, bytes: u64, is_claimed: impl Fn(&K) -> bool) -> Room<K> {
        while self.bytes > 0 && self.bytes + bytes > self.bytes_max {
            let idle = |order: &BTreeMap<u64, K>| {
                let mut blocks = order.values();
                blocks.find(|block| !is_claimed(block)).copied()
            };
            match idle(&self.clean) {
                Some(block) => drop(self.remove(&block)),
                None => return idle(&self.dirty).map_or(Room::None, Room::Dirty),
            }
        }
        self.bytes += bytes;
        Room::Taken
    }

    /// Gives back room that was taken and not used.
    pub(super) fn give_back(&mut self, bytes: u64) {
        self.bytes -= bytes;
    }

    /// Puts a clean block in for which room was taken.
    pub(super) fn insert(&mut self, block: K, value: V, bytes: u64) {
        self.uses += 1;
        self.clean.insert(self.uses, block);
        let entry = Entry {
            value,
            bytes,
            dirty: 0,
            used: self.uses,
        };
        let former = self.entries.insert(block, entry);
        debug_assert!(former.is_none(), "a block that was in memory");
    }

    /// Notes that `bytes` bytes of a block have been put in, and gives all since it was written.
    pub(super) fn soil(&mut self, block: &K, bytes: u64) -> u64 {
        let Some(entry) = self.entries.get_mut(block) else {
            return 0;
        };
        if entry.dirty == 0 {
            self.clean.remove(&entry.used);
            self.dirty.insert(entry.used, *block);
        }
        entry.dirty += bytes;
        entry.dirty
    }

    /// Notes that a block has been written.
    pub(super) fn clean(&mut self, block: &K) {
        if let Some(entry) = self.entries.get_mut(block)
            && std::mem::take(&mut entry.dirty) > 0
        {
            self.dirty.remove(&entry.used);
            self.clean.insert(entry.used, *block);
        }
    }

    /// Whether a block has bytes to be written.
    pub(super) fn is_dirty(&self, block: &K) -> bool {
        self.entries.get(block).is_some_and(|entry| entry.dirty > 0)
    }

    /// Drops a block.
    pub(super) fn remove(&mut self, block: &K) -> Option<V> {
        let entry = self.entries.remove(block)?;
        self.bytes -= entry.bytes;
        self.clean.remove(&entry.used);
        self.dirty.remove(&entry.used);
        Some(entry.value)
    }

    /// The blocks that satisfy `is_wanted`, in order.
    pub(super) fn blocks(&self, is_wanted: impl Fn(&K) -> bool) -> Vec<K> {
        let wanted = self.entries.keys().filter(|block| is_wanted(block));
        let mut blocks: Vec<K> = wanted.copied().collect();
        blocks.sort_unstable();
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: fn(&u32) -> bool = |_| false;

    fn filled() -> Cache<u32, &'static str> {
        let mut cache = Cache::new(30);
        for (block, value) in [(1, "one"), (2, "two"), (3, "three")] {
            assert_eq!(cache.room(10, NOBODY), Room::Taken);
            cache.insert(block, value, 10);
        }
        cache
    }

    #[test]
    fn the_block_used_least_recently_goes_and_a_clean_one_first() {
        let mut cache = filled();
        assert_eq!(cache.get(&1), Some(&"one"));
        assert_eq!(cache.soil(&2, 4), 4);
        assert_eq!(cache.soil(&2, 3), 7);
        assert_eq!(cache.room(10, NOBODY), Room::Taken);
        cache.insert(4, "four", 10);
        assert_eq!(cache.blocks(|_| true), [1, 2, 4]);
        assert_eq!(cache.room(20, NOBODY), Room::Taken);
        cache.insert(5, "five", 20);
        assert_eq!(cache.blocks(|_| true), [2, 5]);
        assert_eq!(cache.room(30, NOBODY), Room::Dirty(2));
        cache.clean(&2);
        assert!(!cache.is_dirty(&2));
        assert_eq!(cache.room(40, NOBODY), Room::Taken, "alone");
        assert_eq!((cache.bytes(), cache.peek(&2)), (40, None));
        cache.give_back(40);
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn a_block_that_is_claimed_stays() {
        let mut cache = filled();
        assert_eq!(cache.room(10, |&block| block == 1), Room::Taken);
        assert_eq!(cache.blocks(|_| true), [1, 3]);
        cache.soil(&3, 1);
        assert_eq!(cache.room(10, |&block| block == 1), Room::Dirty(3));
        assert_eq!(cache.room(10, |_| true), Room::None);
    }
}
