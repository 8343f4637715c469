//! The cache of a server: it keeps blocks in memory, and chooses the one to drop for another.
//!
//! This is bookkeeping alone: no disk, no messages. A block in use is pinned; of the other blocks
//! the one used least recently goes first (LRU), and a clean one before one with bytes to be
//! written.

use std::collections::BTreeMap;
use std::rc::Rc;

use penstock_layout::Block;
use rustc_hash::FxHashMap;

use crate::signal::Signal;

/// The name of a block is its object, and its number in the object.
pub(super) type Name = (u64, u64);

pub(super) fn name(block: &Block) -> Name {
    (block.object, block.index)
}

/// An entry is a block in memory.
pub(super) struct Entry<B> {
    pub(super) block: Rc<Block>,
    /// The block that follows on this disk, once somebody has looked.
    pub(super) next: Option<Option<Name>>,
    pub(super) buffer: Rc<B>,
    /// Whether the bytes have yet to come from the disk.
    pub(super) is_loading: bool,
    /// Whether the bytes are on their way to the disk.
    pub(super) is_writing: bool,
    /// Bytes that clients have put in since the last write.
    pub(super) dirty: u64,
    /// The signal for the end of loading and of writing.
    pub(super) changed: Rc<Signal>,
    /// The number that tells this stay of the block in memory from other stays.
    pub(super) stay: u64,
    pins: u32,
    used: u64,
}

/// The room for one more block says what must happen before the block can come into memory.
pub(super) enum Room<B> {
    /// A buffer that held another block is free.
    Old(Rc<B>),
    /// The cache may have one more buffer.
    New,
    /// The named block must be written first.
    Dirty(Name),
    /// All blocks are in use.
    None,
}

/// A cache holds blocks in memory.
pub(super) struct Cache<B> {
    capacity: usize,
    buffers: usize,
    uses: u64,
    entries: FxHashMap<Name, Entry<B>>,
    /// Unpinned blocks without bytes to be written, by the time of their last use.
    clean: BTreeMap<u64, Name>,
    dirty: BTreeMap<u64, Name>,
    free: Vec<Rc<B>>,
}

impl<B> Cache<B> {
    /// Makes an empty cache of at most `capacity` buffers.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            buffers: 0,
            uses: 0,
            entries: FxHashMap::default(),
            clean: BTreeMap::new(),
            dirty: BTreeMap::new(),
            free: Vec::new(),
        }
    }

    /// The most buffers.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The entry of a block, if the block is in memory.
    pub(super) fn get(&mut self, name: Name) -> Option<&mut Entry<B>> {
        self.entries.get_mut(&name)
    }

    /// Pins a block that is in memory, and returns the number of its stay and its signal.
    pub(super) fn pin(&mut self, name: Name) -> Option<(u64, Rc<Signal>)> {
        let entry = self.entries.get_mut(&name)?;
        if entry.pins == 0 {
            self.clean.remove(&entry.used);
            self.dirty.remove(&entry.used);
        }
        entry.pins += 1;
        Some((entry.stay, entry.changed.clone()))
    }

    /// Ends one use of a block.
    pub(super) fn unpin(&mut self, name: Name) {
        let Some(entry) = self.entries.get_mut(&name) else {
            return;
        };
        entry.pins -= 1;
        if entry.pins == 0 {
            self.uses += 1;
            entry.used = self.uses;
            let idle = match entry.dirty {
                0 => &mut self.clean,
                _ => &mut self.dirty,
            };
            idle.insert(self.uses, name);
        }
    }

    /// Finds room for one more block. The caller owns the old buffer, if that is the answer.
    pub(super) fn room(&mut self) -> Room<B> {
        if let Some(buffer) = self.free.pop() {
            return Room::Old(buffer);
        }
        if self.buffers < self.capacity {
            self.buffers += 1;
            return Room::New;
        }
        if let Some((_, name)) = self.clean.pop_first()
            && let Some(entry) = self.entries.remove(&name)
        {
            return Room::Old(entry.buffer);
        }
        match self.dirty.first_key_value() {
            Some((_, &name)) => Room::Dirty(name),
            None => Room::None,
        }
    }

    /// Puts a block in, pinned once.
    pub(super) fn insert(&mut self, block: Rc<Block>, buffer: Rc<B>, is_loading: bool) {
        self.uses += 1;
        let entry = Entry {
            block,
            next: None,
            buffer,
            is_loading,
            is_writing: false,
            dirty: 0,
            changed: Rc::default(),
            stay: self.uses,
            pins: 1,
            used: 0,
        };
        self.entries.insert(name(&entry.block), entry);
    }

    /// Forgets a pinned block, whose bytes are not to be trusted.
    pub(super) fn discard(&mut self, name: Name) {
        if let Some(entry) = self.entries.remove(&name) {
            self.free.push(entry.buffer);
        }
    }

    /// Gives back a [`Room::New`] of [`Cache::room`] for which there was no memory.
    pub(super) fn give_up_room(&mut self) {
        self.buffers -= 1;
    }

    /// The names of blocks that have bytes to be written, in the order of the file.
    pub(super) fn unwritten(&self) -> Vec<Name> {
        let dirty = self.entries.iter().filter(|(_, entry)| entry.dirty > 0);
        let mut names: Vec<Name> = dirty.map(|(&name, _)| name).collect();
        names.sort_unstable();
        names
    }
}
