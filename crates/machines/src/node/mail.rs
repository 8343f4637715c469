//! Messages that have come to a node, and the futures that wait for them.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use penstock_engine::{Error, Message, Result, Tag};

use crate::memory::parcel::Parcel;

/// The mail of one node, by tag.
#[derive(Default)]
pub(super) struct Mail(RefCell<HashMap<Tag, Slot>>);

/// The messages of one tag that nobody has taken yet, and the future that waits for one.
#[derive(Default)]
struct Slot {
    messages: VecDeque<Message<Parcel>>,
    waker: Option<Waker>,
}

impl Mail {
    /// Takes in a message.
    pub(super) fn put(&self, tag: Tag, message: Message<Parcel>) {
        let mut slots = self.0.borrow_mut();
        let slot = slots.entry(tag).or_default();
        slot.messages.push_back(message);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }

    /// Whether a future waits for this tag.
    pub(super) fn is_awaited(&self, tag: Tag) -> bool {
        let slots = self.0.borrow();
        slots.get(&tag).is_some_and(|slot| slot.waker.is_some())
    }

    /// Wakes all waiting futures, so that they look whether their call is lost.
    pub(super) fn wake_all(&self) {
        for slot in self.0.borrow_mut().values_mut() {
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }

    /// Waits for the next message of a tag, until `lost` says that none will come.
    ///
    /// # Errors
    /// The error that `lost` returns.
    pub(super) async fn next(
        &self,
        tag: Tag,
        lost: impl Fn() -> Option<Error>,
    ) -> Result<Message<Parcel>> {
        let _slot = OpenSlot(self, tag);
        poll_fn(|context| {
            let mut slots = self.0.borrow_mut();
            let slot = slots.entry(tag).or_default();
            if let Some(message) = slot.messages.pop_front() {
                return Poll::Ready(Ok(message));
            }
            if let Some(error) = lost() {
                return Poll::Ready(Err(error));
            }
            slot.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// Removes an empty slot when its future is dropped: a server gives up waiting at the end of a
/// call, and tags do not come again.
struct OpenSlot<'a>(&'a Mail, Tag);

impl Drop for OpenSlot<'_> {
    fn drop(&mut self) {
        let mut slots = self.0.0.borrow_mut();
        match slots.get_mut(&self.1) {
            Some(slot) if slot.messages.is_empty() => {
                slots.remove(&self.1);
            }
            Some(slot) => slot.waker = None,
            None => {}
        }
    }
}
