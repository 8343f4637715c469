//! The messages between clients and servers of traditional caching.

use penstock_layout::{Block, ListPiece};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};

/// A client asks a server to move some bytes of a block. Bytes to be written come as a parcel.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ask {
    /// The number that the answer repeats.
    pub(super) ticket: u64,
    pub(super) object: u64,
    /// The block's number in the object.
    pub(super) index: u64,
    pub(super) part: AskedPart,
}

/// The part of a block that a client asks for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum AskedPart {
    /// Bytes that lie together.
    Run {
        /// The first byte, counted in the block.
        offset: u64,
        bytes: u64,
    },
    /// The piece of the client's list, whose elements come one behind the other in a parcel.
    List(ListPiece),
}

impl AskedPart {
    /// The bytes of the part, of elements of `width` bytes.
    pub(super) fn bytes(&self, width: u64) -> u64 {
        match self {
            Self::Run { bytes, .. } => *bytes,
            Self::List(piece) => piece.bytes(width),
        }
    }

    /// Checks that a block has the part.
    pub(super) fn check(&self, block: &Block, width: u64) -> Result<()> {
        let is_in = match self {
            Self::Run { offset, bytes } => {
                let end = offset.checked_add(*bytes);
                end.is_some_and(|end| end <= block.bytes)
            }
            Self::List(piece) => piece.is_in_buffer(block.bytes / width),
        };
        match is_in {
            true => Ok(()),
            false => Err(refusal("it asks for bytes beyond a block")),
        }
    }
}

/// The error for a client that asks for something impossible.
pub(super) fn refusal(what: &str) -> Error {
    Error::new(Kind::Peer, "answering a client", what)
}

/// A server answers a client. The bytes read come as a parcel.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) ticket: u64,
    pub(super) error: Option<Error>,
}
