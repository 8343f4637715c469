//! The blocks that are full of changes and wait for their turn at the disks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::volume::BlockName;

/// The full blocks that wait, the first to be written first.
#[derive(Default)]
pub(super) struct FullBlocks {
    pub(super) waiting: RefCell<VecDeque<BlockName>>,
    /// The number of blocks that are being written.
    pub(super) written: Cell<usize>,
}
