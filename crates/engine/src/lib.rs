//! The collective strategies, written once, generic over a [`Machine`].
//!
//! Start with [`disk_directed`]: a server's part of a collective write or read. Around it,
//! [`collective`] brings the ranks to one request and to one verdict.
//!
//! | module | contents |
//! |---|---|
//! | [`machine`] | the machine of a strategy: messages, memget and memput, block files, a clock |
//! | [`request`], [`tuning`] | the request that the ranks agree on, and its strategy |
//! | [`address`], [`encoding`] | the names of calls, mailboxes and memories; the bodies of messages |
//! | [`party`], `tree` | clients and servers, those that leave, and the trees of both |
//! | [`collective`], [`call`] | agreement, request, verdict: the frame of every collective call |
//! | [`holders`], `own`, `lists` | who holds what: a schema, or a list of each rank's own |
//! | [`disk_directed`], `relay`, `portions` | the servers direct the flow (Kotz, TOCS 1997; Panda, SC'95) |
//! | [`caching`] | the first rival: clients ask block by block, servers cache (Kotz) |
//! | [`two_phase`] | the second rival: conforming parts, and a permutation (Kotz; Dickens and Thakur) |
//! | [`independent`] | no servers: every rank moves its own runs (Dickens and Thakur) |
//! | [`sieve`], `deliveries`, `deal` | reads that are sifted at the servers (Kotz, section 8) |
//! | `direct_disks` | the disks that a client moves blocks on by itself |
//! | `split` | the part of a call that is done while the clients compute (Dickens and Thakur) |
//! | [`blocks`] | the blocks in the memory of servers, and the claims on blocks |
//! | [`files`] | files that servers keep open, and independent requests on them |
//! | [`queue`] | the order in which a disk serves its requests |
//! | [`outcome`], [`error`] | the traffic of a call, and its errors |
//! | [`plan`] | a request in words and numbers, before it runs |
//! | [`signal`] | waiting within a node |
//! | [`trace`] | what a node does, as spans of time, for those who want to see it |
//! | [`version`] | which builds understand each other |
//!
//! Nodes run single-threaded asynchronous code. Nothing here knows threads, MPI, wall clocks or
//! real disks, and there is no lock.

#![warn(missing_docs)]

pub mod address;
pub mod blocks;
pub mod caching;
pub mod call;
pub mod collective;
mod deal;
mod deliveries;
mod direct_disks;
pub mod disk_directed;
pub mod encoding;
pub mod error;
pub mod files;
pub mod holders;
pub mod independent;
mod lists;
pub mod machine;
pub mod outcome;
mod own;
pub mod party;
pub mod plan;
mod portion;
mod portions;
pub mod queue;
mod relay;
pub mod request;
pub mod sieve;
pub mod signal;
mod split;
pub mod trace;
mod tree;
pub mod tuning;
pub mod two_phase;
pub mod version;

pub use address::{CallId, MemoryId, PartyId, Port};
pub use call::Call;
pub use collective::{Ask, Decision, Director, Proposal, RankPart, RankParts, Verdict};
pub use deal::equal_part;
pub use error::{Error, Kind, Result, Who};
pub use files::{AskedBlocks, FileClient, FileId, FilePart, Order, asked_blocks};
pub use holders::Holders;
pub use machine::{
    Access, BlockFile, Change, CopyKind, Elements, Machine, Message, NodeId, Opening, Operation,
    Window, Work,
};
pub use outcome::{Bounds, Digest, Outcome, Tally, Traffic};
pub use party::{Attendance, Party};
pub use plan::Plan;
pub use portion::Portion;
pub use portions::portions;
pub use request::{Request, Rest};
pub use sieve::{Addressee, Catch, Delivery, Sieve, Sifting};
pub use tuning::{Split, Strategy};
