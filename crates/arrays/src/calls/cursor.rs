//! The position of a session in the groups that it has saved or restarted.

use std::sync::{Arc, Mutex};

/// The position of a session in one group.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    /// The group's own digits, and the number of timesteps that it must have; `None` before a save
    /// has opened the group.
    pub(super) seen: Option<(String, u64)>,
    /// The restart after which the next save drops newer moments.
    pub(super) restarted: Option<RestartPoint>,
}

/// The moment from which a session has restarted. The session's next save drops all later timesteps
/// and checkpoints.
#[derive(Debug, Clone, Copy)]
pub(super) struct RestartPoint {
    /// The number of the checkpoint; `None` if the group had none.
    pub(super) checkpoint: Option<u64>,
    /// The number of timesteps up to the checkpoint.
    pub(super) timesteps: u64,
}

/// A cursor that a session and its directors share.
pub(super) type SharedCursor = Arc<Mutex<Cursor>>;
