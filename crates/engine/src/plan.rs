//! What will happen, in words and numbers, before it does.

use std::fmt::Write;

use crate::disk_directed::BUFFERS_PER_DISK;
use crate::request::{Operation, Request, Roles};

/// The part of one server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerPlan {
    /// Blocks that it moves.
    pub blocks: u64,
    /// Their bytes on disk's side, decoded, padding included.
    pub bytes: u64,
    /// Memgets or memputs.
    pub transfers: u64,
    /// Contiguous stretches of the blocks that belong to one client.
    pub stretches: u64,
    /// The fewest and the most clients that share a block.
    pub clients_min: u64,
    /// See `clients_min`.
    pub clients_max: u64,
}

/// A whole request, planned for every server.
#[derive(Debug, Clone)]
pub struct Plan {
    operation: Operation,
    array_bytes: u64,
    objects: u64,
    clients: usize,
    block_bytes_max: u64,
    sync: bool,
    /// The part of each server.
    pub servers: Vec<ServerPlan>,
}

impl Plan {
    /// Plans `request` for all of `roles`. Takes time in proportion to the number of blocks.
    pub fn new(request: &Request, roles: &Roles) -> Self {
        let servers = (0..request.servers).map(|server| Self::server(request, server));
        Self {
            operation: request.operation,
            array_bytes: request.disk.bytes(),
            objects: request.disk.objects(),
            clients: roles.clients.len(),
            block_bytes_max: request.disk.block_bytes_max(),
            sync: request.sync,
            servers: servers.collect(),
        }
    }

    fn server(request: &Request, server: usize) -> ServerPlan {
        let mut plan = ServerPlan {
            clients_min: u64::MAX,
            ..ServerPlan::default()
        };
        for block in request.disk.blocks(server, request.servers) {
            let holders = request.memory.touching(&block.region);
            if holders.is_empty() {
                continue;
            }
            let clients = holders.len() as u64;
            plan.blocks += 1;
            plan.bytes += block.bytes;
            plan.transfers += clients;
            plan.clients_min = plan.clients_min.min(clients);
            plan.clients_max = plan.clients_max.max(clients);
            let pieces = holders
                .iter()
                .filter_map(|&rank| request.memory.share(rank).intersect(&block.region));
            plan.stretches += pieces
                .map(|piece| piece.stretches(&block.region.shape))
                .sum::<u64>();
        }
        plan.clients_min = plan.clients_min.min(plan.clients_max);
        plan
    }

    /// All servers together.
    pub fn total(&self) -> ServerPlan {
        let mut total = ServerPlan {
            clients_min: u64::MAX,
            ..ServerPlan::default()
        };
        for server in self.servers.iter().filter(|server| server.blocks > 0) {
            total.blocks += server.blocks;
            total.bytes += server.bytes;
            total.transfers += server.transfers;
            total.stretches += server.stretches;
            total.clients_min = total.clients_min.min(server.clients_min);
            total.clients_max = total.clients_max.max(server.clients_max);
        }
        total.clients_min = total.clients_min.min(total.clients_max);
        total
    }

    /// Messages of the whole call: four passes over the tree of nodes, and for every transfer one
    /// to the client and one back.
    pub fn messages(&self, nodes: usize) -> u64 {
        4 * (nodes as u64 - 1) + 2 * self.total().transfers
    }

    /// Staging memory of all servers, bytes.
    pub fn buffer_bytes(&self) -> u64 {
        let buffers = self
            .servers
            .iter()
            .map(|server| server.blocks.min(BUFFERS_PER_DISK));
        buffers.sum::<u64>() * self.block_bytes_max
    }

    /// The plan in words and numbers.
    pub fn explain(&self, nodes: usize) -> String {
        let total = self.total();
        let (verb, transfer, way) = match self.operation {
            Operation::Write => ("write", "memgets", "from"),
            Operation::Read => ("read", "memputs", "into"),
        };
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = writeln!(
            text,
            "disk-directed {verb} of {} {way} {} clients, by {} servers",
            bytes(self.array_bytes),
            self.clients,
            self.servers.len()
        );
        let _ = writeln!(
            text,
            "  disk      {} objects, moved as {} blocks of at most {}, {} in all",
            self.objects,
            total.blocks,
            bytes(self.block_bytes_max),
            bytes(total.bytes)
        );
        let _ = writeln!(
            text,
            "  order     each server passes once over its own blocks, sorted by position{}",
            if self.sync && self.operation == Operation::Write {
                ", then syncs"
            } else {
                ""
            }
        );
        let _ = writeln!(
            text,
            "  clients   {} to {} hold parts of a block, in {} contiguous stretches",
            total.clients_min, total.clients_max, total.stretches
        );
        let _ = writeln!(
            text,
            "  messages  {} ({} {transfer} and their answers, {} for agreement and verdict)",
            self.messages(nodes),
            total.transfers,
            4 * (nodes - 1)
        );
        let _ = writeln!(
            text,
            "  memory    {} of staging buffers: {BUFFERS_PER_DISK} for each server's disk",
            bytes(self.buffer_bytes())
        );
        for (number, server) in self.servers.iter().enumerate() {
            let _ = writeln!(
                text,
                "  server {number}  {} blocks, {}, {} {transfer}",
                server.blocks,
                bytes(server.bytes),
                server.transfers
            );
        }
        text
    }
}

/// `1536` as `1.5 KiB`.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value.fract() == 0.0 {
        0
    } else {
        1
    };
    format!("{value:.digits$} {}", UNITS[unit])
}
