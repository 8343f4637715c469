//! A plan describes a request in words and numbers before it runs.

use std::collections::HashSet;
use std::fmt::Write;

use penstock_layout::{Block, Holding};

use crate::holders::Holders;
use crate::machine::Operation;
use crate::party::Party;
use crate::portion::Portion;
use crate::portions::portions;
use crate::request::Request;
use crate::tuning::{Caching, Exchange, StoreAccess, Strategy, TwoPhase};

/// The part of one server in a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerPlan {
    /// Blocks that the server moves.
    pub blocks: u64,
    /// The bytes of these blocks on the disk's side, decoded, padding included.
    pub bytes: u64,
    /// Memgets or memputs.
    pub transfers: u64,
    /// Contiguous stretches of the blocks that belong to one client.
    pub stretches: u64,
    /// The fewest clients that share a block.
    pub clients_min: u64,
    /// The most clients that share a block.
    pub clients_max: u64,
}

impl ServerPlan {
    /// A plan that has no block yet.
    const NOTHING: Self = Self {
        blocks: 0,
        bytes: 0,
        transfers: 0,
        stretches: 0,
        clients_min: u64::MAX,
        clients_max: 0,
    };

    /// Adds a block, if somebody holds some of it.
    fn add(&mut self, block: &Block, portions: &[Portion]) {
        let clients = portions.len() as u64;
        if clients == 0 {
            return;
        }
        self.blocks += 1;
        self.bytes += block.bytes;
        self.transfers += clients;
        self.clients_min = self.clients_min.min(clients);
        self.clients_max = self.clients_max.max(clients);
        let pieces = portions.iter().map(|portion| &portion.piece);
        self.stretches += pieces
            .map(|piece| piece.stretches(&block.region.shape))
            .sum::<u64>();
    }
}

/// A plan of a whole request, for every server.
#[derive(Debug, Clone)]
pub struct Plan {
    operation: Operation,
    strategy: Strategy,
    array_bytes: u64,
    objects: u64,
    clients: usize,
    block_bytes_max: u64,
    /// The most blocks of a server.
    blocks_max: u64,
    conforming_blocks_max: u64,
    /// Messages between clients in two-phase I/O that exchanges by messages.
    exchanged: u64,
    /// Messages that bring the pieces of lists to those who move blocks.
    lists: u64,
    sync: bool,
    /// The number of nodes with a server.
    serving: usize,
    /// Whether rank 0 and server 0 are on different nodes.
    is_apart: bool,
    /// The part of each server.
    pub servers: Vec<ServerPlan>,
}

impl Plan {
    /// Plans `request` for a party, in time proportional to the number of blocks. If ranks have
    /// lists, only the one of `rank` is known, and all else is left out.
    pub fn new(request: &Request, party: &Party, (rank, list): (usize, &Holding)) -> Self {
        let mut servers = vec![ServerPlan::NOTHING; request.servers];
        let mut exchanged = ExchangeCount::new(request, party.clients.len());
        match &request.holders {
            Holders::Schema(memory) => {
                for (server, plan) in servers.iter_mut().enumerate() {
                    for block in request.disk.blocks(server, request.servers) {
                        let portions: Vec<Portion> = portions(memory, &block).collect();
                        plan.add(&block, &portions);
                        exchanged.add(&block, &portions);
                    }
                }
            }
            Holders::Lists { .. } => {
                for (block, piece) in list.pieces(&request.disk) {
                    let server = request.disk.server_of(&block, request.servers);
                    let piece = piece.into();
                    let portions = [Portion {
                        rank,
                        part: 0,
                        piece,
                    }];
                    servers[server].add(&block, &portions);
                    exchanged.add(&block, &portions);
                }
            }
        }
        for plan in &mut servers {
            plan.clients_min = plan.clients_min.min(plan.clients_max);
        }
        let movers = match request.strategy {
            _ if !request.holders.are_lists() => 0,
            Strategy::DiskDirected(_) => request.servers,
            Strategy::TwoPhase(_) => party.clients.len(),
            Strategy::Caching(_) | Strategy::Independent => 0,
        };
        Self {
            operation: request.operation,
            strategy: request.strategy,
            array_bytes: request.disk.bytes(),
            objects: request.disk.objects(),
            clients: party.clients.len(),
            block_bytes_max: request.disk.block_bytes_max(),
            blocks_max: request.disk.conforming_blocks_max(request.servers),
            conforming_blocks_max: request.disk.conforming_blocks_max(party.clients.len()),
            exchanged: exchanged.messages(),
            lists: (party.clients.len() * movers) as u64,
            sync: request.sync,
            serving: party.serving().len(),
            is_apart: party.directed().first() != party.servers.first(),
            servers,
        }
    }

    /// The sum of all servers' parts.
    pub fn total(&self) -> ServerPlan {
        let mut total = ServerPlan::NOTHING;
        for server in self.servers.iter().filter(|server| server.blocks > 0) {
            total.blocks += server.blocks;
            total.bytes += server.bytes;
            total.transfers += server.transfers;
            total.stretches += server.stretches;
            total.clients_min = total.clients_min.min(server.clients_min);
            total.clients_max = total.clients_max.max(server.clients_max);
        }
        total.clients_min = total.clients_min.min(total.clients_max);
        total
    }

    /// Messages of the whole call: of the passes over trees of nodes, and of the strategy.
    pub fn messages(&self) -> u64 {
        let total = self.total();
        let passes = self.agreement() + self.lists;
        match self.strategy {
            // There is one message to the client, and one back.
            Strategy::DiskDirected(_) => passes + 2 * total.transfers,
            Strategy::Caching(_) => passes + 2 * total.stretches,
            Strategy::TwoPhase(options) => {
                let exchange = match options.exchange {
                    Exchange::Remote => total.transfers,
                    _ => self.exchanged,
                };
                let asked = match options.io {
                    StoreAccess::Servers(_) => total.blocks,
                    StoreAccess::Direct => 0,
                };
                passes + 2 * (exchange + asked)
            }
            Strategy::Independent => passes,
        }
    }

    /// Messages of agreement and verdict, and of barriers.
    fn agreement(&self) -> u64 {
        let (clients, serving) = (self.clients as u64 - 1, self.serving as u64 - 1);
        // A pass over the tree of servers begins or ends at rank 0.
        let pass = serving + u64::from(self.is_apart);
        match self.strategy {
            // Clients hear only the verdict; if they have lists, also the request.
            Strategy::DiskDirected(_) => (2 + u64::from(self.lists > 0)) * clients + 2 * pass,
            Strategy::Independent => 4 * clients,
            // The servers of caching go on until they hear that all clients have been answered.
            Strategy::Caching(_) => 4 * clients + 3 * pass,
            Strategy::TwoPhase(options) => {
                let barriers = match options.exchange {
                    Exchange::Remote => 2 * self.rounds() + 1,
                    _ => self.rounds().saturating_sub(1),
                };
                let served = match options.io {
                    StoreAccess::Servers(_) => 3 * pass,
                    StoreAccess::Direct => 0,
                };
                4 * clients + served + barriers * 2 * clients
            }
        }
    }

    /// The number of times that clients go through both phases.
    fn rounds(&self) -> u64 {
        self.conforming_blocks_max.div_ceil(self.staged_blocks())
    }

    /// Blocks in the staging buffer of a client.
    fn staged_blocks(&self) -> u64 {
        let Strategy::TwoPhase(options) = self.strategy else {
            return 1;
        };
        (options.buffer_bytes_max / self.block_bytes_max.max(1)).max(1)
    }

    /// The number of blocks that all caches can hold.
    fn cached_blocks(&self, options: &Caching) -> u64 {
        let wanted = u64::from(options.buffers_per_client) * self.clients as u64;
        let of_one = wanted.min(self.blocks_max).max(1);
        let each = self.servers.iter().map(|server| server.blocks.min(of_one));
        each.sum()
    }

    /// The most bytes of staging memory.
    pub fn buffer_bytes(&self) -> u64 {
        let staged = self.staged_blocks().min(self.conforming_blocks_max);
        let blocks = match &self.strategy {
            Strategy::DiskDirected(options) => {
                let each = self.servers.iter();
                each.map(|server| server.blocks.min(options.buffers)).sum()
            }
            Strategy::Caching(options) => self.cached_blocks(options),
            Strategy::TwoPhase(options) => {
                let cached = match &options.io {
                    StoreAccess::Servers(caching) => self.cached_blocks(caching),
                    StoreAccess::Direct => 0,
                };
                staged * self.clients as u64 + cached
            }
            Strategy::Independent => self.clients as u64,
        };
        blocks * self.block_bytes_max
    }

    /// The order of the blocks, in words.
    fn order(&self) -> String {
        let is_write = self.operation == Operation::Write;
        let order = match (&self.strategy, is_write) {
            (Strategy::DiskDirected(_), _) => {
                "each server passes once over its own blocks, sorted by position".to_string()
            }
            (Strategy::Caching(_), true) => {
                "each client sends one contiguous chunk after the other; a server writes a block when \
                 it is full"
                    .to_string()
            }
            (Strategy::Caching(_), false) => {
                "each client asks for one contiguous chunk after the other; a server keeps blocks, and \
                 reads ahead"
                    .to_string()
            }
            (Strategy::TwoPhase(_), true) => format!(
                "each client collects a conforming part and writes it, in {} rounds",
                self.rounds()
            ),
            (Strategy::TwoPhase(_), false) => format!(
                "each client reads a conforming part and deals it out, in {} rounds",
                self.rounds()
            ),
            (Strategy::Independent, _) => {
                "each client passes once over the blocks that it holds some of, by itself".to_string()
            }
        };
        let sync = if self.sync && is_write {
            ", then syncs"
        } else {
            ""
        };
        order + sync
    }

    /// The messages of the strategy, and the use of its memory, in words.
    fn messages_and_memory(&self) -> (String, String) {
        let total = self.total();
        let transfer = self.transfer();
        match &self.strategy {
            Strategy::DiskDirected(options) => (
                format!("{} {transfer} and their answers", total.transfers),
                format!("{} for each server's disk", options.buffers),
            ),
            Strategy::Caching(options) => (
                format!("about {} {transfer} and their answers", total.stretches),
                format!(
                    "at most {} for each client and server",
                    options.buffers_per_client
                ),
            ),
            Strategy::TwoPhase(options) => self.two_phase_words(options),
            Strategy::Independent => (
                "none between clients and servers".to_string(),
                "one for each client".to_string(),
            ),
        }
    }

    fn two_phase_words(&self, options: &TwoPhase) -> (String, String) {
        let total = self.total();
        let mut messages = match options.exchange {
            Exchange::Remote => format!("{} {}", total.transfers, self.transfer()),
            _ => format!("{} between clients", self.exchanged),
        };
        let staged = self.staged_blocks().min(self.conforming_blocks_max);
        let mut memory = format!("{} for each client", bytes(staged * self.block_bytes_max));
        if let StoreAccess::Servers(caching) = &options.io {
            let _ = write!(messages, " and about {} requests for blocks", total.blocks);
            let cached = caching.buffers_per_client;
            let _ = write!(memory, ", and at most {cached} for each client and server");
        }
        if options.exchange != Exchange::Remote {
            memory.push_str(", and send buffers");
        }
        (messages + ", and their answers", memory)
    }

    /// Whether servers take part.
    fn is_served(&self) -> bool {
        match &self.strategy {
            Strategy::DiskDirected(_) | Strategy::Caching(_) => true,
            Strategy::TwoPhase(options) => matches!(options.io, StoreAccess::Servers(_)),
            Strategy::Independent => false,
        }
    }

    /// The word for a transfer.
    fn transfer(&self) -> &'static str {
        match (&self.strategy, self.operation) {
            (Strategy::Caching(_), _) => "requests",
            (_, Operation::Write) => "memgets",
            (_, Operation::Read) => "memputs",
        }
    }

    /// Explains the plan in words and numbers.
    pub fn explain(&self) -> String {
        let total = self.total();
        let (verb, way) = match self.operation {
            Operation::Write => ("write", "from"),
            Operation::Read => ("read", "into"),
        };
        let by = match (self.is_served(), self.servers.len()) {
            (false, _) => "each by itself".to_string(),
            (true, 1) => "by 1 server".to_string(),
            (true, servers) => format!("by {servers} servers"),
        };
        let (messages, memory) = self.messages_and_memory();
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = writeln!(
            text,
            "{} {verb} of {} {way} {} clients, {by}",
            self.strategy.name(),
            bytes(self.array_bytes),
            self.clients,
        );
        let _ = writeln!(
            text,
            "  disk      {} objects, moved as {} blocks of at most {}, {} in all",
            self.objects,
            total.blocks,
            bytes(self.block_bytes_max),
            bytes(total.bytes)
        );
        let _ = writeln!(text, "  order     {}", self.order());
        let _ = writeln!(
            text,
            "  clients   {} to {} hold parts of a block, in {} contiguous stretches",
            total.clients_min, total.clients_max, total.stretches
        );
        let _ = writeln!(
            text,
            "  messages  {} ({messages}, {} for agreement and verdict{})",
            self.messages(),
            self.agreement(),
            match self.lists {
                0 => String::new(),
                lists => format!(", {lists} for lists"),
            }
        );
        let _ = writeln!(
            text,
            "  memory    {} of staging buffers: {memory}",
            bytes(self.buffer_bytes())
        );
        if !self.is_served() {
            return text;
        }
        for (number, server) in self.servers.iter().enumerate() {
            let transfers = match self.strategy {
                Strategy::Caching(_) => server.stretches,
                _ => server.transfers,
            };
            let _ = writeln!(
                text,
                "  server {number}  {} blocks, {}, {transfers} {}",
                server.blocks,
                bytes(server.bytes),
                self.transfer()
            );
        }
        text
    }
}

/// The messages that the clients of two-phase I/O exchange: one in each round for each two clients
/// that have elements for each other.
struct ExchangeCount<'a> {
    request: &'a Request,
    clients: usize,
    options: Option<&'a TwoPhase>,
    /// The round, the rank of the conforming part, and the holder's rank and share.
    pairs: HashSet<(u64, usize, usize, usize)>,
}

impl<'a> ExchangeCount<'a> {
    fn new(request: &'a Request, clients: usize) -> Self {
        let options = match &request.strategy {
            Strategy::TwoPhase(options) if options.exchange != Exchange::Remote => Some(options),
            _ => None,
        };
        Self {
            request,
            clients,
            options,
            pairs: HashSet::new(),
        }
    }

    fn add(&mut self, block: &Block, portions: &[Portion]) {
        let Some(options) = self.options else {
            return;
        };
        let Request { disk, split, .. } = self.request;
        let (owner, place) = disk.conforming_place(block, self.clients);
        let round = place / options.blocks_staged(*split, disk.block_bytes_max());
        let others = portions.iter().filter(|portion| portion.rank != owner);
        self.pairs
            .extend(others.map(|portion| (round, owner, portion.rank, portion.part)));
    }

    fn messages(&self) -> u64 {
        self.pairs.len() as u64
    }
}

/// Writes `1536` as `1.5 KiB`.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value.fract() == 0.0 {
        0
    } else {
        1
    };
    format!("{value:.digits$} {}", UNITS[unit])
}
