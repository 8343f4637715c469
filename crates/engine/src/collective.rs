//! The frame of every collective call: agreement, multicast, service, one verdict.
//!
//! Four passes over a binary tree of all nodes, whose root is the node of rank 0:
//!
//! ```text
//! up    Propose   each rank says what it asks for, or why it cannot; the root compares
//! down  Request   one compact request, or the error that ends the call on every rank
//!                 ... servers serve, clients let them get and put ...
//! up    Outcome   how each server's part ended, and what it moved
//! down  Verdict   the root has made the result visible (or has not): the same answer for all
//! ```
//!
//! No rank ever returns early: what goes wrong on one of them travels up as a value, and comes
//! back down to all. A node sends at most one message to its parent and two to its children in
//! each pass, so that the cost a node does not grow with the number of nodes. (Panda sends the
//! request from a master client to a master server and on, section 2; Kotz puts barriers around a
//! multicast, Figure 2(c). The tree is both.)

use penstock_layout::Region;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::disk_directed;
use crate::error::{Error, Kind, Result, Who};
use crate::machine::{Machine, NodeId, Step, Tag};
use crate::request::{Moved, Request, Roles};

/// What one rank asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proposal {
    /// The whole request in words, box aside: ranks that ask for the same use the same words.
    pub words: String,
    /// The box that this rank holds, where each names its own.
    pub own_box: Option<Region>,
}

/// What a call comes to, once all ranks agree.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "one exists a call")]
pub enum Decision {
    /// Servers are to serve this request.
    Serve(Request),
    /// Nothing is left to do: that all ranks came here was the point.
    Meet,
    /// The same, and no other call will follow.
    Close,
}

/// How a call ended on all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What all servers together have moved.
    pub moved: Moved,
    /// Whether no other call will follow.
    pub is_closed: bool,
}

/// The part of a call that only the root does: what makes a target and shows it to the world.
pub trait Director {
    /// Turns what all ranks agreed on, with their boxes by rank, into a request; creates or opens
    /// the target.
    ///
    /// # Errors
    /// Whatever is wrong with it: the call then ends with that on every rank.
    fn prepare(&mut self, boxes: Vec<(usize, Region)>) -> Result<Decision>;

    /// All servers have ended: makes the target visible, or removes what there is of it.
    ///
    /// # Errors
    /// The servers' error, or what went wrong here.
    fn conclude(&mut self, outcome: Result<Moved>) -> Result<Moved>;
}

/// Proposals of several ranks, merged on their way up.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Proposals {
    first: Option<(usize, String)>,
    other: Option<(usize, String)>,
    boxes: Vec<(usize, Region)>,
    error: Option<Error>,
}

impl Proposals {
    fn of_rank(rank: usize, proposal: Result<Proposal>) -> Self {
        match proposal {
            Ok(proposal) => Self {
                first: Some((rank, proposal.words)),
                boxes: proposal
                    .own_box
                    .into_iter()
                    .map(|own| (rank, own))
                    .collect(),
                ..Self::default()
            },
            Err(error) => Self {
                error: Some(error.by(Who::Rank(rank))),
                ..Self::default()
            },
        }
    }

    fn merge(mut self, other: Self) -> Self {
        self.error = lowest(self.error, other.error);
        let mut voices: Vec<(usize, String)> = Vec::new();
        voices.extend(
            [self.first, self.other, other.first, other.other]
                .into_iter()
                .flatten(),
        );
        voices.sort();
        self.first = voices.first().cloned();
        self.other = match &self.first {
            Some((_, words)) => voices.iter().find(|(_, other)| other != words).cloned(),
            None => None,
        };
        self.boxes.extend(other.boxes);
        self
    }

    /// The boxes, if all ranks asked for the same.
    fn agreed(mut self) -> Result<Vec<(usize, Region)>> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if let (Some((rank, words)), Some((other, other_words))) = (self.first, self.other) {
            let cause = format!("rank {rank} asks for {words}, rank {other} for {other_words}");
            return Err(Error::new(
                Kind::Mismatch,
                "agreeing on a collective call",
                cause,
            ));
        }
        self.boxes.sort_by_key(|(rank, _)| *rank);
        Ok(self.boxes)
    }
}

/// Of two errors the one met by the lowest rank or server, so that all runs report the same.
fn lowest(first: Option<Error>, second: Option<Error>) -> Option<Error> {
    let key = |error: &Error| match error.who {
        Some(Who::Rank(rank)) => (0, rank),
        Some(Who::Server(server)) => (1, server),
        None => (2, 0),
    };
    [first, second].into_iter().flatten().min_by_key(key)
}

/// How some servers' parts ended, merged on their way up.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Outcome {
    moved: Moved,
    error: Option<Error>,
}

impl Outcome {
    fn merge(mut self, other: Self) -> Self {
        self.moved.add(&other.moved);
        self.error = lowest(self.error, other.error);
        self
    }

    fn of(result: Result<Moved>) -> Self {
        match result {
            Ok(moved) => Self { moved, error: None },
            Err(error) => Self {
                moved: Moved::default(),
                error: Some(error),
            },
        }
    }
}

/// One collective call on one node.
pub struct Call<'a, M: Machine> {
    /// The machine, as this node sees it.
    pub machine: &'a M,
    /// Who plays which part.
    pub roles: &'a Roles,
    /// The call's number, the same on all nodes.
    pub id: u64,
}

impl<M: Machine> Call<'_, M> {
    /// Runs the call to its verdict. A client gives its proposal, or why it has none; the client of
    /// rank 0 also a director; a node without a client neither. The client's memory must have been
    /// exposed.
    ///
    /// # Errors
    /// The verdict: the same error on all nodes.
    ///
    /// # Collective
    /// Every node must call it.
    pub async fn run(
        &self,
        proposal: Option<Result<Proposal>>,
        mut director: Option<&mut dyn Director>,
    ) -> Result<Verdict> {
        let rank = self.roles.rank(self.machine.me());
        let mine = match (rank, proposal) {
            (Some(rank), Some(proposal)) => Proposals::of_rank(rank, proposal),
            _ => Proposals::default(),
        };
        let proposals = self.gather(Step::Propose, mine, Proposals::merge).await?;
        let prepared = match (&mut director, proposals) {
            (Some(director), Some(proposals)) => {
                Some(proposals.agreed().and_then(|boxes| director.prepare(boxes)))
            }
            _ => None,
        };
        let decision: Result<Decision> = self.multicast(Step::Request, prepared).await?;
        let request = match decision? {
            Decision::Serve(request) => request,
            Decision::Meet => {
                return Ok(Verdict {
                    moved: Moved::default(),
                    is_closed: false,
                });
            }
            Decision::Close => {
                return Ok(Verdict {
                    moved: Moved::default(),
                    is_closed: true,
                });
            }
        };
        let outcome = self.serve(&request).await;
        let outcome = self.gather(Step::Outcome, outcome, Outcome::merge).await?;
        let concluded = match (&mut director, outcome) {
            (Some(director), Some(Outcome { moved, error })) => {
                Some(director.conclude(error.map_or(Ok(moved), Err)))
            }
            _ => None,
        };
        let moved: Result<Moved> = self.multicast(Step::Verdict, concluded).await?;
        Ok(Verdict {
            moved: moved?,
            is_closed: false,
        })
    }

    /// The part of every server on this node, side by side.
    async fn serve(&self, request: &Request) -> Outcome {
        let servers = self.roles.servers_on(self.machine.me());
        let parts = servers
            .into_iter()
            .map(|server| disk_directed::serve(self.machine, self.id, request, self.roles, server));
        let results = futures::future::join_all(parts).await;
        results
            .into_iter()
            .map(Outcome::of)
            .fold(Outcome::default(), Outcome::merge)
    }

    /// Merges the values of all nodes, up the tree: `Some` at the root.
    async fn gather<T: Serialize + DeserializeOwned>(
        &self,
        step: Step,
        mine: T,
        merge: impl Fn(T, T) -> T,
    ) -> Result<Option<T>> {
        let tag = Tag {
            call: self.id,
            step,
        };
        let mut merged = mine;
        for _ in self.children() {
            let (_, body) = self.machine.receive(tag).await?;
            merged = merge(merged, decode(&body)?);
        }
        match self.parent() {
            Some(parent) => {
                self.machine.send(parent, tag, encode(&merged)?).await?;
                Ok(None)
            }
            None => Ok(Some(merged)),
        }
    }

    /// The root's value to all nodes, down the tree.
    async fn multicast<T: Serialize + DeserializeOwned>(
        &self,
        step: Step,
        mine: Option<T>,
    ) -> Result<T> {
        let tag = Tag {
            call: self.id,
            step,
        };
        let (body, value) = match mine {
            Some(value) => (encode(&value)?, value),
            None => {
                let (_, body) = self.machine.receive(tag).await?;
                let value = decode(&body)?;
                (body, value)
            }
        };
        for child in self.children() {
            self.machine.send(child, tag, body.clone()).await?;
        }
        Ok(value)
    }

    /// Node numbers count from the root in the tree.
    fn root(&self) -> NodeId {
        self.roles.clients[0]
    }

    fn place(&self) -> usize {
        (self.machine.me() + self.roles.nodes - self.root()) % self.roles.nodes
    }

    fn parent(&self) -> Option<NodeId> {
        let place = self.place();
        (place > 0).then(|| ((place - 1) / 2 + self.root()) % self.roles.nodes)
    }

    fn children(&self) -> impl Iterator<Item = NodeId> + use<M> {
        let (place, nodes, root) = (self.place(), self.roles.nodes, self.root());
        (2 * place + 1..2 * place + 3)
            .filter(move |&child| child < nodes)
            .map(move |child| (child + root) % nodes)
    }
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|e| Error::new(Kind::Io, "encoding a message", e))
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    postcard::from_bytes(body).map_err(|e| Error::new(Kind::Io, "decoding a message", e))
}
