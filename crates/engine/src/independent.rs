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
//! What lists of other ranks have of an object nobody knows: such a store is written by another
//! strategy. Reading is always possible.
//!
//! Memory: a client's buffer of one block, or as much as a split collective may take. Messages:
//! only for agreement and verdict.

use std::ops::Range;
use std::slice;

use penstock_layout::{Block, DiskSchema, Holding, ListPiece, MemorySchema, Piece};

use crate::address::MemoryId;
use crate::call::Call;
use crate::direct_disks::DirectDisks;
use crate::error::{Error, Kind, Result, Who};
use crate::holders::Holders;
use crate::machine::{BlockFile, Machine, Operation, Window};
use crate::outcome::{Outcome, Traffic};
use crate::own::{OwnBlock, OwnPart};
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

/// Runs the part of the client of `rank`: it moves all that it holds; `list`, if ranks have lists.
pub(crate) async fn transfer<M: Machine>(
    call: &Call<'_, M>,
    request: &Request,
    (rank, list): (usize, &Holding),
    latch: &Latch,
) -> Outcome {
    let own = OwnPart::new(request, rank, list);
    let moved = move_own(call, request, &own, latch.hand_over()).await;
    Outcome::of(moved.map_err(|error| error.by(Who::Rank(rank))))
}

async fn move_own<M: Machine>(
    call: &Call<'_, M>,
    request: &Request,
    own: &OwnPart<'_>,
    hand_over: HandOver<'_>,
) -> Result<Traffic> {
    if own.is_empty() {
        return Ok(Traffic::default());
    }
    let client = Client {
        machine: call.machine,
        memory: call.id.memory(0),
        request,
        disks: DirectDisks::open(call.machine, request).await?,
        own,
    };
    let blocks = own.blocks(&request.disk);
    let relay = Relay::new(call.machine, slice::from_ref(request), blocks, 1);
    match request.split {
        None => relay.run(&client).await,
        Some(_) => split::run(&relay, &client, hand_over).await,
    }
}

/// A client moves all that its rank holds.
struct Client<'a, M: Machine> {
    machine: &'a M,
    /// The name of the rank's first memory.
    memory: MemoryId,
    request: &'a Request,
    own: &'a OwnPart<'a>,
    disks: DirectDisks<'a, M>,
}

impl<M: Machine> Client<'_, M> {
    /// Copies between this rank's memory and a buffer that begins with the block.
    async fn copy(&self, own: &OwnBlock, buffer: &M::Buffer) -> Result<()> {
        let (machine, me) = (self.machine, self.machine.me());
        let window = Window::of_block(&own.block, self.request.disk.width());
        for (part, piece) in &own.pieces {
            let memory = self.memory.share(*part as u64);
            match self.request.operation {
                Operation::Write => machine.memget(memory, me, piece, &window, buffer).await?,
                Operation::Read => machine.memput(memory, me, piece, &window, buffer).await?,
            }
        }
        Ok(())
    }

    async fn write(&self, own: &OwnBlock, buffer: &M::Buffer, bytes: u64) -> Result<()> {
        let (block, disk) = (&own.block, self.disks.of(&own.block));
        if bytes == block.bytes {
            return disk.write(block, buffer, 0).await;
        }
        for runs in self.runs(own) {
            disk.write_parts(block, &runs, buffer).await?;
        }
        Ok(())
    }

    async fn read(&self, own: &OwnBlock, buffer: &M::Buffer, bytes: u64) -> Result<()> {
        let (block, disk) = (&own.block, self.disks.of(&own.block));
        if bytes == block.bytes {
            return disk.read(block, buffer, 0).await;
        }
        for runs in self.runs(own) {
            disk.read_parts(block, &runs, buffer).await?;
        }
        Ok(())
    }

    /// The contiguous runs of a block that this rank holds, in bytes of the block, as a few lists.
    fn runs<'b>(&'b self, own: &'b OwnBlock) -> impl Iterator<Item = Vec<Range<u64>>> + use<'b, M> {
        let width = self.request.disk.width();
        let mut stretches = self.stretches(own).peekable();
        std::iter::from_fn(move || {
            stretches.peek()?;
            let mut runs: Vec<Range<u64>> = Vec::new();
            while runs.len() < RUNS_MAX
                && let Some((start, elements)) = stretches.next()
            {
                let (start, end) = (start * width, (start + elements) * width);
                match runs.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => runs.push(start..end),
                }
            }
            Some(runs)
        })
    }

    /// The contiguous stretches of a block that this rank holds: the first element and the number
    /// of each.
    fn stretches<'b>(&'b self, own: &'b OwnBlock) -> Box<dyn Iterator<Item = (u64, u64)> + 'b> {
        match self.own {
            OwnPart::Shares(shares) => {
                let stretches = shares
                    .iter()
                    .flat_map(|(_, share)| share.stretches(&own.block));
                Box::new(stretches.map(|stretch| (stretch.offset, stretch.region.elements())))
            }
            OwnPart::List(_) => {
                let lists = own.pieces.iter().filter_map(|(_, piece)| match piece {
                    Piece::List(piece) => Some(piece),
                    Piece::Share(_) => None,
                });
                let runs = lists.flat_map(ListPiece::iter);
                Box::new(runs.map(|(place, _, elements)| (place, elements)))
            }
        }
    }

    /// Refuses to write an object whole if other ranks hold elements in it, or may.
    fn check_alone(&self, block: &Block) -> Result<()> {
        match &self.request.holders {
            Holders::Schema(memory) => check_object(memory, &self.request.disk, block.object),
            Holders::Lists { .. } => {
                let cause = "the store writes chunks whole, and what the lists of other ranks have of \
                             them is not known: use another strategy";
                Err(Error::new(
                    Kind::Unsupported,
                    "writing a list independently",
                    cause,
                ))
            }
        }
    }
}

impl<M: Machine> Flow<M> for Client<'_, M> {
    type Block = OwnBlock;
    /// Bytes to be moved: the rank's own, or the whole block if its disk moves no parts.
    type Load = u64;

    /// Copies from this rank's memory in a write, and reads from the disk in a read.
    async fn fill(&self, own: &OwnBlock, buffer: &M::Buffer) -> Result<Option<u64>> {
        let block = &own.block;
        let held = own.elements() * self.request.disk.width();
        let moves_parts = self.disks.of(block).moves_parts().await?;
        let bytes = if moves_parts { held } else { block.bytes };
        if self.request.operation == Operation::Read {
            self.read(own, buffer, bytes).await?;
            return Ok(Some(bytes));
        }
        if !moves_parts {
            self.check_alone(block)?;
            if held < block.bytes {
                let element = self.request.rest.element();
                self.machine.clear(buffer, block.bytes, element);
            }
        }
        self.copy(own, buffer).await?;
        Ok(Some(bytes))
    }

    /// Writes to the disk in a write, and copies into this rank's memory in a read.
    async fn drain(&self, own: &OwnBlock, buffer: &M::Buffer, bytes: u64) -> Result<Traffic> {
        match self.request.operation {
            Operation::Write => self.write(own, buffer, bytes).await?,
            Operation::Read => self.copy(own, buffer).await?,
        }
        Ok(Traffic {
            blocks: 1,
            disk_bytes: bytes,
            transfers: 1,
            ..Traffic::default()
        })
    }

    async fn finish(&self) -> Result<()> {
        self.disks.finish().await
    }
}
