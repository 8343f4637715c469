//! Networks: how long a message takes, and how long it keeps the ports of sender and receiver.
//!
//! The caller says when a message is ready to go. A node's port sends one message at a time and
//! receives one at a time; what is ready while the port is busy waits. Messages are placed in the
//! order in which they are handed over, so hand them over in the order of time. A sender that has
//! many does best to hand over the next one when [`Delivery::sender`] ends: links further on are
//! then taken in the order of arrival.
//!
//! | network | what it is | time for a message | memory |
//! |---|---|---|---|
//! | [`torus`] | k x k torus, wormhole routing, the machine of Kotz's simulations | its path | nodes |
//! | [`fat_tree`] | full bisection, contention at the ports only, for modern machines | constant | nodes |
//!
//! Software costs, message formats and flow control are not here.

pub mod fat_tree;
mod load;
pub mod parts;
pub mod torus;

pub use fat_tree::{FatTree, FatTreeParameters};
pub use torus::{Contention, Torus, TorusParameters};

use crate::time::{Interval, Time};

/// What becomes of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// When the last byte is in the receiver's memory.
    pub arrival: Time,
    /// How long the sender's port is busy with it.
    pub sender: Interval,
    /// How long the receiver's port is.
    pub receiver: Interval,
}

/// Any network.
#[derive(Clone, Debug)]
pub enum Network {
    /// A torus with wormhole routing.
    Torus(Torus),
    /// A fat tree with full bisection.
    FatTree(FatTree),
}

impl Network {
    /// How many nodes it joins.
    pub fn nodes(&self) -> u32 {
        match self {
            Network::Torus(torus) => torus.nodes(),
            Network::FatTree(tree) => tree.nodes(),
        }
    }

    /// How many links between routers or switches a message passes.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        match self {
            Network::Torus(torus) => torus.distance(from, to),
            Network::FatTree(tree) => tree.distance(from, to),
        }
    }

    /// Sends `bytes` from node `from` to node `to`, which may be the same, at `now`.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn deliver(&mut self, now: Time, from: u32, to: u32, bytes: u64) -> Delivery {
        match self {
            Network::Torus(torus) => torus.deliver(now, from, to, bytes),
            Network::FatTree(tree) => tree.deliver(now, from, to, bytes),
        }
    }

    /// When the port of `node` can send again.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn sender_free_at(&self, node: u32) -> Time {
        match self {
            Network::Torus(torus) => torus.sender_free_at(node),
            Network::FatTree(tree) => tree.sender_free_at(node),
        }
    }
}
