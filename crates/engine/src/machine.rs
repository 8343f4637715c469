//! The machine and the disks, as a strategy sees them.
//!
//! The words come from the papers (Kotz, TOCS 1997, section 4): nodes that exchange messages;
//! memory that a client exposes for the length of a call and from which others get (*memget*) or
//! into which they put (*memput*); parcels, which carry elements along with a message; staging
//! buffers; disks that read and write blocks; a clock; and `work`, a charge for CPU time that a
//! simulated machine counts and a real one ignores.
//!
//! Invariants that a strategy keeps and a machine may rely on:
//! - a client exposes its memory before it sends the first message of the call, and takes it back
//!   after the call's verdict, when no memget or memput is under way;
//! - the windows of memgets into one buffer at one time are disjoint;
//! - a buffer is not given to a disk while a memget or memput on it is under way.

use std::future::Future;
use std::ops::Range;
use std::time::Duration;

use penstock_layout::{Block, DiskSchema, Piece, Region, Share, exact};
use serde::{Deserialize, Serialize};

use crate::address::{MemoryId, Port};
use crate::error::{Error, Result};
use crate::outcome::Digest;
use crate::sieve::Sieve;

/// The number of a node of the machine, from zero. A node may be client, server or both.
pub type NodeId = usize;

/// A change of the membership of a machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// The node has joined after others, or is back. Nodes that are there from the beginning are
    /// not announced. The link to it is a new one: the node knows by then that a former one has
    /// gone, and nothing arrives that either began to send over that.
    Joined,
    /// The node has left, for this reason.
    Left(Error),
}

/// A message, as a node receives it.
#[derive(Debug)]
pub struct Message<P> {
    /// The node that sent the message.
    pub from: NodeId,
    /// The encoded content, as [`crate::encoding::encode`] makes it.
    pub body: Vec<u8>,
    /// The elements that travel with the message.
    pub parcel: Option<P>,
}

/// Work is what a node's CPU does for a strategy, beside messages, memgets, memputs and disk
/// requests, which a machine charges by itself. The machine knows the price of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A client makes up one request to the server on this node, with this number of bytes to be
    /// written, and will send it.
    Request(NodeId, u64),
    /// A client takes the answer to one of its requests.
    Answer,
    /// A server starts a thread for a request, or wakes one.
    Thread,
    /// A server makes up the answer to a request of the client on this node.
    Reply(NodeId),
    /// A server wakes the thread of an idle disk, which then chooses from the requests there.
    Wake,
    /// A server looks for a block in its cache.
    Lookup,
    /// A server copies this number of bytes from memory to memory.
    Copy(u64),
    /// A server makes a list of this number of blocks, and sorts it.
    List(u64),
    /// A server sets up this number of bytes of buffers.
    Prepare(u64),
    /// A server sifts this number of bytes of elements.
    Sift(u64),
    /// A client copies elements into a send buffer or out of one.
    Pack {
        /// The number of bytes.
        bytes: u64,
        /// The number of contiguous stretches that the bytes are cut into.
        stretches: u64,
        /// The kind of the copy.
        by: CopyKind,
    },
}

/// A window says where a region lies in a staging buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Bytes of one element.
    pub width: usize,
    /// The byte at which the region's first element lies.
    pub offset: usize,
    /// Bytes from one index to the next, in each dimension.
    pub strides: Vec<isize>,
}

impl Window {
    /// Makes the window of a block that has a buffer to itself.
    pub fn of_block(block: &Block, width: u64) -> Self {
        Self::at(block, width, 0)
    }

    /// Makes the window of a block that begins at byte `offset` of its buffer.
    pub fn at(block: &Block, width: u64, offset: u64) -> Self {
        Self {
            width: exact::<usize>(width),
            offset: exact::<usize>(offset),
            strides: block.byte_strides(width),
        }
    }
}

impl Window {
    /// Whether a buffer of `bytes` bytes holds a piece where this window places it. Ask before a
    /// window is used that has come from elsewhere; the piece must have been checked.
    pub fn holds(&self, piece: &Piece, bytes: usize) -> bool {
        let Some(reach) = piece.reach(self.width, &self.strides) else {
            return false;
        };
        let (first, end) = (
            self.offset as i128 + reach.start,
            self.offset as i128 + reach.end,
        );
        self.width > 0 && first >= 0 && end <= bytes as i128
    }
}

/// The kind of copy of elements into a send buffer and out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyKind {
    /// Copies go byte for byte.
    Bytes,
    /// Copies go as fast as the machine can.
    Kernels,
}

/// The direction of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operation {
    /// Data go from the clients' memories to the disks.
    Write,
    /// Data go from the disks to the clients' memories.
    Read,
}

impl Operation {
    /// The name that people see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// The access to a target says what is done to it while it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// The target is read.
    Read,
    /// The target is new, and is written.
    Write,
    /// The target is there, and is read and changed in place, for as long as it is open.
    Update,
}

impl From<Operation> for Access {
    /// The access of a collective call, whose writes make new targets.
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Read => Self::Read,
            Operation::Write => Self::Write,
        }
    }
}

/// An opening describes what a server opens: one target on its disks, for one access.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    /// The target in words that the machine's stores understand; a strategy does not interpret
    /// them.
    pub target: Vec<u8>,
    /// The array's disk schema.
    pub disk: DiskSchema,
    /// What is done to the target.
    pub access: Access,
    /// Whether written data must be on stable storage when the disk has finished.
    pub sync: bool,
    /// The server whose blocks are meant.
    pub server: usize,
    /// The number of servers that the array is dealt out to.
    pub servers: usize,
}

/// The place of the elements of a list of pieces.
#[derive(Debug)]
pub enum Elements<'a, M: Machine + ?Sized> {
    /// The elements lie in the memory that this node exposes.
    Exposed,
    /// The elements lie in a staging buffer, with one window for each piece.
    Staged(&'a [Window], &'a M::Buffer),
    /// The elements lie in a send buffer, piece after piece from this byte on. Each piece is dense
    /// and in the order of its rank's memory.
    Packed(&'a M::Buffer, u64),
    /// The elements lie in a parcel from this byte on, in the order of a send buffer.
    Parcel(&'a M::Parcel, u64),
}

/// A block file is one target on one disk of a server, for as long as it is open: one call, or as
/// long as the server likes. The trait has no default methods: a wrapper that forgot to pass one on
/// would lose data in silence.
pub trait BlockFile {
    /// The staging buffer that the block file drains and fills.
    type Buffer;

    /// The position of a block: a disk passes once over blocks that are sorted by position.
    fn position(&self, block: &Block) -> (u64, u64);

    /// Whether the schema's order is the order of [`BlockFile::position`] already, so that nobody
    /// needs to hold the list of blocks in order to sort it.
    fn is_in_schema_order(&self) -> bool;

    /// The number of reads and writes that the disk works at together; a [`crate::queue::Queue`]
    /// holds the others back.
    fn queue_depth(&self) -> u32;

    /// Writes `block.bytes` bytes of `buffer`, from byte `at` on. A block may be written again: the
    /// last write stays.
    fn write(
        &self,
        block: &Block,
        buffer: &Self::Buffer,
        at: u64,
    ) -> impl Future<Output = Result<()>>;

    /// Reads `block.bytes` bytes into `buffer`, from byte `at` on. In a write it reads the bytes
    /// written so far, and zeros in place of others.
    fn read(
        &self,
        block: &Block,
        buffer: &Self::Buffer,
        at: u64,
    ) -> impl Future<Output = Result<()>>;

    /// Whether parts of blocks can be moved by themselves, whatever others do to the rest of the
    /// block meanwhile.
    fn moves_parts(&self) -> impl Future<Output = Result<bool>>;

    /// Writes parts of a block, in bytes of the block, from where they lie in `buffer`.
    ///
    /// # Errors
    /// Among others, one for a disk for which [`BlockFile::moves_parts`] is false.
    fn write_parts(
        &self,
        block: &Block,
        parts: &[Range<u64>],
        buffer: &Self::Buffer,
    ) -> impl Future<Output = Result<()>>;

    /// Reads parts of a block to where they lie in `buffer`, and leaves the bytes between alone.
    ///
    /// # Errors
    /// Like [`BlockFile::write_parts`].
    fn read_parts(
        &self,
        block: &Block,
        parts: &[Range<u64>],
        buffer: &Self::Buffer,
    ) -> impl Future<Output = Result<()>>;

    /// Ends the writes so far, also those under way. The data are then on stable storage, if the
    /// opening asks for it. A file that is opened to be updated goes on after that.
    fn finish(&self) -> impl Future<Output = Result<()>>;

    /// The digest of each object that was written, if the target asks for digests. Call it after
    /// [`BlockFile::finish`].
    fn digests(&self) -> Vec<Digest>;

    /// What the director must know of the writes before they can be seen, where the store itself
    /// does not tell: for a repository, the changes of this server's fork. Call it after
    /// [`BlockFile::finish`].
    fn changes(&self) -> Vec<u8>;
}

/// A machine, as one of its nodes sees it.
pub trait Machine {
    /// The memory that a client exposes: its share of the array, and where the share lies.
    type Memory;
    /// A guard that takes the memory back when dropped.
    type Exposure;
    /// A staging or send buffer.
    type Buffer;
    /// Elements on their way with a message.
    type Parcel;
    /// A disk of a server.
    type File: BlockFile<Buffer = Self::Buffer>;
    /// What a server does to the elements of a sifted read.
    type Sieve: Sieve<Buffer = Self::Buffer>;

    /// This node.
    fn me(&self) -> NodeId;

    /// The time since some moment before the first call.
    fn now(&self) -> Duration;

    /// Waits for this time, or a little longer.
    fn wait(&self, time: Duration) -> impl Future<Output = ()>;

    /// Charges this node's CPU. A real machine charges nothing.
    fn work(&self, work: Work) -> impl Future<Output = ()>;

    /// Sends `body` and perhaps a parcel to `to`. Messages to one port from one node arrive in
    /// order. The parcel's elements may change as soon as the future has ended.
    ///
    /// # Errors
    /// When `to` cannot be reached.
    fn send(
        &self,
        to: NodeId,
        port: Port,
        body: Vec<u8>,
        parcel: Option<Self::Parcel>,
    ) -> impl Future<Output = Result<()>>;

    /// Sends `body` and a parcel of the first `bytes` bytes of a send buffer. The future ends when
    /// the buffer may be used again: when `to` has taken the parcel out of it, or the system of
    /// `to` has kept a copy because nobody there waits at `port` yet.
    ///
    /// # Errors
    /// When `to` cannot be reached.
    fn transmit(
        &self,
        to: NodeId,
        port: Port,
        body: Vec<u8>,
        buffer: &Self::Buffer,
        bytes: u64,
    ) -> impl Future<Output = Result<()>>;

    /// Receives the next message at `port`, from any node. It waits for ever if no message comes,
    /// whoever has left. Dropping the future loses no message. One future at a time may wait at a
    /// port.
    fn receive(&self, port: Port) -> impl Future<Output = Message<Self::Parcel>>;

    /// The reason why a node is no member of the machine now, if it is none.
    fn absence(&self, node: NodeId) -> Option<Error>;

    /// The number of changes of the membership that this node has heard of.
    fn changes(&self) -> u64;

    /// Waits for the first change of the membership that has this number or a later one. Gives the
    /// number after it, the node, and the change.
    fn change(&self, from: u64) -> impl Future<Output = (u64, NodeId, Change)>;

    /// Packs `elements` of the `share` that this node exposes as `memory`, one behind the other in
    /// the order of `window`.
    ///
    /// # Errors
    /// When this node exposes nothing of that name.
    fn pack(
        &self,
        memory: MemoryId,
        share: &Share,
        elements: &Region,
        window: &Window,
    ) -> Result<Self::Parcel>;

    /// Unpacks a parcel of [`Machine::pack`] into `elements` of the `share`.
    ///
    /// # Errors
    /// When this node exposes nothing of that name, or the parcel has another size.
    fn unpack(
        &self,
        memory: MemoryId,
        parcel: &Self::Parcel,
        share: &Share,
        elements: &Region,
        window: &Window,
    ) -> Result<()>;

    /// Makes a parcel of a part of a staging buffer, in bytes.
    fn cut(&self, buffer: &Self::Buffer, part: Range<u64>) -> Self::Parcel;

    /// Copies a parcel into a staging buffer, from byte `offset` on.
    fn paste(&self, parcel: &Self::Parcel, buffer: &Self::Buffer, offset: u64);

    /// The CRC-32C of a part of a staging buffer, in bytes; 0 where buffers hold no bytes.
    fn crc32c(&self, buffer: &Self::Buffer, part: Range<u64>) -> u32;

    /// Lets servers get from and put into this node's `memory` until the exposure is dropped.
    fn expose(&self, id: MemoryId, memory: Self::Memory) -> Self::Exposure;

    /// Makes a staging buffer of at least `bytes`.
    ///
    /// # Errors
    /// When there is no memory for it.
    fn buffer(&self, bytes: u64) -> Result<Self::Buffer>;

    /// Fills the first `bytes` bytes of a buffer with copies of an element, or with zeros if the
    /// element is empty. Bytes that no client fills must not be left over from another block.
    fn clear(&self, buffer: &Self::Buffer, bytes: u64, element: &[u8]);

    /// Copies pieces, all of elements of `width` bytes, from one place of this node to another.
    /// `memory` is the exposed memory, if one of the places is.
    ///
    /// # Errors
    /// When this node exposes nothing of that name, or a parcel is too short.
    fn copy(
        &self,
        memory: MemoryId,
        width: usize,
        pieces: &[Piece],
        from: Elements<'_, Self>,
        to: Elements<'_, Self>,
        by: CopyKind,
    ) -> Result<()>;

    /// Fills `piece` of `window` from the memory that `client` exposes.
    ///
    /// # Errors
    /// When the client cannot, or has left the machine.
    fn memget(
        &self,
        memory: MemoryId,
        client: NodeId,
        piece: &Piece,
        window: &Window,
        buffer: &Self::Buffer,
    ) -> impl Future<Output = Result<()>>;

    /// Copies `piece` of `window` into the memory that `client` exposes.
    ///
    /// # Errors
    /// Like [`Machine::memget`].
    fn memput(
        &self,
        memory: MemoryId,
        client: NodeId,
        piece: &Piece,
        window: &Window,
        buffer: &Self::Buffer,
    ) -> impl Future<Output = Result<()>>;

    /// The server whose disk a client of this node opens in order to reach the blocks of `server`
    /// by itself. If every node reaches the whole store, all servers have one answer.
    fn disk_for(&self, server: usize) -> usize {
        server
    }

    /// Opens a target on the disk of a server. The server is on this node, or this node's client
    /// moves its share without servers.
    ///
    /// # Errors
    /// When the target is not there or does not allow the operation. The disk may also say so when
    /// it is first used, so that nobody waits for the opening alone.
    fn open(&self, opening: Opening) -> impl Future<Output = Result<Self::File>>;

    /// Makes the sieve of a server for one sifted read of what `opening` opens. The words are
    /// [`crate::sieve::Sifting::words`].
    ///
    /// # Errors
    /// When the words make no sense to the machine's stores.
    fn sieve(&self, words: &[u8], opening: &Opening) -> Result<Self::Sieve>;
}
