//! The clients of a collective request, as they come.

use std::collections::BTreeMap;

use penstock_engine::{Error, Kind, NodeId, Result, Who};

use crate::messages::{ClientPart, Collective};
use crate::object::ObjectId;

/// The program, the file, and the number of the request among those of the program.
pub(crate) type GatheringKey = (u64, ObjectId, u64);

/// A client that has come: its node, the ticket of the answer, and its part.
struct Arrival {
    answer: (NodeId, u64),
    part: Result<ClientPart>,
}

/// The clients of a program that wait for each other.
#[derive(Default)]
pub(crate) struct Meeting {
    /// Whom to answer.
    pub(crate) answers: Vec<(NodeId, u64)>,
    /// The nodes of all that are to come.
    pub(crate) clients: Vec<NodeId>,
}

/// The clients of a collective request that have come.
pub(crate) struct Gathering {
    request: Collective,
    arrivals: BTreeMap<usize, Arrival>,
}

impl Gathering {
    pub(crate) fn new(request: Collective) -> Self {
        Self {
            request,
            arrivals: BTreeMap::new(),
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
        let part = match *request == self.request && rank < self.request.clients.len() {
            true => part,
            false => {
                let cause = "clients ask for different things";
                let error = Error::new(Kind::Mismatch, "a collective call on a file", cause);
                Err(error.by(Who::Rank(rank)))
            }
        };
        let arrival = Arrival {
            answer,
            part: part.map_err(|error| error.by(Who::Rank(rank))),
        };
        self.arrivals.insert(rank, arrival);
    }

    /// Whether all clients have come.
    pub(crate) fn is_complete(&self) -> bool {
        self.arrivals.len() >= self.request.clients.len()
    }

    /// Whether a node is that of one of the clients.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.request.clients.contains(&node)
    }

    /// Whom to answer, the request, and the parts of all clients by rank.
    ///
    /// # Errors
    /// The error of the lowest rank that has no part.
    pub(crate) fn end(self) -> (Vec<(NodeId, u64)>, Collective, Result<Vec<ClientPart>>) {
        let answers = self.arrivals.values().map(|arrival| arrival.answer);
        let answers = answers.collect();
        let parts = self.arrivals.into_values().map(|arrival| arrival.part);
        (answers, self.request, parts.collect())
    }
}
