//! A party: the clients and servers of collective calls.

use std::cell::RefCell;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;

use futures::future::{Either, select};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::address::PartyId;
use crate::encoding::{decode, encode};
use crate::error::{Error, Kind, Result};
use crate::machine::{Change, Machine, NodeId};
use crate::signal::Signal;

/// A party makes collective calls together: its clients ask, its servers serve. A node may be in
/// several parties.
///
/// The servers of a party *stand* if they were there before it, and stay. Then its calls are
/// directed on the node of server 0, and clients reach servers alone: what one client says to
/// others goes through that node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Members", into = "Members")]
pub struct Party {
    /// The identity of the party.
    pub id: PartyId,
    /// The node of each client, by rank.
    pub clients: Vec<NodeId>,
    /// The node of each server, by number. A node may hold several servers.
    pub servers: Vec<NodeId>,
    /// Whether the servers stand.
    pub stands: bool,
    /// The node that directs, and then the others that hear of it: see [`Party::directed`].
    directed: Vec<NodeId>,
    ranks: FxHashMap<NodeId, usize>,
    servers_by_node: Vec<(NodeId, usize)>,
    /// The nodes that have a server, each once: the node of server 0, and then the others in
    /// ascending order.
    serving: Vec<NodeId>,
}

/// A party as it travels.
#[derive(Clone, Serialize, Deserialize)]
struct Members {
    id: PartyId,
    clients: Vec<NodeId>,
    servers: Vec<NodeId>,
    stands: bool,
}

impl From<Members> for Party {
    fn from(members: Members) -> Self {
        let Members {
            id,
            clients,
            servers,
            stands,
        } = members;
        match stands {
            true => Self::of_standing(id, clients, servers),
            false => Self::new(id, clients, servers),
        }
    }
}

impl From<Party> for Members {
    fn from(party: Party) -> Self {
        Self {
            id: party.id,
            clients: party.clients,
            servers: party.servers,
            stands: party.stands,
        }
    }
}

impl Party {
    /// Makes a party in which rank `r` is the client on `clients[r]`, and server `s` is on
    /// `servers[s]`.
    pub fn new(id: PartyId, clients: Vec<NodeId>, servers: Vec<NodeId>) -> Self {
        let ranks = clients.iter().enumerate().map(|(rank, &node)| (node, rank));
        let ranks: FxHashMap<_, _> = ranks.collect();
        let numbered = servers.iter().enumerate();
        let mut servers_by_node: Vec<_> = numbered.map(|(server, &node)| (node, server)).collect();
        servers_by_node.sort_unstable();
        let first = servers.first().copied();
        let mut serving: Vec<_> = servers_by_node.iter().map(|&(node, _)| node).collect();
        serving.dedup();
        serving.retain(|&node| Some(node) != first);
        serving.splice(0..0, first);
        Self {
            id,
            directed: clients.clone(),
            clients,
            servers,
            stands: false,
            ranks,
            servers_by_node,
            serving,
        }
    }

    /// Makes a party whose servers stand, as [`Party::new`] otherwise.
    pub fn of_standing(id: PartyId, clients: Vec<NodeId>, servers: Vec<NodeId>) -> Self {
        let party = Self::new(id, clients, servers);
        let first = party.serving.first();
        Self {
            directed: first.into_iter().chain(&party.clients).copied().collect(),
            stands: true,
            ..party
        }
    }

    /// The node that directs the calls of the party: of rank 0 or, if servers stand, of server 0.
    pub fn director(&self) -> NodeId {
        self.directed[0]
    }

    /// The node that directs, and then all others with clients, by rank.
    pub(crate) fn directed(&self) -> &[NodeId] {
        &self.directed
    }

    /// The nodes of the party that `node` reaches.
    pub(crate) fn reached_by(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let sees_all = !self.stands || self.place_serving(node).is_some();
        let others = self.nodes().filter(move |&other| other != node);
        others.filter(move |&other| sees_all || self.place_serving(other).is_some())
    }

    /// The rank of the client on `node`, if `node` has one.
    pub fn rank(&self, node: NodeId) -> Option<usize> {
        self.ranks.get(&node).copied()
    }

    /// The nodes that have a server, each once: the node of server 0, and then the others in
    /// ascending order.
    pub fn serving(&self) -> &[NodeId] {
        &self.serving
    }

    /// The place of `node` in [`Party::serving`], if any.
    pub fn place_serving(&self, node: NodeId) -> Option<usize> {
        let (first, others) = self.serving.split_first()?;
        match node == *first {
            true => Some(0),
            false => others.binary_search(&node).ok().map(|place| place + 1),
        }
    }

    /// The numbers of the servers on `node`, in ascending order.
    pub fn servers_on(&self, node: NodeId) -> impl Iterator<Item = usize> + '_ {
        let first = self.servers_by_node.partition_point(|&(at, _)| at < node);
        let here = self.servers_by_node[first..].iter();
        here.take_while(move |(at, _)| *at == node)
            .map(|&(_, server)| server)
    }

    /// All nodes of the party, each once.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        let dedicated = self.serving.iter().copied();
        let dedicated = dedicated.filter(|&node| self.rank(node).is_none());
        self.clients.iter().copied().chain(dedicated)
    }

    /// Whether a server is on a node without a client.
    pub fn has_dedicated(&self) -> bool {
        self.serving.iter().any(|&node| self.rank(node).is_none())
    }

    /// Tells all other nodes of the party that this node leaves because of `error`: it takes no
    /// further part in the calls with these numbers, which cannot succeed. It has done its part in
    /// all other calls.
    ///
    /// # Errors
    /// When the reason cannot be encoded. A node that cannot be reached has its own reason to fail.
    pub async fn leave<M: Machine>(
        &self,
        machine: &M,
        error: &Error,
        given_up: &[Range<u64>],
    ) -> Result<()> {
        let departure = Departure {
            from: machine.me(),
            given_up: given_up.to_vec(),
            error: error.clone(),
        };
        let body = encode(&departure)?;
        for node in self.reached_by(machine.me()) {
            let told = machine.send(node, self.id.departures(), body.clone(), None);
            let _ = told.await;
        }
        Ok(())
    }
}

/// The number of a call that is always yet to come.
const LATER: u64 = u64::MAX - 1;

/// A member has left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Departure {
    from: NodeId,
    /// The numbers of the calls in which the member takes no further part.
    given_up: Vec<Range<u64>>,
    error: Error,
}

impl Departure {
    /// The departure of a node that takes no further part in any call.
    fn of_all_calls(from: NodeId, error: Error) -> Self {
        let all = 0..u64::MAX;
        Self {
            from,
            given_up: vec![all],
            error,
        }
    }

    /// Whether the member takes no further part in the call with this number.
    fn gives_up(&self, sequence: u64) -> bool {
        self.given_up.iter().any(|calls| calls.contains(&sequence))
    }
}

impl PartyId {
    /// Tells a node that this one, which has servers, does not know the party: no call of it can
    /// succeed.
    pub(crate) async fn disown<M: Machine>(self, machine: &M, to: NodeId) {
        let cause = "a server process has lost the session when another was away: open it again";
        let error = Error::new(Kind::Peer, "a collective call", cause);
        let departure = Departure::of_all_calls(machine.me(), error);
        if let Ok(body) = encode(&departure) {
            let told = machine.send(to, self.departures(), body, None);
            let _ = told.await; // one that has left as well waits for nothing
        }
    }
}

/// The attendance of a party: who has left, as one of its nodes has heard.
pub struct Attendance {
    /// The party.
    pub party: Arc<Party>,
    departures: RefCell<Vec<Departure>>,
    changed: Signal,
}

impl Attendance {
    /// Makes the attendance of a party in which nobody has left.
    pub fn new(party: Arc<Party>) -> Self {
        Self {
            party,
            departures: RefCell::default(),
            changed: Signal::default(),
        }
    }

    /// Hears of departures, as long as it is polled. One future at a time may listen.
    pub async fn listen<M: Machine>(&self, machine: &M) {
        let mut next = machine.changes();
        for node in self.party.reached_by(machine.me()) {
            let left = machine.absence(node);
            let departure = left.and_then(|error| self.unannounced(node, error));
            self.note(machine, departure).await;
        }
        loop {
            let told = pin!(machine.receive(self.party.id.departures()));
            let departure = match select(told, pin!(machine.change(next))).await {
                Either::Left((message, _)) => decode::<Departure>(&message.body).ok(),
                Either::Right(((after, node, change), _)) => {
                    next = after;
                    match change {
                        Change::Left(error) => self.unannounced(node, error),
                        Change::Joined => None, // it is no member of the party any more
                    }
                }
            };
            self.note(machine, departure).await;
        }
    }

    /// Notes a departure, if there is one that is not known. Clients of servers that stand hear of
    /// others through the node that directs.
    async fn note<M: Machine>(&self, machine: &M, heard: Option<Departure>) {
        // It may come from several nodes.
        let Some(heard) = heard.filter(|heard| !self.departures.borrow().contains(heard)) else {
            return;
        };
        let party = &self.party;
        if party.stands
            && party.director() == machine.me()
            && let Ok(body) = encode(&heard)
        {
            // They hear first: nobody may listen here any more once the party is known as broken.
            for &client in &party.clients {
                let told = machine.send(client, party.id.departures(), body.clone(), None);
                let _ = told.await; // it may have left, too
            }
        }
        self.departures.borrow_mut().push(heard);
        self.changed.tell();
    }

    /// Tells the node that gives the verdict of the departure that makes this node give a call up.
    /// Otherwise a server that misses this node could be first, and the verdict would
    /// blame this node.
    pub(crate) async fn pass_on<M: Machine>(&self, machine: &M, sequence: u64) {
        let body = {
            let departures = self.departures.borrow();
            let departure = departures.iter().find(|one| one.gives_up(sequence));
            departure.and_then(|departure| encode(departure).ok())
        };
        let director = self.party.director();
        if let Some(body) = body.filter(|_| director != machine.me()) {
            let told = machine.send(director, self.party.id.departures(), body, None);
            let _ = told.await; // one that has left gives no verdict
        }
    }

    /// The departure of a node that has left the machine without a word to the party: no call can
    /// succeed any more.
    fn unannounced(&self, from: NodeId, error: Error) -> Option<Departure> {
        let known = self.departures.borrow();
        let is_announced = known.iter().any(|departure| departure.from == from);
        let is_member = self.party.rank(from).is_some() || self.party.place_serving(from).is_some();
        (is_member && !is_announced).then(|| Departure::of_all_calls(from, error))
    }

    /// The error that keeps the call with this number from success, if there is one.
    pub fn loss(&self, sequence: u64) -> Option<Error> {
        self.loss_of(sequence, |_| true)
    }

    /// As [`Attendance::loss`], but only departures of some nodes count.
    fn loss_of(&self, sequence: u64, counts: impl Fn(NodeId) -> bool) -> Option<Error> {
        let departures = self.departures.borrow();
        let mut losses = departures.iter().filter(|one| one.gives_up(sequence));
        let departure = losses.find(|departure| counts(departure.from));
        departure.map(|departure| departure.error.clone())
    }

    /// The error that keeps every new call from success, if there is one.
    pub fn broken(&self) -> Option<Error> {
        self.loss(LATER)
    }

    /// Whether a server has left.
    pub(crate) fn has_lost_server(&self) -> bool {
        let is_server = |node| self.party.place_serving(node).is_some();
        self.loss_of(LATER, is_server).is_some()
    }

    /// Waits until a server leaves.
    pub(crate) async fn loses_server(&self) -> Error {
        self.lost(LATER, || false).await
    }

    /// Does something that concerns no call, unless no new call can succeed.
    ///
    /// # Errors
    /// The reason why none can.
    pub(crate) async fn unless_broken<T>(&self, part: impl Future<Output = T>) -> Result<T> {
        match select(pin!(part), pin!(self.breaks())).await {
            Either::Left((ended, _)) => Ok(ended),
            Either::Right((error, _)) => Err(error),
        }
    }

    /// Waits until no new call can succeed.
    pub(crate) async fn breaks(&self) -> Error {
        self.lost(LATER, || true).await
    }

    /// Waits until the call with this number cannot succeed any more: `needs_clients` says whether
    /// clients have something to do for it yet. Servers always have.
    pub(crate) async fn lost(&self, sequence: u64, needs_clients: impl Fn() -> bool) -> Error {
        let party = &self.party;
        let counts = |node| needs_clients() || party.place_serving(node).is_some();
        let loss = || self.loss_of(sequence, counts);
        self.changed.until(loss).await
    }
}
