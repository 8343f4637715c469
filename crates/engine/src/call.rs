//! A collective call of a party, as one node sees it.

use std::future::Future;
use std::pin::pin;

use futures::future::{Either, select};

use crate::address::{CallId, Port, Step};
use crate::collective::command::Command;
use crate::encoding::{decode, encode};
use crate::error::{Error, Kind, Result};
use crate::machine::{Machine, Operation};
use crate::outcome::Outcome;
use crate::party::{Attendance, Party};
use crate::request::Request;
use crate::signal::yield_now;
use crate::span;
use crate::trace::{Span, arrow};
use crate::tree::{BINARY, Tree};
use crate::tuning::Strategy;

/// A call, and this node's way to the others that take part in it.
pub struct Call<'a, M: Machine> {
    pub(crate) machine: &'a M,
    attendance: &'a Attendance,
    /// The name of the call.
    pub id: CallId,
}

impl<M: Machine> Clone for Call<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Call<'_, M> {}

impl<'a, M: Machine> Call<'a, M> {
    /// Makes the call with this number, the same on all nodes of the party.
    pub fn new(machine: &'a M, attendance: &'a Attendance, sequence: u64) -> Self {
        let party = attendance.party.id;
        Self {
            machine,
            attendance,
            id: CallId { party, sequence },
        }
    }

    /// The party whose call it is.
    pub fn party(&self) -> &'a Party {
        &self.attendance.party
    }

    /// The tree of clients, as the client of `rank` on this node sees it.
    pub(crate) fn clients(&self, rank: usize) -> Tree<'a, M> {
        match self.party().stands {
            true => self.directed(rank + 1),
            false => Tree {
                machine: self.machine,
                nodes: &self.party().clients,
                place: rank,
                fan: BINARY,
                call: self.id,
            },
        }
    }

    /// The tree of the node that directs and, below it, the clients of servers that stand.
    pub(crate) fn directed(&self, place: usize) -> Tree<'a, M> {
        let nodes = self.party().directed();
        Tree {
            machine: self.machine,
            nodes,
            place,
            fan: nodes.len(),
            call: self.id,
        }
    }

    /// The tree of the nodes with servers, if this node is one.
    pub(crate) fn servers(&self) -> Option<Tree<'a, M>> {
        Some(Tree {
            machine: self.machine,
            nodes: self.party().serving(),
            place: self.party().place_serving(self.machine.me())?,
            fan: BINARY,
            call: self.id,
        })
    }

    /// The number of an arrow of this call. It tells nobody the number of a party whose servers
    /// stand, which is a secret.
    pub fn arrow(&self, what: &str, number: usize) -> u64 {
        let party = match self.party().stands {
            true => self.party().clients[0] as u64,
            false => self.party().id.0,
        };
        arrow((what, party, self.id.sequence, number))
    }

    /// The span of the part of a server that directs the flow.
    pub(crate) fn part_span(&self, operation: Operation, server: usize) -> Span {
        span!(
            parent: None,
            "part",
            kind = operation.name(),
            server = server as u64,
            call = self.id.sequence,
            in_part = self.arrow("part", server),
        )
    }

    /// Notes in the span of now that servers which direct the flow are told to begin.
    pub(crate) fn note_parts(&self, requests: &[Request]) {
        let span = Span::current();
        let is_directed = |one: &Request| matches!(one.strategy, Strategy::DiskDirected(_));
        if !span.is_none() && requests.iter().all(is_directed) {
            for server in 0..self.party().servers.len() {
                span.record("out_part", self.arrow("part", server));
            }
        }
    }

    /// The mailbox for a step of this call.
    pub(crate) fn port(&self, step: Step) -> Port {
        self.id.port(step)
    }

    /// Gives a command to server 0, which passes it on if it is for all.
    pub(crate) async fn command(&self, command: &Command) -> Result<()> {
        self.tell_server_0(Port::SERVERS, encode(command)?).await
    }

    pub(crate) async fn tell_server_0(&self, port: Port, body: Vec<u8>) -> Result<()> {
        let first = self.party().serving()[0];
        self.machine.send(first, port, body, None).await
    }

    /// Waits until all servers have done their parts, as the node that directs.
    pub(crate) async fn hear_of_servers(&self) -> Result<Outcome> {
        let served = self.machine.receive(self.port(Step::Served));
        decode(&served.await.body)
    }

    /// Puts the reason why a member has left in place of what its absence has caused here, so that
    /// all nodes give one error. The machine may tell a memget of a departure before the attendance
    /// hears of it: the attendance goes first.
    pub(crate) async fn blame(&self, mut outcome: Outcome) -> Outcome {
        let is_of_peer = |error: &Error| error.kind == Kind::Peer;
        if outcome.error.as_ref().is_some_and(is_of_peer) {
            yield_now().await;
            let loss = self.attendance.loss(self.id.sequence);
            outcome.error = loss.or(outcome.error);
        }
        outcome
    }

    /// Gives the call up because a member has left, and tells the node that directs of that.
    pub(crate) async fn give_up(&self) {
        let sequence = self.id.sequence;
        self.attendance.pass_on(self.machine, sequence).await;
    }

    /// Runs this node's part of the call, unless a member of the party leaves that has yet to do
    /// its part.
    ///
    /// # Errors
    /// The reason why a member has left.
    pub(crate) async fn unless_lost<T>(&self, part: impl Future<Output = T>) -> Result<T> {
        self.unless_needed(part, || true).await
    }

    /// As [`Call::unless_lost`], but if servers stand, it does not matter that a client leaves once
    /// clients are needed no more.
    pub(crate) async fn unless_needed<T>(
        &self,
        part: impl Future<Output = T>,
        needs_clients: impl Fn() -> bool,
    ) -> Result<T> {
        let needs_clients = || !self.party().stands || needs_clients();
        let sequence = self.id.sequence;
        let lost = pin!(self.attendance.lost(sequence, needs_clients));
        match select(pin!(part), lost).await {
            Either::Left((ended, _)) => Ok(ended),
            Either::Right((error, _)) => Err::<T, Error>(error),
        }
    }
}
