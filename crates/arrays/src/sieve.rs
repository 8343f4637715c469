//! Work at the servers: what the servers of a sifted read make of the elements of an array.
//!
//! Kotz, TOCS 1997, section 8, on arrays of any stored form. The director of a call tells servers
//! what to do as a [`SieveOrder`]; each makes a sieve of it, for its blocks, and each rank has a
//! catch for what comes.
//!
//! | file | contents |
//! |---|---|
//! | `select` | elements that satisfy a condition, with their places |
//! | `recipients` | to whom they go: who holds them, all evenly, or by a value |
//! | `reduce` | reductions: cells, and the folds of servers in them |
//! | `folds`, `sum`, `native` | what the elements of a cell come to; exact sums; elements as numbers |
//! | `runs` | the elements that ranks have of a block, in the order of the array |
//! | `numbers` | numbers on their way |

mod folds;
mod native;
mod numbers;
mod recipients;
mod reduce;
mod runs;
mod select;
mod sum;
#[cfg(test)]
mod tests;

use std::ops::Range;

use penstock_engine::Result;
use penstock_engine::encoding::{decode, encode};
use penstock_machines::BlockSieve;
use serde::{Deserialize, Serialize};

use crate::dtype::ElementType;
use crate::expression::{Condition, Scope};
use recipients::Deal;
pub use recipients::Recipients;
pub(crate) use recipients::SampledKey;
pub(crate) use reduce::ReduceCatch;
pub use reduce::{How, Reduction};
use select::SelectSieve;
pub(crate) use select::{Fields, SelectCatch};

/// What servers do to the elements of an array, in words that they understand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SieveOrder {
    /// The name of the array, as expressions have it.
    pub(crate) name: String,
    pub(crate) element: ElementType,
    pub(crate) shape: Vec<u64>,
    /// The names of the dimensions.
    pub(crate) dims: Option<Vec<String>>,
    /// The objects that have nothing to let through, as ranges of their numbers, ascending.
    pub(crate) ruled_out: Vec<Range<u64>>,
    pub(crate) work: Work,
}

/// The kinds of work at the servers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Delivers elements that satisfy a condition.
    Select {
        condition: String,
        /// The fields that are delivered of records, all without.
        fields: Option<Vec<String>>,
        recipients: Recipients,
        /// The number of ranks.
        ranks: usize,
    },
    /// Delivers folds of elements to all ranks.
    Reduce(Reduction),
}

impl SieveOrder {
    /// The words for servers: [`penstock_engine::Sifting::words`].
    ///
    /// # Errors
    /// When they cannot be encoded.
    pub(crate) fn words(&self) -> Result<Vec<u8>> {
        encode(self)
    }

    /// The names in conditions on the array.
    pub(crate) fn scope(&self) -> Scope {
        Scope::new(
            &self.name,
            &self.element,
            self.dims.as_deref(),
            self.shape.len(),
        )
    }

    /// Checks that servers can do it.
    ///
    /// # Errors
    /// That of the condition or of the reduction.
    pub(crate) fn check(&self) -> Result<()> {
        self.clone().sieve().map(drop)
    }

    /// The sieve of one server.
    ///
    /// # Errors
    /// As [`SieveOrder::check`].
    fn sieve(self) -> Result<Box<dyn BlockSieve>> {
        let scope = self.scope();
        match self.work {
            Work::Select {
                condition,
                fields,
                recipients,
                ranks,
            } => Ok(Box::new(SelectSieve {
                condition: Condition::read(&condition, &scope)?,
                fields: Fields::of(&self.element, fields.as_deref())?,
                deal: Deal::new(&recipients, (&self.shape, ranks), &scope)?,
                ruled_out: self.ruled_out,
                shape: self.shape,
            })),
            Work::Reduce(reduction) => reduction.sieve(&self.shape, &self.element),
        }
    }
}

/// The sieve of one server, by the words of a request.
///
/// # Errors
/// When they make no sense.
pub(crate) fn heard(words: &[u8]) -> Result<Box<dyn BlockSieve>> {
    decode::<SieveOrder>(words)?.sieve()
}
