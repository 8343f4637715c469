//! Virtual time: events in order, the nodes' code that they wake, and the CPUs and network ports
//! that the code waits for.
//!
//! Nothing happens between events. The earliest event is taken (at one moment, the event made
//! first), the clock is set to it, the code that it wakes runs until all wait again, and the next
//! event is taken. Code takes only the time that it charges. So a run is a function of its inputs,
//! and its events, hashed one after the other, tell two runs apart.
//!
//! ```text
//! a message   send_us of the sender's CPU | its port, the network, the receiver's port |
//!             receive_us of the receiver's CPU | it is in the inbox
//! ```
//!
//! A CPU serves threads in the order in which they ask. A thread keeps the CPU as long as there is
//! more to do without a wait: it runs until it blocks. Only interrupts (a message to be taken in, a
//! request to a disk or its end, another node's memget or memput) come before threads, in an order
//! of their own; an interrupted thread ends later by their time. A network port serves in order.
//!
//! | module | contents |
//! |---|---|
//! | `agenda` | the events to come |
//! | `tasks` | the code of nodes, and which of it can go on |
//! | `sleep` | code that waits for an event |
//! | `cpus` | threads and interrupts |
//! | `mail` | letters and inboxes |
//! | `ports` | transmissions, one after the other into the network, or within a host |

mod agenda;
mod cpus;
mod mail;
mod ports;
mod slab;
mod sleep;
mod tasks;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::task::Context;

use penstock_engine::{Error, Kind, NodeId, Result};
use penstock_layout::exact;

use super::faults::{Outage, Scope};
use super::hosts::Hosts;
use super::losses::Losses;
use super::prices::Prices;
use crate::network::Network;
use crate::time::{Interval, Span, Time};
use crate::trace::{Part, Record, Trace};
use agenda::{Agenda, Event};
use cpus::Cpu;
use mail::{Inbox, Letter};
use ports::NetworkPort;
use slab::Slab;
use sleep::Sleeper;
pub(super) use tasks::Task;

/// The counts of a whole run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    /// A digest of the events.
    pub(crate) hash: u64,
    /// Messages, including acknowledgements.
    pub(crate) messages: u64,
    /// The bytes of the messages.
    pub(crate) message_bytes: u64,
}

/// The world of a run. See the module's head.
pub(crate) struct World {
    now: Cell<Time>,
    counts: Cell<Counts>,
    agenda: Agenda,
    sleepers: RefCell<Slab<Sleeper>>,
    /// The sleepers that give up their node's CPU by themselves.
    anyway: RefCell<HashMap<u32, (NodeId, &'static str)>>,
    letters: RefCell<Slab<Letter>>,
    cpus: RefCell<Vec<Cpu>>,
    ports: RefCell<Vec<NetworkPort>>,
    network: RefCell<Network>,
    /// The hosts, if nodes share them, and the time when each node has taken in all messages of
    /// its host.
    hosts: Option<Rc<Hosts>>,
    taken_in: RefCell<Vec<Time>>,
    /// The place in the network of node 0; the others follow.
    first_place: u32,
    receive: Span,
    /// The time to copy from memory to memory, and for each byte.
    copy: Span,
    copy_ns_per_byte: f64,
    /// The inboxes of each node: there are few ports at any time, from the steps of the call.
    inboxes: RefCell<Vec<Vec<Inbox>>>,
    trace: Option<RefCell<Trace>>,
    pub(super) losses: Losses,
}

impl World {
    /// Makes a world of `nodes`, with `network` between them. Taking a message in costs `receive`.
    pub(super) fn new(
        (nodes, hosts): (usize, Option<Rc<Hosts>>),
        network: Network,
        first_place: u32,
        prices: &Prices,
        is_traced: bool,
        losses: Losses,
    ) -> Self {
        Self {
            now: Cell::new(Time::ZERO),
            counts: Cell::default(),
            agenda: Agenda::default(),
            sleepers: RefCell::default(),
            anyway: RefCell::default(),
            letters: RefCell::default(),
            cpus: RefCell::new((0..nodes).map(|_| Cpu::default()).collect()),
            ports: RefCell::new((0..nodes).map(|_| NetworkPort::default()).collect()),
            network: RefCell::new(network),
            taken_in: RefCell::new(vec![Time::ZERO; if hosts.is_some() { nodes } else { 0 }]),
            hosts,
            first_place,
            receive: prices.receive,
            copy: prices.copy,
            copy_ns_per_byte: prices.copy_ns_per_byte,
            inboxes: RefCell::new((0..nodes).map(|_| Vec::new()).collect()),
            trace: is_traced.then(RefCell::default),
            losses,
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.now.get()
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts.get()
    }

    /// The trace, if the run is traced.
    pub(crate) fn take_trace(&self) -> Option<Trace> {
        self.trace.as_ref().map(RefCell::take)
    }

    /// Runs programs to their end, and servers as long as a program runs. `again` makes the code of
    /// a node that is back after an outage.
    ///
    /// # Errors
    /// When all programs wait for something that cannot come.
    pub(crate) fn run(
        &self,
        programs: Vec<Task>,
        servers: Vec<Task>,
        again: &dyn Fn(NodeId) -> Task,
    ) -> Result<()> {
        let mut running = programs.len();
        let mut tasks: Vec<_> = programs.into_iter().chain(servers).map(Some).collect();
        let nodes: Vec<_> = tasks.iter().flatten().map(|(node, _)| *node).collect();
        let wakers = tasks::begin(tasks.len());
        let is_program = 0..running;
        loop {
            while let Some(number) = tasks::next_ready() {
                if let Some(Some((_, task))) = tasks.get_mut(number)
                    && task
                        .as_mut()
                        .poll(&mut Context::from_waker(&wakers[number]))
                        .is_ready()
                {
                    tasks[number] = None;
                    running -= usize::from(is_program.contains(&number));
                }
                running -= self.bury(&mut tasks, &is_program);
            }
            if running == 0 {
                return Ok(());
            }
            let Some((at, event)) = self.agenda.take() else {
                break;
            };
            self.now.set(at);
            self.count(at, event);
            self.happen(event);
            if let Event::Return(node, None) = event {
                let node = node as usize;
                let number = nodes.iter().rposition(|&other| other == node);
                if let Some(number) = number {
                    tasks[number] = Some(again(node));
                    wakers[number].wake_by_ref();
                }
            }
            self.losses.note_event(self.counts.get().events);
            running -= self.bury(&mut tasks, &is_program);
        }
        let waiting = tasks.iter().position(Option::is_some).unwrap_or(0);
        let cause = format!("program {waiting} waits for something that cannot come");
        let doing = "running the simulated machine";
        Err(Error::new(Kind::Peer, doing, cause))
    }

    /// Drops the code of nodes that are lost, and has the others told. Returns the number of
    /// programs that have ended by it.
    fn bury(&self, tasks: &mut [Option<Task>], programs: &Range<usize>) -> usize {
        let mut ended = 0;
        while let Some(node) = self.losses.next_doomed() {
            for (number, task) in tasks.iter_mut().enumerate() {
                if let Some(task) = task.take_if(|(of, _)| *of == node) {
                    drop(task);
                    ended += usize::from(programs.contains(&number));
                }
            }
            self.ports.borrow_mut()[node].outgoing.clear();
            self.inboxes.borrow_mut()[node].clear();
            self.give_notices(self.losses.notices(node));
        }
        while let Some(Outage { scope, lasts, .. }) = self.losses.next_outage() {
            let back = match scope {
                Scope::Node(node) => Event::Return(exact::<u32>(node), None),
                Scope::Link(one, other) => {
                    self.give_link_notices(one, other, false);
                    Event::Return(exact::<u32>(one), Some(exact::<u32>(other)))
                }
            };
            self.schedule(self.now() + lasts, back);
        }
        ended
    }

    fn give_notices(&self, notices: Vec<(usize, Span)>) {
        for (notice, delay) in notices {
            self.schedule(self.now() + delay, Event::Notice(exact::<u32>(notice)));
        }
    }

    /// Has two nodes told that the link between them was cut, or is back.
    fn give_link_notices(&self, one: NodeId, other: NodeId, is_back: bool) {
        let ends = [(one, other), (other, one)];
        let notices = ends.map(|(to, about)| self.losses.notice(to, about, is_back));
        self.give_notices(notices.into());
    }

    fn count(&self, at: Time, event: Event) {
        let mut counts = self.counts.get();
        counts.events += 1;
        let (kind, number) = match event {
            Event::Wake(n) => (1, n),
            Event::Cpu(n) => (2, n),
            Event::Port(n) => (3, n),
            Event::Arrive(n) => (4, n),
            Event::Deliver(n) => (5, n),
            Event::Depart(n) => (6, n),
            Event::Notice(n) => (7, n),
            Event::Return(n, _) => (8, n),
        };
        for word in [at.as_ps(), kind << 32 | u64::from(number)] {
            // Each step can be undone, so that no two histories of one length get one hash by it.
            counts.hash = (counts.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            counts.hash ^= counts.hash >> 29;
        }
        self.counts.set(counts);
    }

    fn schedule(&self, at: Time, event: Event) {
        self.schedule_ranked(at, 0, event);
    }

    fn schedule_ranked(&self, at: Time, rank: u32, event: Event) {
        self.agenda.put(at, rank, event);
    }

    fn happen(&self, event: Event) {
        match event {
            Event::Wake(slot) => {
                if !self.goes_on(slot) {
                    self.wake(slot);
                }
            }
            Event::Cpu(node) => self.serve_thread(node as usize),
            Event::Port(node) => self.serve_port(node as usize),
            Event::Arrive(letter) | Event::Deliver(letter) if self.is_undeliverable(letter) => {
                self.letters.borrow_mut().take(letter);
            }
            Event::Notice(notice) => self.losses.hear(notice as usize),
            Event::Arrive(letter) => self.arrive(letter),
            Event::Deliver(letter) => self.deliver(letter),
            Event::Depart(letter) => self.depart(letter),
            Event::Return(node, None) => {
                self.losses.end_outage();
                self.losses.revive(node as usize);
                self.give_notices(self.losses.greetings(node as usize));
            }
            Event::Return(one, Some(other)) => {
                self.losses.end_outage();
                let ends = [one as usize, other as usize];
                if !ends.iter().any(|&end| self.losses.is_lost(end)) {
                    self.give_link_notices(ends[0], ends[1], true);
                }
            }
        }
    }

    /// Whether the run is traced.
    pub(crate) fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    /// Records what a part of a node did, if the run is traced.
    pub(crate) fn record(
        &self,
        node: NodeId,
        part: Part,
        what: &'static str,
        interval: Interval,
        cylinder: Option<u32>,
        block: Option<u64>,
    ) {
        if let Some(trace) = &self.trace
            && !interval.is_empty()
        {
            trace.borrow_mut().records.push(Record {
                node,
                part,
                what,
                interval,
                cylinder,
                block,
            });
        }
    }
}
