//! Sleeps: code waits until an event wakes it.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::World;
use super::agenda::Event;
use crate::time::Time;

/// A sleeper is awake, or its waker is kept.
pub(super) enum Sleeper {
    Asleep(Option<Waker>),
    Awake,
    /// The sleeper was dropped before its time.
    Gone,
}

impl World {
    /// Wakes a sleeper, or forgets one that was dropped before its time.
    pub(super) fn wake(&self, slot: u32) {
        let mut sleepers = self.sleepers.borrow_mut();
        let Some(sleeper) = sleepers.get(slot) else {
            return;
        };
        match std::mem::replace(sleeper, Sleeper::Awake) {
            Sleeper::Asleep(Some(waker)) => waker.wake(),
            Sleeper::Asleep(None) | Sleeper::Awake => {}
            Sleeper::Gone => {
                sleepers.take(slot);
            }
        }
    }

    /// Makes a sleeper, asleep.
    pub(super) fn new_sleeper(&self) -> u32 {
        self.sleepers.borrow_mut().put(Sleeper::Asleep(None))
    }

    /// Sleeps until `at`.
    pub(crate) fn sleep_until(self: &Rc<Self>, at: Time) -> Sleep {
        let slot = self.new_sleeper();
        self.schedule(at, Event::Wake(slot));
        self.sleep_in(slot)
    }

    pub(super) fn sleep_in(self: &Rc<Self>, slot: u32) -> Sleep {
        Sleep {
            world: self.clone(),
            slot: Some(slot),
        }
    }
}

/// A sleep lasts until an event ends it.
pub(crate) struct Sleep {
    world: Rc<World>,
    slot: Option<u32>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(slot) = self.slot else {
            return Poll::Ready(());
        };
        let mut sleepers = self.world.sleepers.borrow_mut();
        match sleepers.get(slot) {
            Some(Sleeper::Asleep(waker)) => {
                match waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                return Poll::Pending;
            }
            _ => sleepers.take(slot),
        };
        drop(sleepers);
        self.slot = None;
        Poll::Ready(())
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(slot) = self.slot else { return };
        let mut sleepers = self.world.sleepers.borrow_mut();
        match sleepers.get(slot) {
            Some(Sleeper::Awake) => {
                sleepers.take(slot);
            }
            Some(sleeper) => *sleeper = Sleeper::Gone,
            None => {}
        }
    }
}
