//! The metadata of HDF5 and NetCDF-4 files, by the HDF5 library; their elements are in the hands of
//! the caller.
//!
//! | module | what it holds |
//! |---|---|
//! | [`file`](Hdf5File) | files that are looked at, changed or made |
//! | `contents` | what is in a file |
//! | [`new`](NewDataset) | datasets that are made, with the dimensions that they share |
//! | [`values`](AllElements) | small datasets, whose elements pass through the library |
//! | `others` | what comes from another file as it is |
//! | [`reading`](Elements) | elements that only the library understands |
//! | [`dataset`](Dataset) | what a dataset is, and where its elements lie |
//! | `dimensions` | the dimensions that NetCDF's datasets share |
//! | [`attributes`](Attribute) | numbers and texts that belong to a dataset or group |
//! | `elements` | element types: HDF5's beside NumPy's |
//! | `driver` | the driver through which the library sees a file, and that places the elements |
//! | `library` | what the crate of bindings has no safe function for |
//!
//! No other process need know the library, and no element passes through it, but for those that
//! [`Storage`] and [`Element`] say only the library understands. One process looks up
//! where the elements of a dataset are, and servers read them there. Or servers write elements
//! where there is room, and one process makes the metadata that say where they are:
//!
//! ```text
//! servers      elements ---------------------> file, from byte 4096 on, or behind its end
//! one process  places --> library --> driver --> metadata, which its caller writes
//! ```
//!
//! The library allows one call at a time in a process; the crate sees to that.

mod attributes;
mod contents;
mod dataset;
mod dimensions;
mod driver;
mod elements;
mod file;
mod library;
mod new;
mod others;
mod reading;
mod values;

pub use attributes::{Attribute, Values};
pub use contents::{Dimension, Member};
pub use dataset::{Chunk, ChunkEntry, Dataset, Storage};
pub use elements::Element;
pub use file::{Changes, FileForm, Hdf5File, is_hdf5};
pub use library::Filter;
pub use new::{NewDataset, Places};
pub use reading::Elements;
pub use values::AllElements;
