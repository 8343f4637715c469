//! The frame of every collective call: agreement, multicast, service, one verdict.
//!
//! Four passes over binary trees of nodes, whose root is the node of rank 0:
//!
//! ```text
//! up    Propose   each rank says what it asks for, or why it cannot; the root compares
//! down  Request   one compact request, or the error that ends the call on every rank
//!                 ... servers serve, clients let them get and put ...
//! up    Outcome   how each server's part ended, and what it moved
//! down  Verdict   the root has made the result visible (or has not): the same answer for all
//! ```
//!
//! The first and the last go over all nodes. So do the others where clients have a part in the
//! moving; where they only let servers get and put, the request and its outcome are the servers'
//! alone, and a client that is no server sleeps until it is asked for a piece, or hears the
//! verdict.
//!
//! No rank ever returns early: what goes wrong on one of them travels up as a value, and comes
//! back down to all. (Panda sends the
//! request from a master client to a master server and on, section 2; Kotz puts barriers around a
//! multicast, Figure 2(c). The tree is both.)

use std::cell::Cell;
use std::fmt;
use std::pin::pin;

use futures::future::{Either, join, join_all, select};
use penstock_layout::Region;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result, Who};
use crate::machine::{Machine, Operation, Step};
use crate::numbers::memory_number;
use crate::outcome::{Outcome, Tally, Traffic, lowest};
use crate::request::{Request, Rest};
use crate::roles::Roles;
use crate::split::Latch;
use crate::tree::{Members, Tree};
use crate::tuning::{DiskDirected, Strategy};
use crate::{caching, disk_directed, independent, two_phase};

/// A request in terms that people understand. Ranks that ask for the same give the same; where they
/// do not, an error says in what they differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ask {
    /// What it is, such as "a write".
    what: String,
    /// Names and values of its terms.
    terms: Vec<(String, String)>,
}

impl Ask {
    /// A request without terms.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            terms: Vec::new(),
        }
    }

    /// The same with one term more.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        self.terms.push((name.into(), value.to_string()));
        self
    }

    /// The same with all terms of another.
    #[must_use]
    pub fn with_all(mut self, other: Self) -> Self {
        self.terms.extend(other.terms);
        self
    }

    /// What two ranks that differ ask for.
    fn differs_from(&self, rank: usize, other: &Self, other_rank: usize) -> String {
        if self.what != other.what {
            let (what, other) = (&self.what, &other.what);
            return format!("rank {rank} asks for {what}, rank {other_rank} for {other}");
        }
        let both = self.terms.iter().zip(&other.terms);
        let differing = both
            .filter(|(one, other)| one != other)
            .map(|(one, other)| match one.0 == other.0 {
                true => format!(
                    "the {}: {} on rank {rank}, {} on rank {other_rank}",
                    one.0, one.1, other.1
                ),
                false => format!("{} on rank {rank}, {} on rank {other_rank}", one.0, other.0),
            });
        let mut in_what: Vec<String> = differing.take(TERMS_SHOWN).collect();
        if self.terms.len() != other.terms.len() {
            in_what.push("the number of terms".to_string());
        }
        format!("ranks differ, for {}, in {}", self.what, in_what.join("; "))
    }
}

/// How many terms an error shows in which ranks differ.
const TERMS_SHOWN: usize = 3;

/// What one rank asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proposal {
    /// The whole request, boxes aside.
    pub ask: Ask,
    /// The boxes that this rank holds of each array, where each names its own.
    pub own_boxes: Vec<Option<Vec<Region>>>,
    /// What all ranks are to hear of, though it does not keep the session from being closed.
    pub complaint: Option<Error>,
}

/// What a call comes to, once all ranks agree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Decision {
    /// Servers are to serve these requests, one an array.
    Serve(Vec<Request>),
    /// Nothing is left to do: that all ranks came here, and are told this, was the point.
    Tell(String),
    /// The same, and no other call will follow: the director gives no complaint, that of the ranks
    /// takes its place.
    Close(Option<Error>),
}

/// What a node hears after the first pass.
#[derive(Debug)]
pub enum Agreement {
    /// What the call comes to.
    Decision(Decision),
    /// That it has ended: others did all of it.
    Verdict(Verdict),
}

/// How a call ended on all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What all servers together have moved.
    pub moved: Traffic,
    /// Whether no other call will follow.
    pub is_closed: bool,
    /// What a rank had to complain of when it closed.
    pub complaint: Option<Error>,
    /// What the director had to tell where nothing was moved.
    pub note: String,
}

impl Verdict {
    /// Of a call that has moved something.
    fn of(moved: Traffic) -> Self {
        Self {
            moved,
            is_closed: false,
            complaint: None,
            note: String::new(),
        }
    }
}

/// Boxes of ranks, one an array, by rank: of those ranks that name any.
pub type RankBoxes = Vec<(usize, Vec<Option<Vec<Region>>>)>;

/// The part of a call that only the root does: what makes a target and shows it to the world.
pub trait Director {
    /// Turns what all ranks agreed on, with their boxes by rank, into a request; creates or opens
    /// the target.
    ///
    /// # Errors
    /// Whatever is wrong with it: the call then ends with that on every rank.
    fn prepare(&mut self, boxes: RankBoxes) -> Result<Decision>;

    /// All servers have ended: makes the target visible, or removes what there is of it.
    ///
    /// # Errors
    /// The servers' error, or what went wrong here.
    fn conclude(&mut self, outcome: Result<Tally>) -> Result<Traffic>;
}

/// Proposals of several ranks, merged on their way up.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Proposals {
    first: Option<(usize, Ask)>,
    other: Option<(usize, Ask)>,
    boxes: RankBoxes,
    complaint: Option<Error>,
    error: Option<Error>,
}

impl Proposals {
    fn of_rank(rank: usize, proposal: Result<Proposal>) -> Self {
        match proposal {
            Ok(proposal) => Self {
                first: Some((rank, proposal.ask)),
                boxes: match proposal.own_boxes.iter().any(Option::is_some) {
                    true => vec![(rank, proposal.own_boxes)],
                    false => Vec::new(),
                },
                complaint: proposal.complaint.map(|error| error.by(Who::Rank(rank))),
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
        self.complaint = lowest(self.complaint, other.complaint);
        let mut voices: Vec<(usize, Ask)> = Vec::new();
        voices.extend(
            [self.first, self.other, other.first, other.other]
                .into_iter()
                .flatten(),
        );
        voices.sort();
        self.first = voices.first().cloned();
        self.other = match &self.first {
            Some((_, ask)) => voices.iter().find(|(_, other)| other != ask).cloned(),
            None => None,
        };
        self.boxes.extend(other.boxes);
        self
    }

    /// Themselves, boxes by rank, if all ranks asked for the same.
    fn agreed(mut self) -> Result<Self> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if let (Some((rank, ask)), Some((other_rank, other))) = (&self.first, &self.other) {
            let cause = ask.differs_from(*rank, other, *other_rank);
            return Err(Error::new(
                Kind::Mismatch,
                "agreeing on a collective call",
                cause,
            ));
        }
        self.boxes.sort_by_key(|(rank, _)| *rank);
        Ok(self)
    }
}

/// One collective call on one node.
pub struct Call<'a, M: Machine> {
    tree: Tree<'a, M>,
    handed_over: &'a Cell<bool>,
}

/// The barrier at which all nodes have handed over their parts of a split write.
const HANDED_OVER: u32 = u32::MAX - 1;
/// Who has a part in moving what is asked for, other than to let servers get and put.
fn taking_part(requests: &[Request]) -> Members {
    let is_servers = |request: &Request| {
        matches!(request.strategy, Strategy::DiskDirected(_)) && request.split.is_none()
    };
    match !requests.is_empty() && requests.iter().all(is_servers) {
        true => Members::Servers,
        false => Members::All,
    }
}

impl<'a, M: Machine> Call<'a, M> {
    /// Call `id`, the same on all nodes. `handed_over` is set when all ranks agree and, in a
    /// split collective, only disks are left to work: see [`crate::split`].
    pub fn new(machine: &'a M, roles: &'a Roles, id: u64, handed_over: &'a Cell<bool>) -> Self {
        let tree = Tree {
            machine,
            roles,
            call: memory_number(id, 0),
        };
        Self { tree, handed_over }
    }

    /// Runs the call to its verdict. A client gives its proposal, or why it has none; the client of
    /// rank 0 also a director; a node without a client neither. The client's memories must have
    /// been exposed, each under its [`memory_number`].
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
        let director = &mut director;
        let met = Verdict::of(Traffic::default());
        match self.agree(proposal, director).await? {
            Agreement::Decision(Decision::Serve(requests)) => {
                let outcome = self.transfer(&requests).await;
                self.conclude(&requests, outcome, director).await
            }
            Agreement::Decision(Decision::Tell(note)) => Ok(Verdict { note, ..met }),
            Agreement::Decision(Decision::Close(complaint)) => Ok(Verdict {
                is_closed: true,
                complaint,
                ..met
            }),
            Agreement::Verdict(verdict) => Ok(verdict),
        }
    }

    /// The first two passes: what the call comes to. A node that has no part in the second is back
    /// when it has heard the verdict.
    ///
    /// # Errors
    /// The same on all nodes: that of the lowest rank, or the director's.
    ///
    /// # Collective
    /// Every node must call it.
    pub async fn agree(
        &self,
        proposal: Option<Result<Proposal>>,
        director: &mut Option<&mut dyn Director>,
    ) -> Result<Agreement> {
        let rank = self.tree.roles.rank(self.tree.machine.me());
        let mine = match (rank, proposal) {
            (Some(rank), Some(proposal)) => Proposals::of_rank(rank, proposal),
            _ => Proposals::default(),
        };
        let all = self
            .tree
            .gather(Members::All, Step::Propose, mine, Proposals::merge);
        let prepared =
            match (director.as_mut(), all.await?) {
                (Some(director), Some(proposals)) => {
                    Some(proposals.agreed().and_then(
                        |agreed| match director.prepare(agreed.boxes) {
                            Ok(Decision::Close(_)) => Ok(Decision::Close(agreed.complaint)),
                            answer => answer,
                        },
                    ))
                }
                _ => None,
            };
        let to = |decision: &Result<Decision>| match decision {
            Ok(Decision::Serve(requests)) => taking_part(requests),
            _ => Members::All,
        };
        let decision = self.tree.multicast(to, Step::Request, prepared);
        if self.tree.place(Members::Servers).is_some() {
            return decision.await?.map(Agreement::Decision);
        }
        match select(pin!(decision), pin!(self.hear_verdict(None))).await {
            Either::Left((decision, _)) => decision?.map(Agreement::Decision),
            Either::Right((verdict, _)) => verdict.map(Agreement::Verdict),
        }
    }

    /// This node's part in moving the data, by the strategy that the requests name: all the same.
    /// What is about several arrays is disk-directed.
    ///
    /// # Collective
    /// Every node must call it.
    pub async fn transfer(&self, requests: &[Request]) -> Outcome {
        let (tree, latch) = (&self.tree, Latch::default());
        let [request, others @ ..] = requests else {
            return Outcome::default();
        };
        let moving = async {
            match &request.strategy {
                Strategy::DiskDirected(options) => self.serve(requests, options, &latch).await,
                _ if !others.is_empty() || request.rest == Rest::Keep => {
                    let _all = latch.hand_over();
                    let cause = format!("a call by {}", request.strategy.name());
                    let doing = "moving several arrays, or a part of one";
                    Outcome::of(Err(Error::new(Kind::Unsupported, doing, cause)))
                }
                Strategy::Caching(options) => {
                    let _all = latch.hand_over(); // clients and servers are not to be told apart
                    caching::transfer(tree, request, options).await
                }
                Strategy::TwoPhase(options) => {
                    two_phase::transfer(tree, request, options, &latch).await
                }
                Strategy::Independent => independent::transfer(tree, request, &latch).await,
            }
        };
        match request.split {
            None => moving.await,
            Some(_) => {
                // What moves is asked first: by then all its parts are known.
                let (moved, handed_over) = join(moving, self.hand_over(request, &latch)).await;
                moved.merge(Outcome::of(handed_over.map(|()| Traffic::default())))
            }
        }
    }

    /// Waits until this node has handed over, and in a write all others too: then nobody will look
    /// into this node's memory any more.
    async fn hand_over(&self, request: &Request, latch: &Latch) -> Result<()> {
        latch.all_handed_over().await;
        if request.operation == Operation::Write {
            self.tree.barrier(Members::All, HANDED_OVER).await?;
        }
        self.handed_over.set(true);
        Ok(())
    }

    /// The last two passes: the verdict on `requests`.
    ///
    /// # Errors
    /// The verdict: the same error on all nodes.
    ///
    /// # Collective
    /// Every node must call it.
    pub async fn conclude(
        &self,
        requests: &[Request],
        outcome: Outcome,
        director: &mut Option<&mut dyn Director>,
    ) -> Result<Verdict> {
        let members = taking_part(requests);
        let all = self
            .tree
            .gather(members, Step::Outcome, outcome, Outcome::merge);
        let concluded = match (director, all.await?) {
            (Some(director), Some(outcome)) => {
                let Outcome {
                    moved,
                    mut sums,
                    error,
                } = outcome;
                sums.sort_by_key(|sum| (sum.array, sum.object));
                Some(director.conclude(error.map_or(Ok(Tally { moved, sums }), Err)))
            }
            _ => None,
        };
        self.hear_verdict(concluded).await
    }

    /// The last pass.
    async fn hear_verdict(&self, concluded: Option<Result<Traffic>>) -> Result<Verdict> {
        let verdict = self
            .tree
            .multicast(|_| Members::All, Step::Verdict, concluded);
        let moved: Result<Traffic> = verdict.await?;
        moved.map(Verdict::of)
    }

    /// Disk-directed: the part of every server on this node, side by side. Clients only let them.
    async fn serve(&self, requests: &[Request], options: &DiskDirected, latch: &Latch) -> Outcome {
        let tree = &self.tree;
        let servers = tree.roles.servers_on(tree.machine.me());
        let parts: Vec<_> = servers
            .map(|server| disk_directed::serve(tree, requests, options, server, latch.hand_over()))
            .collect();
        let outcomes = join_all(parts).await.into_iter();
        outcomes.fold(Outcome::default(), Outcome::merge)
    }
}
