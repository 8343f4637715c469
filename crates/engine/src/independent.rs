//! Independent I/O: every rank moves its own contiguous runs, and there are no servers.
//!
//! The non-collective case of Dickens and Thakur (section 2): what a program does that opens a
//! shared file and seeks. Each client goes once over the blocks that hold elements of its share, in
//! the order of the file, one after the other:
//!
//! ```text
//! share      . . x x . . | x x . . . .        two blocks, of which this rank holds the x
//! a flat     writes bytes 2..4 of the first and 0..2 of the second, no byte of its neighbours'
//! a chunk that can only be written whole      is written if no other rank holds any of it
//! ```
//!
//! Where a store writes parts of blocks, ranks that share a block write different bytes of it, which
//! needs no lock. Where it cannot (a chunk with a codec, a shard with its index), two ranks that
//! wrote one object would undo each other's work in silence, so [`check`] refuses the request.
//! Reading is always possible.
//!
//! Memory: a client's buffer of one block. Messages: those of agreement and verdict.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use penstock_layout::{Block, DiskSchema, MemorySchema, Region, Share};

use crate::caching::client::bounds;
use crate::collective::Outcome;
use crate::error::{Error, Kind, Result, Who};
use crate::machine::{Disk, Machine, Window};
use crate::request::{Moved, Operation, Request};
use crate::tree::Tree;

/// Runs given to a disk at once, at most: their list is not to outgrow a block.
const RUNS_MAX: usize = 4096;

/// Refuses a write in which several ranks hold elements of one object: for stores that write objects
/// whole. Takes time in proportion to the number of objects.
///
/// # Errors
/// [`Kind::Schema`], naming two of the ranks and the object.
pub fn check(memory: &MemorySchema, disk: &DiskSchema) -> Result<()> {
    (0..disk.objects()).try_for_each(|object| check_object(memory, disk, object))
}

fn check_object(memory: &MemorySchema, disk: &DiskSchema, object: u64) -> Result<()> {
    let place = disk.grid_index(object);
    let start: Vec<u64> = place.iter().zip(disk.chunk()).map(|(i, c)| i * c).collect();
    let region = Region::new(&start, disk.chunk());
    let [first, second, ..] = memory.touching(&region)[..] else {
        return Ok(());
    };
    let cause = format!(
        "ranks {first} and {second} both hold elements of chunk {place:?}, which can only be written \
         whole: use another strategy, or chunks that one rank holds each"
    );
    Err(Error::new(Kind::Schema, "writing independently", cause))
}

/// This node's part: its client moves all that it holds.
pub(crate) async fn transfer<M: Machine>(tree: &Tree<'_, M>, request: &Request) -> Outcome {
    let Some(rank) = tree.roles.rank(tree.machine.me()) else {
        return Outcome::default();
    };
    let client = Client {
        machine: tree.machine,
        call: tree.call,
        request,
        share: request.memory.share(rank),
    };
    let moved = client.move_share().await;
    Outcome::of(moved.map_err(|error| error.by(Who::Rank(rank))))
}

/// The client of one node.
struct Client<'a, M: Machine> {
    machine: &'a M,
    call: u64,
    request: &'a Request,
    share: Share,
}

impl<M: Machine> Client<'_, M> {
    async fn move_share(&self) -> Result<Moved> {
        let Self {
            machine, request, ..
        } = *self;
        let mut moved = Moved::default();
        if self.share.elements() == 0 {
            return Ok(moved);
        }
        moved.buffer_bytes = request.disk.block_bytes_max();
        let buffer = machine.buffer(moved.buffer_bytes)?;
        let mut disks: BTreeMap<usize, M::Disk> = BTreeMap::new();
        for block in request.disk.blocks_in(&bounds(&self.share)) {
            if self.share.intersect(&block.region).is_none() {
                continue;
            }
            let server = request.disk.server_of(&block, request.servers);
            let server = machine.reached_by(server);
            let disk = match disks.entry(server) {
                Entry::Occupied(open) => open.into_mut(),
                Entry::Vacant(free) => free.insert(machine.open(request, server).await?),
            };
            let bytes = match request.operation {
                Operation::Write => self.write(disk, &block, &buffer).await?,
                Operation::Read => self.read(disk, &block, &buffer).await?,
            };
            moved.blocks += 1;
            moved.transfers += 1;
            moved.disk_bytes += bytes;
        }
        if request.operation == Operation::Write {
            for disk in disks.values() {
                disk.finish().await?;
            }
        }
        Ok(moved)
    }

    /// Writes what this rank holds of a block, and says how many bytes that took.
    async fn write(&self, disk: &M::Disk, block: &Block, buffer: &M::Buffer) -> Result<u64> {
        let held = self.held_bytes(block);
        let is_whole = held == block.bytes;
        if !disk.moves_parts() {
            check_object(&self.request.memory, &self.request.disk, block.object)?;
        }
        if !is_whole && !disk.moves_parts() {
            self.machine.clear(buffer, block.bytes);
        }
        self.copy(block, buffer).await?;
        if is_whole || !disk.moves_parts() {
            disk.write(block, buffer).await?;
            return Ok(block.bytes);
        }
        for runs in self.runs(block) {
            disk.write_parts(block, &runs, buffer).await?;
        }
        Ok(held)
    }

    /// Reads what this rank holds of a block, and says how many bytes that took.
    async fn read(&self, disk: &M::Disk, block: &Block, buffer: &M::Buffer) -> Result<u64> {
        let held = self.held_bytes(block);
        if held == block.bytes || !disk.moves_parts() {
            disk.read(block, buffer).await?;
            self.copy(block, buffer).await?;
            return Ok(block.bytes);
        }
        for runs in self.runs(block) {
            disk.read_parts(block, &runs, buffer).await?;
        }
        self.copy(block, buffer).await?;
        Ok(held)
    }

    fn held_bytes(&self, block: &Block) -> u64 {
        let piece = self.share.intersect(&block.region);
        piece.map_or(0, |piece| piece.elements()) * self.request.disk.width()
    }

    /// Between this rank's memory and the buffer, where the block begins at its first byte.
    async fn copy(&self, block: &Block, buffer: &M::Buffer) -> Result<()> {
        let Some(piece) = self.share.intersect(&block.region) else {
            return Ok(());
        };
        let (machine, me) = (self.machine, self.machine.me());
        let window = Window::of_block(block, self.request.disk.width());
        match self.request.operation {
            Operation::Write => machine.memget(self.call, me, &piece, &window, buffer).await,
            Operation::Read => machine.memput(self.call, me, &piece, &window, buffer).await,
        }
    }

    /// The contiguous runs of a block that this rank holds, in bytes of the block: a few lists.
    fn runs(&self, block: &Block) -> impl Iterator<Item = Vec<Range<u64>>> + use<M> {
        let width = self.request.disk.width();
        let mut stretches = self.share.stretches(block).peekable();
        std::iter::from_fn(move || {
            stretches.peek()?;
            let mut runs: Vec<Range<u64>> = Vec::new();
            while runs.len() < RUNS_MAX
                && let Some(stretch) = stretches.next()
            {
                let start = stretch.offset * width;
                let end = start + stretch.region.elements() * width;
                match runs.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => runs.push(start..end),
                }
            }
            Some(runs)
        })
    }
}
