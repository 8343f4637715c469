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

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use penstock_engine::{Error, Kind, Message, NodeId, Port, Result};
use penstock_layout::exact;

use super::data::Parcel;
use super::losses::Losses;
use super::prices::Prices;
use crate::network::Network;
use crate::time::{Interval, Span, Time};
use crate::trace::{Part, Record, Trace};

/// An event that will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A sleeper wakes.
    Wake(u32),
    /// A node's CPU can serve the next thread, unless the last thread has taken it again.
    Cpu(u32),
    /// A node's port can send its next transmission.
    Port(u32),
    /// A letter reaches its node.
    Arrive(u32),
    /// The CPU has taken a letter in.
    Deliver(u32),
    /// The CPU has given a letter out.
    Depart(u32),
    /// A node hears that another has gone.
    Notice(u32),
}

/// The key of an event: events of one moment happen by rank, and in one rank in the order of
/// making.
type EventKey = (Time, u32, u64, Event);

/// A task is code of one node.
pub(super) type Task = (NodeId, Pin<Box<dyn Future<Output = ()>>>);

/// A letter is a message on its way.
struct Letter {
    to: NodeId,
    port: Port,
    message: Message<Parcel>,
    /// The sleeper that waits until the send buffer with the elements may be used again.
    sender: Option<u32>,
    bytes: u64,
}

impl Letter {
    /// The time that the receiver's system takes to keep the letter, if nobody waits for it.
    fn keeping(&self, world: &World) -> Span {
        match (&self.sender, &self.message.parcel) {
            (Some(_), Some(parcel)) if !world.is_awaited(self.to, self.port) => {
                world.copy + Span::from_ns_f64(world.copy_ns_per_byte * parcel.bytes as f64)
            }
            _ => Span::ZERO,
        }
    }
}

/// A transmission leaves by a port, and causes an event when it has arrived.
struct Transmission {
    to: NodeId,
    bytes: u64,
    then: Event,
}

#[derive(Default)]
struct Node {
    /// Whether a thread has the CPU.
    is_running: bool,
    /// The time by which interrupts have set the thread back.
    set_back: Span,
    /// The waiting threads: the sleeper, the time wanted, and its purpose.
    threads: VecDeque<(u32, Span, &'static str)>,
    interrupts_end_at: Time,
    /// The transmissions that wait for the port, which is busy while there are any.
    outgoing: VecDeque<Transmission>,
    is_port_due: bool,
}

/// A slab holds items by number. The number of an item taken out is used again.
struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    fn put(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.items[slot as usize] = Some(item);
                slot
            }
            None => {
                self.items.push(Some(item));
                exact::<u32>(self.items.len() - 1)
            }
        }
    }

    fn take(&mut self, slot: u32) -> Option<T> {
        let item = self.items[slot as usize].take();
        if item.is_some() {
            self.free.push(slot);
        }
        item
    }

    fn get(&mut self, slot: u32) -> Option<&mut T> {
        self.items[slot as usize].as_mut()
    }
}

/// A sleeper is awake, or its waker is kept.
enum Sleeper {
    Asleep(Option<Waker>),
    Awake,
    /// The sleeper was dropped before its time.
    Gone,
}

/// An inbox holds the messages at one port.
struct Inbox {
    port: Port,
    waiting: VecDeque<Message<Parcel>>,
    waker: Option<Waker>,
}

/// The inbox of `port`, made if there is none.
fn inbox(inboxes: &mut Vec<Inbox>, port: Port) -> &mut Inbox {
    let place = inboxes
        .iter()
        .position(|inbox| inbox.port == port)
        .unwrap_or_else(|| {
            inboxes.push(Inbox {
                port,
                waiting: VecDeque::new(),
                waker: None,
            });
            inboxes.len() - 1
        });
    &mut inboxes[place]
}

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
    made: Cell<u64>,
    counts: Cell<Counts>,
    events: RefCell<BinaryHeap<Reverse<EventKey>>>,
    sleepers: RefCell<Slab<Sleeper>>,
    /// The sleepers that give up their node's CPU by themselves.
    anyway: RefCell<HashMap<u32, (NodeId, &'static str)>>,
    letters: RefCell<Slab<Letter>>,
    nodes: RefCell<Vec<Node>>,
    network: RefCell<Network>,
    /// The place in the network of node 0; the others follow.
    first_place: u32,
    receive: Span,
    /// The time to copy from memory to memory, and for each byte.
    copy: Span,
    copy_ns_per_byte: f64,
    /// The inboxes of each node: there are few ports at any time, from the steps of the call.
    inboxes: RefCell<Vec<Vec<Inbox>>>,
    ready: Arc<ReadyTasks>,
    trace: Option<RefCell<Trace>>,
    pub(super) losses: Losses,
}

/// The tasks that can go on.
#[derive(Default)]
struct ReadyTasks(Mutex<VecDeque<usize>>);

impl ReadyTasks {
    fn push(&self, task: usize) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(task);
    }

    /// Forgets the tasks of an earlier run.
    fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    fn pop(&self) -> Option<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    }
}

struct TaskWaker {
    task: usize,
    ready: Arc<ReadyTasks>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.task);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.push(self.task);
    }
}

impl World {
    /// Makes a world of `nodes`, with `network` between them. Taking a message in costs `receive`.
    pub(crate) fn new(
        nodes: usize,
        network: Network,
        first_place: u32,
        prices: &Prices,
        is_traced: bool,
        losses: Losses,
    ) -> Self {
        Self {
            now: Cell::new(Time::ZERO),
            made: Cell::new(0),
            counts: Cell::default(),
            events: RefCell::default(),
            sleepers: RefCell::default(),
            anyway: RefCell::default(),
            letters: RefCell::default(),
            nodes: RefCell::new((0..nodes).map(|_| Node::default()).collect()),
            network: RefCell::new(network),
            first_place,
            receive: prices.receive,
            copy: prices.copy,
            copy_ns_per_byte: prices.copy_ns_per_byte,
            inboxes: RefCell::new((0..nodes).map(|_| Vec::new()).collect()),
            ready: Arc::default(),
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

    /// Runs programs to their end, and servers as long as a program runs.
    ///
    /// # Errors
    /// When all programs wait for something that cannot come.
    pub(crate) fn run(&self, programs: Vec<Task>, servers: Vec<Task>) -> Result<()> {
        let mut running = programs.len();
        let mut tasks: Vec<_> = programs.into_iter().chain(servers).map(Some).collect();
        let waker = |task| {
            let ready = self.ready.clone();
            Waker::from(Arc::new(TaskWaker { task, ready }))
        };
        let wakers: Vec<Waker> = (0..tasks.len()).map(waker).collect();
        let is_program = 0..running;
        self.ready.clear();
        (0..tasks.len()).for_each(|task| self.ready.push(task));
        loop {
            while let Some(number) = self.ready.pop() {
                let mut context = Context::from_waker(&wakers[number]);
                if let Some((_, task)) = &mut tasks[number]
                    && task.as_mut().poll(&mut context).is_ready()
                {
                    tasks[number] = None;
                    running -= usize::from(is_program.contains(&number));
                }
                running -= self.bury(&mut tasks, &is_program);
            }
            if running == 0 {
                return Ok(());
            }
            let next = self.events.borrow_mut().pop();
            let Some(Reverse((at, _, _, event))) = next else {
                break;
            };
            self.now.set(at);
            self.count(at, event);
            self.happen(event);
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
            self.nodes.borrow_mut()[node].outgoing.clear();
            self.inboxes.borrow_mut()[node].clear();
            for (notice, delay) in self.losses.notices(node) {
                self.schedule(self.now() + delay, Event::Notice(exact::<u32>(notice)));
            }
        }
        ended
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
        let made = self.made.get();
        self.made.set(made + 1);
        self.events
            .borrow_mut()
            .push(Reverse((at, rank, made, event)));
    }

    /// Whether another event will happen at this very moment.
    fn is_shared_moment(&self) -> bool {
        let events = self.events.borrow();
        events
            .peek()
            .is_some_and(|Reverse(due)| due.0 == self.now())
    }

    fn happen(&self, event: Event) {
        match event {
            Event::Wake(slot) => {
                if self.goes_on(slot) {
                    return;
                }
                let mut sleepers = self.sleepers.borrow_mut();
                let Some(sleeper) = sleepers.get(slot) else {
                    return;
                };
                match std::mem::replace(sleeper, Sleeper::Awake) {
                    Sleeper::Asleep(Some(waker)) => waker.wake(),
                    Sleeper::Asleep(None) | Sleeper::Awake => {}
                    Sleeper::Gone => {
                        sleepers.take(slot);
                    }
                }
            }
            Event::Cpu(node) => {
                let cpu = &mut self.nodes.borrow_mut()[node as usize];
                if !cpu.is_running
                    && let Some((sleeper, span, what)) = cpu.threads.pop_front()
                {
                    self.run_thread(node as usize, cpu, sleeper, span, what);
                }
            }
            Event::Port(node) => {
                self.nodes.borrow_mut()[node as usize].is_port_due = false;
                self.send_first(node as usize);
            }
            Event::Arrive(letter) | Event::Deliver(letter) if self.is_undeliverable(letter) => {
                self.letters.borrow_mut().take(letter);
            }
            Event::Notice(notice) => self.losses.hear(notice as usize),
            Event::Arrive(letter) => {
                let arrived = self
                    .letters
                    .borrow_mut()
                    .get(letter)
                    .map(|letter| (letter.to, letter.keeping(self)));
                if let Some((to, keeping)) = arrived {
                    let mut taken = self.reserve_interrupt(to, self.receive, "receive");
                    if keeping > Span::ZERO {
                        taken = self.reserve_interrupt(to, keeping, "keep");
                    }
                    self.schedule(taken, Event::Deliver(letter));
                }
            }
            Event::Deliver(letter) => {
                let letter = self.letters.borrow_mut().take(letter);
                if let Some(letter) = letter {
                    if let Some(sender) = letter.sender {
                        self.happen(Event::Wake(sender));
                    }
                    self.put_in_inbox(letter.to, letter.port, letter.message);
                }
            }
            Event::Depart(letter) => {
                let departed = self.letters.borrow_mut().get(letter).map(|letter| {
                    let Letter {
                        to, message, bytes, ..
                    } = letter;
                    (message.from, *to, *bytes)
                });
                if let Some((from, to, bytes)) = departed {
                    self.carry(from, to, bytes, Event::Arrive(letter));
                }
            }
        }
    }

    /// Whether the node to which a letter goes is lost.
    fn is_undeliverable(&self, letter: u32) -> bool {
        let mut letters = self.letters.borrow_mut();
        let to = letters.get(letter).map(|letter| letter.to);
        to.is_some_and(|to| self.losses.is_lost(to))
    }

    fn put_in_inbox(&self, to: NodeId, port: Port, message: Message<Parcel>) {
        let mut inboxes = self.inboxes.borrow_mut();
        let inbox = inbox(&mut inboxes[to], port);
        inbox.waiting.push_back(message);
        if let Some(waker) = inbox.waker.take() {
            waker.wake();
        }
    }

    /// Sleeps until `at`.
    pub(crate) fn sleep_until(self: &Rc<Self>, at: Time) -> Sleep {
        let slot = self.sleepers.borrow_mut().put(Sleeper::Asleep(None));
        self.schedule(at, Event::Wake(slot));
        self.sleep_in(slot)
    }

    fn sleep_in(self: &Rc<Self>, slot: u32) -> Sleep {
        Sleep {
            world: self.clone(),
            slot: Some(slot),
        }
    }

    /// Charges a node's CPU with `span`: at once if this thread has it, or else after all earlier
    /// threads.
    pub(crate) async fn use_cpu(self: &Rc<Self>, node: NodeId, span: Span, what: &'static str) {
        self.take_cpu(node, span, what, false).await;
    }

    /// Charges a node's CPU with `span`, after all waiting threads, as another thread.
    pub(crate) async fn use_cpu_last(
        self: &Rc<Self>,
        node: NodeId,
        span: Span,
        what: &'static str,
    ) {
        self.take_cpu(node, span, what, true).await;
    }

    async fn take_cpu(
        self: &Rc<Self>,
        node: NodeId,
        span: Span,
        what: &'static str,
        is_last: bool,
    ) {
        if span == Span::ZERO {
            return;
        }
        let sleeper = self.sleepers.borrow_mut().put(Sleeper::Asleep(None));
        {
            let cpu = &mut self.nodes.borrow_mut()[node];
            match cpu.is_running || (is_last && !cpu.threads.is_empty()) {
                true => cpu.threads.push_back((sleeper, span, what)),
                false => self.run_thread(node, cpu, sleeper, span, what),
            }
        }
        let mut thread = Thread {
            world: self.clone(),
            node,
            sleeper,
            what,
            stage: Stage::Asleep,
        };
        self.sleep_in(sleeper).await;
        thread.stage = Stage::SetBack;
        loop {
            let set_back = std::mem::take(&mut self.nodes.borrow_mut()[node].set_back);
            if set_back == Span::ZERO {
                break;
            }
            let rest = Interval::starting(self.now(), set_back);
            self.record(node, Part::Cpu, what, rest, None, None);
            self.sleep_until(rest.end).await;
        }
        thread.stage = Stage::Ended;
        self.give_cpu_up(node);
    }

    fn give_cpu_up(&self, node: NodeId) {
        let cpu = &mut self.nodes.borrow_mut()[node];
        cpu.is_running = false;
        if !cpu.threads.is_empty() {
            self.schedule_ranked(self.now(), 1, Event::Cpu(exact::<u32>(node)));
        }
    }

    /// Charges like [`World::use_cpu`], but gives the CPU up whether or not the future is awaited:
    /// a program begins it, and waits for something else first.
    pub(crate) async fn use_cpu_anyway(
        self: &Rc<Self>,
        node: NodeId,
        span: Span,
        what: &'static str,
    ) {
        if span == Span::ZERO {
            return;
        }
        let sleeper = self.sleepers.borrow_mut().put(Sleeper::Asleep(None));
        self.anyway.borrow_mut().insert(sleeper, (node, what));
        {
            let cpu = &mut self.nodes.borrow_mut()[node];
            match cpu.is_running {
                true => cpu.threads.push_back((sleeper, span, what)),
                false => self.run_thread(node, cpu, sleeper, span, what),
            }
        }
        self.sleep_in(sleeper).await;
    }

    /// Whether a thread that is to give its CPU up must go on, since it was interrupted. If not,
    /// the thread has given it up.
    fn goes_on(&self, sleeper: u32) -> bool {
        let anyway = self.anyway.borrow();
        // Most runs have no such threads.
        let found = (!anyway.is_empty()).then(|| anyway.get(&sleeper)).flatten();
        let Some(&(node, what)) = found else {
            return false;
        };
        drop(anyway);
        let cpu = &mut self.nodes.borrow_mut()[node];
        let set_back = std::mem::take(&mut cpu.set_back);
        if set_back > Span::ZERO {
            let rest = Interval::starting(self.now(), set_back);
            self.record(node, Part::Cpu, what, rest, None, None);
            self.schedule(rest.end, Event::Wake(sleeper));
            return true;
        }
        self.anyway.borrow_mut().remove(&sleeper);
        cpu.is_running = false;
        if !cpu.threads.is_empty() {
            self.schedule_ranked(self.now(), 1, Event::Cpu(exact::<u32>(node)));
        }
        false
    }

    /// Gives the CPU to a thread, which sleeps until it has used it.
    fn run_thread(
        &self,
        node: NodeId,
        cpu: &mut Node,
        sleeper: u32,
        span: Span,
        what: &'static str,
    ) {
        cpu.is_running = true;
        cpu.set_back = Span::ZERO;
        let taken = Interval::starting(self.now().max(cpu.interrupts_end_at), span);
        self.schedule(taken.end, Event::Wake(sleeper));
        self.record(node, Part::Cpu, what, taken, None, None);
    }

    /// Takes a node's CPU for `span` at once, after other interrupts only. Returns the end.
    fn reserve_interrupt(&self, node: NodeId, span: Span, what: &'static str) -> Time {
        let cpu = &mut self.nodes.borrow_mut()[node];
        let taken = Interval::starting(self.now().max(cpu.interrupts_end_at), span);
        cpu.interrupts_end_at = taken.end;
        if cpu.is_running {
            cpu.set_back += span;
        }
        self.record(node, Part::Cpu, what, taken, None, None);
        taken.end
    }

    /// Interrupts a node's CPU for `span`.
    pub(crate) async fn interrupt(self: &Rc<Self>, node: NodeId, span: Span, what: &'static str) {
        if span > Span::ZERO {
            let end = self.reserve_interrupt(node, span, what);
            self.sleep_until(end).await;
        }
    }

    /// Hands a message to the network, in which it arrives by itself.
    pub(crate) fn post(
        &self,
        from: NodeId,
        to: NodeId,
        port: Port,
        bytes: u64,
        message: Message<Parcel>,
    ) {
        let letter = Letter {
            to,
            port,
            message,
            sender: None,
            bytes,
        };
        let letter = self.letters.borrow_mut().put(letter);
        self.carry(from, to, bytes, Event::Arrive(letter));
    }

    /// Sends a message whose elements are in a send buffer, for `send` of the sender's CPU. Ends
    /// when the buffer may be used again: the receiver has taken the elements to where they belong,
    /// if it waits for them, or else into a buffer of its system.
    ///
    /// The sending goes on whether it is awaited or not: a program does other things meanwhile.
    pub(crate) async fn transmit(
        self: &Rc<Self>,
        to: NodeId,
        port: Port,
        (bytes, send): (u64, Span),
        message: Message<Parcel>,
    ) {
        let slot = self.sleepers.borrow_mut().put(Sleeper::Asleep(None));
        let from = message.from;
        let letter = Letter {
            to,
            port,
            message,
            sender: Some(slot),
            bytes,
        };
        let letter = self.letters.borrow_mut().put(letter);
        let sent = self.reserve_interrupt(from, send, "send");
        self.schedule(sent, Event::Depart(letter));
        self.sleep_in(slot).await;
    }

    /// Moves bytes from node to node, and ends when they are there. No CPU is charged.
    pub(crate) async fn transport(self: &Rc<Self>, from: NodeId, to: NodeId, bytes: u64) {
        let slot = self.sleepers.borrow_mut().put(Sleeper::Asleep(None));
        self.carry(from, to, bytes, Event::Wake(slot));
        self.sleep_in(slot).await;
        if self.losses.is_lost(to) {
            std::future::pending().await // it has not arrived
        }
    }

    fn carry(&self, from: NodeId, to: NodeId, bytes: u64, then: Event) {
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
        let outgoing = Transmission { to, bytes, then };
        self.nodes.borrow_mut()[from].outgoing.push_back(outgoing);
        if self.nodes.borrow()[from].is_port_due {
            return;
        }
        let free_at = self.network.borrow().sender_free_at(self.place(from));
        if free_at > self.now() {
            self.port_at(free_at, from, 0);
        } else if self.is_shared_moment() {
            // The network takes messages in the order in which they are handed over. Of messages
            // that set out at one moment, the one with the shortest way comes to a node first.
            let rank = self.distance(from, to) + 1;
            self.port_at(self.now(), from, rank);
        } else {
            self.send_first(from);
        }
    }

    fn port_at(&self, at: Time, node: NodeId, rank: u32) {
        self.nodes.borrow_mut()[node].is_port_due = true;
        self.schedule_ranked(at, rank, Event::Port(exact::<u32>(node)));
    }

    /// Sends the first transmission that waits at a free port, and schedules the next for when the
    /// port is free again.
    fn send_first(&self, from: NodeId) {
        let Some(Transmission { to, bytes, then }) =
            self.nodes.borrow_mut()[from].outgoing.pop_front()
        else {
            return;
        };
        let (now, place) = (self.now(), self.place(from));
        let delivery = self
            .network
            .borrow_mut()
            .deliver(now, place, self.place(to), bytes);
        let port = match then {
            Event::Arrive(letter) => self.letters.borrow_mut().get(letter).map(|l| l.port),
            _ => None,
        };
        let arrival = self.losses.late((from, to), port, delivery.arrival);
        self.schedule(arrival, then);
        if !self.nodes.borrow()[from].outgoing.is_empty() {
            let free_at = self.network.borrow().sender_free_at(place);
            self.port_at(free_at.max(now), from, 0);
        }
    }

    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        self.network
            .borrow()
            .distance(self.place(from), self.place(to))
    }

    fn place(&self, node: NodeId) -> u32 {
        self.first_place + exact::<u32>(node)
    }

    /// Polls for the next message of `node` at `port`.
    pub(crate) fn poll_receive(
        &self,
        node: NodeId,
        port: Port,
        context: &mut Context<'_>,
    ) -> Poll<Message<Parcel>> {
        let mut inboxes = self.inboxes.borrow_mut();
        let inbox = inbox(&mut inboxes[node], port);
        match inbox.waiting.pop_front() {
            Some(message) => Poll::Ready(message),
            None => {
                match &mut inbox.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }

    /// Whether `node` waits for a message at `port`.
    fn is_awaited(&self, node: NodeId, port: Port) -> bool {
        let mut inboxes = self.inboxes.borrow_mut();
        inbox(&mut inboxes[node], port).waker.is_some()
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

/// A sleep lasts until an event ends it.
pub(crate) struct Sleep {
    world: Rc<World>,
    slot: Option<u32>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(slot) = self.slot else {
            return Poll::Ready(());
        };
        let mut sleepers = self.world.sleepers.borrow_mut();
        match sleepers.get(slot) {
            Some(Sleeper::Asleep(waker)) => {
                match waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                return Poll::Pending;
            }
            _ => sleepers.take(slot),
        };
        drop(sleepers);
        self.slot = None;
        Poll::Ready(())
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(slot) = self.slot else { return };
        let mut sleepers = self.world.sleepers.borrow_mut();
        match sleepers.get(slot) {
            Some(Sleeper::Awake) => {
                sleepers.take(slot);
            }
            Some(sleeper) => *sleeper = Sleeper::Gone,
            None => {}
        }
    }
}

/// The stage of a thread's use of the CPU.
enum Stage {
    /// The thread waits for the CPU, or for the end of its time.
    Asleep,
    /// The thread has had its time, and makes up for interrupts.
    SetBack,
    Ended,
}

/// A thread that is dropped before it has used the CPU leaves it to the others: at once if it only
/// waits, or else at the end of its time.
struct Thread {
    world: Rc<World>,
    node: NodeId,
    sleeper: u32,
    what: &'static str,
    stage: Stage,
}

impl Drop for Thread {
    fn drop(&mut self) {
        let (world, node, sleeper) = (&self.world, self.node, self.sleeper);
        match self.stage {
            Stage::Ended => return,
            Stage::SetBack => return world.give_cpu_up(node),
            Stage::Asleep => {}
        }
        // The sleep has been dropped before, and has left its mark unless it was over.
        if world.sleepers.borrow_mut().get(sleeper).is_none() {
            return world.give_cpu_up(node);
        }
        let threads = &mut world.nodes.borrow_mut()[node].threads;
        match threads.iter().position(|(other, ..)| *other == sleeper) {
            Some(place) => {
                threads.remove(place);
                world.sleepers.borrow_mut().take(sleeper);
            }
            None => {
                world.anyway.borrow_mut().insert(sleeper, (node, self.what));
            }
        }
    }
}
