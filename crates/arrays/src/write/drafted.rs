//! Arrays in a draft of a repository. What is put there is seen when the draft is committed, so
//! arrays are replaced and changed where they are.

use std::path::Path;

use penstock_bucket::{Place, is_in_repository};
use penstock_engine::Result;

use super::change::metadata_of;
use super::checks::{check_not_in_checkpoints, check_not_saved};
use super::objects::{Former, check_group};
use super::pending::chunks_in;
use crate::ArraySchema;
use crate::formats::Form;
use crate::formats::zarr::{self, Node};
use crate::fs::files;
use crate::json;

/// Puts the metadata of a new array of `schema` in the group at `group`, and of the groups that are
/// missing. The chunks of the former array go. The repository takes chunks only of arrays that it
/// knows.
///
/// # Errors
/// [`penstock_engine::Kind::Schema`] when something else is there; the error of the repository.
pub(super) fn create(group: &Path, schema: &ArraySchema) -> Result<Form> {
    check_not_in_checkpoints(group)?;
    check_not_saved(group, &schema.name)?;
    let array = Place::at(&group.join(&schema.name))?;
    make_groups(group)?;
    if Former::read(&array)?.is_some() {
        // The node stays: forks of a draft cannot be merged that replace it.
        array.below("c")?.clear()?;
    }
    let metadata = zarr::array_json(schema)?;
    array.below("zarr.json")?.write(json::text(&metadata))?;
    chunks_in(array.url().to_path_buf(), schema, &metadata, None)
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

/// Prepares a change of a part of an array.
///
/// # Errors
/// [`penstock_engine::Kind::Unsupported`] for forms that Penstock reads, but does not write;
/// [`penstock_engine::Kind::Schema`] for an array that is saved with its group.
pub(super) fn change(location: &zarr::Location) -> Result<Form> {
    let array = &location.directory;
    metadata_of(array)?;
    location.check_writable()?;
    check_not_in_checkpoints(array)?;
    if let (Some(group), Some(name)) = (array.parent(), array.file_name()) {
        check_not_saved(group, &name.to_string_lossy())?;
    }
    let (directory, form) = (location.directory.clone(), location.form.clone());
    Ok(Form::Zarr(zarr::Location::new(directory, form)))
}
