//! Lists on their way: each client gives each mover of blocks the pieces of its blocks.
//!
//! A mover is a server, or in two-phase I/O a client with its conforming part. A rank's list is not
//! known to anybody else, so the rank cuts it into the pieces of blocks by itself, and sends one
//! message to each mover, however long the list, and with nothing in it if the list has nothing of
//! its blocks. This is Galley's nested-batched request (Kotz, TOCS 1997, section 7.2) for servers
//! that direct the flow.
//!
//! ```text
//! list of rank 0   . . a a . b | b . . . . c      blocks 0 and 1, of servers 0 and 1
//! to server 0      block 0: the pieces a and b
//! to server 1      block 1: the pieces b and c
//! ```
//!
//! Costs: messages, one for each client and mover; memory of a mover, the encoded pieces of its own
//! blocks, some 10 bytes a run or series.

use std::collections::BTreeMap;

use futures::future::join_all;
use penstock_layout::{Block, DiskSchema, Holding, ListPiece, exact};
use serde::{Deserialize, Serialize};

use crate::address::Step;
use crate::call::Call;
use crate::encoding::{decode, encode};
use crate::error::{Error, Kind, Result};
use crate::machine::{Machine, NodeId};
use crate::request::Request;

/// The piece that a rank's list has of one block, on its way.
#[derive(Debug, Serialize, Deserialize)]
struct BlockPiece {
    array: usize,
    object: u64,
    /// The block's number in the object.
    index: u64,
    /// The encoded piece.
    piece: Vec<u8>,
}

/// Cuts a rank's lists, one for each array of the call, into the messages for `movers` of blocks.
/// `mover_of` gives the number of a block's mover.
///
/// # Errors
/// When a piece cannot be encoded.
pub(crate) fn messages(
    requests: &[Request],
    lists: &[&Holding],
    movers: usize,
    mover_of: impl Fn(&Request, &Block) -> usize,
) -> Result<Vec<Vec<u8>>> {
    let mut parts: Vec<Vec<BlockPiece>> = (0..movers).map(|_| Vec::new()).collect();
    for (array, (request, list)) in requests.iter().zip(lists).enumerate() {
        for (block, piece) in list.pieces(&request.disk) {
            parts[mover_of(request, &block)].push(BlockPiece {
                array,
                object: block.object,
                index: block.index,
                piece: encode(&piece)?,
            });
        }
    }
    parts.iter().map(encode).collect()
}

/// Whether the ranks of a call have lists of their own.
pub(crate) fn are_in(requests: &[Request]) -> bool {
    requests.iter().any(|request| request.holders.are_lists())
}

/// The most servers that move blocks of a call.
pub(crate) fn servers(requests: &[Request]) -> usize {
    let servers = requests.iter().map(|request| request.servers);
    servers.max().unwrap_or(0)
}

/// Sends `movers` the pieces of this client's lists: see [`messages`].
///
/// # Errors
/// When a mover cannot be reached.
pub(crate) async fn send<M: Machine>(
    call: &Call<'_, M>,
    requests: &[Request],
    lists: &[&Holding],
    movers: &[NodeId],
    mover_of: impl Fn(&Request, &Block) -> usize,
) -> Result<()> {
    let bodies = messages(requests, lists, movers.len(), mover_of)?;
    let sends = movers.iter().zip(bodies).enumerate();
    let sends = sends.map(|(mover, (&node, body))| {
        let port = call.port(Step::List(exact::<u32>(mover)));
        call.machine.send(node, port, body, None)
    });
    join_all(sends).await.into_iter().collect()
}

/// The pieces that all ranks have of the blocks of one mover, by array and block. There are none
/// where a schema says who holds what.
#[derive(Debug, Default)]
pub(crate) struct Lists(BTreeMap<(usize, u64, u64), Vec<RankPiece>>);

/// The piece of a rank, encoded.
#[derive(Debug)]
struct RankPiece {
    rank: usize,
    piece: Vec<u8>,
}

impl Lists {
    /// Receives what all clients send to the mover with this number, which moves the blocks that
    /// are `own`.
    ///
    /// # Errors
    /// When a client sends what there cannot be.
    pub(crate) async fn receive<M: Machine>(
        call: &Call<'_, M>,
        requests: &[Request],
        mover: usize,
        is_own: impl Fn(&Request, &Block) -> bool,
    ) -> Result<Self> {
        let mut lists = Self::default();
        let mut received = Ok(());
        let port = call.port(Step::List(exact::<u32>(mover)));
        for _ in &call.party().clients {
            let message = call.machine.receive(port).await;
            let rank = call.party().rank(message.from);
            let rank = rank.ok_or_else(|| refusal("a node that is no client sends a list"));
            let taken = rank.and_then(|rank| lists.take(rank, requests, &message.body, &is_own));
            received = received.and(taken);
        }
        received.map(|()| lists)
    }

    /// Takes in what a rank sends.
    pub(crate) fn take(
        &mut self,
        rank: usize,
        requests: &[Request],
        body: &[u8],
        is_own: impl Fn(&Request, &Block) -> bool,
    ) -> Result<()> {
        for part in decode::<Vec<BlockPiece>>(body)? {
            let BlockPiece {
                array,
                object,
                index,
                piece,
            } = part;
            let request = requests.get(array);
            let request = request.filter(|request| request.holders.are_lists());
            let is_known = request.is_some_and(|request| {
                let block = request.disk.block_at(object, index);
                block.is_some_and(|block| is_own(request, &block))
            });
            if !is_known {
                let cause = format!("rank {rank} sends a list of a block that is not moved here");
                return Err(refusal(cause));
            }
            let pieces = self.0.entry((array, object, index)).or_default();
            pieces.push(RankPiece { rank, piece });
        }
        Ok(())
    }

    /// The blocks of an array in which ranks have pieces, in file order.
    pub(crate) fn blocks(&self, array: usize, disk: &DiskSchema) -> impl Iterator<Item = Block> {
        let all = self.0.range((array, 0, 0)..(array + 1, 0, 0));
        all.filter_map(move |(&(_, object, index), _)| disk.block_at(object, index))
    }

    /// Whether a rank has a piece of a block.
    pub(crate) fn touch(&self, array: usize, block: &Block) -> bool {
        let number = (array, block.object, block.index);
        self.0.contains_key(&number)
    }

    /// The ranks and their pieces of a block, ascending.
    ///
    /// # Errors
    /// [`Kind::Peer`] when a piece is none of this block.
    pub(crate) fn pieces(
        &self,
        array: usize,
        disk: &DiskSchema,
        block: &Block,
    ) -> Result<Vec<(usize, ListPiece)>> {
        let number = (array, block.object, block.index);
        let sent = self.0.get(&number).into_iter().flatten();
        let mut pieces = Vec::new();
        for RankPiece { rank, piece } in sent {
            let piece: ListPiece = decode(piece)?;
            if !piece.is_in_buffer(block.bytes / disk.width()) || piece.is_empty() {
                let cause = format!("rank {rank} sends a list that is not of its block");
                return Err(refusal(cause));
            }
            pieces.push((*rank, piece));
        }
        pieces.sort_by_key(|(rank, _)| *rank);
        Ok(pieces)
    }
}

/// Checks that no element of a block is in the pieces of two ranks, or in one of them twice.
///
/// # Errors
/// [`Kind::Overlap`], naming the ranks.
pub(crate) fn check_apart(block: &Block, pieces: &[(usize, &ListPiece)]) -> Result<()> {
    if ListPiece::are_disjoint(pieces.iter().map(|(_, piece)| *piece)) {
        return Ok(());
    }
    let mut who = "a rank writes twice".to_string();
    for (nth, (rank, piece)) in pieces.iter().enumerate() {
        let mut others = pieces[..nth].iter();
        let clashing = others.find(|(_, other)| !ListPiece::are_disjoint([*piece, *other]));
        if let Some((other, _)) = clashing {
            who = format!("ranks {other} and {rank} both write");
            break;
        }
    }
    let (start, shape) = (&block.region.start, &block.region.shape);
    let cause = format!("{who} an element of the {shape:?} from {start:?} on");
    Err(Error::new(Kind::Overlap, "writing lists", cause))
}

fn refusal(cause: impl Into<String>) -> Error {
    Error::new(Kind::Peer, "taking in lists", cause.into())
}
