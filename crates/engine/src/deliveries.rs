//! Deliveries on their way: from the sieve of a server to the catches of clients.
//!
//! A server has an outlet for each client. What the sieve lets through for the client waits there
//! until it makes a message, which carries a part of a delivery, or several:
//!
//! ```text
//! server   deliver (1)  deliver (2)  . . . . .  deliver (3)       the end, when all are taken
//! client         taken (1)     . . . taken (2)        taken (3)
//! ```
//!
//! At most [`UNANSWERED_MAX`] messages from a server to a client are not answered yet. Then the
//! block's buffer waits, and with it the disk. So a server needs, beside its buffers, what was
//! sifted out of the blocks in them and less than [`MESSAGE_BYTES_MIN`] for each client; a client
//! that has not looked yet has at most [`UNANSWERED_MAX`] messages of [`MESSAGE_BYTES_MAX`] of each
//! server.
//!
//! A server that has failed tells clients the end, too: they wait for the ends of all servers, and
//! hear of the failure in the verdict. No message is left behind when a server's part has ended.

use std::cell::{Cell, RefCell};
use std::pin::pin;

use futures::future::{Either, select};
use penstock_layout::exact;

use crate::address::Step;
use crate::call::Call;
use crate::error::{Error, Kind, Result};
use crate::machine::{Machine, Message};
use crate::outcome::Traffic;
use crate::request::Request;
use crate::sieve::{Addressee, Catch, Delivery};
use crate::signal::Signal;

/// The most messages of one server that one client has not answered.
const UNANSWERED_MAX: usize = 2;

/// The bytes that a message has at least, but for the last of a server to a client: fewer would
/// cost more to send than to wait for.
const MESSAGE_BYTES_MIN: usize = 16 << 10;

/// The most bytes of a message.
const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// The bytes before the bytes that are delivered: the number of the server, and whether that was
/// all.
const HEADER_BYTES: usize = 5;

/// What waits for one client.
#[derive(Default)]
struct Outlet {
    waiting: RefCell<Vec<u8>>,
    unanswered: Cell<usize>,
    /// Whether a message is being made of what waits: one at a time keeps the order.
    is_sending: Cell<bool>,
}

/// The outlets of one server, one for each client.
pub(crate) struct Outlets<'a, M: Machine> {
    call: Call<'a, M>,
    server: usize,
    outlets: Vec<Outlet>,
    /// Tells of answers, and of messages that have been sent.
    changed: Signal,
    sent: Cell<Traffic>,
}

impl<'a, M: Machine> Outlets<'a, M> {
    pub(crate) fn new(call: Call<'a, M>, server: usize) -> Self {
        let clients = &call.party().clients;
        Self {
            call,
            server,
            outlets: clients.iter().map(|_| Outlet::default()).collect(),
            changed: Signal::default(),
            sent: Cell::default(),
        }
    }

    /// Delivers, as soon as clients have answered what went before.
    ///
    /// # Errors
    /// When a client cannot be reached; [`Kind::Schema`] when there is no such rank.
    pub(crate) async fn deliver(&self, delivery: &Delivery) -> Result<()> {
        match delivery.to {
            Addressee::Rank(rank) => self.put(rank, &delivery.bytes).await,
            Addressee::All => {
                for rank in 0..self.outlets.len() {
                    self.put(rank, &delivery.bytes).await?;
                }
                Ok(())
            }
        }
    }

    async fn put(&self, rank: usize, bytes: &[u8]) -> Result<()> {
        let Some(outlet) = self.outlets.get(rank) else {
            let cause = format!("rank {rank} of {}", self.outlets.len());
            return Err(Error::new(Kind::Schema, "delivering to a client", cause));
        };
        let sent = self.sent.get();
        self.sent.set(sent.and(&Traffic {
            delivered_bytes: bytes.len() as u64,
            ..Traffic::default()
        }));
        outlet.waiting.borrow_mut().extend_from_slice(bytes);
        self.send_down_to(rank, MESSAGE_BYTES_MIN).await
    }

    /// Sends a client what waits until fewer than `bytes_min` bytes are left.
    async fn send_down_to(&self, rank: usize, bytes_min: usize) -> Result<()> {
        let outlet = &self.outlets[rank];
        loop {
            let is_enough = || outlet.waiting.borrow().len() < bytes_min;
            let may_send = || !outlet.is_sending.get() && outlet.unanswered.get() < UNANSWERED_MAX;
            let turn = || (is_enough() || may_send()).then_some(());
            self.changed.until(turn).await;
            if is_enough() {
                return Ok(());
            }
            let body = {
                let mut waiting = outlet.waiting.borrow_mut();
                let end = waiting.len().min(MESSAGE_BYTES_MAX);
                let body = self.body(false, &waiting[..end]);
                waiting.drain(..end);
                body
            };
            outlet.is_sending.set(true);
            let sent = self.send(rank, body).await;
            outlet.is_sending.set(false);
            if sent.is_ok() {
                outlet.unanswered.set(outlet.unanswered.get() + 1);
                let all = self.sent.get();
                self.sent.set(all.and(&Traffic {
                    transfers: 1,
                    ..Traffic::default()
                }));
            }
            self.changed.tell();
            sent?;
        }
    }

    fn body(&self, is_end: bool, bytes: &[u8]) -> Vec<u8> {
        let mut body = Vec::with_capacity(HEADER_BYTES + bytes.len());
        body.extend(exact::<u32>(self.server).to_le_bytes());
        body.push(u8::from(is_end));
        body.extend_from_slice(bytes);
        body
    }

    async fn send(&self, rank: usize, body: Vec<u8>) -> Result<()> {
        let client = self.call.party().clients[rank];
        let port = self.call.port(Step::Deliver);
        self.call.machine.send(client, port, body, None).await
    }

    /// Runs the part of a server, sends what is left, waits until all is taken, and tells clients
    /// the end, whatever has come of the part.
    ///
    /// # Errors
    /// The part's; when a client cannot be reached.
    pub(crate) async fn around(
        &self,
        part: impl Future<Output = Result<Traffic>>,
    ) -> Result<Traffic> {
        let delivering = async {
            let done = match part.await {
                Ok(moved) => self.send_all().await.map(|()| moved),
                Err(error) => Err(error),
            };
            let none_waits = || {
                let mut outlets = self.outlets.iter();
                outlets
                    .all(|outlet| outlet.unanswered.get() == 0)
                    .then_some(())
            };
            self.changed.until(none_waits).await;
            let mut told = Ok(());
            for rank in 0..self.outlets.len() {
                told = told.and(self.send(rank, self.body(true, &[])).await);
            }
            let moved = done?;
            told.map(|()| moved.and(&self.sent.get()))
        };
        match select(pin!(delivering), pin!(self.hear_answers())).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => match never {},
        }
    }

    async fn send_all(&self) -> Result<()> {
        for rank in 0..self.outlets.len() {
            self.send_down_to(rank, 1).await?;
        }
        Ok(())
    }

    async fn hear_answers(&self) -> std::convert::Infallible {
        let port = self.call.port(Step::Taken(exact::<u32>(self.server)));
        loop {
            let message = self.call.machine.receive(port).await;
            let rank = self.call.party().rank(message.from);
            if let Some(outlet) = rank.and_then(|rank| self.outlets.get(rank)) {
                let unanswered = &outlet.unanswered;
                unanswered.set(unanswered.get().saturating_sub(1));
                self.changed.tell();
            }
        }
    }
}

/// Takes what all servers of a request deliver to this client, until each has told the end.
///
/// # Errors
/// The first error: of the catch, of a server that cannot be answered, or [`Kind::Peer`] for what
/// no server sends. It is given when all servers have ended.
pub(crate) async fn take<M: Machine>(
    call: &Call<'_, M>,
    request: &Request,
    catch: &dyn Catch,
) -> Result<()> {
    let port = call.port(Step::Deliver);
    let mut has_ended = vec![false; request.servers];
    let mut taken = Ok(());
    while has_ended.contains(&false) {
        let message = call.machine.receive(port).await;
        let Some((server, is_end)) = source_of(call, &message, &has_ended) else {
            taken = taken.and(Err(refusal(
                "somebody delivers who is no server of the call",
            )));
            continue;
        };
        if is_end {
            has_ended[server] = true;
            continue;
        }
        taken = taken.and(catch.take(server, &message.body[HEADER_BYTES..]));
        let port = call.port(Step::Taken(exact::<u32>(server)));
        let answered = call.machine.send(message.from, port, Vec::new(), None);
        taken = taken.and(answered.await);
    }
    taken
}

/// The server of a message, and whether it tells the end; `None` if no server that goes on sends
/// such a message.
fn source_of<M: Machine>(
    call: &Call<'_, M>,
    message: &Message<M::Parcel>,
    has_ended: &[bool],
) -> Option<(usize, bool)> {
    let (number, rest) = message.body.split_first_chunk::<4>()?;
    let server = usize::try_from(u32::from_le_bytes(*number)).ok()?;
    let is_end = match rest {
        [0, ..] => false,
        [1] => true,
        _ => return None,
    };
    let is_its_node = call.party().servers.get(server) == Some(&message.from);
    (is_its_node && has_ended.get(server) == Some(&false)).then_some((server, is_end))
}

pub(crate) fn refusal(cause: impl Into<String>) -> Error {
    Error::new(Kind::Peer, "taking what servers deliver", cause.into())
}
