//! Turns: one at a time, in the order of arrival.
//!
//! A server whose calls block, as Panda's do (Seamons et al., SC'95, section 3), moves one message,
//! copies it to where it belongs, and only then moves the next; it moves none while it reads or
//! writes a file. The drive goes on by itself: it reads ahead.
//!
//! A future that waits for a turn must not be dropped before its turn: others behind it would wait
//! forever.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use penstock_engine::NodeId;

/// Turns say which ticket has the turn, and which wait.
#[derive(Default)]
pub(super) struct Turns {
    /// The number of tickets handed out, and the ticket that has the turn.
    handed_out: Cell<u64>,
    current: Cell<u64>,
    waiting: RefCell<VecDeque<(u64, Waker)>>,
}

/// Waits for the turn of `node`, held until dropped, if there are turns.
pub(super) async fn turn_of(turns: Option<&[Turns]>, node: NodeId) -> Option<Turn<'_>> {
    match turns {
        Some(turns) => Some(turns[node].turn().await),
        None => None,
    }
}

/// A turn lasts until it is dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits for all earlier tickets.
    pub(super) async fn turn(&self) -> Turn<'_> {
        let ticket = self.handed_out.get();
        self.handed_out.set(ticket + 1);
        poll_fn(|context| {
            if self.current.get() == ticket {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            match waiting.iter_mut().find(|(other, _)| *other == ticket) {
                Some((_, waker)) => waker.clone_from(context.waker()),
                None => waiting.push_back((ticket, context.waker().clone())),
            }
            Poll::Pending
        })
        .await;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Turns {
            current, waiting, ..
        } = self.0;
        current.set(current.get() + 1);
        let mut waiting = waiting.borrow_mut();
        let next = waiting
            .iter()
            .position(|(ticket, _)| *ticket == current.get());
        if let Some((_, waker)) = next.and_then(|next| waiting.remove(next)) {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn each_has_its_turn_in_the_order_in_which_they_came() {
        let turns = Turns::default();
        let first = turns.turn().now_or_never();
        assert!(first.is_some());
        let mut second = Box::pin(turns.turn());
        let mut third = Box::pin(turns.turn());
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        assert!(
            third.as_mut().now_or_never().is_none(),
            "the second is before it"
        );
        let second = second.now_or_never();
        assert!(second.is_some());
        drop(second);
        assert!(third.now_or_never().is_some());
    }
}
