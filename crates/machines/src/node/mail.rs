//! Messages that have come to a node, and the futures that wait for them.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use penstock_engine::{Message, Port};

use crate::memory::parcel::Parcel;

/// The mail of one node, by port.
#[derive(Default)]
pub(super) struct Mail(RefCell<HashMap<Port, Slot>>);

/// The messages at one port that nobody has taken yet, and the future that waits for one.
#[derive(Default)]
struct Slot {
    messages: VecDeque<Message<Parcel>>,
    waker: Option<Waker>,
}

impl Mail {
    /// Takes in a message.
    pub(super) fn put(&self, port: Port, message: Message<Parcel>) {
        let mut slots = self.0.borrow_mut();
        let slot = slots.entry(port).or_default();
        slot.messages.push_back(message);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }

    /// Whether a future waits at this port.
    pub(super) fn is_awaited(&self, port: Port) -> bool {
        let slots = self.0.borrow();
        slots.get(&port).is_some_and(|slot| slot.waker.is_some())
    }

    /// Waits for the next message at a port.
    pub(super) async fn next(&self, port: Port) -> Message<Parcel> {
        let _slot = OpenSlot(self, port);
        poll_fn(|context| {
            let mut slots = self.0.borrow_mut();
            let slot = slots.entry(port).or_default();
            if let Some(message) = slot.messages.pop_front() {
                return Poll::Ready(message);
            }
            slot.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// Removes an empty slot when its future is dropped: a server gives up waiting at the end of a
/// call, and most ports do not come again.
struct OpenSlot<'a>(&'a Mail, Port);

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
