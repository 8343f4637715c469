//! Signals let code of a node wait for a change that other code of the node makes.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::task::{Poll, Waker};

/// Lets the node take in messages that have come, as a call of MPI does, and lets its other code go
/// on first.
pub async fn yield_now() {
    let mut has_given_way = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_given_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A signal wakes all waiting futures at each change; each future looks for itself whether it was
/// the right one.
#[derive(Debug, Default)]
pub struct Signal(RefCell<Vec<Waker>>);

impl Signal {
    /// Tells that something has changed.
    pub fn tell(&self) {
        for waker in self.0.take() {
            waker.wake();
        }
    }

    /// Waits until `look` finds something.
    pub fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> impl Future<Output = T> {
        poll_fn(move |context| match look() {
            Some(found) => Poll::Ready(found),
            None => {
                let mut wakers = self.0.borrow_mut();
                if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
        })
    }
}
