//! The cache of a node's servers: blocks of files in memory.
//!
//! This is bookkeeping alone: no disk, no messages. A counter of each block says how many of its
//! bytes clients have read or written. A block that they have had in part is *held*: the rest is
//! likely to be asked for soon. A block that they have had whole, once or several times, is to be
//! *replaced* first (Corbett and Feitelson, TOCS 1996, section 4.5):
//!
//! ```text
//! replaced first   whole, clean | whole, changed | in part, clean | in part, changed   last
//! ```
//!
//! Among blocks of one kind the one used least recently goes first. Blocks that somebody claims
//! stay.

use std::collections::BTreeMap;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// An entry is a block in memory.
struct Entry<V> {
    value: V,
    bytes: u64,
    /// Bytes that clients have read or written, modulo the block's.
    counted: u64,
    /// Whether clients have had all bytes of the block, and not a part of them again.
    is_whole: bool,
    /// Bytes that clients have put in since the block was written last.
    changed: u64,
    used: u64,
}

impl<V> Entry<V> {
    /// The kind of the block: kinds that are replaced first come first.
    fn kind(&self) -> usize {
        usize::from(!self.is_whole) * 2 + usize::from(self.changed > 0)
    }

    /// The bytes of the block, if it is changed.
    fn changed_bytes(&self) -> u64 {
        match self.changed {
            0 => 0,
            _ => self.bytes,
        }
    }
}

/// The room for one more block says what must happen before it can come in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room<K> {
    /// There is room, and it is the caller's.
    Taken,
    /// The named block must be written first.
    Changed(K),
    /// All blocks are in use.
    None,
}

/// A cache of blocks: `K` names one, and `V` holds its bytes.
pub(super) struct Cache<K, V> {
    bytes_max: u64,
    bytes: u64,
    /// The bytes of changed blocks.
    changed_bytes: u64,
    uses: u64,
    /// The blocks that have gone to make room.
    evictions: u64,
    entries: FxHashMap<K, Entry<V>>,
    /// The blocks of each [`Entry::kind`], by their last use.
    kinds: [BTreeMap<u64, K>; 4],
}

impl<K: Clone + Ord + Hash, V> Cache<K, V> {
    /// Makes an empty cache for at most `bytes_max` bytes. A block with more is alone in it.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            changed_bytes: 0,
            uses: 0,
            evictions: 0,
            entries: FxHashMap::default(),
            kinds: Default::default(),
        }
    }

    /// The bytes of the blocks in memory, and of the room that was taken for others.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes of changed blocks.
    pub(super) fn changed_bytes(&self) -> u64 {
        self.changed_bytes
    }

    /// The number of blocks that have gone to make room for others.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Changes an entry, and puts its block behind all others of its kind.
    fn update(&mut self, block: &K, change: impl FnOnce(&mut Entry<V>)) -> Option<&Entry<V>> {
        let entry = self.entries.get_mut(block)?;
        let name = self.kinds[entry.kind()].remove(&entry.used)?;
        self.changed_bytes -= entry.changed_bytes();
        change(entry);
        self.changed_bytes += entry.changed_bytes();
        self.uses += 1;
        entry.used = self.uses;
        self.kinds[entry.kind()].insert(entry.used, name);
        Some(entry)
    }

    /// Uses a block that is in memory.
    pub(super) fn get(&mut self, block: &K) -> Option<&V> {
        self.update(block, |_| ()).map(|entry| &entry.value)
    }

    /// A block that is in memory, without a use of it.
    pub(super) fn peek(&self, block: &K) -> Option<&V> {
        self.entries.get(block).map(|entry| &entry.value)
    }

    /// Notes that clients have read or written `bytes` bytes of a block.
    pub(super) fn count(&mut self, block: &K, bytes: u64) {
        self.update(block, |entry| {
            entry.counted = (entry.counted + bytes) % entry.bytes.max(1);
            entry.is_whole = entry.counted == 0;
        });
    }

    /// Lets a block be replaced as if clients had had all of it.
    pub(super) fn release(&mut self, block: &K) {
        self.update(block, |entry| (entry.counted, entry.is_whole) = (0, true));
    }

    /// Takes room for `bytes` bytes, for which clean blocks go that nobody claims.
    pub(super) fn room(&mut self, bytes: u64, is_claimed: impl Fn(&K) -> bool) -> Room<K> {
        while self.bytes > 0 && self.bytes + bytes > self.bytes_max {
            let idle = |kind: &BTreeMap<u64, K>| {
                let mut blocks = kind.values();
                blocks.find(|block| !is_claimed(block)).cloned()
            };
            let Some(block) = self.kinds.iter().find_map(idle) else {
                return Room::None;
            };
            if self.is_changed(&block) {
                return Room::Changed(block);
            }
            self.remove(&block);
            self.evictions += 1;
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
        let entry = Entry {
            value,
            bytes,
            counted: 0,
            is_whole: false,
            changed: 0,
            used: self.uses,
        };
        self.kinds[entry.kind()].insert(self.uses, block.clone());
        let former = self.entries.insert(block, entry);
        debug_assert!(former.is_none(), "a block that was in memory");
    }

    /// Notes that `bytes` bytes of a block have been put in, and gives all since it was written.
    pub(super) fn change(&mut self, block: &K, bytes: u64) -> u64 {
        let entry = self.update(block, |entry| entry.changed += bytes);
        entry.map_or(0, |entry| entry.changed)
    }

    /// Notes that a block has been written.
    pub(super) fn clean(&mut self, block: &K) {
        self.update(block, |entry| entry.changed = 0);
    }

    /// Changed blocks, those that would be replaced first at the front: those that must be written
    /// if only `bytes_max` bytes of changed blocks are to remain.
    pub(super) fn surplus(&self, bytes_max: u64) -> Vec<K> {
        let mut surplus = self.changed_bytes.saturating_sub(bytes_max);
        let [_, whole, _, in_part] = &self.kinds;
        let mut blocks = Vec::new();
        for block in whole.values().chain(in_part.values()) {
            if surplus == 0 {
                break;
            }
            let bytes = self.entries.get(block).map_or(0, |entry| entry.bytes);
            surplus = surplus.saturating_sub(bytes);
            blocks.push(block.clone());
        }
        blocks
    }

    /// Whether any block is changed.
    pub(super) fn has_changes(&self) -> bool {
        self.changed_bytes > 0
    }

    /// The bytes that the cache may hold.
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Whether a block has bytes to be written.
    pub(super) fn is_changed(&self, block: &K) -> bool {
        self.entries
            .get(block)
            .is_some_and(|entry| entry.changed > 0)
    }

    /// Drops a block.
    pub(super) fn remove(&mut self, block: &K) -> Option<V> {
        let entry = self.entries.remove(block)?;
        self.bytes -= entry.bytes;
        self.changed_bytes -= entry.changed_bytes();
        self.kinds[entry.kind()].remove(&entry.used);
        Some(entry.value)
    }

    /// The blocks that satisfy `is_wanted`, in order.
    pub(super) fn blocks(&self, is_wanted: impl Fn(&K) -> bool) -> Vec<K> {
        let wanted = self.entries.keys().filter(|block| is_wanted(block));
        let mut blocks: Vec<K> = wanted.cloned().collect();
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
        assert_eq!(cache.change(&2, 4), 4);
        assert_eq!(cache.change(&2, 3), 7);
        assert_eq!(cache.room(10, NOBODY), Room::Taken);
        cache.insert(4, "four", 10);
        assert_eq!(cache.blocks(|_| true), [1, 2, 4]);
        assert_eq!(cache.room(20, NOBODY), Room::Taken);
        cache.insert(5, "five", 20);
        assert_eq!(cache.blocks(|_| true), [2, 5]);
        assert_eq!(cache.room(30, NOBODY), Room::Changed(2));
        cache.clean(&2);
        assert!(!cache.is_changed(&2));
        assert_eq!(cache.evictions(), 4);
        assert_eq!(cache.room(40, NOBODY), Room::Taken, "alone");
        assert_eq!((cache.bytes(), cache.peek(&2)), (40, None));
        cache.give_back(40);
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn a_block_that_clients_have_had_whole_goes_before_one_of_which_they_had_a_part() {
        let mut cache = filled();
        cache.count(&2, 6);
        cache.count(&2, 4); // whole
        cache.count(&3, 10);
        cache.count(&3, 1); // whole, and a part again
        cache.get(&2);
        assert_eq!(cache.room(10, NOBODY), Room::Taken);
        assert_eq!(cache.blocks(|_| true), [1, 3], "2 was whole");
        cache.count(&1, 10);
        cache.change(&1, 10);
        assert_eq!(cache.room(10, NOBODY), Room::Changed(1));
    }

    #[test]
    fn surplus_changes_are_those_that_go_first() {
        let mut cache = filled();
        assert_eq!(cache.surplus(0), [0; 0]);
        for block in [3, 1, 2] {
            cache.change(&block, 10);
            cache.change(&block, 1);
        }
        assert_eq!(cache.surplus(30), [0; 0]);
        assert_eq!(cache.surplus(29), [3]);
        cache.count(&2, 10); // whole
        assert_eq!(cache.surplus(11), [2, 3]);
        assert_eq!(cache.surplus(0), [2, 3, 1]);
        cache.clean(&3);
        cache.clean(&3);
        cache.remove(&2);
        assert_eq!((cache.surplus(0), cache.surplus(10)), (vec![1], vec![]));
        cache.remove(&1);
        assert_eq!(cache.surplus(0), [0; 0]);
    }

    #[test]
    fn a_block_that_is_claimed_stays() {
        let mut cache = filled();
        assert_eq!(cache.room(10, |&block| block == 1), Room::Taken);
        assert_eq!(cache.blocks(|_| true), [1, 3]);
        cache.change(&3, 1);
        assert_eq!(cache.room(10, |&block| block == 1), Room::Changed(3));
        assert_eq!(cache.room(10, |_| true), Room::None);
    }
}
