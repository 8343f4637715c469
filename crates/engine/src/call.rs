//! A collective call of a party, as one node sees it.

use std::future::Future;
use std::pin::pin;

use futures::future::{Either, select};

use crate::address::{CallId, Port, Step};
use crate::error::{Error, Kind, Result};
use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::party::{Attendance, Party};
use crate::signal::yield_now;
use crate::tree::Tree;

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
        Tree {
            machine: self.machine,
            nodes: &self.party().clients,
            place: rank,
            call: self.id,
        }
    }

    /// The tree of the nodes with servers, if this node is one.
    pub(crate) fn servers(&self) -> Option<Tree<'a, M>> {
        Some(Tree {
            machine: self.machine,
            nodes: self.party().serving(),
            place: self.party().place_serving(self.machine.me())?,
            call: self.id,
        })
    }

    /// The mailbox for a step of this call.
    pub(crate) fn port(&self, step: Step) -> Port {
        self.id.port(step)
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

    /// Gives the call up because a member has left, and tells rank 0 of that.
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
        let lost = pin!(self.attendance.lost(self.id.sequence));
        match select(pin!(part), lost).await {
            Either::Left((ended, _)) => Ok(ended),
            Either::Right((error, _)) => Err::<T, Error>(error),
        }
    }
}
