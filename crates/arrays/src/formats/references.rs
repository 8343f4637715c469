//! References of kerchunk and VirtualiZarr: a Zarr hierarchy whose chunks lie in other files, such
//! as those of HDF5, NetCDF and TIFF.
//!
//! | module | what it holds |
//! |---|---|
//! | `set` | a set of references: its keys, and the chunks of its arrays |
//! | `reference` | a reference, and the files that references name |
//! | `json` | reads references in one JSON file |
//! | `parquet` | reads references in a directory of Parquet tables |
//! | `source` | the files that references lead to, and the bytes there |
//!
//! ```text
//! refs.json      {"version": 1, "refs": {
//!                    "u/.zarray": "{...}",                         the bytes themselves
//!                    "u/0.0":     ["s3://bucket/run.nc", 4096, 812],    a part of a file
//!                    "u/0.1":     ["tile.bin"]}}                    a whole file
//!
//! refs.parq/
//!   .zmetadata     {"record_size": 10000, "metadata": {"u/.zarray": {...}}}
//!   u/refs.0.parq  a row for each chunk 0..10000: path, offset, size, raw
//! ```
//!
//! A reference set is told by its content, whatever its name. Its nodes have paths below the path
//! of the set, as if that were a directory: `refs.json/fields/u`, or `refs.json:/fields/u`.

mod json;
mod parquet;
mod reference;
mod set;
mod source;

pub(crate) use reference::Reference;
pub(crate) use set::{References, only_read, stamp};
pub(crate) use source::Sources;
