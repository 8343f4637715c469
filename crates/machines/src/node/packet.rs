//! The packets that nodes send one another: a header, then raw bytes.

use penstock_engine::{Error, Kind, MemoryId, Port, Result, Window};
use penstock_layout::{Direction, Piece};
use serde::{Deserialize, Serialize};

use crate::memory::buffer::BufferName;
use crate::memory::parcel::Parcel;

/// The place of a lent parcel.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum ParcelPlace {
    /// The parcel lies in a buffer of this process, known by sender and ticket.
    InProcess,
    /// The parcel lies in a buffer of this host.
    OnHost(BufferName),
    /// The parcel lies in the packet.
    InPacket,
}

/// The header of a packet.
#[derive(Debug, Serialize, Deserialize)]
pub enum Header {
    /// A message of the engine comes with its body, and behind the body its parcel.
    Message {
        port: Port,
        /// The bytes of the body.
        body: usize,
        /// Whether there is a parcel, which may be empty.
        has_parcel: bool,
    },
    /// A message of the engine comes with its body, while its parcel lies in a send buffer or, if
    /// need be, behind the body.
    Loan {
        /// The ticket to give back when the buffer may be used again.
        ticket: u64,
        port: Port,
        /// The bytes of the body.
        body: usize,
        /// The bytes of the parcel.
        bytes: usize,
        lies: ParcelPlace,
    },
    /// A server asks a client of its host to copy a piece between the client's memory and its
    /// buffer.
    Copy {
        /// The ticket to give back with the answer.
        ticket: u64,
        /// The client's memory.
        memory: MemoryId,
        /// The direction: out of the client's memory, or into it.
        direction: Direction,
        piece: Piece,
        /// The window of the piece in the buffer.
        window: Window,
        buffer: BufferName,
    },
    /// A server asks a client of another host to send a piece, packed.
    Fetch {
        /// The ticket to give back with the answer.
        ticket: u64,
        /// The client's memory.
        memory: MemoryId,
        /// The bytes of an element.
        width: usize,
        piece: Piece,
    },
    /// A server sends a client of another host a piece, packed, behind the header.
    Deliver {
        /// The ticket to give back with the answer.
        ticket: u64,
        /// The client's memory.
        memory: MemoryId,
        /// The bytes of an element.
        width: usize,
        piece: Piece,
    },
    /// A node answers a loan, a copy, a fetch or a delivery; the packed piece follows a fetch.
    Done {
        /// The ticket of the request.
        ticket: u64,
        result: Result<()>,
    },
    /// The sender leaves the machine.
    Left {
        /// The reason for leaving.
        error: Error,
    },
}

/// A packet, as it has come.
#[derive(Debug)]
pub struct Packet {
    pub header: Header,
    pub payload: Payload,
}

/// The bytes behind a packet's header.
#[derive(Debug)]
pub struct Payload {
    packet: Vec<u8>,
    start: usize,
}

impl Payload {
    /// The bytes where they came.
    pub fn bytes(&self) -> &[u8] {
        &self.packet[self.start..]
    }

    /// The first `body` bytes, and the others as a parcel; `None` if there are fewer.
    pub fn split(self, body: usize) -> Option<(Vec<u8>, Parcel)> {
        let first = self.bytes().get(..body)?.to_vec();
        Some((first, Parcel::End(self.packet, self.start + body)))
    }

    /// The bytes by themselves, moved to the front of their memory.
    pub fn into_bytes(self) -> Vec<u8> {
        let mut bytes = self.packet;
        bytes.drain(..self.start);
        bytes
    }
}

impl Packet {
    /// Encodes a packet with room for `payload` bytes at its end. Returns its bytes, and the place
    /// of the payload.
    ///
    /// # Errors
    /// When the header cannot be encoded.
    pub fn encode(header: &Header, payload: usize) -> Result<(Vec<u8>, usize)> {
        let mut bytes = postcard::to_stdvec(header)
            .map_err(|e| Error::new(Kind::Io, "encoding a packet", e))?;
        let start = bytes.len();
        bytes.resize(start + payload, 0);
        Ok((bytes, start))
    }

    /// Takes a packet's bytes apart.
    ///
    /// # Errors
    /// When the bytes are not a packet.
    pub fn decode(bytes: Vec<u8>) -> Result<Self> {
        let (header, rest) = postcard::take_from_bytes::<Header>(&bytes)
            .map_err(|e| Error::new(Kind::Peer, "decoding a packet", e))?;
        let start = bytes.len() - rest.len();
        let payload = Payload {
            packet: bytes,
            start,
        };
        Ok(Self { header, payload })
    }
}
