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
//! | `disks` | disks with their queues and buses, and what lies on them |
//! | `data` | memories, buffers and parcels, with real bytes or without |

mod data;
mod disks;
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

use crate::disk::{Bus, Device, Drive, DriveModel, Flash};
use crate::error::ParameterError;
use crate::experiment::Layout;
use crate::network::{FatTree, FatTreeParameters, Network, Torus};
use crate::preset::{Batch, Costs, DiskKind, NetworkKind, Preset, Start};
use crate::random::Random;
use crate::time::{Span, Time};
use crate::trace::Trace;
use data::BufferSpace;
use disks::{Places, Station, station_queue};
use world::{Counts, World};

/// Streams of random numbers: each use has its own, so that one never shifts another.
#[derive(Clone, Copy)]
enum Stream {
    Places = 1,
    Rotation = 2,
    Network = 3,
}

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

fn unfit(error: ParameterError) -> Error {
    Error::new(Kind::Schema, "setting up the simulated machine", error)
}

fn stream(seed: u64, stream: Stream, index: usize) -> Random {
    Random::of(seed, (stream as u64) << 32 | index as u64)
}

fn network(preset: &Preset, seed: u64) -> std::result::Result<Network, ParameterError> {
    Ok(match &preset.network {
        NetworkKind::Torus(torus) => {
            Network::Torus(Torus::new(torus, stream(seed, Stream::Network, 0))?)
        }
        NetworkKind::FatTree(tree) => {
            let nodes = preset.nodes.clients + preset.nodes.io_nodes;
            Network::FatTree(FatTree::new(&FatTreeParameters {
                nodes: preset.nodes.first_place + nodes as u32,
                nodes_per_leaf: tree.nodes_per_leaf,
                leaves_per_pod: tree.leaves_per_pod,
                bytes_per_second: tree.bytes_per_second,
                adapter_latency_ns: tree.adapter_latency_ns,
                switch_latency_ns: tree.switch_latency_ns,
            })?)
        }
    })
}

fn device(
    preset: &Preset,
    seed: u64,
    server: usize,
) -> std::result::Result<Device, ParameterError> {
    Ok(match &preset.disk {
        DiskKind::Rotating(parameters) => {
            let model = DriveModel::new(parameters)?;
            let rotation = match preset.start {
                Start::Common { rotation_ms } => Span::from_ms_f64(rotation_ms),
                Start::Random => {
                    let mut random = stream(seed, Stream::Rotation, server);
                    Span::from_ps(random.below(model.revolution().as_ps()))
                }
            };
            Device::Rotating(Drive::new(&model, rotation))
        }
        DiskKind::Flash(parameters) => Device::Flash(Flash::new(parameters)?),
    })
}

/// Where the slots of one disk lie.
fn places(setup: &Setup, device: &Device, server: usize, slot_sectors: u64) -> Result<Places> {
    let random = &mut stream(setup.seed, Stream::Places, server);
    let slots_max = device.sectors() / slot_sectors;
    if setup.slots > slots_max {
        let cause = format!("{} blocks on a disk that holds {slots_max}", setup.slots);
        return Err(Error::new(Kind::Full, "laying out the file", cause));
    }
    let count = setup.slots as usize;
    match setup.layout {
        Layout::Contiguous => Ok(Places::Contiguous),
        Layout::RandomBlocks => {
            let places = random.distinct(count, slots_max).into_iter();
            Ok(Places::Listed(
                places.map(|place| place * slot_sectors).collect(),
            ))
        }
        Layout::RandomTracks => random_tracks(device, count, slot_sectors, random),
    }
}

/// Tracks drawn over the whole disk, each filled with as many blocks as it holds.
fn random_tracks(
    device: &Device,
    count: usize,
    slot_sectors: u64,
    random: &mut Random,
) -> Result<Places> {
    let unfit = |cause: &str| Error::new(Kind::Schema, "laying out the file in tracks", cause);
    let Device::Rotating(drive) = device else {
        return Err(unfit(
            "the disk has no tracks: use contiguous or random-blocks",
        ));
    };
    let mut places = Vec::with_capacity(count);
    let mut taken = std::collections::HashSet::new();
    let mut misses = 0;
    while places.len() < count {
        let lba = random.below(drive.model().sectors());
        let place = drive.model().place(lba);
        let first = lba - u64::from(place.sector);
        let track_sectors = u64::from(place.sector) + place.left_on_track();
        let blocks = track_sectors / slot_sectors;
        if blocks == 0 {
            return Err(unfit(
                "a block is larger than a track: use contiguous or random-blocks",
            ));
        }
        if !taken.insert(first) {
            misses += 1;
            if misses > 100 * count {
                return Err(unfit("the disk has too few tracks for the file"));
            }
            continue;
        }
        places.extend((0..blocks).map(|block| first + block * slot_sectors));
    }
    places.truncate(count);
    Ok(Places::Listed(places))
}

/// [`Costs`], as spans.
struct Prices {
    send: Span,
    receive: Span,
    header_bytes: u64,
    request: Span,
    thread: Span,
    lookup: Span,
    copy: Span,
    copy_ns_per_byte: f64,
    buffer_ns_per_byte: f64,
    disk_request: Span,
    entry: Span,
    memput: Transfer,
    memget: Transfer,
    memget_reply: Span,
    /// For arrays of one dimension, and of more.
    index: [Span; 2],
    batch: Batch,
}

/// The price of a memput or a memget.
struct Transfer {
    message: Span,
    ns_per_byte: f64,
    remote: Span,
    remote_ns_per_byte: f64,
}

/// What one memput or memget comes to.
struct Cost {
    messages: u64,
    here: Span,
    here_bytes: Span,
    /// Of a memget's answer.
    reply: Span,
    remote: Span,
}

impl Prices {
    fn new(costs: &Costs) -> Self {
        let us = Span::from_us_f64;
        Self {
            send: us(costs.send_us),
            receive: us(costs.receive_us),
            header_bytes: costs.header_bytes,
            request: us(costs.request_us),
            thread: us(costs.thread_us),
            lookup: us(costs.lookup_us),
            copy: us(costs.copy_us),
            copy_ns_per_byte: costs.copy_ns_per_byte,
            buffer_ns_per_byte: costs.buffer_ns_per_byte,
            disk_request: us(costs.disk_request_us),
            entry: us(costs.entry_us),
            memput: Transfer {
                message: us(costs.memput_us),
                ns_per_byte: costs.memput_ns_per_byte,
                remote: us(costs.remote_us),
                remote_ns_per_byte: costs.remote_ns_per_byte,
            },
            memget: Transfer {
                message: us(costs.memget_us),
                ns_per_byte: costs.memget_ns_per_byte,
                remote: us(costs.remote_us),
                remote_ns_per_byte: costs.remote_ns_per_byte,
            },
            memget_reply: us(costs.memget_reply_us),
            index: [us(costs.index_1d_us), us(costs.index_2d_us)],
            batch: costs.batch.clone(),
        }
    }

    fn copying(&self, bytes: u64) -> Span {
        self.copy + Span::from_ns_f64(self.copy_ns_per_byte * bytes as f64)
    }

    fn prepare(&self, bytes: u64) -> Span {
        Span::from_ns_f64(self.buffer_ns_per_byte * bytes as f64)
    }

    /// The cost of moving `bytes` in `stretches` of an array of `dims` dimensions, by an I/O node or a
    /// client.
    fn cost(&self, transfer: &Transfer, moved: &Moving) -> Cost {
        let Moving {
            stretches,
            bytes,
            dims,
            is_by_client,
            ..
        } = *moved;
        let index = match is_by_client {
            true => Span::ZERO,
            false => self.index[usize::from(dims > 1)] * stretches,
        };
        let (messages, list, source, sink) = match &self.batch {
            Batch::Gather {
                bytes_max,
                list_us,
                gather_us,
                scatter_us,
            } if stretches > 1 => (
                bytes.div_ceil(*bytes_max).max(1),
                Span::from_us_f64(*list_us) * stretches,
                Span::from_us_f64(*gather_us) * stretches,
                Span::from_us_f64(*scatter_us) * stretches,
            ),
            _ => (stretches, Span::ZERO, Span::ZERO, Span::ZERO),
        };
        let (here, reply, remote) = match moved.is_get {
            true => (list, sink, source),
            false => (source, Span::ZERO, sink),
        };
        let bytes = bytes as f64;
        Cost {
            messages,
            here: transfer.message * messages + index + here,
            here_bytes: Span::from_ns_f64(transfer.ns_per_byte * bytes),
            reply: reply + self.memget_reply * messages,
            remote: transfer.remote * messages
                + remote
                + Span::from_ns_f64(transfer.remote_ns_per_byte * bytes),
        }
    }
}

/// What a memput or a memget moves, and who does it.
struct Moving {
    stretches: u64,
    bytes: u64,
    dims: usize,
    is_get: bool,
    is_by_client: bool,
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
    /// What time it is.
    pub fn time(&self) -> Time {
        self.world.now()
    }

    fn exposed(&self, call: u64, node: NodeId) -> Result<(Share, Memory)> {
        let exposed = self.shared.exposed.borrow();
        exposed.get(&(call, node)).cloned().ok_or_else(|| {
            let cause = format!("node {node} exposes nothing for call {call}");
            Error::new(Kind::Peer, "copying from a client's memory", cause)
        })
    }

    fn moving(&self, piece: &Piece, window: &Window, is_get: bool) -> Moving {
        Moving {
            stretches: stretches(piece, window),
            bytes: piece.elements() * window.width as u64,
            dims: piece.dims().len(),
            is_get,
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
            let cost = prices.cost(&prices.memget, &self.moving(piece, window, true));
            let headers = cost.messages * prices.header_bytes;
            self.world.use_cpu(self.me, cost.here, "memget").await;
            self.world.transport(self.me, client, headers).await;
            self.world
                .interrupt(client, cost.remote, "memget from here")
                .await;
            self.world.transport(client, self.me, headers + bytes).await;
            let reply = cost.reply + cost.here_bytes;
            self.world.interrupt(self.me, reply, "memget reply").await;
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
            let cost = prices.cost(&prices.memput, &self.moving(piece, window, false));
            let headers = cost.messages * prices.header_bytes;
            self.world
                .use_cpu(self.me, cost.here + cost.here_bytes, "memput")
                .await;
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
