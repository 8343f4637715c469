//! Messages that have come to a node, and the futures that wait for them.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use penstock_engine::{Message, NodeId, Port};

use crate::memory::parcel::Parcel;

/// The mail of one node.
#[derive(Default)]
pub(super) struct Mail {
    slots: RefCell<HashMap<Port, Slot>>,
    /// The bytes that nobody has taken yet, by sender, of those who may not send any number.
    kept: RefCell<HashMap<NodeId, u64>>,
}

/// The bytes that a message takes beside its content.
const MESSAGE_BYTES: u64 = 128;

fn bytes_of(message: &Message<Parcel>) -> u64 {
    let parcel = message
        .parcel
        .as_ref()
        .map_or(0, |parcel| parcel.bytes().len());
    MESSAGE_BYTES + message.body.len() as u64 + parcel as u64
}

/// The messages at one port that nobody has taken yet, and the future that waits for one.
#[derive(Default)]
struct Slot {
    messages: VecDeque<Message<Parcel>>,
    waker: Option<Waker>,
}

impl Mail {
    /// Takes in a message. At most this many bytes of its sender may wait here.
    ///
    /// # Errors
    /// The bytes that nobody has taken yet, when they are more.
    pub(super) fn put(
        &self,
        port: Port,
        message: Message<Parcel>,
        bytes_max: u64,
    ) -> Result<(), u64> {
        let mut kept = 0;
        if bytes_max < u64::MAX {
            let mut all = self.kept.borrow_mut();
            let of_sender = all.entry(message.from).or_default();
            *of_sender += bytes_of(&message);
            kept = *of_sender;
        }
        let mut slots = self.slots.borrow_mut();
        let slot = slots.entry(port).or_default();
        slot.messages.push_back(message);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
        match kept <= bytes_max {
            true => Ok(()),
            false => Err(kept),
        }
    }

    /// Notes that a message has been taken.
    fn note_taken(&self, message: &Message<Parcel>) {
        if let Entry::Occupied(mut kept) = self.kept.borrow_mut().entry(message.from) {
            *kept.get_mut() -= bytes_of(message);
            if *kept.get() == 0 {
                kept.remove();
            }
        }
    }

    /// Whether a future waits at this port.
    pub(super) fn is_awaited(&self, port: Port) -> bool {
        let slots = self.slots.borrow();
        slots.get(&port).is_some_and(|slot| slot.waker.is_some())
    }

    /// Waits for the next message at a port.
    pub(super) async fn next(&self, port: Port) -> Message<Parcel> {
        let _slot = OpenSlot(self, port);
        poll_fn(|context| {
            let mut slots = self.slots.borrow_mut();
            let slot = slots.entry(port).or_default();
            if let Some(message) = slot.messages.pop_front() {
                self.note_taken(&message);
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
        let mut slots = self.0.slots.borrow_mut();
        match slots.get_mut(&self.1) {
            Some(slot) if slot.messages.is_empty() => {
                slots.remove(&self.1);
            }
            Some(slot) => slot.waker = None,
            None => {}
        }
    }
}
