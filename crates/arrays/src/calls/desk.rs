//! The desk of a session: what its directors share, on the node that directs.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use penstock_layout::DiskSchema;

use super::cursor::SharedCursor;
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
    /// The open arrays, by their numbers.
    open: Mutex<BTreeMap<u64, OpenFile>>,
}

impl Desk {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            cursors: Mutex::default(),
            open: Mutex::default(),
        }
    }

    /// The session's position in the group at `path`.
    pub(super) fn cursor(&self, path: &Path) -> SharedCursor {
        let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        cursors.entry(path.to_path_buf()).or_default().clone()
    }

    /// The open arrays.
    pub(super) fn open(&self) -> MutexGuard<'_, BTreeMap<u64, OpenFile>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
