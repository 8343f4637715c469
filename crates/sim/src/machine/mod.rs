//! The simulated machine: the engine's [`Machine`] in virtual time.
//!
//! The strategies of `penstock-engine` run on it unchanged. Each of its nodes has one CPU and one
//! network port; I/O nodes also have a bus and disks, each with a server of its own. All work of
//! software is charged to the node's CPU, at the prices of the preset:
//!
//! | what | whose CPU | price |
//! |---|---|---|
//! | a message, with its parcel | sender; receiver | `send_us`; `receive_us`: interfaces move the bytes |
//! | a message from a send buffer that nobody waits for | receiver, besides | `copy_us`, `copy_ns_per_byte` |
//! | a memput | server; client | `memput_us` a message, `index_us` a stretch; `remote_us` |
//! | a memget | server; client | `memget_us` a message, `index_us` a stretch; `remote_us` |
//! | a memput or memget of many stretches | both | `batch.list_us`, `gather_us`, `scatter_us` a stretch |
//! | a request to a disk | its I/O node | `disk_request_us` |
//! | opening, reading and writing files | none: the disk waits | `file_system` |
//! | the same, in a page cache | a processor of the host | `file_system`, if it `takes_processor` |
//! | a memget or memput on one host | who moves | `host.copy_us`, `copy_ns_per_byte`, `stretch_ns` |
//! | [`Work`] | the node's | `request_us`, `thread_us`, `lookup_us`, `copy_us`, `copy_ns_per_byte`, `entry_us`, `buffer_ns_per_byte` |
//! | copies into and out of messages | the node's | `processors.byte_copy_ns_per_byte`, `kernel_copy_ns_per_byte`, `stretch_us` |
//! | clients of the file system at a time | client; server | `sharing`: see that module |
//! | a computation, in slices | client | its length, and `switch_us` for other threads between |
//!
//! | module | contents |
//! |---|---|
//! | `simulation` | the machine of a preset, for one run, and its counts |
//! | `world` | the clock, the events, CPUs, ports and inboxes |
//! | `prices` | the costs of software |
//! | `sharing` | the costs of sharing a file system between clients |
//! | `hosts` | the processors that nodes of one host share |
//! | `turns` | one message, or one request to a disk, at a time, if calls block |
//! | `hardware` | network, disks and places of blocks, from the preset |
//! | `disks` | disks with their queues and buses |
//! | `contents` | what blocks of disks hold, also after a crash |
//! | `faults`, `losses` | what goes wrong, by seed; who is lost, and who knows it |
//! | `sieve` | what servers let through of a sifted read |
//! | `data` | memories, buffers and parcels, with real bytes or without |

mod contents;
mod data;
mod disks;
mod faults;
mod hardware;
mod hosts;
mod losses;
mod prices;
mod setup;
mod sharing;
mod sieve;
mod simulation;
mod turns;
mod world;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures::future::{Either, select};
use penstock_engine::signal::Signal;
use penstock_engine::{
    Change, CopyKind, Elements, Error, Kind, Machine, MemoryId, Message, NodeId, Opening, Port,
    Result, Window, Work,
};
use penstock_layout::{Direction, Piece, Region, Share, exact};

pub use data::{Buffer, Memory, Parcel};
pub use disks::SimDisk;
pub use faults::{DiskFault, Faults, Loss, Moment, Outage, Scope};
pub use setup::{Layout, Setup};
pub use sieve::{Selectivity, SimSieve};
pub use simulation::{Simulation, Totals};

use crate::time::{Span, Time};
use data::BufferSpace;
use disks::Station;
use hosts::Hosts;
use prices::{Moving, Prices};
use sharing::Sharing;
use turns::{Turn, Turns};
use world::World;

/// The data that all nodes share.
struct Shared {
    prices: Prices,
    sharing: Sharing,
    /// The turns of each node, if servers do one thing at a time.
    turns: Option<Rc<[Turns]>>,
    /// The processors of hosts, if nodes share them.
    hosts: Option<Rc<Hosts>>,
    clients: usize,
    is_real: bool,
    stations: Vec<Rc<Station>>,
    /// The slowness of each node's processor: a factor on the time of its copies.
    slowness: Vec<f64>,
    /// Whether each node computes.
    computes: Vec<Cell<bool>>,
    /// Whether each node has begun to ask servers.
    asks: Vec<Cell<bool>>,
    /// Whether the servers have the processors of clients, and move away from clients that compute.
    are_servers_guests: bool,
    exposed: RefCell<HashMap<(MemoryId, NodeId), (Share, Memory)>>,
    spaces: Vec<Rc<BufferSpace>>,
}

/// A node of the simulated machine.
#[derive(Clone)]
pub struct SimNode {
    me: NodeId,
    world: Rc<World>,
    shared: Rc<Shared>,
}

/// An exposure takes the memory back when dropped.
pub struct Exposure {
    shared: Rc<Shared>,
    key: (MemoryId, NodeId),
}

impl Drop for Exposure {
    fn drop(&mut self) {
        self.shared.exposed.borrow_mut().remove(&self.key);
    }
}

impl SimNode {
    /// The time, to the picosecond.
    pub fn time(&self) -> Time {
        self.world.now()
    }

    /// The bytes of the buffers that this node has not given back.
    pub fn buffer_bytes(&self) -> u64 {
        self.shared.spaces[self.me].now()
    }

    /// Waits; the processor is free meanwhile.
    pub async fn sleep(&self, span: Span) {
        self.world.sleep_until(self.world.now() + span).await;
    }

    /// Whether an outage is to come in this run, or under way.
    pub fn has_outages(&self) -> bool {
        self.world.losses.has_outages()
    }

    /// Starts a thread beside the program's own.
    pub async fn spawn(&self) {
        let span = self.shared.prices.spawn;
        self.world.use_cpu(self.me, span, "spawn").await;
    }

    /// Whether this node's client has begun to ask servers.
    pub fn has_asked(&self) -> bool {
        self.shared.asks[self.me].get()
    }

    /// Computes for `span`, in turns with other threads of this processor, which pay for the
    /// changes of thread.
    pub async fn compute(&self, span: Span) {
        let prices = &self.shared.prices;
        let has_servers = self.shared.stations.iter().any(|s| s.node == self.me);
        if self.shared.are_servers_guests && has_servers {
            return self.sleep(span).await; // the servers find another processor
        }
        self.shared.computes[self.me].set(true);
        let mut left = span;
        while left > Span::ZERO {
            let slice = match prices.slice {
                Span::ZERO => left,
                slice => slice.min(left),
            };
            self.world.use_cpu_last(self.me, slice, "compute").await;
            left = left - slice;
        }
        self.shared.computes[self.me].set(false);
    }

    /// The cost of changes of thread for a thread that takes the processor for `span` while another
    /// computes.
    fn switching(&self, span: Span) -> Span {
        let prices = &self.shared.prices;
        if !self.shared.computes[self.me].get() || prices.slice == Span::ZERO {
            return Span::ZERO;
        }
        prices.switch * (1 + span.as_ps() / prices.slice.as_ps())
    }

    async fn use_cpu(&self, span: Span, what: &'static str) {
        let span = span + self.switching(span);
        let Some(hosts) = self.shared.hosts.as_ref().filter(|_| span > Span::ZERO) else {
            return self.world.use_cpu(self.me, span, what).await;
        };
        let processor = hosts.processor_of(self.me).await;
        let span = processor.slowed(span);
        self.world.use_cpu(self.me, span, what).await;
    }

    /// Copies between this node and a client of the same host, if nodes share hosts. Tells whether
    /// it has.
    async fn copies_in_host(&self, client: NodeId, piece: &Piece, window: &Window) -> bool {
        let mates = |hosts: &&Rc<Hosts>| hosts.are_mates(self.me, client);
        let Some(hosts) = self.shared.hosts.as_ref().filter(mates) else {
            return false;
        };
        let moving = self.moving(piece, window);
        let apart = apart(piece, window, moving.stretches);
        let span = self.shared.prices.in_host(hosts.host(), &moving, apart);
        self.use_cpu(span, "copy").await;
        true
    }

    /// Waits for this node's turn to move a message, held until dropped, if it does one thing at a
    /// time.
    async fn turn(&self) -> Option<Turn<'_>> {
        turns::turn_of(self.shared.turns.as_deref(), self.me).await
    }

    /// Waits until this node knows that another has left.
    async fn departure(&self, node: NodeId) -> Error {
        poll_fn(|context| {
            let losses = &self.world.losses;
            let found = losses.look_for(self.me, node, context.waker());
            found.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Does something with another node, unless that is known to be lost.
    async fn unless_gone<T>(
        &self,
        node: NodeId,
        part: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        if !self.world.losses.is_on {
            return part.await;
        }
        match select(pin!(self.departure(node)), pin!(part)).await {
            Either::Left((error, _)) => Err(error),
            Either::Right((done, _)) => done,
        }
    }

    fn exposed(&self, id: MemoryId, node: NodeId) -> Result<(Share, Memory)> {
        let exposed = self.shared.exposed.borrow();
        exposed.get(&(id, node)).cloned().ok_or_else(|| {
            let cause = format!("node {node} exposes no memory for it");
            Error::new(Kind::Peer, "copying from a client's memory", cause)
        })
    }

    fn moving(&self, piece: &Piece, window: &Window) -> Moving {
        Moving {
            stretches: stretches(piece, window),
            bytes: piece.elements() * window.width as u64,
            dims: piece.dims(),
            is_by_client: self.me < self.shared.clients,
        }
    }

    /// Copies a piece between a buffer and a client's memory, if the bytes are real.
    fn copy_piece(
        &self,
        (id, client): (MemoryId, NodeId),
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
        direction: Direction,
    ) -> Result<()> {
        if self.shared.is_real {
            let exposed = self.exposed(id, client)?;
            buffer.copy_piece(&exposed, piece, window, direction);
        }
        Ok(())
    }
}

/// The bytes from the beginning of one stretch of a piece to that of the next, on average.
fn apart(piece: &Piece, window: &Window, stretches: u64) -> f64 {
    let reach = piece.reach(window.width, &window.strides);
    let bytes = reach.map_or(0, |reach| reach.end - reach.start);
    bytes as f64 / stretches.max(1) as f64
}

/// The number of stretches into which a dense window cuts a piece.
fn stretches(piece: &Piece, window: &Window) -> u64 {
    // The window's extents follow from its strides; the extent of the outermost dimension does not
    // matter.
    let outer_to_inner = window.strides.windows(2);
    let inner = outer_to_inner.map(|pair| (pair[0] / pair[1].max(1)).max(1) as u64);
    let mut shape = vec![u64::MAX];
    shape.extend(inner);
    shape.truncate(piece.dims());
    piece.stretches(&shape)
}

impl Machine for SimNode {
    type Memory = (Share, Memory);
    type Exposure = Exposure;
    type Buffer = Buffer;
    type Parcel = Parcel;
    type File = SimDisk;
    type Sieve = SimSieve;

    fn me(&self) -> NodeId {
        self.me
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.world.now().as_ps() / 1000)
    }

    async fn wait(&self, time: Duration) {
        self.sleep(Span::from_us_f64(time.as_secs_f64() * 1e6))
            .await;
    }

    async fn work(&self, work: Work) {
        let prices = &self.shared.prices;
        let sharing = &self.shared.sharing;
        let (span, what) = match work {
            Work::Request(server, bytes) => {
                self.shared.asks[self.me].set(true);
                sharing.take_token(&self.world, self.me).await;
                self.use_cpu(prices.request, "request").await;
                let copied = sharing.requests(self.me, server, bytes);
                if copied > Span::ZERO {
                    self.world.use_cpu(self.me, copied, "copy").await;
                }
                return;
            }
            Work::Answer => return sharing.answers(self.me),
            Work::Reply(client) => return sharing.replies(self.me, client),
            Work::Thread => {
                let attention = sharing.attention(self.me);
                (prices.thread + attention, "thread")
            }
            Work::Wake => (prices.thread, "wake"),
            Work::Lookup => (prices.lookup, "look up"),
            Work::Copy(bytes) => (prices.copying(bytes), "copy"),
            Work::List(entries) => (prices.entry * entries, "list"),
            Work::Prepare(bytes) => (prices.prepare(bytes), "prepare"),
            Work::Sift(bytes) => (prices.copying(bytes), "sift"),
            Work::Pack {
                bytes,
                stretches,
                by,
            } => {
                let slower = self.shared.slowness[self.me];
                (prices.pack(bytes, stretches, by, slower), "pack")
            }
        };
        match work {
            Work::Wake if self.shared.hosts.is_none() => {
                self.world.use_cpu_last(self.me, span, what).await;
            }
            Work::Pack { .. } if self.shared.hosts.is_none() => {
                let span = span + self.switching(span);
                self.world.use_cpu_anyway(self.me, span, what).await;
            }
            _ => self.use_cpu(span, what).await,
        }
    }

    async fn send(
        &self,
        to: NodeId,
        port: Port,
        body: Vec<u8>,
        parcel: Option<Parcel>,
    ) -> Result<()> {
        let prices = &self.shared.prices;
        let carried = parcel.as_ref().map_or(0, |parcel| parcel.bytes);
        let cuts = self.world.losses.link(self.me, to); // if it is cut from here on, this is lost
        self.use_cpu(prices.send, "send").await;
        let bytes = prices.header_bytes + body.len() as u64 + carried;
        let from = self.me;
        let message = Message { from, body, parcel };
        self.world.post(from, to, port, (bytes, cuts), message);
        Ok(())
    }

    async fn transmit(
        &self,
        to: NodeId,
        port: Port,
        body: Vec<u8>,
        buffer: &Buffer,
        bytes: u64,
    ) -> Result<()> {
        let prices = &self.shared.prices;
        let size = prices.header_bytes + body.len() as u64 + bytes;
        let message = Message {
            from: self.me,
            body,
            parcel: Some(buffer.cut(0..bytes)),
        };
        let transmitting = self.world.transmit(to, port, (size, prices.send), message);
        self.unless_gone(to, async {
            transmitting.await;
            Ok(())
        })
        .await
    }

    async fn receive(&self, port: Port) -> Message<Parcel> {
        std::future::poll_fn(|context| self.world.poll_receive(self.me, port, context)).await
    }

    fn absence(&self, node: NodeId) -> Option<Error> {
        self.world.losses.absence(self.me, node)
    }

    fn changes(&self) -> u64 {
        self.world.losses.known(self.me)
    }

    async fn change(&self, from: u64) -> (u64, NodeId, Change) {
        let nth = exact::<usize>(from);
        let (node, change) = poll_fn(|context| {
            let found = self.world.losses.look(self.me, nth, context.waker());
            found.map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        (from + 1, node, change)
    }

    fn pack(
        &self,
        memory: MemoryId,
        share: &Share,
        elements: &Region,
        window: &Window,
    ) -> Result<Parcel> {
        let bytes = elements.elements() * window.width as u64;
        let mut data = self.shared.is_real.then(|| vec![0; exact::<usize>(bytes)]);
        if let (Some(data), Some(piece)) = (&mut data, share.intersect(elements).map(Piece::from))
            && let (_, Some(memory)) = self.exposed(memory, self.me)?
        {
            let memory = &mut memory.borrow_mut();
            data::copy(memory, share, &piece, window, data, Direction::Gather);
        }
        Ok(Parcel { bytes, data })
    }

    fn unpack(
        &self,
        memory: MemoryId,
        parcel: &Parcel,
        share: &Share,
        elements: &Region,
        window: &Window,
    ) -> Result<()> {
        if !self.shared.is_real {
            return Ok(());
        }
        let (_, memory) = self.exposed(memory, self.me)?;
        let data = parcel.whole(elements.elements() * window.width as u64)?;
        if let (Some(memory), Some(piece)) = (memory, share.intersect(elements).map(Piece::from)) {
            let memory = &mut memory.borrow_mut();
            data::copy(
                memory,
                share,
                &piece,
                window,
                &mut data.to_vec(),
                Direction::Scatter,
            );
        }
        Ok(())
    }

    fn cut(&self, buffer: &Buffer, part: Range<u64>) -> Parcel {
        buffer.cut(part)
    }

    fn paste(&self, parcel: &Parcel, buffer: &Buffer, offset: u64) {
        buffer.paste(parcel, offset);
    }

    fn crc32c(&self, buffer: &Buffer, part: Range<u64>) -> u32 {
        let parcel = buffer.cut(part);
        parcel.data.as_deref().map_or(0, crc32c::crc32c)
    }

    fn expose(&self, id: MemoryId, memory: (Share, Memory)) -> Exposure {
        let key = (id, self.me);
        self.shared.exposed.borrow_mut().insert(key, memory);
        Exposure {
            shared: self.shared.clone(),
            key,
        }
    }

    fn buffer(&self, bytes: u64) -> Result<Buffer> {
        let space = &self.shared.spaces[self.me];
        let (is_real, now) = (self.shared.is_real, self.world.now());
        Ok(Buffer::new(bytes, is_real, space, now))
    }

    fn clear(&self, buffer: &Buffer, bytes: u64, element: &[u8]) {
        buffer.clear(0..bytes, element);
    }

    fn copy(
        &self,
        memory: MemoryId,
        width: usize,
        pieces: &[Piece],
        from: Elements<'_, Self>,
        to: Elements<'_, Self>,
        _by: CopyKind,
    ) -> Result<()> {
        if !self.shared.is_real {
            return Ok(());
        }
        let exposed = match (&from, &to) {
            (Elements::Exposed, _) | (_, Elements::Exposed) => Some(self.exposed(memory, self.me)?),
            _ => None,
        };
        let came = match &from {
            Elements::Parcel(parcel, at) => {
                let elements = pieces.iter().map(Piece::elements).sum::<u64>();
                parcel.part(*at, elements * width as u64)?
            }
            _ => &[],
        };
        let mut dense = 0;
        for (nth, piece) in pieces.iter().enumerate() {
            let bytes = piece.elements() * width as u64;
            let part = dense..dense + bytes;
            dense = part.end;
            let mut packed = match from {
                Elements::Packed(buffer, at) => {
                    let part = at + part.start..at + part.end;
                    buffer.cut(part).data.unwrap_or_default()
                }
                Elements::Parcel(..) => {
                    came[exact::<usize>(part.start)..exact::<usize>(part.end)].to_vec()
                }
                Elements::Exposed | Elements::Staged(..) => vec![0; exact::<usize>(bytes)],
            };
            let with_memory = |packed: &mut [u8], direction| {
                let exposed = exposed.iter();
                exposed.for_each(|held| data::pack(held, piece, width, packed, direction));
            };
            match from {
                Elements::Exposed => with_memory(&mut packed, Direction::Gather),
                Elements::Staged(windows, buffer) => {
                    buffer.copy_packed(piece, &windows[nth], &mut packed, Direction::Scatter);
                }
                Elements::Packed(..) | Elements::Parcel(..) => {}
            }
            match to {
                Elements::Exposed => with_memory(&mut packed, Direction::Scatter),
                Elements::Staged(windows, buffer) => {
                    buffer.copy_packed(piece, &windows[nth], &mut packed, Direction::Gather);
                }
                Elements::Packed(buffer, at) => buffer.paste(&Parcel::of(packed), at + part.start),
                Elements::Parcel(..) => {
                    let cause = "a parcel that has come is not written to";
                    return Err(Error::new(Kind::Unsupported, "copying elements", cause));
                }
            }
        }
        Ok(())
    }

    async fn memget(
        &self,
        memory: MemoryId,
        client: NodeId,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
    ) -> Result<()> {
        let moving = async {
            let prices = &self.shared.prices;
            let bytes = piece.elements() * window.width as u64;
            if self.copies_in_host(client, piece, window).await {
                // It has been copied.
            } else if client == self.me {
                self.world
                    .use_cpu(self.me, prices.copying(bytes), "copy")
                    .await;
            } else {
                let cost = prices.memget(&self.moving(piece, window));
                let headers = cost.messages * prices.header_bytes;
                let asking = cost.plan + cost.here;
                self.world.use_cpu(self.me, asking, "memget").await;
                self.world.transport(self.me, client, headers).await;
                self.world
                    .interrupt(client, cost.remote, "memget from here")
                    .await;
                let turn = self.turn().await;
                self.world.transport(client, self.me, headers + bytes).await;
                self.world
                    .interrupt(self.me, cost.reply, "memget reply")
                    .await;
                drop(turn);
            }
            if self.world.losses.is_lost(client) {
                std::future::pending::<()>().await; // its memory is gone: the departure ends this
            }
            self.copy_piece((memory, client), piece, window, buffer, Direction::Gather)
        };
        self.unless_gone(client, moving).await
    }

    async fn memput(
        &self,
        memory: MemoryId,
        client: NodeId,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
    ) -> Result<()> {
        let moving = async {
            let prices = &self.shared.prices;
            let bytes = piece.elements() * window.width as u64;
            if self.copies_in_host(client, piece, window).await {
                // It has been copied.
            } else if client == self.me {
                self.world
                    .use_cpu(self.me, prices.copying(bytes), "copy")
                    .await;
            } else {
                let cost = prices.memput(&self.moving(piece, window));
                let headers = cost.messages * prices.header_bytes;
                let (plan, here) = match self.shared.turns {
                    Some(_) => (cost.plan, cost.here),
                    None => (Span::ZERO, cost.plan + cost.here), // at one go
                };
                self.world.use_cpu(self.me, plan, "plan").await;
                let turn = self.turn().await;
                self.world.use_cpu(self.me, here, "memput").await;
                self.world.transport(self.me, client, headers + bytes).await;
                drop(turn);
                self.world
                    .interrupt(client, cost.remote, "memput to here")
                    .await;
                self.world.transport(client, self.me, headers).await;
            }
            if self.world.losses.is_lost(client) {
                std::future::pending::<()>().await; // its memory is gone: the departure ends this
            }
            self.copy_piece((memory, client), piece, window, buffer, Direction::Scatter)
        };
        self.unless_gone(client, moving).await
    }

    async fn open(&self, opening: Opening) -> Result<SimDisk> {
        let station = self.shared.stations[opening.server].clone();
        let time = station.file_system.opening(&opening);
        if !station.is_free {
            station.in_file_system(&self.world, self.me, time).await;
        }
        Ok(SimDisk {
            world: self.world.clone(),
            opened_by: self.me,
            file: station.file(&opening.target),
            station,
            schema: opening.disk,
            servers: opening.servers,
            waits_for_media: opening.sync,
            writing: Cell::new(0),
            written: Signal::default(),
            objects: RefCell::default(),
            unsynced_bytes: Cell::new(0),
        })
    }

    fn sieve(&self, words: &[u8], opening: &Opening) -> Result<SimSieve> {
        SimSieve::new(words, opening.disk.width())
    }
}
