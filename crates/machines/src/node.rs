//! One node of a real machine: it runs its asynchronous code, answers what other nodes ask of its
//! memory, and sleeps when there is nothing to do.
//!
//! All nodes work alike; machines differ in their [`Links`], the way packets travel. How a memget
//! is done depends on where the client is:
//!
//! | the client is | a memget is |
//! |---|---|
//! | in this process | a copy by the server from the client's memory |
//! | on this host | a copy by the client from its memory into the server's shared buffer |
//! | elsewhere | a message with the piece packed, unpacked by the server into its buffer |
//!
//! The first two are a single copy from the user's array into the staging buffer, laid out as the
//! disk wants it.

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
use penstock_engine::{Error, Kind, Machine, Message, NodeId, Request, Result, Tag, Window, Work};
use penstock_layout::{Piece, Region, Share};

use crate::bell::{BellWaker, HasBell};
use crate::buffer::{Buffer, BufferPool, Mapped};
use crate::disk::{DiskThread, Opener, RealDisk};
use crate::memory::{ClientMemory, Exposure, Exposures, copy_unpacked, packed_bytes};
use crate::wire::{Header, Packet, direction};

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

    /// Sleeps until the bell rings that was last read as `seen`, or for as long as it may be left
    /// unlooked at. `idle` counts the calls since there was something to do.
    fn sleep(&self, seen: u32, idle: u32);
}

/// One node. See the module's head.
pub struct Node {
    me: NodeId,
    nodes: usize,
    links: Box<dyn Links>,
    exposures: Arc<Exposures>,
    opener: Arc<dyn Opener>,
    started: Instant,
    mail: RefCell<HashMap<Tag, Mail>>,
    tickets: RefCell<HashMap<u64, oneshot::Sender<Result<Vec<u8>>>>>,
    next_ticket: Cell<u64>,
    broken: RefCell<Option<Error>>,
    buffers: Rc<BufferPool>,
    mapped: RefCell<Mapped>,
    disks: RefCell<Vec<Rc<DiskThread>>>,
}

#[derive(Default)]
struct Mail {
    waiting: VecDeque<Message<Vec<u8>>>,
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
        exposures: Arc<Exposures>,
        opener: Arc<dyn Opener>,
    ) -> Self {
        let is_shared = (0..nodes).any(|node| links.reach(node) == Reach::Host);
        Self {
            me,
            nodes,
            links,
            exposures,
            opener,
            started: Instant::now(),
            mail: RefCell::default(),
            tickets: RefCell::default(),
            next_ticket: Cell::new(0),
            broken: RefCell::default(),
            buffers: Rc::new(BufferPool::new(is_shared)),
            mapped: RefCell::default(),
            disks: RefCell::default(),
        }
    }

    /// Why no call can succeed any more, if so.
    pub fn broken(&self) -> Option<Error> {
        self.broken.borrow().clone()
    }

    /// Runs `future` to its end, answering other nodes meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let bell = self.links.bell();
        let waker = Waker::from(Arc::new(BellWaker(bell.clone())));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        let mut idle = 0;
        loop {
            let seen = bell.bell().read();
            if self.answer_all() {
                idle = 0;
            }
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                self.post_all_kept();
                return output;
            }
            self.links.sleep(seen, idle);
            idle = idle.saturating_add(1);
        }
    }

    /// Tells all nodes that this one leaves because of `error`: their calls fail instead of waiting.
    pub fn leave(&self, error: &Error) {
        for node in (0..self.nodes).filter(|&node| node != self.me) {
            // A node that cannot be reached any more has its own reason to fail.
            let _ = self.post(node, &Header::Left(error.clone()), 0, |_| {});
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
    fn post_all_kept(&self) {
        while self.links.keeps_any() && self.broken.borrow().is_none() {
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
                let parcel = has_parcel.then(|| payload.split_off(body));
                self.deliver(tag, from, payload, parcel);
                Ok(())
            }
            Header::Copy {
                ticket,
                call,
                is_get,
                piece,
                window,
                buffer,
            } => {
                let copied = self.exposures.of(*call, self.me).and_then(|memory| {
                    let base = self.mapped.borrow_mut().base(from, buffer)?;
                    // SAFETY: the server asks for a piece of this client's share, which the memory
                    // holds, and its buffer holds the window; the server waits for the answer
                    // before it touches either.
                    unsafe { memory.copy(piece, window, base, direction(*is_get)) };
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
                let memory = match self.exposures.of(*call, self.me) {
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
                        memory.copy_packed(piece, *width, packed.as_mut_ptr(), direction(true));
                    }
                })
            }
            Header::Deliver {
                ticket,
                call,
                width,
                piece,
            } => {
                let copied = self.exposures.of(*call, self.me).map(|memory| {
                    let packed = packet.payload().as_ptr().cast_mut();
                    // SAFETY: as above; scattering only reads the packet.
                    unsafe { memory.copy_packed(piece, *width, packed, direction(false)) };
                });
                self.done(from, *ticket, copied)
            }
            Header::Done { ticket, result } => {
                let waiting = self.tickets.borrow_mut().remove(ticket);
                if let Some(waiting) = waiting {
                    let result = result.clone();
                    // Nobody waits any more where the call was given up.
                    let _ = waiting.send(result.map(|()| packet.into_payload()));
                }
                Ok(())
            }
            Header::Left(error) => {
                self.fail(error.clone());
                Ok(())
            }
        }
    }

    fn done(&self, to: NodeId, ticket: u64, result: Result<()>) -> Result<()> {
        self.post(to, &Header::Done { ticket, result }, 0, |_| {})
    }

    fn deliver(&self, tag: Tag, from: NodeId, body: Vec<u8>, parcel: Option<Vec<u8>>) {
        let mut mail = self.mail.borrow_mut();
        let mail = mail.entry(tag).or_default();
        mail.waiting.push_back(Message { from, body, parcel });
        if let Some(waker) = mail.waker.take() {
            waker.wake();
        }
    }

    /// From now on every call fails with the first error given.
    fn fail(&self, error: Error) {
        self.broken.borrow_mut().get_or_insert(error.clone());
        for (_, waiting) in self.tickets.borrow_mut().drain() {
            let _ = waiting.send(Err(error.clone()));
        }
        for mail in self.mail.borrow_mut().values_mut() {
            if let Some(waker) = mail.waker.take() {
                waker.wake();
            }
        }
    }

    /// Posts a packet with a ticket and waits for its answer's payload.
    async fn ask(
        &self,
        to: NodeId,
        payload: usize,
        header: impl FnOnce(u64) -> Header,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Vec<u8>> {
        if let Some(error) = self.broken() {
            return Err(error);
        }
        let ticket = self.next_ticket.get();
        self.next_ticket.set(ticket + 1);
        let (sender, answer) = oneshot::channel();
        self.tickets.borrow_mut().insert(ticket, sender);
        self.post(to, &header(ticket), payload, fill)?;
        answer.await.unwrap_or_else(|_| {
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
                let memory = self.exposures.of(call, client)?;
                // SAFETY: the engine keeps windows of one buffer disjoint and inside it, and the
                // client's memory holds the piece and is left alone until the verdict.
                unsafe { memory.copy(&piece, window, buffer.base(), direction(is_get)) };
                Ok(())
            }
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
                self.ask(client, 0, header, |_| {}).await.map(|_| ())
            }
            Reach::Network if is_get => {
                let wanted = piece.clone();
                let header = |ticket| Header::Fetch {
                    ticket,
                    call,
                    width,
                    piece: wanted,
                };
                let mut packed = self.ask(client, 0, header, |_| {}).await?;
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
                unsafe { copy_unpacked(&piece, window, buffer.base(), packed, direction(true)) };
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
                        copy_unpacked(&piece, window, buffer.base(), packed, direction(false));
                    }
                };
                self.ask(client, bytes, header, fill).await.map(|_| ())
            }
        }
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

impl Machine for Node {
    type Memory = ClientMemory;
    type Exposure = Exposure;
    type Buffer = Buffer;
    type Parcel = Vec<u8>;
    type Disk = RealDisk;

    fn me(&self) -> NodeId {
        self.me
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    async fn work(&self, _work: Work) {}

    async fn send(
        &self,
        to: NodeId,
        tag: Tag,
        body: Vec<u8>,
        parcel: Option<Vec<u8>>,
    ) -> Result<()> {
        if to == self.me {
            self.deliver(tag, to, body, parcel);
            return Ok(());
        }
        let header = Header::Message {
            tag,
            body: body.len(),
            has_parcel: parcel.is_some(),
        };
        let parcel = parcel.unwrap_or_default();
        self.post(to, &header, body.len() + parcel.len(), |payload| {
            let (front, back) = payload.split_at_mut(body.len());
            front.copy_from_slice(&body);
            back.copy_from_slice(&parcel);
        })
    }

    async fn receive(&self, tag: Tag) -> Result<Message<Vec<u8>>> {
        let _forget = Forget(&self.mail, tag);
        std::future::poll_fn(|context| {
            let mut all = self.mail.borrow_mut();
            let mail = all.entry(tag).or_default();
            if let Some(message) = mail.waiting.pop_front() {
                return Poll::Ready(Ok(message));
            }
            if let Some(error) = self.broken() {
                return Poll::Ready(Err(error));
            }
            mail.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn pack(
        &self,
        call: u64,
        share: &Share,
        elements: &Region,
        window: &Window,
    ) -> Result<Vec<u8>> {
        let memory = self.exposures.of(call, self.me)?;
        let mut parcel = vec![0; elements.elements() as usize * window.width];
        if let Some(piece) = share.intersect(elements) {
            let packed = parcel.as_mut_ptr();
            // SAFETY: the memory holds the share, and the parcel all of the elements, which lie one
            // behind the other in the window.
            unsafe { memory.copy(&piece, window, packed, direction(true)) };
        }
        Ok(parcel)
    }

    fn unpack(
        &self,
        call: u64,
        parcel: &Vec<u8>,
        share: &Share,
        elements: &Region,
        window: &Window,
    ) -> Result<()> {
        let memory = self.exposures.of(call, self.me)?;
        let expected = elements.elements() as usize * window.width;
        if parcel.len() != expected {
            let cause = format!("{} bytes came, not {expected}", parcel.len());
            return Err(Error::new(Kind::Peer, "unpacking an answer", cause));
        }
        if let Some(piece) = share.intersect(elements) {
            let packed = parcel.as_ptr().cast_mut();
            // SAFETY: as above; scattering only reads the parcel.
            unsafe { memory.copy(&piece, window, packed, direction(false)) };
        }
        Ok(())
    }

    fn cut(&self, buffer: &Buffer, part: Range<u64>) -> Vec<u8> {
        buffer
            .bytes(part.start as usize..part.end as usize)
            .to_vec()
    }

    fn paste(&self, parcel: &Vec<u8>, buffer: &Buffer, offset: u64) {
        buffer.fill(offset as usize, parcel);
    }

    fn expose(&self, call: u64, memory: ClientMemory) -> Exposure {
        self.exposures.expose(call, self.me, memory)
    }

    fn buffer(&self, bytes: u64) -> Result<Buffer> {
        self.buffers.take(bytes as usize)
    }

    fn clear(&self, buffer: &Buffer, bytes: u64) {
        buffer.clear(bytes as usize);
    }

    async fn memget(
        &self,
        call: u64,
        client: NodeId,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
    ) -> Result<()> {
        self.transfer(call, client, piece, window, buffer, true)
            .await
    }

    async fn memput(
        &self,
        call: u64,
        client: NodeId,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
    ) -> Result<()> {
        self.transfer(call, client, piece, window, buffer, false)
            .await
    }

    fn reached_by(&self, _server: usize) -> usize {
        0 // every node opens the store itself, all of it
    }

    async fn open(&self, request: &Request, _server: usize) -> Result<RealDisk> {
        let thread = self.disk_thread()?;
        let (opener, request) = (self.opener.clone(), request.clone());
        let is_synced = request.sync;
        let medium = thread.run(move || opener.open(&request)).await??;
        Ok(RealDisk::new(medium, thread, is_synced))
    }
}
