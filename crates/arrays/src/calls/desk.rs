//! The desk of a session: what its directors share, on the node that directs.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use penstock_bucket::committed;
use penstock_layout::DiskSchema;

use super::cursor::{CursorUndo, SharedCursor};
use super::settings::Settings;
use crate::write::Updatable;

/// An array that the servers of the session keep open.
pub(super) struct OpenFile {
    /// The target, encoded for servers.
    pub(super) target: Vec<u8>,
    pub(super) disk: DiskSchema,
    /// The number of servers that have blocks of it.
    pub(super) servers: usize,
    pub(super) is_writable: bool,
    /// The right to change the array: others have it when this is dropped.
    #[expect(dead_code, reason = "it is kept until it is dropped")]
    pub(super) right: Option<Updatable>,
}

/// The desk of a session.
pub(super) struct Desk {
    pub(super) settings: Settings,
    /// The session's position in each group.
    cursors: Mutex<HashMap<PathBuf, SharedCursor>>,
    /// What may have to be undone, with the drafts of repositories in which it was done.
    kept: Mutex<Vec<(String, CursorUndo)>>,
    /// The open arrays, by their numbers.
    open: Mutex<BTreeMap<u64, OpenFile>>,
}

impl Desk {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            cursors: Mutex::default(),
            kept: Mutex::default(),
            open: Mutex::default(),
        }
    }

    /// The session's position in the group at `path`; of a draft, that in its repository.
    pub(super) fn cursor(&self, path: &Path) -> SharedCursor {
        let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        cursors.entry(committed(path)).or_default().clone()
    }

    /// Keeps what may have to be undone of a call to a draft that is not committed yet.
    pub(super) fn keep(&self, draft: &str, undo: CursorUndo) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push((draft.to_string(), undo));
    }

    /// Undoes what calls to other drafts than this one have done, which were given up.
    pub(super) fn undo_all_but(&self, draft: &str) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (own, others) = kept.drain(..).partition(|(name, _)| name == draft);
        *kept = own;
        let others: Vec<(String, CursorUndo)> = others;
        let latest_first = others.into_iter().rev();
        latest_first.for_each(|(_, undo)| undo.undo_later());
    }

    /// Forgets what calls to a draft have done: the draft is committed.
    pub(super) fn forget(&self, draft: &str) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(name, _)| name != draft);
    }

    /// The open arrays.
    pub(super) fn open(&self) -> MutexGuard<'_, BTreeMap<u64, OpenFile>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
