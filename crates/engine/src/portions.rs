//! The blocks of a server, and the portions that clients hold of them.

use std::ops::Range;

use futures::future::join_all;
use penstock_layout::{Block, Holder, ListPiece, MemorySchema, Piece};

use crate::address::MemoryId;
use crate::error::Result;
use crate::holders::Holders;
use crate::lists::{self, Lists};
use crate::machine::{Machine, NodeId, Operation, Window};
use crate::party::Party;
use crate::portion::Portion;
use crate::request::Request;

/// Says who holds what of the blocks of one array that are moved on this node.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) request: &'a Request,
    /// The array's number in the call.
    pub(crate) array: usize,
    /// The lists of all ranks, where they have some.
    pub(crate) lists: &'a Lists,
}

impl<'a> Parts<'a> {
    /// The blocks that `server` moves, in their order on disk. If ranks name boxes or lists, the
    /// server does not look at blocks far from them, unless a write fills elements that nobody
    /// holds.
    pub(crate) fn blocks(self, server: usize) -> Box<dyn Iterator<Item = Block> + 'a> {
        let Request { disk, servers, .. } = self.request;
        match &self.request.holders {
            Holders::Lists { .. } if !self.request.writes_all() => {
                Box::new(self.lists.blocks(self.array, disk))
            }
            Holders::Schema(MemorySchema::Boxes(boxes))
                if !self.request.writes_all()
                    && let Some(bounds) = boxes.bounds() =>
            {
                let near = disk.blocks_in(bounds);
                Box::new(near.filter(move |block| disk.server_of(block, *servers) == server))
            }
            _ => Box::new(disk.blocks(server, *servers)),
        }
    }

    /// Whether somebody holds an element of a block.
    pub(crate) fn touch(self, block: &Block) -> bool {
        match &self.request.holders {
            Holders::Schema(memory) => !memory.touching(&block.region).is_empty(),
            Holders::Lists { .. } => self.lists.touch(self.array, block),
        }
    }

    /// The portions of a block, in time proportional to the shares or lists that touch the block,
    /// not to all.
    ///
    /// # Errors
    /// Where ranks have lists, as [`Lists::pieces`].
    pub(crate) fn portions(self, block: &Block) -> Result<Vec<Portion>> {
        match &self.request.holders {
            Holders::Schema(memory) => Ok(portions(memory, block).collect()),
            Holders::Lists { .. } => {
                let disk = &self.request.disk;
                let pieces = self.lists.pieces(self.array, disk, block)?;
                let portion = |(rank, piece): (usize, _)| Portion {
                    rank,
                    part: 0,
                    piece: Piece::List(piece),
                };
                Ok(pieces.into_iter().map(portion).collect())
            }
        }
    }
}

/// Checks that no element of a block is in two portions of lists, or in one of them twice. Schemas
/// are checked when they are made.
///
/// # Errors
/// As of [`lists::check_apart`].
pub(crate) fn check_apart(block: &Block, portions: &[Portion]) -> Result<()> {
    let pieces = portions.iter().filter_map(|portion| match &portion.piece {
        Piece::List(piece) => Some((portion.rank, piece)),
        Piece::Share(_) => None,
    });
    lists::check_apart(block, &pieces.collect::<Vec<_>>())
}

/// The parts of a block that lists hold, in bytes of the block, ascending and apart; `None` if they
/// hold all of it. The answer takes time in proportion to the runs where that is not so.
pub(crate) fn parts_held(
    block: &Block,
    portions: &[Portion],
    width: u64,
) -> Option<Vec<Range<u64>>> {
    let pieces = || {
        portions.iter().filter_map(|portion| match &portion.piece {
            Piece::List(piece) => Some(piece),
            Piece::Share(_) => None,
        })
    };
    let held: u64 = pieces().map(|piece| piece.bytes(width)).sum();
    if held == block.bytes && ListPiece::are_disjoint(pieces()) {
        return None;
    }
    let runs = pieces().flat_map(ListPiece::iter);
    let mut runs: Vec<_> = runs
        .map(|(place, _, elements)| place * width..(place + elements) * width)
        .collect();
    runs.sort_unstable_by_key(|run| run.start);
    runs.dedup_by(|next, run| {
        let touch = next.start <= run.end;
        if touch {
            run.end = run.end.max(next.end);
        }
        touch
    });
    match &runs[..] {
        [all] if *all == (0..block.bytes) => None,
        _ => Some(runs),
    }
}

/// The portions that the shares of a schema have of a block.
pub fn portions(memory: &MemorySchema, block: &Block) -> impl Iterator<Item = Portion> {
    let shares = memory.touching(&block.region).into_iter();
    shares.filter_map(|share| {
        let piece = memory.share(share).intersect(&block.region)?;
        let Holder { rank, part } = memory.holder(share);
        Some(Portion {
            rank,
            part,
            piece: piece.into(),
        })
    })
}

/// Moves all portions of a block at once between their clients' memories and a buffer in which the
/// block begins at byte `at`: a write gets them (memget), a read puts them (memput). `memory` names
/// the first share of each client.
///
/// # Errors
/// The first error of a client, once all memgets or memputs have ended.
pub(crate) async fn move_portions<M: Machine>(
    machine: &M,
    (party, memory): (&Party, MemoryId),
    request: &Request,
    portions: &[Portion],
    (block, at): (&Block, u64),
    buffer: &M::Buffer,
) -> Result<()> {
    let window = Window::at(block, request.disk.width(), at);
    let moves = portions.iter().map(|portion| {
        let (window, piece) = (&window, &portion.piece);
        let client: NodeId = party.clients[portion.rank];
        let memory = memory.share(portion.part as u64);
        async move {
            match request.operation {
                Operation::Write => machine.memget(memory, client, piece, window, buffer).await,
                Operation::Read => machine.memput(memory, client, piece, window, buffer).await,
            }
        }
    });
    join_all(moves).await.into_iter().collect()
}
