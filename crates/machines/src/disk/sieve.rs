//! Sieves of real servers: what a store's program does to the bytes of blocks.

use penstock_engine::{Delivery, Error, Kind, Portion, Result, Sieve};
use penstock_layout::{Block, exact};

use crate::memory::buffer::Buffer;

/// A block sieve is what one server does to the elements of one sifted read. Its node's thread
/// calls it, while the worker of the device reads the next block: it is to take less time for a
/// block than the device.
pub trait BlockSieve {
    /// Whether the block is to be read: of a block that is not, nothing could be let through.
    fn wants(&self, block: &Block) -> bool;

    /// Sifts a block: `data` is its decoded bytes, row-major over `block.extents` unless its
    /// strides say otherwise, in the machine's byte order.
    ///
    /// # Errors
    /// Its own: the call then ends with the error on every rank.
    fn sift(&self, block: &Block, portions: &[Portion], data: &[u8]) -> Result<Vec<Delivery>>;

    /// A part of what was kept back; `None` when nothing is left.
    ///
    /// # Errors
    /// As [`BlockSieve::sift`].
    fn rest(&self) -> Result<Option<Delivery>>;
}

/// The error of stores whose reads are not sifted.
pub fn no_sieve() -> Error {
    let cause = "servers do nothing to what is stored here but move it";
    Error::new(Kind::Unsupported, "sifting", cause)
}

/// A block sieve that looks into staging buffers.
pub struct RealSieve(pub(crate) Box<dyn BlockSieve>);

impl Sieve for RealSieve {
    type Buffer = Buffer;

    fn wants(&self, block: &Block) -> bool {
        self.0.wants(block)
    }

    fn sift(&self, block: &Block, portions: &[Portion], buffer: &Buffer) -> Result<Vec<Delivery>> {
        let data = buffer.bytes(0..exact::<usize>(block.bytes));
        self.0.sift(block, portions, data)
    }

    fn rest(&self) -> Result<Option<Delivery>> {
        self.0.rest()
    }
}
