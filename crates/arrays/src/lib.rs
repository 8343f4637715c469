//! Arrays on ordinary file systems, in formats that everybody already reads.
//!
//! Each module but [`testing`] uses only modules below it in this table.
//!
//! | module | what it holds |
//! |---|---|
//! | [`calls`] | collective calls on arrays and groups: start with [`calls::Session`] |
//! | [`groups`] | timesteps and checkpoints of arrays that are saved together |
//! | [`write`] | puts an array in its place whole, or not at all |
//! | [`read`] | opens the arrays on disk to be read |
//! | [`formats`] | the forms in which arrays are stored, as servers see them |
//! | [`fs`] | the file system, and a crash between any two changes to it |
//! | [`schema`], [`dtype`], [`fill`], [`codec`] | an array: its name, shape, element type, and how it lies on disk |
//! | [`sieve`], `expression` | work at the servers; conditions on elements, as users write them |
//! | [`npy`], [`json`] | the header of a `.npy` file; JSON as people's programs write it |
//! | [`testing`] | for tests and benchmarks: a disk that is slow, or fails |
//!
//! A write has three steps. The root rank calls [`Pending::create`], which makes everything but the
//! elements under a temporary name, and sends the [`Target`] to the servers with the collective
//! request. Each server opens the target as a [`penstock_machines::Medium`] and writes its blocks.
//! When all have synced, the root calls [`Pending::commit`]: one rename, and the array is in its
//! place. For a read the root calls [`StoredArray::open`], and the servers open its target.
//!
//! ```
//! use penstock_arrays::{ArraySchema, ElementType, Keys, Pending, Storage, StoredArray};
//!
//! # fn main() -> penstock_engine::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! let path = directory.path().join("run.zarr");
//! let (chunk, codec) = (vec![2.into(), 2.into()], "zstd:3".to_string());
//! let disk = Storage::Chunks { chunk, subchunks: None, codec };
//! let schema = ArraySchema::new("u", &[4, 3], ElementType::F8, disk);
//!
//! let pending = Pending::create(&path, &schema, Keys::Nested)?;
//! let blocks = schema.disk_schema(1 << 20)?;
//! let medium = pending.target().open_write(&blocks)?;
//! for block in blocks.blocks(0, 1) {
//!     medium.write(&block, &vec![0; block.bytes as usize])?;
//! }
//! medium.finish(true)?;
//! pending.commit(true)?;
//!
//! assert_eq!(StoredArray::open(&path, None)?.schema().shape, [4, 3]);
//! # Ok(())
//! # }
//! ```

pub mod calls;
pub mod codec;
pub mod dtype;
mod expression;
pub mod fill;
pub mod formats;
pub mod fs;
pub mod groups;
pub mod json;
mod literal;
pub mod npy;
mod progress;
pub mod read;
pub mod schema;
pub mod sieve;
pub mod testing;
pub mod write;

pub use dtype::{ByteOrder, ElementType, Field, Record, StoredElement};
pub use fill::Fill;
pub use formats::Target;
pub use fs::direct::DirectIo;
pub use progress::Progress;
pub use read::{StoredArray, Witness};
pub use schema::{ArraySchema, Format, Storage, of_layout};
pub use write::{
    Keys, Leftover, Pending, Updatable, install_tree, make_group, put_group, remove_tree,
};
