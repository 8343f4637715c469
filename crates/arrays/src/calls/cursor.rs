//! What a session remembers of the groups that it has saved or restarted.

use std::sync::{Arc, Mutex};

/// Where a session stands in a group.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    /// The group's own digits, and how many timesteps it must have; `None` as long as nobody has
    /// looked.
    pub(super) seen: Option<(String, u64)>,
    /// After a restart: what came after it is to be dropped.
    pub(super) restarted: Option<RestartPoint>,
}

/// Where a session has restarted: with its next save, all that came later is of a future that is no
/// more.
#[derive(Debug, Clone, Copy)]
pub(super) struct RestartPoint {
    /// The checkpoint's number; `None` where there was none.
    pub(super) checkpoint: Option<u64>,
    /// How many timesteps there were.
    pub(super) timesteps: u64,
}

/// What a session knows of a group.
pub(super) type SharedCursor = Arc<Mutex<Cursor>>;
