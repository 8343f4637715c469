//! The goal of a copy: what it makes at its target.

use std::path::PathBuf;

use serde_json::Value;

use super::dataset::FileGoal;
use crate::schema::ArraySchema;

/// The goal of a copy.
pub(crate) enum Goal<'a> {
    /// An array: in the Zarr group at the path, or a file, or parts there.
    Array(&'a ArraySchema),
    /// A Zarr group or array at the path itself, with all of its nodes, groups before their
    /// members.
    Tree(&'a [TreeNode]),
    /// Groups and datasets of the HDF5 file at the path.
    File(&'a FileGoal),
}

/// A node of a tree that is written.
pub(crate) struct TreeNode {
    /// The path in the tree; empty for the tree's root.
    pub(crate) path: String,
    pub(crate) json: Value,
    /// The schema of an array that servers write.
    pub(crate) schema: Option<ArraySchema>,
    /// The directory of the chunks of an array whose chunks stay as they are.
    pub(crate) chunks_in: Option<PathBuf>,
}
