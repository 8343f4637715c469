//! What a server has taken over of files that are to move to it.

use penstock_engine::NodeId;
use rustc_hash::FxHashMap;

use crate::volume::cells::Stored;

/// What a server has taken over of a file, by the cell, and the place and checksum that it has on
/// its former server.
pub(crate) struct Taken {
    /// The server that directs the move.
    pub(super) director: NodeId,
    pub(super) blocks: FxHashMap<(u64, u64, u32), Stored>,
}
