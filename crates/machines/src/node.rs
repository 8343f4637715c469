//! One node of a real machine: it runs its asynchronous code, answers what other nodes ask of its
//! memory, and sleeps when there is nothing to do.
//!
//! All nodes work alike; machines differ in their [`Links`], the way packets travel. How a memget
//! is done depends on where the client is:
//!
//! | the client is | a memget is |
//! |---|---|
//! | in this process | a copy by the server from the client's memory |
//! | on this host | a copy by the server, if it may ([`crate::board`]); else by the client, into a shared buffer |
//! | elsewhere | a message with the piece packed, unpacked by the server into its buffer |
//!
//! The first two are a single copy from the user's array into the staging buffer, laid out as the
//! disk wants it.

mod machine;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use penstock_engine::{CopyBy, Error, Kind, Message, NodeId, Result, Tag, Window};
use penstock_layout::Piece;

use crate::bell::{BellWaker, HasBell};
use crate::board::{Copied, HasBoard};
use crate::buffer::{Buffer, BufferPool, Mapped, Staging};
use crate::disk::{DiskThread, Opener};
use crate::memory::{Exposures, copy_unpacked, packed_bytes};
use crate::parcel::{Lendings, Lent, Parcel, Returned};
use crate::wire::{Header, Lies, Packet, direction};

/// How long a node that leaves waits for others to take what it has to tell them: one that never
/// looks again cannot be told.
pub const LEAVING_MAX: Duration = Duration::from_secs(5);

/// Where another node is, as seen from this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// In this process.
    Process,
    /// In another process that maps the same memory.
    Host,
    /// Only by messages.
    Network,
}

/// How packets travel between nodes.
pub trait Links {
    /// Where `node` is.
    fn reach(&self, node: NodeId) -> Reach;

    /// Hands over a packet. Never blocks: what cannot go at once is kept and tried again.
    ///
    /// # Errors
    /// When it can never go.
    fn post(&self, to: NodeId, packet: Vec<u8>) -> Result<()>;

    /// The next packet that has come, if any. Also moves on what was kept.
    ///
    /// # Errors
    /// When the link is broken.
    fn poll(&self) -> Result<Option<Vec<u8>>>;

    /// Whether packets are kept that could not go yet.
    fn keeps_any(&self) -> bool;

    /// Where this node's bell is.
    fn bell(&self) -> Arc<dyn HasBell>;

    /// Where `node` posts what it exposes, if it is on this host.
    fn board(&self, node: NodeId) -> Option<Arc<dyn HasBoard>> {
        let _ = node;
        None
    }

    /// How long the bell may be left unlooked at: `None` if it rings for all that comes. `idle` counts
    /// the looks since there was something to do.
    fn nap_max(&self, idle: u32) -> Option<Duration>;

    /// Whether packets travel by MPI, some of them at least.
    fn needs_mpi(&self) -> bool;
}

/// What the nodes of one process share.
#[derive(Clone, Default)]
pub struct Process {
    exposures: Arc<Exposures>,
    lendings: Arc<Lendings>,
}

/// One node. See the module's head.
pub struct Node {
    me: NodeId,
    nodes: usize,
    links: Box<dyn Links>,
    process: Process,
    opener: Arc<dyn Opener>,
    started: Instant,
    mail: RefCell<HashMap<Tag, Mail>>,
    tickets: RefCell<HashMap<u64, Ticket>>,
    next_ticket: Cell<u64>,
    losses: RefCell<Vec<Loss>>,
    buffers: Rc<BufferPool>,
    mapped: RefCell<Mapped>,
    /// Whether the kernel lets this process reach into others of the host.
    may_reach: Cell<bool>,
    returned: Returned,
    disks: RefCell<Vec<Rc<DiskThread>>>,
}

/// An answer that this node waits for.
struct Ticket {
    /// The call for which it was asked.
    call: u64,
    answer: oneshot::Sender<Result<Vec<u8>>>,
}

/// Calls that cannot succeed any more.
struct Loss {
    calls: Vec<Range<u64>>,
    error: Error,
}

impl Loss {
    fn is_of(&self, call: u64) -> bool {
        self.calls.iter().any(|calls| calls.contains(&call))
    }
}

#[derive(Default)]
struct Mail {
    waiting: VecDeque<Message<Parcel>>,
    waker: Option<Waker>,
}

/// Whoever waits for a tag and then gives up, as a server does at the end of a call, leaves no entry
/// behind: tags do not come again.
struct Forget<'a>(&'a RefCell<HashMap<Tag, Mail>>, Tag);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let mut all = self.0.borrow_mut();
        if all.get(&self.1).is_some_and(|mail| mail.waiting.is_empty()) {
            all.remove(&self.1);
        }
    }
}

impl Node {
    /// Node `me` of `nodes`.
    pub fn new(
        me: NodeId,
        nodes: usize,
        links: Box<dyn Links>,
        process: Process,
        opener: Arc<dyn Opener>,
    ) -> Self {
        let is_shared = (0..nodes).any(|node| links.reach(node) == Reach::Host);
        Self {
            me,
            nodes,
            links,
            process,
            opener,
            started: Instant::now(),
            mail: RefCell::default(),
            tickets: RefCell::default(),
            next_ticket: Cell::new(0),
            losses: RefCell::default(),
            buffers: Rc::new(BufferPool::new(is_shared)),
            mapped: RefCell::default(),
            may_reach: Cell::new(is_shared),
            returned: Returned::default(),
            disks: RefCell::default(),
        }
    }

    /// Why no call that has yet to begin can succeed, if so.
    pub fn broken(&self) -> Option<Error> {
        self.loss_of(u64::MAX - 1)
    }

    /// Why this call cannot succeed any more, if so.
    fn loss_of(&self, call: u64) -> Option<Error> {
        let losses = self.losses.borrow();
        let loss = losses.iter().find(|loss| loss.is_of(call));
        loss.map(|loss| loss.error.clone())
    }

    /// Runs `future` to its end, answering other nodes meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut rest = Rest::default();
        loop {
            let output = self.look(&mut rest, |context| future.as_mut().poll(context));
            match output {
                Poll::Ready(output) => {
                    self.post_all_kept();
                    return output;
                }
                Poll::Pending => rest.sleep(None),
            }
        }
    }

    /// Takes in what has come, lets `poll` go on, and says in `rest` how long this node may sleep.
    pub fn look<T>(&self, rest: &mut Rest, poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let bell = rest.bell.get_or_insert_with(|| self.links.bell()).clone();
        rest.seen = bell.bell().read();
        rest.idle = match self.answer_all() {
            true => 0,
            false => rest.idle.saturating_add(1),
        };
        let waker = Waker::from(Arc::new(BellWaker(bell)));
        let polled = poll(&mut Context::from_waker(&waker));
        self.give_back();
        rest.at_most = self.links.nap_max(rest.idle);
        polled
    }

    /// Makes this node look, if it sleeps: another thread has given it something to do.
    pub fn wake(&self) {
        self.links.bell().bell().ring();
    }

    /// Whether the MPI library is called when this node looks, from whatever thread.
    pub fn needs_mpi(&self) -> bool {
        self.links.needs_mpi()
    }

    /// Tells other nodes that what they have lent has been read.
    fn give_back(&self) {
        let returned = self.returned.take();
        for (to, ticket) in returned {
            if let Err(error) = self.done(to, ticket, Ok(())) {
                self.fail(error);
            }
        }
    }

    /// Tells all nodes that this one leaves because of `error`. Calls of these numbers, in which it takes no
    /// further part, fail on all nodes instead of waiting. All other calls go on: this node has done its part.
    pub fn leave(&self, error: &Error, calls: &[Range<u64>]) {
        let left = Header::Left {
            calls: calls.to_vec(),
            error: error.clone(),
        };
        for node in (0..self.nodes).filter(|&node| node != self.me) {
            // A node that cannot be reached any more has its own reason to fail.
            let _ = self.post(node, &left, 0, |_| {});
        }
        let until = Instant::now() + LEAVING_MAX;
        while self.links.keeps_any() && Instant::now() < until {
            self.answer_all();
            std::thread::yield_now();
        }
        self.fail(error.clone());
    }

    /// Waits until nothing is kept: others wait for these packets, and this node may be busy with
    /// something else for long.
    pub fn post_all_kept(&self) {
        while self.links.keeps_any() && self.broken().is_none() {
            self.answer_all();
            std::thread::yield_now();
        }
    }

    fn post(
        &self,
        to: NodeId,
        header: &Header,
        payload: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let (mut packet, start) = Packet::encode(self.me, header, payload)?;
        fill(&mut packet[start..]);
        self.links.post(to, packet)
    }

    /// Takes in all packets that have come. True if there were any.
    fn answer_all(&self) -> bool {
        let mut any = false;
        loop {
            match self.links.poll() {
                Ok(None) => return any,
                Ok(Some(bytes)) => {
                    any = true;
                    if let Err(error) = Packet::decode(bytes).and_then(|p| self.answer(p)) {
                        self.fail(error);
                    }
                }
                Err(error) => {
                    self.fail(error);
                    return true;
                }
            }
        }
    }

    fn answer(&self, packet: Packet) -> Result<()> {
        let from = packet.from;
        match &packet.header {
            Header::Message {
                tag,
                body,
                has_parcel,
            } => {
                let (tag, body, has_parcel) = (*tag, *body, *has_parcel);
                let mut payload = packet.into_payload();
                if body > payload.len() {
                    let cause = format!("{} bytes came of {body}", payload.len());
                    return Err(Error::new(Kind::Peer, "taking in a message", cause));
                }
                let parcel = has_parcel.then(|| Parcel::Own(payload.split_off(body)));
                self.deliver(tag, from, payload, parcel);
                Ok(())
            }
            Header::Lent {
                ticket,
                tag,
                body,
                bytes,
                lies,
            } => {
                let (ticket, tag, body, bytes) = (*ticket, *tag, *body, *bytes);
                let memory = match lies {
                    Lies::InPacket => None,
                    Lies::OnHost(buffer) => Some(self.mapped.borrow_mut().memory(from, buffer)?),
                    Lies::InProcess => match self.process.lendings.take(from, ticket) {
                        Some(staging) => Some(staging),
                        None => return Ok(()), // its sender has given up
                    },
                };
                self.take_lent(
                    (from, ticket),
                    tag,
                    packet.into_payload(),
                    body,
                    memory,
                    bytes,
                )
            }
            Header::Copy {
                ticket,
                call,
                is_get,
                piece,
                window,
                buffer,
            } => {
                let copied = self
                    .process
                    .exposures
                    .of(*call, self.me)
                    .and_then(|memory| {
                        let staging = self.mapped.borrow_mut().memory(from, buffer)?;
                        let base = staging.base();
                        // SAFETY: the server asks for a piece of this client's share, which the memory
                        // holds, and its buffer holds the window; the server waits for the answer
                        // before it touches either.
                        unsafe {
                            memory.copy(piece, window, base, direction(*is_get), CopyBy::Kernels);
                        }
                        Ok(())
                    });
                self.done(from, *ticket, copied)
            }
            Header::Fetch {
                ticket,
                call,
                width,
                piece,
            } => {
                let memory = match self.process.exposures.of(*call, self.me) {
                    Ok(memory) => memory,
                    Err(error) => return self.done(from, *ticket, Err(error)),
                };
                let answer = Header::Done {
                    ticket: *ticket,
                    result: Ok(()),
                };
                self.post(from, &answer, packed_bytes(piece, *width), |packed| {
                    // SAFETY: as above, with the packet in the place of the buffer.
                    unsafe {
                        let (packed, by) = (packed.as_mut_ptr(), CopyBy::Kernels);
                        memory.copy_packed(piece, *width, packed, direction(true), by);
                    }
                })
            }
            Header::Deliver {
                ticket,
                call,
                width,
                piece,
            } => {
                let copied = self.process.exposures.of(*call, self.me).map(|memory| {
                    let packed = packet.payload().as_ptr().cast_mut();
                    // SAFETY: as above; scattering only reads the packet.
                    unsafe {
                        let by = CopyBy::Kernels;
                        memory.copy_packed(piece, *width, packed, direction(false), by);
                    }
                });
                self.done(from, *ticket, copied)
            }
            Header::Done { ticket, result } => {
                let waiting = self.tickets.borrow_mut().remove(ticket);
                if let Some(waiting) = waiting {
                    let result = result.clone();
                    // Nobody waits any more where the call was given up.
                    let _ = waiting.answer.send(result.map(|()| packet.into_payload()));
                }
                Ok(())
            }
            Header::Left { calls, error } => {
                self.lose(calls.clone(), error.clone());
                Ok(())
            }
        }
    }

    fn done(&self, to: NodeId, ticket: u64, result: Result<()>) -> Result<()> {
        self.post(to, &Header::Done { ticket, result }, 0, |_| {})
    }

    /// Takes in a message whose parcel was lent: hands it on where somebody waits for it, and otherwise
    /// keeps a copy, so that the sender has its buffer again.
    fn take_lent(
        &self,
        (from, ticket): (NodeId, u64),
        tag: Tag,
        mut payload: Vec<u8>,
        body: usize,
        memory: Option<Arc<Staging>>,
        bytes: usize,
    ) -> Result<()> {
        let cut_short = || {
            let cause = format!("less than {bytes} bytes came");
            Error::new(Kind::Peer, "taking in a message", cause)
        };
        let Some(memory) = memory else {
            if body > payload.len() || bytes != payload.len() - body {
                return Err(cut_short());
            }
            let parcel = Parcel::Own(payload.split_off(body));
            self.deliver(tag, from, payload, Some(parcel));
            return self.done(from, ticket, Ok(()));
        };
        let lender = (from, ticket);
        let lent = Lent::new(memory, bytes, lender, &self.returned).ok_or_else(cut_short)?;
        let mut parcel = Parcel::Lent(lent);
        let is_awaited = self
            .mail
            .borrow()
            .get(&tag)
            .is_some_and(|mail| mail.waker.is_some());
        if !is_awaited {
            parcel = Parcel::Own(parcel.bytes().to_vec());
        }
        self.deliver(tag, from, payload, Some(parcel));
        Ok(())
    }

    fn deliver(&self, tag: Tag, from: NodeId, body: Vec<u8>, parcel: Option<Parcel>) {
        let mut mail = self.mail.borrow_mut();
        let mail = mail.entry(tag).or_default();
        mail.waiting.push_back(Message { from, body, parcel });
        if let Some(waker) = mail.waker.take() {
            waker.wake();
        }
    }

    /// From now on every call fails with this error, unless it has failed with another.
    fn fail(&self, error: Error) {
        let all = 0..u64::MAX;
        self.lose(vec![all], error);
    }

    /// From now on these calls fail with this error, unless they have failed with another.
    fn lose(&self, calls: Vec<Range<u64>>, error: Error) {
        self.losses.borrow_mut().push(Loss { calls, error });
        let mut tickets = self.tickets.borrow_mut();
        let lost = tickets.extract_if(|_, ticket| self.loss_of(ticket.call).is_some());
        for (_, Ticket { call, answer }) in lost {
            let _ = answer.send(self.loss_of(call).map_or(Ok(Vec::new()), Err));
        }
        for mail in self.mail.borrow_mut().values_mut() {
            if let Some(waker) = mail.waker.take() {
                waker.wake();
            }
        }
    }

    /// Posts a packet of a call with a ticket and waits for its answer's payload.
    async fn ask(
        &self,
        call: u64,
        to: NodeId,
        payload: usize,
        header: impl FnOnce(u64) -> Header,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Vec<u8>> {
        if let Some(error) = self.loss_of(call) {
            return Err(error);
        }
        let ticket = self.next_ticket.get();
        self.next_ticket.set(ticket + 1);
        let (answer, came) = oneshot::channel();
        let waiting = Ticket { call, answer };
        self.tickets.borrow_mut().insert(ticket, waiting);
        self.post(to, &header(ticket), payload, fill)?;
        came.await.unwrap_or_else(|_| {
            Err(Error::new(
                Kind::Peer,
                "waiting for a client's answer",
                "the session has ended",
            ))
        })
    }

    async fn transfer(
        &self,
        call: u64,
        client: NodeId,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
        is_get: bool,
    ) -> Result<()> {
        let piece = piece.clone();
        let width = window.width;
        match self.links.reach(client) {
            Reach::Process => {
                let memory = self.process.exposures.of(call, client)?;
                // SAFETY: the engine keeps windows of one buffer disjoint and inside it, and the
                // client's memory holds the piece and is left alone until the verdict.
                unsafe {
                    let by = CopyBy::Kernels;
                    memory.copy(&piece, window, buffer.base(), direction(is_get), by);
                }
                Ok(())
            }
            Reach::Host if self.reach_over(call, client, &piece, window, buffer, is_get) => Ok(()),
            Reach::Host => {
                let (buffer, window) = (buffer.name()?, window.clone());
                let header = |ticket| Header::Copy {
                    ticket,
                    call,
                    is_get,
                    piece,
                    window,
                    buffer,
                };
                self.ask(call, client, 0, header, |_| {}).await.map(|_| ())
            }
            Reach::Network if is_get => {
                let wanted = piece.clone();
                let header = |ticket| Header::Fetch {
                    ticket,
                    call,
                    width,
                    piece: wanted,
                };
                let mut packed = self.ask(call, client, 0, header, |_| {}).await?;
                if packed.len() != packed_bytes(&piece, width) {
                    let cause = format!("{} bytes came", packed.len());
                    return Err(Error::new(
                        Kind::Peer,
                        "fetching a piece from a client",
                        cause,
                    ));
                }
                let packed = packed.as_mut_ptr();
                // SAFETY: as above; `packed` has just been checked to hold the piece.
                unsafe {
                    let by = CopyBy::Kernels;
                    copy_unpacked(&piece, window, buffer.base(), packed, direction(true), by);
                }
                Ok(())
            }
            Reach::Network => {
                let bytes = packed_bytes(&piece, width);
                let sent = piece.clone();
                let header = |ticket| Header::Deliver {
                    ticket,
                    call,
                    width,
                    piece: sent,
                };
                let fill = |packed: &mut [u8]| {
                    let packed = packed.as_mut_ptr();
                    // SAFETY: as above, with the direction turned: the buffer is only read.
                    unsafe {
                        let by = CopyBy::Kernels;
                        copy_unpacked(&piece, window, buffer.base(), packed, direction(false), by);
                    }
                };
                self.ask(call, client, bytes, header, fill)
                    .await
                    .map(|_| ())
            }
        }
    }

    /// Copies a piece between this process's buffer and the memory of another. False if its client is to do it.
    fn reach_over(
        &self,
        call: u64,
        client: NodeId,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
        is_get: bool,
    ) -> bool {
        if !self.may_reach.get() {
            return false;
        }
        let board = self.links.board(client);
        let Some(found) = board.as_ref().and_then(|board| board.board().find(call)) else {
            return false;
        };
        // SAFETY: the engine keeps windows of one buffer disjoint and inside it, and the client leaves its
        // memory alone until the verdict.
        let copied = unsafe { found.copy(piece, window, buffer.base(), direction(is_get)) };
        self.may_reach.set(copied != Copied::Never);
        copied == Copied::All
    }

    /// The thread of a disk that no other call is using.
    fn disk_thread(&self) -> Result<Rc<DiskThread>> {
        let mut disks = self.disks.borrow_mut();
        if let Some(free) = disks.iter().find(|disk| Rc::strong_count(disk) == 1) {
            return Ok(free.clone());
        }
        let disk = Rc::new(DiskThread::start(self.me)?);
        disks.push(disk.clone());
        Ok(disk)
    }
}

/// How a node may sleep: see [`Node::look`]. It does not need the node, so that another thread may use
/// that meanwhile.
#[derive(Default)]
pub struct Rest {
    bell: Option<Arc<dyn HasBell>>,
    seen: u32,
    idle: u32,
    at_most: Option<Duration>,
}

impl Rest {
    /// Sleeps until the node is wanted, or has to look, but not longer than that.
    pub fn sleep(&self, at_most: Option<Duration>) {
        let shorter = match (self.at_most, at_most) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        match (&self.bell, shorter) {
            (_, Some(Duration::ZERO)) => std::thread::yield_now(),
            (Some(bell), at_most) => bell.bell().sleep(self.seen, at_most),
            (None, _) => {}
        }
    }
}
