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

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use penstock_engine::{Error, Kind, Machine, NodeId, Operation, Result};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::state::{Service, Task};
use crate::caller::unexpected;
use crate::messages::{Access, Answer, Ask, Collective, Turn, refusal};
use crate::object::{FileShape, Identity, ObjectId};
use crate::volume::records::RecordStore;

/// The most requests that a client may have under way at one server, and the most bytes of them.
/// Clients keep to the half of both.
pub(crate) const REQUESTS_MAX: u64 = 8192;
pub(crate) const REQUEST_BYTES_MAX: u64 = 64 << 20;

/// The longest time for which a token waits for the part of a client whom the server does not trust:
/// until then, requests of others to files of the same bucket wait, too.
const STALL_MAX: Duration = Duration::from_secs(10);

/// What a machine knows of clients.
pub trait Guests {
    /// The user of a client that is connected.
    fn identity(&self, node: NodeId) -> Option<Identity>;

    /// Cuts a client off.
    fn expel(&self, node: NodeId, error: Error);
}

/// What a client may do with a file, and what the server must know of the file for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Right {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) owner: u32,
    pub(crate) shape: FileShape,
}

/// What a client has under way.
#[derive(Debug, Default)]
pub(crate) struct Load {
    requests: Cell<u64>,
    bytes: Cell<u64>,
}

/// A hold on a client's share of memory, as long as a request of it is under way.
#[derive(Debug)]
pub(crate) struct Hold {
    load: Rc<Load>,
    bytes: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Self { load, bytes } = self;
        load.requests.set(load.requests.get() - 1);
        load.bytes.set(load.bytes.get() - *bytes);
    }
}

/// Accesses that wait until it is known whether their client may make them.
type Waiting<P> = Vec<(Access, Option<P>)>;

/// The clients of a server that does not trust them.
pub(crate) struct Lodge<P> {
    guests: Rc<dyn Guests>,
    rights: RefCell<FxHashMap<(NodeId, ObjectId), Right>>,
    waiting: RefCell<FxHashMap<(NodeId, ObjectId), Waiting<P>>>,
    loads: RefCell<FxHashMap<NodeId, Rc<Load>>>,
    /// For each bucket whose token waits for the part of a client, that request.
    stalls: RefCell<FxHashMap<usize, (NodeId, u64)>>,
}

impl<P> Lodge<P> {
    pub(crate) fn new(guests: Rc<dyn Guests>) -> Self {
        Self {
            guests,
            rights: RefCell::default(),
            waiting: RefCell::default(),
            loads: RefCell::default(),
            stalls: RefCell::default(),
        }
    }

    /// Counts a request. A client that has too much under way is cut off.
    pub(crate) fn hold(&self, from: NodeId, bytes: u64) -> Option<Hold> {
        let mut loads = self.loads.borrow_mut();
        let load = loads.entry(from).or_default().clone();
        drop(loads);
        load.requests.set(load.requests.get() + 1);
        load.bytes.set(load.bytes.get() + bytes);
        let (requests, all) = (load.requests.get(), load.bytes.get());
        let hold = Hold { load, bytes };
        if requests > REQUESTS_MAX || all > REQUEST_BYTES_MAX {
            let cause = format!("it has {requests} requests of {all} bytes under way");
            self.guests.expel(from, refusal(cause));
            return None;
        }
        Some(hold)
    }

    /// The right of a client to do something with a file, if that is known. A client may attach a
    /// file again for more.
    fn known(&self, key: (NodeId, ObjectId), operation: Operation) -> Option<Right> {
        let rights = self.rights.borrow();
        let right = rights.get(&key).copied();
        right.filter(|right| right.allow(operation).is_ok())
    }

    /// Forgets a client that has left.
    pub(crate) fn forget(&self, node: NodeId) {
        self.rights.borrow_mut().retain(|(one, _), _| *one != node);
        self.waiting.borrow_mut().retain(|(one, _), _| *one != node);
        self.loads.borrow_mut().remove(&node);
    }

    /// Who asks: not who the client says it is, unless it is root's or the volume owner's, who may
    /// act for others.
    ///
    /// # Errors
    /// What no client may ask.
    pub(crate) fn vet(
        &self,
        from: NodeId,
        says: Identity,
        owner: u32,
        ask: &Ask,
    ) -> Result<Identity> {
        let who = self.guests.identity(from);
        let who = who.ok_or_else(|| refusal("nobody knows this client"))?;
        let who = match who.user == 0 || who.user == owner {
            true => says,
            false => who,
        };
        let may_not = |cause: &str| Err(Error::new(Kind::ReadOnly, "using a volume", cause));
        match ask {
            Ask::Stop => may_not("its servers stand, and no client ends them"),
            Ask::Attach { clients, .. } if clients[..] != [from] => {
                may_not("a client attaches files for itself alone")
            }
            Ask::Meet { clients, .. } if !clients.contains(&from) => {
                may_not("it is no client of this program")
            }
            _ => Ok(who),
        }
    }
}

impl Right {
    /// Refuses an access that this right does not allow, and puts what the server knows of the file
    /// in the place of what the client says.
    fn apply(&self, access: &mut Access) -> Result<()> {
        self.allow(access.operation)?;
        let is_of_file = |part: &crate::messages::CellPart| part.cell < self.shape.cells;
        if access.base != self.shape.base || !access.parts.iter().all(is_of_file) {
            return Err(refusal("the file has another structure"));
        }
        access.owner = self.owner;
        Ok(())
    }

    fn allow(&self, operation: Operation) -> Result<()> {
        let is_allowed = match operation {
            Operation::Read => self.reads,
            Operation::Write => self.writes,
        };
        match is_allowed {
            true => Ok(()),
            false => Err(not_attached()),
        }
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
        let known = lodge.known(key, access.operation);
        let mut waiting = lodge.waiting.borrow_mut();
        if let Some(others) = waiting.get_mut(&key) {
            others.push((access, parcel));
            return Vec::new();
        }
        match known {
            Some(right) => self.place_allowed(lodge, from, right, (access, parcel)),
            None => {
                let asked = (access.home, access.operation);
                waiting.insert(key, vec![(access, parcel)]);
                vec![Box::pin(self.place_when_known(key, asked))]
            }
        }
    }

    /// Asks whether a client may use a file, and then places the accesses that have come meanwhile.
    async fn place_when_known(
        &self,
        (from, file): (NodeId, ObjectId),
        (home, operation): (usize, Operation),
    ) {
        let Some(lodge) = &self.lodge else {
            return;
        };
        let right = self.right(lodge, (from, file), (home, operation)).await;
        let waiting = lodge.waiting.borrow_mut().remove(&(from, file));
        let mut begun = Vec::new();
        for (access, parcel) in waiting.into_iter().flatten() {
            begun.extend(match &right {
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
        match right.apply(&mut access) {
            Ok(()) => self.place_access(from, access, parcel),
            Err(error) => {
                lodge.guests.expel(from, error);
                Vec::new()
            }
        }
    }

    /// Answers an access that gets no place. No token waits for it.
    fn refuse(&self, from: NodeId, access: &Access, answer: Result<Answer>) -> Vec<Task<'_>> {
        let mut tasks = vec![self.reply(from, access.ticket, answer)];
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
        (home, operation): (usize, Operation),
    ) -> Result<Option<Right>> {
        if let Some(right) = lodge.known(key, operation) {
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

    /// What a client may do with a file whose object this server keeps, if it has attached the file.
    pub(super) fn attached_right(&self, file: ObjectId, client: NodeId) -> Option<Right> {
        self.attachments.borrow().right(file, client)
    }

    /// Cuts off a client that has sent a part of a request to another server, and does not send the
    /// one for which a token waits here.
    pub(super) fn watch_stall(&self, bucket: usize, request: (NodeId, u64)) -> Option<Task<'_>> {
        let lodge = self.lodge.as_ref()?;
        let noted = lodge.stalls.borrow_mut().insert(bucket, request);
        if noted == Some(request) {
            return None; // it is watched
        }
        Some(Box::pin(async move {
            self.machine.wait(STALL_MAX).await;
            let waits = lodge.stalls.borrow().get(&bucket) == Some(&request);
            let head = self
                .buckets
                .borrow()
                .first(bucket)
                .map(|token| (token.from, token.request));
            if waits && head == Some(request) {
                let cause = "it has sent a part of a request and not the others";
                lodge.guests.expel(request.0, refusal(cause));
            }
        }))
    }

    /// Refuses a collective request of a client that may not make it.
    pub(super) async fn allow_collective(&self, from: NodeId, request: &Collective) -> Result<()> {
        let Some(lodge) = &self.lodge else {
            return Ok(());
        };
        let right = self
            .right(
                lodge,
                (from, request.file),
                (request.home, request.operation),
            )
            .await?;
        let right = right.ok_or_else(not_attached)?;
        right.allow(request.operation)?;
        match right.shape == request.shape && right.owner == request.owner {
            true => Ok(()),
            false => Err(refusal("the file has another structure")),
        }
    }
}
