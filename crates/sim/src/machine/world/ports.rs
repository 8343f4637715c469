//! The ports of nodes to the network: one transmission at a time, in order.

use std::collections::VecDeque;
use std::rc::Rc;

use penstock_engine::NodeId;
use penstock_layout::exact;

use super::World;
use super::agenda::Event;
use crate::preset::Host;
use crate::time::{Interval, Span, Time};

/// A transmission leaves by a port, and causes an event when it has arrived.
pub(super) struct Transmission {
    to: NodeId,
    bytes: u64,
    then: Event,
}

/// The port of one node.
#[derive(Default)]
pub(super) struct NetworkPort {
    /// The transmissions that wait for the port, which is busy while there are any.
    pub(super) outgoing: VecDeque<Transmission>,
    is_due: bool,
}

impl World {
    /// Moves bytes from node to node, and ends when they are there. No CPU is charged.
    pub(crate) async fn transport(self: &Rc<Self>, from: NodeId, to: NodeId, bytes: u64) {
        let slot = self.new_sleeper();
        self.carry(from, to, bytes, Event::Wake(slot));
        self.sleep_in(slot).await;
        if self.losses.is_lost(to) {
            std::future::pending().await // it has not arrived
        }
    }

    pub(super) fn carry(&self, from: NodeId, to: NodeId, bytes: u64, then: Event) {
        if !self.losses.passes(from, to) {
            if let Event::Arrive(letter) = then {
                self.letters.borrow_mut().take(letter);
            }
            return;
        }
        let mut counts = self.counts.get();
        counts.messages += 1;
        counts.message_bytes += bytes;
        self.counts.set(counts);
        if let Some(hosts) = self
            .hosts
            .as_ref()
            .filter(|hosts| hosts.are_mates(from, to))
        {
            let arrival = self.within_host(hosts.host(), from, to, bytes);
            return self.arrive_at(arrival, (from, to), then);
        }
        let outgoing = Transmission { to, bytes, then };
        self.ports.borrow_mut()[from].outgoing.push_back(outgoing);
        if self.ports.borrow()[from].is_due {
            return;
        }
        let free_at = self.network.borrow().sender_free_at(self.place(from));
        if free_at > self.now() {
            self.port_at(free_at, from, 0);
        } else if self.agenda.is_due(self.now()) {
            // The network takes messages in the order in which they are handed over. Of messages
            // that set out at one moment, the one with the shortest way comes to a node first.
            let rank = self.distance(from, to) + 1;
            self.port_at(self.now(), from, rank);
        } else {
            self.send_first(from);
        }
    }

    fn port_at(&self, at: Time, node: NodeId, rank: u32) {
        self.ports.borrow_mut()[node].is_due = true;
        self.schedule_ranked(at, rank, Event::Port(exact::<u32>(node)));
    }

    /// Sends the first transmission that waits at a free port, and schedules the next for when the
    /// port is free again.
    fn send_first(&self, from: NodeId) {
        let Some(Transmission { to, bytes, then }) =
            self.ports.borrow_mut()[from].outgoing.pop_front()
        else {
            return;
        };
        let (now, place) = (self.now(), self.place(from));
        let delivery = self
            .network
            .borrow_mut()
            .deliver(now, place, self.place(to), bytes);
        self.arrive_at(delivery.arrival, (from, to), then);
        if !self.ports.borrow()[from].outgoing.is_empty() {
            let free_at = self.network.borrow().sender_free_at(place);
            self.port_at(free_at.max(now), from, 0);
        }
    }

    /// Lets a transmission cause its event, later if a fault makes it late.
    fn arrive_at(&self, arrival: Time, between: (NodeId, NodeId), then: Event) {
        let port = match then {
            Event::Arrive(letter) => self.letters.borrow_mut().get(letter).map(|l| l.port),
            _ => None,
        };
        let arrival = self.losses.late(between, port, arrival);
        self.schedule(arrival, then);
    }

    /// The time when a message is there that does not leave its host: a node takes in the bytes of
    /// one after the other.
    fn within_host(&self, host: &Host, from: NodeId, to: NodeId, bytes: u64) -> Time {
        if from == to {
            return self.now();
        }
        let span = Span::of_bytes(bytes, host.message_bytes_per_second);
        let free_at = &mut self.taken_in.borrow_mut()[to];
        let taken = Interval::starting(self.now().max(*free_at), span);
        *free_at = taken.end;
        taken.end + Span::from_us_f64(host.message_latency_us)
    }

    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        self.network
            .borrow()
            .distance(self.place(from), self.place(to))
    }

    fn place(&self, node: NodeId) -> u32 {
        self.first_place + exact::<u32>(node)
    }

    /// Sends the next transmission of a port that is due.
    pub(super) fn serve_port(&self, node: NodeId) {
        self.ports.borrow_mut()[node].is_due = false;
        self.send_first(node);
    }
}
