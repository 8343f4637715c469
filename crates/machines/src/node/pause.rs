//! The sleep of a node between two looks.

use std::sync::Arc;
use std::time::Duration;

use crate::bell::HasBell;

/// A pause says how a node may sleep after a look: see [`super::Node::look`]. It does not need the
/// node, so that another thread may use the node meanwhile.
#[derive(Default)]
pub struct Pause {
    pub(super) bell: Option<Arc<dyn HasBell>>,
    pub(super) seen: u32,
    pub(super) idle: u32,
    pub(super) at_most: Option<Duration>,
    /// The number of looks in vain after which the node sleeps. Until then it only lets others use
    /// the processor: an answer that takes a few microseconds is worth that.
    pub looks_awake: u32,
}

/// The looks in vain of a node that has open files: some dozens of microseconds, as long as it
/// takes to fall asleep and be woken.
pub const LOOKS_AWAKE: u32 = 50;

impl Pause {
    /// Makes a pause in which the node sleeps after that many looks in vain.
    pub fn after(looks_awake: u32) -> Self {
        Self {
            looks_awake,
            ..Self::default()
        }
    }

    /// Sleeps until the node is wanted, or has to look, but not longer than `at_most`.
    pub fn sleep(&self, at_most: Option<Duration>) {
        let shorter = match (self.at_most, at_most) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        match (&self.bell, shorter) {
            _ if self.idle < self.looks_awake => std::thread::yield_now(),
            (_, Some(Duration::ZERO)) => std::thread::yield_now(),
            (Some(bell), at_most) => bell.sleep(self.seen, at_most),
            (None, _) => {}
        }
    }
}
