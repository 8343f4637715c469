//! The answers of a node to packets.

use std::sync::Arc;

use penstock_engine::{CopyKind, Error, Kind, MemoryId, Message, NodeId, Port, Result, Window};
use penstock_layout::{Direction, Piece};

use super::Node;
use super::packet::{Header, Packet, ParcelPlace, Payload};
use crate::links::Arrival;
use crate::memory::buffer::{BufferName, Staging};
use crate::memory::parcel::{Loan, Parcel};

/// The most arrivals that a node takes in at a time.
const ARRIVALS_MAX: usize = 1024;

impl Node {
    /// Takes in what has come, but not so much that one who sends without a pause keeps the node
    /// from its own work. Returns true if there was anything.
    pub(super) fn answer_all(&self) -> bool {
        let mut any = false;
        for _ in 0..ARRIVALS_MAX {
            match self.links.poll() {
                Ok(None) => return any,
                Ok(Some(arrival)) => {
                    any = true;
                    match arrival {
                        Arrival::Packet(from, bytes) => self.take_in(from, bytes),
                        Arrival::Joined(node) => self.membership.join(node),
                        Arrival::Left(node, error) => self.depart(node, error),
                    }
                }
                Err(error) => {
                    self.fail(&error);
                    return true;
                }
            }
        }
        any
    }

    /// Takes in a packet. A node that sends what cannot be answered is cut off; no other is
    /// concerned.
    fn take_in(&self, from: NodeId, bytes: Vec<u8>) {
        if let Err(error) = Packet::decode(bytes).and_then(|packet| self.answer(from, packet)) {
            self.cut_off(from, error);
        }
    }

    fn answer(&self, from: NodeId, packet: Packet) -> Result<()> {
        let Packet { header, payload } = packet;
        match header {
            Header::Message {
                port,
                body,
                has_parcel,
            } => self.answer_message(from, port, payload, body, has_parcel),
            Header::Loan {
                ticket,
                port,
                body,
                bytes,
                lies,
            } => {
                let lender = (from, ticket);
                match lies {
                    ParcelPlace::InPacket => self.answer_sent(lender, port, payload, body, bytes),
                    ParcelPlace::OnHost(buffer) => {
                        let memory = self.mapped.borrow_mut().memory(from, &buffer)?;
                        self.answer_lent(lender, port, payload.into_bytes(), memory, bytes)
                    }
                    ParcelPlace::InProcess => match self.process.lendings.take(from, ticket) {
                        Some(memory) => {
                            self.answer_lent(lender, port, payload.into_bytes(), memory, bytes)
                        }
                        None => Ok(()), // its sender has given up
                    },
                }
            }
            Header::Copy {
                ticket,
                memory,
                direction,
                piece,
                window,
                buffer,
            } => {
                let copied = self.answer_copy(from, memory, direction, &piece, &window, &buffer);
                self.done(from, ticket, copied)
            }
            Header::Fetch {
                ticket,
                memory,
                width,
                piece,
            } => self.answer_fetch(from, ticket, memory, width, &piece),
            Header::Deliver {
                ticket,
                memory,
                width,
                piece,
            } => {
                let copied = self.answer_delivery(memory, width, &piece, payload.bytes());
                self.done(from, ticket, copied)
            }
            Header::Done { ticket, result } => {
                let asked = self.tickets.borrow_mut().remove(&ticket);
                if let Some(asked) = asked {
                    // Nobody waits any more if the call was given up.
                    let _ = asked.answer.send(result.map(|()| payload.into_bytes()));
                }
                Ok(())
            }
            Header::Left { error } => {
                self.depart(from, error);
                Ok(())
            }
        }
    }

    /// Tells a node that its request is done, or why it failed.
    pub(super) fn done(&self, to: NodeId, ticket: u64, result: Result<()>) -> Result<()> {
        self.post(to, &Header::Done { ticket, result }, 0, |_| {})
    }

    /// Puts a message into a mailbox.
    ///
    /// # Errors
    /// When its sender has sent too much that nobody here waits for.
    pub(super) fn deliver(
        &self,
        port: Port,
        from: NodeId,
        body: Vec<u8>,
        parcel: Option<Parcel>,
    ) -> Result<()> {
        let message = Message { from, body, parcel };
        let put = self
            .mail
            .put(port, message, self.links.mail_bytes_max(from));
        put.map_err(|kept| {
            let cause = format!("it has sent {kept} bytes that nobody waits for");
            Error::new(Kind::Peer, "hearing another node", cause)
        })
    }

    /// Takes in a message of the engine, its parcel behind its body.
    fn answer_message(
        &self,
        from: NodeId,
        port: Port,
        payload: Payload,
        body: usize,
        has_parcel: bool,
    ) -> Result<()> {
        let bytes = payload.bytes().len();
        if body > bytes || !has_parcel && body < bytes {
            return Err(cut_short(body, bytes));
        }
        match has_parcel.then_some(body) {
            None => self.deliver(port, from, payload.into_bytes(), None),
            Some(body) => {
                let (body, parcel) = payload.split(body).ok_or_else(|| cut_short(body, bytes))?;
                self.deliver(port, from, body, Some(parcel))
            }
        }
    }

    /// Takes in a message that its sender waits for, its parcel behind its body.
    fn answer_sent(
        &self,
        (from, ticket): (NodeId, u64),
        port: Port,
        payload: Payload,
        body: usize,
        bytes: usize,
    ) -> Result<()> {
        let came = payload.bytes().len();
        if came.checked_sub(body) != Some(bytes) {
            return Err(cut_short(body.saturating_add(bytes), came));
        }
        let (body, parcel) = payload.split(body).ok_or_else(|| cut_short(body, came))?;
        self.deliver(port, from, body, Some(parcel))?;
        self.done(from, ticket, Ok(()))
    }

    /// Takes in a message whose parcel lies in its sender's buffer. The node hands the parcel on if
    /// a future waits for it. Otherwise it keeps a copy, so that the sender has its buffer again.
    fn answer_lent(
        &self,
        lender: (NodeId, u64),
        port: Port,
        body: Vec<u8>,
        memory: Arc<Staging>,
        bytes: usize,
    ) -> Result<()> {
        let held = memory.bytes();
        let lent = Loan::new(memory, bytes, lender, &self.returned);
        let mut parcel = Parcel::Loan(lent.ok_or_else(|| cut_short(bytes, held))?);
        if !self.mail.is_awaited(port) {
            parcel = Parcel::Own(parcel.bytes().to_vec());
        }
        self.deliver(port, lender.0, body, Some(parcel))
    }

    /// Copies a piece between this client's memory and the buffer of a server of this host.
    fn answer_copy(
        &self,
        from: NodeId,
        memory: MemoryId,
        direction: Direction,
        piece: &Piece,
        window: &Window,
        buffer: &BufferName,
    ) -> Result<()> {
        let exposed = self.process.exposures.of(memory, self.me)?;
        let staging = self.mapped.borrow_mut().memory(from, buffer)?;
        exposed.check(piece, window.width)?;
        if !window.holds(piece, staging.bytes()) {
            let cause = "the buffer does not hold these elements";
            return Err(Error::new(
                Kind::Peer,
                "copying into a server's buffer",
                cause,
            ));
        }
        // SAFETY: memory and buffer hold the piece, as has just been checked; the server waits for
        // the answer before it touches the buffer.
        unsafe { exposed.copy(piece, window, staging.base(), direction, CopyKind::Kernels) };
        Ok(())
    }

    /// Sends a piece to a server of another host.
    fn answer_fetch(
        &self,
        from: NodeId,
        ticket: u64,
        memory: MemoryId,
        width: usize,
        piece: &Piece,
    ) -> Result<()> {
        let exposed = self.process.exposures.of(memory, self.me);
        let checked = exposed.and_then(|exposed| exposed.check(piece, width).map(|()| exposed));
        let exposed = match checked {
            Ok(exposed) => exposed,
            Err(error) => return self.done(from, ticket, Err(error)),
        };
        let answer = Header::Done {
            ticket,
            result: Ok(()),
        };
        self.post(from, &answer, piece.packed_bytes(width), |packed| {
            let (packed, direction) = (packed.as_mut_ptr(), Direction::Gather);
            // SAFETY: as for `answer_copy`, with the packet in the place of the buffer.
            unsafe { exposed.copy_packed(piece, width, packed, direction, CopyKind::Kernels) };
        })
    }

    /// Takes in a piece that a server of another host has sent.
    fn answer_delivery(
        &self,
        memory: MemoryId,
        width: usize,
        piece: &Piece,
        packed: &[u8],
    ) -> Result<()> {
        let exposed = self.process.exposures.of(memory, self.me)?;
        exposed.check(piece, width)?;
        let expected = piece.packed_bytes(width);
        if packed.len() != expected {
            return Err(cut_short(expected, packed.len()));
        }
        let (packed, direction) = (packed.as_ptr().cast_mut(), Direction::Scatter);
        // SAFETY: as for `answer_copy`; the packet has just been checked to hold the piece, and
        // scattering only reads it.
        unsafe { exposed.copy_packed(piece, width, packed, direction, CopyKind::Kernels) };
        Ok(())
    }
}

fn cut_short(expected: usize, came: usize) -> Error {
    let cause = format!("{came} bytes came of {expected}");
    Error::new(Kind::Peer, "taking in a message", cause)
}
