//! Split collectives: what of a call is done while the clients wait, and what while they compute.
//!
//! Dickens and Thakur, sections 5 and 6: data go from memory to memory in the foreground, and only the
//! disks work in the background. A write is *handed over* when all elements are in buffers and the
//! disks have been told what to do with them; a read when the disks have been told what to fetch.
//! From then until its end nobody's processor need do anything for the call.

use std::cell::Cell;
use std::pin::Pin;
use std::task::Poll;

use futures::poll;

use crate::changes::Changes;

/// The parts of a node that are to hand over.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    parts: Cell<usize>,
    changes: Changes,
}

/// One of them. It is given up when it is handed over, or has failed.
pub(crate) struct Part<'a>(&'a Gate);

impl Gate {
    /// One more part.
    pub(crate) fn part(&self) -> Part<'_> {
        self.parts.set(self.parts.get() + 1);
        Part(self)
    }

    /// Waits until all parts have been given up.
    pub(crate) async fn all_handed_over(&self) {
        let is_empty = || (self.parts.get() == 0).then_some(());
        self.changes.until(is_empty).await;
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.0.parts.set(self.0.parts.get() - 1);
        self.0.changes.tell();
    }
}

/// Something that has begun.
pub(crate) enum Begun<F: Future> {
    Going(Pin<Box<F>>),
    Ended(F::Output),
}

/// Begins what `future` is to do: what it asks of a disk or of another node first is asked.
pub(crate) async fn started<F: Future>(future: F) -> Begun<F> {
    let mut going = Box::pin(future);
    match poll!(going.as_mut()) {
        Poll::Ready(output) => Begun::Ended(output),
        Poll::Pending => Begun::Going(going),
    }
}

impl<F: Future> Begun<F> {
    /// Waits for its end.
    pub(crate) async fn ended(self) -> F::Output {
        match self {
            Self::Going(future) => future.await,
            Self::Ended(output) => output,
        }
    }
}
