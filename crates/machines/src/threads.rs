//! The machine of threads: its nodes are threads of one process, and a memget is a memory copy.
//!
//! This machine starts nothing, and needs no library: it is the embedded default.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use penstock_engine::{NodeId, Result};

use crate::bell::{Bell, HasBell};
use crate::disk::real::Opener;
use crate::links::{Arrival, Distance, Links, Process};
use crate::memory::board::HasBoard;
use crate::node::Node;

#[derive(Default)]
struct ThreadInbox {
    bell: Bell,
    /// Packets, each with its sender.
    packets: Mutex<VecDeque<(NodeId, Vec<u8>)>>,
}

impl HasBell for ThreadInbox {
    fn bell(&self) -> &Bell {
        &self.bell
    }
}

impl ThreadInbox {
    fn packets(&self) -> std::sync::MutexGuard<'_, VecDeque<(NodeId, Vec<u8>)>> {
        // A panic elsewhere cannot leave the queue half changed.
        self.packets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A machine of threads is what its nodes share. Each thread makes its own [`Node`] of it.
#[derive(Clone)]
pub struct Threads {
    inboxes: Arc<Vec<Arc<ThreadInbox>>>,
    process: Process,
}

impl Threads {
    /// Makes a machine of `nodes` threads.
    pub fn new(nodes: usize) -> Self {
        let inboxes = (0..nodes).map(|_| Arc::default()).collect();
        Self {
            inboxes: Arc::new(inboxes),
            process: Process::default(),
        }
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.inboxes.len()
    }

    /// Makes node `me`, to be used by one thread.
    pub fn node(&self, me: usize, opener: Arc<dyn Opener>) -> Node {
        let links = ThreadLinks {
            me,
            inboxes: self.inboxes.clone(),
        };
        Node::new(me, Box::new(links), self.process.clone(), opener)
    }
}

struct ThreadLinks {
    me: usize,
    inboxes: Arc<Vec<Arc<ThreadInbox>>>,
}

impl Links for ThreadLinks {
    fn distance(&self, _node: usize) -> Distance {
        Distance::Process
    }

    fn post(&self, to: usize, packet: Vec<u8>) -> Result<()> {
        let inbox = &self.inboxes[to];
        inbox.packets().push_back((self.me, packet));
        inbox.bell.ring();
        Ok(())
    }

    fn poll(&self) -> Result<Option<Arrival>> {
        let next = self.inboxes[self.me].packets().pop_front();
        Ok(next.map(|(from, packet)| Arrival::Packet(from, packet)))
    }

    fn others(&self) -> Vec<NodeId> {
        let all = 0..self.inboxes.len();
        all.filter(|&node| node != self.me).collect()
    }

    fn is_member(&self, node: NodeId) -> bool {
        node < self.inboxes.len()
    }

    fn cut(&self, _node: NodeId) {}

    fn keeps_any(&self) -> bool {
        false
    }

    fn mail_bytes_max(&self, _node: NodeId) -> u64 {
        u64::MAX // all are of one job
    }

    fn bell(&self) -> Arc<dyn HasBell> {
        self.inboxes[self.me].clone()
    }

    fn board(&self, _node: usize) -> Option<Arc<dyn HasBoard>> {
        None // all memory is this process's
    }

    fn nap_max(&self, _idle: u32) -> Option<Duration> {
        None
    }

    fn needs_mpi(&self) -> bool {
        false
    }
}
