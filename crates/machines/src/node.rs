//! A node of a real machine runs its asynchronous code, answers other nodes' requests for its
//! memory, and sleeps when there is nothing to do.
//!
//! All nodes work alike; machines differ in their [`Links`], the way packets travel. The kind of a
//! memget depends on the client's place:
//!
//! | the client is | a memget is |
//! |---|---|
//! | in this process | a copy by the server from the client's memory |
//! | on this host | a copy by the server, if it may ([`crate::memory::board`]); else by the client, into a shared buffer |
//! | elsewhere | a message with the piece packed, unpacked by the server into its buffer |
//!
//! The first two kinds are a single copy from the user's array into the staging buffer, laid out as
//! the disk wants it.
//!
//! | module | contents |
//! |---|---|
//! | `engine` | the node as the engine's `Machine` |
//! | `transfers` | memget and memput, by the client's distance |
//! | `answers` | the answer of a node to each packet |
//! | [`packet`] | the packets that nodes send one another |
//! | `mail` | messages that have come, and the futures that wait for them |
//! | `membership` | the nodes that have left or joined |
//! | `alarms` | the futures that wait for a time |
//! | [`pause`] | the sleep of a node between two looks |
//! | [`runner`] | the futures of a node, run for the threads of its process |

mod alarms;
mod answers;
mod engine;
mod mail;
mod membership;
pub mod packet;
pub mod pause;
pub mod runner;
mod transfers;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use futures::channel::oneshot;
use penstock_engine::{Error, Kind, NodeId, Opening, Result};

use crate::bell::BellWaker;
use crate::disk::device::{Device, DeviceId};
use crate::disk::real::Opener;
use crate::links::{Distance, LEAVING_MAX, Links, Process};
use crate::memory::buffer::{BufferPool, Mappings, Staging};
use crate::memory::parcel::Returns;
use alarms::Alarms;
use mail::Mail;
use membership::Membership;
use packet::{Header, Packet};
use pause::Pause;

/// A node of a real machine. See the module's head.
pub struct Node {
    me: NodeId,
    links: Box<dyn Links>,
    /// It rings the node's bell.
    waker: OnceCell<Waker>,
    process: Process,
    opener: Arc<dyn Opener>,
    started: Instant,
    mail: Mail,
    tickets: RefCell<HashMap<u64, Ticket>>,
    next_ticket: Cell<u64>,
    membership: Membership,
    alarms: Alarms,
    /// Whether the links are broken.
    are_links_broken: Cell<bool>,
    buffers: Rc<BufferPool>,
    mapped: RefCell<Mappings>,
    /// Whether the kernel lets this process copy from and to other processes of the host.
    copies_across: Cell<bool>,
    returned: Returns,
    /// The devices on which files have been opened, by server.
    devices: RefCell<HashMap<(usize, DeviceId), Rc<Device>>>,
}

/// A ticket stands for an answer that this node waits for.
struct Ticket {
    /// The node that is asked.
    peer: NodeId,
    answer: oneshot::Sender<Result<Vec<u8>>>,
    /// The buffer that the peer copies from or into.
    _buffer: Option<Arc<Staging>>,
}

impl Node {
    /// Makes node `me` of a machine with these links.
    pub fn new(
        me: NodeId,
        links: Box<dyn Links>,
        process: Process,
        opener: Arc<dyn Opener>,
    ) -> Self {
        let mut others = links.others().into_iter();
        let is_shared = others.any(|node| links.distance(node) == Distance::Host);
        Self {
            me,
            links,
            waker: OnceCell::new(),
            process,
            opener,
            started: Instant::now(),
            mail: Mail::default(),
            tickets: RefCell::default(),
            next_ticket: Cell::new(0),
            membership: Membership::default(),
            alarms: Alarms::default(),
            are_links_broken: Cell::new(false),
            buffers: Rc::new(BufferPool::new(is_shared)),
            mapped: RefCell::default(),
            copies_across: Cell::new(is_shared),
            returned: Returns::default(),
            devices: RefCell::default(),
        }
    }

    /// Runs `future` to its end, answering other nodes meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut pause = Pause::default();
        loop {
            let output = self.look(&mut pause, |context| future.as_mut().poll(context));
            match output {
                Poll::Ready(output) => {
                    self.post_all_kept();
                    return output;
                }
                Poll::Pending => pause.sleep(None),
            }
        }
    }

    /// Takes in packets, lets `poll` go on, and notes in `pause` how long this node may sleep.
    pub fn look<T>(&self, pause: &mut Pause, poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let bell = pause.bell.get_or_insert_with(|| self.links.bell()).clone();
        pause.seen = bell.bell().read();
        pause.note_look(self.answer_all());
        let waker = self
            .waker
            .get_or_init(|| Waker::from(Arc::new(BellWaker(bell))));
        let polled = poll(&mut Context::from_waker(waker));
        self.give_back();
        pause.at_most = self.links.nap_max(pause.idle);
        if !self.alarms.is_empty() {
            let now = self.started.elapsed();
            let next = self.alarms.tell(now).map(|at| at.saturating_sub(now));
            pause.at_most = pause.at_most.into_iter().chain(next).min();
        }
        polled
    }

    /// Wakes this node: another thread has given it something to do.
    pub fn wake(&self) {
        self.links.bell().ring();
    }

    /// Whether the node calls the MPI library when it looks, from any thread.
    pub fn needs_mpi(&self) -> bool {
        self.links.needs_mpi()
    }

    /// Tells other nodes that their loans have been read.
    fn give_back(&self) {
        let returned = self.returned.take();
        for (to, ticket) in returned {
            if let Err(error) = self.done(to, ticket, Ok(())) {
                self.cut_off(to, error);
            }
        }
    }

    /// Tells all nodes that this node leaves the machine because of `error`.
    pub fn leave(&self, error: &Error) {
        let left = Header::Left {
            error: error.clone(),
        };
        for node in self.links.others() {
            // An unreachable node has its own reason to fail.
            let _ = self.post(node, &left, 0, |_| {});
        }
        let until = Instant::now() + LEAVING_MAX;
        while self.links.keeps_any() && !self.are_links_broken.get() && Instant::now() < until {
            self.answer_all();
            std::thread::yield_now();
        }
    }

    /// Waits until the links keep no packets: others wait for these packets, and this node may be
    /// busy with something else for long.
    pub fn post_all_kept(&self) {
        while self.links.keeps_any() && !self.are_links_broken.get() {
            self.answer_all();
            std::thread::yield_now();
        }
    }

    fn post(
        &self,
        to: NodeId,
        header: &Header,
        payload: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let (mut packet, start) = Packet::encode(header, payload)?;
        fill(&mut packet[start..]);
        let posted = self.links.post(to, packet);
        posted.map_err(|error| self.membership.absence(to).unwrap_or(error))
    }

    /// Notes that no other node can be reached any more.
    fn fail(&self, error: &Error) {
        self.are_links_broken.set(true);
        for node in self.links.others() {
            self.depart(node, error.clone());
        }
    }

    /// Takes a node for gone because of `error`, and tells it so.
    pub fn cut_off(&self, node: NodeId, error: Error) {
        let left = Header::Left {
            error: error.clone(),
        };
        let _ = self.post(node, &left, 0, |_| {}); // it is gone whether it hears that or not
        self.links.cut(node);
        self.depart(node, error);
    }

    /// Notes that a node has left. Nobody waits for its answers any more.
    fn depart(&self, node: NodeId, error: Error) {
        let mut tickets = self.tickets.borrow_mut();
        for (_, ticket) in tickets.extract_if(|_, ticket| ticket.peer == node) {
            let _ = ticket.answer.send(Err(error.clone())); // the call may have been given up
        }
        drop(tickets);
        self.membership.leave(node, error);
    }

    /// The reason why a node is no member now, if it is none.
    fn absence(&self, node: NodeId) -> Option<Error> {
        let known = self.membership.absence(node);
        known.or_else(|| match node == self.me || self.links.is_member(node) {
            true => None,
            false => Some(stranger(node)),
        })
    }

    /// The device of an opening, whose worker starts when it is first used.
    fn device(&self, opening: &Opening) -> Result<Rc<Device>> {
        let (server, id) = (opening.server, self.opener.device(opening)?);
        let mut devices = self.devices.borrow_mut();
        if let Some(device) = devices.get(&(server, id)) {
            return Ok(device.clone());
        }
        let device = Device::start(format!("disk-{server}-{id}"), id.has_order(), id.workers())?;
        let device = Rc::new(device);
        devices.insert((server, id), device.clone());
        Ok(device)
    }
}

/// The error of a node that looks for one that is no member.
fn stranger(node: NodeId) -> Error {
    let cause = format!("node {node} is not there any more");
    Error::new(Kind::Peer, "reaching another node", cause)
}
