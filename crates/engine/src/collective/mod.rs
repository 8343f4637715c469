//! The frame of every collective call: agreement, request, service, one verdict.
//!
//! ```text
//! clients              up    Propose        each rank proposes a request, or says why it cannot
//! rank 0 -> server 0         one compact request; from here on rank 0 and server 0 stand for all
//! servers              down  the request    ... servers serve, clients let them get and put ...
//! servers              up    ServersEnded   each server's part has ended, and what it moved
//! server 0 -> rank 0         Served
//! clients              down  Verdict        the target is visible (or is not): one answer for all
//! ```
//!
//! Clients and servers are two binary trees. Rank 0 compares the proposals, has its director make
//! the target, and tells server 0 (Panda's master client and master server, SC'95, section 2). A
//! client that lets servers get and put hears nothing but the verdict. If clients have a part in
//! the moving, the request goes down their tree, too, and the ends of their parts come up; if they
//! hold lists, it goes down so that each can send servers what concerns them.
//!
//! If servers stand, the node of server 0 directs instead of rank 0, and is the root of the tree of
//! clients: then servers finish a write even if all clients have left after it was handed over.
//!
//! No rank ever returns early: an error on one rank travels up as a value, and comes back down to
//! all. If a member of the party leaves that has yet to do its part, the call ends on every node.
//!
//! | file | contents |
//! |---|---|
//! | `agreement` | proposals, and whether the asks of ranks are equal |
//! | [`chair`] | the directing of calls to servers that stand |
//! | `command` | the commands that servers obey |
//! | [`counts`] | the calls that were directed, in numbers |
//! | [`client`] | the part of a rank, and the director's on rank 0 |
//! | [`server`] | the part of a node with servers |

mod agreement;
pub mod chair;
pub mod client;
pub(crate) mod command;
pub mod counts;
#[cfg(test)]
mod fuzz;
pub mod server;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::files::Order;
use crate::outcome::{Tally, Traffic};
use crate::request::Request;
use crate::tuning::{StoreAccess, Strategy};

pub use agreement::{Ask, Proposal, Proposed, RankPart, RankParts, Voice, difference};
pub use chair::Office;

/// The decision on a call, once all ranks agree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Decision {
    /// Servers serve these requests, one for each array.
    Serve(Vec<Request>),
    /// Servers carry out this order about an open file.
    Order(Order),
    /// All ranks came here and hear this answer, an encoded value; nothing is left to do.
    Tell(Vec<u8>),
    /// All ranks came here, and no other call will follow. The director gives no complaint: the
    /// complaint of the ranks takes its place.
    Close(Option<Error>),
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
    /// The director's answer to a call in which nothing was moved, an encoded value.
    pub answer: Vec<u8>,
}

impl Verdict {
    /// The verdict on a call that has moved something.
    pub(crate) fn of(moved: Traffic) -> Self {
        Self {
            moved,
            is_closed: false,
            complaint: None,
            answer: Vec::new(),
        }
    }

    /// The verdict on a call in which nothing was moved: all ranks hear this answer.
    pub(crate) fn telling(answer: Vec<u8>) -> Self {
        Self {
            answer,
            ..Self::of(Traffic::default())
        }
    }

    /// The verdict on the last call of a party.
    pub(crate) fn closing(complaint: Option<Error>) -> Self {
        Self {
            is_closed: true,
            complaint,
            ..Self::of(Traffic::default())
        }
    }
}

/// The director does the part of a call that only the root does: it makes a target and shows it.
pub trait Director {
    /// Turns the agreed ask, with the ranks' own parts, into a request; makes or opens the target.
    ///
    /// # Errors
    /// The error of the target: the call then ends with this error on every rank.
    fn prepare(&mut self, parts: RankParts) -> Result<Decision>;

    /// Makes the target visible, or removes its remains, when all servers have ended.
    ///
    /// # Errors
    /// The servers' error, or the director's own.
    fn conclude(&mut self, outcome: Result<Tally>) -> Result<Traffic>;
}

/// Whether clients have a part in moving data for the requests; letting servers get and put is
/// none.
fn clients_act(requests: &[Request]) -> bool {
    let act = |request: &Request| !matches!(request.strategy, Strategy::DiskDirected(_));
    requests.iter().any(act)
}

/// The request of a sifted read, in which clients take what servers deliver.
fn sifted(requests: &[Request]) -> Option<&Request> {
    requests.iter().find(|request| request.sifting.is_some())
}

/// Whether servers have a part in moving data for the requests.
fn servers_act(requests: &[Request]) -> bool {
    let act = |request: &Request| match &request.strategy {
        Strategy::DiskDirected(_) | Strategy::Caching(_) => true,
        Strategy::TwoPhase(options) => matches!(options.io, StoreAccess::Servers(_)),
        Strategy::Independent => false,
    };
    requests.iter().any(act)
}
