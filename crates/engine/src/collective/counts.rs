//! The calls that servers which stand have directed, in numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The calls of one kind that have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindOfCall {
    /// Their number.
    pub count: u64,
    /// Those that have failed.
    pub failed: u64,
    /// The nanoseconds of all, from the coming of rank 0 to the verdict.
    pub ns: u64,
    /// The bytes of the blocks that were read from disks, or written to them.
    pub disk_bytes: u64,
}

/// All calls that one process has directed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCounts {
    /// The calls that have ended, by kind.
    pub kinds: BTreeMap<String, KindOfCall>,
    /// The calls under way that need their clients.
    pub open: u64,
    /// The calls under way that have been handed over, and whose clients are there.
    pub handed_over: u64,
    /// The calls under way that have been handed over, and that a client has left.
    pub left: u64,
}

impl KindOfCall {
    /// Adds the calls of another process.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.failed += other.failed;
        self.ns = self.ns.saturating_add(other.ns);
        self.disk_bytes = self.disk_bytes.saturating_add(other.disk_bytes);
    }

    /// What has come since an earlier count of the same process.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(before.count),
            failed: self.failed.saturating_sub(before.failed),
            ns: self.ns.saturating_sub(before.ns),
            disk_bytes: self.disk_bytes.saturating_sub(before.disk_bytes),
        }
    }
}

impl CallCounts {
    /// Adds the calls of another process.
    pub fn add(&mut self, other: &Self) {
        for (kind, more) in &other.kinds {
            self.kinds.entry(kind.clone()).or_default().add(more);
        }
        self.open += other.open;
        self.handed_over += other.handed_over;
        self.left += other.left;
    }

    /// What has come since an earlier count of the same process. What is so now stays.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        for (kind, now) in &mut since.kinds {
            *now = now.since(before.kinds.get(kind).unwrap_or(&KindOfCall::default()));
        }
        since
    }
}
