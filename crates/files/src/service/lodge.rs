//! What a server knows of clients whom it does not trust.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use penstock_engine::collective::counts::CallCounts;
use penstock_engine::{Error, Kind, NodeId, Operation, Result};
use penstock_net::dismissals::Dismissal;
use rustc_hash::FxHashMap;

use crate::messages::{Access, Ask, refusal};
use crate::metrics::DoorCounts;
use crate::object::{Identity, ObjectId};
use crate::placement::Placement;
use crate::rights::{Hold, Load, Right};

/// What a machine knows of clients.
pub trait Guests {
    /// The user of a client that is connected.
    fn identity(&self, node: NodeId) -> Option<Identity>;

    /// How long a client may take nothing while there is something for it.
    fn patience(&self) -> Duration;

    /// Cuts a client off.
    fn expel(&self, node: NodeId, reason: Dismissal, error: Error);

    /// What the door of the server process says of all processes, encoded.
    fn notice(&self) -> Vec<u8>;

    /// The number of the server process, who has come to it, and the calls on arrays that it has
    /// directed, if it serves arrays.
    fn process(&self) -> (usize, DoorCounts, Option<CallCounts>);
}

/// Accesses that wait until it is known whether their client may make them.
type Waiting<P> = Vec<(Access, Option<P>)>;

/// The clients of a server that does not trust them.
pub(crate) struct Lodge<P> {
    pub(super) guests: Rc<dyn Guests>,
    pub(super) rights: RefCell<FxHashMap<(NodeId, ObjectId), Right>>,
    pub(super) waiting: RefCell<FxHashMap<(NodeId, ObjectId), Waiting<P>>>,
    loads: RefCell<FxHashMap<NodeId, Rc<Load>>>,
}

impl<P> Lodge<P> {
    pub(crate) fn new(guests: Rc<dyn Guests>) -> Self {
        Self {
            guests,
            rights: RefCell::default(),
            waiting: RefCell::default(),
            loads: RefCell::default(),
        }
    }

    /// Counts a request. A client that has too much under way is cut off.
    pub(crate) fn hold(&self, from: NodeId, bytes: u64) -> Option<Hold> {
        let load = self.loads.borrow_mut().entry(from).or_default().clone();
        let hold = Hold::of(&load, bytes);
        if let Some(cause) = load.excess() {
            self.guests.expel(from, Dismissal::Excess, refusal(cause));
            return None;
        }
        Some(hold)
    }

    /// The right of a client to do something with a file with this placement, if that is known. A
    /// client may attach a file again for more, and the file may move.
    pub(super) fn known(
        &self,
        key: (NodeId, ObjectId),
        operation: Operation,
        placement: Placement,
    ) -> Option<Right> {
        let rights = self.rights.borrow();
        let right = rights.get(&key).copied();
        right.filter(|right| right.allows(operation) && right.shape.placement == placement)
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
