//! Sifted reads: servers look at the elements of their blocks, and deliver to clients what they
//! make of them, in the elements' place.
//!
//! Kotz, TOCS 1997, section 8: data-dependent filtering, and other work at the I/O nodes. A sifted
//! read is a disk-directed read with another drain:
//!
//! ```text
//! disk -> buffer -> sieve -> deliveries -> outlet of a client -> messages -> catch of the client
//! ```
//!
//! What a sieve does is none of the engine's business: it gets a block and the portions that ranks
//! hold of it, and gives bytes for ranks. What it keeps back over blocks, such as partial sums, it
//! gives at the end. A client's catch takes the bytes.
//!
//! | file | contents |
//! |---|---|
//! | `sieve` | what the machine's sieve and the program's catch owe |
//! | `deliveries` | the messages from servers to clients, and how few are under way |
//! | `deal` | the dealing of what clients have got among themselves |
//!
//! Not done here: sifted reads of open files, split ones, and those by other strategies.

use std::ops::Range;

use penstock_layout::Block;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::portion::Portion;

/// The sifting of a read, as the request says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sifting {
    /// The sieve in the machine's own words, without meaning to a strategy.
    pub words: Vec<u8>,
    /// Whether clients deal out evenly what they have got, as records: see [`Catch::cut`].
    pub is_dealt: bool,
}

/// The clients to whom bytes are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressee {
    /// The client of this rank.
    Rank(usize),
    /// Every client.
    All,
}

/// A delivery is bytes that a sieve lets through. It comes whole to its addressee, and behind all
/// earlier ones of its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// To whom the bytes go.
    pub to: Addressee,
    /// The bytes, which mean something to the sieve and the catch alone.
    pub bytes: Vec<u8>,
}

/// A sieve is what one server does to the elements of one sifted read.
pub trait Sieve {
    /// The staging buffer in which a block lies, from its first byte on.
    type Buffer;

    /// Whether the block is to be read: of a block that is not, nothing could be let through.
    fn wants(&self, block: &Block) -> bool;

    /// Sifts a block, of which ranks hold these portions.
    ///
    /// # Errors
    /// Its own: the call then ends with the error on every rank.
    fn sift(
        &self,
        block: &Block,
        portions: &[Portion],
        buffer: &Self::Buffer,
    ) -> Result<Vec<Delivery>>;

    /// A part of what was kept back; `None` when nothing is left. It is asked for when all blocks
    /// have been sifted.
    ///
    /// # Errors
    /// As [`Sieve::sift`].
    fn rest(&self) -> Result<Option<Delivery>>;
}

/// A catch takes what servers deliver to one client: a sequence of records. In a call that is
/// dealt, those of all ranks in their order are one sequence.
pub trait Catch: Send + Sync {
    /// Takes the next bytes of a server. Deliveries may be cut, or several in one.
    ///
    /// # Errors
    /// When they are not what servers send.
    fn take(&self, server: usize, bytes: &[u8]) -> Result<()>;

    /// The number of records, when all servers have delivered.
    ///
    /// # Errors
    /// When the bytes make no records.
    fn count(&self) -> Result<u64>;

    /// The records with these numbers among this client's own, encoded.
    ///
    /// # Errors
    /// When there are no such records.
    fn cut(&self, records: Range<u64>) -> Result<Vec<u8>>;

    /// Keeps records from [`Catch::cut`] of any client, in the place of what was got. They come by
    /// ascending rank of who cut them, and each rank's in its order.
    ///
    /// # Errors
    /// When the bytes are no records.
    fn keep(&self, records: &[u8]) -> Result<()>;
}

/// The catch of a call that is not sifted, and of a client that wants nothing: it forgets all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nothing;

impl Catch for Nothing {
    fn take(&self, _server: usize, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn count(&self) -> Result<u64> {
        Ok(0)
    }

    fn cut(&self, _records: Range<u64>) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn keep(&self, _records: &[u8]) -> Result<()> {
        Ok(())
    }
}
