//! The directing of calls to servers that stand: the part of the node of server 0.
//!
//! ```text
//! rank 0 -> node 0     Begin: the errand
//! clients -> node 0    Propose       node 0 compares the proposals; the director makes the target
//! node 0 -> servers    the request   ... as in every call ...
//! servers -> node 0    Served        the director shows the target
//! node 0 -> clients    Verdict
//! ```
//!
//! A client may leave once it has handed over its elements: nobody waits for a word of it, and it
//! is no error that it does not hear the end.

use std::pin::pin;

use futures::future::{Either, LocalBoxFuture, join, select};

use super::agreement::{Proposals, RankParts, Voice};
use super::command::Command;
use super::{Decision, Verdict, sifted};
use crate::address::{PartyId, Step};
use crate::call::Call;
use crate::encoding::encode;
use crate::error::Result;
use crate::lists;
use crate::machine::{Machine, NodeId, Operation};
use crate::outcome::{Outcome, Tally, Traffic};
use crate::party::Party;
use crate::request::Request;
use crate::span;
use crate::trace::{Empty, Instrument, Span};
use crate::tree::Tree;

/// The office of servers that stand: it knows who may come, and makes directors.
pub trait Office {
    /// Whether the node is one of the processes with servers.
    fn is_server(&self, node: NodeId) -> bool;

    /// The node of server 0, which directs the calls of new parties.
    fn director_node(&self) -> Option<NodeId>;

    /// Checks whether a party may come, whose rank 0 asks for it: all of its clients are connected.
    ///
    /// # Errors
    /// The reason why it may not.
    fn check(&self, party: &Party) -> Result<()>;

    /// Lets a party in that may come.
    fn admit(&self, party: &Party);

    /// The director of a call of the party.
    fn director(&self, party: &Party, errand: Vec<u8>) -> Box<dyn Delegate>;

    /// Says in what the asks of two ranks differ.
    fn difference(&self, one: &Voice, other: &Voice) -> String;

    /// Answers a question of a client of the party.
    fn answer(&self, party: &Party, question: Vec<u8>) -> LocalBoxFuture<'_, Result<Vec<u8>>>;

    /// A party makes no more calls.
    fn close(&self, party: PartyId);
}

/// A director that does its work beside the node: see [`super::Director`].
pub trait Delegate {
    /// The kind of the call, as people see it.
    fn kind(&self) -> &'static str;

    /// Servers have all elements of the call's write, and need its clients no more.
    fn handed_over(&mut self);

    /// As [`super::Director::prepare`].
    fn prepare(&mut self, parts: RankParts) -> LocalBoxFuture<'_, Result<Decision>>;

    /// As [`super::Director::conclude`].
    fn conclude(&mut self, outcome: Result<Tally>) -> LocalBoxFuture<'_, Result<Traffic>>;
}

/// Directs a call to its verdict, which all clients hear that are still there.
pub(super) async fn direct<M: Machine>(
    call: Call<'_, M>,
    office: &dyn Office,
    director: Box<dyn Delegate>,
) {
    let span = span!(
        parent: None,
        "call",
        kind = director.kind(),
        server = 0u64,
        call = call.id.sequence,
        in_call = Empty,
        out_part = Empty,
    );
    direct_to_verdict(call, office, director)
        .instrument(span)
        .await;
}

async fn direct_to_verdict<M: Machine>(
    call: Call<'_, M>,
    office: &dyn Office,
    mut director: Box<dyn Delegate>,
) {
    let chair = Chair {
        clients: call.directed(0),
        call,
    };
    let proposing = chair.hear_proposals();
    let proposing = proposing.instrument(span!("wait", kind = "clients"));
    let Ok(proposals) = call.unless_lost(proposing).await else {
        return; // clients have heard of the loss
    };
    chair.note_clients();
    let directing = async {
        let ranks = call.party().clients.len();
        let difference = |one: &Voice, other: &Voice| office.difference(one, other);
        let agreed = proposals.and_then(|all| all.agreed(ranks, difference));
        let verdict = match agreed {
            Ok(agreed) => chair.carry_out(agreed, &mut *director).await,
            Err(error) => Err(error),
        };
        chair.tell(Step::Verdict, &verdict).await;
    };
    let _ = call.unless_needed(directing, || false).await;
}

/// The node that directs, in one call.
struct Chair<'a, M: Machine> {
    call: Call<'a, M>,
    clients: Tree<'a, M>,
}

impl<M: Machine> Chair<'_, M> {
    async fn hear_proposals(&self) -> Result<Proposals> {
        let none = Proposals::default();
        let all = self.clients.gather(Step::Propose, none, Proposals::merge);
        Ok(all.await?.unwrap_or_default()) // this is the root
    }

    /// Notes in the span of now that the clients have come.
    fn note_clients(&self) {
        let span = Span::current();
        if !span.is_none() {
            for rank in 0..self.call.party().clients.len() {
                span.record("in_call", self.call.arrow("call", rank));
            }
        }
    }

    /// Tells all clients something, whether they hear it or not.
    async fn tell<T: serde::Serialize>(&self, step: Step, word: &T) {
        if let Ok(body) = encode(word) {
            self.pass_on(step, &body).await;
        }
    }

    async fn pass_on(&self, step: Step, body: &[u8]) {
        for &client in &self.call.party().clients {
            let (port, body) = (self.call.port(step), body.to_vec());
            let told = self.call.machine.send(client, port, body, None);
            let _ = told.await; // one that has left needs no word
        }
    }

    /// Carries out what all ranks ask for.
    async fn carry_out(&self, agreed: Proposals, director: &mut dyn Delegate) -> Result<Verdict> {
        let Proposals {
            parts, complaint, ..
        } = agreed;
        let preparing = director.prepare(parts);
        let preparing = preparing.instrument(span!("director", kind = "prepare"));
        let done = match preparing.await? {
            Decision::Serve(requests) => {
                Request::check_all(&requests, self.call.party())?;
                self.serve(requests, director).await?
            }
            Decision::Order(order) => {
                let call = self.call.id;
                self.call.command(&Command::Order { call, order }).await?;
                self.call.hear_of_servers().await?
            }
            Decision::Tell(answer) => return Ok(Verdict::telling(answer)),
            Decision::Close(_) => {
                let close = Command::Close(self.call.id.party);
                self.call.command(&close).await?;
                return Ok(Verdict::closing(complaint));
            }
        };
        let done = self.call.blame(done).await;
        let concluding = director.conclude(done.tally());
        let concluding = concluding.instrument(span!("director", kind = "conclude"));
        concluding.await.map(Verdict::of)
    }

    /// Has servers serve requests, and waits for their end.
    async fn serve(&self, requests: Vec<Request>, director: &mut dyn Delegate) -> Result<Outcome> {
        let split = requests.iter().any(|request| request.split.is_some());
        let is_handed_over = split && requests[0].operation == Operation::Write;
        let is_sifted = sifted(&requests).is_some();
        if split || lists::are_in(&requests) || is_sifted {
            self.tell(Step::Request, &requests).await;
        }
        let call = self.call.id;
        self.call.note_parts(&requests);
        self.call
            .command(&Command::Serve { call, requests })
            .await?;
        if is_sifted {
            let none = Outcome::default();
            let clients = self
                .clients
                .gather(Step::ClientsEnded, none, Outcome::merge);
            // A client that has left does not say how its part has ended.
            let clients = self.call.unless_lost(clients);
            let (clients, served) = join(clients, self.call.hear_of_servers()).await;
            let clients = match clients {
                Ok(ended) => ended?.unwrap_or_default(), // this is the root
                Err(loss) => Outcome::of(Err(loss)),
            };
            return Ok(clients.merge(served?));
        }
        if !is_handed_over {
            return self.call.hear_of_servers().await;
        }
        let handing_over = async {
            let free = self.call.machine.receive(self.call.port(Step::Free)).await;
            director.handed_over();
            self.pass_on(Step::Free, &free.body).await;
        };
        // The hand-over comes first, if both have come.
        let (handing_over, served) = (pin!(handing_over), pin!(self.call.hear_of_servers()));
        match select(handing_over, served).await {
            Either::Left(((), served)) => served.await,
            Either::Right((outcome, _)) => outcome,
        }
    }
}
