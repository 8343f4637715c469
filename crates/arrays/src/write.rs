//! Puts an array in its place as a whole, or not at all.
//!
//! | module | what it holds |
//! |---|---|
//! | [`pending`](Pending) | an array being written: what the root does before and after the servers |
//! | `place` | the place of an array, and how the array comes there |
//! | `objects` | the place of an array in a bucket |
//! | `lease` | keeps a place in a bucket from other writers |
//! | `dataset` | the place of datasets in an HDF5 file |
//! | `locked` | an HDF5 file that is there, and that this process alone changes |
//! | `checks` | checks that an array may go to a path |
//! | `change` | changes a part of an array |
//! | `part` | changes a part of a dataset of an HDF5 file |
//! | `update` | keeps an array that is changed in place from other writers |
//! | `objects_tree` | the place of a tree of groups and arrays in a bucket |
//! | `copy_target` | the target of a copy, which goes on where a killed process has stopped |
//! | `goal` | what a copy makes |
//! | `copy_objects` | the target of a copy in a bucket |
//! | `copy_drafted` | the target of a copy in a repository |
//!
//! # Guarantees
//! - An array comes to its place by one rename, after every byte of it was synced: no reader sees
//!   half of an array. (A program that reads an array file by file while it is replaced may read
//!   some of the old and some of the new; Penstock's readers notice.)
//! - A write that fails or is killed leaves the former array exactly as it was. The next write to
//!   the same target removes the remains under the temporary name.
//! - Of two jobs that write the same target at once, the second gets
//!   [`penstock_engine::Kind::Busy`].
//!
//! # Requirements on the file system
//! `rename` is atomic; `fsync` brings data to stable storage; `flock` keeps other processes out
//! (without `flock`, Busy is not noticed and remains are not removed).

mod change;
pub(crate) mod checks;
mod copy_drafted;
mod copy_objects;
mod copy_target;
mod dataset;
mod drafted;
mod goal;
mod lease;
mod locked;
mod objects;
mod objects_tree;
mod part;
mod pending;
mod place;
mod update;

pub(crate) use copy_target::{CopyTarget, Slab};
pub(crate) use dataset::{
    ALIGNMENT, FileArray, FileGoal, FileGroup, FileObject, FilePlace, chunk_at,
};
pub(crate) use drafted::make_groups;
pub use drafted::put_group;
pub(crate) use goal::{Goal, TreeNode};
pub(crate) use lease::Lease;
pub(crate) use locked::{LockedFile, recover};
pub use objects_tree::{install_tree, make_group, remove_tree};
pub use pending::{Keys, Leftover, Pending};
pub(crate) use place::lock_group;
pub use update::Updatable;
