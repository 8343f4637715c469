//! Media: the stores behind the blocks of real disks.

use penstock_engine::{Digest, Error, Kind, Result};
use penstock_layout::Block;

/// The error of a medium that moves only whole blocks, asked for a part.
pub fn no_parts(doing: &str) -> Error {
    let cause = "a part of a block cannot be moved by itself";
    Error::new(Kind::Unsupported, doing, cause)
}

/// A medium is a store as the worker of a server's device sees it: it writes and reads blocks.
///
/// All calls block, but for [`Medium::position`], [`Medium::is_in_order`], [`Medium::moves_parts`],
/// [`Medium::digests`] and [`Medium::changes`]; the machine makes them on the worker's thread.
/// Several threads may call at once, for different blocks: of one object if the schema deals out
/// blocks, otherwise of different objects. `data` is the block decoded: `block.bytes` bytes,
/// row-major over `block.extents`, in the machine's byte order. The caller has filled padding and
/// elements that nobody holds.
///
/// A medium is open for reading, or for one write of an array, or to change a stored array in
/// place: then it reads and writes, for as long as its server wants, and is finished many times.
///
/// The trait has no default methods: a wrapper that forgot to pass one on would lose data in
/// silence.
pub trait Medium: Send + Sync {
    /// The position of a block on its device, in bytes, if the medium was opened to tell positions
    /// and knows this one. A position is a hint: file systems move data.
    fn position(&self, block: &Block) -> Option<u64>;

    /// Whether the blocks of known positions ascend in the order of the schema.
    fn is_in_order(&self) -> bool;

    /// Takes `data` into the store. A block may be written again: the last write counts.
    ///
    /// # Errors
    /// An error names the path, and the bytes if they mean something.
    fn write(&self, block: &Block, data: &[u8]) -> Result<()>;

    /// Fills `data` from the store; bytes never written are zero, or the store's fill value. A
    /// medium open for writing gives back the bytes that it has taken so far.
    ///
    /// # Errors
    /// Like [`Medium::write`]; missing bytes of a store are [`penstock_engine::Kind::Damaged`].
    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()>;

    /// Whether parts of blocks can be moved by themselves, also by several media of one store at
    /// once: then parts that do not overlap do not disturb each other.
    fn moves_parts(&self) -> bool;

    /// Takes `data` as the bytes of `block` from `offset` on, and leaves its other bytes as they
    /// are.
    ///
    /// # Errors
    /// Like [`Medium::write`]; also an error if [`Medium::moves_parts`] is false.
    fn write_part(&self, block: &Block, offset: u64, data: &[u8]) -> Result<()>;

    /// Fills `data` with the bytes of `block` from `offset` on. Both are multiples of an element.
    ///
    /// # Errors
    /// Like [`Medium::read`]; also an error if [`Medium::moves_parts`] is false.
    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()>;

    /// Ends the writes, or those so far: a medium that changes an array in place goes on. Each
    /// server calls this once after its last write. The medium writes the end of each object (a
    /// shard's index) and, if `sync`, returns only when all its data are on stable storage.
    ///
    /// # Errors
    /// Like [`Medium::write`]. After an error, the target must not be committed, and a medium that
    /// changes an array in place is good for nothing more.
    fn finish(&self, sync: bool) -> Result<()>;

    /// The digest of each object that was written, if the target asks for digests. Call it after
    /// [`Medium::finish`].
    fn digests(&self) -> Vec<Digest>;

    /// The changes of a fork of a repository ([`penstock_engine::BlockFile::changes`]); none for
    /// all other stores. Call it after [`Medium::finish`].
    fn changes(&self) -> Vec<u8>;
}
