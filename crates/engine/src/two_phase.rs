//! Two-phase I/O: clients move large conforming parts, and permute the data among themselves.
//!
//! del Rosario, Bordawekar and Choudhary 1993; Kotz, TOCS 1997, Figure 2(b) and section 4. The file's
//! blocks are cut into as many consecutive parts as there are clients: the conforming distribution,
//! `rb` for a row-major matrix. Each client moves its part by one large request to a parallel file
//! system, here [`caching`], and exchanges the elements with those who hold them:
//!
//! ```text
//! read    barrier | every client reads its part | barrier | memput to the holders  | barrier
//! write   barrier | memget from the holders | barrier | every client writes its part | barrier
//! ```
//!
//! Memory: of a client [`Options::buffer_bytes_max`], or one block if that is more; where its part
//! is larger, all clients go through the two phases several times. Each element crosses the network
//! twice.

use std::rc::Rc;

use futures::future::join_all;
use penstock_layout::{Block, MemorySchema};
use serde::{Deserialize, Serialize};

use crate::caching;
use crate::caching::client::{Client, Local};
use crate::collective::Outcome;
use crate::error::Result;
use crate::machine::{Machine, Window};
use crate::request::{Operation, Request};
use crate::tree::Tree;

/// The tuning of two-phase I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The staging buffer of a client, bytes: one block at least.
    pub buffer_bytes_max: u64,
    /// The parallel file system below.
    pub caching: caching::Options,
}

impl Default for Options {
    /// 16 MiB, as MPI-IO's collective buffers usually are.
    fn default() -> Self {
        Self {
            buffer_bytes_max: 16 << 20,
            caching: caching::Options::default(),
        }
    }
}

/// This node's part: its client permutes and asks, its servers answer all clients.
pub(crate) async fn transfer<M: Machine>(
    tree: &Tree<'_, M>,
    request: &Request,
    options: &Options,
) -> Outcome {
    let part = Part::new(tree, request, options);
    caching::with_servers(tree, request, &options.caching, part.run()).await
}

/// The conforming part of one client; nothing, where a node has none.
struct Part<'a, M: Machine> {
    tree: &'a Tree<'a, M>,
    request: &'a Request,
    caching: &'a caching::Options,
    blocks: Vec<Rc<Block>>,
    /// Blocks that the staging buffer holds.
    blocks_staged: usize,
    /// How often the two phases are gone through, the same on all nodes.
    rounds: u32,
}

impl<'a, M: Machine> Part<'a, M> {
    fn new(tree: &'a Tree<'a, M>, request: &'a Request, options: &'a Options) -> Self {
        let clients = tree.roles.clients.len();
        let blocks = match tree.roles.rank(tree.machine.me()) {
            Some(rank) => request
                .disk
                .conforming(rank, clients)
                .map(Rc::new)
                .collect(),
            None => Vec::new(),
        };
        let block_bytes = request.disk.block_bytes_max().max(1);
        let blocks_staged = (options.buffer_bytes_max / block_bytes).max(1);
        let blocks_max = request.disk.conforming_blocks_max(clients);
        Self {
            tree,
            request,
            caching: &options.caching,
            blocks,
            blocks_staged: blocks_staged as usize,
            rounds: blocks_max.div_ceil(blocks_staged) as u32,
        }
    }

    async fn run(&self) -> Result<()> {
        let staged = self.blocks.len().min(self.blocks_staged) as u64;
        let bytes = staged * self.request.disk.block_bytes_max();
        let mut staging = self.tree.machine.buffer(bytes);
        let mut blocks = self.blocks.chunks(self.blocks_staged);
        self.tree.barrier(0).await?;
        for round in 0..self.rounds {
            let blocks = blocks.next().unwrap_or_default();
            for phase in 0..2 {
                // After an error the barriers are still come to: the others wait there.
                if let Ok(buffer) = &staging {
                    let is_transfer = (phase == 0) == (self.request.operation == Operation::Read);
                    let done = match is_transfer {
                        true => self.transfer(blocks, buffer).await,
                        false => self.permute(blocks, buffer).await,
                    };
                    if let Err(error) = done {
                        staging = Err(error);
                    }
                }
                self.tree.barrier(2 * round + phase + 1).await?;
            }
        }
        staging.map(|_| ())
    }

    /// The I/O phase: blocks between the staging buffer and the servers, as one call.
    async fn transfer(&self, blocks: &[Rc<Block>], staging: &M::Buffer) -> Result<()> {
        let local = Local::Staging(staging, 0);
        let mut client = Client::new(self.tree, self.request, self.caching, local);
        let asked = async {
            for (block, base) in self.staged(blocks) {
                // Of a block that nobody holds there is nothing to move.
                if !self.request.memory.touching(&block.region).is_empty() {
                    client.ask_whole(block, base).await?;
                }
            }
            Ok(())
        };
        let asked = asked.await;
        let ended = client.end_call().await;
        asked.and(ended)
    }

    /// The permutation: blocks between the staging buffer and the clients that hold their elements.
    async fn permute(&self, blocks: &[Rc<Block>], staging: &M::Buffer) -> Result<()> {
        let Tree {
            machine,
            roles,
            call,
        } = *self.tree;
        let width = self.request.disk.width();
        if self.request.operation == Operation::Write && self.has_gaps(blocks) {
            let bytes = blocks.len() as u64 * self.request.disk.block_bytes_max();
            machine.clear(staging, bytes);
        }
        for (block, base) in self.staged(blocks) {
            let window = Window {
                offset: base as usize,
                ..Window::of_block(block, width)
            };
            let pieces = self.request.pieces(roles, block);
            let moves = pieces.iter().map(|(client, piece)| async {
                match self.request.operation {
                    Operation::Read => machine.memput(call, *client, piece, &window, staging).await,
                    Operation::Write => {
                        machine.memget(call, *client, piece, &window, staging).await
                    }
                }
            });
            join_all(moves).await.into_iter().collect::<Result<()>>()?;
        }
        Ok(())
    }

    /// Whether some elements of the blocks are nobody's: they must not be left over from others.
    fn has_gaps(&self, blocks: &[Rc<Block>]) -> bool {
        let has_gap = |block: &Rc<Block>| {
            let pieces = self.request.pieces(self.tree.roles, block);
            let held: u64 = pieces.iter().map(|(_, piece)| piece.elements()).sum();
            held < block.region.elements()
        };
        // A distribution deals out all there is.
        matches!(self.request.memory, MemorySchema::Boxes(_)) && blocks.iter().any(has_gap)
    }

    /// Each block, with the byte of the staging buffer at which it begins.
    fn staged<'b>(
        &self,
        blocks: &'b [Rc<Block>],
    ) -> impl Iterator<Item = (&'b Rc<Block>, u64)> + use<'b, M> {
        let bytes = self.request.disk.block_bytes_max();
        blocks.iter().zip((0..).step_by(bytes as usize))
    }
}
