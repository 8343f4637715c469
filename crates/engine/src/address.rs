//! Addresses: the names of calls, of mailboxes and of exposed memories.
//!
//! A machine only compares addresses. Their parts mean something to the protocol alone:
//!
//! ```text
//! call     party | sequence                                  a collective call of a party
//! memory   party | sequence, array, share                    what one client exposes
//! port     party | sequence, array, share | step, number     a mailbox of a node
//! ```
//!
//! The sequence counts the calls of a party, so that two parties never meet in one mailbox.

use serde::{Deserialize, Serialize};

/// The identity of a party, which is never used twice in a machine's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PartyId(pub u64);

/// The most arrays of a call.
pub(crate) const ARRAYS_MAX: usize = 1 << 16;

/// The most shares of one array that a client may have.
pub const SHARES_MAX: u64 = 1 << 16;

/// The most calls of a party.
pub(crate) const CALLS_MAX: u64 = u32::MAX as u64;

/// A call is one collective call of a party.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallId {
    /// The party.
    pub party: PartyId,
    /// The call's number among the calls of the party, the same on all of its nodes.
    pub sequence: u64,
}

impl CallId {
    /// The name of a client's first share of an array of this call.
    ///
    /// # Panics
    /// For more arrays than a call may have, and for more calls than a party may make.
    pub fn memory(self, array: usize) -> MemoryId {
        assert!(array < ARRAYS_MAX, "a call about {array} arrays");
        assert!(self.sequence < CALLS_MAX, "a party of too many calls");
        let place = self.sequence << 32 | (array as u64) << 16;
        MemoryId([self.party.0, place])
    }

    /// The mailbox for a step of this call.
    pub(crate) fn port(self, step: Step) -> Port {
        self.memory(0).port(step)
    }
}

/// A memory id names the memory that a client exposes: one share of an array, for one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemoryId([u64; 2]);

impl MemoryId {
    /// The name of no memory, for copies that need none.
    pub const NONE: Self = Self([u64::MAX; 2]);

    /// Makes a memory id of two numbers.
    pub const fn new(words: [u64; 2]) -> Self {
        Self(words)
    }

    /// The two numbers.
    pub const fn words(self) -> [u64; 2] {
        self.0
    }

    /// The name of a client's share, if this is the name of its first share of the array.
    #[must_use]
    pub fn share(self, share: u64) -> Self {
        let [party, place] = self.0;
        Self([party, place + share])
    }

    /// The mailbox for a step about this memory.
    pub(crate) fn port(self, step: Step) -> Port {
        let [party, place] = self.0;
        Port([party, place, step.word()])
    }
}

/// A port is a mailbox of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Port([u64; 3]);

impl Port {
    /// The mailbox in which the servers of a node find what they are told to do.
    pub(crate) const SERVERS: Self = Self([u64::MAX; 3]);

    /// Makes a port of three numbers.
    pub const fn new(words: [u64; 3]) -> Self {
        Self(words)
    }
}

impl PartyId {
    /// The mailbox in which a node hears that a member of the party has left.
    pub(crate) fn departures(self) -> Port {
        Port([self.0, u64::MAX, 0])
    }

    /// The mailbox in which rank 0 of the party hears that the servers of a node know the party.
    pub(crate) fn joined(self) -> Port {
        Port([self.0, u64::MAX, 1])
    }

    /// The mailbox in which a client of the party hears the answer to its question of this number.
    pub(crate) fn answers(self, question: u32) -> Port {
        Port([self.0, u64::MAX, 2 << 32 | u64::from(question)])
    }
}

/// A step of the protocol of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Each rank's proposal goes up the tree of clients.
    Propose,
    /// The requests go down the tree of clients, if clients have a part in them.
    Request,
    /// The verdict goes down the tree of clients, the same for all.
    Verdict,
    /// How the parts of clients have ended goes up the tree of clients.
    ClientsEnded,
    /// The parts of all clients have ended: the word goes from rank 0 down the tree of servers.
    Stop,
    /// How the parts of servers have ended goes up the tree of servers.
    ServersEnded,
    /// How all servers have ended goes from server 0 to the node that directs.
    Served,
    /// Servers have handed over their parts of a split write: the word goes up their tree.
    HandedOver,
    /// All servers have handed over: the word goes from server 0 to the node that directs, and down
    /// the tree of clients.
    Free,
    /// A client has come to the barrier with this number; the word goes up the tree.
    Arrived(u32),
    /// All clients have come to the barrier with this number; the word goes down the tree.
    Go(u32),
    /// The client of this rank sends elements of two-phase I/O to another client.
    Exchange(u32),
    /// A client asks the server with this number to move a part of a block.
    Ask(u32),
    /// A server answers a client's request.
    Reply,
    /// A client sends the pieces of its lists to the mover of blocks with this number.
    List(u32),
    /// A server delivers to a client what its sieve lets through.
    Deliver,
    /// A client has taken a delivery of the server with this number.
    Taken(u32),
    /// The number of records that each client has got goes up the tree of clients.
    Counts,
    /// The numbers of records of all clients go down the tree of clients.
    Deal,
    /// A client sends records that another is to have.
    Dealt,
}

impl Step {
    fn word(self) -> u64 {
        let (kind, number) = match self {
            Self::Propose => (0, 0),
            Self::Request => (1, 0),
            Self::Verdict => (2, 0),
            Self::ClientsEnded => (3, 0),
            Self::Stop => (4, 0),
            Self::ServersEnded => (5, 0),
            Self::Served => (6, 0),
            Self::HandedOver => (7, 0),
            Self::Free => (8, 0),
            Self::Arrived(number) => (9, number),
            Self::Go(number) => (10, number),
            Self::Exchange(rank) => (11, rank),
            Self::Ask(server) => (12, server),
            Self::Reply => (13, 0),
            Self::List(mover) => (14, mover),
            Self::Deliver => (15, 0),
            Self::Taken(server) => (16, server),
            Self::Counts => (17, 0),
            Self::Deal => (18, 0),
            Self::Dealt => (19, 0),
        };
        kind << 32 | u64::from(number)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_addresses_are_alike() {
        let mut ports = HashSet::from([Port::SERVERS]);
        let mut memories = HashSet::new();
        for party in [0, 1, u64::MAX >> 1].map(PartyId) {
            assert!(ports.insert(party.departures()));
            assert!(ports.insert(party.joined()));
            assert!(ports.insert(party.answers(0)) && ports.insert(party.answers(1)));
            for sequence in [0, 1, CALLS_MAX - 1] {
                for array in [0, 1, ARRAYS_MAX - 1] {
                    for share in [0, 1, SHARES_MAX - 1] {
                        let memory = CallId { party, sequence }.memory(array).share(share);
                        assert!(memories.insert(memory));
                        for step in [
                            Step::Propose,
                            Step::Arrived(0),
                            Step::Arrived(1),
                            Step::Exchange(1),
                            Step::Exchange(u32::MAX),
                            Step::Reply,
                            Step::List(1),
                            Step::Deliver,
                            Step::Taken(1),
                        ] {
                            assert!(ports.insert(memory.port(step)));
                        }
                    }
                }
            }
        }
    }
}
