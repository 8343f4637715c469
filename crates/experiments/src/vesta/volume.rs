//! A volume of files on a simulated machine, and the processes of one program that use it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use futures::future::try_join_all;
use penstock_engine::signal::Signal;
use penstock_engine::{
    Access, BlockFile, Error, Kind, Machine, MemoryId, Opening, Operation, Result,
};
use penstock_files::volume::records::Change;
use penstock_files::{
    Attachment, Client, ClientState, FilePath, HASH_BITS, Homes, Identity, Mode, Names,
    OpenSubfile, Parts, RecordStore, Service, Version, VolumeShape, disk_schema,
};
use penstock_layout::{Block, Region, Share, SubfileOrder, View, exact};
use penstock_sim::machine::{Layout, Memory, Setup, SimDisk, SimNode, Simulation};
use penstock_sim::preset::Preset;

/// The bytes of a page of records, which a commit writes whole.
const PAGE_BYTES: u64 = 4096;

/// The user of the volume, who owns it.
const USER: u32 = 1;

/// A volume on a machine of its own.
#[derive(Clone, Debug)]
pub(crate) struct Volume<'a> {
    pub(crate) preset: &'a Preset,
    pub(crate) clients: usize,
    pub(crate) servers: usize,
    /// The blocks of each server.
    pub(crate) blocks: u64,
    /// The bytes of each server's cache.
    pub(crate) cache_bytes: u64,
    /// The most bytes of data that travel inside a request.
    pub(crate) request_bytes_max: u64,
    /// Whether data are real bytes.
    pub(crate) is_real: bool,
    pub(crate) seed: u64,
}

/// A process of the program that uses the volume.
pub(crate) struct Process {
    pub(crate) node: SimNode,
    /// The number of the process among those of the program.
    pub(crate) rank: usize,
    /// The time, in seconds, at which the last meeting took place.
    pub(crate) met_at: Cell<f64>,
    state: ClientState,
    memories: Cell<u64>,
    meeting: Rc<Meeting>,
}

/// A meeting lets all processes go on when the last one has come. It costs nothing.
struct Meeting {
    processes: usize,
    come: Cell<usize>,
    changed: Signal,
}

impl Volume<'_> {
    /// Runs the code that `program` makes for each process until all have ended. An error of one
    /// process is the error of all.
    ///
    /// # Errors
    /// That, and when the machine is impossible.
    pub(crate) fn run<F: Future<Output = Result<()>> + 'static>(
        &self,
        program: impl Fn(Process) -> F,
    ) -> Result<()> {
        let simulation = self.simulation()?;
        let party = simulation.party().clone();
        let shape = VolumeShape {
            volume: 1,
            servers: Homes::new(party.servers.clone()),
            names: Names {
                servers: self.servers,
                hash_bits: HASH_BITS,
            },
            block_bytes: self.preset.file.block_bytes,
            owner: USER,
        };
        let meeting = Rc::new(Meeting {
            processes: self.clients,
            come: Cell::new(0),
            changed: Signal::default(),
        });
        let ended = Rc::new(RefCell::new(Ok(())));
        let programs = |node: SimNode| {
            let who = Identity::new(USER, USER, Vec::new());
            let mut state = ClientState::new(shape.clone(), who, (1, Arc::new([])), 0);
            state.request_bytes_max = self.request_bytes_max;
            let process = Process {
                rank: node.me(),
                node,
                met_at: Cell::new(0.0),
                state,
                memories: Cell::new(0),
                meeting: meeting.clone(),
            };
            noting(program(process), &ended)
        };
        let servers = |node: SimNode| {
            let server = party.servers_on(node.me()).next().unwrap_or(0);
            let (shape, blocks, cache_bytes) = (shape.clone(), self.blocks, self.cache_bytes);
            let serving = async move { serve(&node, server, shape, (blocks, cache_bytes)).await };
            noting(serving, &ended)
        };
        let ran = simulation.run_with_servers(programs, servers);
        ended.borrow().clone().and(ran)
    }

    fn simulation(&self) -> Result<Simulation> {
        let mut preset = self.preset.clone();
        preset.nodes.clients = self.clients;
        preset.nodes.io_nodes = self.servers;
        preset.nodes.disks = self.servers;
        let setup = Setup {
            layout: Layout::Contiguous,
            slots: self.blocks,
            slot_bytes: preset.file.block_bytes,
            is_disk_free: false,
            seed: self.seed,
            is_real: self.is_real,
            is_traced: false,
        };
        Simulation::new(&preset, &setup)
    }
}

/// Runs a part of the program, and keeps the first error of all parts.
fn noting<F: Future<Output = Result<()>>>(
    running: F,
    ended: &Rc<RefCell<Result<()>>>,
) -> impl Future<Output = ()> + use<F> {
    let ended = ended.clone();
    async move {
        let result = running.await;
        let mut ended = ended.borrow_mut();
        if ended.is_ok() {
            *ended = result;
        }
    }
}

/// Serves the part of the volume on one disk.
async fn serve(
    node: &SimNode,
    server: usize,
    shape: VolumeShape,
    (blocks, cache_bytes): (u64, u64),
) -> Result<()> {
    let open = async |target: &[u8], blocks: u64, block_bytes: u64| {
        let opening = Opening {
            target: target.to_vec(),
            disk: disk_schema(blocks, block_bytes)?,
            access: Access::Update,
            sync: true,
            server,
            servers: 1,
        };
        node.open(opening).await
    };
    let disk = open(b"blocks", blocks, shape.block_bytes).await?;
    let journal = Journal {
        node: node.clone(),
        file: open(b"records", blocks, PAGE_BYTES).await?,
        pages: blocks,
        next: Cell::new(0),
        records: RefCell::default(),
    };
    let now = node.clone();
    let parts = Parts {
        disks: vec![disk],
        blocks,
        records: journal,
        cache_bytes,
        clock: Rc::new(move || now.time().as_ps() / 1000),
        life: 0,
        clients: Arc::default(),
        guests: None,
        stopping: None,
        meter: None,
    };
    Service::new(node, server, shape, parts)?.run().await
}

/// A record store whose commits take the time of appending pages to a journal on the server's disk.
struct Journal {
    node: SimNode,
    file: SimDisk,
    pages: u64,
    next: Cell<u64>,
    records: RefCell<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl Journal {
    fn page(&self) -> Result<Block> {
        let page = self.next.get() % self.pages;
        self.next.set(page + 1);
        let schema = disk_schema(self.pages, PAGE_BYTES)?;
        let block = schema.block_at(0, page);
        block.ok_or_else(|| Error::new(Kind::Schema, "committing records", "there is no such page"))
    }
}

impl RecordStore for Journal {
    async fn load(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let records = self.records.borrow();
        let pairs = records.iter();
        Ok(pairs
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<()> {
        let sizes = changes
            .iter()
            .map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len));
        let bytes = sizes.sum::<usize>() as u64;
        let buffer = self.node.buffer(PAGE_BYTES)?;
        for _ in 0..bytes.div_ceil(PAGE_BYTES).max(1) {
            self.file.write(&self.page()?, &buffer, 0).await?;
        }
        self.file.finish().await?;
        let mut records = self.records.borrow_mut();
        for (key, value) in changes {
            match value {
                Some(value) => records.insert(key, value),
                None => records.remove(&key),
            };
        }
        Ok(())
    }
}

/// A process reads and writes, and its requests need keep no order with those of others.
const MODE: Mode = Mode {
    reads: true,
    writes: true,
    is_reckless: true,
};

impl Process {
    /// The client of this process.
    pub(crate) fn client(&self) -> Client<'_, SimNode> {
        Client::new(&self.node, &self.state)
    }

    /// Waits until all processes have come.
    pub(crate) async fn meet(&self) {
        let Meeting {
            processes,
            come,
            changed,
        } = &*self.meeting;
        come.set(come.get() + 1);
        let full = come.get().div_ceil(*processes) * processes;
        changed.tell();
        changed.until(|| (come.get() >= full).then_some(())).await;
        self.met_at.set(self.node.time().as_ps() as f64 / 1e12);
    }

    /// Makes a file whose cell 0 is on server 0, if this is the first process, and attaches it.
    pub(crate) async fn attach(&self, at: &str, cells: u64, bsu_bytes: u64) -> Result<Attachment> {
        let path = FilePath::new(at)?;
        let client = self.client();
        if self.rank == 0 {
            let shape = (cells, bsu_bytes, Some(0));
            client.create(path.clone(), shape, 0o600).await?;
        }
        self.meet().await;
        client.attach(&path, MODE).await
    }

    /// Moves bytes between a subfile and a memory, all of which goes from byte `offset` on.
    pub(crate) async fn access(
        &self,
        open: &OpenSubfile,
        operation: Operation,
        (offset, bytes): (u64, u64),
        memory: Memory,
    ) -> Result<()> {
        let number = self.memories.get();
        self.memories.set(number + 1);
        let id = MemoryId::new([number, 0]);
        let share = Share::of_box(&Region::whole(&[bytes]));
        let _exposed = self.node.expose(id, (share, memory));
        let client = self.client();
        let moved = client
            .access(open, operation, (offset, bytes), id, None)
            .await?;
        match moved.bytes == bytes {
            true => Ok(()),
            false => {
                let cause = format!("{} bytes were moved, not {bytes}", moved.bytes);
                Err(Error::new(Kind::Damaged, "using a subfile", cause))
            }
        }
    }

    /// Goes through the first `bytes` bytes of subfiles, through all of them at once, access after
    /// access through each.
    pub(crate) async fn go_through(
        &self,
        subfiles: &[OpenSubfile],
        operation: Operation,
        (bytes, access_bytes): (u64, u64),
    ) -> Result<()> {
        let streams = subfiles.iter().map(|open| async move {
            for access in 0..bytes.div_ceil(access_bytes) {
                let offset = access * access_bytes;
                let length = access_bytes.min(bytes - offset);
                self.access(open, operation, (offset, length), None).await?;
            }
            Ok(())
        });
        try_join_all(streams).await.map(|_| ())
    }
}

/// Opens a subfile of a view.
///
/// # Errors
/// When the file has no such view.
pub(crate) fn open(file: &Attachment, view: [u64; 4], number: usize) -> Result<OpenSubfile> {
    let view = View::try_from(view);
    let view = view.map_err(|error| Error::new(Kind::Schema, "opening a subfile", error))?;
    let number = exact::<u64>(number);
    OpenSubfile::new(file, view, number, SubfileOrder::Block, Version::Active)
}
