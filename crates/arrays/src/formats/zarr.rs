//! Zarr: nodes and their metadata, and arrays as media.
//!
//! | module | what it holds |
//! |---|---|
//! | `node` | arrays and groups in directories: the one reader of `zarr.json` and its second-format siblings |
//! | `consolidated` | the metadata of all nodes of a group in the group's own |
//! | `metadata` | an array's metadata: what we write, and what we understand of what others write |
//! | `second` | what metadata of the second format say, in words of the third |
//! | `chunks` | where the chunks of an array, or of rows of one, are |
//! | `open` | opening an array's chunks for reading or writing |
//! | `plain`, `encoded`, `shards` | the three layouts of chunks as media |
//! | `shard_form` | how sub-chunks and indexes of shards are encoded |
//! | `coder` | one codec chain with everything it must be told |
//! | `written` | chunk files that are written and closed but perhaps not yet on stable storage |
//!
//! | stored | written by | read by |
//! |---|---|---|
//! | plain chunks | one `pwrite` a block, straight from the staging buffer | one `pread` a block |
//! | encoded chunks | the codec chain, then one file | the file, then the codec chain |
//! | shards | each sub-chunk encoded and appended, the index at the end | the index once, then one `pread` a sub-chunk |
//!
//! What is never written stays missing and reads as the fill value. An array that is changed in
//! part is written anew beside the old, which only the chunks that are changed need be; those of
//! the old that are changed in part are copied first. An array that grows is written on in place: a
//! chunk that holds rows already keeps them. Codecs and metadata are those of the crate `zarrs`.

mod chunks;
mod coder;
pub mod consolidated;
mod encoded;
mod metadata;
pub mod node;
mod open;
mod plain;
pub(crate) mod second;
mod shard_form;
mod shards;
mod written;

pub(crate) use chunks::{Location, remove_chunks_from};
pub(crate) use metadata::{ChunkForm, Metadata, array_json, group_json};
pub use node::{Kind, Node};
