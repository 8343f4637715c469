//! The time of one client's access to what servers keep open, in closed form.
//!
//! The access is to a part of an open array, or of a subfile of a volume: the client sends requests
//! to the servers that have some of it, each server brings block after block into its cache and
//! copies, and one message answers a request. Nobody else takes part.
//!
//! ```text
//! a server    n blocks, D requests under way at once; of all blocks: copies, requests, the worker
//!             and the device of its disk, network: T_s as in `closed`, with D buffers
//! a client    requests, answers, and copies of what messages bring: T_c, of one request T_1
//! a host      P processors: T_h = (T_c + work of all servers' threads) / P
//! a port      T_p = bytes between hosts at its rate
//! the access  T = turns + 2 latencies + T_1 + max(T_s, T_c, T_h, T_p)
//! ```
//!
//! Nothing that is read is taken to be in a server's cache. A write is done when its bytes are in
//! the caches: the blocks that a request fills are written after its answer, while the requests
//! that follow are served.

use penstock_engine::{Error, Kind, Operation, Result};
use penstock_sim::preset::Preset;

use crate::closed::{Thread, latency_us, port_bytes_per_second, slowness};
use crate::prediction::{By, Prediction, Times};
use crate::question::unfit;

/// The word that stands for a strategy in the prediction of an access.
pub const ACCESS: &str = "access";

/// An access of one client.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    pub operation: Operation,
    /// The servers that have some of it.
    pub servers: Vec<ServerAccess>,
    /// The hosts that clients and servers are on, in equal parts.
    pub hosts: usize,
    /// The most requests to one server that are under way at once.
    pub under_way: u64,
    /// Messages that follow each other before servers move anything: they give the access its place
    /// among others.
    pub turns: u64,
    /// All messages.
    pub messages: u64,
}

/// What one server does in an access.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerAccess {
    pub requests: u64,
    pub blocks: u64,
    /// Bytes of the elements.
    pub bytes: u64,
    /// Blocks, and their bytes, that the disk reads before they are copied.
    pub read: (u64, u64),
    /// Blocks, and their bytes, that the access fills: the disk writes them at once.
    pub filled: (u64, u64),
    /// Whether messages bring the elements, so that the client copies them, too.
    pub is_inside: bool,
}

impl ServerAccess {
    /// What a server does in an access whose elements come in messages. `all` are the blocks
    /// that it touches, `whole` those that it covers, each with their bytes; `bytes` are its own. A
    /// write reads the blocks that it changes in part.
    pub fn new(
        operation: Operation,
        requests: u64,
        bytes: u64,
        all: (u64, u64),
        whole: (u64, u64),
    ) -> Self {
        let (read, filled) = match operation {
            Operation::Read => (all, (0, 0)),
            Operation::Write => ((all.0 - whole.0, all.1 - whole.1), whole),
        };
        Self {
            requests,
            blocks: all.0,
            bytes,
            read,
            filled,
            is_inside: true,
        }
    }
}

/// Predicts an access.
///
/// # Errors
/// [`Kind::Schema`] when there are no hosts, and if an end of the spreads is no possible machine.
pub fn predict_access(machine: &Preset, access: &Access) -> Result<Prediction> {
    if access.hosts == 0 || access.under_way == 0 {
        let cause = "there are no hosts, or no request may be under way";
        return Err(Error::new(Kind::Schema, "predicting an access", cause));
    }
    let (seconds, times) = estimate(machine, access);
    let fast = machine.fastest().map_err(unfit)?;
    let slow = machine.slowest().map_err(unfit)?;
    let sum = |of: fn(&ServerAccess) -> u64| access.servers.iter().map(of).sum::<u64>();
    Ok(Prediction {
        strategy: ACCESS,
        servers: access.servers.len(),
        seconds,
        low: estimate(&fast, access).0.min(seconds),
        high: estimate(&slow, access).0.max(seconds),
        bytes: sum(|server| server.bytes),
        disk_bytes: sum(|server| server.read.1 + server.filled.1),
        messages: access.messages,
        memory_bytes: sum(memory_bytes),
        bottleneck: times.bottleneck(),
        times,
        by: By::ClosedForm,
    })
}

/// The bytes of the cache's blocks, and of the buffers that messages are sent from.
fn memory_bytes(server: &ServerAccess) -> u64 {
    let cached = server.read.1 + server.filled.1;
    match server.is_inside {
        true => cached.max(server.bytes) + server.bytes,
        false => cached.max(server.bytes),
    }
}

/// The seconds, and those of each part of the machine.
fn estimate(machine: &Preset, access: &Access) -> (f64, Times) {
    let costs = &machine.costs;
    let threads: Vec<Thread> = access
        .servers
        .iter()
        .map(|server| thread(machine, access, server))
        .collect();
    let requests: u64 = access.servers.iter().map(|server| server.requests).sum();
    let inside = access.servers.iter().filter(|server| server.is_inside);
    let inside = inside.fold((0.0, 0.0), |(portions, bytes), server| {
        (portions + server.blocks as f64, bytes + server.bytes as f64)
    });
    let client_copies = copies(machine, inside);
    let client_cpu = requests as f64 * (costs.request_us + costs.send_us + costs.receive_us) / 1e6;
    let mut working: Vec<f64> = threads.iter().map(Thread::on_processor).collect();
    working.push(client_copies + client_cpu);
    let filling = access.servers.iter();
    working.extend(filling.map(|server| filled(machine, access, server).on_processor()));
    let slowness = slowness(machine, &working);
    let client = (client_copies + client_cpu) * slowness;
    let of_servers = threads.iter().map(|thread| thread.seconds(slowness));
    let of_host = match &machine.host {
        Some(host) => {
            let processors = host.processors.max(1) * access.hosts;
            working.iter().sum::<f64>() * slowness / processors as f64
        }
        None => 0.0,
    };
    let port: f64 = threads.iter().map(|thread| thread.network).sum();
    let moved = of_servers.fold(client.max(of_host).max(port), f64::max);
    let hop = (costs.send_us + costs.receive_us + latency_us(machine, access.hosts)) / 1e6;
    let waits = access.turns as f64 * hop + 2.0 * latency_us(machine, access.hosts) / 1e6;
    let longest = |of: &dyn Fn(&Thread) -> f64| threads.iter().map(of).fold(0.0, f64::max);
    let times = Times {
        disk: longest(&|thread| thread.caching + thread.device.max(thread.device_min)),
        network: port + waits,
        copying: longest(&|thread| thread.copying).max(client_copies),
        cpu: longest(&|thread| thread.cpu).max(client_cpu),
        metadata: 0.0,
    };
    (waits + client / requests.max(1) as f64 + moved, times)
}

/// The work of one server.
fn thread(machine: &Preset, access: &Access, server: &ServerAccess) -> Thread {
    let costs = &machine.costs;
    let mut thread = Thread::on_disk(
        machine,
        true,
        as_pair(server.read),
        sharing(machine, access),
    );
    let filling = filled(machine, access, server);
    thread.device_min += filling.device_min + filling.on_processor();
    thread.blocks = server.blocks as f64;
    thread.buffers = server.requests.min(access.under_way) as f64;
    let of_request = costs.receive_us + costs.thread_us + costs.send_us;
    thread.cpu += server.requests as f64 * of_request / 1e6;
    thread.cpu += server.blocks as f64 * costs.lookup_us / 1e6;
    thread.copying = copies(machine, (server.blocks as f64, server.bytes as f64));
    // The servers are taken to be as often on the client's host as on any other.
    let far = (access.hosts - 1) as f64 / access.hosts as f64;
    let between = match machine.host {
        Some(_) => far,
        None => 1.0,
    };
    let bytes = server.bytes as f64 * between;
    thread.network = bytes / port_bytes_per_second(machine, access.hosts);
    thread
}

/// The work of a disk that writes the blocks which requests fill, but for the last request.
fn filled(machine: &Preset, access: &Access, server: &ServerAccess) -> Thread {
    let part = 1.0 - 1.0 / server.requests.max(1) as f64;
    let (blocks, bytes) = as_pair(server.filled);
    let filled = (blocks * part, bytes * part);
    Thread::on_disk(machine, false, filled, sharing(machine, access))
}

/// The number of servers that share a device: those of one host.
fn sharing(machine: &Preset, access: &Access) -> f64 {
    match machine.host {
        Some(_) => access.servers.len().div_ceil(access.hosts).max(1) as f64,
        None => 1.0,
    }
}

fn as_pair((blocks, bytes): (u64, u64)) -> (f64, f64) {
    (blocks as f64, bytes as f64)
}

/// The seconds of copies of portions that have these bytes together.
fn copies(machine: &Preset, (portions, bytes): (f64, f64)) -> f64 {
    let (portion_us, ns_per_byte) = match &machine.host {
        Some(host) => (host.copy_us, host.copy_ns_per_byte),
        None => (machine.costs.copy_us, machine.costs.copy_ns_per_byte),
    };
    portions * portion_us / 1e6 + bytes * ns_per_byte / 1e9
}

/// What an access takes, in a line.
pub fn in_words(prediction: &Prediction) -> String {
    let Prediction {
        seconds,
        low,
        high,
        bytes,
        disk_bytes,
        messages,
        memory_bytes,
        bottleneck,
        by,
        ..
    } = prediction;
    format!(
        "predicted: {seconds:.6} s ({low:.6} to {high:.6}); {bytes} bytes, {disk_bytes} on disk, \
         {messages} messages, {memory_bytes} bytes of buffers; bottleneck: {bottleneck}; {by}"
    )
}
