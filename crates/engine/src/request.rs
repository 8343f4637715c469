//! What the ranks ask for together: one compact request, whatever the size of the array.

use penstock_layout::{DiskSchema, MemorySchema};
use serde::{Deserialize, Serialize};

use crate::machine::{Opening, Operation};
use crate::tuning::{Split, Strategy};

/// A collective request about one array. Servers work out all else from it. A call may be about
/// several arrays, with a request for each.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// Which way.
    pub operation: Operation,
    /// By what strategy.
    pub strategy: Strategy,
    /// Which rank holds which elements.
    pub memory: MemorySchema,
    /// How the array lies on disk.
    pub disk: DiskSchema,
    /// What the disks are to open: the machine's own words, of no meaning to a strategy.
    pub target: Vec<u8>,
    /// How many of the servers take part: the first so many.
    pub servers: usize,
    /// Whether written data must be on stable storage before the verdict.
    pub sync: bool,
    /// How the call is split, if the disks are to work while the clients compute.
    pub split: Option<Split>,
    /// Of a write, what becomes of elements that no rank holds.
    pub rest: Rest,
}

/// What a write does about elements that no rank holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rest {
    /// They keep what is stored. Only disk-directed.
    Keep,
    /// In a block of which a rank holds anything they become this element, its bytes; no bytes
    /// stand for zero. Blocks of which nobody holds anything are not written: the store gives this
    /// element for them.
    Fill(Vec<u8>),
    /// The same, but all blocks are written: the store cannot say what the others hold.
    /// Disk-directed or two-phase.
    FillAll(Vec<u8>),
}

impl Rest {
    /// The bytes of the element that elements of nobody become.
    pub fn element(&self) -> &[u8] {
        match self {
            Self::Keep => &[],
            Self::Fill(element) | Self::FillAll(element) => element,
        }
    }
}

impl Request {
    /// What `server` opens for this request.
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

    /// Whether a block is to be written of which nobody holds anything.
    pub fn writes_all(&self) -> bool {
        self.operation == Operation::Write && matches!(self.rest, Rest::FillAll(_))
    }
}
