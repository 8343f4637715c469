//! The part of a rank in a collective call.

use std::cell::Cell;
use std::pin::pin;

use futures::future::{Either, join, select};
use penstock_layout::{Block, Holding};

use super::agreement::{Proposals, Proposed};
use super::command::Command;
use super::{Decision, Director, Verdict, clients_act, servers_act, sifted};
use crate::address::Step;
use crate::call::Call;
use crate::encoding::encode;
use crate::error::{Error, Kind, Result, Who};
use crate::machine::{Machine, Operation};
use crate::outcome::{Outcome, Traffic};
use crate::party::Party;
use crate::request::{Request, Rest};
use crate::sieve::{Catch, Nothing};
use crate::span;
use crate::split::Latch;
use crate::trace::{Empty, Instrument};
use crate::tree::Tree;
use crate::tuning::Strategy;
use crate::{caching, deal, deliveries, independent, lists, two_phase};

/// The barrier at which all clients have handed over their parts of a split write.
const HANDED_OVER: u32 = u32::MAX;

/// The client of one rank in a call.
pub struct Client<'a, M: Machine> {
    call: Call<'a, M>,
    tree: Tree<'a, M>,
    rank: usize,
    handed_over: &'a Cell<bool>,
    lists: &'a [&'a Holding],
    errand: Option<Vec<u8>>,
    catch: &'a dyn Catch,
}

/// The director of the rank that directs.
type MaybeDirector<'a> = Option<&'a mut dyn Director>;

impl<'a, M: Machine> Client<'a, M> {
    /// Makes the client of `rank`, which is on this node. It sets `handed_over` when all ranks
    /// agree and, in a split collective, only disks are left to work: see [`crate::split`].
    pub fn new(call: Call<'a, M>, rank: usize, handed_over: &'a Cell<bool>) -> Self {
        Self {
            tree: call.clients(rank),
            call,
            rank,
            handed_over,
            lists: &[],
            errand: None,
            catch: &Nothing,
        }
    }

    /// Gives the client this rank's lists, one for each array of the call; one for an array that a
    /// schema describes has nothing in it. They must be of the arrays: [`Holding::file_bounds`].
    #[must_use]
    pub fn with_lists(self, lists: &'a [&'a Holding]) -> Self {
        Self { lists, ..self }
    }

    /// Gives the client of rank 0 the errand of servers that stand, encoded: it takes the place of
    /// a director.
    #[must_use]
    pub fn with_errand(self, errand: Option<Vec<u8>>) -> Self {
        Self { errand, ..self }
    }

    /// Gives the client what takes the deliveries of a sifted read.
    #[must_use]
    pub fn with_catch(self, catch: &'a dyn Catch) -> Self {
        Self { catch, ..self }
    }

    /// Runs the call to its verdict. The client gives its proposal, or its error; the client of
    /// rank 0 also gives a director, unless servers stand. The client's memories must have been
    /// exposed, each under its [`crate::address::MemoryId`].
    ///
    /// # Errors
    /// The verdict's error, the same on all nodes; the reason of a member that has left.
    ///
    /// # Collective
    /// Over all clients of the party.
    pub async fn run(
        &self,
        proposed: Proposed,
        mut director: MaybeDirector<'_>,
    ) -> Result<Verdict> {
        let verdict = async {
            let agreeing = self.agree(proposed, &mut director);
            match agreeing
                .instrument(span!("wait", kind = "agreement", out_part = Empty))
                .await?
            {
                Either::Left(requests) => self.carry_out(&requests, director).await,
                Either::Right(verdict) => verdict,
            }
        };
        let needs_clients = || !self.handed_over.get();
        match self.call.unless_needed(verdict, needs_clients).await {
            Ok(verdict) => verdict,
            Err(loss) => {
                self.call.give_up().await;
                Err(loss)
            }
        }
    }

    /// Brings all ranks to one decision. A client that has no part in the moving hears nothing but
    /// the verdict.
    async fn agree(
        &self,
        proposed: Proposed,
        director: &mut MaybeDirector<'_>,
    ) -> Result<Either<Vec<Request>, Result<Verdict>>> {
        if let Some(errand) = &self.errand {
            let command = Command::Begin {
                call: self.call.id,
                errand: errand.clone(),
            };
            self.call.command(&command).await?;
        }
        let mine = Proposals::of_rank(self.rank, proposed.proposal);
        let all = self.tree.gather(Step::Propose, mine, Proposals::merge);
        let Some(proposals) = all.await? else {
            let requests = pin!(self.tree.multicast(Step::Request, None));
            let verdict = pin!(self.tree.multicast(Step::Verdict, None));
            return match select(requests, verdict).await {
                Either::Left((requests, _)) => {
                    let requests: Vec<Request> = requests?;
                    Request::check_all(&requests, self.call.party())?;
                    Ok(Either::Left(requests))
                }
                Either::Right((verdict, _)) => verdict.map(Either::Right),
            };
        };
        let party = self.call.party();
        let agreed = proposals.agreed(party.clients.len(), proposed.difference);
        let decision = agreed.and_then(|agreed| decide(agreed, director, party));
        let verdict = match decision {
            Ok(Decision::Serve(requests)) => {
                self.tell_servers(&requests).await?;
                let hears = clients_act(&requests)
                    || lists::are_in(&requests)
                    || sifted(&requests).is_some()
                    || requests.iter().any(|r| r.split.is_some());
                return Ok(Either::Left(match hears {
                    true => self.tree.multicast(Step::Request, Some(requests)).await?,
                    false => requests,
                }));
            }
            Ok(Decision::Order(order)) => {
                let call = self.call.id;
                self.call.command(&Command::Order { call, order }).await?;
                let outcome = self.call.hear_of_servers().await?;
                match director {
                    Some(director) => conclude(*director, outcome),
                    None => Ok(Verdict::of(outcome.moved)), // rank 0 has a director
                }
            }
            Ok(Decision::Tell(answer)) => Ok(Verdict::telling(answer)),
            Ok(Decision::Close(complaint)) => {
                if self.call.party().has_dedicated() {
                    self.call
                        .command(&Command::Close(self.call.id.party))
                        .await?;
                }
                Ok(Verdict::closing(complaint))
            }
            Err(error) => Err(error),
        };
        let verdict = self.tree.multicast(Step::Verdict, Some(verdict)).await?;
        Ok(Either::Right(verdict))
    }

    async fn tell_servers(&self, requests: &[Request]) -> Result<()> {
        if !servers_act(requests) {
            return Ok(());
        }
        let command = Command::Serve {
            call: self.call.id,
            requests: requests.to_vec(),
        };
        self.call.note_parts(requests);
        self.call.command(&command).await
    }

    /// Carries out requests on which all ranks agree, and which the servers know. The client of
    /// rank 0 also gives a director.
    ///
    /// # Errors
    /// Like [`Client::run`].
    ///
    /// # Collective
    /// Over all clients of the party.
    pub async fn carry_out(
        &self,
        requests: &[Request],
        director: MaybeDirector<'_>,
    ) -> Result<Verdict> {
        let mut all = Some(Outcome::default());
        if clients_act(requests) {
            let mine = self.call.blame(self.act(requests).await).await;
            let ended = self.tree.gather(Step::ClientsEnded, mine, Outcome::merge);
            all = ended.await?;
        } else {
            if lists::are_in(requests) {
                self.give_lists_to_servers(requests).await?;
            }
            if let Some(request) = sifted(requests) {
                let taken = self.take(request).await.map(|()| Traffic::default());
                let taken = taken.map_err(|error| error.by(Who::Rank(self.rank)));
                let mine = self.call.blame(Outcome::of(taken)).await;
                let ended = self.tree.gather(Step::ClientsEnded, mine, Outcome::merge);
                all = ended.await?;
            }
            if requests.iter().any(|request| request.split.is_some()) {
                let handing_over = self.hear_of_hand_over(requests[0].operation);
                let span = span!("wait", kind = "hand-over");
                handing_over.instrument(span).await?;
            }
        }
        let concluded = match (director, all) {
            (Some(director), Some(mut outcome)) => {
                if servers_act(requests) {
                    if clients_act(requests) {
                        let stop = self.call.port(Step::Stop);
                        self.call.tell_server_0(stop, encode(&())?).await?;
                    }
                    outcome = outcome.merge(self.call.hear_of_servers().await?);
                }
                outcome = self.call.blame(outcome).await;
                Some(conclude(director, outcome))
            }
            _ => None,
        };
        let verdict = self.tree.multicast(Step::Verdict, concluded);
        verdict.instrument(span!("wait", kind = "verdict")).await?
    }

    /// Gives each server the pieces that this rank's lists have of its blocks.
    async fn give_lists_to_servers(&self, requests: &[Request]) -> Result<()> {
        let servers = &self.call.party().servers[..lists::servers(requests)];
        let server_of =
            |request: &Request, block: &Block| request.disk.server_of(block, request.servers);
        lists::send(&self.call, requests, self.lists, servers, server_of).await
    }

    /// Takes what servers deliver to this client, and deals it out if that is asked for.
    async fn take(&self, request: &Request) -> Result<()> {
        let taking = deliveries::take(&self.call, request, self.catch);
        let taken = taking.instrument(span!("wait", kind = "deliveries")).await;
        let count = taken.and_then(|()| self.catch.count());
        match &request.sifting {
            Some(sifting) if sifting.is_dealt => {
                deal::deal(&self.call, (&self.tree, self.rank), self.catch, count).await
            }
            _ => count.map(drop),
        }
    }

    /// Runs this client's part in moving the data, by the strategy of the request.
    async fn act(&self, requests: &[Request]) -> Outcome {
        let request = &requests[0];
        if requests.len() > 1 || matches!(request.rest, Rest::Keep | Rest::Leave) {
            return Outcome::of(Err(not_alone(request)));
        }
        let (call, latch) = (&self.call, Latch::default());
        let nothing = Holding::default();
        let own = (self.rank, self.lists.first().copied().unwrap_or(&nothing));
        let moving = async {
            match &request.strategy {
                Strategy::DiskDirected(_) => Outcome::default(),
                Strategy::Caching(options) => caching::ask(call, request, options, own).await,
                Strategy::TwoPhase(options) => {
                    two_phase::transfer(call, request, options, own, &latch).await
                }
                Strategy::Independent => independent::transfer(call, request, own, &latch).await,
            }
        };
        if request.split.is_none() {
            return moving.await;
        }
        let handing_over = async {
            latch.all_handed_over().await;
            // Until all have, others may look into this node's memory.
            let all = match request.operation {
                Operation::Write => self.tree.barrier(HANDED_OVER).await,
                Operation::Read => Ok(()),
            };
            self.handed_over.set(true);
            all.map(|()| Traffic::default())
        };
        // The future that moves is polled first: then all its parts are known.
        let (moved, handed_over) = join(moving, handing_over).await;
        moved.merge(Outcome::of(handed_over))
    }

    /// Waits until the servers of a split collective have handed over and, in a write, nobody looks
    /// into this client's memory any more.
    async fn hear_of_hand_over(&self, operation: Operation) -> Result<()> {
        if operation == Operation::Write {
            self.tree.multicast(Step::Free, None::<()>).await?;
        }
        self.handed_over.set(true);
        Ok(())
    }
}

/// The error of a strategy that moves one whole array at a time.
fn not_alone(request: &Request) -> Error {
    let cause = format!("a call by {}", request.strategy.name());
    let doing = "moving several arrays, or a part of one";
    Error::new(Kind::Unsupported, doing, cause)
}

/// The decision of the director on what all ranks ask for.
fn decide(agreed: Proposals, director: &mut MaybeDirector<'_>, party: &Party) -> Result<Decision> {
    let Some(director) = director else {
        let cause = "rank 0 has no director";
        return Err(Error::new(Kind::Schema, "deciding on a call", cause));
    };
    match director.prepare(agreed.parts)? {
        Decision::Serve(requests) => {
            Request::check_all(&requests, party)?;
            Ok(Decision::Serve(requests))
        }
        Decision::Close(_) => Ok(Decision::Close(agreed.complaint)),
        decision => Ok(decision),
    }
}

fn conclude(director: &mut dyn Director, outcome: Outcome) -> Result<Verdict> {
    director.conclude(outcome.tally()).map(Verdict::of)
}
