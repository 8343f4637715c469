//! A fat tree has full bisection: any port can send at its full rate to any other.
//!
//! Only ports contend. A message leaves when the sender's port is free, its head is at the receiver
//! after the latency of the way, and it is taken in when the receiver's port is free; switches hold
//! waiting messages, so a busy receiver does not stop its senders. The way has one switch between
//! nodes of one leaf, three within a pod, five beyond; a message of a node to itself passes none.
//!
//! Not modelled: congestion inside the tree, packets, losses.

use penstock_layout::exact;
use serde::{Deserialize, Serialize};

use super::Delivery;
use crate::error::{Check, ParameterError};
use crate::time::{Interval, Span, Time};

/// The parameters of a fat tree, in a preset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FatTreeParameters {
    /// The number of nodes, each with one port.
    pub nodes: u32,
    pub nodes_per_leaf: u32,
    pub leaves_per_pod: u32,
    /// The rate of a port, in each direction.
    pub bytes_per_second: u64,
    /// The latency of both adapters together.
    pub adapter_latency_ns: f64,
    /// The latency of one switch and its cable.
    pub switch_latency_ns: f64,
}

/// A fat tree. It takes 16 bytes for each node, and constant time for each message.
#[derive(Clone, Debug)]
pub struct FatTree {
    nodes_per_leaf: u32,
    nodes_per_pod: u32,
    bytes_per_second: u64,
    adapter_latency: Span,
    switch_latency: Span,
    ports: Vec<Port>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Port {
    sends_again_at: Time,
    receives_again_at: Time,
}

impl FatTree {
    /// Makes an idle network.
    ///
    /// # Errors
    /// When a count or rate is 0, or a latency is no length of time.
    pub fn new(parameters: &FatTreeParameters) -> Result<FatTree, ParameterError> {
        let check = Check { part: "fat tree" };
        check.positive("nodes", parameters.nodes.into())?;
        check.positive("nodes_per_leaf", parameters.nodes_per_leaf.into())?;
        check.positive("leaves_per_pod", parameters.leaves_per_pod.into())?;
        check.positive("bytes_per_second", parameters.bytes_per_second)?;
        check.duration("adapter_latency_ns", parameters.adapter_latency_ns)?;
        check.duration("switch_latency_ns", parameters.switch_latency_ns)?;
        Ok(FatTree {
            nodes_per_leaf: parameters.nodes_per_leaf,
            nodes_per_pod: parameters
                .nodes_per_leaf
                .saturating_mul(parameters.leaves_per_pod),
            bytes_per_second: parameters.bytes_per_second,
            adapter_latency: Span::from_ns_f64(parameters.adapter_latency_ns),
            switch_latency: Span::from_ns_f64(parameters.switch_latency_ns),
            ports: vec![Port::default(); parameters.nodes as usize],
        })
    }

    pub fn nodes(&self) -> u32 {
        exact::<u32>(self.ports.len())
    }

    /// The time when the port of `node` can send again.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn sender_free_at(&self, node: u32) -> Time {
        self.ports[node as usize].sends_again_at
    }

    /// Sends `bytes` from `from` to `to` at `now`.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn deliver(&mut self, now: Time, from: u32, to: u32, bytes: u64) -> Delivery {
        let span = Span::of_bytes(bytes, self.bytes_per_second);
        let latency = self.latency(from, to);
        let source = &mut self.ports[from as usize];
        let sender = Interval::starting(now.max(source.sends_again_at), span);
        source.sends_again_at = sender.end;
        let target = &mut self.ports[to as usize];
        let head = sender.start + latency;
        let receiver = Interval::starting(head.max(target.receives_again_at), span);
        target.receives_again_at = receiver.end;
        Delivery {
            arrival: receiver.end,
            sender,
            receiver,
        }
    }

    /// The number of switches that a message passes.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        match () {
            _ if from == to => 0,
            _ if from / self.nodes_per_leaf == to / self.nodes_per_leaf => 1,
            _ if from / self.nodes_per_pod == to / self.nodes_per_pod => 3,
            _ => 5,
        }
    }

    fn latency(&self, from: u32, to: u32) -> Span {
        match self.distance(from, to) {
            0 => Span::ZERO,
            switches => self.adapter_latency + self.switch_latency * u64::from(switches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(nodes: u32) -> FatTree {
        FatTree::new(&FatTreeParameters {
            nodes,
            nodes_per_leaf: 4,
            leaves_per_pod: 2,
            bytes_per_second: 1_000_000_000,
            adapter_latency_ns: 600.0,
            switch_latency_ns: 100.0,
        })
        .unwrap()
    }

    fn ns(count: u64) -> Time {
        Time::ZERO + Span::from_ns(count)
    }

    #[test]
    fn latency_grows_with_distance() {
        for (to, latency) in [(0, 0), (3, 700), (4, 900), (8, 1100), (15, 1100)] {
            let delivery = tree(16).deliver(Time::ZERO, 0, to, 1000);
            assert_eq!(delivery.arrival, ns(1000 + latency), "to {to}");
            assert_eq!(delivery.sender, Interval::new(Time::ZERO, ns(1000)));
        }
    }

    #[test]
    fn ports_contend_and_nothing_else_does() {
        let mut tree = tree(16);
        let first = tree.deliver(Time::ZERO, 0, 3, 1000);
        let same_receiver = tree.deliver(Time::ZERO, 1, 3, 1000);
        assert_eq!(same_receiver.arrival, first.arrival + Span::from_ns(1000));
        assert_eq!(same_receiver.sender.end, ns(1000), "switches hold it");
        let same_sender = tree.deliver(Time::ZERO, 0, 2, 1000);
        assert_eq!(same_sender.sender, Interval::new(ns(1000), ns(2000)));
        assert_eq!(tree.sender_free_at(0), ns(2000));
        let others = tree.deliver(Time::ZERO, 8, 9, 1000);
        assert_eq!(others.arrival, ns(1700));
    }

    #[test]
    fn a_hundred_thousand_nodes() {
        let mut tree = tree(100_000);
        let arrivals = (0..100_000).map(|node| tree.deliver(Time::ZERO, node, 0, 10).arrival);
        let last = arrivals.max().unwrap();
        assert!(
            last >= ns(1_000_000),
            "a receiver takes in its port's rate: {last}"
        );
    }
}
