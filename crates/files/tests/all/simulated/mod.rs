//! A volume on a simulated machine, for tests.

#![allow(dead_code, reason = "each test uses a part")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use penstock_engine::{Access, BlockFile, Machine, MemoryId, Opening, Operation, Result};
use penstock_files::fsck::{Layout, ServerRecords, check};
use penstock_files::metrics::Meter;
use penstock_files::volume::records::Change;
use penstock_files::{
    Attachment, Client, ClientState, FilePath, HASH_BITS, Homes, Identity, Mode, Names,
    OpenSubfile, Parts, RecordStore, Selection, Service, Version, VolumeShape, disk_schema,
};
use penstock_layout::{Block, DiskSchema, Region, Share, SubfileOrder, View};
use penstock_sim::Span;
use penstock_sim::machine::{self, Faults, Setup, SimDisk, SimNode, Simulation};
use penstock_sim::preset::Preset;

/// The numbers of a volume.
#[derive(Debug, Clone)]
pub struct Volume {
    pub seed: u64,
    pub clients: usize,
    pub servers: usize,
    /// The servers that have come since the volume was made, of these.
    pub later: usize,
    pub block_bytes: u64,
    /// The blocks of each server.
    pub blocks: u64,
    pub cache_bytes: u64,
    pub hash_bits: u32,
    /// Whether each server has a node of its own, and not one with another server.
    pub has_own_nodes: bool,
    pub faults: Faults,
}

impl Default for Volume {
    fn default() -> Self {
        Self {
            seed: 0,
            clients: 1,
            servers: 3,
            later: 0,
            block_bytes: 64,
            blocks: 1000,
            cache_bytes: 64 * 8,
            hash_bits: HASH_BITS,
            has_own_nodes: false,
            faults: Faults::default(),
        }
    }
}

/// The records of a server on stable storage.
type Records = Rc<RefCell<BTreeMap<Vec<u8>, Vec<u8>>>>;

/// A record store whose commits take the time of a write to the server's disk, and its faults.
pub struct SimRecords {
    node: SimNode,
    file: SimDisk,
    block: Block,
    records: Records,
}

impl RecordStore for SimRecords {
    async fn load(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let records = self.records.borrow();
        let pairs = records.iter();
        Ok(pairs
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<()> {
        let buffer = self.node.buffer(self.block.bytes)?;
        self.file.write(&self.block, &buffer, 0).await?;
        self.file.finish().await?;
        for (key, value) in changes {
            let mut records = self.records.borrow_mut();
            match value {
                Some(value) => records.insert(key, value),
                None => records.remove(&key),
            };
        }
        self.node.sleep(Span::from_us_f64(1.0)).await; // a crash may come here, too
        Ok(())
    }
}

/// What a volume leaves on its disks.
pub struct Left {
    simulation: Simulation,
    records: Vec<Records>,
    layout: Layout,
}

/// A client in a test.
pub struct Program {
    pub node: SimNode,
    pub state: ClientState,
    pub rank: usize,
    memories: Cell<u64>,
    done: Rc<Cell<usize>>,
    clients: usize,
}

pub fn path(text: &str) -> FilePath {
    FilePath::new(text).unwrap()
}

pub const BOTH: Mode = Mode {
    reads: true,
    writes: true,
    is_reckless: false,
};

impl Program {
    pub fn client(&self) -> Client<'_, SimNode> {
        Client::new(&self.node, &self.state)
    }

    /// The server that keeps the object of a path, if slots have not moved.
    pub fn keeper_of(&self, name: &str) -> usize {
        let names = self.state.shape.names;
        names.keepers().server(names.slot_of(&path(name)))
    }

    /// Waits until this number of clients have come here.
    pub async fn meet(&self, count: usize) {
        self.done.set(self.done.get() + 1);
        while self.done.get() < count {
            self.node.sleep(Span::from_us_f64(50.0)).await;
        }
    }

    /// Moves bytes between a subfile and `memory`.
    pub async fn access(
        &self,
        open: &OpenSubfile,
        operation: Operation,
        offset: u64,
        memory: &Rc<RefCell<Vec<u8>>>,
        placed: Option<&dyn Fn()>,
    ) -> Result<u64> {
        let (id, _exposed) = self.expose(memory);
        let bytes = memory.borrow().len() as u64;
        let client = self.client();
        let moved = client.access(open, operation, (offset, bytes), id, placed);
        Ok(moved.await?.bytes)
    }

    /// Takes part in a collective request with `memory`.
    pub async fn access_all(
        &self,
        open: Result<&OpenSubfile>,
        file: &Attachment,
        operation: Operation,
        offset: u64,
        memory: &Rc<RefCell<Vec<u8>>>,
    ) -> Result<u64> {
        let bytes = memory.borrow().len() as u64;
        self.select_all(open, file, operation, (offset, bytes).into(), memory)
            .await
    }

    /// As [`Program::access_all`], with any bytes of the subfile and of `memory`.
    pub async fn select_all(
        &self,
        open: Result<&OpenSubfile>,
        file: &Attachment,
        operation: Operation,
        wanted: Selection,
        memory: &Rc<RefCell<Vec<u8>>>,
    ) -> Result<u64> {
        let (id, _exposed) = self.expose(memory);
        let client = self.client();
        let moved = client.access_all(open, file, operation, wanted, id);
        Ok(moved.await?.bytes)
    }

    /// As [`Program::access`], with any bytes of the subfile and of `memory`.
    pub async fn select(
        &self,
        open: &OpenSubfile,
        operation: Operation,
        wanted: Selection,
        memory: &Rc<RefCell<Vec<u8>>>,
    ) -> Result<u64> {
        let (id, _exposed) = self.expose(memory);
        let client = self.client();
        let moved = client.access(open, operation, wanted, id, None);
        Ok(moved.await?.bytes)
    }

    /// Exposes memory under a name of its own.
    fn expose(&self, memory: &Rc<RefCell<Vec<u8>>>) -> (MemoryId, <SimNode as Machine>::Exposure) {
        let number = self.memories.get();
        self.memories.set(number + 1);
        let id = MemoryId::new([77, number]);
        let bytes = memory.borrow().len() as u64;
        let share = Share::of_box(&Region::whole(&[bytes]));
        (id, self.node.expose(id, (share, Some(memory.clone()))))
    }

    pub async fn write(&self, open: &OpenSubfile, offset: u64, data: &[u8]) -> Result<u64> {
        let memory = Rc::new(RefCell::new(data.to_vec()));
        self.access(open, Operation::Write, offset, &memory, None)
            .await
    }

    /// Reads into a buffer that is full of 0xee.
    pub async fn read(
        &self,
        open: &OpenSubfile,
        offset: u64,
        bytes: usize,
    ) -> Result<(u64, Vec<u8>)> {
        let memory = Rc::new(RefCell::new(vec![0xee; bytes]));
        let moved = self
            .access(open, Operation::Read, offset, &memory, None)
            .await?;
        let data = memory.take();
        Ok((moved, data))
    }

    pub async fn create(&self, at: &str, cells: u64, bsu_bytes: u64) -> Result<Attachment> {
        let client = self.client();
        client
            .create(path(at), (cells, bsu_bytes, None), 0o644)
            .await?;
        client.attach(&path(at), BOTH).await
    }
}

/// Opens a subfile in the order "block".
pub fn open(file: &Attachment, view: [u64; 4], number: u64) -> OpenSubfile {
    open_in(file, view, number, SubfileOrder::Block)
}

pub fn open_in(file: &Attachment, view: [u64; 4], number: u64, order: SubfileOrder) -> OpenSubfile {
    let view = View::try_from(view).unwrap();
    OpenSubfile::new(file, view, number, order, Version::Active).unwrap()
}

impl Volume {
    fn simulation(&self) -> Simulation {
        let mut preset = Preset::find("tocs97").unwrap();
        preset.nodes.clients = self.clients;
        preset.nodes.io_nodes = match self.has_own_nodes {
            true => self.servers,
            false => self.servers.div_ceil(2),
        };
        preset.nodes.disks = self.servers;
        let setup = Setup {
            layout: machine::Layout::Contiguous,
            slots: self.blocks,
            slot_bytes: self.block_bytes,
            is_disk_free: false,
            seed: self.seed,
            is_real: true,
            is_traced: false,
        };
        Simulation::with_faults(&preset, &setup, &self.faults).unwrap()
    }

    /// Runs programs on a new volume.
    pub fn run<F: Future<Output = ()> + 'static>(&self, program: impl Fn(Program) -> F) -> Left {
        let records = (0..self.servers).map(|_| Records::default()).collect();
        self.run_on(self.simulation(), records, program)
    }

    /// Runs programs on what is left of a volume.
    pub fn run_again<F: Future<Output = ()> + 'static>(
        &self,
        left: Left,
        program: impl Fn(Program) -> F,
    ) -> Left {
        let simulation = self.simulation();
        simulation.take_disks(&left.simulation);
        self.run_on(simulation, left.records, program)
    }

    fn run_on<F: Future<Output = ()> + 'static>(
        &self,
        simulation: Simulation,
        records: Vec<Records>,
        program: impl Fn(Program) -> F,
    ) -> Left {
        let party = simulation.party().clone();
        let shape = VolumeShape {
            volume: 5,
            servers: Homes::new(party.servers.clone()),
            names: Names {
                servers: self.servers - self.later,
                hash_bits: self.hash_bits,
            },
            block_bytes: self.block_bytes,
            owner: 1,
        };
        let (met, done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let programs = |node: SimNode| {
            let who = Identity::new(1, 10, Vec::new());
            let clients = party.clients.clone().into();
            let state = ClientState::new(shape.clone(), who, (1, clients), 0);
            let one = Program {
                rank: node.me(),
                node: node.clone(),
                state: state.clone(),
                memories: Cell::new(0),
                done: met.clone(),
                clients: self.clients,
            };
            let (program, done, clients) = (program(one), done.clone(), self.clients);
            async move {
                program.await;
                done.set(done.get() + 1);
                if done.get() == clients {
                    // Servers that were lost cannot be stopped.
                    let _ = Client::new(&node, &state).stop().await;
                }
            }
        };
        let servers = |node: SimNode| {
            let own: Vec<usize> = party.servers_on(node.me()).collect();
            let (shape, records, volume) = (shape.clone(), records.clone(), self.clone());
            async move {
                let served = own
                    .into_iter()
                    .map(|server| serve(&node, server, &shape, &volume, records[server].clone()));
                for ended in futures::future::join_all(served).await {
                    ended.unwrap();
                }
            }
        };
        simulation.run_with_servers(programs, servers).unwrap();
        Left {
            simulation,
            records,
            layout: Layout {
                names: shape.names,
                block_bytes: self.block_bytes,
                places: vec![self.blocks; self.servers],
                owner: shape.owner,
            },
        }
    }
}

impl Left {
    /// Crashes all servers: their disks lose what was not safe.
    pub fn crash(&self) {
        let party = self.simulation.party();
        for &node in party.serving() {
            self.simulation.crash(node);
        }
    }

    /// The counts of the run.
    pub fn totals(&self) -> penstock_sim::machine::Totals {
        self.simulation.totals()
    }

    /// What must be known in order to check the records.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The records of all servers.
    pub fn all_records(&self) -> Vec<ServerRecords> {
        let of_server = |records: &Records| {
            let records = records.borrow();
            let pairs = records.iter();
            pairs
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        self.records.iter().map(of_server).collect()
    }

    /// Replaces the records of all servers.
    pub fn put_records(&self, all: Vec<ServerRecords>) {
        for (records, new) in self.records.iter().zip(all) {
            *records.borrow_mut() = new.into_iter().collect();
        }
    }

    /// Checks that all records fit together.
    pub fn check(&self) {
        let report = check(&self.layout, &self.all_records());
        assert_eq!(report.findings, [], "{:?}", report.transactions);
    }

    /// The number of records of all servers.
    pub fn records(&self) -> usize {
        self.records
            .iter()
            .map(|records| records.borrow().len())
            .sum()
    }
}

async fn serve(
    node: &SimNode,
    server: usize,
    shape: &VolumeShape,
    volume: &Volume,
    records: Records,
) -> Result<()> {
    let disk = disk_schema(volume.blocks, volume.block_bytes)?;
    let opening = |target: &[u8], disk: &DiskSchema| Opening {
        target: target.to_vec(),
        disk: disk.clone(),
        access: Access::Update,
        sync: true,
        server,
        servers: 1,
    };
    let store = SimRecords {
        file: node.open(opening(b"records", &disk)).await?,
        block: disk.block_at(0, 0).unwrap(),
        node: node.clone(),
        records,
    };
    let now = node.clone();
    let parts = Parts {
        disks: vec![node.open(opening(b"blocks", &disk)).await?],
        blocks: volume.blocks,
        records: store,
        cache_bytes: volume.cache_bytes,
        clock: Rc::new(move || now.time().as_ps() / 1000),
        // No two lives of a server begin at one time.
        life: node.time().as_ps().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1,
        clients: Arc::default(),
        guests: None,
        stopping: None,
        meter: Some(Arc::new(Meter::new(server, 0))),
    };
    Service::new(node, server, shape.clone(), parts)?
        .run()
        .await
}
