//! What nodes send one another: a header, then raw bytes.

use std::ops::Range;

use penstock_engine::{Error, Kind, NodeId, Result, Tag, Window};
use penstock_layout::{Direction, Piece};
use serde::{Deserialize, Serialize};

use crate::memory::buffer::BufferName;

/// Where the parcel of a message is that was lent.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum ParcelPlace {
    /// In a buffer of this process, known by sender and ticket.
    InProcess,
    /// In a buffer of this host.
    OnHost(BufferName),
    /// In the packet.
    InPacket,
}

/// The header of a packet.
#[derive(Debug, Serialize, Deserialize)]
pub enum Header {
    /// A message of the engine; its body follows, and behind it its parcel.
    Message {
        /// Whom it is for.
        tag: Tag,
        /// Bytes of the body.
        body: usize,
        /// Whether there is a parcel, which may be empty.
        has_parcel: bool,
    },
    /// A message of the engine whose parcel lies in a send buffer; its body follows, and behind it,
    /// if need be, the parcel.
    Loan {
        /// To be given back when the buffer may be used again.
        ticket: u64,
        /// Whom it is for.
        tag: Tag,
        /// Bytes of the body.
        body: usize,
        /// Bytes of the parcel.
        bytes: usize,
        /// Where it is.
        lies: ParcelPlace,
    },
    /// To a client of the same host: copy a piece between your memory and my buffer.
    Copy {
        /// To be given back with the answer.
        ticket: u64,
        /// The call whose memory is meant.
        call: u64,
        /// Out of the client's memory, or into it.
        direction: Direction,
        /// What to copy.
        piece: Piece,
        /// Where it lies in the buffer.
        window: Window,
        /// The buffer.
        buffer: BufferName,
    },
    /// To a client of another host: send me a piece, packed.
    Fetch {
        /// To be given back with the answer.
        ticket: u64,
        /// The call whose memory is meant.
        call: u64,
        /// Bytes an element.
        width: usize,
        /// What to send.
        piece: Piece,
    },
    /// To a client of another host: the piece, packed, follows.
    Deliver {
        /// To be given back with the answer.
        ticket: u64,
        /// The call whose memory is meant.
        call: u64,
        /// Bytes an element.
        width: usize,
        /// What it is.
        piece: Piece,
    },
    /// The answer to a parcel that was lent, or to any of the three; after a fetch, the packed
    /// piece follows.
    Done {
        /// The ticket of what is answered.
        ticket: u64,
        /// How it went.
        result: Result<()>,
    },
    /// The sender has left the session.
    Left {
        /// The calls in which it takes no further part.
        calls: Vec<Range<u64>>,
        /// Why.
        error: Error,
    },
}

/// A packet that has come.
#[derive(Debug)]
pub struct Packet {
    /// The node that sent it.
    pub from: NodeId,
    /// What it is about.
    pub header: Header,
    /// The bytes behind the header.
    pub payload: Vec<u8>,
}

impl Packet {
    /// The bytes of a packet with room for `payload` bytes at its end, and where those begin.
    ///
    /// # Errors
    /// When the header cannot be encoded.
    pub fn encode(from: NodeId, header: &Header, payload: usize) -> Result<(Vec<u8>, usize)> {
        let mut bytes = postcard::to_stdvec(&(from, header))
            .map_err(|e| Error::new(Kind::Io, "encoding a packet", e))?;
        let start = bytes.len();
        bytes.resize(start + payload, 0);
        Ok((bytes, start))
    }

    /// Takes a packet's bytes apart.
    ///
    /// # Errors
    /// When they are not a packet.
    pub fn decode(mut bytes: Vec<u8>) -> Result<Self> {
        let ((from, header), rest) = postcard::take_from_bytes::<(NodeId, Header)>(&bytes)
            .map_err(|e| Error::new(Kind::Io, "decoding a packet", e))?;
        let start = bytes.len() - rest.len();
        bytes.drain(..start);
        Ok(Self {
            from,
            header,
            payload: bytes,
        })
    }
}
