//! What the event loops of a mount share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use penstock_files::job::FileSystem;

use crate::open::{OpenData, OpenDirectory};
use crate::tree::Tree;

/// The most bytes of a read or a write of the kernel.
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// What the event loops of a mount share.
pub(crate) struct Mount {
    pub(crate) fs: Arc<FileSystem>,
    pub(crate) cached: Duration,
    pub(crate) tree: Tree,
    /// Held by those who give objects other paths, and waited for by those who do not find one.
    pub(crate) renames: RwLock<()>,
    pub(crate) files: RwLock<HashMap<u64, Arc<OpenData>>>,
    pub(crate) directories: RwLock<HashMap<u64, Arc<Mutex<OpenDirectory>>>>,
    pub(crate) next_handle: AtomicU64,
}

impl Mount {
    /// Makes the state of a mount that nobody uses yet.
    pub(crate) fn new(fs: Arc<FileSystem>, cached: Duration) -> Self {
        Self {
            fs,
            cached,
            tree: Tree::default(),
            renames: RwLock::default(),
            files: RwLock::default(),
            directories: RwLock::default(),
            next_handle: AtomicU64::new(1),
        }
    }

    /// A number that no open file or directory has.
    pub(crate) fn new_handle(&self) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }
}
