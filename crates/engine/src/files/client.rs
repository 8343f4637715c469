//! A client's requests on an open file.
//!
//! The client works out by itself which blocks hold its part of the array, and which server has
//! each. It asks each server for its blocks only, for as many at once as one message may bring:
//!
//! ```text
//! part      . x x | x x x | x . .      blocks 0 1 2 of servers 0 1 0
//! server 0  blocks 0 and 2, one request
//! server 1  block 1, one request, at the same time
//! ```
//!
//! A request moves the elements of each block at one moment; others may come between two blocks.

use std::cell::Cell;
use std::sync::Arc;

use futures::stream::{FuturesUnordered, StreamExt};
use penstock_layout::{DiskSchema, Holding, Piece, Share, exact};

use super::messages::{
    Answer, BLOCKS_MAX, FileId, TRANSFER_BYTES_MAX, TransferPart, TransferRequest, question,
};
use super::sending::send_elements;
use crate::address::{MemoryId, Port};
use crate::collective::command::Command;
use crate::encoding::{decode, encode};
use crate::error::{Error, Kind, Result};
use crate::machine::{CopyKind, Elements, Machine, Operation, Work};
use crate::own::{OwnBlock, OwnPart};
use crate::party::Attendance;
use crate::span;
use crate::trace::Instrument;

/// The most requests of one client under way at each server.
const UNDER_WAY_MAX: usize = 2;

/// A client of an open file.
pub struct FileClient<'a, M: Machine> {
    machine: &'a M,
    attendance: &'a Attendance,
    file: FileId,
    disk: &'a DiskSchema,
    servers: usize,
    /// The number of the next request on this file.
    tickets: &'a Cell<u64>,
}

/// The part of an array that a client moves by itself.
#[derive(Debug, Clone)]
pub enum FilePart {
    /// A share.
    Share(Share),
    /// A list, which must be of the array: [`Holding::file_bounds`].
    List(Arc<Holding>),
}

/// What one server is asked for in an access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AskedBlocks {
    /// The number of requests.
    pub requests: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The bytes of the elements that the client has of these blocks.
    pub bytes: u64,
    /// The bytes of the blocks.
    pub block_bytes: u64,
}

/// Says what each of `servers` servers is asked for when a client moves a part of a file by itself,
/// in time in proportion to the blocks.
pub fn asked_blocks(disk: &DiskSchema, servers: usize, part: &FilePart) -> Vec<AskedBlocks> {
    let mut asked = vec![AskedBlocks::default(); servers];
    let mut batches = vec![(0, 0); servers];
    for OwnBlock { block, pieces } in part.own().blocks(disk) {
        let server = disk.server_of(&block, servers);
        let (of_server, (batch_blocks, batch_bytes)) = (&mut asked[server], &mut batches[server]);
        let mut held = 0;
        for (_, piece) in pieces {
            let bytes = piece.elements() * disk.width();
            if of_server.requests == 0 || is_full((*batch_blocks, *batch_bytes), bytes) {
                of_server.requests += 1;
                (*batch_blocks, *batch_bytes) = (0, 0);
            }
            *batch_blocks += 1;
            *batch_bytes += bytes;
            held += bytes;
        }
        of_server.blocks += 1;
        of_server.bytes += held;
        of_server.block_bytes += block.bytes;
    }
    asked
}

/// Whether a request that has these blocks and bytes has no room for `more` bytes.
fn is_full((blocks, bytes): (usize, u64), more: u64) -> bool {
    bytes > 0 && (bytes + more > TRANSFER_BYTES_MAX || blocks == BLOCKS_MAX)
}

impl FilePart {
    fn own(&self) -> OwnPart<'_> {
        match self {
            Self::Share(share) if share.elements() == 0 => OwnPart::Shares(Vec::new()),
            Self::Share(share) => OwnPart::Shares(vec![(0, share.clone())]),
            Self::List(list) => OwnPart::List(list),
        }
    }
}

/// The blocks of one request, and the pieces that the client has of them.
struct Batch {
    server: usize,
    blocks: Vec<(u64, u64)>,
    pieces: Vec<Piece>,
    bytes: u64,
}

impl Batch {
    fn new(server: usize) -> Self {
        Self {
            server,
            blocks: Vec::new(),
            pieces: Vec::new(),
            bytes: 0,
        }
    }

    /// The client's part of the array, as the server is told.
    fn part(&self, own: &OwnPart<'_>) -> TransferPart {
        match own {
            OwnPart::Shares(shares) => TransferPart::Share(shares[0].1.clone()),
            OwnPart::List(_) => {
                let lists = self.pieces.iter().filter_map(|piece| match piece {
                    Piece::List(piece) => Some(piece.clone()),
                    Piece::Share(_) => None,
                });
                TransferPart::Pieces(lists.collect())
            }
        }
    }
}

impl<'a, M: Machine> FileClient<'a, M> {
    /// Makes the client of a file that the first `servers` servers of the party have open, with
    /// blocks of `disk`. `tickets` counts this client's requests on the file.
    pub fn new(
        machine: &'a M,
        attendance: &'a Attendance,
        file: FileId,
        (disk, servers): (&'a DiskSchema, usize),
        tickets: &'a Cell<u64>,
    ) -> Self {
        Self {
            machine,
            attendance,
            file,
            disk,
            servers,
            tickets,
        }
    }

    /// Moves the elements of `part` between the file and the memory that this client exposes under
    /// this name. After an error a part of the elements may have been moved.
    ///
    /// # Errors
    /// The first error of a server, and the reason of a server that has left.
    pub async fn transfer(
        &self,
        operation: Operation,
        part: &FilePart,
        memory: MemoryId,
    ) -> Result<()> {
        let own = part.own();
        if own.is_empty() {
            return Ok(());
        }
        let span = span!(parent: None, "access", kind = operation.name());
        let moving = self.transfer_all(operation, &own, memory).instrument(span);
        self.attendance.unless_broken(moving).await?
    }

    async fn transfer_all(
        &self,
        operation: Operation,
        own: &OwnPart<'_>,
        memory: MemoryId,
    ) -> Result<()> {
        let mut batches: Vec<_> = (0..self.servers).map(Batch::new).collect();
        let mut under_way = FuturesUnordered::new();
        let mut moved = Ok(());
        for OwnBlock { block, pieces } in own.blocks(self.disk) {
            let server = self.disk.server_of(&block, self.servers);
            for (_, piece) in pieces {
                let batch = &mut batches[server];
                let bytes = piece.elements() * self.disk.width();
                if is_full((batch.blocks.len(), batch.bytes), bytes) {
                    let full = std::mem::replace(batch, Batch::new(server));
                    under_way.push(self.ask(operation, own, memory, full));
                }
                let batch = &mut batches[server];
                batch.blocks.push((block.object, block.index));
                batch.pieces.push(piece);
                batch.bytes += bytes;
            }
            while moved.is_ok() && under_way.len() >= UNDER_WAY_MAX * self.servers {
                moved = under_way.next().await.unwrap_or(Ok(()));
            }
            if moved.is_err() {
                break;
            }
        }
        if moved.is_ok() {
            let rest = batches.into_iter().filter(|batch| batch.bytes > 0);
            under_way.extend(rest.map(|batch| self.ask(operation, own, memory, batch)));
        }
        // Requests under way are ended also after an error: servers take elements from here.
        while let Some(ended) = under_way.next().await {
            moved = moved.and(ended);
        }
        moved
    }

    /// Sends one request, and waits for its answer.
    async fn ask(
        &self,
        operation: Operation,
        own: &OwnPart<'_>,
        memory: MemoryId,
        batch: Batch,
    ) -> Result<()> {
        let ticket = self.tickets.get();
        self.tickets.set(ticket + 1);
        let party = &self.attendance.party;
        let span = span!(
            "question",
            kind = operation.name(),
            to = batch.server as u64,
            bytes = batch.bytes,
            out_question = question(party, self.machine.me(), (self.file, ticket)),
        );
        let asking = self.ask_server(operation, own, memory, (batch, ticket));
        asking.instrument(span).await
    }

    async fn ask_server(
        &self,
        operation: Operation,
        own: &OwnPart<'_>,
        memory: MemoryId,
        (batch, ticket): (Batch, u64),
    ) -> Result<()> {
        let Self { machine, file, .. } = self;
        let width = exact::<usize>(self.disk.width());
        let to = self.attendance.party.servers[batch.server];
        let request = Command::Transfer(TransferRequest {
            file: *file,
            ticket,
            operation,
            part: batch.part(own),
            blocks: batch.blocks,
        });
        let body = encode(&request)?;
        match operation {
            Operation::Read => {
                machine.work(Work::Request(to, 0)).await;
                machine.send(to, Port::SERVERS, body, None).await?;
            }
            Operation::Write => {
                machine.work(Work::Request(to, batch.bytes)).await;
                let send = machine.buffer(batch.bytes)?;
                let packed = Elements::Packed(&send, 0);
                let by = CopyKind::Kernels;
                machine.copy(memory, width, &batch.pieces, Elements::Exposed, packed, by)?;
                send_elements(*machine, (to, Port::SERVERS), body, &send, batch.bytes).await?;
            }
        }
        let message = machine.receive(file.answers(ticket)).await;
        machine.work(Work::Answer).await;
        let Answer(error) = decode(&message.body)?;
        match (error, operation, message.parcel) {
            (Some(error), ..) => Err(error),
            (None, Operation::Write, _) => Ok(()),
            (None, Operation::Read, Some(parcel)) => {
                let (from, by) = (Elements::Parcel(&parcel, 0), CopyKind::Kernels);
                machine.copy(memory, width, &batch.pieces, from, Elements::Exposed, by)
            }
            (None, Operation::Read, None) => {
                let cause = format!("node {to} sent an answer without data");
                Err(Error::new(
                    Kind::Peer,
                    "waiting for a server's answer",
                    cause,
                ))
            }
        }
    }
}
