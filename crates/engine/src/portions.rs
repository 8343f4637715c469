//! The blocks of a server, and the portions that clients hold of them.

use futures::future::join_all;
use penstock_layout::{Block, Holder, MemorySchema, Piece};

use crate::address::MemoryId;
use crate::error::Result;
use crate::machine::{Machine, NodeId, Operation, Window};
use crate::party::Party;
use crate::request::Request;

/// A portion is the elements that one share has of a block.
#[derive(Debug, Clone)]
pub struct Portion {
    /// The node of the client that holds the share.
    pub client: NodeId,
    /// The share's number among the client's shares, from 0.
    pub part: u64,
    /// The elements, and their place in the share.
    pub piece: Piece,
}

impl Request {
    /// The blocks that `server` moves, in their order on disk. If ranks name boxes, the server does
    /// not look at blocks far from all boxes, unless a write fills elements that nobody holds.
    pub fn blocks(&self, server: usize) -> Box<dyn Iterator<Item = Block> + '_> {
        let Self { disk, servers, .. } = self;
        match &self.memory {
            MemorySchema::Boxes(boxes)
                if !self.writes_all()
                    && let Some(bounds) = boxes.bounds() =>
            {
                let near = disk.blocks_in(bounds);
                Box::new(near.filter(move |block| disk.server_of(block, *servers) == server))
            }
            _ => Box::new(disk.blocks(server, *servers)),
        }
    }

    /// The portions of a block, in time proportional to the shares that touch the block, not to
    /// all.
    pub fn portions(&self, party: &Party, block: &Block) -> Vec<Portion> {
        let shares = self.memory.touching(&block.region).into_iter();
        let portions = shares.filter_map(|share| {
            let piece = self.memory.share(share).intersect(&block.region)?;
            let Holder { rank, part } = self.memory.holder(share);
            Some(Portion {
                client: party.clients[rank],
                part: part as u64,
                piece,
            })
        });
        portions.collect()
    }
}

/// Moves all portions of a block at once between their clients' memories and a buffer in which the
/// block begins at byte `at`: a write gets them (memget), a read puts them (memput). `memory` names
/// the first share of each client.
///
/// # Errors
/// The first error of a client, once all memgets or memputs have ended.
pub(crate) async fn move_portions<M: Machine>(
    machine: &M,
    memory: MemoryId,
    request: &Request,
    portions: &[Portion],
    (block, at): (&Block, u64),
    buffer: &M::Buffer,
) -> Result<()> {
    let window = Window::at(block, request.disk.width(), at);
    let moves = portions.iter().map(|portion| {
        let window = &window;
        let (memory, client, piece) = (memory.share(portion.part), portion.client, &portion.piece);
        async move {
            match request.operation {
                Operation::Write => machine.memget(memory, client, piece, window, buffer).await,
                Operation::Read => machine.memput(memory, client, piece, window, buffer).await,
            }
        }
    });
    join_all(moves).await.into_iter().collect()
}
