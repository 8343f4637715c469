//! The position of a session in the groups that it has saved or restarted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The position of a session in one group.
#[derive(Debug, Clone, Default)]
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

/// What a call that failed, or was given up, has done to a cursor, to be undone.
pub(super) struct CursorUndo {
    cursor: SharedCursor,
    former: Cursor,
}

impl CursorUndo {
    /// Remembers where a cursor is before a call.
    pub(super) fn new(cursor: SharedCursor) -> Self {
        let former = lock(&cursor).clone();
        Self { cursor, former }
    }

    /// Moves the cursor back.
    pub(super) fn undo(self) {
        *lock(&self.cursor) = self.former;
    }

    /// Moves the cursor back, unless the session has restarted since.
    pub(super) fn undo_later(self) {
        if lock(&self.cursor).restarted.is_none() {
            self.undo();
        }
    }
}

fn lock(cursor: &SharedCursor) -> MutexGuard<'_, Cursor> {
    cursor.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cursor that a session and its directors share.
pub(super) type SharedCursor = Arc<Mutex<Cursor>>;
