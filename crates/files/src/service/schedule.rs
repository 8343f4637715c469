//! The order of the requests to one file on one server.
//!
//! A request takes its place when it is its turn by the tokens, and begins when no request before
//! it conflicts with it (Corbett and Feitelson, TOCS 1996, section 4.3):
//!
//! ```text
//! places    write 0..9 | read 5..7 | write 20..29 | checkpoint | read 50..60
//! begins    at once      after 1     at once        after 1-3    after 4
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use penstock_engine::signal::Signal;
use penstock_layout::List;

/// The bytes that a request is about.
pub(crate) enum Footprint {
    /// The whole file, alone.
    All,
    /// Any bytes, in no order with those of others, but not while the whole file is changed.
    Any,
    /// Bytes of cells that are read.
    Read(Vec<(u64, List)>),
    /// Bytes of cells that are written, and those that come to be zeros because a cell grows over
    /// them.
    Write {
        bytes: Vec<(u64, List)>,
        grown: Vec<(u64, List)>,
    },
}

impl Footprint {
    fn conflicts(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => true,
            (Self::Any, _) | (_, Self::Any) => false,
            (Self::Read(_), Self::Read(_)) => false,
            (Self::Read(read), Self::Write { bytes, grown })
            | (Self::Write { bytes, grown }, Self::Read(read)) => {
                meet(read, bytes) || meet(read, grown)
            }
            // Two writes that let a cell grow do so in any order.
            (Self::Write { bytes, .. }, Self::Write { bytes: other, .. }) => meet(bytes, other),
        }
    }
}

/// Whether two requests have a byte of a cell in common.
fn meet(one: &[(u64, List)], other: &[(u64, List)]) -> bool {
    one.iter().any(|(cell, bytes)| {
        let mut same = other.iter().filter(|(other, _)| cell == other);
        same.any(|(_, others)| overlap(bytes, others))
    })
}

/// The steps of a search for elements that two lists have in common.
const STEPS_MAX: u64 = 1 << 12;

/// Whether two lists may have an element in common.
fn overlap(one: &List, other: &List) -> bool {
    let (Some(bounds), Some(others)) = (one.bounds(), other.bounds()) else {
        return false;
    };
    if bounds.end <= others.start || others.end <= bounds.start {
        return false;
    }
    // Two lists without a repetition of their own are apart if both together have none. If that is
    // hard to tell, one waits for the other.
    let both = List::concat([one.clone(), other.clone()]);
    let are_apart = both
        .ok()
        .and_then(|both| both.is_disjoint_within(STEPS_MAX));
    are_apart != Some(true)
}

/// The requests to a file that have their places, and have not ended.
#[derive(Default)]
pub(crate) struct Schedule {
    places: RefCell<VecDeque<(u64, Footprint)>>,
    next: Cell<u64>,
    changed: Signal,
}

impl Schedule {
    /// Takes the place behind all others.
    pub(crate) fn enter(self: &Rc<Self>, footprint: Footprint) -> Place {
        let number = self.next.get();
        self.next.set(number + 1);
        self.places.borrow_mut().push_back((number, footprint));
        Place {
            schedule: self.clone(),
            number,
        }
    }

    /// Whether a change of the whole file has a place.
    pub(crate) fn will_change(&self) -> bool {
        let places = self.places.borrow();
        places
            .iter()
            .any(|(_, footprint)| matches!(footprint, Footprint::All))
    }

    /// Whether no request has a place.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.borrow().is_empty()
    }

    fn may_begin(&self, number: u64) -> bool {
        let places = self.places.borrow();
        let Some(own) = places.iter().find(|(other, _)| *other == number) else {
            return true;
        };
        let mut before = places.iter().take_while(|(other, _)| *other != number);
        before.all(|(_, footprint)| !footprint.conflicts(&own.1))
    }
}

/// A place in the order of a file, until it is dropped.
pub(crate) struct Place {
    schedule: Rc<Schedule>,
    number: u64,
}

impl Place {
    /// Waits until no request before this one conflicts with it.
    pub(crate) async fn turn(&self) {
        let begins = || self.schedule.may_begin(self.number).then_some(());
        self.schedule.changed.until(begins).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.schedule.places.borrow_mut();
        places.retain(|(number, _)| *number != self.number);
        drop(places);
        self.schedule.changed.tell();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn bytes(cell: u64, start: u64, length: u64, is_write: bool) -> Footprint {
        let bytes = vec![(cell, List::strided(start, length, &[]).unwrap())];
        match is_write {
            true => Footprint::Write {
                bytes,
                grown: Vec::new(),
            },
            false => Footprint::Read(bytes),
        }
    }

    fn begins<F: Future<Output = ()>>(turn: Pin<&mut F>) -> bool {
        turn.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    /// O3: only what conflicts waits.
    #[test]
    fn only_conflicting_requests_wait() {
        let schedule = Rc::new(Schedule::default());
        let write = schedule.enter(bytes(0, 0, 10, true));
        let read = schedule.enter(bytes(0, 5, 2, false));
        let elsewhere = schedule.enter(bytes(0, 20, 10, true));
        let other_cell = schedule.enter(bytes(1, 0, 10, true));
        let all = schedule.enter(Footprint::All);
        let later = schedule.enter(bytes(2, 50, 10, false));
        let any = schedule.enter(Footprint::Any);
        assert!(begins(pin!(write.turn())) && !begins(pin!(read.turn())));
        assert!(begins(pin!(elsewhere.turn())) && begins(pin!(other_cell.turn())));
        assert!(!begins(pin!(all.turn())) && !begins(pin!(later.turn())));
        assert!(!begins(pin!(any.turn())));
        drop(write);
        assert!(begins(pin!(read.turn())) && !begins(pin!(all.turn())));
        drop((read, elsewhere, other_cell));
        assert!(begins(pin!(all.turn())) && !begins(pin!(later.turn())));
        drop(all);
        assert!(begins(pin!(later.turn())) && begins(pin!(any.turn())));
        drop((later, any));
        assert!(schedule.is_empty());
    }

    /// Interleaved subfiles do not conflict, although their bounds overlap.
    #[test]
    fn interleaved_lists_do_not_conflict() {
        let schedule = Rc::new(Schedule::default());
        let strided = |start| Footprint::Write {
            bytes: vec![(0, List::strided(start, 8, &[(100, 32)]).unwrap())],
            grown: vec![(0, List::strided(0, 4000, &[]).unwrap())],
        };
        let (one, other) = (schedule.enter(strided(0)), schedule.enter(strided(8)));
        let third = schedule.enter(strided(4));
        assert!(begins(pin!(one.turn())) && begins(pin!(other.turn())));
        assert!(!begins(pin!(third.turn())));
        let hole = schedule.enter(bytes(0, 16, 4, false));
        assert!(
            !begins(pin!(hole.turn())),
            "whether it is a hole is not known"
        );
    }
}
