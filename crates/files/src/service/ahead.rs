//! Blocks that are fetched before they are asked for, and stored before there is no room.
//!
//! A server keeps the last 32 different blocks that were used. If the blocks before one that is
//! used now are among them, n of them without a gap, the next n blocks are fetched, up to 512 KiB
//! (Corbett and Feitelson, TOCS 1996, section 4.5). Where many files are used at once, there are
//! fewer blocks of each among the 32, and fewer are fetched. Nothing is fetched after a write of
//! whole blocks, which need not be read in order to be changed.

use std::collections::BTreeSet;

use futures::future::join_all;
use penstock_engine::{Machine, Operation, Result};
use penstock_layout::{Holding, List};

use super::schedule::Footprint;
use super::state::Service;
use crate::messages::{Access, refusal};
use crate::object::ObjectId;
use crate::volume::BlockName;
use crate::volume::cells::Version;
use crate::volume::records::RecordStore;

/// The most blocks, and the most bytes, that are fetched ahead.
const AHEAD_BLOCKS: u64 = 8;
const AHEAD_BYTES: u64 = 512 << 10;

impl<M: Machine, R: RecordStore> Service<'_, M, R> {
    /// Fetches the blocks that are likely to be asked for after an access.
    pub(super) async fn fetch_ahead(&self, access: &Access) {
        let block_bytes = self.volume.block_bytes();
        let ahead_max = AHEAD_BLOCKS.min(AHEAD_BYTES / block_bytes);
        let mut wanted = BTreeSet::new();
        for part in &access.parts {
            let Some(bounds) = part.places.bounds() else {
                continue;
            };
            let is_of_whole_blocks = part.places.elements() >= block_bytes;
            let fetches = access.operation == Operation::Read || !is_of_whole_blocks;
            // Only the last blocks of a long access tell of what comes next.
            let last = (bounds.end - 1) / block_bytes;
            let first = (bounds.start / block_bytes).max(last.saturating_sub(ahead_max));
            for block in first..=last {
                let name = BlockName {
                    file: access.file,
                    version: access.version,
                    cell: part.cell,
                    block,
                };
                let ahead = self.recent.borrow_mut().note(&name, ahead_max);
                let end = self
                    .volume
                    .cell_bytes(access.file, part.cell, access.version)
                    .unwrap_or(0);
                let next = (1..=ahead)
                    .filter(|_| fetches)
                    .map(|distance| block + distance);
                let next = next.filter(|block| block * block_bytes < end);
                wanted.extend(next.map(|block| BlockName {
                    block,
                    ..name.clone()
                }));
            }
        }
        wanted.retain(|name| !self.blocks.has(name) && self.volume.is_stored(name));
        if wanted.is_empty() {
            return;
        }
        let place = self.schedule(access.file).enter(Footprint::Any);
        // An error is told to the one who asks for the block.
        if self.turn_of(&place, access.file).await.is_ok() {
            let _ = self.fetch(wanted).await;
        }
    }

    /// Brings blocks in. The caller has a place in the order of their file.
    async fn fetch(&self, names: impl IntoIterator<Item = BlockName>) -> Result<()> {
        let fetched = names.into_iter().map(|name| async move {
            let home = || self.home(&name);
            self.blocks.fetch(&name, home).await
        });
        join_all(fetched).await.into_iter().collect()
    }

    /// The blocks of parts of cells.
    fn blocks_of(&self, file: ObjectId, parts: &[(u64, List)]) -> Result<BTreeSet<BlockName>> {
        let mut names = BTreeSet::new();
        for (cell, places) in parts {
            let end = self
                .volume
                .cell_bytes(file, *cell, Version::Active)
                .unwrap_or(0);
            let holding = Holding::new(places, places).map_err(|e| refusal(e.to_string()))?;
            for (block, _) in holding.before(end).pieces(&self.cell_blocks) {
                names.insert(BlockName {
                    file,
                    version: Version::Active,
                    cell: *cell,
                    block: block.index,
                });
            }
        }
        Ok(names)
    }

    /// Brings parts of cells into memory, as a client has asked.
    pub(super) async fn prefetch(&self, file: ObjectId, parts: &[(u64, List)]) -> Result<()> {
        let place = self.schedule(file).enter(Footprint::Any);
        self.turn_of(&place, file).await?;
        self.fetch(self.blocks_of(file, parts)?).await
    }

    /// Stores the changed blocks of parts of cells, and lets them be replaced first.
    pub(super) async fn flush(&self, file: ObjectId, parts: &[(u64, List)]) -> Result<()> {
        let place = self.schedule(file).enter(Footprint::Any);
        self.turn_of(&place, file).await?;
        let names = self.blocks_of(file, parts)?;
        join_all(names.iter().map(|name| self.blocks.write_back(name))).await;
        names
            .iter()
            .for_each(|name| self.blocks.release_first(name));
        self.volume.check(file)
    }
}
