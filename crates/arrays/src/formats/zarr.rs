//! Zarr: nodes and their metadata, and arrays as media.
//!
//! | module | what it holds |
//! |---|---|
//! | `node` | arrays and groups in directories: the one reader of `zarr.json` and its second-format siblings |
//! | `consolidated` | the metadata of all nodes of a group in the group's own |
//! | `metadata` | an array's metadata: written by Penstock, and understood of other writers |
//! | `grid` | chunk grids in Zarr's words |
//! | `second` | translates metadata of the second format into the third |
//! | `chunks` | the files of the chunks of an array, or of rows of one |
//! | `open` | opens an array's chunks for reading or writing |
//! | `plain`, `encoded`, `shards` | the three layouts of chunks as media |
//! | `objects` | chunks that are objects in a bucket, or are read as these are |
//! | `referred` | chunks in files of others, to which references lead |
//! | `shard_update` | changes sub-chunks of shards that are there |
//! | `shard_form` | the encoding of sub-chunks and indexes of shards |
//! | `coder` | one codec chain with all of its arguments |
//! | `fletcher32` | a checksum of HDF5 as a codec |
//! | `written` | chunk files that are written and closed but perhaps not yet on stable storage |
//!
//! | stored | written by | read by |
//! |---|---|---|
//! | plain chunks | one `pwrite` a block, straight from the staging buffer | one `pread` a block |
//! | encoded chunks | the codec chain, then one file | the file, then the codec chain |
//! | shards | each sub-chunk encoded and appended, the index at the end | the index once, then one `pread` a sub-chunk |
//!
//! Chunks that are never written stay missing and read as the fill value. An array that is changed
//! in part is written anew beside the old: only changed chunks are written, and chunks that are
//! changed in part are copied first. An array that grows is written in place: a chunk that holds
//! rows already keeps them. The crate `zarrs` provides codecs and metadata.

mod chunks;
mod coder;
pub mod consolidated;
mod data_type;
mod encoded;
mod fletcher32;
mod grid;
mod metadata;
pub mod node;
mod objects;
mod open;
mod plain;
mod referred;
pub(crate) mod second;
mod shard_form;
mod shard_update;
mod shards;
mod written;

pub(crate) use chunks::{Location, remove_chunks_from};
pub(crate) use coder::Coder;
pub(crate) use encoded::read_rows;
pub(crate) use grid::{is_same_grid, rows_of_chunk};
pub(crate) use metadata::{ChunkForm, Metadata, array_json, group_json};
pub use node::{Kind, Node};
pub(crate) use plain::read_only;
pub(crate) use referred::Location as Referred;
