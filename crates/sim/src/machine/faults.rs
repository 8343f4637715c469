//! The faults of a run, as a value.
//!
//! The fault model:
//!
//! - A node is lost at once, when the n-th message from it or to it is handed to the network, or at
//!   the n-th event of the run. Its code is dropped, guards run, and that message vanishes with all
//!   others that come to the node or wait to leave it. Messages in the network arrive. Each other
//!   node hears of the loss after a delay of its own, up to `notice_max`; its memgets, memputs and
//!   transmits with the lost node then end with the error that names it. Sends vanish in silence.
//! - A node crashes at once in the same way and is back after a while: its disks lose what was not
//!   synced, and its code begins anew. Or a link between two nodes is cut, and is back after a
//!   while. All that was sent over a link before it was cut, or is sent over it until both ends
//!   have heard of its return, vanishes. Each node hears that the other has left, and later that it
//!   has joined, after delays of its own, or at once when a message comes from there again; it
//!   hears of the return when the other knows of the cut. A node that is back hears who is there.
//! - A message takes longer by a random time, up to `late_max`. Messages of one node to one port of
//!   another keep their order; all others may overtake.
//! - A disk is slow by a factor, is full after a number of writes, gives an error for its n-th
//!   request, or has a block that nobody can read.
//! - A node crashes between two runs: its disks lose writes that were not synced, or parts of them
//!   (see `contents`). A write under way when a run ends has left its block alone.
//!
//! All random numbers come from the seed of the setup, in a stream of their own. Without faults no
//! number is drawn and no event is made: a run is the same as if this module did not exist.

use std::cell::Cell;

use penstock_engine::{Error, Kind, NodeId, Operation, Result};
use penstock_layout::Block;

use crate::time::Span;

/// The faults of a run; the default is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// The nodes that are lost.
    pub losses: Vec<Loss>,
    /// The nodes and links that fail, and are back after a while.
    pub outages: Vec<Outage>,
    /// The longest time until a node hears that another is lost or back.
    pub notice_max: Span,
    /// The longest additional time of a message.
    pub late_max: Span,
    /// The faults of disks, each with the number of the disk.
    pub disks: Vec<(usize, DiskFault)>,
}

/// A loss ends all code of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The node.
    pub node: NodeId,
    /// The moment, counted from 1.
    pub at: Moment,
}

/// An outage lasts for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// What fails.
    pub scope: Scope,
    /// The moment, counted from 1.
    pub at: Moment,
    /// The time until it is back.
    pub lasts: Span,
}

/// The scope of an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The node crashes. It must have no program that the run waits for.
    Node(NodeId),
    /// The link between two nodes is cut.
    Link(NodeId, NodeId),
}

/// The moment of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The n-th message from the node or to it is handed to the network; of a link, from or to its
    /// first node.
    Message(u64),
    /// The n-th event of the run has happened.
    Event(u64),
}

/// The fault of a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DiskFault {
    /// Each request takes this many times as long.
    Slow(u32),
    /// The disk takes this many writes, and no more.
    Full(u64),
    /// The request with this number, from 1, fails.
    Failing(u64),
    /// The block with this index of this object cannot be read.
    Unreadable(u64, u64),
}

/// The faults of one disk, and its requests so far.
#[derive(Default)]
pub(super) struct DiskFaults {
    faults: Vec<DiskFault>,
    requests: Cell<u64>,
    writes: Cell<u64>,
}

impl DiskFaults {
    /// The faults of disk number `disk`.
    pub(super) fn of(faults: &Faults, disk: usize) -> Self {
        let of_disk = faults.disks.iter().filter(|(number, _)| *number == disk);
        Self {
            faults: of_disk.map(|(_, fault)| *fault).collect(),
            ..Self::default()
        }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// When the disk does not do it.
    pub(super) fn request(&self, operation: Operation, block: &Block) -> Result<()> {
        if self.faults.is_empty() {
            return Ok(());
        }
        let is_write = operation == Operation::Write;
        self.requests.set(self.requests.get() + 1);
        self.writes.set(self.writes.get() + u64::from(is_write));
        let verb = if is_write { "writing" } else { "reading" };
        let doing = format!("{verb} block {} of object {}", block.index, block.object);
        for fault in &self.faults {
            match *fault {
                DiskFault::Full(writes) if is_write && self.writes.get() > writes => {
                    return Err(Error::new(Kind::Full, doing, "the disk is full"));
                }
                DiskFault::Failing(request) if request == self.requests.get() => {
                    return Err(Error::new(Kind::Io, doing, "the disk has failed"));
                }
                DiskFault::Unreadable(object, index)
                    if !is_write && (object, index) == (block.object, block.index) =>
                {
                    return Err(Error::new(Kind::Io, doing, "the block cannot be read"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The additional time of a request that takes `span`.
    pub(super) fn slowness(&self, span: Span) -> Span {
        let factor = |fault: &DiskFault| match fault {
            DiskFault::Slow(factor) => Some(u64::from(*factor).saturating_sub(1)),
            _ => None,
        };
        span * self.faults.iter().filter_map(factor).sum::<u64>()
    }
}
