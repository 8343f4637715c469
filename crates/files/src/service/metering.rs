//! What a server notes in its meter, if it has one.

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use futures::FutureExt;
use penstock_engine::{Machine, NodeId, Operation, Result};

use super::schedule::Place;
use super::state::Service;
use crate::messages::{Access, Answer, Ask, ClientPart, Collective, Moved, refusal};
use crate::metrics::{Answered, RequestKind, State, Viewer, WaitKind};
use crate::object::{Identity, ObjectId};
use crate::volume::records::RecordStore;

/// The kind of a client's question.
fn kind_of(ask: &Ask) -> RequestKind {
    match ask {
        Ask::Stat(_) => RequestKind::Stat,
        Ask::Attach { .. } => RequestKind::Attach,
        Ask::Detach(_) => RequestKind::Detach,
        Ask::Create(_) => RequestKind::Create,
        Ask::Remove(_) => RequestKind::Remove,
        Ask::Rename(..) => RequestKind::Rename,
        Ask::Set(..) => RequestKind::Set,
        Ask::List(_) => RequestKind::List,
        Ask::Change(..) => RequestKind::Change,
        Ask::CellBytes(..) => RequestKind::Size,
        Ask::Status(_) => RequestKind::Status,
        Ask::Sync(_) => RequestKind::Sync,
        Ask::Prefetch(..) => RequestKind::Prefetch,
        Ask::Flush(..) => RequestKind::Flush,
        Ask::Space(_) => RequestKind::Space,
        Ask::Quota(..) => RequestKind::Quota,
        Ask::Meet { .. } => RequestKind::Meet,
        Ask::Join { request, .. } => collective_kind(request.operation),
        Ask::NewPointer(_) | Ask::MovePointer(..) => RequestKind::Pointer,
        Ask::Metrics => RequestKind::Metrics,
        Ask::Allot(..)
        | Ask::GiveBack(_)
        | Ask::Allow(..)
        | Ask::BeCautious(_)
        | Ask::Right(..)
        | Ask::BeReckless(_)
        | Ask::Prepare(..)
        | Ask::Decide(..)
        | Ask::WasDecided(_)
        | Ask::Stop => RequestKind::Other,
    }
}

fn access_kind(operation: Operation) -> RequestKind {
    match operation {
        Operation::Read => RequestKind::Read,
        Operation::Write => RequestKind::Write,
    }
}

fn collective_kind(operation: Operation) -> RequestKind {
    match operation {
        Operation::Read => RequestKind::ReadAll,
        Operation::Write => RequestKind::WriteAll,
    }
}

/// A client's question that is being answered.
pub(super) struct Question {
    kind: RequestKind,
    from: NodeId,
    came: Duration,
}

/// One more of what waits, until it is dropped.
struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl<M: Machine, R: RecordStore> Service<'_, M, R> {
    /// The time of now, if requests are metered.
    pub(super) fn metered_now(&self) -> Duration {
        match &self.meter {
            Some(_) => self.machine.now(),
            None => Duration::ZERO,
        }
    }

    /// The user of a client that has not left, as the machine knows it.
    fn user_of(&self, node: NodeId) -> Option<u32> {
        if self.departed.borrow().contains_key(&node) {
            return None;
        }
        match &self.lodge {
            Some(lodge) => lodge.guests.identity(node).map(|identity| identity.user),
            None => Some(self.shape.owner),
        }
    }

    /// Notes an access that has been answered.
    pub(super) fn note_access(&self, from: NodeId, access: &Access, bytes: u64, has_failed: bool) {
        let Some(meter) = &self.meter else {
            return;
        };
        let answered = Answered {
            kind: access_kind(access.operation),
            from,
            file: Some((access.file, access.owner)),
            bytes,
            has_failed,
            times: (access.begun, self.machine.now()),
        };
        meter.note(&answered, || self.user_of(from));
    }

    /// Begins the note of a client's question. What servers ask is not counted.
    pub(super) fn begin_note(&self, from: NodeId, ask: &Ask) -> Option<Question> {
        let is_counted = self.meter.is_some() && !self.is_server(from);
        is_counted.then(|| Question {
            kind: kind_of(ask),
            from,
            came: self.machine.now(),
        })
    }

    /// Notes a question that has been answered.
    pub(super) fn end_note(&self, question: Option<Question>, has_failed: bool) {
        let (Some(meter), Some(Question { kind, from, came })) = (&self.meter, question) else {
            return;
        };
        let answered = Answered {
            kind,
            from,
            file: None,
            bytes: 0,
            has_failed,
            times: (came, self.machine.now()),
        };
        meter.note(&answered, || self.user_of(from));
    }

    /// Notes a collective request that its clients have been told the end of.
    pub(super) fn note_collective(
        &self,
        request: &Collective,
        clients: impl Iterator<Item = NodeId>,
        has_failed: bool,
        came: Duration,
    ) {
        let Some(meter) = &self.meter else {
            return;
        };
        let now = self.machine.now();
        for from in clients {
            let answered = Answered {
                kind: collective_kind(request.operation),
                from,
                file: Some((request.file, request.owner)),
                bytes: 0,
                has_failed,
                times: (came, now),
            };
            meter.note(&answered, || self.user_of(from));
        }
    }

    /// Notes what this server has moved for the clients of a collective request.
    pub(super) fn note_moved(&self, request: &Collective, parts: &[ClientPart], moved: &[Moved]) {
        let Some(meter) = &self.meter else {
            return;
        };
        let (kind, now) = (collective_kind(request.operation), self.machine.now());
        for (part, moved) in parts.iter().zip(moved) {
            let place = (part.node, request.file, request.owner);
            meter.note_bytes(kind, place, moved.bytes, now, || self.user_of(part.node));
        }
    }

    /// Notes how long an access has waited for its token.
    pub(super) fn note_token(&self, access: &Access) {
        if let Some(meter) = &self.meter {
            let time = self.machine.now().saturating_sub(access.begun);
            meter.note_wait(WaitKind::Token, time);
        }
    }

    /// Waits for the turn of an access, and notes how long, if it has to wait.
    pub(super) async fn metered_turn(&self, place: &Place, file: ObjectId) -> Result<()> {
        let mut turn = pin!(self.turn_of(place, file));
        let Some(meter) = &self.meter else {
            return turn.await;
        };
        if let Some(turned) = turn.as_mut().now_or_never() {
            return turned;
        }
        let _waiting = Waiting::new(&self.turns_waiting);
        let since = self.machine.now();
        let turned = turn.await;
        let time = self.machine.now().saturating_sub(since);
        meter.note_wait(WaitKind::Turn, time);
        turned
    }

    /// Puts the state of the server where others see it. `held` requests wait until it serves.
    pub(super) fn publish(&self, held: usize, tasks: usize) {
        let Some(meter) = &self.meter else {
            return;
        };
        let gatherings = self.gatherings.borrow();
        let clients = gatherings
            .values()
            .map(super::gathering::Gathering::arrived);
        let waiting = WaitKind::ALL.map(|kind| match kind {
            WaitKind::Start => held,
            WaitKind::Token => self.early.borrow().len(),
            WaitKind::Turn => self.turns_waiting.get(),
            WaitKind::Clients => clients.clone().sum(),
            WaitKind::Disk => self.volume.disk_requests(),
        });
        meter.publish(State {
            is_ready: self.is_ready.get() && !self.is_ending.get() && !self.is_stopped.get(),
            tasks,
            waiting,
            cache: self.blocks.counts(),
        });
    }

    /// The numbers of this server, as far as a user may see them: the rows of others are for those
    /// who may do everything, and for the user who runs the server.
    pub(super) fn metrics(&self, who: &Identity) -> Result<Answer> {
        let Some(meter) = &self.meter else {
            return Err(refusal("this server counts nothing"));
        };
        let viewer = match who.may_all() || who.user == meter.runner() {
            true => Viewer::All,
            false => Viewer::User(who.user),
        };
        let mut snapshot = meter.snapshot(viewer);
        let age = self.machine.now().as_nanos();
        snapshot.age_ns = u64::try_from(age).unwrap_or(u64::MAX);
        if let Some(lodge) = &self.lodge {
            let (process, door, calls) = lodge.guests.process();
            snapshot.doors.insert(process, door);
            snapshot.calls.extend(calls.map(|calls| (process, calls)));
        }
        Ok(Answer::Metrics(Box::new(snapshot)))
    }
}
