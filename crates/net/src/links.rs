//! The links of a node of the net machine: its connections with other nodes.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use penstock_engine::{Error, Kind, NodeId, Result};
use penstock_layout::exact;
use penstock_machines::bell::HasBell;
use penstock_machines::links::{Arrival, Distance, Links};
use penstock_machines::memory::board::HasBoard;
use penstock_machines::node::pause::LOOKS_AWAKE;
use tokio::sync::Notify;

use crate::bell::{OWN, SocketBell};
use crate::connection::{Connection, Limits};
use crate::dismissals::{Dismissal, Dismissals};
use crate::peer::Peer;
use crate::stream::{Found, Stream, broken};

/// How often a node looks whether a peer has become stuck, or is silent.
const STUCK_LOOK: Duration = Duration::from_millis(500);

/// The polls after which a node that never sleeps reads the clock.
const POLLS_BETWEEN: u32 = 64;

/// A word of the door to the links.
pub(crate) enum Word {
    /// A node has been let in.
    Admitted(Admitted),
    /// A server calls again: the connection with its node is none any more.
    Gone(NodeId),
}

/// A node that has been let in.
pub(crate) struct Admitted {
    pub(crate) node: NodeId,
    pub(crate) peer: Peer,
    pub(crate) stream: Stream,
    pub(crate) limits: Limits,
}

/// The nodes that are connected with this one, and who they are. Those who let nodes in write it,
/// and the links when nodes go.
#[derive(Clone, Default)]
pub struct Roster(Arc<Peers>);

#[derive(Default)]
struct Peers {
    by_node: Mutex<HashMap<NodeId, Peer>>,
    gone: Notify,
    dismissals: Dismissals,
    /// The clients that are about to be cut off for a reason that has been counted.
    expelled: Mutex<Vec<NodeId>>,
}

impl Roster {
    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Peer>> {
        self.0
            .by_node
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a node is not connected.
    pub(crate) async fn absent(&self, node: NodeId) {
        loop {
            let mut gone = pin!(self.0.gone.notified());
            gone.as_mut().enable(); // it is told of all that goes from here on
            if self.peer(node).is_none() {
                return;
            }
            gone.await;
        }
    }

    /// Notes a node; false if it is there already.
    pub(crate) fn add(&self, node: NodeId, peer: Peer) -> bool {
        let mut peers = self.lock();
        let is_new = !peers.contains_key(&node);
        if is_new {
            peers.insert(node, peer);
        }
        is_new
    }

    fn put(&self, node: NodeId, peer: Peer) {
        self.lock().insert(node, peer);
    }

    pub(crate) fn remove(&self, node: NodeId) {
        self.lock().remove(&node);
        self.0.gone.notify_waiters();
    }

    /// The number of clients.
    pub fn clients(&self) -> usize {
        let peers = self.lock();
        let clients = peers
            .values()
            .filter(|peer| matches!(peer, Peer::Client(_)));
        clients.count()
    }

    /// Counts a caller who was refused, or a client that was cut off.
    pub(crate) fn dismiss(&self, reason: Dismissal) {
        self.0.dismissals.note(reason);
    }

    fn expelled(&self) -> MutexGuard<'_, Vec<NodeId>> {
        let expelled = self.0.expelled.lock();
        expelled.unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a client that is cut off next, for this reason.
    pub fn expel(&self, node: NodeId, reason: Dismissal) {
        self.dismiss(reason);
        self.expelled().push(node);
    }

    /// Whether the reason was counted for which a node is cut off.
    fn take_expelled(&self, node: NodeId) -> bool {
        let mut expelled = self.expelled();
        let before = expelled.len();
        expelled.retain(|&other| other != node);
        expelled.len() < before
    }

    /// The number of callers that were refused, and of clients that were cut off, for each reason.
    pub fn dismissals(&self) -> impl Iterator<Item = (Dismissal, u64)> {
        self.0.dismissals.counts()
    }

    /// Who a connected node is.
    pub fn peer(&self, node: NodeId) -> Option<Peer> {
        self.lock().get(&node).cloned()
    }
}

/// The links of one node.
pub(crate) struct NetLinks {
    me: NodeId,
    bell: Arc<SocketBell>,
    roster: Roster,
    words: Receiver<Word>,
    connections: RefCell<HashMap<NodeId, Connection>>,
    arrivals: RefCell<VecDeque<Arrival>>,
    /// The nodes whose shared memory this node watches.
    watched: RefCell<Vec<NodeId>>,
    /// The nodes that have sent more than was taken: no socket tells of that.
    busy: RefCell<Vec<NodeId>>,
    /// The nodes for which something is kept.
    waiting: RefCell<Vec<NodeId>>,
    /// The connected nodes of servers, which are asked for signs of life.
    servers: RefCell<Vec<NodeId>>,
    /// When it has looked for silent ones, and how often it was polled since.
    looked: Cell<Instant>,
    polls: Cell<u32>,
}

impl NetLinks {
    pub(crate) fn new(
        me: NodeId,
        bell: Arc<SocketBell>,
        roster: Roster,
        words: Receiver<Word>,
    ) -> Self {
        Self {
            me,
            bell,
            roster,
            words,
            connections: RefCell::default(),
            arrivals: RefCell::default(),
            watched: RefCell::default(),
            busy: RefCell::default(),
            waiting: RefCell::default(),
            servers: RefCell::default(),
            looked: Cell::new(Instant::now()),
            polls: Cell::default(),
        }
    }

    /// Takes in a node that is there from the beginning.
    ///
    /// # Errors
    /// When the system keeps no more sockets.
    pub(crate) fn begin_with(&self, admitted: Admitted) -> Result<()> {
        let node = admitted.node;
        self.take_in(admitted)?;
        let _ = self.receive(node); // TLS may hold packets that no socket tells of
        Ok(())
    }

    /// Notes that a node is not there from the beginning, and why.
    pub(crate) fn begin_without(&self, node: NodeId, error: Error) {
        let absent = Arrival::Left(node, error);
        self.arrivals.borrow_mut().push_back(absent);
    }

    fn take_in(&self, admitted: Admitted) -> Result<()> {
        let Admitted {
            node,
            peer,
            stream,
            limits,
        } = admitted;
        self.bell.add(&stream.socket(), node as u64)?;
        if matches!(stream, Stream::Host(_)) {
            self.watched.borrow_mut().push(node); // what has come before is seen
        }
        let is_server = matches!(peer, Peer::Server(_));
        if is_server {
            self.servers.borrow_mut().push(node);
        }
        self.roster.put(node, peer);
        let connection = Connection::new(stream, limits, is_server);
        self.connections.borrow_mut().insert(node, connection);
        Ok(())
    }

    /// Takes in nodes that have been let in.
    fn admit(&self) {
        while self.arrivals.borrow().is_empty()
            && let Ok(word) = self.words.try_recv()
        {
            let node = match &word {
                Word::Admitted(admitted) => admitted.node,
                Word::Gone(node) => *node,
            };
            if self.is_member(node) {
                let cause = "it has come again";
                self.lose(
                    node,
                    Error::new(Kind::Peer, "working with another node", cause),
                );
            }
            let Word::Admitted(admitted) = word else {
                continue;
            };
            match self.take_in(admitted) {
                Ok(()) => {
                    self.arrivals.borrow_mut().push_back(Arrival::Joined(node));
                    let _ = self.receive(node); // TLS may hold packets that no socket tells of
                }
                Err(error) => {
                    tracing::error!(node, %error, "a connection cannot be used");
                    self.roster.remove(node);
                }
            }
        }
    }

    /// Takes the packets of one node. A node whose connection breaks is lost.
    fn receive(&self, node: NodeId) -> Result<Found> {
        let received = match self.connections.borrow_mut().get_mut(&node) {
            None => return Ok(Found::Nothing),
            Some(connection) => {
                let mut arrivals = self.arrivals.borrow_mut();
                let take = |packet| arrivals.push_back(Arrival::Packet(node, packet));
                let kept = connection.keeps_any();
                let received = connection.receive(take);
                self.note_kept(node, kept, connection);
                received
            }
        };
        match &received {
            Ok(Found::End) => self.lose(node, broken("it has closed the connection")),
            Ok(Found::Bytes) => self.busy.borrow_mut().push(node),
            Ok(Found::Nothing) => {}
            Err(error) => self.lose(node, error.clone()),
        }
        received
    }

    /// Ends a connection because of an error, and lets the node hear that.
    fn lose(&self, node: NodeId, error: Error) {
        if self.drop_connection(node) {
            let left = Arrival::Left(node, error);
            self.arrivals.borrow_mut().push_back(left);
        }
    }

    /// Ends a connection. Says whether there was one.
    fn drop_connection(&self, node: NodeId) -> bool {
        let Some(connection) = self.connections.borrow_mut().remove(&node) else {
            return false;
        };
        self.bell.remove(&connection.stream.socket());
        self.watched.borrow_mut().retain(|&other| other != node);
        self.waiting.borrow_mut().retain(|&other| other != node);
        self.servers.borrow_mut().retain(|&other| other != node);
        if let Some(reason) = connection.fault()
            && let Some(Peer::Client(_)) = self.roster.peer(node)
        {
            self.roster.dismiss(reason);
        }
        self.roster.remove(node);
        true
    }

    /// Takes what sockets have to say.
    fn hear_sockets(&self) {
        for number in self.bell.ready() {
            if number == OWN {
                continue;
            }
            let node = exact::<NodeId>(number);
            let is_there = match self.connections.borrow_mut().get_mut(&node) {
                Some(Connection {
                    stream: Stream::Host(host),
                    ..
                }) => {
                    let mut watched = self.watched.borrow_mut();
                    if !watched.contains(&node) {
                        host.reader.watch();
                        watched.push(node);
                    }
                    host.hear()
                }
                Some(_) => Ok(true),
                None => continue,
            };
            // What a node has sent before it ends comes first.
            let received = self.receive(node);
            match is_there {
                Ok(true) => {}
                Ok(false) if received == Ok(Found::Bytes) => {} // it is heard of again
                Ok(false) => self.lose(node, broken("it has closed the connection")),
                Err(error) => self.lose(node, error),
            }
        }
    }

    /// Sends on what was kept, and cuts off peers that are stuck.
    fn move_on(&self) {
        let waiting = self.waiting.take();
        for node in waiting {
            self.send_kept(node);
        }
    }

    fn send_kept(&self, node: NodeId) {
        let moved = match self.connections.borrow_mut().get_mut(&node) {
            None => return,
            Some(connection) => connection.move_on().map(|()| connection.keeps_any()),
        };
        match moved {
            Ok(true) => self.waiting.borrow_mut().push(node),
            Ok(false) => {
                if let Some(connection) = self.connections.borrow().get(&node) {
                    self.want_room(node, connection, false);
                }
            }
            Err(error) => self.lose(node, error),
        }
    }

    /// Notes that something is kept for a node for which nothing was kept before.
    fn note_kept(&self, node: NodeId, before: bool, connection: &Connection) {
        if !before && connection.keeps_any() {
            self.waiting.borrow_mut().push(node);
            self.want_room(node, connection, true);
        }
    }

    fn want_room(&self, node: NodeId, connection: &Connection, wants: bool) {
        if matches!(connection.stream, Stream::Remote(_)) {
            let socket = connection.stream.socket();
            self.bell.want_room(&socket, node as u64, wants);
        }
    }

    /// Gives up servers that have been silent for too long.
    fn look_for_silence(&self) {
        if self.servers.borrow().is_empty() {
            return;
        }
        // Reading the clock takes as long as a look.
        let polls = self.polls.get() + 1;
        self.polls.set(polls);
        if polls < POLLS_BETWEEN {
            return;
        }
        self.polls.set(0);
        if self.looked.get().elapsed() < STUCK_LOOK {
            return;
        }
        self.looked.set(Instant::now());
        let servers = self.servers.borrow().clone();
        for node in servers {
            let looked = match self.connections.borrow_mut().get_mut(&node) {
                None => continue,
                Some(connection) => {
                    let kept = connection.keeps_any();
                    let looked = connection.look_for_silence(STUCK_LOOK);
                    self.note_kept(node, kept, connection);
                    looked
                }
            };
            if let Err(error) = looked {
                self.lose(node, error);
            }
        }
    }

    /// From now on wants to be told of what comes through shared memory. Says whether something has
    /// come meanwhile.
    fn unwatch(&self) -> bool {
        let watched = self.watched.take();
        let mut connections = self.connections.borrow_mut();
        let mut any = false;
        for node in watched {
            let Some(Connection {
                stream: Stream::Host(host),
                ..
            }) = connections.get_mut(&node)
            else {
                continue;
            };
            // Spoiled words are met again at the next look.
            if host.reader.unwatch().unwrap_or(true) {
                host.reader.watch();
                self.watched.borrow_mut().push(node);
                any = true;
            }
        }
        any
    }
}

impl Links for NetLinks {
    fn distance(&self, node: NodeId) -> Distance {
        match node == self.me {
            true => Distance::Process,
            false => Distance::Network,
        }
    }

    fn post(&self, to: NodeId, packet: Vec<u8>) -> Result<()> {
        let posted = match self.connections.borrow_mut().get_mut(&to) {
            None => return Err(broken(format!("node {to} is not connected"))),
            Some(connection) => {
                let kept = connection.keeps_any();
                let posted = connection.post(packet);
                self.note_kept(to, kept, connection);
                posted
            }
        };
        posted.inspect_err(|error| self.lose(to, error.clone()))
    }

    fn poll(&self) -> Result<Option<Arrival>> {
        if let Some(arrival) = self.arrivals.borrow_mut().pop_front() {
            return Ok(Some(arrival));
        }
        self.admit();
        let mut nodes = self.busy.take();
        nodes.extend(self.watched.borrow().iter());
        nodes.sort_unstable();
        nodes.dedup();
        for node in nodes {
            let _ = self.receive(node); // its loss is an arrival
        }
        self.hear_sockets();
        self.move_on();
        self.look_for_silence();
        Ok(self.arrivals.borrow_mut().pop_front())
    }

    fn others(&self) -> Vec<NodeId> {
        self.connections.borrow().keys().copied().collect()
    }

    fn is_member(&self, node: NodeId) -> bool {
        node == self.me || self.connections.borrow().contains_key(&node)
    }

    fn cut(&self, node: NodeId) {
        let is_counted = self.roster.take_expelled(node);
        let is_client = matches!(self.roster.peer(node), Some(Peer::Client(_)));
        if self.drop_connection(node) && is_client && !is_counted {
            self.roster.dismiss(Dismissal::Nonsense);
        }
    }

    fn keeps_any(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    fn mail_bytes_max(&self, node: NodeId) -> u64 {
        let connections = self.connections.borrow();
        let peer = connections.get(&node);
        peer.map_or(u64::MAX, |peer| peer.limits.mail_bytes) // only the node itself has none
    }

    fn bell(&self) -> Arc<dyn HasBell> {
        self.bell.clone()
    }

    fn board(&self, _node: NodeId) -> Option<Arc<dyn HasBoard>> {
        None
    }

    fn nap_max(&self, idle: u32) -> Option<Duration> {
        let is_watching = !self.watched.borrow().is_empty();
        // No socket tells of an arrival that nobody has taken yet: one look takes some of them, and
        // a connection may break after it.
        let is_busy = !self.busy.borrow().is_empty() || !self.arrivals.borrow().is_empty();
        if is_busy || is_watching && (idle < LOOKS_AWAKE || self.unwatch()) {
            return Some(Duration::ZERO);
        }
        self.polls.set(POLLS_BETWEEN); // after a nap it is time to look
        (self.keeps_any() || !self.servers.borrow().is_empty()).then_some(STUCK_LOOK)
    }

    fn needs_mpi(&self) -> bool {
        false
    }
}
