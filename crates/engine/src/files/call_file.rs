//! The file of a collective call: opened for the call alone, or open before it.

use std::ops::Range;
use std::rc::Rc;

use penstock_layout::Block;

use super::disk::{finish, read, write, write_parts};
use super::server::{BlockClaim, Files, OpenFile};
use crate::blocks::Intent;
use crate::call::Call;
use crate::error::{Error, Kind, Result};
use crate::machine::{BlockFile, Machine, Operation};
use crate::outcome::Digest;
use crate::request::Request;

/// One server's part of the file of a collective call.
pub(crate) enum CallFile<'a, M: Machine> {
    /// The call has opened the file, and nobody else uses it.
    Own(M::File),
    /// The servers have the file open, and others use it, too: this server's number is last.
    Shared(&'a Files<'a, M>, Rc<OpenFile<M>>, usize),
}

impl<'a, M: Machine> CallFile<'a, M> {
    /// Opens the file of a request on this server, or finds it among the open `files`.
    ///
    /// # Errors
    /// The error of the disk; [`Kind::Schema`] when the request is not of the open file's blocks.
    pub(crate) async fn open(
        call: Call<'a, M>,
        request: &Request,
        server: usize,
        files: Option<&'a Files<'a, M>>,
    ) -> Result<Self> {
        let Some(id) = request.file else {
            return call
                .machine
                .open(request.opening(server))
                .await
                .map(Self::Own);
        };
        let unfit = |cause| Error::new(Kind::Schema, "serving a request on an open file", cause);
        let files = files.ok_or_else(|| unfit("no files are open here"))?;
        let file = files.file(id)?;
        if !file.fits(&request.disk, request.servers) {
            return Err(unfit("the file has other blocks"));
        }
        Ok(Self::Shared(files, file, server))
    }

    /// Whether the schema's order is the order on the disk already.
    pub(crate) fn is_in_schema_order(&self) -> bool {
        self.part().is_none_or(BlockFile::is_in_schema_order)
    }

    /// The position of a block on the disk.
    pub(crate) fn position(&self, block: &Block) -> (u64, u64) {
        self.part().map_or((0, 0), |part| part.position(block))
    }

    fn part(&self) -> Option<&M::File> {
        match self {
            Self::Own(part) => Some(part),
            Self::Shared(_, file, server) => file.part_of(*server),
        }
    }

    /// Claims a block, if others use the file, too.
    pub(crate) async fn claim(
        &self,
        block: &Block,
        operation: Operation,
    ) -> Option<BlockClaim<'a>> {
        let intent = match operation {
            Operation::Read => Intent::Read,
            Operation::Write => Intent::Change,
        };
        match self {
            Self::Own(_) => None,
            Self::Shared(files, file, _) => Some(files.claim(file.name(block), intent).await),
        }
    }

    /// Reads a claimed block.
    pub(crate) async fn read(&self, block: &Block, buffer: &M::Buffer) -> Result<()> {
        match self {
            Self::Own(part) => read(part, block, buffer).await,
            Self::Shared(files, file, _) => files.read_around(file, block, buffer).await,
        }
    }

    /// Writes a claimed block.
    pub(crate) async fn write(&self, block: &Block, buffer: &M::Buffer) -> Result<()> {
        match self {
            Self::Own(part) => write(part, block, buffer).await,
            Self::Shared(files, file, _) => files.write_around(file, block, buffer).await,
        }
    }

    /// Writes parts of a block, in bytes of the block, of a file that the call has opened.
    ///
    /// # Errors
    /// The error of the disk, also where it moves no parts; [`Kind::Unsupported`] for an open file.
    pub(crate) async fn write_parts(
        &self,
        block: &Block,
        parts: &[Range<u64>],
        buffer: &M::Buffer,
    ) -> Result<()> {
        match self {
            Self::Own(part) => write_parts(part, block, parts, buffer).await,
            Self::Shared(..) => {
                let cause = "the file is open, and its blocks are written whole";
                Err(Error::new(
                    Kind::Unsupported,
                    "writing parts of a block",
                    cause,
                ))
            }
        }
    }

    /// Ends the writes.
    pub(crate) async fn finish(&self) -> Result<()> {
        match self.part() {
            Some(part) => finish(part).await,
            None => Ok(()),
        }
    }

    /// The digests of the objects that were written.
    pub(crate) fn digests(&self) -> Vec<Digest> {
        match self {
            Self::Own(part) => part.digests(),
            Self::Shared(..) => Vec::new(),
        }
    }

    /// What the director must know of the writes before they can be seen.
    pub(crate) fn changes(&self) -> Vec<u8> {
        match self {
            Self::Own(part) => part.changes(),
            Self::Shared(..) => Vec::new(),
        }
    }
}
