//! Whether the records of all servers of a volume fit together, and how they are made to.
//!
//! A check reads the records of all servers, as a crash may have left them, first ends the
//! transactions as servers would, and then compares each record with all others:
//!
//! ```text
//! object   at the server and the hash of its path | one entry at the parent | parent is an Xref
//! entry    at the server of its Xref | an object at the path, with that identity and kind
//! cells    of a file that is there | on the cell's server | owner and checkpoint as the file's
//! block    before the end of its cell | at a place that is there | and that no other block has
//! ```
//!
//! Mending makes changes of records, after which a check finds nothing. It throws away no data: an
//! object whose parent is gone, and cells whose object is gone, come to `/lost+found`. A block
//! whose place is another block's, too, or is not there, gets a new place: if the bytes that are
//! copied there do not have its checksum, the block is known to be damaged, and is never served.
//!
//! | file | contents |
//! |---|---|
//! | `finding` | what can be found, and the report |
//! | `model` | records as maps, and the end of transactions |
//! | `check` | the comparison |
//! | `mend`, `names` | the changes that make records fit: of cells, and of objects and entries |
//! | `on_disk` | a volume on real disks that nobody has open; the checksums of its blocks |
//!
//! Cost: memory for all records of the volume, a few times over. Blocks are read one by one.

mod check;
mod finding;
mod mend;
mod model;
mod names;
mod on_disk;

use crate::names::Names;

pub use check::check;
pub use finding::{BlockPosition, Finding, LeftTransaction, Numbers, Report};
pub use mend::{BlockCopy, Mending, mend};
pub use on_disk::{Checked, FsckOptions, fsck_volume};

/// The records of a server, each a key and a value.
pub type ServerRecords = Vec<(Vec<u8>, Vec<u8>)>;

/// What must be known of a volume in order to understand its records.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The hashes of paths.
    pub names: Names,
    /// The bytes of a block.
    pub block_bytes: u64,
    /// The places of each server: the blocks of all of its disks.
    pub places: Vec<u64>,
    /// The user who owns the volume.
    pub owner: u32,
}
