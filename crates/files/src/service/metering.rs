//! What a server notes of requests: in its meter, if it has one, and in a trace, if somebody wants
//! one.

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use futures::FutureExt;
use penstock_engine::trace::{Empty, Instrument, Span, arrow};
use penstock_engine::{Machine, NodeId, Result, span};

use super::schedule::Place;
use super::state::Service;
use crate::messages::{Access, Answer, Ask, ClientPart, Collective, Errand, Moved, Token, refusal};
use crate::metrics::{Answered, RequestKind, State, Viewer, WaitKind};
use crate::object::{Identity, ObjectId};
use crate::volume::records::RecordStore;

/// A question that is being answered.
pub(super) struct Question {
    kind: RequestKind,
    from: NodeId,
    came: Duration,
    /// Whether it is a client's: what servers ask one another is not counted.
    is_counted: bool,
    pub(super) span: Span,
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

    /// Begins the note of an access that has come.
    pub(super) fn begin_access(&self, from: NodeId, access: &mut Access) {
        access.begun = self.metered_now();
        let kind = RequestKind::of_access(access.operation);
        access.span = self.request_span(kind, (from, access.ticket));
        access.span.record("file", access.file.0);
    }

    /// The span of a request.
    fn request_span(&self, kind: RequestKind, (from, ticket): (NodeId, u64)) -> Span {
        span!(
            parent: None,
            "request",
            kind = kind.name(),
            server = self.server as u64,
            client = from as u64,
            ticket,
            file = Empty,
            bytes = Empty,
            failed = Empty,
            in_question = arrow(("question", self.shape.volume, from, ticket)),
            out_token = Empty,
            out_answer = Empty,
        )
    }

    /// Notes an access that has been answered.
    pub(super) fn note_access(&self, from: NodeId, access: &Access, bytes: u64, has_failed: bool) {
        access.span.record("bytes", bytes);
        if has_failed {
            access.span.record("failed", true);
        }
        let Some(meter) = &self.meter else {
            return;
        };
        let answered = Answered {
            kind: RequestKind::of_access(access.operation),
            from,
            file: Some((access.file, access.owner)),
            bytes,
            has_failed,
            times: (access.begun, self.machine.now()),
        };
        meter.note(&answered, || self.user_of(from));
    }

    /// Begins the note of a question that has come.
    pub(super) fn begin_note(&self, (from, ticket): (NodeId, u64), ask: &Ask) -> Question {
        Question {
            kind: ask.kind(),
            from,
            came: self.metered_now(),
            is_counted: self.meter.is_some() && !self.is_server(from),
            span: self.request_span(ask.kind(), (from, ticket)),
        }
    }

    /// Notes a question that has been answered.
    pub(super) fn end_note(&self, question: Question, has_failed: bool) {
        let Question {
            kind, from, came, ..
        } = question;
        if has_failed {
            question.span.record("failed", true);
        }
        let Some(meter) = self.meter.as_ref().filter(|_| question.is_counted) else {
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
                kind: RequestKind::of_collective(request.operation),
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
        let (kind, now) = (
            RequestKind::of_collective(request.operation),
            self.machine.now(),
        );
        for (part, moved) in parts.iter().zip(moved) {
            let place = (part.node, request.file, request.owner);
            meter.note_bytes(kind, place, moved.bytes, now, || self.user_of(part.node));
        }
    }

    /// Notes how long an access has waited for its token, which has come.
    pub(super) fn note_token(&self, access: &Access, wait: Span, token: &Token) {
        if !wait.is_none() {
            wait.record("in_token", self.token_arrow(token, self.turn(token.way())));
        }
        drop(wait);
        self.note_passing(&access.span, token);
        if let Some(meter) = &self.meter {
            let time = self.machine.now().saturating_sub(access.begun);
            meter.note_wait(WaitKind::Token, time);
        }
    }

    /// Waits for the turn of an access, and notes how long, if it has to wait.
    pub(super) async fn metered_turn(&self, place: &Place, file: ObjectId) -> Result<()> {
        let mut turn = pin!(self.turn_of(place, file));
        if let Some(turned) = turn.as_mut().now_or_never() {
            return turned;
        }
        let _waiting = Waiting::new(&self.turns_waiting);
        let since = self.metered_now();
        let wait = span!("wait", kind = WaitKind::Turn.name());
        let turned = turn.instrument(wait).await;
        if let Some(meter) = &self.meter {
            let time = self.machine.now().saturating_sub(since);
            meter.note_wait(WaitKind::Turn, time);
        }
        turned
    }

    /// The arrow of a token to the server of one of its turns.
    fn token_arrow(&self, token: &Token, turn: Option<usize>) -> u64 {
        arrow(("token", self.shape.volume, token.from, token.request, turn))
    }

    /// Notes in the span of a request that its token goes on to the next server with a part.
    pub(super) fn note_passing(&self, span: &Span, token: &Token) {
        if span.is_none() {
            return;
        }
        let own = self.turn(token.way());
        let mut turns = token.turns.iter().map(|&turn| Some(turn));
        if let Some(next) = turns.find(|turn| *turn > own) {
            span.record("out_token", self.token_arrow(token, next));
        }
    }

    /// Notes in the span of now that a token goes to servers which all have parts.
    pub(super) fn note_parts(&self, token: &Token) {
        let span = Span::current();
        if !span.is_none() {
            let arrows = token
                .turns
                .iter()
                .map(|&turn| self.token_arrow(token, Some(turn)));
            arrows.for_each(|arrow| {
                span.record("out_token", arrow);
            });
        }
    }

    /// The span of this server's part of a collective request.
    pub(super) fn part_span(&self, token: &Token) -> Span {
        let kind = match &token.errand {
            Errand::Collective(request, _) => RequestKind::of_collective(request.operation),
            Errand::Access | Errand::Change { .. } => RequestKind::Other,
        };
        span!(
            parent: None,
            "part",
            kind = kind.name(),
            server = self.server as u64,
            file = token.file.0,
            in_token = self.token_arrow(token, self.turn(token.way())),
        )
    }

    /// Waits for the turn of a part of a collective request.
    pub(super) async fn turn_in_part(&self, place: &Place, file: ObjectId) -> Result<()> {
        let wait = span!("wait", kind = WaitKind::Turn.name());
        self.turn_of(place, file).instrument(wait).await
    }

    /// The wait of a request for its token.
    pub(super) fn token_wait(&self, access: &Access) -> Span {
        span!(
            parent: &access.span,
            "wait",
            kind = WaitKind::Token.name(),
            in_token = Empty,
        )
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
