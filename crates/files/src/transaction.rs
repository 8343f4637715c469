//! Transactions: operations of several phases on several servers.
//!
//! One server directs a transaction, and each other that has a part in it prepares its part, and
//! carries it out when the director has decided (two-phase commit; what is not decided is undone).
//! The director does its own steps with the decision, in one commit:
//!
//! ```text
//! director   prepare ->   <- vote | commit own steps, "decided" | decide ->   <- done
//! others      locks, checks, commit "prepared"                    carry out, commit
//! ```
//!
//! Clients only ask: one that dies in the middle leaves nothing half done (section 6.1 of the paper
//! regrets that Vesta's clients were trusted with phases). A server that has prepared a part and
//! hears nothing, or that starts and finds one prepared, asks the director whether it was decided.
//! A part of a server that is lost after the decision is carried out when that is back.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::attached::Attached;
use crate::names::{FilePath, Keepers};
use crate::object::{Attributes, EntryKind, FileShape, ObjectId};
use crate::placement::{Placement, Rings};
use crate::volume::moved::MovedPart;

/// The identity of a transaction, never used twice in a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TransactionId {
    /// The server that directs the transaction.
    pub server: usize,
    /// The transaction's number among those of the server.
    pub number: u64,
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {} of server {}", self.number, self.server)
    }
}

/// An entry of an Xref.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The identity of the object.
    pub id: ObjectId,
    /// The kind of the object.
    pub kind: EntryKind,
}

impl Entry {
    /// The entry of an object.
    pub(crate) fn of(object: &Attributes) -> Self {
        Self {
            id: object.id,
            kind: object.kind.entry(),
        }
    }

    /// Whether the object is an Xref.
    pub fn is_xref(&self) -> bool {
        self.kind == EntryKind::Xref
    }
}

/// A change of a whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileChange {
    /// The active version becomes the checkpoint, too.
    Checkpoint,
    /// The checkpoint becomes the active version, too.
    RollBack,
    /// Each cell gets this number of bytes.
    Resize(u64),
    /// The file has this number of bytes in canonical order: each cell gets those of its BSUs.
    Truncate(u64),
    /// The file is another user's.
    GiveTo(u32),
    /// Some cells go to other servers, and the file has this placement then.
    Move(Placement),
    /// The file goes.
    Remove,
}

impl FileChange {
    /// The new end of a cell; nothing if the change leaves ends alone.
    pub(crate) fn end_of(self, cell: u64, shape: &FileShape) -> Option<u64> {
        match self {
            Self::Resize(bytes) => Some(bytes),
            Self::Truncate(bytes) => Some(shape.cell_end(cell, bytes)),
            Self::Checkpoint | Self::RollBack | Self::GiveTo(_) | Self::Move(_) | Self::Remove => {
                None
            }
        }
    }

    /// Whether cells get other ends.
    pub(crate) fn is_resize(self) -> bool {
        matches!(self, Self::Resize(_) | Self::Truncate(_))
    }
}

/// A new time of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewTime {
    /// The time at which the server sets it. Who may write the object may do so.
    Now,
    /// A time in nanoseconds since 1970. Only the owner may.
    At(u64),
}

impl NewTime {
    fn at(self, now: u64) -> u64 {
        match self {
            Self::Now => now,
            Self::At(time) => time,
        }
    }
}

/// What becomes of an object at whose path another one is to come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Replacement {
    /// It stays, and the other does not come.
    Refused,
    /// It is removed: a file, a symbolic link, or an empty Xref.
    Removed,
    /// It gets this path, if it is a file or a symbolic link; an empty Xref is removed.
    Moved(FilePath),
}

/// New attributes of an object. What is `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewAttributes {
    /// The mode.
    pub mode: Option<u16>,
    /// The number of the owner.
    pub owner: Option<u32>,
    /// The number of the group.
    pub group: Option<u32>,
    /// The time of the last access.
    pub accessed: Option<NewTime>,
    /// The time of the last change of the contents.
    pub modified: Option<NewTime>,
    /// The name of an extended attribute, and its value, or nothing if it goes.
    pub extended: Option<(String, Option<Vec<u8>>)>,
}

impl NewAttributes {
    /// Whether only who owns the object may set them.
    pub(crate) fn are_the_owners(&self) -> bool {
        let is_at = |time: &Option<NewTime>| matches!(time, Some(NewTime::At(_)));
        self.mode.is_some()
            || self.owner.or(self.group).is_some()
            || is_at(&self.accessed)
            || is_at(&self.modified)
    }
}

/// The attributes that change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) new: NewAttributes,
    /// Whether there is one more checkpoint.
    pub(crate) is_checkpoint: bool,
    pub(crate) changed: u64,
}

impl Settings {
    /// Gives an object its new attributes.
    pub(crate) fn apply(self, object: &mut Attributes) {
        let (new, now) = (self.new, self.changed);
        object.mode = new.mode.unwrap_or(object.mode);
        object.owner = new.owner.unwrap_or(object.owner);
        object.group = new.group.unwrap_or(object.group);
        object.accessed = new.accessed.map_or(object.accessed, |time| time.at(now));
        if let Some(time) = new.modified {
            (object.modified, object.settled) = (time.at(now), now);
        }
        match new.extended {
            Some((name, Some(value))) => drop(object.extended.insert(name, value)),
            Some((name, None)) => drop(object.extended.remove(&name)),
            None => {}
        }
        object.checkpoints += u64::from(self.is_checkpoint);
        object.changed = now;
    }
}

/// A step of a transaction: what one server does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// An object comes to its path, where there is none. An Xref comes with its entries.
    Add(Attributes, Vec<(String, Entry)>),
    /// The object at a path, a file with this placement, gets other attributes.
    Change {
        path: FilePath,
        id: ObjectId,
        placement: Option<Placement>,
        settings: Settings,
    },
    /// An object goes from its path: it is removed, or another step adds it at another path. An
    /// Xref must have these entries: none if it is removed. What moves must not have been changed
    /// since the time that is given; a file must have this placement.
    Drop {
        path: FilePath,
        id: ObjectId,
        changed: u64,
        placement: Option<Placement>,
        entries: Vec<(String, Entry)>,
        is_move: bool,
    },
    /// An Xref gets an entry.
    Link {
        parent: FilePath,
        name: String,
        entry: Entry,
    },
    /// An Xref loses an entry.
    Unlink {
        parent: FilePath,
        name: String,
        id: ObjectId,
        /// The owner of the object.
        owner: u32,
    },
    /// The cells of a file change: the file, its owner, and its cells on this server.
    Cells {
        file: ObjectId,
        owner: u32,
        shape: FileShape,
        change: FileChange,
        cells: Vec<u64>,
        /// The cells that come here from other servers.
        come: MovedPart,
    },
    /// The cells of a file go to other servers.
    Place {
        path: FilePath,
        id: ObjectId,
        former: Placement,
        placement: Placement,
    },
    /// Another server keeps a slot from now on. It takes over who has files of the slot attached.
    Keep {
        slot: usize,
        from: usize,
        to: usize,
        attached: Vec<(u64, Attached)>,
        all: Members,
    },
    /// The volume gets a ring of servers, with this number.
    Ring {
        ring: u32,
        servers: Vec<usize>,
        all: Members,
    },
    /// A server comes to the volume: it has the rings, the keepers of slots and the quotas as these
    /// are at the server that directs, once they have not changed.
    Come {
        rings: Rings,
        keepers: Keepers,
        quotas: BTreeMap<u32, u64>,
        is_new: bool,
        all: Members,
    },
    /// No file is in a ring before this one.
    Retire { ring: u32, all: Members },
    /// A user may have this number of blocks on all servers, or any number.
    Limit {
        user: u32,
        blocks: Option<u64>,
        all: Members,
    },
}

/// What a step about all members of a volume was planned for. Such steps are done one at a time if
/// they change who is a member, and none of the others meanwhile: each server locks its root, or
/// the path that would be that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Members {
    /// The members.
    pub(crate) servers: Vec<usize>,
    pub(crate) root: FilePath,
}

impl Step {
    /// An object goes from its path: see [`Step::Drop`].
    pub(crate) fn drop_of(
        object: &Attributes,
        entries: Vec<(String, Entry)>,
        is_move: bool,
    ) -> Self {
        Self::Drop {
            path: object.path.clone(),
            id: object.id,
            changed: object.changed,
            placement: object.placement(),
            entries,
            is_move,
        }
    }

    /// The entry that the step is about: its Xref, and its name.
    pub(crate) fn entry(&self) -> Option<(&FilePath, &str)> {
        match self {
            Self::Link { parent, name, .. } | Self::Unlink { parent, name, .. } => {
                Some((parent, name))
            }
            _ => None,
        }
    }

    /// The members for which the step was planned, if it is one of them all.
    pub(crate) fn members(&self) -> Option<&Members> {
        match self {
            Self::Ring { all, .. }
            | Self::Come { all, .. }
            | Self::Retire { all, .. }
            | Self::Keep { all, .. }
            | Self::Limit { all, .. } => Some(all),
            _ => None,
        }
    }

    /// The path of the object that the step is about, and whether nobody else may use the object
    /// meanwhile.
    pub(crate) fn lock(&self) -> Option<(&FilePath, bool)> {
        match self {
            Self::Add(object, _) => Some((&object.path, true)),
            Self::Change { path, .. } | Self::Drop { path, .. } | Self::Place { path, .. } => {
                Some((path, true))
            }
            Self::Link { parent, .. } | Self::Unlink { parent, .. } => Some((parent, false)),
            Self::Ring { all, .. } | Self::Come { all, .. } | Self::Retire { all, .. } => {
                Some((&all.root, true))
            }
            Self::Keep { all, .. } | Self::Limit { all, .. } => Some((&all.root, false)),
            Self::Cells { .. } => None,
        }
    }
}
