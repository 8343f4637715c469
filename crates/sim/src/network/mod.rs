//! Networks: the time of a message, and the time for which it keeps the ports of sender and
//! receiver.
//!
//! The caller says when a message is ready to go. A node's port sends one message at a time and
//! receives one at a time; a message that is ready while the port is busy waits. Messages are
//! placed in the order in which they are handed over, so hand them over in the order of time. A
//! sender that has many does best to hand over the next one when [`Delivery::sender`] ends: links
//! further on are then taken in the order of arrival.
//!
//! | network | kind | time for a message | memory |
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

/// A delivery tells the times of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The time when the last byte is in the receiver's memory.
    pub arrival: Time,
    /// The time for which the sender's port is busy with the message.
    pub sender: Interval,
    /// The time for which the receiver's port is busy with the message.
    pub receiver: Interval,
}

/// A network of any kind.
#[derive(Clone, Debug)]
pub enum Network {
    /// A torus with wormhole routing.
    Torus(Torus),
    /// A fat tree with full bisection.
    FatTree(FatTree),
}

impl Network {
    pub fn nodes(&self) -> u32 {
        match self {
            Network::Torus(torus) => torus.nodes(),
            Network::FatTree(tree) => tree.nodes(),
        }
    }

    /// The number of links between routers or switches that a message passes.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        match self {
            Network::Torus(torus) => torus.distance(from, to),
            Network::FatTree(tree) => tree.distance(from, to),
        }
    }

    /// Sends `bytes` from node `from` to node `to`, which may be the sender itself, at `now`.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn deliver(&mut self, now: Time, from: u32, to: u32, bytes: u64) -> Delivery {
        match self {
            Network::Torus(torus) => torus.deliver(now, from, to, bytes),
            Network::FatTree(tree) => tree.deliver(now, from, to, bytes),
        }
    }

    /// The time when the port of `node` can send again.
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
