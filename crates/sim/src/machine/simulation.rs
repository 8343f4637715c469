//! A simulation: the machine of a preset, made for one run, and the counts of the run.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use penstock_engine::{NodeId, Party, PartyId, Result};

use super::disks::{FileSystem, Station, WriteBehind, station_queue};
use super::faults::{DiskFaults, Faults};
use super::hardware::{device, network, places, slowness, unfit};
use super::hosts::Hosts;
use super::losses::Losses;
use super::prices::Prices;
use super::setup::Setup;
use super::sharing::Sharing;
use super::turns::Turns;
use super::world::{Counts, Task, World};
use super::{Shared, SimNode};
use crate::disk::Bus;
use crate::preset::Preset;
use crate::time::Time;
use crate::trace::Trace;

/// A simulation is a machine for one run.
pub struct Simulation {
    world: Rc<World>,
    shared: Rc<Shared>,
    nodes: usize,
    party: Arc<Party>,
}

/// The counts of a run, apart from its time.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    pub events: u64,
    /// A digest of the events.
    pub trace_hash: u64,
    /// Messages between nodes, including acknowledgements.
    pub messages: u64,
    /// The bytes of the messages.
    pub message_bytes: u64,
    /// Blocks that disks have read or written.
    pub blocks: u64,
    /// The sum over all nodes of the most buffer bytes of each.
    pub buffer_bytes: u64,
    /// The most buffer bytes on one node.
    pub buffer_bytes_max: u64,
}

impl Simulation {
    /// Makes the machine of `preset`.
    ///
    /// # Errors
    /// When the machine is impossible, or its disks have no room for the blocks.
    pub fn new(preset: &Preset, setup: &Setup) -> Result<Self> {
        Self::with_faults(preset, setup, &Faults::default())
    }

    /// Makes the machine of `preset`, in which these faults happen.
    ///
    /// # Errors
    /// Like [`Simulation::new`].
    pub fn with_faults(preset: &Preset, setup: &Setup, faults: &Faults) -> Result<Self> {
        let nodes = preset.nodes.clients + preset.nodes.io_nodes;
        let prices = Prices::new(&preset.costs, preset.processors.as_ref());
        let hosts = preset
            .host
            .as_ref()
            .map(|host| Rc::new(Hosts::new(host, preset.nodes.clients, nodes)));
        let world = Rc::new(World::new(
            (nodes, hosts.clone()),
            network(preset, setup.seed).map_err(unfit)?,
            preset.nodes.first_place,
            &prices,
            setup.is_traced,
            Losses::new(faults, setup.seed, nodes),
        ));
        let guests = preset.sharing.as_ref().map_or(0, |s| s.processors);
        let io_node = |disk: usize| match guests {
            1.. if preset.nodes.clients >= guests => guests - 1,
            _ => preset.nodes.clients + disk % preset.nodes.io_nodes,
        };
        let behind_bytes = preset.sharing.as_ref().map_or(0, |s| s.behind_bytes);
        let servers: Vec<NodeId> = (0..preset.nodes.disks).map(io_node).collect();
        let buses: Vec<_> = (0..nodes)
            .map(|_| Rc::new(RefCell::new(Bus::new(preset.bus.bytes_per_second))))
            .collect();
        let turns: Option<Rc<[Turns]>> = preset
            .costs
            .one_call_at_a_time
            .then(|| (0..nodes).map(|_| Turns::default()).collect());
        // The device of each host, with the turns of those who force bytes out to it, and of those
        // who write to one file.
        let mut of_hosts = HashMap::new();
        let mut stations = Vec::with_capacity(servers.len());
        for (server, &node) in servers.iter().enumerate() {
            let clients = preset.nodes.clients;
            let place = match &preset.host {
                Some(host) => host.of(node, clients),
                None => server, // a disk of its own
            };
            let (device, flushes, writes) = match of_hosts.entry(place) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let device = device(preset, setup.seed, server).map_err(unfit)?;
                    let device = Rc::new(RefCell::new(device));
                    new.insert((device, Rc::<Turns>::default(), Rc::<Turns>::default()))
                }
            }
            .clone();
            let file_system = FileSystem::new(preset.file_system.as_ref());
            let slot_sectors = setup
                .slot_bytes
                .div_ceil(device.borrow().sector_bytes())
                .max(1);
            let places = places(setup, &device.borrow(), server, slot_sectors)?;
            let queue = station_queue(&device.borrow(), &file_system);
            stations.push(Rc::new(Station {
                node,
                server,
                places,
                slot_sectors,
                bus: buses[node].clone(),
                request: prices.disk_request,
                queue,
                device,
                flushes,
                slots: setup.slots,
                files: RefCell::default(),
                contents: RefCell::default(),
                blocks: Default::default(),
                behind: WriteBehind::new(behind_bytes),
                file_system,
                turns: turns.clone(),
                hosts: hosts.clone(),
                workers: RefCell::default(),
                writes,
                is_free: setup.is_disk_free,
                faults: DiskFaults::of(faults, server),
            }));
        }
        let shared = Shared {
            prices,
            sharing: Sharing::new(&preset.sharing),
            turns,
            hosts,
            clients: preset.nodes.clients,
            is_real: setup.is_real,
            stations,
            slowness: slowness(preset, setup.seed, nodes),
            computes: vec![Cell::new(false); nodes],
            asks: vec![Cell::new(false); nodes],
            are_servers_guests: guests > 0,
            exposed: RefCell::default(),
            spaces: (0..nodes).map(|_| Rc::default()).collect(),
        };
        let clients = (0..preset.nodes.clients).collect();
        Ok(Self {
            world,
            shared: Rc::new(shared),
            nodes,
            party: Arc::new(Party::new(PartyId(0), clients, servers)),
        })
    }

    /// The party of all nodes: clients first, then I/O nodes.
    pub fn party(&self) -> &Arc<Party> {
        &self.party
    }

    /// The machine as `node` sees it.
    pub fn node(&self, node: NodeId) -> SimNode {
        SimNode {
            me: node,
            world: self.world.clone(),
            shared: self.shared.clone(),
        }
    }

    /// Runs the code that `main` makes for each node, all from one moment on, until all have ended.
    ///
    /// # Errors
    /// When nodes wait for one another forever.
    pub fn run<F: Future<Output = ()> + 'static>(&self, main: impl Fn(SimNode) -> F) -> Result<()> {
        let again = |node| self.again(node, &main);
        let programs = self.tasks(0..self.nodes, &main);
        self.world.run(programs, Vec::new(), &again)
    }

    /// Runs the code that `program` makes for each node with a client until all have ended. The
    /// code that `server` makes for each node with a server runs as long.
    ///
    /// # Errors
    /// When programs wait for something that cannot come.
    pub fn run_with_servers<F, G>(
        &self,
        program: impl Fn(SimNode) -> F,
        server: impl Fn(SimNode) -> G,
    ) -> Result<()>
    where
        F: Future<Output = ()> + 'static,
        G: Future<Output = ()> + 'static,
    {
        let programs = self.tasks(self.party.clients.iter().copied(), program);
        let servers = self.tasks(self.party.serving().iter().copied(), &server);
        let again = |node| self.again(node, &server);
        self.world.run(programs, servers, &again)
    }

    fn tasks<F: Future<Output = ()> + 'static>(
        &self,
        nodes: impl Iterator<Item = NodeId>,
        main: impl Fn(SimNode) -> F,
    ) -> Vec<Task> {
        let task = |node| -> Task { (node, Box::pin(main(self.node(node)))) };
        nodes.map(task).collect()
    }

    /// The code of a node that is back after a crash, which its disks have suffered, too.
    fn again<F: Future<Output = ()> + 'static>(
        &self,
        node: NodeId,
        main: impl Fn(SimNode) -> F,
    ) -> Task {
        self.crash(node);
        (node, Box::pin(main(self.node(node))))
    }

    /// The time, which after a run is its end.
    pub fn now(&self) -> Time {
        self.world.now()
    }

    /// The nodes that were lost.
    pub fn lost(&self) -> Vec<NodeId> {
        self.world.losses.all_lost()
    }

    /// Crashes the disks of a node, between two runs. Writes that no `finish` of a synced opening
    /// has followed are lost, or only their first sectors are left, by the seed; a later run finds
    /// what is left.
    pub fn crash(&self, node: NodeId) {
        let stations = self.shared.stations.iter();
        for station in stations.filter(|station| station.node == node) {
            let random = &mut self.world.losses.random();
            station.contents.borrow_mut().crash(random);
        }
    }

    /// Puts the contents of another machine's disks, of the same preset, onto this one's: they have
    /// been carried over.
    pub fn take_disks(&self, former: &Simulation) {
        let stations = self.shared.stations.iter();
        for (station, former) in stations.zip(&former.shared.stations) {
            station.contents.swap(&former.contents);
            station.files.swap(&former.files);
        }
    }

    /// The counts of the run.
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

    /// The trace of the run, if it was traced.
    pub fn take_trace(&self) -> Option<Trace> {
        self.world.take_trace()
    }
}
