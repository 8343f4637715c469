//! The sleep of a node between two looks.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
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

/// The time after which a node knows that it was a program with work of its own, which had a slice
/// of the processor's time: ranks of the same job soon wait, too.
const SLICE: Duration = Duration::from_millis(1);

/// How long the nodes of a process remember such a program. Meanwhile they sleep at once, since to
/// let others use the processor would cost a slice at each wait.
const REMEMBERED: Duration = Duration::from_millis(100);

/// When such a program last had a slice: microseconds after [`START`], or 0.
static SLICE_TAKEN: AtomicU64 = AtomicU64::new(0);
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Microseconds after [`START`], never 0.
fn now() -> u64 {
    u64::try_from(START.elapsed().as_micros()).map_or(u64::MAX, |now| now.max(1))
}

/// Whether the nodes of this process remember a program that takes slices.
fn remembers_slices() -> bool {
    match SLICE_TAKEN.load(Ordering::Relaxed) {
        0 => false,
        taken => u128::from(now().saturating_sub(taken)) < REMEMBERED.as_micros(),
    }
}

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
            false if self.is_crowded.get() || remembers_slices() => {
                self.idle.saturating_add(1).max(LOOKS_AWAKE)
            }
            false => self.idle.saturating_add(1),
        };
        self.is_crowded.set(self.is_crowded.get() && !has_found);
    }

    fn give_way(&self) {
        let begun = Instant::now();
        std::thread::yield_now();
        let time = begun.elapsed();
        self.is_crowded.set(time > CROWDED);
        if time > SLICE {
            SLICE_TAKEN.store(now(), Ordering::Relaxed);
        }
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
