//! Messages between nodes: letters on their way, and inboxes.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use penstock_engine::{Message, NodeId, Port};

use super::World;
use super::agenda::Event;
use crate::machine::data::Parcel;
use crate::time::Span;

/// A letter is a message on its way.
pub(super) struct Letter {
    pub(super) to: NodeId,
    pub(super) port: Port,
    message: Message<Parcel>,
    /// The sleeper that waits until the send buffer with the elements may be used again.
    sender: Option<u32>,
    bytes: u64,
    /// The cuts of the link, as the sender knows; nothing if the receiver is absent.
    cuts: Option<u64>,
}

impl Letter {
    /// The time that the receiver's system takes to keep the letter, if nobody waits for it.
    fn keeping(&self, world: &World) -> Span {
        match (&self.sender, &self.message.parcel) {
            (Some(_), Some(parcel)) if !world.is_awaited(self.to, self.port) => {
                world.copy + Span::from_ns_f64(world.copy_ns_per_byte * parcel.bytes as f64)
            }
            _ => Span::ZERO,
        }
    }
}

/// An inbox holds the messages at one port.
pub(super) struct Inbox {
    port: Port,
    waiting: VecDeque<Message<Parcel>>,
    waker: Option<Waker>,
}

/// The inbox of `port`, made if there is none.
fn inbox(inboxes: &mut Vec<Inbox>, port: Port) -> &mut Inbox {
    let place = inboxes
        .iter()
        .position(|inbox| inbox.port == port)
        .unwrap_or_else(|| {
            inboxes.push(Inbox {
                port,
                waiting: VecDeque::new(),
                waker: None,
            });
            inboxes.len() - 1
        });
    &mut inboxes[place]
}

impl World {
    /// Hands a message to the network, in which it arrives by itself.
    pub(crate) fn post(
        &self,
        from: NodeId,
        to: NodeId,
        port: Port,
        (bytes, cuts): (u64, Option<u64>),
        message: Message<Parcel>,
    ) {
        let letter = Letter {
            to,
            port,
            message,
            sender: None,
            bytes,
            cuts,
        };
        let letter = self.letters.borrow_mut().put(letter);
        self.carry(from, to, bytes, Event::Arrive(letter));
    }

    /// Sends a message whose elements are in a send buffer, for `send` of the sender's CPU. Ends
    /// when the buffer may be used again: the receiver has taken the elements to where they belong,
    /// if it waits for them, or else into a buffer of its system.
    ///
    /// The sending goes on whether it is awaited or not: a program does other things meanwhile.
    pub(crate) async fn transmit(
        self: &Rc<Self>,
        to: NodeId,
        port: Port,
        (bytes, send): (u64, Span),
        message: Message<Parcel>,
    ) {
        let slot = self.new_sleeper();
        let from = message.from;
        let letter = Letter {
            to,
            port,
            message,
            sender: Some(slot),
            bytes,
            cuts: self.losses.link(from, to),
        };
        let letter = self.letters.borrow_mut().put(letter);
        let sent = self.reserve_interrupt(from, send, "send");
        self.schedule(sent, Event::Depart(letter));
        self.sleep_in(slot).await;
    }

    /// Has the CPU of the receiver take in a letter that has arrived.
    pub(super) fn arrive(&self, letter: u32) {
        let arrived = self
            .letters
            .borrow_mut()
            .get(letter)
            .map(|letter| (letter.to, letter.keeping(self)));
        if let Some((to, keeping)) = arrived {
            let mut taken = self.reserve_interrupt(to, self.receive, "receive");
            if keeping > Span::ZERO {
                taken = self.reserve_interrupt(to, keeping, "keep");
            }
            self.schedule(taken, Event::Deliver(letter));
        }
    }

    /// Puts a letter that the CPU has taken in into its inbox.
    pub(super) fn deliver(&self, letter: u32) {
        let letter = self.letters.borrow_mut().take(letter);
        if let Some(letter) = letter {
            if let Some(sender) = letter.sender {
                self.happen(Event::Wake(sender));
            }
            self.put_in_inbox(letter.to, letter.port, letter.message);
        }
    }

    /// Hands a letter that the CPU has given out to the network.
    pub(super) fn depart(&self, letter: u32) {
        let departed = self.letters.borrow_mut().get(letter).map(|letter| {
            let Letter {
                to, message, bytes, ..
            } = letter;
            (message.from, *to, *bytes)
        });
        if let Some((from, to, bytes)) = departed {
            self.carry(from, to, bytes, Event::Arrive(letter));
        }
    }

    /// Whether the node to which a letter goes is lost, or their link was cut.
    pub(super) fn is_undeliverable(&self, letter: u32) -> bool {
        let mut letters = self.letters.borrow_mut();
        let letter = letters.get(letter);
        let link = letter.map(|letter| ((letter.message.from, letter.to), letter.cuts));
        drop(letters);
        link.is_some_and(|(nodes, cuts)| !self.losses.arrives(nodes, cuts))
    }

    fn put_in_inbox(&self, to: NodeId, port: Port, message: Message<Parcel>) {
        let mut inboxes = self.inboxes.borrow_mut();
        let inbox = inbox(&mut inboxes[to], port);
        inbox.waiting.push_back(message);
        if let Some(waker) = inbox.waker.take() {
            waker.wake();
        }
    }

    /// Polls for the next message of `node` at `port`.
    pub(crate) fn poll_receive(
        &self,
        node: NodeId,
        port: Port,
        context: &mut Context<'_>,
    ) -> Poll<Message<Parcel>> {
        let mut inboxes = self.inboxes.borrow_mut();
        let inboxes = &mut inboxes[node];
        let inbox = inbox(inboxes, port);
        match inbox.waiting.pop_front() {
            Some(message) => {
                // Many ports are used once: an inbox that is empty would only be in the way.
                if inbox.waiting.is_empty() && inbox.waker.is_none() {
                    inboxes.retain(|inbox| inbox.port != port);
                }
                Poll::Ready(message)
            }
            None => {
                match &mut inbox.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }

    /// Whether `node` waits for a message at `port`.
    fn is_awaited(&self, node: NodeId, port: Port) -> bool {
        let mut inboxes = self.inboxes.borrow_mut();
        inbox(&mut inboxes[node], port).waker.is_some()
    }
}
