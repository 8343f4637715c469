//! Who has which file attached.

use std::collections::BTreeMap;

use penstock_engine::NodeId;

use crate::messages::Attacher;
use crate::object::ObjectId;

/// The attachments of the files whose objects a server keeps, by their keys.
#[derive(Default)]
pub(crate) struct Attachments {
    by_key: BTreeMap<u64, (ObjectId, Attacher)>,
    next: u64,
}

impl Attachments {
    pub(crate) fn add(&mut self, file: ObjectId, attacher: Attacher) -> u64 {
        self.next += 1;
        self.by_key.insert(self.next, (file, attacher));
        self.next
    }

    pub(crate) fn remove(&mut self, key: u64) {
        self.by_key.remove(&key);
    }

    /// Ends all attachments of a node.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.by_key.retain(|_, (_, attacher)| attacher.node != node);
    }

    pub(crate) fn of(&self, file: ObjectId) -> impl Iterator<Item = &Attacher> {
        let all = self.by_key.values();
        all.filter(move |(id, _)| *id == file).map(|(_, one)| one)
    }

    /// Whether several programs use a file, and one of them writes.
    pub(crate) fn is_shared(&self, file: ObjectId) -> bool {
        let mut programs: Vec<_> = self.of(file).map(|one| one.program).collect();
        programs.sort_unstable();
        programs.dedup();
        programs.len() > 1 && self.of(file).any(|one| one.writes)
    }
}
