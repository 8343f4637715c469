//! HDF5 and NetCDF-4 files: their datasets as arrays.
//!
//! | module | what it holds |
//! |---|---|
//! | `name` | paths with a dataset in them, such as `run.h5:/fields/u` |
//! | `filters` | filters of HDF5, in words, as HDF5 has them, and as codecs of Zarr |
//! | `attributes` | attributes as JSON, and the other way |
//! | `describe` | what a dataset is, as an array's schema, and where its elements are |
//! | `library` | datasets that servers read through the library, as a medium |
//! | `journal` | changes of metadata that a crash does not halve |
//!
//! Servers need nothing of the library where a dataset is [`placed`](super::placed) in its file, in
//! one run or in chunks. The crate `penstock-hdf5` has the library.

pub(crate) mod attributes;
pub(crate) mod describe;
pub(crate) mod filters;
pub(crate) mod journal;
pub(crate) mod library;
pub(crate) mod mark;
pub(crate) mod name;
