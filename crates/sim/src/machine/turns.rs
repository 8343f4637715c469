//! One at a time, in the order in which they come.
//!
//! Where a server's calls block, as Panda's do (Seamons et al., SC'95, section 3), it moves one
//! message, takes what has come to where it belongs, and only then moves the next; and none while
//! it reads or writes a file. What the drive does by itself goes on: it reads ahead.
//!
//! Who waits for a turn must not be dropped before it has come: those behind it would wait forever.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use penstock_engine::NodeId;

/// Who has the turn, and who waits for it.
#[derive(Default)]
pub(super) struct Turns {
    /// Tickets that have been handed out, and the one whose turn it is.
    handed_out: Cell<u64>,
    current: Cell<u64>,
    waiting: RefCell<VecDeque<(u64, Waker)>>,
}

/// The turn of `node`, until it is dropped, where there are turns.
pub(super) async fn turn_of(turns: Option<&[Turns]>, node: NodeId) -> Option<Turn<'_>> {
    match turns {
        Some(turns) => Some(turns[node].turn().await),
        None => None,
    }
}

/// The turn, until it is dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits for all who came before.
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
