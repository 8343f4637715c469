//! Memget and memput: the copies between a server's buffer and the exposed memory of a client.

use futures::channel::oneshot;
use penstock_engine::{CopyKind, Error, Kind, MemoryId, NodeId, Result, Window};
use penstock_layout::{Direction, Piece};

use super::packet::Header;
use super::{Node, Ticket};
use crate::links::Distance;
use crate::memory::board::CopyOutcome;
use crate::memory::buffer::Buffer;
use crate::memory::client::copy_unpacked;

/// A remote is the memory that a client exposes.
#[derive(Clone, Copy)]
pub(super) struct Remote {
    pub(super) memory: MemoryId,
    pub(super) client: NodeId,
}

impl Node {
    /// Posts a packet with a ticket, and waits for the payload of its answer. Until then `buffer`
    /// is nobody else's, if others may copy from it or into it: also if nobody waits any more.
    pub(super) async fn ask(
        &self,
        peer: NodeId,
        buffer: Option<&Buffer>,
        payload: usize,
        header: impl FnOnce(u64) -> Header,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Vec<u8>> {
        if let Some(error) = self.absence(peer) {
            return Err(error);
        }
        let ticket = self.next_ticket.get();
        self.next_ticket.set(ticket + 1);
        let (answer, payload_of_answer) = oneshot::channel();
        let asked = Ticket {
            peer,
            answer,
            _buffer: buffer.map(|buffer| buffer.staging().clone()),
        };
        let header = header(ticket);
        self.tickets.borrow_mut().insert(ticket, asked);
        if let Err(error) = self.post(peer, &header, payload, fill) {
            self.tickets.borrow_mut().remove(&ticket);
            return Err(error);
        }
        payload_of_answer.await.unwrap_or_else(|_| {
            let doing = "waiting for a client's answer";
            Err(Error::new(Kind::Peer, doing, "the session has ended"))
        })
    }

    /// Copies a piece between a buffer, in which `window` places it, and the memory that a client
    /// exposes.
    pub(super) async fn transfer(
        &self,
        remote: Remote,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
        direction: Direction,
    ) -> Result<()> {
        match (self.links.distance(remote.client), direction) {
            (Distance::Process, _) => self.copy_here(remote, piece, window, buffer, direction),
            (Distance::Host, _) if self.copy_across(remote, piece, window, buffer, direction) => {
                Ok(())
            }
            (Distance::Host, _) => {
                let asked = self.ask_for_copy(remote, piece, window, buffer, direction);
                asked.await
            }
            (Distance::Network, Direction::Gather) => {
                self.fetch(remote, piece, window, buffer).await
            }
            (Distance::Network, Direction::Scatter) => {
                self.send_piece(remote, piece, window, buffer).await
            }
        }
    }

    /// Copies from or to a client in this process.
    fn copy_here(
        &self,
        Remote { memory, client }: Remote,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
        direction: Direction,
    ) -> Result<()> {
        let exposed = self.process.exposures.of(memory, client)?;
        exposed.check(piece, window.width)?;
        // SAFETY: the engine keeps windows of one buffer disjoint and inside it; the client's
        // memory holds the piece, as has just been checked, and is left alone until the verdict.
        unsafe { exposed.copy(piece, window, buffer.base(), direction, CopyKind::Kernels) };
        Ok(())
    }

    /// Copies from or to a client in another process of this host, if the kernel lets this process
    /// copy. False if the client has to copy.
    fn copy_across(
        &self,
        Remote { memory, client }: Remote,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
        direction: Direction,
    ) -> bool {
        if !self.copies_across.get() {
            return false;
        }
        let board = self.links.board(client);
        let Some(found) = board.as_ref().and_then(|board| board.board().find(memory)) else {
            return false;
        };
        // SAFETY: as for `copy_here`.
        let copied = unsafe { found.copy(piece, window, buffer.base(), direction) };
        self.copies_across.set(copied != CopyOutcome::Never);
        copied == CopyOutcome::All
    }

    /// Asks a client in another process of this host to copy between its memory and this node's
    /// shared buffer.
    async fn ask_for_copy(
        &self,
        remote: Remote,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
        direction: Direction,
    ) -> Result<()> {
        let name = buffer.name()?;
        let header = |ticket| Header::Copy {
            ticket,
            memory: remote.memory,
            direction,
            piece: piece.clone(),
            window: window.clone(),
            buffer: name,
        };
        let asked = self.ask(remote.client, Some(buffer), 0, header, |_| {});
        asked.await.map(|_| ())
    }

    /// Gets a piece from a client of another host.
    async fn fetch(
        &self,
        remote: Remote,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
    ) -> Result<()> {
        let width = window.width;
        let header = |ticket| Header::Fetch {
            ticket,
            memory: remote.memory,
            width,
            piece: piece.clone(),
        };
        let mut packed = self.ask(remote.client, None, 0, header, |_| {}).await?;
        let expected = piece.packed_bytes(width);
        if packed.len() != expected {
            let cause = format!("{} bytes came of {expected}", packed.len());
            let doing = "fetching a piece from a client";
            return Err(Error::new(Kind::Peer, doing, cause));
        }
        let (packed, direction) = (packed.as_mut_ptr(), Direction::Gather);
        // SAFETY: as for `copy_here`; `packed` has just been checked to hold the piece.
        unsafe {
            copy_unpacked(
                piece,
                window,
                buffer.base(),
                packed,
                direction,
                CopyKind::Kernels,
            )
        };
        Ok(())
    }

    /// Puts a piece into the memory of a client of another host.
    async fn send_piece(
        &self,
        remote: Remote,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
    ) -> Result<()> {
        let width = window.width;
        let header = |ticket| Header::Deliver {
            ticket,
            memory: remote.memory,
            width,
            piece: piece.clone(),
        };
        let fill = |packed: &mut [u8]| {
            let (packed, direction) = (packed.as_mut_ptr(), Direction::Scatter);
            // SAFETY: as for `copy_here`; the packet has room for the piece, and the buffer is only
            // read.
            unsafe {
                copy_unpacked(
                    piece,
                    window,
                    buffer.base(),
                    packed,
                    direction,
                    CopyKind::Kernels,
                )
            };
        };
        let bytes = piece.packed_bytes(width);
        let sent = self.ask(remote.client, None, bytes, header, fill);
        sent.await.map(|_| ())
    }
}
