//! Files that servers keep open, and independent requests on them.
//!
//! A collective call opens its target, moves it and closes it. A *file* stays open on its servers
//! for as long as its party likes, and any client reads or writes any part of it at any time,
//! without the others:
//!
//! ```text
//! client   which blocks hold my part? one message to each server that has some
//! server   claim block | bring it into the cache | copy | next block ...        one message back
//! ```
//!
//! Independent requests go through the server's one cache. Collective requests on the same file are
//! disk-directed through two buffers, around the cache. Each sees the data of the others: all who
//! move bytes of a block hold a claim on it ([`crate::blocks`]); a collective read takes a cached
//! block out of the cache, and a collective write drops it.
//!
//! A file is opened, flushed and closed by an [`Order`], which all clients of a party give together
//! and all servers carry out.
//!
//! | file | contents |
//! |---|---|
//! | `messages` | orders, requests and answers |
//! | [`client`] | a client's requests |
//! | `server` | the open files of a node, and what is done to their blocks |
//! | `sending` | how elements leave, inside a message or out of a send buffer |
//! | `transfer` | the way of an independent request through a server |
//! | `call_file` | the file of a collective call |
//! | `disk` | operations of disks, as a trace shows them |
//!
//! Memory of a server: its cache, and a send buffer for each request under way. Messages of a
//! client: one to each server for up to 1 MiB or one block, and one back; longer
//! ones leave their elements in a send buffer until the other side takes them.

mod call_file;
pub mod client;
mod disk;
mod messages;
mod sending;
mod server;
mod transfer;

pub(crate) use call_file::CallFile;
pub use client::{AskedBlocks, FileClient, FilePart, asked_blocks};
pub(crate) use messages::TransferRequest;
pub use messages::{FileId, Order};
pub(crate) use server::{BlockClaim, Files};
