//! Disk-directed I/O: what a server does about a collective request.
//!
//! Kotz, TOCS 1997, Figure 2(c) and section 4, on blocks; Seamons et al., SC'95, section 2, on the
//! chunks of arrays. The server determines the blocks that are its own, sorts them by where they
//! lie, and runs two buffers over the list. Each buffer takes the next block, and for a write gets
//! its pieces from all clients that hold some and gives it to the disk, for a read the reverse:
//!
//! ```text
//! buffer 0   memget block 0 | write block 0       | memget block 2 | write block 2 ...
//! buffer 1                  | memget block 1      | write block 1  | memget block 3 ...
//! ```
//!
//! so that one is filled while the other is drained. Clients are idle meanwhile, and none of them
//! is asked for anything that it does not hold.
//!
//! The buffers are those of a `relay`; here is what fills and drains them.
//!
//! In a split collective a server has a buffer for every block, as far as they go: it gets all pieces
//! while the clients wait, and its disk is left to write while they compute. A read begins with the
//! disk, and ends with the memputs.
//!
//! Memory: two buffers of one block, or what a split collective may take. Time to plan: in proportion
//! to this server's blocks and to the clients that touch them.

use penstock_layout::{Block, Piece};
use serde::{Deserialize, Serialize};

use crate::error::{Result, Who};
use crate::machine::{Disk, Machine, NodeId, Work};
use crate::relay::{Flow, Relay, move_pieces};
use crate::request::{Moved, Operation, Request};
use crate::split::Part;
use crate::tree::Tree;

/// Buffers a disk: one to fill while the other is drained (Kotz, Table I).
pub const BUFFERS_PER_DISK: u64 = 2;

/// The tuning of disk-directed I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Whether the blocks are sorted by where they lie on disk before any is moved.
    pub presort: bool,
}

impl Default for Options {
    /// Presorted: it costs next to nothing, and seeks are dear.
    fn default() -> Self {
        Self { presort: true }
    }
}

/// Runs `server`'s part of `request`, to the end or to the first error. `part` is given up when all
/// that is left to do is the disk's.
///
/// # Errors
/// The first that a disk or a client met, by the name of this server.
pub(crate) async fn serve<M: Machine>(
    tree: &Tree<'_, M>,
    request: &Request,
    options: &Options,
    server: usize,
    part: Part<'_>,
) -> Result<Moved> {
    if server >= request.servers {
        return Ok(Moved::default());
    }
    let served = match tree.machine.open(request, server).await {
        Ok(disk) => serve_on(&disk, tree, request, options, server, part).await,
        Err(error) => Err(error),
    };
    served.map_err(|error| error.by(Who::Server(server)))
}

async fn serve_on<M: Machine>(
    disk: &M::Disk,
    tree: &Tree<'_, M>,
    request: &Request,
    options: &Options,
    server: usize,
    part: Part<'_>,
) -> Result<Moved> {
    let machine = tree.machine;
    machine.work(Work::Thread).await;
    let mut blocks: Box<dyn Iterator<Item = Block>> =
        Box::new(request.disk.blocks(server, request.servers));
    if options.presort && !disk.is_in_schema_order() {
        let mut sorted: Vec<Block> = blocks.collect();
        machine.work(Work::List(sorted.len() as u64)).await;
        sorted.sort_by_cached_key(|block| disk.position(block));
        blocks = Box::new(sorted.into_iter());
    }
    let relay = Relay::new(machine, request, blocks, BUFFERS_PER_DISK);
    let job = Job {
        tree,
        request,
        disk,
    };
    relay.run(&job, part).await
}

/// One server's part of one call.
struct Job<'a, M: Machine> {
    tree: &'a Tree<'a, M>,
    request: &'a Request,
    disk: &'a M::Disk,
}

impl<M: Machine> Flow<M> for Job<'_, M> {
    /// Who holds what of the block.
    type Load = Vec<(NodeId, Piece)>;

    /// A write gets the pieces from the clients, a read the block from the disk.
    async fn fill(&self, block: &Block, buffer: &M::Buffer) -> Result<Option<Self::Load>> {
        let pieces = self.request.pieces(self.tree.roles, block);
        if pieces.is_empty() {
            return Ok(None); // nobody's elements: the store gives its fill value for them
        }
        match self.request.operation {
            Operation::Write => {
                let held: u64 = pieces.iter().map(|(_, piece)| piece.elements()).sum();
                if held * self.request.disk.width() < block.bytes {
                    self.tree.machine.clear(buffer, block.bytes);
                }
                move_pieces(self.tree, self.request, &pieces, (block, 0), buffer).await?;
            }
            Operation::Read => self.disk.read(block, buffer, 0).await?,
        }
        Ok(Some(pieces))
    }

    /// A write gives the block to the disk, a read puts the pieces into the clients' memories.
    async fn drain(&self, block: &Block, buffer: &M::Buffer, pieces: Self::Load) -> Result<Moved> {
        match self.request.operation {
            Operation::Write => self.disk.write(block, buffer, 0).await?,
            Operation::Read => {
                move_pieces(self.tree, self.request, &pieces, (block, 0), buffer).await?;
            }
        }
        Ok(Moved {
            blocks: 1,
            disk_bytes: block.bytes,
            transfers: pieces.len() as u64,
            buffer_bytes: 0,
        })
    }

    async fn finish(&self) -> Result<()> {
        self.disk.finish().await
    }
}
