//! What the blocks of a real disk are made of.

use penstock_engine::{Error, Kind, Result};
use penstock_layout::Block;

/// What a medium says that moves blocks whole, of a part.
pub fn no_parts(doing: &str) -> Error {
    let cause = "a part of a block cannot be moved by itself";
    Error::new(Kind::Unsupported, doing, cause)
}

/// A store as a server's disk threads see it: something that writes and reads blocks.
///
/// All calls block; the machine makes them on a disk's own thread. Several threads may call at
/// once, for different blocks: of one object where the schema deals out blocks, otherwise of
/// different objects. `data` is the block decoded: `block.bytes` bytes, row-major over
/// `block.extents`, in the machine's byte order. The caller has filled padding and what nobody
/// holds.
///
/// There are no default methods: a medium around another one that forgot to pass one on would lose
/// data in silence.
pub trait Medium: Send + Sync {
    /// Takes `data` into the store. A block may be written again: the last time counts.
    ///
    /// # Errors
    /// Naming the path, and the bytes where that means something.
    fn write(&self, block: &Block, data: &[u8]) -> Result<()>;

    /// Fills `data` from the store: what was never written is zero, or the store's fill value. A
    /// medium open for writing gives back what it has taken so far.
    ///
    /// # Errors
    /// As [`Medium::write`]; bytes that should be there and are not are
    /// [`penstock_engine::Kind::Damaged`].
    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()>;

    /// Whether parts of blocks can be moved by themselves, also by several media of one store at
    /// once: then parts that do not overlap do not disturb each other.
    fn moves_parts(&self) -> bool;

    /// Takes `data` as the bytes of `block` from `offset` on, and leaves its others as they are.
    ///
    /// # Errors
    /// As [`Medium::write`]; also where [`Medium::moves_parts`] says that it cannot.
    fn write_part(&self, block: &Block, offset: u64, data: &[u8]) -> Result<()>;

    /// Fills `data` with the bytes of `block` from `offset` on. Both are multiples of an element.
    ///
    /// # Errors
    /// As [`Medium::read`]; also where [`Medium::moves_parts`] says that it cannot.
    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()>;

    /// Called once by each server after its last write. Writes whatever ends an object (a shard's
    /// index) and, if `sync`, returns only when all that this medium took is on stable storage.
    ///
    /// # Errors
    /// As [`Medium::write`]. After one, the target must not be committed.
    fn finish(&self, sync: bool) -> Result<()>;

    /// The checksum (CRC-32C) of each object that was written, by its number, where the target asks
    /// for them. After [`Medium::finish`].
    fn sums(&self) -> Vec<(u64, u32)>;
}
