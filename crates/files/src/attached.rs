//! Who has which file attached.

use penstock_engine::NodeId;
use serde::{Deserialize, Serialize};

use crate::object::{FileShape, ObjectId};

/// A file that somebody has attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attached {
    pub(crate) file: ObjectId,
    pub(crate) owner: u32,
    pub(crate) shape: FileShape,
    pub(crate) attacher: Attacher,
}

/// One who has a file attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attacher {
    /// The program.
    pub program: u64,
    /// The node of the client.
    pub node: NodeId,
    /// Whether it may read.
    pub reads: bool,
    /// Whether it may write.
    pub writes: bool,
    /// Whether it has asked for reckless mode.
    pub is_reckless: bool,
}
