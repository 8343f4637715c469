//! The storage of a volume on real disks.
//!
//! A server of a volume has a directory. The volume's path is a template: `{server}` in it is the
//! number of the server, so that each server can have disks of its own.
//!
//! ```text
//! scratch.vol, or /nvme{server}/scratch.vol
//!   server-0/
//!     volume.json      what the volume is, and this server in it
//!     records.redb     the records
//!     blocks-0         the blocks of its disk, unless disks were named
//!   server-1/ ...
//! ```
//!
//! A disk that was named is a directory, which gets a file of blocks, or a raw device, which is
//! used as it is.
//!
//! | file | contents |
//! |---|---|
//! | [`description`] | the content of `volume.json`, and where it is |
//! | [`create`](mod@create) | a new volume |
//! | [`open`](mod@open) | the disks of a server, under its lock |
//! | [`records`] | the record store |
//! | [`blocks`] | block files, as the device's worker sees them |
//! | `system` | calls of the operating system, whose errors get a path |

pub mod blocks;
pub mod create;
pub mod description;
pub mod open;
pub mod records;
mod system;

pub use blocks::BlockOpener;
pub use create::{CreateOptions, add_server, create, create_server, new_identity};
pub use description::{Description, VERSION, describe, servers};
pub use open::{ServerDisk, open};
pub use records::DiskRecords;
