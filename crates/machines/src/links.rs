//! Links between the nodes of a real machine.

use std::sync::Arc;
use std::time::Duration;

use penstock_engine::{Error, NodeId, Result};

use crate::bell::HasBell;
use crate::memory::board::HasBoard;
use crate::memory::exposures::Exposures;
use crate::memory::parcel::Loans;

/// The longest time that a leaving node waits for others to take its last packets: a node that
/// never looks again cannot be told.
pub const LEAVING_MAX: Duration = Duration::from_secs(5);

/// The distance of another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// The node is in this process.
    Process,
    /// The node is in another process that maps the same memory.
    Host,
    /// Only messages reach the node.
    Network,
}

/// What comes over the links.
#[derive(Debug)]
pub enum Arrival {
    /// A packet, with the node that has sent it.
    Packet(NodeId, Vec<u8>),
    /// A node has joined.
    Joined(NodeId),
    /// A node cannot be reached any more.
    Left(NodeId, Error),
}

/// Links are the way that packets travel between nodes. Each machine has its own.
pub trait Links {
    /// The distance of `node`.
    fn distance(&self, node: NodeId) -> Distance;

    /// Hands over a packet. Never blocks: the links keep a packet that cannot go at once, and try
    /// again.
    ///
    /// # Errors
    /// When the packet can never go.
    fn post(&self, to: NodeId, packet: Vec<u8>) -> Result<()>;

    /// Takes the next arrival, if any, and sends on packets that were kept.
    ///
    /// # Errors
    /// When the links are broken, all of them.
    fn poll(&self) -> Result<Option<Arrival>>;

    /// The other nodes that are members now.
    fn others(&self) -> Vec<NodeId>;

    /// Whether a node is a member now.
    fn is_member(&self, node: NodeId) -> bool;

    /// Ends the link with a node that is taken for gone.
    fn cut(&self, node: NodeId);

    /// Whether the links keep packets that could not go yet.
    fn keeps_any(&self) -> bool;

    /// The most bytes of messages of a node that may wait here for somebody to take them: a node
    /// that sends more is cut off.
    fn mail_bytes_max(&self, node: NodeId) -> u64;

    fn bell(&self) -> Arc<dyn HasBell>;

    /// The board on which `node` posts its exposed memory, if `node` is on this host.
    fn board(&self, node: NodeId) -> Option<Arc<dyn HasBoard>>;

    /// The longest time that the node may leave the bell unlooked at: `None` if the bell rings for
    /// all packets. `idle` counts the looks since there was something to do.
    fn nap_max(&self, idle: u32) -> Option<Duration>;

    /// Whether at least some packets travel by MPI.
    fn needs_mpi(&self) -> bool;
}

/// The memory that the nodes of one process share.
#[derive(Clone, Default)]
pub struct Process {
    pub(crate) exposures: Arc<Exposures>,
    pub(crate) lendings: Arc<Loans>,
}
