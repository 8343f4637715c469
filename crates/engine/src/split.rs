//! Split collectives: the part of a call that is done while the clients wait, and the part that is
//! done while they compute.
//!
//! Dickens and Thakur, sections 5 and 6: data go from memory to memory in the foreground, and only
//! the disks work in the background. A write is *handed over* when all elements are in buffers and
//! the disks have been told what to do with them; a read when the disks have been told what to
//! fetch. From then on no processor need do anything for the call until its end.

use std::cell::Cell;
use std::pin::Pin;
use std::task::Poll;

use futures::future::join;
use futures::poll;

use crate::error::Result;
use crate::machine::{Machine, Operation};
use crate::outcome::Traffic;
use crate::relay::{Flow, Relay};
use crate::signal::Signal;

/// A latch counts the parts of a node that are still to hand over.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    parts: Cell<usize>,
    signal: Signal,
}

/// A part of a node that is still to hand over. It hands over when this guard is dropped, also
/// after an error.
pub(crate) struct HandOver<'a>(&'a Latch);

impl Latch {
    /// Counts one more part, until its guard is dropped.
    pub(crate) fn hand_over(&self) -> HandOver<'_> {
        self.parts.set(self.parts.get() + 1);
        HandOver(self)
    }

    /// Whether all parts have handed over.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.parts.get() == 0
    }

    /// Waits until all parts have handed over.
    pub(crate) async fn all_handed_over(&self) {
        let all_have = || self.is_handed_over().then_some(());
        self.signal.until(all_have).await;
    }
}

impl Drop for HandOver<'_> {
    fn drop(&mut self) {
        self.0.parts.set(self.0.parts.get() - 1);
        self.0.signal.tell();
    }
}

/// A task is a future that has been polled once: its first requests to disks and other nodes are on
/// their way.
pub(crate) enum Task<F: Future> {
    Running(Pin<Box<F>>),
    Ended(F::Output),
}

/// Polls a future once.
pub(crate) async fn start<F: Future>(future: F) -> Task<F> {
    let mut running = Box::pin(future);
    match poll!(running.as_mut()) {
        Poll::Ready(output) => Task::Ended(output),
        Poll::Pending => Task::Running(running),
    }
}

impl<F: Future> Task<F> {
    /// Waits for the future's end.
    pub(crate) async fn end(self) -> F::Output {
        match self {
            Self::Running(future) => future.await,
            Self::Ended(output) => output,
        }
    }
}

/// Runs a relay whose buffers hold all blocks, as far as they go, and hands over when only the disk
/// is left to work.
///
/// # Errors
/// Like [`Relay::run`].
pub(crate) async fn run<M: Machine, B>(
    relay: &Relay<'_, M, B>,
    flow: &impl Flow<M, Block = B>,
    hand_over: HandOver<'_>,
) -> Result<Traffic> {
    match relay.operation {
        Operation::Read => {
            let moving = start(relay.move_all(flow)).await;
            drop(hand_over);
            moving.end().await
        }
        Operation::Write => {
            // The disk is told of the end right behind the last block, so that nobody need tell it
            // when it has come there.
            let finishing = async {
                relay.all_filled().await;
                let finishing = start(flow.finish()).await;
                drop(hand_over);
                finishing.end().await
            };
            let (moved, finished) = join(relay.move_all(flow), finishing).await;
            moved.and_then(|moved| finished.map(|()| moved))
        }
    }
}
