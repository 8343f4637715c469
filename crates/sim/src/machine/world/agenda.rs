//! The agenda of a run: the events that will happen, and their order.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Time;

/// An event that will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A sleeper wakes.
    Wake(u32),
    /// A node's CPU can serve the next thread, unless the last thread has taken it again.
    Cpu(u32),
    /// A node's port can send its next transmission.
    Port(u32),
    /// A letter reaches its node.
    Arrive(u32),
    /// The CPU has taken a letter in.
    Deliver(u32),
    /// The CPU has given a letter out.
    Depart(u32),
    /// A node hears that another has gone, or is back.
    Notice(u32),
    /// An outage ends: that of a node, or of a link between two.
    Return(u32, Option<u32>),
}

/// The key of an event: events of one moment happen by rank, and in one rank in the order of
/// making.
type EventKey = (Time, u32, u64, Event);

/// An agenda holds the events to come.
#[derive(Default)]
pub(super) struct Agenda {
    made: Cell<u64>,
    events: RefCell<BinaryHeap<Reverse<EventKey>>>,
}

impl Agenda {
    /// Puts an event in, of this rank among the events of its moment.
    pub(super) fn put(&self, at: Time, rank: u32, event: Event) {
        let made = self.made.get();
        self.made.set(made + 1);
        self.events
            .borrow_mut()
            .push(Reverse((at, rank, made, event)));
    }

    /// Takes the earliest event out.
    pub(super) fn take(&self) -> Option<(Time, Event)> {
        let next = self.events.borrow_mut().pop();
        next.map(|Reverse((at, _, _, event))| (at, event))
    }

    /// Whether an event will happen at `now`, the current moment.
    pub(super) fn is_due(&self, now: Time) -> bool {
        let events = self.events.borrow();
        events.peek().is_some_and(|Reverse(due)| due.0 == now)
    }
}
