//! Independent I/O: every rank moves its own contiguous runs, and there are no servers.
//!
//! The non-collective case of Dickens and Thakur (section 2): what a program does that opens a
//! shared file and seeks. Each client goes once over the blocks that hold elements of its share, in
//! the order of the file, one after the other:
//!
//! ```text
//! share      . . x x . . | x x . . . .        two blocks; this rank holds the x
//! a flat     writes bytes 2..4 of the first and 0..2 of the second, no byte of its neighbours'
//! a chunk that can only be written whole      is written if no other rank holds any of it
//! ```
//!
//! Where a store writes parts of blocks, ranks that share a block write different bytes of it,
//! which needs no lock. Where it cannot (a chunk with a codec, a shard with its index), two ranks
//! that wrote one object would undo each other's work in silence, so [`check`] refuses the request.
//! Reading is always possible.
//!
//! Memory: a client's buffer of one block, or as much as a split collective may take. Messages:
//! only for agreement and verdict.

use std::ops::Range;
use std::slice;

use penstock_layout::{Block, DiskSchema, MemorySchema, Piece, Region, Share};

use crate::address::MemoryId;
use crate::call::Call;
use crate::direct_disks::DirectDisks;
use crate::error::{Error, Kind, Result, Who};
use crate::machine::{BlockFile, Machine, Operation, Window};
use crate::outcome::{Outcome, Traffic};
use crate::relay::{Flow, Relay};
use crate::request::Request;
use crate::split::{self, HandOver, Latch};

/// The most runs given to a disk at once: their list is not to outgrow a block.
const RUNS_MAX: usize = 4096;

/// Refuses a write in which several ranks hold elements of one object, for stores that write
/// objects whole. The check takes time in proportion to the number of objects.
///
/// # Errors
/// [`Kind::Schema`], naming two of the ranks and the object.
pub fn check(memory: &MemorySchema, disk: &DiskSchema) -> Result<()> {
    (0..disk.objects()).try_for_each(|object| check_object(memory, disk, object))
}

fn check_object(memory: &MemorySchema, disk: &DiskSchema, object: u64) -> Result<()> {
    let place = disk.grid_index(object);
    let touching = memory.touching(&disk.object_region(object));
    let mut ranks: Vec<usize> = touching
        .iter()
        .map(|&share| memory.holder(share).rank)
        .collect();
    ranks.dedup();
    let [first, second, ..] = ranks[..] else {
        return Ok(());
    };
    let cause = format!(
        "ranks {first} and {second} both hold elements of chunk {place:?}, which can only be written \
         whole: use another strategy, or chunks that one rank holds each"
    );
    Err(Error::new(Kind::Schema, "writing independently", cause))
}

/// Runs the part of the client of `rank`: it moves all its shares.
pub(crate) async fn transfer<M: Machine>(
    call: &Call<'_, M>,
    request: &Request,
    rank: usize,
    latch: &Latch,
) -> Outcome {
    let moved = move_share(call, request, rank, latch.hand_over()).await;
    Outcome::of(moved.map_err(|error| error.by(Who::Rank(rank))))
}

async fn move_share<M: Machine>(
    call: &Call<'_, M>,
    request: &Request,
    rank: usize,
    hand_over: HandOver<'_>,
) -> Result<Traffic> {
    let shares = call.memories(0, request.memory.shares_of(rank));
    let shares = shares.map(|(memory, number)| (memory, request.memory.share(number)));
    let shares: Vec<(MemoryId, Share)> = shares.filter(|(_, share)| share.elements() > 0).collect();
    let Some(bounds) = shares
        .iter()
        .filter_map(|(_, share)| share.bounds())
        .reduce(around)
    else {
        return Ok(Traffic::default());
    };
    let client = Client {
        machine: call.machine,
        request,
        disks: DirectDisks::open(call.machine, request).await?,
        shares,
    };
    let blocks = request.disk.blocks_in(&bounds);
    let blocks = blocks.filter(|block| client.pieces(block).next().is_some());
    let relay = Relay::new(call.machine, slice::from_ref(request), Box::new(blocks), 1);
    match request.split {
        None => relay.run(&client).await,
        Some(_) => split::run(&relay, &client, hand_over).await,
    }
}

/// A client moves all shares of its rank.
struct Client<'a, M: Machine> {
    machine: &'a M,
    request: &'a Request,
    /// The rank's shares, each with the name of its memory.
    shares: Vec<(MemoryId, Share)>,
    disks: DirectDisks<'a, M>,
}

/// The smallest box around two boxes.
fn around(one: Region, other: Region) -> Region {
    let mut both = one.clone();
    for d in 0..one.dims() {
        both.start[d] = one.start[d].min(other.start[d]);
        both.shape[d] = one.end(d).max(other.end(d)) - both.start[d];
    }
    both
}

impl<M: Machine> Client<'_, M> {
    /// The pieces that the shares have of a block, each with the name of its memory.
    fn pieces<'b>(
        &'b self,
        block: &'b Block,
    ) -> impl Iterator<Item = (MemoryId, Piece)> + use<'b, M> {
        let shares = self.shares.iter();
        shares.filter_map(|(memory, share)| Some((*memory, share.intersect(&block.region)?)))
    }

    fn held_bytes(&self, block: &Block) -> u64 {
        let held: u64 = self.pieces(block).map(|(_, piece)| piece.elements()).sum();
        held * self.request.disk.width()
    }

    /// Copies between this rank's memory and a buffer that begins with the block.
    async fn copy(&self, block: &Block, buffer: &M::Buffer) -> Result<()> {
        let (machine, me) = (self.machine, self.machine.me());
        let window = Window::of_block(block, self.request.disk.width());
        for (memory, piece) in self.pieces(block) {
            match self.request.operation {
                Operation::Write => machine.memget(memory, me, &piece, &window, buffer).await?,
                Operation::Read => machine.memput(memory, me, &piece, &window, buffer).await?,
            }
        }
        Ok(())
    }

    async fn write(&self, block: &Block, buffer: &M::Buffer, bytes: u64) -> Result<()> {
        let disk = self.disks.of(block);
        if bytes == block.bytes {
            return disk.write(block, buffer, 0).await;
        }
        for runs in self.runs(block) {
            disk.write_parts(block, &runs, buffer).await?;
        }
        Ok(())
    }

    async fn read(&self, block: &Block, buffer: &M::Buffer, bytes: u64) -> Result<()> {
        let disk = self.disks.of(block);
        if bytes == block.bytes {
            return disk.read(block, buffer, 0).await;
        }
        for runs in self.runs(block) {
            disk.read_parts(block, &runs, buffer).await?;
        }
        Ok(())
    }

    /// The contiguous runs of a block that this rank holds, in bytes of the block, as a few lists.
    fn runs<'b>(&'b self, block: &'b Block) -> impl Iterator<Item = Vec<Range<u64>>> + use<'b, M> {
        let width = self.request.disk.width();
        let shares = self.shares.iter();
        let mut stretches = shares
            .flat_map(|(_, share)| share.stretches(block))
            .peekable();
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

impl<M: Machine> Flow<M> for Client<'_, M> {
    type Block = Block;
    /// Bytes to be moved: the rank's own, or the whole block if its disk moves no parts.
    type Load = u64;

    /// Copies from this rank's memory in a write, and reads from the disk in a read.
    async fn fill(&self, block: &Block, buffer: &M::Buffer) -> Result<Option<u64>> {
        let held = self.held_bytes(block);
        let moves_parts = self.disks.of(block).moves_parts().await?;
        let bytes = if moves_parts { held } else { block.bytes };
        if self.request.operation == Operation::Read {
            self.read(block, buffer, bytes).await?;
            return Ok(Some(bytes));
        }
        if !moves_parts {
            check_object(&self.request.memory, &self.request.disk, block.object)?;
            if held < block.bytes {
                let element = self.request.rest.element();
                self.machine.clear(buffer, block.bytes, element);
            }
        }
        self.copy(block, buffer).await?;
        Ok(Some(bytes))
    }

    /// Writes to the disk in a write, and copies into this rank's memory in a read.
    async fn drain(&self, block: &Block, buffer: &M::Buffer, bytes: u64) -> Result<Traffic> {
        match self.request.operation {
            Operation::Write => self.write(block, buffer, bytes).await?,
            Operation::Read => self.copy(block, buffer).await?,
        }
        Ok(Traffic {
            blocks: 1,
            disk_bytes: bytes,
            transfers: 1,
            buffer_bytes: 0,
        })
    }

    async fn finish(&self) -> Result<()> {
        self.disks.finish().await
    }
}
