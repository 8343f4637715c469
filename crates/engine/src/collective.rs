//! The frame of every collective call: agreement, multicast, service, one verdict.
//!
//! Four passes over binary trees of nodes, whose root is the node of rank 0:
//!
//! ```text
//! up    Propose   each rank proposes a request, or says why it cannot; the root compares
//! down  Request   one compact request, or the error that ends the call on every rank
//!                 ... servers serve, clients let them get and put ...
//! up    Outcome   each server's part has ended, and the server says what it moved
//! down  Verdict   the root has made the result visible (or has not): one answer for all
//! ```
//!
//! The first and the last pass go over all nodes, and so do the others if clients have a part in
//! the moving. If clients only let servers get and put, the request and its outcome go over the
//! nodes of servers alone. A client that is no server then sleeps until it is asked for a piece, or
//! hears the verdict.
//!
//! No rank ever returns early: an error on one rank travels up as a value, and comes back down to
//! all. (Panda sends the request from a master client to a master server and on, section 2; Kotz
//! puts barriers around a multicast, Figure 2(c). The tree does both.)

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

/// A rank's ask describes its request in terms that people understand. Ranks with equal requests
/// give equal asks; if asks differ, an error says in which terms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ask {
    /// The kind of request, such as "a write".
    what: String,
    /// Names and values of the terms.
    terms: Vec<(String, String)>,
}

impl Ask {
    /// Makes an ask without terms.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            terms: Vec::new(),
        }
    }

    /// Adds one term.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        self.terms.push((name.into(), value.to_string()));
        self
    }

    /// Adds all terms of another ask.
    #[must_use]
    pub fn with_all(mut self, other: Self) -> Self {
        self.terms.extend(other.terms);
        self
    }

    /// Says in what the asks of two ranks differ.
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

/// The most differing terms that an error shows.
const TERMS_SHOWN: usize = 3;

/// A proposal says what one rank asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proposal {
    /// The whole request, boxes aside.
    pub ask: Ask,
    /// The rank's boxes of each array for which each rank names its own.
    pub own_boxes: Vec<Option<Vec<Region>>>,
    /// A complaint for all ranks to hear; it does not keep the session from being closed.
    pub complaint: Option<Error>,
}

/// The decision on a call, once all ranks agree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Decision {
    /// Servers serve these requests, one for each array.
    Serve(Vec<Request>),
    /// All ranks came here and hear this note; nothing is left to do.
    Tell(String),
    /// All ranks came here, and no other call will follow. The director gives no complaint: the
    /// complaint of the ranks takes its place.
    Close(Option<Error>),
}

/// The agreement is the answer that a node hears after the first pass.
#[derive(Debug)]
pub enum Agreement {
    /// The decision on the call.
    Decision(Decision),
    /// The verdict of a call in which this node had no part.
    Verdict(Verdict),
}

/// The verdict says how a call ended on all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The traffic of all servers together.
    pub moved: Traffic,
    /// Whether no other call will follow.
    pub is_closed: bool,
    /// The complaint of a rank when it closed.
    pub complaint: Option<Error>,
    /// The director's note, if nothing was moved.
    pub note: String,
}

impl Verdict {
    /// The verdict on a call that has moved something.
    fn of(moved: Traffic) -> Self {
        Self {
            moved,
            is_closed: false,
            complaint: None,
            note: String::new(),
        }
    }
}

/// Boxes of ranks, one list for each array, by rank. Ranks that name no boxes are left out.
pub type RankBoxes = Vec<(usize, Vec<Option<Vec<Region>>>)>;

/// The director does the part of a call that only the root does: it makes a target and shows it.
pub trait Director {
    /// Turns the agreed ask, with boxes by rank, into a request; creates or opens the target.
    ///
    /// # Errors
    /// The error of the target: the call then ends with this error on every rank.
    fn prepare(&mut self, boxes: RankBoxes) -> Result<Decision>;

    /// Makes the target visible, or removes its remains, when all servers have ended.
    ///
    /// # Errors
    /// The servers' error, or the director's own.
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

    /// Sorts the boxes by rank, if all ranks asked for the same.
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
/// The nodes that move data for the requests; letting servers get and put does not count.
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
    /// Makes call `id`, which has one number on all nodes. The call sets `handed_over` when all
    /// ranks agree and, in a split collective, only disks are left to work: see [`crate::split`].
    pub fn new(machine: &'a M, roles: &'a Roles, id: u64, handed_over: &'a Cell<bool>) -> Self {
        let tree = Tree {
            machine,
            roles,
            call: memory_number(id, 0),
        };
        Self { tree, handed_over }
    }

    /// Runs the call to its verdict. A client gives its proposal, or its error; the client of rank
    /// 0 also gives a director; a node without a client gives neither. The client's memories must
    /// have been exposed, each under its [`memory_number`].
    ///
    /// # Errors
    /// The verdict's error, the same on all nodes.
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

    /// Runs the first two passes, to the decision. A node that has no part in the second pass
    /// returns when it has heard the verdict.
    ///
    /// # Errors
    /// The error of the lowest rank, or of the director, the same on all nodes.
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

    /// Runs this node's part in moving the data, by the one strategy that all requests name. A call
    /// about several arrays is disk-directed.
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
                // The future that moves is polled first: then all its parts are known.
                let (moved, handed_over) = join(moving, self.hand_over(request, &latch)).await;
                moved.merge(Outcome::of(handed_over.map(|()| Traffic::default())))
            }
        }
    }

    /// Waits until this node has handed over and, in a write, all others too: then nobody looks
    /// into this node's memory any more.
    async fn hand_over(&self, request: &Request, latch: &Latch) -> Result<()> {
        latch.all_handed_over().await;
        if request.operation == Operation::Write {
            self.tree.barrier(Members::All, HANDED_OVER).await?;
        }
        self.handed_over.set(true);
        Ok(())
    }

    /// Runs the last two passes: the verdict on `requests`.
    ///
    /// # Errors
    /// The verdict's error, the same on all nodes.
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

    /// Runs the last pass.
    async fn hear_verdict(&self, concluded: Option<Result<Traffic>>) -> Result<Verdict> {
        let verdict = self
            .tree
            .multicast(|_| Members::All, Step::Verdict, concluded);
        let moved: Result<Traffic> = verdict.await?;
        moved.map(Verdict::of)
    }

    /// Runs the disk-directed part of every server on this node, side by side. Clients only let
    /// servers get and put.
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
