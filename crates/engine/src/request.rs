//! What the ranks ask for together: one compact request, whatever the size of the array.

use penstock_layout::{Block, DiskSchema, Holder, MemorySchema, Piece};
use serde::{Deserialize, Serialize};

use crate::machine::{NodeId, Opening, Operation};
use crate::roles::Roles;
use crate::tuning::{Split, Strategy};

/// A collective request about one array. Servers work out all else from it. A call may be about several
/// arrays, with a request for each.
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
    /// In a block of which a rank holds anything they become this element, its bytes; no bytes stand for zero. Blocks of
    /// which nobody holds anything are not written: the store gives this element for them.
    Fill(Vec<u8>),
    /// The same, but all blocks are written: the store cannot say what the others hold. Disk-directed or two-phase.
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

/// What one share has of a block.
#[derive(Debug, Clone)]
pub struct Portion {
    /// The node of the client that holds it.
    pub client: NodeId,
    /// Which of the client's shares it is of, from 0.
    pub part: u64,
    /// Which elements, and where they are in the share.
    pub piece: Piece,
}

impl Request {
    /// The blocks that `server` moves, in the order in which they lie on disk. Where ranks name boxes, it
    /// does not look at blocks far from all of them, unless what nobody holds is to be written.
    pub fn blocks(&self, server: usize) -> Box<dyn Iterator<Item = Block> + '_> {
        let Self { disk, servers, .. } = self;
        match &self.memory {
            MemorySchema::Boxes(boxes)
                if !self.writes_all()
                    && let Some(bounds) = boxes.bounds() =>
            {
                let near = disk.blocks_in(bounds);
                Box::new(near.filter(move |block| disk.server_of(block, *servers) == server))
            }
            _ => Box::new(disk.blocks(server, *servers)),
        }
    }

    /// Who holds what of a block. Takes time in proportion to the shares that touch it, not to all.
    pub fn portions(&self, roles: &Roles, block: &Block) -> Vec<Portion> {
        let shares = self.memory.touching(&block.region).into_iter();
        let portions = shares.filter_map(|share| {
            let piece = self.memory.share(share).intersect(&block.region)?;
            let Holder { rank, part } = self.memory.holder(share);
            Some(Portion {
                client: roles.clients[rank],
                part: part as u64,
                piece,
            })
        });
        portions.collect()
    }

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
