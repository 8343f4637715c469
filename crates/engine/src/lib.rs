//! The collective strategies, written once, generic over a [`Machine`].
//!
//! Start with [`disk_directed`]: a server's part of a collective write or read, in two short
//! functions. Around it, [`collective`] brings the ranks to one request and to one verdict.
//!
//! | module | what it holds |
//! |---|---|
//! | [`machine`] | what a strategy may ask of the world: messages, memget and memput, disks, a clock |
//! | [`request`] | what the ranks ask for together |
//! | [`collective`] | agreement, multicast, verdict: the frame of every collective call |
//! | [`tree`] | the tree of all nodes, on which that runs |
//! | [`disk_directed`] | what a server does about it (Kotz, TOCS 1997; Panda, SC'95) |
//! | [`caching`] | its first rival: clients ask block by block, servers cache (Kotz) |
//! | [`two_phase`] | its second rival: conforming parts, and a permutation (Kotz; Dickens and Thakur) |
//! | [`independent`] | no servers: every rank moves its own runs (Dickens and Thakur) |
//! | [`split`] | what of a call is done while the clients compute (Dickens and Thakur) |
//! | `relay` | blocks through buffers that are filled and drained |
//! | [`queue`] | the order in which a disk serves those who wait |
//! | [`plan`] | what will happen, in words and numbers, before it does |
//! | [`error`] | what the world does wrong |
//!
//! Nodes run single-threaded asynchronous code. Nothing here knows threads, MPI, wall clocks or
//! real disks, and there is no lock.

pub mod caching;
mod changes;
pub mod collective;
pub mod disk_directed;
pub mod error;
pub mod independent;
pub mod machine;
pub mod numbers;
pub mod outcome;
pub mod plan;
pub mod queue;
mod reached;
mod relay;
pub mod request;
pub mod roles;
pub mod split;
pub mod tree;
pub mod tuning;
pub mod two_phase;

pub use collective::{Ask, Call, Decision, Director, Heard, Proposal, RankBoxes, Verdict};
pub use error::{Error, Kind, Result, Who};
pub use machine::{
    CopyBy, Disk, Machine, Message, NodeId, Opening, Operation, Place, Step, Tag, Window, Work,
};
pub use outcome::{Done, Moved, Outcome, Sum};
pub use plan::Plan;
pub use request::{Portion, Request, Rest};
pub use roles::Roles;
pub use tuning::{Split, Strategy};
