//! The sieve of a simulated server: it lets a fixed part of each portion through.
//!
//! What is let through are the first elements of a portion, each with the bytes that say where it
//! was. The time of sifting is that of a copy ([`penstock_engine::Work::Sift`]); a study that knows
//! the time of a sieve may set the preset's costs.

use penstock_engine::encoding::{decode, encode};
use penstock_engine::{Addressee, Delivery, Portion, Result, Sieve, Window};
use penstock_layout::{Block, Direction, exact};
use serde::{Deserialize, Serialize};

use super::data::Buffer;

/// The part of the elements that simulated servers let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selectivity {
    /// The elements of a portion to which `kept` refers.
    pub of: u64,
    /// How many elements of each `of` go through; rounded down.
    pub kept: u64,
    /// The bytes that go with each element, beside its own.
    pub index_bytes: u64,
    /// The number of ranks, if elements go to all ranks alike and not to their holders; the first
    /// ones of a portion go to rank 0.
    pub dealt_to: Option<usize>,
}

impl Selectivity {
    /// The selectivity as servers hear it: [`penstock_engine::Sifting::words`].
    ///
    /// # Errors
    /// None that is known.
    pub fn words(&self) -> Result<Vec<u8>> {
        encode(self)
    }
}

/// The sieve of one server and call.
pub struct SimSieve {
    selectivity: Selectivity,
    width: u64,
}

impl SimSieve {
    pub(super) fn new(words: &[u8], width: u64) -> Result<Self> {
        Ok(Self {
            selectivity: decode(words)?,
            width,
        })
    }
}

impl Sieve for SimSieve {
    type Buffer = Buffer;

    fn wants(&self, _: &Block) -> bool {
        true
    }

    fn sift(&self, block: &Block, portions: &[Portion], buffer: &Buffer) -> Result<Vec<Delivery>> {
        let Selectivity {
            of,
            kept,
            index_bytes,
            dealt_to,
        } = self.selectivity;
        let window = Window::of_block(block, self.width);
        let deliveries = portions.iter().flat_map(|portion| {
            let elements = portion.piece.elements();
            let through = (elements / of.max(1) * kept + elements % of.max(1) * kept / of.max(1))
                .min(elements);
            let mut bytes = vec![0; portion.piece.packed_bytes(window.width)];
            buffer.copy_packed(&portion.piece, &window, &mut bytes, Direction::Scatter);
            bytes.truncate(exact::<usize>(through * self.width));
            bytes.resize(exact::<usize>(through * (self.width + index_bytes)), 0);
            let to = |rank: usize, bytes: &[u8]| Delivery {
                to: Addressee::Rank(rank),
                bytes: bytes.to_vec(),
            };
            match dealt_to {
                None => vec![to(portion.rank, &bytes)],
                Some(ranks) => {
                    let part = bytes.len().div_ceil(ranks.max(1)).max(1);
                    let parts = bytes.chunks(part).enumerate();
                    parts.map(|(rank, part)| to(rank, part)).collect()
                }
            }
        });
        Ok(deliveries.collect())
    }

    fn rest(&self) -> Result<Option<Delivery>> {
        Ok(None)
    }
}
