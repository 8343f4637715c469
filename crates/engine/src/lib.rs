//! The collective strategies, written once, generic over a [`Machine`].
//!
//! Start with [`disk_directed`]: a server's part of a collective write or read. Around it,
//! [`collective`] brings the ranks to one request and to one verdict.
//!
//! | module | contents |
//! |---|---|
//! | [`machine`] | the machine of a strategy: messages, memget and memput, block files, a clock |
//! | [`request`], [`tuning`] | the request that the ranks agree on, and its strategy |
//! | [`roles`], [`tree`] | the nodes that are clients and servers, and the tree of all nodes |
//! | [`collective`] | agreement, multicast, verdict: the frame of every collective call |
//! | [`disk_directed`], `relay`, `portions` | the servers direct the flow (Kotz, TOCS 1997; Panda, SC'95) |
//! | [`caching`] | the first rival: clients ask block by block, servers cache (Kotz) |
//! | [`two_phase`] | the second rival: conforming parts, and a permutation (Kotz; Dickens and Thakur) |
//! | [`independent`] | no servers: every rank moves its own runs (Dickens and Thakur) |
//! | `direct_disks` | the disks that a client moves blocks on by itself |
//! | `split` | the part of a call that is done while the clients compute (Dickens and Thakur) |
//! | [`queue`] | the order in which a disk serves its requests |
//! | [`outcome`], [`error`] | the traffic of a call, and its errors |
//! | [`plan`] | a request in words and numbers, before it runs |
//! | [`numbers`], `signal` | the numbers of memories; waiting within a node |
//!
//! Nodes run single-threaded asynchronous code. Nothing here knows threads, MPI, wall clocks or
//! real disks, and there is no lock.

#![warn(missing_docs)]

pub mod caching;
pub mod collective;
mod direct_disks;
pub mod disk_directed;
pub mod error;
pub mod independent;
pub mod machine;
pub mod numbers;
pub mod outcome;
pub mod plan;
mod portions;
pub mod queue;
mod relay;
pub mod request;
pub mod roles;
mod signal;
mod split;
pub mod tree;
pub mod tuning;
pub mod two_phase;

pub use collective::{Agreement, Ask, Call, Decision, Director, Proposal, RankBoxes, Verdict};
pub use error::{Error, Kind, Result, Who};
pub use machine::{
    BlockFile, CopyKind, Elements, Machine, Message, NodeId, Opening, Operation, Step, Tag, Window,
    Work,
};
pub use outcome::{Outcome, Sum, Tally, Traffic};
pub use plan::Plan;
pub use portions::Portion;
pub use request::{Request, Rest};
pub use roles::Roles;
pub use tuning::{Split, Strategy};
