//! Writes: an array comes to its place whole, or not at all.
//!
//! | module | what it holds |
//! |---|---|
//! | [`pending`](Pending) | an array being written: what the root does before and after the servers |
//! | `place` | where it goes, and how it comes there |
//! | `checks` | what stands where an array is to go, and whether it may |
//! | `change` | a part of an array being changed |
//! | `copy_target` | what a copy writes: it goes on where a killed process has stopped |
//!
//! # What is promised
//! - An array comes to its place by one rename, after every byte of it was synced: nobody sees half
//!   of one. (Who reads it file by file while it is replaced may read some of the old one and some
//!   of the new; Penstock's readers notice.)
//! - A write that fails or is killed leaves what was there before exactly as it was. What it left
//!   lying about under the temporary name, the next write to the same target removes.
//! - Of two jobs that write the same target at once, the second gets
//!   [`penstock_engine::Kind::Busy`].
//!
//! # What is assumed of the file system
//! `rename` is atomic; `fsync` means it; `flock` keeps other processes out (where it is not
//! supported, Busy is not noticed and remains are not removed).

mod change;
pub(crate) mod checks;
mod copy_target;
mod pending;
mod place;

pub(crate) use copy_target::{CopyTarget, Goal, Slab, TreeNode};
pub use pending::{Keys, Leftover, Pending};
pub(crate) use place::lock_group;
