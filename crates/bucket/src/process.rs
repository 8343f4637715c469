//! What tells a process from all others of a job.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

/// A number that no other process has: the numbers of the system are those of one host.
pub fn own_process() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| RandomState::new().build_hasher().finish())
}
