//! What the ranks ask for together: one compact request, whatever the size of the array.

use penstock_layout::{DiskSchema, MemorySchema};
use serde::{Deserialize, Serialize};

use crate::machine::NodeId;

/// Which way the data go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// From the clients' memories to the disks.
    Write,
    /// From the disks to the clients' memories.
    Read,
}

/// A collective request. Servers work out all else from it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// Which way.
    pub operation: Operation,
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
}

impl Roles {
    /// The rank of the client on `node`, if it has one.
    pub fn rank(&self, node: NodeId) -> Option<usize> {
        self.clients.iter().position(|&client| client == node)
    }

    /// The numbers of the servers on `node`.
    pub fn servers_on(&self, node: NodeId) -> Vec<usize> {
        (0..self.servers.len())
            .filter(|&server| self.servers[server] == node)
            .collect()
    }
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
