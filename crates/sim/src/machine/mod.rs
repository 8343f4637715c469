//! The simulated machine: the engine's [`Machine`] in virtual time.
//!
//! The strategies of `penstock-engine` run on it unchanged. Each of its nodes has one CPU and one
//! network port; I/O nodes have a bus and disks besides, each with a server of its own. All that
//! software does is charged to the node's CPU, at the prices of the preset:
//!
//! | what | whose CPU | price |
//! |---|---|---|
//! | a message, with its parcel | sender; receiver | `send_us`; `receive_us`: interfaces move the bytes |
//! | a memput | server; client | `memput_us` a message, `index_us` a stretch; `remote_us` |
//! | a memget | server; client | `memget_us` a message, `index_us` a stretch; `remote_us` |
//! | a request to a disk | its I/O node | `disk_request_us` |
//! | [`Work`] | the node's | `request_us`, `thread_us`, `lookup_us`, `copy_us`, `copy_ns_per_byte`, `entry_us`, `buffer_ns_per_byte` |
//!
//! | module | what it holds |
//! |---|---|
//! | `world` | the clock, the events, CPUs, ports and inboxes |
//! | `prices` | what software costs |
//! | `hardware` | network, disks and places of blocks, from the preset |
//! | `disks` | disks with their queues and buses, and what lies on them |
//! | `data` | memories, buffers and parcels, with real bytes or without |

mod data;
mod disks;
mod hardware;
mod prices;
mod world;

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use penstock_engine::{
    Error, Kind, Machine, Message, NodeId, Request, Result, Roles, Tag, Window, Work,
};
use penstock_layout::{Direction, Piece, Region, Share};

pub use data::{Buffer, Memory, Parcel};
pub use disks::SimDisk;

use crate::disk::Bus;
use crate::experiment::Layout;
use crate::preset::Preset;
use crate::time::Time;
use crate::trace::Trace;
use data::BufferSpace;
use disks::{Station, station_queue};
use hardware::{device, network, places, unfit};
use prices::{Moving, Prices};
use world::{Counts, World};

/// How a machine is set up for one run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How blocks lie on disks.
    pub layout: Layout,
    /// How many slots each disk has for blocks.
    pub slots: u64,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Seeds everything that is drawn.
    pub seed: u64,
    /// Whether memories, messages and disks hold real bytes.
    pub is_real: bool,
    /// Whether all that happens is noted.
    pub is_traced: bool,
}

/// A machine for one run.
pub struct Simulation {
    world: Rc<World>,
    shared: Rc<Shared>,
    roles: Rc<Roles>,
}

/// What all nodes know.
struct Shared {
    prices: Prices,
    clients: usize,
    is_real: bool,
    stations: Vec<Rc<Station>>,
    exposed: RefCell<HashMap<(u64, NodeId), (Share, Memory)>>,
    spaces: Vec<Rc<BufferSpace>>,
}

/// What a run came to, apart from its time.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    /// Events.
    pub events: u64,
    /// A digest of them.
    pub trace_hash: u64,
    /// Messages between nodes, acknowledgements too.
    pub messages: u64,
    /// Their bytes.
    pub message_bytes: u64,
    /// Blocks that disks have read or written.
    pub blocks: u64,
    /// Buffers of all nodes together, the most of each.
    pub buffer_bytes: u64,
    /// The most of them on one node.
    pub buffer_bytes_max: u64,
}

impl Simulation {
    /// The machine of `preset`.
    ///
    /// # Errors
    /// When it cannot be, or its disks have no room for the blocks.
    pub fn new(preset: &Preset, setup: &Setup) -> Result<Self> {
        let nodes = preset.nodes.clients + preset.nodes.io_nodes;
        let prices = Prices::new(&preset.costs);
        let world = Rc::new(World::new(
            nodes,
            network(preset, setup.seed).map_err(unfit)?,
            preset.nodes.first_place,
            prices.receive,
            setup.is_traced,
        ));
        let io_node = |disk: usize| preset.nodes.clients + disk % preset.nodes.io_nodes;
        let servers: Vec<NodeId> = (0..preset.nodes.disks).map(io_node).collect();
        let buses: Vec<_> = (0..nodes)
            .map(|_| Rc::new(RefCell::new(Bus::new(preset.bus.bytes_per_second))))
            .collect();
        let mut stations = Vec::with_capacity(servers.len());
        for (server, &node) in servers.iter().enumerate() {
            let device = device(preset, setup.seed, server).map_err(unfit)?;
            let slot_sectors = setup.slot_bytes.div_ceil(device.sector_bytes()).max(1);
            stations.push(Rc::new(Station {
                node,
                server,
                places: places(setup, &device, server, slot_sectors)?,
                slot_sectors,
                bus: buses[node].clone(),
                request: prices.disk_request,
                queue: station_queue(&device),
                device: RefCell::new(device),
                stored: RefCell::default(),
                blocks: Default::default(),
            }));
        }
        let shared = Shared {
            prices,
            clients: preset.nodes.clients,
            is_real: setup.is_real,
            stations,
            exposed: RefCell::default(),
            spaces: (0..nodes).map(|_| Rc::default()).collect(),
        };
        let clients = (0..preset.nodes.clients).collect();
        Ok(Self {
            world,
            shared: Rc::new(shared),
            roles: Rc::new(Roles::new(nodes, clients, servers)),
        })
    }

    /// Who plays which part: clients first, then I/O nodes.
    pub fn roles(&self) -> &Rc<Roles> {
        &self.roles
    }

    /// The machine as `node` sees it.
    pub fn node(&self, node: NodeId) -> SimNode {
        SimNode {
            me: node,
            world: self.world.clone(),
            shared: self.shared.clone(),
        }
    }

    /// Runs the code that `main` makes for each node, from the same moment on, until all have ended.
    ///
    /// # Errors
    /// When nodes wait for one another forever.
    pub fn run<F: Future<Output = ()> + 'static>(&self, main: impl Fn(SimNode) -> F) -> Result<()> {
        let nodes = 0..self.roles.nodes;
        let tasks = nodes.map(|node| Some(Box::pin(main(self.node(node))) as _));
        self.world.run(tasks.collect())
    }

    /// What time it is: after a run, when it ended.
    pub fn now(&self) -> Time {
        self.world.now()
    }

    /// What the run came to.
    pub fn totals(&self) -> Totals {
        let Counts {
            events,
            hash,
            messages,
            message_bytes,
        } = self.world.counts();
        let spaces = || self.shared.spaces.iter().map(|space| space.max());
        Totals {
            events,
            trace_hash: hash,
            messages,
            message_bytes,
            blocks: self
                .shared
                .stations
                .iter()
                .map(|station| station.blocks.get())
                .sum(),
            buffer_bytes: spaces().sum(),
            buffer_bytes_max: spaces().max().unwrap_or(0),
        }
    }

    /// What every part did when, if that was noted.
    pub fn take_trace(&self) -> Option<Trace> {
        self.world.take_trace()
    }
}

/// One node of the simulated machine.
#[derive(Clone)]
pub struct SimNode {
    me: NodeId,
    world: Rc<World>,
    shared: Rc<Shared>,
}

/// Takes the memory back when dropped.
pub struct Exposure {
    shared: Rc<Shared>,
    key: (u64, NodeId),
}

impl Drop for Exposure {
    fn drop(&mut self) {
        self.shared.exposed.borrow_mut().remove(&self.key);
    }
}

impl SimNode {
    fn exposed(&self, call: u64, node: NodeId) -> Result<(Share, Memory)> {
        let exposed = self.shared.exposed.borrow();
        exposed.get(&(call, node)).cloned().ok_or_else(|| {
            let cause = format!("node {node} exposes nothing for call {call}");
            Error::new(Kind::Peer, "copying from a client's memory", cause)
        })
    }

    fn moving(&self, piece: &Piece, window: &Window) -> Moving {
        Moving {
            stretches: stretches(piece, window),
            bytes: piece.elements() * window.width as u64,
            dims: piece.dims().len(),
            is_by_client: self.me < self.shared.clients,
        }
    }

    /// Copies a piece between a buffer and a client's memory, where there are real bytes.
    fn copy_piece(
        &self,
        (call, client): (u64, NodeId),
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
        direction: Direction,
    ) -> Result<()> {
        if self.shared.is_real {
            let (share, memory) = self.exposed(call, client)?;
            buffer.copy_piece(&memory, &share, piece, window, direction);
        }
        Ok(())
    }
}

/// How many stretches a piece is cut into in a dense window.
fn stretches(piece: &Piece, window: &Window) -> u64 {
    // The window's extents follow from its strides; that of the outermost dimension does not matter.
    let outer_to_inner = window.strides.windows(2);
    let inner = outer_to_inner.map(|pair| (pair[0] / pair[1].max(1)).max(1) as u64);
    let mut shape = vec![u64::MAX];
    shape.extend(inner);
    shape.truncate(piece.dims().len());
    piece.stretches(&shape)
}

impl Machine for SimNode {
    type Memory = (Share, Memory);
    type Exposure = Exposure;
    type Buffer = Buffer;
    type Parcel = Parcel;
    type Disk = SimDisk;

    fn me(&self) -> NodeId {
        self.me
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.world.now().as_ps() / 1000)
    }

    async fn work(&self, work: Work) {
        let prices = &self.shared.prices;
        let (span, what) = match work {
            Work::Request => (prices.request, "request"),
            Work::Thread => (prices.thread, "thread"),
            Work::Wake => (prices.thread, "wake"),
            Work::Lookup => (prices.lookup, "look up"),
            Work::Copy(bytes) => (prices.copying(bytes), "copy"),
            Work::List(entries) => (prices.entry * entries, "list"),
            Work::Prepare(bytes) => (prices.prepare(bytes), "prepare"),
        };
        match work {
            Work::Wake => self.world.use_cpu_last(self.me, span, what).await,
            _ => self.world.use_cpu(self.me, span, what).await,
        }
    }

    async fn send(
        &self,
        to: NodeId,
        tag: Tag,
        body: Vec<u8>,
        parcel: Option<Parcel>,
    ) -> Result<()> {
        let prices = &self.shared.prices;
        self.world.use_cpu(self.me, prices.send, "send").await;
        let carried = parcel.as_ref().map_or(0, |parcel| parcel.bytes);
        let bytes = prices.header_bytes + body.len() as u64 + carried;
        let from = self.me;
        let message = Message { from, body, parcel };
        self.world.post(from, to, tag, bytes, message);
        Ok(())
    }

    async fn receive(&self, tag: Tag) -> Result<Message<Parcel>> {
        let next = std::future::poll_fn(|context| self.world.poll_receive(self.me, tag, context));
        Ok(next.await)
    }

    fn pack(&self, call: u64, share: &Share, elements: &Region, window: &Window) -> Result<Parcel> {
        let bytes = elements.elements() * window.width as u64;
        let mut data = self.shared.is_real.then(|| vec![0; bytes as usize]);
        if let (Some(data), Some(piece)) = (&mut data, share.intersect(elements))
            && let (_, Some(memory)) = self.exposed(call, self.me)?
        {
            let memory = &mut memory.borrow_mut();
            data::copy(memory, share, &piece, window, data, Direction::Gather);
        }
        Ok(Parcel { bytes, data })
    }

    fn unpack(
        &self,
        call: u64,
        parcel: &Parcel,
        share: &Share,
        elements: &Region,
        window: &Window,
    ) -> Result<()> {
        if let (Some(data), Some(piece)) = (&parcel.data, share.intersect(elements))
            && let (_, Some(memory)) = self.exposed(call, self.me)?
        {
            let memory = &mut memory.borrow_mut();
            data::copy(
                memory,
                share,
                &piece,
                window,
                &mut data.clone(),
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

    fn expose(&self, call: u64, memory: (Share, Memory)) -> Exposure {
        let key = (call, self.me);
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

    fn clear(&self, buffer: &Buffer, bytes: u64) {
        buffer.clear(bytes);
    }

    async fn memget(
        &self,
        call: u64,
        client: NodeId,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
    ) -> Result<()> {
        let prices = &self.shared.prices;
        let bytes = piece.elements() * window.width as u64;
        if client == self.me {
            self.world
                .use_cpu(self.me, prices.copying(bytes), "copy")
                .await;
        } else {
            let cost = prices.memget(&self.moving(piece, window));
            let headers = cost.messages * prices.header_bytes;
            self.world.use_cpu(self.me, cost.here, "memget").await;
            self.world.transport(self.me, client, headers).await;
            self.world
                .interrupt(client, cost.remote, "memget from here")
                .await;
            self.world.transport(client, self.me, headers + bytes).await;
            self.world
                .interrupt(self.me, cost.reply, "memget reply")
                .await;
        }
        self.copy_piece((call, client), piece, window, buffer, Direction::Gather)
    }

    async fn memput(
        &self,
        call: u64,
        client: NodeId,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
    ) -> Result<()> {
        let prices = &self.shared.prices;
        let bytes = piece.elements() * window.width as u64;
        if client == self.me {
            self.world
                .use_cpu(self.me, prices.copying(bytes), "copy")
                .await;
        } else {
            let cost = prices.memput(&self.moving(piece, window));
            let headers = cost.messages * prices.header_bytes;
            self.world.use_cpu(self.me, cost.here, "memput").await;
            self.world.transport(self.me, client, headers + bytes).await;
            self.world
                .interrupt(client, cost.remote, "memput to here")
                .await;
            self.world.transport(client, self.me, headers).await;
        }
        self.copy_piece((call, client), piece, window, buffer, Direction::Scatter)
    }

    async fn open(&self, request: &Request, server: usize) -> Result<SimDisk> {
        Ok(SimDisk {
            world: self.world.clone(),
            station: self.shared.stations[server].clone(),
            schema: request.disk.clone(),
            servers: request.servers,
            waits_for_media: request.sync,
        })
    }
}
