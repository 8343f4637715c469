//! Arrays on ordinary file systems, in formats that everybody already reads.
//!
//! | module | what it holds |
//! |---|---|
//! | [`dtype`] | element types, as NumPy and Zarr name them |
//! | [`session`] | collective calls on arrays: start here |
//! | [`call`] | what one rank brings to a call |
//! | [`groups`] | calls on arrays that are saved together: timestep, checkpoint, restart |
//! | [`directors`] | what only the rank that directs a call does |
//! | [`copy`] | an array into another arrangement, out of core |
//! | [`strategy`] | the strategies by name |
//! | [`codec`] | compression and checksums, as a word like `zstd:3+crc32c` |
//! | [`schema`] | an array: name, shape, element type, and how it lies on disk |
//! | [`npy`] | the header of a `.npy` file |
//! | [`store`] | the files: written under a temporary name and renamed, opened, read |
//! | [`trial`] | for tests and benchmarks: a disk that is slow, or fails |
//!
//! A write goes through three hands. The root rank calls [`Pending::create`], which makes
//! everything but the elements under a temporary name, and sends the [`Target`] to the servers with
//! the collective request. Each server opens it as a [`penstock_machines::Medium`] and writes its
//! blocks. When all have synced, the root calls [`Pending::commit`]: one rename, and the array is
//! there. For a read the root calls [`Stored::open`], and the servers open its target.
//!
//! ```
//! use penstock_arrays::{ArraySchema, Disk, ElementType, Pending, Stored};
//!
//! # fn main() -> penstock_engine::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! let path = directory.path().join("run.zarr");
//! let disk = Disk::Chunks { chunk: vec![2, 2], subchunks: None, codec: "zstd:3".to_string() };
//! let schema = ArraySchema::new("u", &[4, 3], ElementType::F8, disk);
//!
//! let pending = Pending::create(&path, &schema)?;
//! let blocks = schema.disk_schema(1 << 20)?;
//! let medium = pending.target().open_write(&blocks)?;
//! for block in blocks.blocks(0, 1) {
//!     medium.write(&block, &vec![0; block.bytes as usize])?;
//! }
//! medium.finish(true)?;
//! pending.commit()?;
//!
//! assert_eq!(Stored::open(&path, None)?.schema().shape, [4, 3]);
//! # Ok(())
//! # }
//! ```

pub mod call;
pub mod codec;
pub mod copy;
pub mod directors;
mod driver;
pub mod dtype;
pub mod groups;
pub mod npy;
mod progress;
pub mod schema;
pub mod session;
pub mod store;
pub mod strategy;
pub mod trial;

pub use dtype::{ByteOrder, ElementType};
pub use progress::Progress;
pub use schema::{ArraySchema, Disk, Format};
pub use store::{Committed, Keys, Pending, Stored, Target};
pub use trial::Trial;
