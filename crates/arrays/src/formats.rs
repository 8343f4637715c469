//! Forms in which arrays are stored, as servers see them: where the files of an array are, and how
//! blocks are read and written.
//!
//! | module | what it holds |
//! |---|---|
//! | [`target`](Target) | what a server needs to open an array, and the one dispatch over forms |
//! | [`zarr`] | Zarr: nodes and metadata; chunks, encoded chunks and shards as media |
//! | `flat` | one row-major file as a medium |
//! | `hdf5` | datasets of HDF5 and NetCDF-4 files |
//! | `placed` | chunks at places within one file as a medium |
//! | `parts` | one file for each part of a distribution as a medium |
//! | `record` | the record that Penstock keeps in a group |
//! | `references` | references of kerchunk to chunks in files of others |
//! | `room` | room at the end of a file, which several servers take |
//! | `sidecar` | the JSON file that describes a raw file or a directory of parts |
//! | [`spread`] | a store that has a part on the disks of each server |
//! | [`sums`] | checksums of whole objects |
//! | `bounds` | the bounds of the elements of objects |
//! | `sparse` | leaves out blocks of the fill value |
//! | `update` | the rules of a medium that is changed in place and finished many times |
//!
//! Each form describes where its files are in a `Location`, and makes a
//! [`Medium`](penstock_machines::Medium) of it.

pub(crate) mod bounds;
pub(crate) mod flat;
pub(crate) mod hdf5;
pub(crate) mod parts;
pub(crate) mod placed;
pub(crate) mod record;
pub(crate) mod references;
pub(crate) mod room;
pub(crate) mod sidecar;
mod sparse;
pub mod spread;
pub mod sums;
mod target;
mod update;
pub mod zarr;

pub(crate) use target::Form;
pub use target::Target;
pub(crate) use target::whole_in_bucket;
