//! The time of a call in closed form: the simulator's model, without its events.
//!
//! Work is summed by the part of the machine that does it; parts that work side by side take as
//! long as the longest, steps that wait for each other take their sum.
//!
//! ```text
//! a server   n blocks, B buffers; of one block: copies c, worker w, device d, network m, latency l
//!            T_s = (n - 1) max(c, w + d, m, (c + w + d + m + l) / B) + (c + w + d + m + l)
//! a host     P processors: T_h = (sum of all c + w of its threads) / P
//! a file     one flat file whose writers take turns: T_f = sum of all w of its writes
//! the call   T = fixed + agreement + open + max(T_s, T_h, T_f, busiest client) + sync
//! ```
//!
//! Copies and workers' time are longer by the host's crowding, at the mean number of processors
//! that work: the number and the time depend on each other, and are found in turn. Of two-phase
//! I/O the exchange is added before (write) or after (read) the clients' own blocks; in caching a
//! server's blocks are its requests, and a client is a chain of them; in independent I/O a client
//! alone does what a server does, with one buffer, so that nothing of it goes on side by side.

use penstock_engine::tuning::{Caching, StoreAccess, TwoPhase};
use penstock_engine::{Operation, Request, Strategy};
use penstock_sim::disk::{DiskParameters, FlashParameters};
use penstock_sim::preset::{Batch, DiskKind, FileSystem, Host, NetworkKind, Preset};

use crate::load::{Load, Moves, rounded};
use crate::prediction::Times;
use crate::question::{Question, is_flat};

/// What the formulas give.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    pub seconds: f64,
    pub messages: u64,
    pub memory_bytes: u64,
    pub times: Times,
}

/// Seconds of one thread that takes blocks through its buffers, for all of its blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    blocks: f64,
    buffers: f64,
    /// Copies of elements, on a processor.
    copying: f64,
    /// Other work of its processor.
    cpu: f64,
    /// The disk's worker on a processor: the page cache's copies.
    caching: f64,
    /// The device and the parts of a file system that take no processor.
    device: f64,
    /// The least time in which the device can do all.
    device_min: f64,
    /// Files made or opened.
    metadata: f64,
    /// Bytes through the port.
    network: f64,
    /// Waiting for what is on its way, of all blocks.
    latency: f64,
}

/// Evaluates the formulas for a machine that is cut to the question.
pub fn estimate(machine: &Preset, question: &Question<'_>, load: &Load) -> Estimate {
    let model = Model {
        machine,
        question,
        load,
        request: &question.requests[0],
    };
    match model.request.strategy {
        Strategy::DiskDirected(tuning) => model.disk_directed(tuning.buffers),
        Strategy::TwoPhase(tuning) => model.two_phase(&tuning),
        Strategy::Caching(tuning) => model.caching(&tuning),
        Strategy::Independent => model.independent(),
    }
}

/// The seconds that a call takes beside all that is counted, on a machine with hosts.
pub fn call_seconds(machine: &Preset, question: &Question<'_>) -> f64 {
    let (Some(host), Some(request)) = (&machine.host, question.requests.first()) else {
        return 0.0;
    };
    let calls = &host.calls;
    let us = match (request.operation, is_flat(request), request.sync) {
        (Operation::Write, false, false) => calls.chunks_write_us,
        (Operation::Write, false, true) => calls.chunks_synced_us,
        (Operation::Write, true, false) => calls.flat_write_us,
        (Operation::Write, true, true) => calls.flat_synced_us,
        (Operation::Read, false, _) => calls.chunks_read_us,
        (Operation::Read, true, _) => calls.flat_read_us,
    };
    (us + calls.client_us * (question.clients - 1) as f64) / 1e6
}

struct Model<'a> {
    machine: &'a Preset,
    question: &'a Question<'a>,
    load: &'a Load,
    request: &'a Request,
}

impl Model<'_> {
    fn disk_directed(&self, buffers: u64) -> Estimate {
        let serving = self.request.servers as f64;
        let servers = self.load.servers.iter();
        let threads: Vec<Thread> = servers
            .map(|server| {
                let mut thread = self.disk(server.blocks, server.bytes, server.objects, serving);
                thread.buffers = buffers as f64;
                self.copy_by_server(&server.near, self.machine.host.as_ref(), &mut thread);
                self.copy_by_server(&server.far, None, &mut thread);
                thread.cpu += self.machine.costs.thread_us / 1e6;
                thread
            })
            .collect();
        let moves = self.moves();
        let blocks = self.load.sum(|server| server.blocks.min(buffers as f64));
        let memory = blocks * self.block_bytes();
        let far = match self.machine.host {
            Some(_) => self.load.sum(|server| server.far.portions),
            None => moves.portions,
        };
        // Clients that hold lists hear the request, too.
        let passes = if self.load.lists > 0.0 { 3.0 } else { 2.0 };
        let messages = self.agreement_messages(passes) + 2.0 * far;
        self.answer(&threads, self.busiest_client(), passes, (messages, memory))
    }

    fn independent(&self) -> Estimate {
        let movers = self.load.holding.max(1.0);
        let moves = self.moves();
        // A disk has the parts of blocks that a client holds, run by run.
        let mut thread = self.disk(
            moves.stretches / movers,
            moves.bytes / movers,
            self.objects_touched() / movers,
            movers,
        );
        thread.buffers = 1.0;
        thread.device_min = thread.device_min.max(self.busiest_disk());
        self.copy_in_memory(&moves, 1.0 / movers, &mut thread);
        // The client that holds most takes longest.
        let mean = self.load.client_bytes / movers;
        let threads = self.alike(
            thread.times(self.load.client_bytes_max / mean.max(1.0)),
            movers,
        );
        let memory = movers * self.block_bytes();
        let messages = self.agreement_messages(4.0);
        self.answer(&threads, 0.0, 4.0, (messages, memory))
    }

    fn two_phase(&self, tuning: &TwoPhase) -> Estimate {
        let clients = self.question.clients;
        let blocks = self.load.sum(|server| server.blocks);
        let of_one = self.request.disk.conforming_blocks_max(clients) as f64;
        let movers = (blocks / of_one.max(1.0)).ceil().clamp(1.0, clients as f64);
        let bytes = self.load.sum(|server| server.bytes);
        let mut thread = self.disk(
            blocks / movers,
            bytes / movers,
            (self.objects() / movers).max(1.0),
            match tuning.io {
                StoreAccess::Servers(_) => self.request.servers as f64,
                StoreAccess::Direct => movers,
            },
        );
        let staged = (tuning.buffer_bytes_max as f64 / self.block_bytes())
            .floor()
            .max(1.0);
        thread.buffers = staged.min(of_one.max(1.0));
        let rounds = (of_one / staged).ceil().max(1.0);
        let exchange = self.exchange(movers, rounds);
        let io = self.seconds_of(&self.alike(thread, movers), 0.0);
        let staging = staged.min(of_one) * self.block_bytes() * movers;
        let send = (1.0 - self.load.own) * bytes / rounds;
        let messages = self.agreement_messages(4.0 + 2.0 * (rounds - 1.0)) + 2.0 * self.load.pairs;
        let mut answer = self.answer(&[thread], 0.0, 4.0, (messages, staging + send));
        let alone = self.seconds_of(&[thread], 0.0);
        answer.seconds += io - alone + exchange.seconds;
        answer.times.copying += exchange.copying;
        answer.times.cpu += exchange.cpu;
        answer.times.network += exchange.network;
        answer
    }

    fn caching(&self, tuning: &Caching) -> Estimate {
        let costs = &self.machine.costs;
        let is_read = self.request.operation == Operation::Read;
        let serving = self.request.servers as f64;
        let of_server = |server: &crate::load::ServerLoad| {
            let moves = server.moves();
            let mut thread = self.disk(server.blocks, server.bytes, server.objects, serving);
            // Blocks wait for requests, which take turns on the server's processor.
            thread.buffers = f64::from(tuning.buffers_per_client) * self.question.clients as f64;
            let of_request = costs.receive_us + costs.thread_us + costs.lookup_us + costs.send_us;
            thread.cpu += moves.stretches * of_request / 1e6;
            let copied = moves.stretches * costs.copy_us / 1e6;
            thread.copying += match is_read {
                true => 0.0,
                false => copied + moves.bytes * costs.copy_ns_per_byte / 1e9,
            };
            thread.network += moves.bytes / self.port_bytes_per_second();
            let prepared = thread.buffers.min(server.blocks) * self.block_bytes();
            thread.cpu += prepared * costs.buffer_ns_per_byte / 1e9;
            thread
        };
        let threads: Vec<Thread> = self.load.servers.iter().map(of_server).collect();
        let moves = self.moves();
        // A client waits for all answers of a chunk before the next: a chain of requests, of which
        // some are under way at once where a chunk has several blocks.
        let chunks = moves.stretches / self.load.holding.max(1.0);
        let one = moves.bytes / moves.stretches.max(1.0);
        let on_disk = match is_read {
            true => {
                threads.iter().map(Thread::of_a_block).fold(0.0, f64::max)
                    * (self.load.sum(|server| server.blocks) / moves.stretches.max(1.0)).min(1.0)
            }
            false => 0.0,
        };
        let under_way = (one / self.block_bytes() * f64::from(tuning.outstanding_max)).clamp(
            1.0,
            f64::from(tuning.outstanding_max) * self.request.servers as f64,
        );
        let of_request = costs.request_us
            + 2.0 * costs.send_us
            + 2.0 * costs.receive_us
            + costs.thread_us
            + costs.lookup_us
            + 2.0 * self.latency_us();
        let of_bytes = one / self.port_bytes_per_second()
            + match is_read {
                true => 0.0,
                false => one * costs.copy_ns_per_byte / 1e9 + costs.copy_us / 1e6,
            };
        let chain = chunks * (of_request / 1e6 + of_bytes + on_disk) / under_way;
        let cached = self.load.servers.iter().map(|server| {
            let wanted = f64::from(tuning.buffers_per_client) * self.question.clients as f64;
            server.blocks.min(wanted)
        });
        let memory = cached.sum::<f64>() * self.block_bytes();
        let messages = self.agreement_messages(4.0) + 2.0 * moves.stretches;
        self.answer(&threads, chain, 4.0, (messages, memory))
    }

    /// The exchange of two-phase I/O between clients that hold elements and those that move them.
    fn exchange(&self, movers: f64, rounds: f64) -> Exchange {
        let costs = &self.machine.costs;
        let moves = self.moves();
        let (packing, stretch_us) = match &self.machine.processors {
            Some(known) => (known.kernel_copy_ns_per_byte, known.stretch_us),
            None => (costs.copy_ns_per_byte, 0.0),
        };
        let sent = 1.0 - self.load.own;
        let holders = self.load.holding.max(1.0);
        // Each element that is sent is packed and unpacked; each that is not is copied once, as
        // both are.
        let copies = moves.bytes * (1.0 + sent) * packing / 1e9
            + moves.stretches * (1.0 + sent) * stretch_us / 1e6;
        let cpu = self.load.pairs * (costs.send_us + costs.receive_us) / 1e6;
        let network = moves.bytes * sent / self.port_bytes_per_second();
        let busiest = movers.min(holders);
        let latency = self.latency_us() / 1e6 * rounds
            + 2.0 * (rounds - 1.0) * self.hops() * self.hop_us() / 1e6;
        let crowded = self.slowness(&[copies + cpu]);
        let on_processors = match &self.machine.host {
            Some(host) => (copies + cpu) / busiest.min(self.processors(host)).max(1.0) * crowded,
            None => (copies + cpu) / busiest,
        };
        Exchange {
            seconds: on_processors + network / busiest + latency,
            copying: copies / busiest,
            cpu: cpu / busiest,
            network: network / busiest,
        }
    }

    /// The disk's part of one of `threads` that move this number of blocks each.
    fn disk(&self, blocks: f64, bytes: f64, objects: f64, threads: f64) -> Thread {
        let is_read = self.request.operation == Operation::Read;
        // Servers of one host share its disk, and clients that move blocks the disks of all.
        let disks = match &self.machine.host {
            Some(host) => host.count(self.question.clients),
            None => self.request.servers,
        } as f64;
        let mut thread = Thread::on_disk(
            self.machine,
            is_read,
            (blocks, bytes),
            (threads / disks).max(1.0),
        );
        if let Some(system) = &self.machine.file_system {
            let of_object = match is_read {
                true => system.object_open_us,
                false => system.object_create_us,
            };
            thread.metadata = objects * of_object / 1e6;
        }
        thread
    }

    /// The seconds of the disk that has most to do, run by run, where each server has its own.
    fn busiest_disk(&self) -> f64 {
        if self.machine.host.is_some() {
            return 0.0; // the disks are shared
        }
        let is_read = self.request.operation == Operation::Read;
        let least = self.load.servers.iter().map(|server| {
            let moves = server.moves();
            device_seconds(&self.machine.disk, is_read, moves.stretches, moves.bytes).1
        });
        least.fold(0.0, f64::max)
    }

    /// Adds the memgets or memputs of a server, in memory if it is on a host with the clients.
    fn copy_by_server(&self, moves: &Moves, host: Option<&Host>, thread: &mut Thread) {
        if host.is_some() {
            return self.copy_in_memory(moves, 1.0, thread);
        }
        let costs = &self.machine.costs;
        let is_put = self.request.operation == Operation::Read;
        let (messages, listed) = self.messages_of(moves);
        let index = match self.load.dims > 1 {
            true => costs.index_2d_us,
            false => costs.index_1d_us,
        };
        let (fixed, per_byte) = match is_put {
            true => (costs.memput_us, costs.memput_ns_per_byte),
            false => (
                costs.memget_us + costs.memget_reply_us,
                costs.memget_ns_per_byte,
            ),
        };
        thread.cpu += (messages * fixed + moves.stretches * (index + listed)) / 1e6;
        thread.copying += moves.bytes * per_byte / 1e9;
        let headers = 2.0 * messages * costs.header_bytes as f64;
        thread.network += (moves.bytes + headers) / self.port_bytes_per_second();
        // The portions of a block are asked for at once.
        let asked = moves.portions.min(thread.blocks);
        thread.latency += asked * 2.0 * self.latency_us() / 1e6;
    }

    /// The messages of memgets or memputs, and the microseconds for each stretch in a batch.
    fn messages_of(&self, moves: &Moves) -> (f64, f64) {
        match &self.machine.costs.batch {
            Batch::None => (moves.stretches, 0.0),
            Batch::Gather {
                bytes_max,
                list_us,
                gather_us,
                scatter_us,
            } => {
                let each = moves.bytes / moves.portions.max(1.0);
                let messages = (each / *bytes_max as f64).ceil().max(1.0) * moves.portions;
                let is_put = self.request.operation == Operation::Read;
                let listed = match is_put {
                    true => *gather_us,
                    false => list_us + scatter_us,
                };
                (messages, listed)
            }
        }
    }

    /// Adds copies within a host, or within a node.
    fn copy_in_memory(&self, moves: &Moves, part: f64, thread: &mut Thread) {
        let Some(host) = &self.machine.host else {
            let costs = &self.machine.costs;
            thread.copying += part
                * (moves.portions * costs.copy_us / 1e6
                    + moves.bytes * costs.copy_ns_per_byte / 1e9);
            return;
        };
        let by_distance = moves.by_distance.iter();
        let stretches: f64 = by_distance
            .map(|(distance, count)| host.stretch_ns(*distance) * count)
            .sum();
        let ns = moves.portions * host.copy_us * 1e3 + moves.bytes * host.copy_ns_per_byte;
        thread.copying += part * (ns + stretches) / 1e9;
    }

    /// The seconds of the busiest client's port and processor while servers move its elements.
    fn busiest_client(&self) -> f64 {
        let far = match self.machine.host {
            Some(_) => self.load.sum(|server| server.far.bytes),
            None => self.load.client_bytes,
        };
        let part = far / self.load.client_bytes.max(1.0);
        let costs = &self.machine.costs;
        let bytes = self.load.client_bytes_max * part;
        let (messages, _) = self.messages_of(&self.moves());
        let mine = messages * bytes / self.load.client_bytes.max(1.0);
        let remote = mine * costs.remote_us / 1e6 + bytes * costs.remote_ns_per_byte / 1e9;
        let batched = match &costs.batch {
            Batch::Gather {
                gather_us,
                scatter_us,
                ..
            } => {
                let each = match self.request.operation {
                    Operation::Read => scatter_us,
                    Operation::Write => gather_us,
                };
                self.moves().stretches * each / 1e6 * bytes / self.load.client_bytes.max(1.0)
            }
            Batch::None => 0.0,
        };
        (bytes / self.port_bytes_per_second()).max(remote + batched)
    }

    /// Puts the parts of the machine together.
    fn answer(
        &self,
        threads: &[Thread],
        client: f64,
        passes: f64,
        (messages, memory): (f64, f64),
    ) -> Estimate {
        let fixed = call_seconds(self.machine, self.question);
        let agreement = self.agreement_seconds(passes) + self.lists_seconds();
        let opening = self.opening_seconds();
        let forcing_objects = self.forcing_objects_seconds();
        let forcing_bytes = self.forcing_bytes_seconds();
        let preparing = self.preparing_seconds(threads);
        let moved = self.seconds_of(threads, client);
        let longest = |of: &dyn Fn(&Thread) -> f64| threads.iter().map(of).fold(0.0, f64::max);
        let times = Times {
            disk: longest(&|thread| thread.caching + thread.device.max(thread.device_min))
                + forcing_bytes,
            network: longest(&|thread| thread.network + thread.latency).max(client),
            copying: longest(&|thread| thread.copying),
            cpu: longest(&|thread| thread.cpu) + agreement + preparing,
            metadata: longest(&|thread| thread.metadata) + fixed + opening + forcing_objects,
        };
        Estimate {
            seconds: fixed
                + agreement
                + opening
                + preparing
                + moved
                + forcing_objects
                + forcing_bytes,
            messages: rounded(messages + self.list_messages()),
            memory_bytes: rounded(memory),
            times,
        }
    }

    /// The seconds in which all threads have moved their blocks.
    fn seconds_of(&self, threads: &[Thread], client: f64) -> f64 {
        let processors = |thread: &Thread| thread.on_processor();
        let working: Vec<f64> = threads.iter().map(processors).collect();
        let slowness = self.slowness(&working);
        let longest = threads.iter().map(|thread| thread.seconds(slowness));
        let longest = longest.fold(client, f64::max);
        let of_host = match &self.machine.host {
            Some(host) => {
                let hosts = host.count(self.question.clients) as f64;
                working.iter().sum::<f64>() * slowness / (self.processors(host) * hosts)
            }
            None => 0.0,
        };
        longest
            .max(of_host)
            .max(self.turns_seconds(threads, slowness))
    }

    /// The seconds of writes to one file that take turns, on each host by itself.
    fn turns_seconds(&self, threads: &[Thread], slowness: f64) -> f64 {
        let take_turns = |system: &FileSystem| system.writes_take_turns;
        let are_in_turn = self.machine.file_system.as_ref().is_some_and(take_turns)
            && self.request.operation == Operation::Write
            && is_flat(self.request)
            && self.request.servers > 1;
        match are_in_turn {
            true => {
                let hosts = self.machine.host.as_ref();
                let hosts = hosts.map_or(1, |host| host.count(self.question.clients));
                let all: f64 = threads.iter().map(|thread| thread.caching).sum();
                all * slowness / hosts as f64
            }
            false => 0.0,
        }
    }

    fn slowness(&self, working: &[f64]) -> f64 {
        slowness(self.machine, working)
    }

    fn processors(&self, host: &Host) -> f64 {
        host.processors.max(1) as f64
    }

    /// As many threads, each with the same to do.
    fn alike(&self, thread: Thread, count: f64) -> Vec<Thread> {
        // More than that change no maximum, and few sums.
        const ALIKE_MAX: usize = 1 << 16;
        vec![
            thread;
            usize::try_from(rounded(count))
                .unwrap_or(ALIKE_MAX)
                .clamp(1, ALIKE_MAX)
        ]
    }

    fn moves(&self) -> Moves {
        let servers = self.load.servers.iter();
        servers.fold(Moves::default(), |all, server| all.and(&server.moves()))
    }

    fn objects(&self) -> f64 {
        match is_flat(self.request) {
            true => self.question.requests.len() as f64,
            false => self.load.sum(|server| server.objects),
        }
    }

    /// The objects that clients touch that move their own, each counted for each of its clients.
    fn objects_touched(&self) -> f64 {
        let moves = self.moves();
        match is_flat(self.request) {
            true => self.load.holding * self.question.requests.len() as f64,
            false => {
                let blocks = self.load.sum(|server| server.blocks);
                moves.portions * self.objects() / blocks.max(1.0)
            }
        }
    }

    fn block_bytes(&self) -> f64 {
        let disks = self.question.requests.iter().map(|request| &request.disk);
        disks
            .map(|disk| disk.block_bytes_max())
            .max()
            .unwrap_or(1)
            .max(1) as f64
    }

    fn port_bytes_per_second(&self) -> f64 {
        port_bytes_per_second(self.machine, self.question.hosts)
    }

    fn latency_us(&self) -> f64 {
        latency_us(self.machine, self.question.hosts)
    }

    /// The steps of a pass over the tree of clients.
    fn hops(&self) -> f64 {
        (self.question.clients as f64 + 1.0).log2().ceil() - 1.0
    }

    fn hop_us(&self) -> f64 {
        let costs = &self.machine.costs;
        costs.send_us + costs.receive_us + self.latency_us()
    }

    /// Messages of agreement and verdict, if the tree of clients is passed so often.
    fn agreement_messages(&self, passes: f64) -> f64 {
        let servers = self.request.servers as f64;
        passes * (self.question.clients as f64 - 1.0) + 2.0 * servers
    }

    fn agreement_seconds(&self, passes: f64) -> f64 {
        let servers = (self.request.servers as f64 + 1.0).log2().ceil();
        let (hops, costs) = (passes * self.hops() + 2.0 * servers, &self.machine.costs);
        let along = hops * self.hop_us();
        let sent = match &self.machine.host {
            Some(host) => {
                let each = self.agreement_messages(passes) * costs.send_us;
                each / self.processors(host) / host.count(self.question.clients) as f64
            }
            None => 0.0,
        };
        along.max(sent) / 1e6
    }

    /// The nodes to which each client sends what it holds by lists of one request.
    fn listeners(&self) -> f64 {
        match self.request.strategy {
            Strategy::DiskDirected(_) => self.request.servers as f64,
            Strategy::TwoPhase(_) => self.question.clients as f64,
            Strategy::Caching(_) | Strategy::Independent => 0.0,
        }
    }

    /// The messages that bring lists to those who move blocks.
    fn list_messages(&self) -> f64 {
        self.load.lists * self.question.clients as f64 * self.listeners()
    }

    /// The seconds in which lists come to those who move blocks: each client sends its own, each
    /// listener takes in those of all.
    fn lists_seconds(&self) -> f64 {
        let costs = &self.machine.costs;
        let messages = self.list_messages();
        if messages == 0.0 {
            return 0.0;
        }
        let us = match &self.machine.host {
            Some(host) => {
                let processors = self.processors(host) * host.count(self.question.clients) as f64;
                messages * (costs.send_us + costs.receive_us) / processors
            }
            None => {
                let sent = messages / self.question.clients as f64 * costs.send_us;
                sent.max(messages / self.listeners() * costs.receive_us)
            }
        };
        (us + self.latency_us()) / 1e6
    }

    fn opening_seconds(&self) -> f64 {
        let Some(system) = &self.machine.file_system else {
            return 0.0;
        };
        let us = match self.forced() {
            Some(_) => system.open_us + system.sync_us,
            None => system.open_us,
        };
        us / 1e6 * self.question.requests.len() as f64
    }

    /// The file system whose files a call forces out, and the number of disks; `None` if it forces
    /// nothing out.
    fn forced(&self) -> Option<(&FileSystem, f64)> {
        let is_synced = self.request.operation == Operation::Write && self.request.sync;
        let system = self.machine.file_system.as_ref().filter(|_| is_synced)?;
        let disks = match &self.machine.host {
            Some(host) => host.count(self.question.clients),
            None => self.load.servers.len(),
        };
        Some((system, disks as f64))
    }

    /// The seconds in which the bytes of files are forced out.
    fn forcing_bytes_seconds(&self) -> f64 {
        let Some((system, disks)) = self.forced() else {
            return 0.0;
        };
        self.load.sum(|server| server.bytes) / disks * system.sync_ns_per_byte / 1e9
    }

    /// The seconds in which files are forced out, whatever bytes they have.
    fn forcing_objects_seconds(&self) -> f64 {
        let Some((system, disks)) = self.forced() else {
            return 0.0;
        };
        // Each that has written a file forces it out.
        let flat = self.question.requests.len() as f64;
        let objects = match (&self.request.strategy, is_flat(self.request)) {
            (Strategy::Independent, _) => self.objects_touched(),
            (Strategy::TwoPhase(_), true) => self.load.holding * flat,
            (Strategy::DiskDirected(_) | Strategy::Caching(_), true) => {
                self.request.servers as f64 * flat
            }
            (_, false) => self.load.sum(|server| server.objects),
        };
        objects / disks * system.object_sync_us / 1e6
    }

    /// The seconds of a server or client that sets its buffers up.
    fn preparing_seconds(&self, threads: &[Thread]) -> f64 {
        let buffers = threads
            .iter()
            .map(|thread| thread.buffers.min(thread.blocks));
        let bytes = buffers.fold(0.0, f64::max) * self.block_bytes();
        match self.request.strategy {
            Strategy::DiskDirected(_) | Strategy::Independent => {
                bytes * self.machine.costs.buffer_ns_per_byte / 1e9
            }
            Strategy::TwoPhase(_) | Strategy::Caching(_) => 0.0,
        }
    }
}

/// The rate at which one node takes in bytes, if nodes are on `hosts` hosts.
fn port_bytes_per_second(machine: &Preset, hosts: usize) -> f64 {
    let between = match &machine.network {
        NetworkKind::Torus(torus) => torus.bytes_per_second,
        NetworkKind::FatTree(tree) => tree.bytes_per_second,
    } as f64;
    match &machine.host {
        Some(host) if hosts == 1 => host.message_bytes_per_second as f64,
        _ => between,
    }
}

/// The latency of a message, if nodes are on `hosts` hosts.
fn latency_us(machine: &Preset, hosts: usize) -> f64 {
    if let Some(host) = machine.host.as_ref().filter(|_| hosts == 1) {
        return host.message_latency_us;
    }
    match &machine.network {
        NetworkKind::Torus(torus) => f64::from(torus.side) / 2.0 * torus.router_latency_ns / 1e3,
        NetworkKind::FatTree(tree) => {
            let nodes = machine.nodes.clients + machine.nodes.io_nodes;
            let leaf = tree.nodes_per_leaf as usize;
            let switches = match () {
                () if nodes <= leaf => 1.0,
                () if nodes <= leaf * tree.leaves_per_pod as usize => 3.0,
                () => 5.0,
            };
            (tree.adapter_latency_ns + switches * tree.switch_latency_ns) / 1e3
        }
    }
}

/// The factor by which crowding makes work longer, if threads work for these seconds: the mean
/// number of processors that work and the time depend on each other.
fn slowness(machine: &Preset, working: &[f64]) -> f64 {
    let Some(host) = &machine.host else {
        return 1.0;
    };
    let all = working.iter().sum::<f64>();
    let longest = working.iter().copied().fold(0.0, f64::max);
    let processors = host.processors.max(1) as f64;
    if all <= 0.0 {
        return 1.0;
    }
    let together = (all / longest.max(all / processors)).clamp(1.0, processors);
    match processors > 1.0 {
        true => 1.0 + host.crowding * (together - 1.0) / (processors - 1.0),
        false => 1.0,
    }
}

/// The exchange of two-phase I/O.
struct Exchange {
    seconds: f64,
    copying: f64,
    cpu: f64,
    network: f64,
}

impl Thread {
    /// A thread that has a disk read or write blocks, through one buffer; `sharing` threads share
    /// the device.
    fn on_disk(machine: &Preset, is_read: bool, (blocks, bytes): (f64, f64), sharing: f64) -> Self {
        let mut thread = Thread {
            blocks,
            buffers: 1.0,
            ..Thread::default()
        };
        let (per_block, least) = device_seconds(&machine.disk, is_read, blocks, bytes);
        let bus = bytes / machine.bus.bytes_per_second as f64;
        thread.device = per_block + bus;
        thread.device_min = (least * sharing).max(bus);
        let requests = blocks * machine.costs.disk_request_us / 1e6;
        match machine.host {
            // Interrupts take no processor from others of the host.
            Some(_) => thread.device += requests,
            None => thread.cpu = requests,
        }
        if let Some(system) = &machine.file_system {
            let ns = match is_read {
                true => system.read_ns_per_byte,
                false => system.write_ns_per_byte,
            };
            let moving = blocks * system.request_us / 1e6 + bytes * ns / 1e9;
            match system.takes_processor {
                true => thread.caching = moving,
                false => thread.device += moving,
            }
        }
        thread
    }

    /// A thread that does so many times as much.
    fn times(mut self, factor: f64) -> Self {
        let parts = [
            &mut self.copying,
            &mut self.cpu,
            &mut self.caching,
            &mut self.device,
            &mut self.metadata,
            &mut self.network,
            &mut self.latency,
        ];
        parts.into_iter().for_each(|part| *part *= factor);
        self
    }

    /// The seconds on processors.
    fn on_processor(&self) -> f64 {
        self.copying + self.cpu + self.caching + self.metadata
    }

    /// The seconds of one block from its first step to its last.
    fn of_a_block(&self) -> f64 {
        (self.on_processor() + self.device + self.network + self.latency) / self.blocks.max(1.0)
    }

    /// The seconds of all blocks, with work on processors that is longer by this factor.
    fn seconds(&self, slowness: f64) -> f64 {
        if self.blocks <= 0.0 {
            return 0.0;
        }
        let node = (self.copying + self.cpu) * slowness;
        let worker = (self.caching + self.metadata) * slowness + self.device_min;
        let all = (self.on_processor()) * slowness + self.device + self.network + self.latency;
        let buffers = self.buffers.clamp(1.0, self.blocks.max(1.0));
        let longest = node.max(worker).max(self.network).max(all / buffers);
        let count = self.blocks.max(1.0);
        let in_turn = longest * (count - 1.0) / count + all / count;
        in_turn.max(node).max(worker).max(self.network)
    }
}

/// The seconds that a device takes for blocks one after the other, and the least seconds in which
/// it can do them.
fn device_seconds(disk: &DiskKind, is_read: bool, blocks: f64, bytes: f64) -> (f64, f64) {
    match disk {
        DiskKind::Flash(flash) => flash_seconds(flash, is_read, blocks, bytes),
        DiskKind::Rotating(drive) => {
            let seconds = drive_seconds(drive, is_read, blocks, bytes);
            (seconds, seconds)
        }
    }
}

fn flash_seconds(flash: &FlashParameters, is_read: bool, blocks: f64, bytes: f64) -> (f64, f64) {
    let (latency_us, rate, operations_rate) = match is_read {
        true => (
            flash.read_latency_us,
            flash.read_bytes_per_second,
            flash.read_operations_per_second,
        ),
        false => (
            flash.write_latency_us,
            flash.write_bytes_per_second,
            flash.write_operations_per_second,
        ),
    };
    let streaming = bytes / rate as f64;
    let each = bytes / blocks.max(1.0) / flash.operation_bytes_max as f64;
    let operations = each.ceil().max(1.0) * blocks / operations_rate as f64;
    let gate = streaming.max(operations);
    let held = (blocks * latency_us / 1e6 + gate) / f64::from(flash.channels);
    (blocks * latency_us / 1e6 + gate, gate.max(held))
}

/// A drive that passes over blocks that lie one behind the other: its first seek, and the rate of
/// its tracks with their skews. Commands are taken in meanwhile, if the drive reads ahead and
/// reports at once.
fn drive_seconds(drive: &DiskParameters, is_read: bool, blocks: f64, bytes: f64) -> f64 {
    let turn = 60.0 / drive.rotations_per_minute;
    let Some(region) = drive.regions.first() else {
        return 0.0;
    };
    let (sectors, heads) = (f64::from(region.sectors_per_track), f64::from(drive.heads));
    let skews = f64::from(region.track_skew_sectors) * (heads - 1.0)
        + f64::from(region.cylinder_skew_sectors);
    let passing = sectors * heads / (sectors * heads + skews);
    let rate = f64::from(drive.sector_bytes) * sectors / turn * passing;
    let overhead_ms = match is_read {
        true => drive.read_overhead_ms,
        false => drive.write_overhead_ms,
    };
    let is_hidden = match is_read {
        true => drive.read_ahead_bytes > 0,
        false => drive.immediate_report,
    };
    let of_commands = match is_hidden {
        true => overhead_ms / 1e3,
        false => blocks * (overhead_ms / 1e3 + turn),
    };
    bytes / rate + of_commands + turn / 2.0
}
