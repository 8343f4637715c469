//! Parallel files: files that are matrices of bytes, which programs use through views.
//!
//! After Vesta (Corbett and Feitelson, TOCS 1996): a file has a number of *cells*, dealt out to
//! servers in turn, and a *basic striping unit* (BSU). A *view* makes one of several disjoint
//! *subfiles* of it a sequence of bytes, and programs find the bytes of a subfile by arithmetic,
//! with no lookup anywhere.
//!
//! ```text
//! client    attach once: attributes | view, offset, count -> bytes of cells | one request a server
//! server    order of the file | blocks in memory | volume: block lists, checksums, disks, records
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`client`] | what a program asks for |
//! | [`service`] | what a server does for it |
//! | [`metrics`] | what a server has done and does, in numbers |
//! | [`volume`] | what a server stores, so that a crash loses nothing that was saved |
//! | [`names`], [`object`] | paths, attributes, permissions |
//! | [`placement`] | the servers of a file |
//! | [`transaction`] | operations of several phases on several servers |
//! | [`disk`] | the storage of a volume on real disks |
//! | [`fsck`] | whether all records of a volume fit together, and how they are made to |
//! | [`job`] | a volume in a program: one process, or the ranks of an MPI job |
//! | [`transfer`] | import and export |
//! | [`rebalance`] | spreading a volume over its servers |
//! | [`explain`] | what an access does, before it is done |
//! | `messages`, `caller` | requests and answers, and their way |
//!
//! Nothing here but [`disk`] knows threads, MPI or wall clocks: a server and a client are tasks of
//! nodes of a [`Machine`](penstock_engine::Machine).

#![warn(missing_docs)]

#[cfg(test)]
extern crate self as penstock_files;

mod attached;
mod caller;
pub mod client;
pub mod disk;
pub mod explain;
pub mod fsck;
#[cfg(test)]
mod fuzz;
pub mod job;
mod messages;
pub mod metrics;
pub mod names;
pub mod object;
mod pace;
pub mod placement;
pub mod rebalance;
mod rights;
pub mod service;
pub mod transaction;
pub mod transfer;
pub mod volume;

pub use attached::Attacher;
pub use caller::Homes;
pub use client::{Attachment, Client, ClientState, Mode, OpenSubfile, Selection, VolumeSpace};
pub use messages::Moved;
pub use names::{FilePath, HASH_BITS, Keepers, Names};
pub use object::{
    Attributes, Details, EntryKind, FileShape, Identity, MODE_BITS, ObjectId, ObjectKind,
};
pub use service::pointers::{PointerId, PointerMove, Seek};
pub use service::{Parts, Service, VolumeShape, disk_schema};
pub use transaction::{Entry, FileChange, NewAttributes, NewTime, Replacement};
pub use volume::cells::Version;
pub use volume::records::RecordStore;
