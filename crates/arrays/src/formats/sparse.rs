//! Leaves out blocks that hold nothing but the fill value: they stay missing, and read as the fill
//! value.

use std::sync::Arc;

use penstock_engine::{Digest, Result};
use penstock_layout::Block;
use penstock_machines::Medium;

/// Leaves out blocks of the fill value, if each block is written once.
pub(super) struct Sparse {
    medium: Arc<dyn Medium>,
    /// The bytes of one element.
    fill: Vec<u8>,
}

impl Sparse {
    pub(super) fn new(medium: Arc<dyn Medium>, fill: Vec<u8>) -> Self {
        Self { medium, fill }
    }

    /// Whether all of these elements are the fill value.
    fn is_missing(&self, data: &[u8]) -> bool {
        let width = self.fill.len();
        // Each element equals the one before it.
        data.starts_with(&self.fill) && data[width..] == data[..data.len() - width]
    }
}

impl Medium for Sparse {
    fn position(&self, block: &Block) -> Option<u64> {
        self.medium.position(block)
    }

    fn is_in_order(&self) -> bool {
        self.medium.is_in_order()
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        match self.is_missing(data) {
            true => Ok(()),
            false => self.medium.write(block, data),
        }
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.medium.read(block, data)
    }

    fn moves_parts(&self) -> bool {
        self.medium.moves_parts()
    }

    fn write_part(&self, block: &Block, offset: u64, data: &[u8]) -> Result<()> {
        match self.is_missing(data) {
            true => Ok(()),
            false => self.medium.write_part(block, offset, data),
        }
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        self.medium.read_part(block, offset, data)
    }

    fn finish(&self, sync: bool) -> Result<()> {
        self.medium.finish(sync)
    }

    fn digests(&self) -> Vec<Digest> {
        self.medium.digests()
    }

    fn changes(&self) -> Vec<u8> {
        self.medium.changes()
    }
}
