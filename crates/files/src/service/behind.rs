//! The blocks that wait for their turn at the disks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use penstock_engine::signal::Signal;

use crate::volume::BlockName;

/// The blocks that wait for their turn at the disks.
#[derive(Default)]
pub(super) struct WriteBehind {
    /// The first to be written first.
    pub(super) waiting: RefCell<VecDeque<BlockName>>,
    /// The number of blocks that are being written.
    pub(super) written: Cell<usize>,
    /// The number of requests so far.
    pub(super) requests: Cell<u64>,
    /// The signal that blocks were changed.
    pub(super) changed: Signal,
}
