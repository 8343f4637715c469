//! The goal of a copy: what it makes at its target.

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use serde_json::Value;

use super::checks::not_in_buckets;
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

/// The goal of a copy to a place that holds nothing but Zarr: a bucket or a repository.
pub(super) enum ZarrGoal<'a> {
    Array(&'a ArraySchema),
    Tree(&'a [TreeNode]),
}

impl<'a> Goal<'a> {
    /// The goal, at a place that holds nothing but Zarr.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for another one.
    pub(super) fn in_zarr(&self, path: &Path) -> Result<ZarrGoal<'a>> {
        match self {
            Self::File(_) => {
                let cause = "an HDF5 file is written to a file system: copy to a directory, or to \
                    a Zarr group";
                Err(Error::new(Kind::Unsupported, "copying", cause).at(path))
            }
            Self::Array(schema) if !schema.disk.is_zarr() => Err(not_in_buckets(path)),
            Self::Array(schema) => Ok(ZarrGoal::Array(schema)),
            Self::Tree(nodes) => Ok(ZarrGoal::Tree(nodes)),
        }
    }
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
