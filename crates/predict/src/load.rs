//! The load of a call: blocks, portions and bytes of each server, and what clients hold.
//!
//! Every block is counted; the portions of clients are looked up for a sample of at most
//! [`SAMPLES`] blocks, evenly over all, each of which stands for its neighbours. So an array of
//! terabytes takes milliseconds: the time is in proportion to the blocks, with a small factor, and
//! the memory to the servers. Of lists all pieces are looked up, in time in proportion to them.

use std::collections::HashSet;
use std::sync::Arc;

use penstock_engine::{Kind, Request, Result, Strategy, portions};
use penstock_layout::{Block, Holding, MemorySchema, Piece, exact};

use crate::question::Question;

/// The most blocks whose portions are looked up.
const SAMPLES: u64 = 2048;
/// The most different distances between stretches that are kept apart.
const KINDS_MAX: usize = 16;

/// The elements that go from clients to blocks or back, of several portions together.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    pub portions: f64,
    pub bytes: f64,
    /// The number of contiguous stretches of the blocks.
    pub stretches: f64,
    /// Stretches by the bytes from the beginning of one to that of the next.
    pub by_distance: Vec<(f64, f64)>,
}

/// The load of one server.
#[derive(Clone, Debug, Default)]
pub struct ServerLoad {
    /// The blocks of which some client holds something, or that are written whatever they hold.
    pub blocks: f64,
    pub bytes: f64,
    /// The objects of these blocks.
    pub objects: f64,
    /// What goes between this server and clients of its host.
    pub near: Moves,
    /// What goes between this server and clients of other hosts.
    pub far: Moves,
}

/// The load of a whole call.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// The bytes of the arrays' elements.
    pub bytes: u64,
    pub servers: Vec<ServerLoad>,
    /// The most bytes that one client holds, and the bytes of all.
    pub client_bytes_max: f64,
    pub client_bytes: f64,
    /// The clients that hold something.
    pub holding: f64,
    /// The dimensions of the array with most.
    pub dims: usize,
    /// The part of the bytes that a client of two-phase I/O has itself of its conforming part.
    pub own: f64,
    /// The pairs of client and conforming part that exchange a message.
    pub pairs: f64,
    /// The requests whose ranks hold lists, which each client sends to each mover of blocks.
    pub lists: f64,
    pub clients: usize,
}

impl Moves {
    fn add(&mut self, piece: &Piece, block: &Block, width: u64, weight: f64) {
        let stretches = piece.stretches(&block.extents) as f64;
        let reach = piece.reach(exact::<usize>(width), &block.byte_strides(width));
        let reach = reach.map_or(0, |reach| reach.end - reach.start) as f64;
        let distance = reach / stretches.max(1.0);
        self.portions += weight;
        self.bytes += weight * (piece.elements() * width) as f64;
        self.stretches += weight * stretches;
        let distance = distance.max(1.0);
        let is_same = |(known, _): &(f64, f64)| (known / distance - 1.0).abs() < 0.1;
        let mut place = self.by_distance.iter().position(is_same);
        if place.is_none() && self.by_distance.len() < KINDS_MAX {
            self.by_distance.push((distance, 0.0));
        }
        let last = self.by_distance.len() - 1;
        let (_, count) = &mut self.by_distance[*place.get_or_insert(last)];
        *count += weight * stretches;
    }

    /// The sum of two.
    #[must_use]
    pub fn and(&self, other: &Moves) -> Moves {
        let mut by_distance = self.by_distance.clone();
        by_distance.extend(&other.by_distance);
        Moves {
            portions: self.portions + other.portions,
            bytes: self.bytes + other.bytes,
            stretches: self.stretches + other.stretches,
            by_distance,
        }
    }
}

impl ServerLoad {
    /// What goes between this server and all clients.
    pub fn moves(&self) -> Moves {
        self.near.and(&self.far)
    }
}

impl Load {
    /// The sum of a number over the servers.
    pub fn sum(&self, of: impl Fn(&ServerLoad) -> f64) -> f64 {
        self.servers.iter().map(of).sum()
    }

    /// The bytes between buffers and disks.
    pub fn disk_bytes(&self) -> u64 {
        rounded(self.sum(|server| server.bytes))
    }

    /// Roughly the steps of a simulation.
    pub fn steps(&self, strategy: &Strategy) -> u64 {
        let blocks = self.sum(|server| server.blocks);
        let moved = match strategy {
            // Each stretch is a request and an answer.
            Strategy::Caching(_) => 12.0 * self.sum(|server| server.moves().stretches),
            Strategy::DiskDirected(_) => 4.0 * self.sum(|server| server.moves().portions),
            Strategy::TwoPhase(_) => {
                8.0 * self.pairs + 2.0 * self.sum(|server| server.moves().portions)
            }
            Strategy::Independent => 8.0 * self.sum(|server| server.moves().stretches),
        };
        let nodes = (self.clients + self.servers.len()) as f64;
        rounded(moved + 20.0 * blocks + 30.0 * nodes)
    }
}

/// A count that was reckoned in parts, as a whole number.
pub(crate) fn rounded(count: f64) -> u64 {
    // A float beyond the range becomes the greatest number.
    #[allow(clippy::cast_possible_truncation)]
    let whole = count.round().max(0.0) as u64;
    whole
}

/// Finds the load of a call.
///
/// # Errors
/// [`Kind::Schema`] when memory and disk schema are of different arrays.
pub fn of(question: &Question<'_>) -> Result<Load> {
    let servers = question.requests.iter().map(|request| request.servers);
    let mut load = Load {
        servers: vec![ServerLoad::default(); servers.max().unwrap_or(0)],
        clients: question.clients,
        ..Load::default()
    };
    let mut held = vec![0.0; question.clients];
    for (nth, request) in question.requests.iter().enumerate() {
        load.bytes += request.disk.bytes();
        load.dims = load.dims.max(request.disk.shape().len());
        let mut counting = Counting::new(&mut load, request, question);
        match request.holders.schema() {
            Some(memory) => counting.add_schema(memory, &mut held)?,
            None => counting.add_lists(question.lists_of(nth), &mut held),
        }
    }
    load.client_bytes = held.iter().sum();
    load.client_bytes_max = held.iter().copied().fold(0.0, f64::max);
    load.holding = held.iter().filter(|bytes| **bytes > 0.0).count() as f64;
    let moved = load.sum(|server| server.moves().bytes);
    load.own /= moved.max(1.0);
    Ok(load)
}

/// Counts the blocks and portions of one request.
struct Counting<'a> {
    load: &'a mut Load,
    request: &'a Request,
    clients: usize,
    /// The clients of one host.
    each: usize,
    /// Round, conforming part and client of each message of two-phase I/O.
    pairs: HashSet<(u64, usize, usize)>,
}

impl<'a> Counting<'a> {
    fn new(load: &'a mut Load, request: &'a Request, question: &Question<'_>) -> Self {
        Self {
            load,
            request,
            clients: question.clients,
            each: question.clients.div_ceil(question.hosts),
            pairs: HashSet::new(),
        }
    }

    /// Adds the blocks of a request whose ranks hold shares.
    fn add_schema(&mut self, memory: &MemorySchema, held: &mut [f64]) -> Result<()> {
        let (disk, servers) = (&self.request.disk, self.request.servers);
        if memory.shape() != disk.shape() || memory.ranks() > held.len() {
            let cause = "memory and disk are of different arrays, or more ranks hold shares than \
                         there are";
            let asking = "predicting a call";
            return Err(penstock_engine::Error::new(Kind::Schema, asking, cause));
        }
        for (rank, held) in held.iter_mut().enumerate().take(memory.ranks()) {
            let shares = memory.shares_of(rank);
            *held += shares
                .map(|share| (memory.share(share).elements() * disk.width()) as f64)
                .sum::<f64>();
        }
        let blocks_max = disk.conforming_blocks_max(servers) * servers as u64;
        let step = blocks_max.div_ceil(SAMPLES).max(1);
        for server in 0..servers {
            let mut last = None;
            for (nth, block) in (0..).zip(disk.blocks(server, servers)) {
                self.add_block(server, &block);
                if last.replace(block.object) != Some(block.object) {
                    self.load.servers[server].objects += 1.0;
                }
                if nth % step == 0 {
                    for portion in portions(memory, &block) {
                        self.add_piece(server, (portion.rank, &portion.piece), &block, step as f64);
                    }
                }
            }
            even_out(&mut self.load.servers[server]);
        }
        self.load.pairs += self.pairs.len() as f64;
        Ok(())
    }

    /// Adds the blocks of a request whose ranks hold lists: of a write that fills all, all of them.
    fn add_lists(&mut self, lists: &[Arc<Holding>], held: &mut [f64]) {
        let (disk, servers) = (&self.request.disk, self.request.servers);
        let (mut blocks, mut objects) = (HashSet::new(), HashSet::new());
        let mut touch = |counting: &mut Self, server, block: &Block| {
            if blocks.insert((block.object, block.index)) {
                counting.add_block(server, block);
            }
            if objects.insert((server, block.object)) {
                counting.load.servers[server].objects += 1.0;
            }
        };
        if self.request.writes_all() {
            for server in 0..servers {
                disk.blocks(server, servers)
                    .for_each(|block| touch(self, server, &block));
            }
        }
        for (rank, list) in lists.iter().enumerate() {
            held[rank] += list.bytes(disk.width()) as f64;
            for (block, piece) in list.pieces(disk) {
                let server = disk.server_of(&block, servers);
                touch(self, server, &block);
                self.add_piece(server, (rank, &piece.into()), &block, 1.0);
            }
        }
        self.load.pairs += self.pairs.len() as f64;
        self.load.lists += 1.0;
    }

    fn add_block(&mut self, server: usize, block: &Block) {
        let of_server = &mut self.load.servers[server];
        of_server.blocks += 1.0;
        of_server.bytes += block.bytes as f64;
    }

    /// Adds what a rank has of a block, which stands for `weight` blocks.
    fn add_piece(&mut self, server: usize, part: (usize, &Piece), block: &Block, weight: f64) {
        let ((rank, piece), disk) = (part, &self.request.disk);
        let host = server % self.clients.div_ceil(self.each);
        let of_server = &mut self.load.servers[server];
        let moves = match rank / self.each == host {
            true => &mut of_server.near,
            false => &mut of_server.far,
        };
        moves.add(piece, block, disk.width(), weight);
        let (owner, place) = disk.conforming_place(block, self.clients);
        if rank == owner {
            self.load.own += weight * (piece.elements() * disk.width()) as f64;
        } else {
            self.pairs
                .insert((staged(self.request, place), owner, rank));
        }
    }
}

/// The round of two-phase I/O in which a block of that place is moved.
fn staged(request: &Request, place: u64) -> u64 {
    match &request.strategy {
        Strategy::TwoPhase(options) => {
            let staged = options.buffer_bytes_max / request.disk.block_bytes_max().max(1);
            place / staged.max(1)
        }
        _ => 0,
    }
}

/// A sample stands for as many blocks as the step, of which the last may be fewer.
fn even_out(server: &mut ServerLoad) {
    let sampled = server.near.bytes + server.far.bytes;
    if sampled <= server.bytes {
        return;
    }
    let part = server.bytes / sampled;
    for moves in [&mut server.near, &mut server.far] {
        moves.portions *= part;
        moves.bytes *= part;
        moves.stretches *= part;
        moves
            .by_distance
            .iter_mut()
            .for_each(|(_, count)| *count *= part);
    }
}
