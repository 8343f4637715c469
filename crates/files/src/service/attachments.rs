//! Who has which file attached.

use std::collections::BTreeMap;

use penstock_engine::NodeId;

use crate::attached::{Attached, Attacher};
use crate::object::{FileShape, ObjectId};
use crate::placement::Placement;
use crate::rights::Right;

/// The attachments of the files whose objects a server keeps, by their keys and the nodes of their
/// clients.
pub(crate) struct Attachments {
    by_key: BTreeMap<(u64, NodeId), (ObjectId, Attacher)>,
    /// The owners and structures of files that are attached, or were.
    files: BTreeMap<ObjectId, (u32, FileShape)>,
    next: u64,
}

impl Attachments {
    /// Makes attachments with keys from `first` on.
    pub(crate) fn new(first: u64) -> Self {
        Self {
            by_key: BTreeMap::new(),
            files: BTreeMap::new(),
            next: first,
        }
    }

    /// Adds attachments of different clients, which get one key.
    pub(crate) fn add(
        &mut self,
        (file, owner, shape): (ObjectId, u32, FileShape),
        attachers: impl IntoIterator<Item = Attacher>,
    ) -> u64 {
        self.next += 1;
        self.files.insert(file, (owner, shape));
        let added = attachers.into_iter();
        self.by_key
            .extend(added.map(|one| ((self.next, one.node), (file, one))));
        self.next
    }

    /// The attachments of some files, with their keys.
    pub(crate) fn of_files(&self, is_meant: impl Fn(ObjectId) -> bool) -> Vec<(u64, Attached)> {
        let all = self.by_key.iter();
        let meant = all.filter(|(_, (file, _))| is_meant(*file));
        let attached = meant.filter_map(|(&(key, _), &(file, attacher))| {
            let (owner, shape) = *self.files.get(&file)?;
            let attached = Attached {
                file,
                owner,
                shape,
                attacher,
            };
            Some((key, attached))
        });
        attached.collect()
    }

    /// Forgets attachments, which another server has taken in.
    pub(crate) fn hand_over(&mut self, attached: &[(u64, Attached)]) {
        for (key, attached) in attached {
            self.by_key.remove(&(*key, attached.attacher.node));
        }
    }

    /// Takes in attachments of another server.
    pub(crate) fn take_in(&mut self, others: &[(u64, Attached)]) {
        for (key, attached) in others {
            let Attached {
                file,
                owner,
                shape,
                attacher,
            } = *attached;
            self.files.insert(file, (owner, shape));
            self.by_key.insert((*key, attacher.node), (file, attacher));
        }
    }

    /// Notes that a file moves.
    pub(crate) fn move_to(&mut self, file: ObjectId, placement: Placement) {
        if let Some((_, shape)) = self.files.get_mut(&file) {
            shape.placement = placement;
        }
    }

    /// Ends the attachment of one client.
    pub(crate) fn remove(&mut self, key: u64, node: NodeId) {
        self.by_key.remove(&(key, node));
    }

    /// Ends all attachments of a node.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.by_key.retain(|_, (_, attacher)| attacher.node != node);
    }

    pub(crate) fn of(&self, file: ObjectId) -> impl Iterator<Item = &Attacher> {
        let all = self.by_key.values();
        all.filter(move |(id, _)| *id == file).map(|(_, one)| one)
    }

    /// What a client may do with a file: all for which it has attached it.
    pub(crate) fn right(&self, file: ObjectId, client: NodeId) -> Option<Right> {
        let (owner, shape) = *self.files.get(&file)?;
        let own = self.of(file).filter(|one| one.node == client);
        let rights = own.map(|one| Right {
            reads: one.reads,
            writes: one.writes,
            owner,
            shape,
        });
        rights.reduce(|one, other| Right {
            reads: one.reads || other.reads,
            writes: one.writes || other.writes,
            ..one
        })
    }

    /// Whether several programs use a file, and one of them writes.
    pub(crate) fn is_shared(&self, file: ObjectId) -> bool {
        let mut programs: Vec<_> = self.of(file).map(|one| one.program).collect();
        programs.sort_unstable();
        programs.dedup();
        programs.len() > 1 && self.of(file).any(|one| one.writes)
    }
}
