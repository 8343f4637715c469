//! The futures of a node that wait for a time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The alarms of a node, in the order of their times. Times are those of the node's clock.
#[derive(Default)]
pub(super) struct Alarms {
    waiting: RefCell<BTreeMap<(Duration, u64), Waker>>,
    next: Cell<u64>,
}

impl Alarms {
    /// Waits until the alarms have been told of a time that is not before `at`.
    pub(super) fn wait(&self, at: Duration) -> Alarm<'_> {
        let number = self.next.get();
        self.next.set(number + 1);
        Alarm {
            alarms: self,
            key: (at, number),
            is_set: false,
        }
    }

    /// Whether nobody waits for a time.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// Wakes those whose time has come, and gives the time of the next one.
    pub(super) fn tell(&self, now: Duration) -> Option<Duration> {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(first) = waiting.first_entry() {
            if first.key().0 > now {
                break;
            }
            first.remove().wake();
        }
        waiting.keys().next().map(|&(at, _)| at)
    }
}

/// A future that waits for a time.
pub(super) struct Alarm<'a> {
    alarms: &'a Alarms,
    key: (Duration, u64),
    is_set: bool,
}

impl Future for Alarm<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.alarms.waiting.borrow_mut();
        let waker = context.waker().clone();
        if self.is_set && !waiting.contains_key(&self.key) {
            return Poll::Ready(());
        }
        waiting.insert(self.key, waker);
        drop(waiting);
        self.is_set = true;
        Poll::Pending
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.alarms.waiting.borrow_mut().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    #[test]
    fn alarms_go_off_in_order_and_are_forgotten_with_their_futures() {
        let (alarms, at) = (Alarms::default(), Duration::from_millis);
        let mut context = Context::from_waker(Waker::noop());
        let mut first = pin!(alarms.wait(at(5)));
        {
            let mut second = pin!(alarms.wait(at(5)));
            let mut third = pin!(alarms.wait(at(9)));
            assert!(alarms.is_empty());
            for alarm in [first.as_mut(), second.as_mut(), third.as_mut()] {
                assert_eq!(alarm.poll(&mut context), Poll::Pending);
            }
            assert_eq!(alarms.tell(at(4)), Some(at(5)));
            assert_eq!(first.as_mut().poll(&mut context), Poll::Pending);
            assert_eq!(alarms.tell(at(5)), Some(at(9)));
            assert_eq!(first.as_mut().poll(&mut context), Poll::Ready(()));
            assert_eq!(second.as_mut().poll(&mut context), Poll::Ready(()));
            assert_eq!(third.as_mut().poll(&mut context), Poll::Pending);
        }
        assert!(alarms.is_empty());
    }
}
