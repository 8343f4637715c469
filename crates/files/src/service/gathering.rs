//! The clients of a collective request or a meeting, as they come.

use std::collections::BTreeMap;

use penstock_engine::trace::Span;
use penstock_engine::{Error, Kind, NodeId, Result, Who, span};
use rustc_hash::FxHashMap;

use crate::messages::{ClientPart, Collective, Purpose};
use crate::metrics::WaitKind;
use crate::object::{Identity, ObjectId};

/// The program, the file, and the number of the request among those of the program.
pub(crate) type GatheringKey = (u64, ObjectId, u64);

/// A client that has come: its node, the ticket of the answer, and what it brings.
pub(super) struct Arrival<T> {
    pub(super) answer: (NodeId, u64),
    pub(super) part: Result<T>,
    /// Its wait for the others, as a trace shows it.
    pub(super) wait: Span,
}

/// The wait of a client that has come for the others, within the span of its request.
pub(super) fn wait_for_clients() -> Span {
    span!("wait", kind = WaitKind::Clients.name())
}

/// The clients of a collective request that have come.
pub(crate) struct Gathering {
    request: Collective,
    arrivals: BTreeMap<usize, Arrival<ClientPart>>,
    /// Whether some of the clients have not heard where the file has moved.
    is_scattered: bool,
}

impl Gathering {
    pub(crate) fn new(request: Collective) -> Self {
        Self {
            request,
            arrivals: BTreeMap::new(),
            is_scattered: false,
        }
    }

    /// Takes in a client. One that asks for something else makes the request fail.
    pub(crate) fn add(
        &mut self,
        rank: usize,
        answer: (NodeId, u64),
        request: &Collective,
        part: Result<ClientPart>,
    ) {
        let mut same = request.clone();
        same.shape.placement = self.request.shape.placement;
        self.is_scattered |= same != *request;
        let part = match same == self.request && rank < self.request.clients.len() {
            true => part,
            false => Err(mismatch()),
        };
        let arrival = Arrival {
            answer,
            part: part.map_err(|error| error.by(Who::Rank(rank))),
            wait: wait_for_clients(),
        };
        self.arrivals.insert(rank, arrival);
    }

    /// Whether the client of a rank has come.
    pub(crate) fn has(&self, rank: usize) -> bool {
        self.arrivals.contains_key(&rank)
    }

    /// A client that has come here and not to another request.
    pub(crate) fn ahead_of(&self, other: &Self) -> Option<usize> {
        let mut ranks = self.arrivals.keys();
        ranks.find(|rank| !other.has(**rank)).copied()
    }

    /// The number of clients that have come.
    pub(crate) fn arrived(&self) -> usize {
        self.arrivals.len()
    }

    /// Whether some of the clients have not heard where the file has moved.
    pub(super) fn is_scattered(&self) -> bool {
        self.is_scattered
    }

    /// Whether all clients have come.
    pub(crate) fn is_complete(&self) -> bool {
        self.arrivals.len() >= self.request.clients.len()
    }

    /// The error for all clients if one of them has left.
    pub(super) fn left(&self, departed: &Departed) -> Option<Error> {
        left_before(&self.request.clients, departed)
    }

    /// Whom to answer, the request, and the parts of all clients by rank.
    ///
    /// # Errors
    /// The error of the lowest rank that has no part.
    pub(crate) fn end(self) -> (Vec<(NodeId, u64)>, Collective, Result<Vec<ClientPart>>) {
        let answers = self.arrivals.values().map(|arrival| arrival.answer);
        let answers = answers.collect();
        let parts = self
            .arrivals
            .into_values()
            .map(|Arrival { part, wait, .. }| {
                drop(wait);
                part
            });
        (answers, self.request, parts.collect())
    }
}

/// The clients of a program that wait for each other.
pub(crate) struct Meeting {
    pub(super) program: u64,
    /// The nodes of all that are to come, by rank.
    pub(super) clients: Vec<NodeId>,
    /// Those that have come, by rank, each with its user and its purpose.
    pub(super) arrivals: BTreeMap<usize, Arrival<(Identity, Purpose)>>,
}

impl Meeting {
    /// The user and the purpose of all, if they agree.
    ///
    /// # Errors
    /// The error of the lowest rank that has one; [`Kind::Mismatch`].
    pub(super) fn purpose(&self) -> Result<Option<(Identity, Purpose)>> {
        let mut agreed: Option<(Identity, Purpose)> = None;
        for (rank, Arrival { part, .. }) in &self.arrivals {
            let purpose = part.clone();
            let (who, purpose) = purpose.map_err(|error| error.by(Who::Rank(*rank)))?;
            agreed = Some(match (agreed, purpose) {
                (None, purpose) => (who, purpose),
                (Some((who, Purpose::Sum(sum))), Purpose::Sum(more)) => {
                    (who, Purpose::Sum(sum.wrapping_add(more)))
                }
                (Some(first), purpose) if first == (who, purpose.clone()) => first,
                _ => return Err(mismatch().by(Who::Rank(*rank))),
            });
        }
        Ok(agreed)
    }
}

/// The error of clients that ask for different things.
pub(super) fn mismatch() -> Error {
    let cause = "clients ask for different things";
    Error::new(Kind::Mismatch, "a collective call on a file", cause)
}

/// The nodes that have left, and why.
pub(super) type Departed = FxHashMap<NodeId, Error>;

/// The error for the clients of a program, by rank, if one of them has left: the reason of the
/// lowest.
pub(super) fn left_before(clients: &[NodeId], departed: &Departed) -> Option<Error> {
    let left = clients.iter().enumerate();
    let mut left = left.filter_map(|(rank, node)| Some((rank, departed.get(node)?)));
    left.next()
        .map(|(rank, error)| error.clone().by(Who::Rank(rank)))
}
