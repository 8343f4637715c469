//! Arrays in a draft of a repository. What is put there is seen when the draft is committed, so
//! arrays are replaced and changed where they are.

use std::path::{Path, PathBuf};

use penstock_bucket::{Place, is_in_repository};
use penstock_engine::Result;
use serde_json::Value;

use super::checks::{check_not_in_checkpoints, check_not_saved};
use super::objects::{Former, check_group};
use crate::ArraySchema;
use crate::formats::zarr::{self, Node};
use crate::fs::files;
use crate::json;

/// Puts the metadata of a new array of `schema` in the group at `group`, and of the groups that are
/// missing. The chunks of the former array go. The repository takes chunks only of arrays that it
/// knows. Gives the place of the array, and the metadata.
///
/// # Errors
/// [`penstock_engine::Kind::Schema`] when something else is there; the error of the repository.
pub(super) fn create(group: &Path, schema: &ArraySchema) -> Result<(PathBuf, Value)> {
    check_not_in_checkpoints(group)?;
    check_not_saved(group, &schema.name)?;
    let array = Place::at(&group.join(&schema.name))?;
    make_groups(group)?;
    if Former::read(&array)?.is_some() {
        // The node stays: forks of a draft cannot be merged that replace it.
        array.below("c")?.remove_tree()?;
    }
    let metadata = zarr::array_json(schema)?;
    array.below("zarr.json")?.write(json::text(&metadata))?;
    Ok((array.url().to_path_buf(), metadata))
}

/// Puts the metadata of the group at `path`, and of the groups above it, that are missing.
///
/// # Errors
/// [`penstock_engine::Kind::Schema`] when one of them is an array; the error of the repository.
pub(crate) fn make_groups(path: &Path) -> Result<()> {
    for group in path.ancestors().take_while(|above| is_in_repository(above)) {
        check_group(group)?;
        if Node::read(group)?.is_none() {
            files::write_json(&group.join("zarr.json"), &zarr::group_json())?;
        }
    }
    Ok(())
}
