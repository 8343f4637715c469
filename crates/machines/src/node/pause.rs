//! The sleep of a node between two looks.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// Whether others have used the processor when this node let them: then it sleeps.
    is_crowded: Cell<bool>,
}

/// The looks in vain after which a node that hopes for an answer sleeps, and links no longer watch
/// but want to be told: some dozens of microseconds, as long as it takes to fall asleep and be
/// woken.
pub const LOOKS_AWAKE: u32 = 50;

/// The time after which a node that let others use the processor knows that they did.
const CROWDED: Duration = Duration::from_micros(25);

impl Pause {
    /// Makes a pause in which the node sleeps after that many looks in vain.
    pub fn after(looks_awake: u32) -> Self {
        Self {
            looks_awake,
            ..Self::default()
        }
    }

    /// Notes a look, and whether it has found something to do.
    pub(super) fn note_look(&mut self, has_found: bool) {
        self.idle = match has_found {
            true => 0,
            false if self.is_crowded.get() => self.idle.saturating_add(1).max(LOOKS_AWAKE),
            false => self.idle.saturating_add(1),
        };
        self.is_crowded.set(self.is_crowded.get() && !has_found);
    }

    fn give_way(&self) {
        let begun = Instant::now();
        std::thread::yield_now();
        self.is_crowded.set(begun.elapsed() > CROWDED);
    }

    /// Sleeps until the node is wanted, or has to look, but not longer than `at_most`.
    pub fn sleep(&self, at_most: Option<Duration>) {
        let shorter = match (self.at_most, at_most) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        match (&self.bell, shorter) {
            _ if self.idle < self.looks_awake => self.give_way(),
            (_, Some(Duration::ZERO)) => self.give_way(),
            (Some(bell), at_most) => bell.sleep(self.seen, at_most),
            (None, _) => {}
        }
    }
}
