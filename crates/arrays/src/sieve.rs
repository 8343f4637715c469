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
//! | `count` | how many elements each part of the array has to select, for an even deal in two turns |
//! | `reduce` | reductions: cells, and the folds of servers in them |
//! | `folds`, `sum`, `native` | what the elements of a cell come to; exact sums; elements as numbers |
//! | `runs` | the elements that ranks have of a block, in the order of the array |
//! | `numbers` | numbers on their way |

mod count;
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
use std::sync::Mutex;

use penstock_engine::Result;
use penstock_engine::encoding::{decode, encode};
use penstock_machines::BlockSieve;
use serde::{Deserialize, Serialize};

use crate::dtype::ElementType;
use crate::expression::{Condition, Scope};
use count::CountSieve;
pub(crate) use count::{CountCatch, parts_for};
pub use recipients::Recipients;
pub(crate) use recipients::SampledKey;
use recipients::{Deal, EqualParts};
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
    /// Delivers to all ranks how many elements satisfy a condition, in each part of the array.
    Count {
        condition: String,
        /// The number of parts, which are equal.
        parts: usize,
    },
}

impl Work {
    /// The condition on elements that are looked at.
    pub(crate) fn condition(&self) -> Option<&str> {
        match self {
            Self::Select { condition, .. } | Self::Count { condition, .. } => Some(condition),
            Self::Reduce(_) => None,
        }
    }
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
        let selecting = |condition: &str, fields: Option<&[String]>, deal| {
            Ok(SelectSieve {
                condition: Condition::read(condition, &scope)?,
                fields: Fields::of(&self.element, fields)?,
                deal,
                ruled_out: self.ruled_out,
                shape: self.shape.clone(),
            })
        };
        match self.work {
            Work::Select {
                condition,
                fields,
                recipients,
                ranks,
            } => {
                let deal = Deal::new(&recipients, (&self.shape, ranks), &scope)?;
                let sieve = selecting(&condition, fields.as_deref(), deal)?;
                Ok(Box::new(sieve))
            }
            Work::Count { condition, parts } => {
                let parts = Deal::Evenly(EqualParts::new(&self.shape, parts)?);
                Ok(Box::new(CountSieve {
                    selecting: selecting(&condition, None, Some(parts))?,
                    counts: Mutex::default(),
                }))
            }
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
