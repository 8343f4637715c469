//! What the ranks ask for together: one compact request, whatever the size of the array.

use penstock_layout::{Block, DiskSchema, Holder, MemorySchema, Piece};
use serde::{Deserialize, Serialize};

use crate::machine::NodeId;
use crate::split::Split;
use crate::{caching, disk_directed, two_phase};

/// Which way the data go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operation {
    /// From the clients' memories to the disks.
    Write,
    /// From the disks to the clients' memories.
    Read,
}

/// How a request is met, and the tuning of it: all ranks use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// The servers direct the flow: [`disk_directed`].
    DiskDirected(disk_directed::Options),
    /// Clients ask for what they want, servers cache: [`caching`].
    Caching(caching::Options),
    /// Clients move conforming parts and permute: [`two_phase`].
    TwoPhase(two_phase::Options),
    /// Every client moves its own runs itself: [`independent`](crate::independent).
    Independent,
}

impl Strategy {
    /// The word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::DiskDirected(_) => "disk-directed",
            Self::Caching(_) => "caching",
            Self::TwoPhase(options) => options.exchange.name(),
            Self::Independent => "independent",
        }
    }
}

impl Default for Strategy {
    fn default() -> Self {
        Self::DiskDirected(disk_directed::Options::default())
    }
}

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

    /// Whether a block is to be written of which nobody holds anything.
    pub fn writes_all(&self) -> bool {
        self.operation == Operation::Write && matches!(self.rest, Rest::FillAll(_))
    }
}

/// Which node plays which part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles {
    /// Number of nodes.
    pub nodes: usize,
    /// The node of each client, by rank.
    pub clients: Vec<NodeId>,
    /// The node of each server, by number. A node may hold several servers.
    pub servers: Vec<NodeId>,
    ranks: Vec<Option<usize>>,
    servers_by_node: Vec<(NodeId, usize)>,
    /// The node of rank 0, and then the others that have a server, ascending.
    serving: Vec<NodeId>,
}

impl Roles {
    /// Rank `r` is the client on `clients[r]`, server `s` is on `servers[s]`.
    ///
    /// # Panics
    /// When a node is not one of the machine's, or has two clients.
    pub fn new(nodes: usize, clients: Vec<NodeId>, servers: Vec<NodeId>) -> Self {
        let mut ranks = vec![None; nodes];
        for (rank, &node) in clients.iter().enumerate() {
            assert_eq!(ranks[node], None, "node {node} has two clients");
            ranks[node] = Some(rank);
        }
        let numbered = servers.iter().enumerate().map(|(server, &node)| {
            assert!(node < nodes, "server {server} is on node {node} of {nodes}");
            (node, server)
        });
        let mut servers_by_node: Vec<_> = numbered.collect();
        servers_by_node.sort_unstable();
        let root = clients.first().copied();
        let mut serving: Vec<_> = servers_by_node.iter().map(|&(node, _)| node).collect();
        serving.dedup();
        serving.retain(|&node| Some(node) != root);
        serving.splice(0..0, root);
        Self {
            nodes,
            clients,
            servers,
            ranks,
            servers_by_node,
            serving,
        }
    }

    /// The rank of the client on `node`, if it has one.
    pub fn rank(&self, node: NodeId) -> Option<usize> {
        self.ranks[node]
    }

    /// The node of rank 0, and then the others that have a server, ascending.
    pub fn serving(&self) -> &[NodeId] {
        &self.serving
    }

    /// Where `node` is among [`Roles::serving`], if it is.
    pub fn place_serving(&self, node: NodeId) -> Option<usize> {
        let (root, others) = self.serving.split_first()?;
        match node == *root {
            true => Some(0),
            false => others.binary_search(&node).ok().map(|place| place + 1),
        }
    }

    /// The numbers of the servers on `node`, ascending.
    pub fn servers_on(&self, node: NodeId) -> impl Iterator<Item = usize> + '_ {
        let first = self.servers_by_node.partition_point(|&(at, _)| at < node);
        let here = self.servers_by_node[first..].iter();
        here.take_while(move |(at, _)| *at == node)
            .map(|&(_, server)| server)
    }
}

/// The checksum of an object that was written: of its bytes decoded, padding included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// Which array of the call.
    pub array: usize,
    /// The object's number.
    pub object: u64,
    /// CRC-32C (Castagnoli).
    pub crc32c: u32,
}

/// What a call has done, as its director hears of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// What all servers together have moved.
    pub moved: Moved,
    /// The checksums of what was written, where the disks were to make them; by array and object.
    pub sums: Vec<Sum>,
}

/// What one or several servers have moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Blocks read or written.
    pub blocks: u64,
    /// Their bytes on the way between buffers and disks, decoded, padding included.
    pub disk_bytes: u64,
    /// Memgets or memputs.
    pub transfers: u64,
    /// Bytes of staging buffers.
    pub buffer_bytes: u64,
}

impl Moved {
    /// Adds what another has moved.
    pub fn add(&mut self, other: &Moved) {
        self.blocks += other.blocks;
        self.disk_bytes += other.disk_bytes;
        self.transfers += other.transfers;
        self.buffer_bytes += other.buffer_bytes;
    }
}
