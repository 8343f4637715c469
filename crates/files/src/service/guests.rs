//! Clients whom a server does not trust: those of standing servers.
//!
//! Who a client is, the machine says, and not the client. It may move bytes of a file that it has
//! attached, as the server knows that keeps the file's object; each server asks that one at a
//! client's first access, and remembers the answer until the client leaves:
//!
//! ```text
//! client   access ->  server: right? ->  server of the object
//!                             <- right   attached by this client, to read and to write?
//!          <- moved
//! ```
//!
//! What a client may have under way is limited, so that it takes no more than its share of memory.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use penstock_engine::{Error, Kind, Machine, NodeId, Operation, Result};
use penstock_net::dismissals::Dismissal;

use super::lodge::Lodge;
use super::state::{Service, Task};
use super::tokens::BUCKETS;
use crate::caller::unexpected;
use crate::messages::{Access, Answer, Ask, CellPart, Collective, Errand, Turn, refusal};
use crate::object::{FileShape, Identity, ObjectId};
use crate::placement::Placement;
use crate::rights::Right;
use crate::volume::records::RecordStore;

/// The time between two looks at tokens that wait for the part of a client whom the server does not
/// trust. A client that keeps one waiting, and with it requests of others, from one look to the
/// next, is cut off.
const STALL_LOOK: Duration = Duration::from_secs(10);

/// Refuses an access that a right does not allow, and puts what the server knows of the file in the
/// place of what the client says.
fn apply(right: &Right, access: &mut Access) -> Result<()> {
    allow(right, access.operation)?;
    let shape = &right.shape;
    let is_of_file = |part: &CellPart| part.cell < shape.cells;
    if access.way() != (shape.base, shape.placement) || !access.parts.iter().all(is_of_file) {
        return Err(refusal("the file has another structure"));
    }
    access.owner = right.owner;
    Ok(())
}

fn allow(right: &Right, operation: Operation) -> Result<()> {
    match right.allows(operation) {
        true => Ok(()),
        false => Err(not_attached()),
    }
}

fn not_attached() -> Error {
    let cause = "this client has not attached the file for that";
    Error::new(Kind::ReadOnly, "using a file", cause)
}

impl<M: Machine, R: RecordStore> Service<'_, M, R> {
    /// Places an access of a client if the client may make it.
    pub(super) fn place_guest_access(
        &self,
        lodge: &Lodge<M::Parcel>,
        from: NodeId,
        access: Access,
        parcel: Option<M::Parcel>,
    ) -> Vec<Task<'_>> {
        let key = (from, access.file);
        let known = lodge.known(key, access.operation, access.placement);
        let mut waiting = lodge.waiting.borrow_mut();
        if let Some(others) = waiting.get_mut(&key) {
            others.push((access, parcel));
            return Vec::new();
        }
        match known {
            Some(right) => {
                drop(waiting);
                self.place_allowed(lodge, from, right, (access, parcel))
            }
            None => {
                let asked = (access.home, access.operation, access.placement);
                waiting.insert(key, vec![(access, parcel)]);
                vec![Box::pin(self.place_when_known(key, asked))]
            }
        }
    }

    /// Asks whether a client may use a file, and then places the accesses that have come meanwhile.
    async fn place_when_known(
        &self,
        (from, file): (NodeId, ObjectId),
        asked: (usize, Operation, Placement),
    ) {
        let Some(lodge) = &self.lodge else {
            return;
        };
        let right = self.right(lodge, (from, file), asked).await;
        let waiting = lodge.waiting.borrow_mut().remove(&(from, file));
        let mut begun = Vec::new();
        for (access, parcel) in waiting.into_iter().flatten() {
            begun.extend(match &right {
                Ok(Some(right)) if access.placement < right.shape.placement => {
                    self.refuse(from, &access, Ok(Answer::HasMoved))
                }
                Ok(Some(right)) => self.place_allowed(lodge, from, *right, (access, parcel)),
                Ok(None) => self.refuse(from, &access, Ok(Answer::NotAttached)),
                Err(error) => self.refuse(from, &access, Err(error.clone())),
            });
        }
        futures::future::join_all(begun).await;
    }

    /// Places an access of a client that has this right. One that asks for more is no client of
    /// ours, and cut off.
    fn place_allowed(
        &self,
        lodge: &Lodge<M::Parcel>,
        from: NodeId,
        right: Right,
        (mut access, parcel): (Access, Option<M::Parcel>),
    ) -> Vec<Task<'_>> {
        match apply(&right, &mut access) {
            Ok(()) => self.place_access(from, access, parcel),
            Err(error) => {
                lodge.guests.expel(from, Dismissal::Trespass, error);
                Vec::new()
            }
        }
    }

    /// Answers an access that gets no place. No token waits for it.
    fn refuse(&self, from: NodeId, access: &Access, answer: Result<Answer>) -> Vec<Task<'_>> {
        let mut tasks = vec![self.reply_at_once(from, access, answer)];
        if matches!(access.turn, Turn::Token(_)) {
            self.note_failure((from, access.request), self.server);
            tasks.extend(self.pass_all_tokens());
        }
        tasks
    }

    /// What a client may do with a file, as the server of the file's object says.
    async fn right(
        &self,
        lodge: &Lodge<M::Parcel>,
        key: (NodeId, ObjectId),
        (home, operation, placement): (usize, Operation, Placement),
    ) -> Result<Option<Right>> {
        if let Some(right) = lodge.known(key, operation, placement) {
            return Ok(Some(right));
        }
        let (from, file) = key;
        let right = match home {
            home if home == self.server => self.attached_right(file, from),
            home if home < self.caller.servers() => {
                let nobody = Identity::new(0, 0, Vec::new());
                match self
                    .caller
                    .ask(home, &nobody, Ask::Right(file, from))
                    .await?
                {
                    Answer::Right(right) => right,
                    _ => return Err(unexpected()),
                }
            }
            _ => return Err(refusal("it names a server that there is not")),
        };
        if let Some(right) = right.filter(|_| lodge.guests.identity(from).is_some()) {
            lodge.rights.borrow_mut().insert(key, right);
        }
        Ok(right)
    }

    /// What a client may do with a file whose object this server keeps, if the client has attached
    /// the file.
    pub(super) fn attached_right(&self, file: ObjectId, client: NodeId) -> Option<Right> {
        self.attachments.borrow().right(file, client)
    }

    /// Moves bytes out of a client's memory or into it. A client that the server does not trust,
    /// and that takes no part in this for too long, is cut off: requests of others wait meanwhile.
    pub(super) async fn in_patience<T>(
        &self,
        client: NodeId,
        moving: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let Some(lodge) = self.lodge.as_ref().filter(|_| !self.is_server(client)) else {
            return moving.await;
        };
        let (moving, patience) = (pin!(moving), lodge.guests.patience());
        match select(moving, pin!(self.machine.wait(patience))).await {
            Either::Left((moved, _)) => moved,
            Either::Right(((), moving)) => {
                let cause = "it does not take part in the moving of its bytes";
                lodge.guests.expel(client, Dismissal::Stuck, refusal(cause));
                moving.await
            }
        }
    }

    /// Cuts off clients that have sent a part of a request to another server, and do not send the
    /// one for which a token waits here.
    pub(super) async fn watch_stalls(&self, lodge: &Lodge<M::Parcel>) {
        let mut seen = Vec::new();
        loop {
            self.machine.wait(STALL_LOOK).await;
            let waits = self.stalled();
            for request in waits.iter().filter(|request| seen.contains(*request)) {
                let (client, cause) = (
                    request.0,
                    "it has sent a part of a request and not the others",
                );
                lodge
                    .guests
                    .expel(client, Dismissal::Incomplete, refusal(cause));
            }
            seen = waits;
        }
    }

    /// The requests for whose parts here the first tokens of buckets wait.
    fn stalled(&self) -> Vec<(NodeId, u64)> {
        let buckets = self.buckets.borrow();
        let links = buckets.links().into_iter();
        let all = links.flat_map(|from| (0..BUCKETS).map(move |bucket| (from, bucket)));
        let tokens = all.filter_map(|(from, bucket)| buckets.first(from, bucket));
        let waits = tokens.filter(|token| matches!(token.errand, Errand::Access));
        waits.map(|token| (token.from, token.request)).collect()
    }

    /// Refuses a collective request of a client that may not make it. Where the file has moved is
    /// looked at when it is the request's turn.
    pub(super) async fn allow_collective(&self, from: NodeId, request: &Collective) -> Result<()> {
        let Some(lodge) = &self.lodge else {
            return Ok(());
        };
        let right = self
            .right(
                lodge,
                (from, request.file),
                (request.home, request.operation, request.shape.placement),
            )
            .await?;
        let right = right.ok_or_else(not_attached)?;
        allow(&right, request.operation)?;
        let known = FileShape {
            placement: request.shape.placement.min(right.shape.placement),
            ..right.shape
        };
        match known == request.shape && right.owner == request.owner {
            true => Ok(()),
            false => Err(refusal("the file has another structure")),
        }
    }
}
