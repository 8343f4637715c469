//! A node as the engine's machine.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use penstock_engine::{
    Change, CopyKind, Elements, Error, Kind, Machine, MemoryId, Message, NodeId, Opening, Port,
    Result, Window, Work,
};
use penstock_layout::{Direction, Piece, Region, Share, exact};

use super::Node;
use super::packet::{Header, ParcelPlace};
use super::transfers::Remote;
use crate::disk::real::RealDisk;
use crate::disk::sieve::RealSieve;
use crate::links::Distance;
use crate::memory::board::Posting;
use crate::memory::buffer::Buffer;
use crate::memory::client::{ClientMemory, copy_unpacked};
use crate::memory::exposures::Exposure;
use crate::memory::parcel::Parcel;

impl Machine for Node {
    type Memory = ClientMemory;
    type Exposure = Exposure;
    type Buffer = Buffer;
    type Parcel = Parcel;
    type File = RealDisk;
    type Sieve = RealSieve;

    fn me(&self) -> NodeId {
        self.me
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    async fn wait(&self, time: Duration) {
        self.alarms.wait(self.now() + time).await;
    }

    async fn work(&self, _work: Work) {}

    async fn send(
        &self,
        to: NodeId,
        port: Port,
        body: Vec<u8>,
        parcel: Option<Parcel>,
    ) -> Result<()> {
        if to == self.me {
            return self.deliver(port, to, body, parcel);
        }
        let header = Header::Message {
            port,
            body: body.len(),
            has_parcel: parcel.is_some(),
        };
        let parcel = parcel.as_ref().map_or(&[][..], Parcel::bytes);
        self.post(to, &header, body.len() + parcel.len(), |payload| {
            let (front, back) = payload.split_at_mut(body.len());
            front.copy_from_slice(&body);
            back.copy_from_slice(parcel);
        })
    }

    async fn transmit(
        &self,
        to: NodeId,
        port: Port,
        body: Vec<u8>,
        buffer: &Buffer,
        bytes: u64,
    ) -> Result<()> {
        let size = exact::<usize>(bytes);
        let distance = self.links.distance(to);
        if to == self.me {
            let parcel = Parcel::Own(buffer.bytes(0..size).to_vec());
            return self.deliver(port, to, body, Some(parcel));
        }
        let lies = match distance {
            Distance::Process => ParcelPlace::InProcess,
            Distance::Host => ParcelPlace::OnHost(buffer.name()?),
            Distance::Network => ParcelPlace::InPacket,
        };
        let inside = match distance {
            Distance::Network => size,
            Distance::Process | Distance::Host => 0,
        };
        let mut lending = None;
        let header = |ticket| {
            if distance == Distance::Process {
                let staging = buffer.staging().clone();
                lending = Some(self.process.lendings.lend(self.me, ticket, staging));
            }
            Header::Loan {
                ticket,
                port,
                body: body.len(),
                bytes: size,
                lies,
            }
        };
        let fill = |payload: &mut [u8]| {
            let (front, back) = payload.split_at_mut(body.len());
            front.copy_from_slice(&body);
            back.copy_from_slice(buffer.bytes(0..inside));
        };
        let asked = self.ask(to, Some(buffer), body.len() + inside, header, fill);
        let taken = asked.await;
        drop(lending);
        taken.map(|_| ())
    }

    async fn receive(&self, port: Port) -> Message<Parcel> {
        self.mail.next(port).await
    }

    fn absence(&self, node: NodeId) -> Option<Error> {
        Self::absence(self, node)
    }

    fn changes(&self) -> u64 {
        self.membership.changes()
    }

    async fn change(&self, from: u64) -> (u64, NodeId, Change) {
        self.membership.change(from).await
    }

    fn pack(
        &self,
        memory: MemoryId,
        share: &Share,
        elements: &Region,
        window: &Window,
    ) -> Result<Parcel> {
        let memory = self.process.exposures.of(memory, self.me)?;
        let mut parcel = vec![0; exact::<usize>(elements.elements()) * window.width];
        if let Some(piece) = share.intersect(elements).map(Piece::from) {
            let packed = parcel.as_mut_ptr();
            // SAFETY: the memory holds the share, and the parcel holds all of the elements, which
            // lie one behind the other in the window.
            unsafe { memory.copy(&piece, window, packed, Direction::Gather, CopyKind::Kernels) };
        }
        Ok(Parcel::Own(parcel))
    }

    fn unpack(
        &self,
        memory: MemoryId,
        parcel: &Parcel,
        share: &Share,
        elements: &Region,
        window: &Window,
    ) -> Result<()> {
        let memory = self.process.exposures.of(memory, self.me)?;
        let parcel = parcel.bytes();
        check_size(parcel, exact::<usize>(elements.elements()) * window.width)?;
        if let Some(piece) = share.intersect(elements).map(Piece::from) {
            let packed = parcel.as_ptr().cast_mut();
            // SAFETY: as above; scattering only reads the parcel.
            unsafe {
                memory.copy(
                    &piece,
                    window,
                    packed,
                    Direction::Scatter,
                    CopyKind::Kernels,
                )
            };
        }
        Ok(())
    }

    fn cut(&self, buffer: &Buffer, part: Range<u64>) -> Parcel {
        let part = buffer.bytes(exact::<usize>(part.start)..exact::<usize>(part.end));
        Parcel::Own(part.to_vec())
    }

    fn paste(&self, parcel: &Parcel, buffer: &Buffer, offset: u64) {
        buffer.fill(exact::<usize>(offset), parcel.bytes());
    }

    fn crc32c(&self, buffer: &Buffer, part: Range<u64>) -> u32 {
        crc32c::crc32c(buffer.bytes(exact::<usize>(part.start)..exact::<usize>(part.end)))
    }

    fn expose(&self, id: MemoryId, memory: ClientMemory) -> Exposure {
        let board = self
            .links
            .board(self.me)
            .filter(|_| self.copies_across.get());
        let posted = board.and_then(|board| Posting::new(board, id, &memory));
        self.process.exposures.expose(id, self.me, memory, posted)
    }

    fn buffer(&self, bytes: u64) -> Result<Buffer> {
        self.buffers.take(exact::<usize>(bytes))
    }

    fn clear(&self, buffer: &Buffer, bytes: u64, element: &[u8]) {
        buffer.clear(exact::<usize>(bytes), element);
    }

    fn copy(
        &self,
        memory: MemoryId,
        width: usize,
        pieces: &[Piece],
        from: Elements<'_, Self>,
        to: Elements<'_, Self>,
        by: CopyKind,
    ) -> Result<()> {
        let bytes: usize = pieces.iter().map(|piece| piece.packed_bytes(width)).sum();
        let from = self.at(memory, from, bytes)?;
        let to = self.at(memory, to, bytes)?;
        let mut dense = 0;
        for (nth, piece) in pieces.iter().enumerate() {
            // SAFETY: this node's share has the pieces, windows lie in their buffer, and send
            // buffers and parcels have just been checked to hold all pieces; the engine lets nobody
            // else use them meanwhile, and scattering only reads its source.
            unsafe { copy_piece(piece, nth, width, (&from, &to), dense, by)? };
            dense += piece.packed_bytes(width);
        }
        Ok(())
    }

    async fn memget(
        &self,
        memory: MemoryId,
        client: NodeId,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
    ) -> Result<()> {
        let remote = Remote { memory, client };
        self.transfer(remote, piece, window, buffer, Direction::Gather)
            .await
    }

    async fn memput(
        &self,
        memory: MemoryId,
        client: NodeId,
        piece: &Piece,
        window: &Window,
        buffer: &Buffer,
    ) -> Result<()> {
        let remote = Remote { memory, client };
        self.transfer(remote, piece, window, buffer, Direction::Scatter)
            .await
    }

    fn disk_for(&self, _server: usize) -> usize {
        0 // every node opens the store itself, all of it
    }

    async fn open(&self, opening: Opening) -> Result<RealDisk> {
        let device = self.device(&opening)?;
        Ok(RealDisk::open(device, self.opener.clone(), opening).await)
    }

    fn sieve(&self, words: &[u8], opening: &Opening) -> Result<RealSieve> {
        self.opener.sieve(words, opening).map(RealSieve)
    }
}

impl Node {
    /// Finds the address of elements in this process; a parcel must have `bytes` bytes from there
    /// on.
    fn at<'a>(&self, memory: MemoryId, place: Elements<'a, Self>, bytes: usize) -> Result<At<'a>> {
        Ok(match place {
            Elements::Exposed => At::Exposed(self.process.exposures.of(memory, self.me)?),
            Elements::Staged(windows, buffer) => At::Staged(windows, buffer.base()),
            Elements::Packed(buffer, at) => {
                let at = exact::<usize>(at);
                At::Dense(buffer.bytes(at..at + bytes).as_ptr().cast_mut())
            }
            Elements::Parcel(parcel, at) => {
                let rest = parcel.bytes().get(exact::<usize>(at)..).unwrap_or_default();
                let elements = rest.get(..bytes).ok_or_else(|| wrong_size(rest, bytes))?;
                At::Dense(elements.as_ptr().cast_mut())
            }
        })
    }
}

/// The address of [`Elements`] in this process.
enum At<'a> {
    Exposed(Arc<ClientMemory>),
    Staged(&'a [Window], *mut u8),
    Dense(*mut u8),
}

/// Copies the `nth` piece of several; in packed elements the piece begins at byte `dense`.
///
/// # Safety
/// Both places must hold the piece, and nobody else may access it meanwhile.
unsafe fn copy_piece(
    piece: &Piece,
    nth: usize,
    width: usize,
    places: (&At<'_>, &At<'_>),
    dense: usize,
    by: CopyKind,
) -> Result<()> {
    let (gather, scatter) = (Direction::Gather, Direction::Scatter);
    // SAFETY: the caller's promise.
    unsafe {
        match places {
            (At::Exposed(memory), At::Staged(windows, buffer)) => {
                memory.copy(piece, &windows[nth], *buffer, gather, by);
            }
            (At::Staged(windows, buffer), At::Exposed(memory)) => {
                memory.copy(piece, &windows[nth], *buffer, scatter, by);
            }
            (At::Exposed(memory), At::Dense(packed)) => {
                memory.copy_packed(piece, width, packed.add(dense), gather, by);
            }
            (At::Dense(packed), At::Exposed(memory)) => {
                memory.copy_packed(piece, width, packed.add(dense), scatter, by);
            }
            (At::Dense(packed), At::Staged(windows, buffer)) => {
                copy_unpacked(piece, &windows[nth], *buffer, packed.add(dense), gather, by);
            }
            (At::Staged(windows, buffer), At::Dense(packed)) => {
                copy_unpacked(
                    piece,
                    &windows[nth],
                    *buffer,
                    packed.add(dense),
                    scatter,
                    by,
                );
            }
            _ => {
                let cause = "both places are of one kind";
                return Err(Error::new(Kind::Unsupported, "copying elements", cause));
            }
        }
    }
    Ok(())
}

/// Checks that the expected number of bytes has come.
fn check_size(parcel: &[u8], expected: usize) -> Result<()> {
    if parcel.len() == expected {
        return Ok(());
    }
    Err(wrong_size(parcel, expected))
}

fn wrong_size(parcel: &[u8], expected: usize) -> Error {
    let cause = format!("{} bytes came, not {expected}", parcel.len());
    Error::new(Kind::Peer, "unpacking a message", cause)
}
