//! The machine of an MPI job: nodes are ranks.
//!
//! Ranks of one host share a segment with an inbox for each, and sleep on its bell until they are
//! wanted; MPI is used to set this up. Ranks of different hosts exchange MPI messages, which must
//! be looked for: a rank that has nothing to do looks ever more rarely, and sleeps in between. Only
//! the thread that opened the session calls MPI, so that MPI_THREAD_FUNNELED is enough; but where
//! ranks exchange MPI messages, so does the thread of a call that was begun in the background.

pub mod abi;
pub mod api;
mod inbox;
pub mod loaded;
mod processors;
pub mod runtime;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use penstock_engine::{Error, Kind, NodeId, Result};
use penstock_layout::exact;

use crate::bell::{Bell, HasBell};
use crate::disk::real::Opener;
use crate::links::{Arrival, Distance, LEAVING_MAX, Links, Process};
use crate::memory::board::{Board, HasBoard};
use crate::memory::segment::{Mapping, SegmentName};
use crate::mpi::abi::Handle;
use crate::mpi::api::Api;
use crate::mpi::inbox::Inbox;
use crate::node::Node;
use crate::node::pause::LOOKS_AWAKE;

/// Tags go from 1 to this: MPI promises as many at least.
const TAGS: u64 = 32767;
/// The longest sleep between two looks.
const SLEEP_MAX: Duration = Duration::from_micros(500);
/// How soon to try again to put a packet into an inbox that was full.
const RETRY: Duration = Duration::from_micros(50);

/// How ranks of one host reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// By shared memory.
    Shared,
    /// By MPI messages, as ranks of different hosts do: for tests, and for hosts whose ranks
    /// cannot map each other's memory.
    Messages,
}

/// Which ranks are on which host, and this rank's node.
pub struct Job {
    /// This rank's node.
    pub node: Node,
    /// The host of each rank, named by its first rank.
    pub hosts: Vec<usize>,
    /// For each rank, how many processors the ranks of its host may use together.
    pub processors: Vec<usize>,
}

/// Makes this rank a node.
///
/// # Errors
/// When ranks of one host cannot share memory; the same on all ranks.
///
/// # Collective
/// Over `comm`.
pub fn join(api: Api, comm: Handle, transport: Transport, opener: Arc<dyn Opener>) -> Result<Job> {
    let comm = OwnComm {
        handle: api.dup(comm)?,
        api,
    };
    let (me, size) = comm.api.rank_and_size(comm.handle)?;
    let told = [host_name(me, transport), session_number()];
    let names = comm.api.allgather(comm.handle, told)?;
    let hosts: Vec<usize> = names
        .iter()
        .map(|[name, _]| names.iter().position(|[other, _]| other == name))
        .map_while(|h| h)
        .collect();
    let processors = processors_by_rank(&comm, &hosts)?;
    let mates: Vec<usize> = (0..size).filter(|&rank| hosts[rank] == hosts[me]).collect();
    let shared = share_inboxes(&comm, me, &mates)?;
    let mut rank_in_host = vec![None; size];
    for (place, &mate) in mates.iter().enumerate() {
        rank_in_host[mate] = Some(place);
    }
    let links = MpiLinks {
        me,
        my_place: rank_in_host[me].unwrap_or(0),
        is_alone_on_host: mates.len() == size,
        rank_in_host,
        shared: Arc::new(shared),
        comm,
        tag: exact::<c_int>(1 + names[0][1] % TAGS),
        kept: RefCell::default(),
        begun: RefCell::default(),
    };
    links.shared.at(links.my_place).board().claim();
    let node = Node::new(me, Box::new(links), Process::default(), opener);
    Ok(Job {
        node,
        hosts,
        processors,
    })
}

/// For each rank, how many processors the ranks of its host may use together. All ranks get the
/// same.
fn processors_by_rank(comm: &OwnComm, hosts: &[usize]) -> Result<Vec<usize>> {
    let told = comm.api.allgather(comm.handle, processors::mine())?;
    let on = |host: usize| -> Vec<_> {
        let ranks = hosts.iter().zip(&told).filter(|(other, _)| **other == host);
        ranks.map(|(_, told)| *told).collect()
    };
    // A host's name is its first rank.
    let mut counts = vec![0; hosts.len()];
    for (rank, &host) in hosts.iter().enumerate() {
        counts[rank] = if host == rank {
            processors::together(&on(host))
        } else {
            counts[host]
        };
    }
    Ok(counts)
}

/// A number that ranks have in common if they can share memory: host and PID namespace.
fn host_name(me: usize, transport: Transport) -> u64 {
    let mut hasher = DefaultHasher::new();
    match transport {
        Transport::Messages => me.hash(&mut hasher),
        Transport::Shared => {
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
            let namespace = std::fs::read_link("/proc/self/ns/pid");
            match (boot, namespace) {
                (Ok(boot), Ok(namespace)) => (boot, namespace).hash(&mut hasher),
                _ => me.hash(&mut hasher),
            }
        }
    }
    hasher.finish()
}

/// A number that hardly any other session has.
fn session_number() -> u64 {
    static FIRST: OnceLock<u64> = OnceLock::new();
    static SESSIONS: AtomicU64 = AtomicU64::new(0);
    let first = FIRST.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        (std::process::id(), SystemTime::now()).hash(&mut hasher);
        hasher.finish()
    });
    first.wrapping_add(SESSIONS.fetch_add(1, Ordering::Relaxed))
}

/// Maps the inboxes of this host's ranks: made by the first of them, opened by the others.
fn share_inboxes(comm: &OwnComm, me: usize, mates: &[usize]) -> Result<SharedInboxes> {
    let owner = mates[0];
    let mine = if owner == me {
        Some(SharedInboxes::create(mates.len()))
    } else {
        None
    };
    let name = mine
        .as_ref()
        .and_then(|made| made.as_ref().ok()?.mapping.name());
    let words = name.map_or([0; 3], |name| {
        [
            u64::from(name.process),
            name.descriptor as u64,
            name.bytes as u64,
        ]
    });
    let all = comm.api.allgather(comm.handle, words)?;
    let [process, descriptor, bytes] = all[owner];
    let opened = match mine {
        Some(made) => made,
        None if bytes == 0 => Err(Error::new(
            Kind::Full,
            "reserving shared memory",
            format!("rank {owner} could not"),
        )),
        None => {
            let name = SegmentName {
                process: exact::<u32>(process),
                descriptor: exact::<i32>(descriptor),
                bytes: exact::<usize>(bytes),
            };
            Mapping::open(&name).map(|mapping| SharedInboxes { mapping })
        }
    };
    // All must know whether all could, or some would wait for the others.
    let could = comm
        .api
        .allgather(comm.handle, [u64::from(opened.is_ok())])?;
    match (opened, could.iter().position(|&[could]| could == 0)) {
        (Ok(inboxes), None) => Ok(inboxes),
        (Err(error), _) => Err(error),
        (Ok(_), Some(rank)) => {
            let cause = format!("rank {rank} could not map its host's; use transport=\"messages\"");
            Err(Error::new(
                Kind::Peer,
                "sharing memory between the ranks of a host",
                cause,
            ))
        }
    }
}

/// A communicator of Penstock's own.
struct OwnComm {
    handle: Handle,
    api: Api,
}

impl Drop for OwnComm {
    fn drop(&mut self) {
        self.api.free(self.handle);
    }
}

/// The inboxes of the ranks of one host, one behind the other.
struct SharedInboxes {
    mapping: Mapping,
}

impl SharedInboxes {
    fn create(count: usize) -> Result<Self> {
        let inboxes = Self {
            mapping: Mapping::shared(count * size_of::<Inbox>())?,
        };
        (0..count).for_each(|place| inboxes.at(place).init());
        Ok(inboxes)
    }

    fn at(&self, place: usize) -> &Inbox {
        let offset = place * size_of::<Inbox>();
        assert!(
            offset + size_of::<Inbox>() <= self.mapping.bytes(),
            "no such inbox"
        );
        // SAFETY: in bounds as checked; pages are aligned, the size of an inbox is a multiple of
        // its alignment, and any bytes are a valid inbox (atomics and plain integers).
        unsafe { &*self.mapping.base().add(offset).cast::<Inbox>() }
    }
}

/// One inbox.
struct SharedInbox {
    inboxes: Arc<SharedInboxes>,
    place: usize,
}

impl HasBell for SharedInbox {
    fn bell(&self) -> &Bell {
        self.inboxes.at(self.place).bell()
    }
}

impl HasBoard for SharedInbox {
    fn board(&self) -> &Board {
        self.inboxes.at(self.place).board()
    }
}

/// Packets that are on their way out.
#[derive(Default)]
struct Outbox {
    /// By destination on this host, with the bytes that are in its inbox already.
    for_host: HashMap<usize, VecDeque<(Vec<u8>, usize)>>,
    /// Sends that MPI has begun.
    sends: Vec<(Handle, Vec<u8>)>,
}

struct MpiLinks {
    me: usize,
    my_place: usize,
    is_alone_on_host: bool,
    rank_in_host: Vec<Option<usize>>,
    shared: Arc<SharedInboxes>,
    comm: OwnComm,
    /// Penstock's messages are the only ones of their communicator; but a session that broke may
    /// have left some behind in one that MPI has given the same place since.
    tag: c_int,
    kept: RefCell<Outbox>,
    begun: RefCell<HashMap<u32, Vec<u8>>>,
}

impl MpiLinks {
    /// Moves on what could not go at once.
    fn move_on(&self) -> Result<()> {
        let mut kept = self.kept.borrow_mut();
        kept.for_host.retain(|&place, packets| {
            while let Some((packet, sent)) = packets.front_mut() {
                if !self.shared.at(place).put(self.me, packet, sent) {
                    return true;
                }
                packets.pop_front();
            }
            false
        });
        let mut at = 0;
        while at < kept.sends.len() {
            if self.comm.api.test(&mut kept.sends[at].0)? {
                kept.sends.swap_remove(at);
            } else {
                at += 1;
            }
        }
        Ok(())
    }
}

impl Links for MpiLinks {
    fn distance(&self, node: usize) -> Distance {
        match self.rank_in_host[node] {
            _ if node == self.me => Distance::Process,
            Some(_) => Distance::Host,
            None => Distance::Network,
        }
    }

    fn post(&self, to: usize, mut packet: Vec<u8>) -> Result<()> {
        let mut kept = self.kept.borrow_mut();
        match self.rank_in_host[to] {
            Some(place) => {
                let mut sent = 0;
                let is_first = !kept.for_host.contains_key(&place);
                if !(is_first && self.shared.at(place).put(self.me, &packet, &mut sent)) {
                    kept.for_host
                        .entry(place)
                        .or_default()
                        .push_back((packet, sent));
                }
            }
            None if !self.comm.api.is_usable() => {
                let cause = "MPI has been finalised: close the session before that";
                return Err(Error::new(Kind::Peer, "sending a message", cause));
            }
            None => {
                packet.extend((self.me as u64).to_le_bytes());
                let request = self
                    .comm
                    .api
                    .isend(self.comm.handle, to, self.tag, &packet)?;
                kept.sends.push((request, packet));
            }
        }
        Ok(())
    }

    fn poll(&self) -> Result<Option<Arrival>> {
        self.move_on()?;
        let inbox = self.shared.at(self.my_place);
        if let Some((from, packet)) = inbox.take(&mut self.begun.borrow_mut()) {
            return Ok(Some(Arrival::Packet(from, packet)));
        }
        if self.is_alone_on_host {
            return Ok(None);
        }
        let probed = self.comm.api.probe(self.comm.handle, self.tag)?;
        let received = probed.map(|probed| self.comm.api.receive(probed));
        received.transpose()?.map(unsigned).transpose()
    }

    fn others(&self) -> Vec<NodeId> {
        let all = 0..self.rank_in_host.len();
        all.filter(|&node| node != self.me).collect()
    }

    fn is_member(&self, node: NodeId) -> bool {
        node < self.rank_in_host.len()
    }

    fn cut(&self, _node: NodeId) {}

    fn keeps_any(&self) -> bool {
        let kept = self.kept.borrow();
        !kept.for_host.is_empty() || !kept.sends.is_empty()
    }

    fn mail_bytes_max(&self, _node: NodeId) -> u64 {
        u64::MAX // all are of one job
    }

    fn bell(&self) -> Arc<dyn HasBell> {
        Arc::new(SharedInbox {
            inboxes: self.shared.clone(),
            place: self.my_place,
        })
    }

    fn board(&self, node: usize) -> Option<Arc<dyn HasBoard>> {
        let inboxes = self.shared.clone();
        self.rank_in_host[node]
            .map(|place| Arc::new(SharedInbox { inboxes, place }) as Arc<dyn HasBoard>)
    }

    fn nap_max(&self, idle: u32) -> Option<Duration> {
        if !self.is_alone_on_host {
            let naps = idle.saturating_sub(LOOKS_AWAKE);
            return Some(SLEEP_MAX.min(Duration::from_micros(20 * u64::from(naps))));
        }
        let waits_for_room = !self.kept.borrow().for_host.is_empty();
        waits_for_room.then_some(RETRY)
    }

    fn needs_mpi(&self) -> bool {
        !self.is_alone_on_host
    }
}

/// Takes the rank of the sender from the end of a packet that has come by MPI.
fn unsigned(mut packet: Vec<u8>) -> Result<Arrival> {
    match packet.split_last_chunk() {
        Some((_, rank)) => {
            let from = exact::<usize>(u64::from_le_bytes(*rank));
            packet.truncate(packet.len() - size_of::<u64>());
            Ok(Arrival::Packet(from, packet))
        }
        None => {
            let cause = "a message of another program has come";
            Err(Error::new(Kind::Peer, "receiving a message", cause))
        }
    }
}

impl Drop for MpiLinks {
    /// MPI may still be reading the packets of sends that it has begun: those that nobody takes in
    /// time are never freed.
    fn drop(&mut self) {
        let until = Instant::now() + LEAVING_MAX;
        for (mut request, packet) in self.kept.get_mut().sends.drain(..) {
            let mut is_done = !self.comm.api.is_usable();
            while !is_done && Instant::now() < until {
                is_done = self.comm.api.test(&mut request).unwrap_or(true);
                std::thread::yield_now();
            }
            if !is_done {
                std::mem::forget(packet);
            }
        }
    }
}
