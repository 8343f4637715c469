//! Volumes on real disks, used by threads: what was written is there when all is opened again.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures::future::{join, try_join_all};
use penstock_engine::{Kind, Machine, MemoryId, Operation, Result};
use penstock_files::disk::{BlockOpener, CreateOptions, create, describe, open};
use penstock_files::{
    Attachment, Client, ClientState, FileChange, FilePath, Homes, Identity, Mode, OpenSubfile,
    Parts, Service, Version, VolumeShape,
};
use penstock_layout::{SubfileOrder, View};
use penstock_machines::disk::direct::Direct;
use penstock_machines::{ClientMemory, Node, Threads};

use crate::naive;

const MODE: Mode = Mode {
    reads: true,
    writes: true,
    is_reckless: false,
};

/// A volume, and the machine that uses it.
#[derive(Clone)]
struct Setup {
    template: String,
    servers: usize,
    nodes: usize,
    opener: BlockOpener,
    cache_bytes: u64,
}

/// A client in a test, on the node of its rank.
struct Program {
    rank: usize,
    node: Rc<Node>,
    state: ClientState,
    memories: Cell<u64>,
}

fn path(text: &str) -> FilePath {
    FilePath::new(text).unwrap()
}

/// Bytes that differ from seed to seed.
fn numbers(seed: u64, count: usize) -> Vec<u8> {
    let numbers = (0..count as u64).map(|n| (n ^ ((n >> 8) * 7)).wrapping_mul(31) + seed * 17);
    numbers.map(|number| number as u8).collect()
}

impl Program {
    fn client(&self) -> Client<'_, Node> {
        Client::new(&*self.node, &self.state)
    }

    async fn access(
        &self,
        open: &OpenSubfile,
        operation: Operation,
        offset: u64,
        memory: &mut [u8],
    ) -> Result<u64> {
        let id = MemoryId::new([self.rank as u64, self.memories.get()]);
        self.memories.set(self.memories.get() + 1);
        let exposed = ClientMemory {
            base: memory.as_mut_ptr(),
            extents: vec![memory.len() as u64],
            strides: vec![1],
            width: 1,
        };
        let _exposed = self.node.expose(id, exposed);
        let range = (offset, memory.len() as u64);
        Ok(self
            .client()
            .access(open, operation, range, id, None)
            .await?
            .bytes)
    }

    async fn write(&self, open: &OpenSubfile, offset: u64, data: &[u8]) -> Result<u64> {
        let mut data = data.to_vec();
        self.access(open, Operation::Write, offset, &mut data).await
    }

    async fn read(&self, open: &OpenSubfile, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut data = vec![0xee; bytes];
        let moved = self.access(open, Operation::Read, offset, &mut data);
        assert_eq!(moved.await?, bytes as u64);
        Ok(data)
    }

    /// Attaches a file that another client makes.
    async fn attach(&self, at: &str) -> Attachment {
        loop {
            match self.client().attach(&path(at), MODE).await {
                Ok(file) => return file,
                Err(error) => assert_eq!(error.kind, Kind::Missing, "{error}"),
            }
        }
    }
}

fn subfile(file: &Attachment, view: [u64; 4], number: u64, order: SubfileOrder) -> OpenSubfile {
    let view = View::try_from(view).unwrap();
    OpenSubfile::new(file, view, number, order, Version::Active).unwrap()
}

async fn serve(node: &Node, server: usize, shape: VolumeShape, setup: &Setup) -> Result<()> {
    let disk = open(&setup.template, server)?;
    let disks = try_join_all(disk.openings.into_iter().map(|opening| node.open(opening))).await?;
    let started = Instant::now();
    let parts = Parts {
        disks,
        blocks: disk.blocks,
        records: disk.records,
        cache_bytes: setup.cache_bytes,
        clock: Rc::new(move || started.elapsed().as_nanos() as u64),
        life: 0,
        clients: Arc::default(),
        guests: None,
        stopping: None,
        meter: None,
    };
    Service::new(node, server, shape, parts)?.run().await
}

impl Setup {
    fn new(directory: &Path, servers: usize) -> Self {
        Self {
            template: directory.join("scratch.vol").display().to_string(),
            servers,
            nodes: 1,
            opener: BlockOpener::cached(),
            cache_bytes: 1 << 20,
        }
    }

    fn create(&self, block_bytes: u64, capacity: Option<u64>) {
        let options = CreateOptions {
            block_bytes,
            capacity,
            owner: 1,
            ..CreateOptions::new(self.servers)
        };
        create(&self.template, &options).unwrap();
    }

    /// Runs a client on each node, and servers dealt out to the nodes. The last client that ends
    /// stops the servers.
    fn run<F: Future<Output = Result<()>>>(&self, program: impl Fn(Program) -> F + Sync) {
        let threads = Threads::new(self.nodes);
        let ended = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for me in 0..self.nodes {
                let (threads, program, ended) = (threads.clone(), &program, &ended);
                let run = move || {
                    let node = Rc::new(threads.node(me, Arc::new(self.opener)));
                    self.run_node(&node, program, ended);
                };
                scope.spawn(run);
            }
        });
    }

    fn run_node<F: Future<Output = Result<()>>>(
        &self,
        node: &Rc<Node>,
        program: impl Fn(Program) -> F,
        ended: &AtomicUsize,
    ) {
        let homes: Arc<[usize]> = (0..self.servers)
            .map(|server| server % self.nodes)
            .collect();
        let shape = describe(&self.template, 0)
            .unwrap()
            .shape(Homes::new(homes.clone()));
        let own = (0..self.servers).filter(|&server| homes[server] == node.me());
        let served = try_join_all(own.map(|server| serve(node, server, shape.clone(), self)));
        let who = Identity::new(1, 10, Vec::new());
        let state = ClientState::new(shape.clone(), who, (1, Arc::new([])), 0);
        let one = Program {
            rank: node.me(),
            node: node.clone(),
            state: state.clone(),
            memories: Cell::new(0),
        };
        let client = async {
            let done = program(one).await;
            if ended.fetch_add(1, Ordering::SeqCst) + 1 == self.nodes {
                Client::new(&**node, &state).stop().await.unwrap();
            }
            done
        };
        let (served, done) = node.block_on(join(served, client));
        served.unwrap();
        done.unwrap();
    }
}

fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// An opener that is direct, where the file system can do that.
fn direct_if_possible(directory: &Path) -> BlockOpener {
    let path = directory.join("direct");
    let file = std::fs::File::create(&path).unwrap();
    match Direct::open(&file, &path) {
        Ok(_) => BlockOpener::direct(),
        Err(error) => {
            println!("skipped: {error}");
            BlockOpener::cached()
        }
    }
}

/// The bytes of cells of one length in the order of the file's striping, BSU by BSU.
fn striped(cells: &[Vec<u8>], bsu_bytes: usize) -> Vec<u8> {
    let rows = cells[0].len() / bsu_bytes;
    let pieces = (0..rows).flat_map(|row| {
        let within = row * bsu_bytes..(row + 1) * bsu_bytes;
        cells.iter().map(move |cell| &cell[within.clone()])
    });
    pieces.collect::<Vec<_>>().concat()
}

#[test]
fn what_was_synced_is_there_when_all_is_opened_again() {
    for (is_direct, block_bytes) in [(false, 4096), (true, 8192), (false, 1000)] {
        let directory = place();
        let opener = match is_direct {
            true => direct_if_possible(directory.path()),
            false => BlockOpener::cached(),
        };
        let setup = Setup {
            opener,
            ..Setup::new(directory.path(), 3)
        };
        setup.create(block_bytes, Some(16 << 20));
        let (cells, bsu_bytes) = (5, 300);
        let data: Vec<_> = (0..cells).map(|cell| numbers(cell, 300 * 120)).collect();
        let wide = numbers(77, 3 << 20); // more than fits into a message
        let own = [1, 1, 1, cells];
        setup.run(|me| {
            let (data, wide) = (&data, &wide);
            async move {
                let client = me.client();
                client.make_directory(path("/runs"), 0o755).await?;
                let shape = (cells, bsu_bytes, None);
                client.create(path("/runs/mesh"), shape, 0o644).await?;
                let file = me.attach("/runs/mesh").await;
                for cell in 0..cells {
                    let open = subfile(&file, own, cell, SubfileOrder::Block);
                    let (head, tail) = data[cell as usize].split_at(12_345);
                    me.write(&open, 12_345, tail).await?;
                    me.write(&open, 0, head).await?;
                }
                client
                    .create(path("/wide"), (4, 1 << 16, None), 0o644)
                    .await?;
                let file = me.attach("/wide").await;
                let open = subfile(&file, [1, 1, 1, 1], 0, SubfileOrder::Block);
                me.write(&open, 0, wide).await?;
                client.sync(None).await?;
                client
                    .change(&path("/wide"), FileChange::Checkpoint)
                    .await?;
                me.write(&open, 1000, &[1; 5000]).await?;
                client.sync(Some(&file)).await
            }
        });
        setup.run(|me| {
            let (data, wide) = (&data, &wide);
            async move {
                let file = me.attach("/runs/mesh").await;
                for cell in 0..cells {
                    let open = subfile(&file, own, cell, SubfileOrder::Block);
                    let all = &data[cell as usize];
                    assert!(me.read(&open, 0, all.len()).await? == *all);
                }
                let open = subfile(&file, [1, 1, 1, 1], 0, SubfileOrder::Block);
                let expected = striped(data, bsu_bytes as usize);
                assert!(me.read(&open, 0, expected.len()).await? == expected);
                let entries = me.client().list(&path("/runs")).await?;
                assert_eq!((entries.len(), entries[0].0.as_str()), (1, "mesh"));
                let client = me.client();
                let file = me.attach("/wide").await;
                let open = subfile(&file, [1, 1, 1, 1], 0, SubfileOrder::Block);
                let mut changed = wide.clone();
                changed[1000..6000].fill(1);
                assert!(me.read(&open, 0, wide.len()).await? == changed);
                client.change(&path("/wide"), FileChange::RollBack).await?;
                assert!(me.read(&open, 0, wide.len()).await? == *wide);
                client.remove(&path("/runs/mesh")).await
            }
        });
        setup.run(|me| async move {
            assert!(me.client().list(&path("/runs")).await?.is_empty());
            let gone = me.client().attach(&path("/runs/mesh"), MODE).await;
            assert_eq!(gone.unwrap_err().kind, Kind::Missing);
            Ok(())
        });
    }
}

/// Clients on several nodes write subfiles of one file at once, and other numbers of nodes read it.
#[test]
fn many_nodes_share_a_file() {
    const CELLS: usize = 6;
    const BSU_BYTES: usize = 40;
    let view = [3, 2, 2, 2];
    let directory = place();
    let setup = Setup {
        nodes: 4,
        cache_bytes: 20 * 512,
        ..Setup::new(directory.path(), 5)
    };
    setup.create(512, None);
    let bytes = 9000;
    setup.run(|me| async move {
        let client = me.client();
        if me.rank == 2 {
            let shape = (CELLS as u64, BSU_BYTES as u64, Some(3));
            client.create(path("/file"), shape, 0o644).await?;
        }
        let file = me.attach("/file").await;
        let open = subfile(&file, view, me.rank as u64, SubfileOrder::Row);
        let data = numbers(me.rank as u64, bytes);
        let pieces: Vec<_> = data.chunks(777).enumerate().collect();
        for (nth, piece) in pieces.into_iter().rev() {
            me.write(&open, nth as u64 * 777, piece).await?;
        }
        client.sync(Some(&file)).await
    });
    for nodes in [1, 3] {
        let again = Setup {
            nodes,
            ..setup.clone()
        };
        again.run(|me| async move {
            let file = me.attach("/file").await;
            // A naive file tells where the bytes of each subfile are in the file.
            let model = naive::File::new(CELLS, BSU_BYTES);
            for number in 0..4 {
                let open = subfile(&file, view, number, SubfileOrder::Row);
                let places = model.places(view, number, SubfileOrder::Row, 0, bytes);
                let real = places.iter().filter(|place| place.0 < CELLS).count();
                let mut data = vec![0xee; bytes];
                let moved = me.access(&open, Operation::Read, 0, &mut data).await?;
                assert_eq!(moved, real as u64);
                let written = numbers(number, bytes);
                for (at, place) in places.into_iter().enumerate() {
                    let expected = if place.0 < CELLS { written[at] } else { 0xee };
                    assert_eq!(data[at], expected, "byte {at} of subfile {number}");
                    if at % 97 == 0 && place.0 < CELLS {
                        let own = [1, 1, 1, CELLS as u64];
                        let cell = subfile(&file, own, place.0 as u64, SubfileOrder::Block);
                        let found = me.read(&cell, place.1 as u64, 1).await?;
                        assert_eq!(found, [expected]);
                    }
                }
            }
            Ok(())
        });
    }
}

/// A block that has changed on the disk is told, and not served.
#[test]
fn a_damaged_block_is_told() {
    let directory = place();
    let setup = Setup::new(directory.path(), 1);
    setup.create(4096, Some(1 << 20));
    let data = numbers(5, 40_000);
    let write = &data;
    setup.run(|me| async move {
        me.client()
            .create(path("/f"), (1, 4096, None), 0o644)
            .await?;
        let file = me.attach("/f").await;
        let open = subfile(&file, [1, 1, 1, 1], 0, SubfileOrder::Block);
        me.write(&open, 0, write).await?;
        me.client().sync(None).await
    });
    let blocks = Path::new(&setup.template).join("server-0/blocks-0");
    let mut bytes = std::fs::read(&blocks).unwrap();
    let at = bytes
        .windows(64)
        .position(|window| *window == data[8192..8256])
        .expect("the third block is somewhere");
    bytes[at] ^= 1;
    std::fs::write(&blocks, bytes).unwrap();
    let expected = &data;
    setup.run(|me| async move {
        let file = me.attach("/f").await;
        let open = subfile(&file, [1, 1, 1, 1], 0, SubfileOrder::Block);
        assert!(me.read(&open, 0, 8192).await? == expected[..8192]);
        let error = me.read(&open, 8192, 100).await.unwrap_err();
        assert_eq!(error.kind, Kind::Damaged, "{error}");
        assert!(me.read(&open, 12288, 20_000).await? == expected[12288..32288]);
        Ok(())
    });
}
