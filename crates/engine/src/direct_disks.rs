//! The disks that a client moves blocks on by itself, without their servers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use penstock_layout::Block;

use crate::error::Result;
use crate::machine::{BlockFile, Machine};
use crate::request::Request;

/// The disks that a client opened itself: one where every node reaches the whole store, otherwise
/// the disk of each server.
pub(crate) struct DirectDisks<'a, M: Machine> {
    machine: &'a M,
    request: &'a Request,
    disks: BTreeMap<usize, M::File>,
}

impl<'a, M: Machine> DirectDisks<'a, M> {
    /// Opens the disks.
    ///
    /// # Errors
    /// When the target is not there or does not allow the request's operation.
    pub(crate) async fn open(machine: &'a M, request: &'a Request) -> Result<Self> {
        let mut disks = BTreeMap::new();
        for server in (0..request.servers).map(|server| machine.disk_for(server)) {
            if let Entry::Vacant(free) = disks.entry(server) {
                free.insert(machine.open(request.opening(server)).await?);
            }
        }
        Ok(Self {
            machine,
            request,
            disks,
        })
    }

    /// The disk on which a block lies.
    pub(crate) fn of(&self, block: &Block) -> &M::File {
        let server = self.request.disk.server_of(block, self.request.servers);
        &self.disks[&self.machine.disk_for(server)]
    }

    /// Ends the writes on all disks.
    ///
    /// # Errors
    /// The first error of a disk.
    pub(crate) async fn finish(&self) -> Result<()> {
        for disk in self.disks.values() {
            disk.finish().await?;
        }
        Ok(())
    }
}
