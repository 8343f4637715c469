//! The request of all ranks together, compact whatever the size of the array.

use penstock_layout::{DiskSchema, MemorySchema};
use serde::{Deserialize, Serialize};

use crate::machine::{Opening, Operation};
use crate::tuning::{Split, Strategy};

/// A request is collective and about one array. Servers work out all else from it. A call about
/// several arrays has a request for each.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// The direction of the data.
    pub operation: Operation,
    /// The strategy, with its tuning.
    pub strategy: Strategy,
    /// The memory schema: which rank holds which elements.
    pub memory: MemorySchema,
    /// The array's disk schema.
    pub disk: DiskSchema,
    /// The target that the disks open, in the machine's own words, without meaning to a strategy.
    pub target: Vec<u8>,
    /// The number of servers that take part: servers 0 to `servers` - 1.
    pub servers: usize,
    /// Whether written data must be on stable storage before the verdict.
    pub sync: bool,
    /// The split of the call, if the disks are to work while the clients compute.
    pub split: Option<Split>,
    /// The treatment of elements that no rank holds, in a write.
    pub rest: Rest,
}

/// The rest says what a write does to elements that no rank holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rest {
    /// The elements keep what is stored. Only disk-directed I/O can do it.
    Keep,
    /// The elements become this element, given by its bytes, in each block that has elements of a
    /// rank; no bytes stand for zero. Other blocks are not written: the store gives this element
    /// for them.
    Fill(Vec<u8>),
    /// The elements become this element in all blocks, since the store cannot give it for blocks
    /// that are not written. Only disk-directed and two-phase I/O can do it.
    FillAll(Vec<u8>),
}

impl Rest {
    /// The bytes of the element that fills the rest.
    pub fn element(&self) -> &[u8] {
        match self {
            Self::Keep => &[],
            Self::Fill(element) | Self::FillAll(element) => element,
        }
    }
}

impl Request {
    /// The opening of `server` for this request.
    pub fn opening(&self, server: usize) -> Opening {
        Opening {
            target: self.target.clone(),
            disk: self.disk.clone(),
            operation: self.operation,
            sync: self.sync,
            server,
            servers: self.servers,
        }
    }

    /// Whether a write also writes blocks without elements of any rank.
    pub fn writes_all(&self) -> bool {
        self.operation == Operation::Write && matches!(self.rest, Rest::FillAll(_))
    }
}
