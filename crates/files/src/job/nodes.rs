//! The nodes of a program, and the servers on them.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use futures::future::LocalBoxFuture;
use penstock_engine::{Error, Kind, Machine, NodeId, Result, Who};
use penstock_machines::node::runner::{Interrupt, Looking, Runner, Task};
use penstock_machines::{Node, Opener, Threads};

use super::core::Failure;
use super::file_system::{Ending, FileSystem};
use crate::caller::Homes;
use crate::client::ClientState;
use crate::disk::{self, BlockOpener, ServerDisk};
use crate::metrics::Meter;
use crate::object::Identity;
use crate::service::lodge::Guests;
use crate::service::{Parts, Service, VolumeShape};

/// The options of a program that uses a volume.
#[derive(Debug, Clone, Copy)]
pub struct JobOptions {
    /// The bytes of each server's cache.
    pub cache_bytes: u64,
    /// Whether block files are read and written around the page cache.
    pub is_direct: bool,
}

impl Default for JobOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 32 << 20,
            is_direct: false,
        }
    }
}

/// A node of a program, with the servers that it is to have.
pub struct Seat {
    /// The node.
    pub node: Node,
    /// The disks of the servers on this node.
    pub disks: Vec<ServerDisk>,
    /// The structure of the volume.
    pub shape: VolumeShape,
    /// The number of the program.
    pub program: u64,
    /// The node of each of its clients, by rank.
    pub clients: Arc<[NodeId]>,
    /// The number of nodes of the program.
    pub nodes: usize,
    /// The number of hosts that the nodes are on.
    pub hosts: usize,
    /// Whether a thread may look after the servers while the program computes.
    pub serves_alone: bool,
}

/// On one host, the most bytes that travel inside messages. More go straight between the memories
/// of client and server, by one copy in the place of three.
const INSIDE_BYTES_HOST: u64 = 8 << 10;

impl Seat {
    /// The opener of the nodes of a program.
    pub fn opener(options: &JobOptions) -> Arc<dyn Opener> {
        Arc::new(match options.is_direct {
            true => BlockOpener::direct(),
            false => BlockOpener::cached(),
        })
    }

    /// Starts the servers of this node, and makes its client.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(self, options: &JobOptions, interrupt: Option<Interrupt>) -> Result<FileSystem> {
        let Self {
            node,
            disks,
            shape,
            program,
            clients,
            nodes,
            hosts,
            serves_alone,
        } = self;
        let failure = Failure::default();
        let told = (program, clients.clone());
        let mut state = ClientState::new(shape.clone(), identity(), told, 0);
        if hosts == 1 {
            state.request_bytes_max = INSIDE_BYTES_HOST;
            state.answer_bytes_max = INSIDE_BYTES_HOST;
        }
        let looking = match serves_alone && !disks.is_empty() {
            true => Looking::Always,
            false => Looking::Never,
        };
        let (failed, cache_bytes) = (failure.clone(), options.cache_bytes);
        let running = Arc::new(AtomicUsize::new(disks.len()));
        let left = running.clone();
        let tasks = |node: &Rc<Node>| {
            let serve = |disk: ServerDisk| -> Task {
                let (node, shape, clients) = (node.clone(), shape.clone(), clients.clone());
                let (failed, left) = (failed.clone(), left.clone());
                Box::pin(async move {
                    let server = disk.description.server;
                    if let Err(error) =
                        serve(&node, disk, shape, (cache_bytes, clients), None).await
                    {
                        let error = error.by(Who::Server(server));
                        node.leave(&error);
                        failed.set(error);
                    }
                    left.fetch_sub(1, Ordering::Release);
                })
            };
            disks.into_iter().map(serve).collect()
        };
        let runner = Runner::new(node, tasks, looking, interrupt)?;
        let ending = Ending::Together { running, nodes };
        Ok(FileSystem::new(runner, state, failure, ending))
    }
}

/// What a server that stands has beside its disks.
pub(super) struct Stands {
    /// What it knows of its clients.
    pub(super) guests: Rc<dyn Guests>,
    /// Ends when the server is to end.
    pub(super) stopping: LocalBoxFuture<'static, ()>,
    pub(super) meter: Arc<Meter>,
}

/// Runs a server until a client stops it, or none is left; one that stands until it is told to end.
pub(super) async fn serve(
    node: &Node,
    disk: ServerDisk,
    shape: VolumeShape,
    (cache_bytes, clients): (u64, Arc<[NodeId]>),
    stands: Option<Stands>,
) -> Result<()> {
    let server = disk.description.server;
    let mut disks = Vec::new();
    for opening in disk.openings {
        disks.push(node.open(opening).await?);
    }
    let (guests, stopping, meter) = match stands {
        Some(Stands {
            guests,
            stopping,
            meter,
        }) => (Some(guests), Some(stopping), Some(meter)),
        None => (None, None, None),
    };
    let parts = Parts {
        disks,
        blocks: disk.blocks,
        records: disk.records,
        cache_bytes,
        clock: Rc::new(nanoseconds),
        life: disk::new_identity()? >> 1,
        clients,
        guests,
        stopping,
        meter,
    };
    Service::new(node, server, shape, parts)?.run().await
}

/// The time in nanoseconds since 1970.
fn nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// The user of this process.
pub(super) fn identity() -> Identity {
    let groups = rustix::process::getgroups().unwrap_or_default();
    Identity::new(
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        groups
            .into_iter()
            .map(rustix::process::Gid::as_raw)
            .collect(),
    )
}

/// Opens a volume in this process alone, with all of its servers.
///
/// # Errors
/// As [`disk::open`]; [`Kind::Schema`] when the volume has another number of servers than is said.
pub fn embedded(
    template: &str,
    servers: Option<usize>,
    options: &JobOptions,
    interrupt: Option<Interrupt>,
) -> Result<FileSystem> {
    let found = disk::servers(template)?;
    check_servers(servers, Some(found))?;
    let disks = (0..found).map(|server| disk::open(template, server));
    let disks: Vec<ServerDisk> = disks.collect::<Result<_>>()?;
    check_same(&disks)?;
    let seat = Seat {
        node: Threads::new(1).node(0, Seat::opener(options)),
        shape: disks[0].description.shape(Homes::new(vec![0; found])),
        disks,
        program: u64::from(std::process::id()),
        clients: Arc::new([0]),
        nodes: 1,
        hosts: 1,
        serves_alone: true,
    };
    seat.start(options, interrupt)
}

/// Refuses another number of servers than is seen, if one is seen.
pub(super) fn check_servers(said: Option<usize>, seen: Option<usize>) -> Result<()> {
    match (said, seen) {
        (Some(said), Some(seen)) if said != seen => {
            let cause = format!("the volume has {seen} servers, not {said}");
            Err(Error::new(Kind::Schema, "opening a volume", cause))
        }
        _ => Ok(()),
    }
}

/// Refuses servers of different volumes.
pub(super) fn check_same(disks: &[ServerDisk]) -> Result<()> {
    let identity = |disk: &ServerDisk| disk.description.identity;
    let first = disks.first().map(identity);
    match disks.iter().position(|disk| Some(identity(disk)) != first) {
        None => Ok(()),
        Some(other) => {
            let cause = format!("server {other} is of another volume than server 0");
            Err(Error::new(Kind::Mismatch, "opening a volume", cause))
        }
    }
}
