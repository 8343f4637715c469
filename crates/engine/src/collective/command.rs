//! The commands that servers obey.

use serde::{Deserialize, Serialize};

use crate::address::{CallId, PartyId};
use crate::files::{Order, TransferRequest};
use crate::party::Party;
use crate::request::Request;

/// A command to the servers of a party. It goes down their tree.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Serve these requests, one for each array of the call.
    Serve {
        call: CallId,
        requests: Vec<Request>,
    },
    /// Carry out this order about an open file.
    Order { call: CallId, order: Order },
    /// Move a client's part of an open file. It goes to one server alone.
    Transfer(TransferRequest),
    /// The party makes no more calls.
    Close(PartyId),
    /// Serve this new party, too. It goes to every node with servers of the party.
    Join(Party),
    /// Direct this call of clients. The errand says how; it goes to the node that directs alone.
    Begin { call: CallId, errand: Vec<u8> },
    /// Answer a question of a client of the party. It goes to the node that directs alone.
    Answer {
        party: PartyId,
        number: u32,
        question: Vec<u8>,
    },
}
