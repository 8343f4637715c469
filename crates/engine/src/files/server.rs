//! The open files of a node's servers, and what is done to their blocks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use penstock_layout::{Block, DiskSchema};
use rustc_hash::FxHashMap;

use super::disk::{finish, read, write};
use super::messages::{FILES_MAX, FileId, Order, refusal};
use crate::address::PartyId;
use crate::blocks::{Blocks, Claim, Home, Intent};
use crate::error::{Error, Result, Who};
use crate::machine::{BlockFile, Machine, Work};
use crate::party::Party;

/// The name of a block: its file, its object, and its number in the object.
pub(crate) type Name = (FileId, u64, u64);

/// A claim on a block of an open file.
pub(crate) type BlockClaim<'a> = Claim<'a, Name>;

/// A block of an open file.
struct FileBlock<M: Machine> {
    file: Rc<OpenFile<M>>,
    block: Block,
}

impl<M: Machine> Home<M> for FileBlock<M> {
    fn bytes(&self) -> u64 {
        self.block.bytes
    }

    async fn load(&self, buffer: &M::Buffer) -> Result<()> {
        self.file.read(&self.block, buffer).await
    }

    async fn store(&self, buffer: &M::Buffer) -> Result<()> {
        self.file.write(&self.block, buffer).await
    }

    fn fail(&self, error: Error) {
        self.file.fail(error);
    }
}

/// A file that the servers of this node have open.
pub(crate) struct OpenFile<M: Machine> {
    pub(super) id: FileId,
    pub(super) disk: DiskSchema,
    servers: usize,
    /// The parts of the file on the disks of this node's servers, by the number of the server.
    parts: BTreeMap<usize, M::File>,
    /// The first error of a write that nobody waited for. The file is not usable after it.
    failed: RefCell<Option<Error>>,
}

impl<M: Machine> OpenFile<M> {
    /// The name of a block of this file.
    pub(crate) fn name(&self, block: &Block) -> Name {
        (self.id, block.object, block.index)
    }

    /// The server of a block, and the server's part of the file, if the server is on this node.
    fn part(&self, block: &Block) -> Result<(usize, &M::File)> {
        let server = self.disk.server_of(block, self.servers);
        let part = self.parts.get(&server).map(|part| (server, part));
        part.ok_or_else(|| refusal("the block is another server's"))
    }

    /// The block with this number of an object, if it is this node's.
    pub(super) fn block(&self, object: u64, index: u64) -> Result<Block> {
        let block = self.disk.block_at(object, index);
        let block = block.ok_or_else(|| refusal("it asks for a block that there is not"))?;
        self.part(&block).map(|_| block)
    }

    /// Fails if a write has failed that nobody waited for.
    pub(super) fn check(&self) -> Result<()> {
        self.failed.borrow().clone().map_or(Ok(()), Err)
    }

    /// Whether the file has these blocks, dealt out to this number of servers.
    pub(super) fn fits(&self, disk: &DiskSchema, servers: usize) -> bool {
        self.servers == servers && self.disk == *disk
    }

    /// The part of the file on the disk of a server of this node.
    pub(super) fn part_of(&self, server: usize) -> Option<&M::File> {
        self.parts.get(&server)
    }

    fn fail(&self, error: Error) {
        self.failed.borrow_mut().get_or_insert(error);
    }

    async fn read(&self, block: &Block, buffer: &M::Buffer) -> Result<()> {
        let (server, part) = self.part(block)?;
        let read = read(part, block, buffer).await;
        read.map_err(|error| error.by(Who::Server(server)))
    }

    async fn write(&self, block: &Block, buffer: &M::Buffer) -> Result<()> {
        let (server, part) = self.part(block)?;
        let written = write(part, block, buffer).await;
        written.map_err(|error| error.by(Who::Server(server)))
    }
}

/// The open files of a node's servers, with one cache for all.
pub(crate) struct Files<'m, M: Machine> {
    pub(super) machine: &'m M,
    open: RefCell<FxHashMap<FileId, Rc<OpenFile<M>>>>,
    blocks: Blocks<'m, M, Name, FileBlock<M>>,
}

impl<'m, M: Machine> Files<'m, M> {
    /// Makes the files of a node with a cache of at most `cache_bytes` bytes.
    pub(crate) fn new(machine: &'m M, cache_bytes: u64) -> Self {
        Self {
            machine,
            open: RefCell::default(),
            blocks: Blocks::new(machine, cache_bytes),
        }
    }

    /// Whether a file is open.
    pub(crate) fn are_open(&self) -> bool {
        !self.open.borrow().is_empty()
    }

    /// Whether nobody claims a block, and nobody has room in the cache.
    pub(crate) fn is_idle(&self) -> bool {
        self.blocks.is_idle()
    }

    /// Carries out an order of a party on this node.
    ///
    /// # Errors
    /// The error of a disk, and [`crate::Kind::Peer`] for a file that is not the party's.
    pub(crate) async fn obey(&self, party: &Party, order: &Order) -> Result<()> {
        let (Order::Open { file, .. } | Order::Flush(file) | Order::Close(file)) = order;
        if file.party != party.id {
            return Err(refusal("the file is another party's"));
        }
        match order {
            Order::Open { file, opening } => {
                let is_new = file.number < FILES_MAX && self.file(*file).is_err();
                if !is_new || !(1..=party.servers.len()).contains(&opening.servers) {
                    return Err(refusal("it opens a file that there cannot be"));
                }
                let opened = OpenFile {
                    id: *file,
                    disk: opening.disk.clone(),
                    servers: opening.servers,
                    parts: BTreeMap::new(),
                    failed: RefCell::default(),
                };
                let opened = self.open_parts(party, opening, opened).await?;
                self.open.borrow_mut().insert(*file, Rc::new(opened));
                Ok(())
            }
            Order::Flush(file) => self.flush(&*self.file(*file)?).await,
            Order::Close(file) => self.close(*file).await,
        }
    }

    async fn open_parts(
        &self,
        party: &Party,
        opening: &crate::Opening,
        mut file: OpenFile<M>,
    ) -> Result<OpenFile<M>> {
        let servers = party.servers_on(self.machine.me());
        for server in servers.filter(|&server| server < opening.servers) {
            let opening = crate::Opening {
                server,
                ..opening.clone()
            };
            let part = self.machine.open(opening).await;
            let part = part.map_err(|error| error.by(Who::Server(server)))?;
            // An error of opening is told now, and not to the first who moves a block.
            let looked = part.moves_parts().await;
            looked.map_err(|error| error.by(Who::Server(server)))?;
            file.parts.insert(server, part);
        }
        Ok(file)
    }

    /// The open file of this name.
    pub(crate) fn file(&self, id: FileId) -> Result<Rc<OpenFile<M>>> {
        let file = self.open.borrow().get(&id).cloned();
        file.ok_or_else(|| refusal("the file is not open"))
    }

    /// Writes all changed blocks of a file, in their order, and ends the writes on its disks.
    async fn flush(&self, file: &OpenFile<M>) -> Result<()> {
        self.blocks.write_back_all(|name| name.0 == file.id).await;
        file.check()?;
        for (&server, part) in &file.parts {
            let finished = finish(part).await;
            finished.map_err(|error| error.by(Who::Server(server)))?;
        }
        Ok(())
    }

    async fn close(&self, id: FileId) -> Result<()> {
        let file = self.file(id)?;
        let flushed = self.flush(&file).await;
        self.open.borrow_mut().remove(&id);
        self.blocks.discard_all(|name| name.0 == id);
        flushed
    }

    /// Closes all files of a party that makes no more calls.
    pub(crate) async fn close_all(&self, party: PartyId) {
        let of_party: Vec<_> = {
            let open = self.open.borrow();
            open.keys()
                .filter(|id| id.party == party)
                .copied()
                .collect()
        };
        for id in of_party {
            let _ = self.close(id).await; // nobody is left who could be told
        }
    }

    /// Waits for a claim on a block.
    pub(crate) async fn claim(&self, name: Name, intent: Intent) -> BlockClaim<'_> {
        self.blocks.claim(&name, intent).await
    }

    /// Claims a block, and finds it in the cache or brings it in: see [`Blocks::bring_in`].
    pub(super) async fn bring_in(
        &self,
        file: &Rc<OpenFile<M>>,
        block: &Block,
        intent: Intent,
        is_replaced: bool,
    ) -> Result<(BlockClaim<'_>, Rc<M::Buffer>)> {
        let home = || {
            Rc::new(FileBlock {
                file: file.clone(),
                block: block.clone(),
            })
        };
        let name = file.name(block);
        self.blocks.bring_in(&name, home, intent, is_replaced).await
    }

    /// Notes that a client has read bytes of a claimed block.
    pub(super) fn note_read(&self, file: &OpenFile<M>, block: &Block, bytes: u64) {
        self.blocks.count(&file.name(block), bytes);
    }

    /// Notes that bytes of a claimed block have been put in, and says whether all have since it was
    /// written: then it is to be written.
    pub(super) fn note_change(&self, file: &OpenFile<M>, block: &Block, bytes: u64) -> bool {
        let name = file.name(block);
        self.blocks.count(&name, bytes);
        let changed = self.blocks.change(&name, bytes);
        changed >= block.region.elements() * file.disk.width()
    }

    /// Drops a claimed block, whose bytes are not to be trusted.
    pub(super) fn discard(&self, file: &OpenFile<M>, block: &Block) {
        self.blocks.discard(&file.name(block));
    }

    /// Writes a block of the cache to its disk. An error is the file's: nobody waits for this
    /// write, and the block goes.
    pub(super) async fn write_back(&self, name: Name) {
        self.blocks.write_back(&name).await;
    }

    /// Reads a claimed block into a buffer, around the cache: out of the cache if it is there,
    /// otherwise from the disk.
    pub(crate) async fn read_around(
        &self,
        file: &OpenFile<M>,
        block: &Block,
        buffer: &M::Buffer,
    ) -> Result<()> {
        file.check()?;
        let name = file.name(block);
        if self.blocks.copy_cached(&name, block.bytes, buffer) {
            return Ok(());
        }
        self.machine.work(Work::Wake).await;
        file.read(block, buffer).await
    }

    /// Writes a block that is claimed to be changed, around the cache, which drops it.
    pub(crate) async fn write_around(
        &self,
        file: &OpenFile<M>,
        block: &Block,
        buffer: &M::Buffer,
    ) -> Result<()> {
        file.check()?;
        self.blocks.discard(&file.name(block));
        self.machine.work(Work::Wake).await;
        file.write(block, buffer).await
    }

    /// Ends the use of a block: others may wait for its room.
    pub(super) fn release(&self, claim: BlockClaim<'_>) {
        self.blocks.release(claim);
    }
}
