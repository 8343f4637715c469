//! The way of an independent request through a server.
//!
//! Block after block is claimed, brought into the cache, and copied: into a send buffer for a read,
//! out of the request's parcel for a write. One message answers the client.

use std::rc::Rc;

use penstock_layout::{Block, Piece, exact};

use super::messages::{Answer, BLOCKS_MAX, TRANSFER_BYTES_MAX, TransferRequest, refusal};
use super::sending::send_elements;
use super::server::{Files, Name, OpenFile};
use crate::address::MemoryId;
use crate::blocks::Intent;
use crate::encoding::encode;
use crate::error::Result;
use crate::machine::{CopyKind, Elements, Machine, NodeId, Operation, Window, Work};

/// The elements of a request in one block.
struct Part {
    block: Block,
    piece: Piece,
}

/// What a request has come to.
enum TransferOutcome<M: Machine> {
    /// The elements lie in this send buffer, and have this number of bytes.
    Read(M::Buffer, u64),
    /// The elements are in the cache; these blocks are full of changes, and are to be written.
    Written(Vec<Name>),
}

impl<M: Machine> Files<'_, M> {
    /// Serves a client's request, and answers it.
    pub(crate) async fn serve(
        &self,
        from: NodeId,
        request: TransferRequest,
        parcel: Option<M::Parcel>,
    ) {
        self.machine.work(Work::Thread).await;
        let answers = request.file.answers(request.ticket);
        let moved = self.transfer(&request, parcel).await;
        self.machine.work(Work::Reply(from)).await;
        let (error, moved) = match moved {
            Ok(moved) => (None, moved),
            Err(error) => (Some(error), TransferOutcome::Written(Vec::new())),
        };
        let Ok(body) = encode(&Answer(error)) else {
            return;
        };
        // A client that has left needs no answer.
        match moved {
            TransferOutcome::Read(buffer, bytes) => {
                let to = (from, answers);
                let _ = send_elements(self.machine, to, body, &buffer, bytes).await;
            }
            TransferOutcome::Written(full) => {
                let _ = self.machine.send(from, answers, body, None).await;
                for name in full {
                    self.write_back(name).await;
                }
            }
        }
    }

    /// Moves the elements of a request.
    async fn transfer(
        &self,
        request: &TransferRequest,
        parcel: Option<M::Parcel>,
    ) -> Result<TransferOutcome<M>> {
        let file = self.file(request.file)?;
        if request.blocks.len() > BLOCKS_MAX {
            return Err(refusal("it asks for too many blocks at once"));
        }
        request.part.check(file.disk.shape())?;
        file.check()?;
        match (request.operation, parcel) {
            (Operation::Read, _) => self.read(&file, request).await,
            (Operation::Write, Some(parcel)) => self.write(&file, request, &parcel).await,
            (Operation::Write, None) => Err(refusal("its write has no data")),
        }
    }

    async fn read(
        &self,
        file: &Rc<OpenFile<M>>,
        request: &TransferRequest,
    ) -> Result<TransferOutcome<M>> {
        let (width, parts) = (file.disk.width(), parts(file, request)?);
        let elements = parts.iter().map(|part| part.piece.elements());
        let bytes = elements.fold(0, u64::saturating_add).saturating_mul(width);
        if parts.len() > 1 && bytes > TRANSFER_BYTES_MAX {
            return Err(refusal("it asks for too much at once"));
        }
        let send = self.machine.buffer(bytes)?;
        let mut at = 0;
        for Part { block, piece } in &parts {
            let (claim, cached) = self.bring_in(file, block, Intent::Read, false).await?;
            let windows = [Window::of_block(block, width)];
            self.machine.copy(
                MemoryId::NONE,
                exact::<usize>(width),
                std::slice::from_ref(piece),
                Elements::Staged(&windows, &*cached),
                Elements::Packed(&send, at),
                CopyKind::Kernels,
            )?;
            let copied = piece.elements() * width;
            self.machine.work(Work::Copy(copied)).await;
            at += copied;
            self.note_read(file, block, copied);
            self.release(claim);
        }
        Ok(TransferOutcome::Read(send, bytes))
    }

    async fn write(
        &self,
        file: &Rc<OpenFile<M>>,
        request: &TransferRequest,
        parcel: &M::Parcel,
    ) -> Result<TransferOutcome<M>> {
        let width = file.disk.width();
        let (mut at, mut full) = (0, Vec::new());
        for Part { block, piece } in parts(file, request)? {
            let bytes = piece.elements() * width;
            let is_replaced = bytes == block.bytes;
            let (claim, cached) = self
                .bring_in(file, &block, Intent::Change, is_replaced)
                .await?;
            let windows = [Window::of_block(&block, width)];
            let copied = self.machine.copy(
                MemoryId::NONE,
                exact::<usize>(width),
                &[piece],
                Elements::Parcel(parcel, at),
                Elements::Staged(&windows, &*cached),
                CopyKind::Kernels,
            );
            if let Err(error) = copied {
                if is_replaced {
                    self.discard(file, &block); // nothing was read into its buffer
                }
                self.release(claim);
                return Err(error);
            }
            let is_full = self.note_change(file, &block, bytes);
            self.machine.work(Work::Copy(bytes)).await;
            at += bytes;
            self.release(claim);
            if is_full {
                full.push(file.name(&block));
            }
        }
        Ok(TransferOutcome::Written(full))
    }
}

/// The parts of a request, in its order.
fn parts<M: Machine>(file: &OpenFile<M>, request: &TransferRequest) -> Result<Vec<Part>> {
    let part = |(nth, &(object, index)): (usize, &(u64, u64))| {
        let block = file.block(object, index)?;
        let piece = request.part.piece(nth, &block, &file.disk)?;
        Ok(Part { block, piece })
    };
    request.blocks.iter().enumerate().map(part).collect()
}
