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
//! | [`disk_directed`] | what a server does about it (Kotz, TOCS 1997; Panda, SC'95) |
//! | [`plan`] | what will happen, in words and numbers, before it does |
//! | [`error`] | what the world does wrong |
//!
//! Nodes run single-threaded asynchronous code. Nothing here knows threads, MPI, wall clocks or
//! real disks, and there is no lock.

pub mod collective;
pub mod disk_directed;
pub mod error;
pub mod machine;
pub mod plan;
pub mod request;

pub use collective::{Call, Decision, Director, Proposal, Verdict};
pub use error::{Error, Kind, Result, Who};
pub use machine::{Disk, Machine, NodeId, Step, Tag, Window};
pub use plan::Plan;
pub use request::{Moved, Operation, Request, Roles};
