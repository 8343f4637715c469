//! Orders, requests and answers about open files.

use penstock_layout::{Block, DiskSchema, ListPiece, Piece, Share};
use serde::{Deserialize, Serialize};

use crate::address::{MemoryId, PartyId, Port};
use crate::error::{Error, Kind, Result};
use crate::machine::{NodeId, Opening, Operation};
use crate::party::Party;
use crate::span;
use crate::trace::{Span, arrow};

/// The most bytes of one request, unless one block alone has more.
pub(super) const TRANSFER_BYTES_MAX: u64 = 1 << 20;

/// The most blocks of one request.
pub(super) const BLOCKS_MAX: usize = 1 << 16;

/// The most files that a party opens in its life.
pub(super) const FILES_MAX: u64 = u32::MAX as u64 - 1;

/// A file id names a file that the servers of a party keep open. It is never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileId {
    /// The party whose clients use the file.
    pub party: PartyId,
    /// The file's number among the files of the party.
    pub number: u64,
}

impl FileId {
    /// The name of the memory that a client exposes for the request with this number on one of its
    /// files.
    pub fn memory(self, ticket: u64) -> MemoryId {
        let ticket = ticket & u64::from(u32::MAX);
        MemoryId::new([self.party.0, u64::from(u32::MAX) << 32 | ticket])
    }

    /// The mailbox for the answer to the request with this number. A client numbers its requests on
    /// one file.
    pub(super) fn answers(self, ticket: u64) -> Port {
        let file = self.number & u64::from(u32::MAX);
        // No call has this sequence number: see `CallId`.
        Port::new([self.party.0, u64::from(u32::MAX) << 32 | file, ticket])
    }
}

/// An order about a file, which all servers of a party carry out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// Open a file: each server its own part.
    Open {
        /// The name under which clients will use the file.
        file: FileId,
        /// The opening; each server puts in its own number.
        opening: Opening,
    },
    /// Write all changed blocks of a file to its disks, and make them safe if the file was opened
    /// so.
    Flush(FileId),
    /// Flush a file, and close it.
    Close(FileId),
}

/// A client asks a server to move its elements of some blocks. Elements to be written come as a
/// parcel, block after block in the order of the request, each piece dense and in the order of the
/// client's memory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TransferRequest {
    pub(crate) file: FileId,
    /// The number that the answer's mailbox has.
    pub(super) ticket: u64,
    pub(super) operation: Operation,
    /// The client's part of the array.
    pub(super) part: TransferPart,
    /// The object and the index of each block.
    pub(super) blocks: Vec<(u64, u64)>,
}

impl TransferRequest {
    /// The span of the request on the node of servers that it has come to.
    pub(crate) fn span(&self, party: &Party, (from, me): (NodeId, NodeId)) -> Span {
        let server = party.servers_on(me).next().unwrap_or(0);
        span!(
            parent: None,
            "request",
            kind = self.operation.name(),
            server = server as u64,
            client = from as u64,
            blocks = self.blocks.len() as u64,
            in_question = question(party, from, (self.file, self.ticket)),
        )
    }
}

/// The arrow of a client's request to a server. It does not tell the number of a party whose
/// servers stand, which is a secret.
pub(super) fn question(party: &Party, client: NodeId, (file, ticket): (FileId, u64)) -> u64 {
    let id = match party.stands {
        true => 0,
        false => party.id.0,
    };
    arrow(("transfer", id, client, file.number, ticket))
}

/// The part of an array that a client reads or writes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum TransferPart {
    /// A share.
    Share(Share),
    /// The piece of each block of the request, of a list.
    Pieces(Vec<ListPiece>),
}

/// A server answers a request. The elements that were read come as a parcel.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer(pub(super) Option<Error>);

/// The error for a client that asks for something impossible.
pub(super) fn refusal(cause: impl Into<String>) -> Error {
    Error::new(Kind::Peer, "answering a client", cause.into())
}

impl TransferPart {
    /// Checks that a share is one of an array of this shape. Pieces are checked with their blocks.
    ///
    /// # Errors
    /// When it is not.
    pub(super) fn check(&self, shape: &[u64]) -> Result<()> {
        match self {
            Self::Share(share) if !share.is_within(shape) => {
                Err(refusal("its part is not within the array"))
            }
            _ => Ok(()),
        }
    }

    /// The piece of a block, the `nth` of the request, if the part has been checked.
    ///
    /// # Errors
    /// When the part has none, or one that is not of the block.
    pub(super) fn piece(&self, nth: usize, block: &Block, disk: &DiskSchema) -> Result<Piece> {
        let piece = match self {
            Self::Share(share) => share.intersect(&block.region).map(Piece::from),
            Self::Pieces(pieces) => {
                let piece = pieces.get(nth).filter(|piece| !piece.is_empty());
                let elements = block.bytes / disk.width();
                let piece = piece.filter(|piece| piece.is_in_buffer(elements));
                piece.cloned().map(Piece::from)
            }
        };
        piece.ok_or_else(|| refusal("it has nothing of a block"))
    }
}
