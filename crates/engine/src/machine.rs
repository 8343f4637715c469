//! What a strategy may ask of the world.
//!
//! The vocabulary is that of the papers (Kotz, TOCS 1997, section 4): nodes that exchange messages;
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

use crate::error::Result;

/// A node of the machine, counted from zero. A node may be client, server or both.
pub type NodeId = usize;

/// Which message of the protocol this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Step {
    /// Up the tree: what each rank asks for.
    Propose,
    /// Down the tree: the request, or why there is none.
    Request,
    /// Up the tree: how each server's part ended.
    Outcome,
    /// Down the tree: how the call ended, the same for all.
    Verdict,
    /// Up the tree: this node has come to barrier so many.
    Arrived(u32),
    /// Down the tree: all nodes have.
    Go(u32),
    /// From the client of a rank to another: elements of two-phase I/O.
    Exchange(u32),
    /// From a client to server so many: please move a part of a block.
    Ask(u32),
    /// From a server to a client: what became of that.
    Reply,
}

/// Addresses a message within a node: the collective call, and the step of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tag {
    /// Number of the collective call, the same on all nodes.
    pub call: u64,
    /// The step of the protocol.
    pub step: Step,
}

/// What a node receives.
#[derive(Debug)]
pub struct Message<P> {
    /// The node that sent it.
    pub from: NodeId,
    /// What it says.
    pub body: Vec<u8>,
    /// The elements that it carries.
    pub parcel: Option<P>,
}

/// What a node's CPU does for a strategy, beside messages, memgets, memputs and disk requests,
/// which a machine charges by itself. What each costs is the machine's to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A client makes up one request to a server.
    Request,
    /// A server starts a thread for a request, or wakes one.
    Thread,
    /// A server wakes the thread of an idle disk, which chooses from what is there when it runs.
    Wake,
    /// A server looks for a block in its cache.
    Lookup,
    /// A server copies so many bytes from memory to memory.
    Copy(u64),
    /// A server makes a list of so many blocks, and sorts it.
    List(u64),
    /// A server sets up so many bytes of buffers.
    Prepare(u64),
    /// A client copies elements into a send buffer or out of one.
    Pack {
        /// Bytes.
        bytes: u64,
        /// Into how many contiguous stretches they are cut.
        stretches: u64,
        /// How.
        by: CopyKind,
    },
}

/// Where a region lies in a staging buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Bytes an element.
    pub width: usize,
    /// Where the region's first element lies, bytes.
    pub offset: usize,
    /// From one index to the next, bytes a dimension.
    pub strides: Vec<isize>,
}

impl Window {
    /// The region of a block that has a buffer to itself.
    pub fn of_block(block: &Block, width: u64) -> Self {
        Self::at(block, width, 0)
    }

    /// The region of a block that begins at a byte of its buffer.
    pub fn at(block: &Block, width: u64, offset: u64) -> Self {
        Self {
            width: exact::<usize>(width),
            offset: exact::<usize>(offset),
            strides: block.byte_strides(width),
        }
    }
}

/// How elements are copied into a send buffer and out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyKind {
    /// Byte for byte.
    Bytes,
    /// As fast as the machine can.
    Kernels,
}

/// Which way the data go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operation {
    /// From the clients' memories to the disks.
    Write,
    /// From the disks to the clients' memories.
    Read,
}

/// What a server opens: one target on its disks, for one operation.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The target in words that the machine's stores understand; a strategy does not look into
    /// them.
    pub target: Vec<u8>,
    /// How the array lies on disk.
    pub disk: DiskSchema,
    /// Which way the data will go.
    pub operation: Operation,
    /// Whether written data must be on stable storage when the disk has finished.
    pub sync: bool,
    /// The server whose blocks are meant.
    pub server: usize,
    /// The number of servers that the array is dealt out to.
    pub servers: usize,
}

/// Where the elements of a list of pieces are.
#[derive(Debug)]
pub enum Elements<'a, M: Machine + ?Sized> {
    /// In the memory that this node exposes for the call.
    Exposed,
    /// In a staging buffer, one window a piece.
    Staged(&'a [Window], &'a M::Buffer),
    /// In a send buffer, piece after piece from its first byte on, each dense and in the order of
    /// its rank's memory.
    Packed(&'a M::Buffer),
    /// In a parcel, in the same way.
    Parcel(&'a M::Parcel),
}

/// One disk of a server, opened for one call. There are no default methods: a disk around another
/// one that forgot to pass one on would lose data in silence.
pub trait BlockFile {
    /// The staging buffer that it drains and fills.
    type Buffer;

    /// Where a block lies: blocks sorted by it are passed over once.
    fn position(&self, block: &Block) -> (u64, u64);

    /// Whether the schema's order is that of [`BlockFile::position`] already, so that nobody needs
    /// to hold the list of blocks in order to sort it.
    fn is_in_schema_order(&self) -> bool;

    /// How many reads and writes it works at together; who has more lets them wait.
    fn queue_depth(&self) -> u32;

    /// Writes `block.bytes` bytes of `buffer`, from byte `at` on. A block may be written again:
    /// what was written last is what stays.
    fn write(
        &self,
        block: &Block,
        buffer: &Self::Buffer,
        at: u64,
    ) -> impl Future<Output = Result<()>>;

    /// Reads into `block.bytes` bytes of `buffer`, from byte `at` on; in a write, what it has
    /// written so far, and zeros where that is nothing.
    fn read(
        &self,
        block: &Block,
        buffer: &Self::Buffer,
        at: u64,
    ) -> impl Future<Output = Result<()>>;

    /// Whether parts of blocks can be moved by themselves, whatever others do to the rest of the
    /// block meanwhile.
    fn moves_parts(&self) -> impl Future<Output = Result<bool>>;

    /// Writes these parts of a block, bytes counted in it, from where they lie in `buffer`.
    ///
    /// # Errors
    /// Also where [`BlockFile::moves_parts`] says that it cannot.
    fn write_parts(
        &self,
        block: &Block,
        parts: &[Range<u64>],
        buffer: &Self::Buffer,
    ) -> impl Future<Output = Result<()>>;

    /// The reverse of [`BlockFile::write_parts`]: what lies between the parts is left alone.
    ///
    /// # Errors
    /// As [`BlockFile::write_parts`].
    fn read_parts(
        &self,
        block: &Block,
        parts: &[Range<u64>],
        buffer: &Self::Buffer,
    ) -> impl Future<Output = Result<()>>;

    /// Ends the writes of this call, also those that are still under way; what was written is then
    /// on stable storage if the request asks for that.
    fn finish(&self) -> impl Future<Output = Result<()>>;

    /// The checksum of each object that was written, by its number, where the target asks for them.
    /// After [`BlockFile::finish`].
    fn sums(&self) -> Vec<(u64, u32)>;
}

/// One node's view of the machine that it is part of.
pub trait Machine {
    /// What a client exposes: its share of the array, and where that lies in its memory.
    type Memory;
    /// Takes the memory back when dropped.
    type Exposure;
    /// A staging or send buffer.
    type Buffer;
    /// Elements on their way with a message.
    type Parcel;
    /// A disk of a server.
    type File: BlockFile<Buffer = Self::Buffer>;

    /// This node.
    fn me(&self) -> NodeId;

    /// Time since some moment before the first call.
    fn now(&self) -> Duration;

    /// Charges this node's CPU. Costs nothing on a real machine.
    fn work(&self, work: Work) -> impl Future<Output = ()>;

    /// Sends `body` and perhaps a parcel to `to`. Messages of one tag from one node arrive in
    /// order. The parcel's elements may change as soon as this has returned.
    ///
    /// # Errors
    /// When a node has left the machine.
    fn send(
        &self,
        to: NodeId,
        tag: Tag,
        body: Vec<u8>,
        parcel: Option<Self::Parcel>,
    ) -> impl Future<Output = Result<()>>;

    /// Sends `body` and a parcel that is the first `bytes` of a send buffer. Ends when the buffer
    /// may be used again: when `to` has taken the parcel out of it, or its system has kept a copy
    /// because nobody there waits for `tag` yet.
    ///
    /// # Errors
    /// When a node has left the machine.
    fn transmit(
        &self,
        to: NodeId,
        tag: Tag,
        body: Vec<u8>,
        buffer: &Self::Buffer,
        bytes: u64,
    ) -> impl Future<Output = Result<()>>;

    /// The next message with `tag`, from whomever. Dropping the future loses none.
    ///
    /// # Errors
    /// When a node has left the machine.
    fn receive(&self, tag: Tag) -> impl Future<Output = Result<Message<Self::Parcel>>>;

    /// Packs `elements`, which are of the `share` that this node exposes for `call`, one behind the
    /// other as `window` has them.
    ///
    /// # Errors
    /// When this node exposes nothing for the call.
    fn pack(
        &self,
        call: u64,
        share: &Share,
        elements: &Region,
        window: &Window,
    ) -> Result<Self::Parcel>;

    /// The reverse of [`Machine::pack`].
    ///
    /// # Errors
    /// When this node exposes nothing for the call, or the parcel has another size.
    fn unpack(
        &self,
        call: u64,
        parcel: &Self::Parcel,
        share: &Share,
        elements: &Region,
        window: &Window,
    ) -> Result<()>;

    /// A part of a staging buffer, bytes, as a parcel.
    fn cut(&self, buffer: &Self::Buffer, part: Range<u64>) -> Self::Parcel;

    /// Copies a parcel into a staging buffer, from byte `offset` on.
    fn paste(&self, parcel: &Self::Parcel, buffer: &Self::Buffer, offset: u64);

    /// Lets servers get from and put into this node's `memory` until the exposure is dropped.
    fn expose(&self, call: u64, memory: Self::Memory) -> Self::Exposure;

    /// A staging buffer of at least `bytes`.
    ///
    /// # Errors
    /// When there is no memory for it.
    fn buffer(&self, bytes: u64) -> Result<Self::Buffer>;

    /// Fills the first `bytes` bytes of a buffer with an element, its bytes over and over; without
    /// any, with zeros. What no client fills must not be left over from another block.
    fn clear(&self, buffer: &Self::Buffer, bytes: u64, element: &[u8]);

    /// Copies pieces, all of elements of `width` bytes, from one place of this node to another.
    ///
    /// # Errors
    /// When this node exposes nothing for the call, or a parcel has another size.
    fn copy(
        &self,
        call: u64,
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
        call: u64,
        client: NodeId,
        piece: &Piece,
        window: &Window,
        buffer: &Self::Buffer,
    ) -> impl Future<Output = Result<()>>;

    /// Copies `piece` of `window` into the memory that `client` exposes.
    ///
    /// # Errors
    /// As [`Machine::memget`].
    fn memput(
        &self,
        call: u64,
        client: NodeId,
        piece: &Piece,
        window: &Window,
        buffer: &Self::Buffer,
    ) -> impl Future<Output = Result<()>>;

    /// The server whose disk a client of this node opens in order to reach the blocks of `server`
    /// without it: where every node reaches the whole store, one does for all.
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
}
