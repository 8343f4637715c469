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

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::FilePath;
use crate::object::{Attributes, ObjectId};

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
    /// Whether the object is an Xref.
    pub is_xref: bool,
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
    /// The file is another user's.
    GiveTo(u32),
    /// The file goes.
    Remove,
}

/// The attributes that change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) mode: Option<u16>,
    pub(crate) owner: Option<u32>,
    pub(crate) group: Option<u32>,
    /// Whether there is one more checkpoint.
    pub(crate) is_checkpoint: bool,
    pub(crate) changed: u64,
}

/// A step of a transaction: what one server does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// An object comes to its path, where there is none. An Xref comes with its entries.
    Add(Attributes, Vec<(String, Entry)>),
    /// The object at a path gets other attributes.
    Change {
        path: FilePath,
        id: ObjectId,
        settings: Settings,
    },
    /// An object goes from its path: it is removed, or another step adds it at another path. An
    /// Xref must have these entries: none if it is removed.
    Drop {
        path: FilePath,
        id: ObjectId,
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
    },
    /// The cells of a file change: the file, its owner, and its cells on this server.
    Cells {
        file: ObjectId,
        owner: u32,
        change: FileChange,
        cells: Vec<u64>,
    },
    /// A user may have this number of blocks on all servers, or any number.
    Limit { user: u32, blocks: Option<u64> },
}

impl Step {
    /// The entry that the step is about: its Xref, and its name.
    pub(crate) fn entry(&self) -> Option<(&FilePath, &str)> {
        match self {
            Self::Link { parent, name, .. } | Self::Unlink { parent, name, .. } => {
                Some((parent, name))
            }
            _ => None,
        }
    }

    /// The path of the object that the step is about, and whether nobody else may use the object
    /// meanwhile.
    pub(crate) fn lock(&self) -> Option<(&FilePath, bool)> {
        match self {
            Self::Add(object, _) => Some((&object.path, true)),
            Self::Change { path, .. } | Self::Drop { path, .. } => Some((path, true)),
            Self::Link { parent, .. } | Self::Unlink { parent, .. } => Some((parent, false)),
            Self::Cells { .. } | Self::Limit { .. } => None,
        }
    }
}
