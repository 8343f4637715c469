//! How nodes of a real machine reach each other.

use std::sync::Arc;
use std::time::Duration;

use penstock_engine::{NodeId, Result};

use crate::bell::HasBell;
use crate::memory::board::HasBoard;
use crate::memory::exposures::Exposures;
use crate::memory::parcel::Loans;

/// The time that a leaving node waits for others to take what it has to tell them: a node that
/// never looks again cannot be told.
pub const LEAVING_MAX: Duration = Duration::from_secs(5);

/// How far away another node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// The node is in this process.
    Process,
    /// The node is in another process that maps the same memory.
    Host,
    /// Only messages get there.
    Network,
}

/// The way that packets travel between nodes. Each machine has its own.
pub trait Links {
    /// How far away `node` is.
    fn distance(&self, node: NodeId) -> Distance;

    /// Hands over a packet. Never blocks: the links keep a packet that cannot go at once, and try
    /// again.
    ///
    /// # Errors
    /// When it can never go.
    fn post(&self, to: NodeId, packet: Vec<u8>) -> Result<()>;

    /// Takes the next packet that has come, if any, and sends on what was kept.
    ///
    /// # Errors
    /// When the link is broken.
    fn poll(&self) -> Result<Option<Vec<u8>>>;

    /// Whether packets are kept that could not go yet.
    fn keeps_any(&self) -> bool;

    /// This node's bell.
    fn bell(&self) -> Arc<dyn HasBell>;

    /// The board on which `node` posts what it exposes, if it is on this host.
    fn board(&self, node: NodeId) -> Option<Arc<dyn HasBoard>>;

    /// How long the node may leave the bell unlooked at: `None` if it rings for all that comes.
    /// `idle` counts the looks since there was something to do.
    fn nap_max(&self, idle: u32) -> Option<Duration>;

    /// Whether packets travel by MPI, some of them at least.
    fn needs_mpi(&self) -> bool;
}

/// What the nodes of one process share.
#[derive(Clone, Default)]
pub struct Process {
    pub(crate) exposures: Arc<Exposures>,
    pub(crate) lendings: Arc<Loans>,
}
