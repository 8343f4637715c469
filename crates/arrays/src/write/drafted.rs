//! Arrays in a draft of a repository. What is put there is seen when the draft is committed, so
//! arrays are replaced and changed where they are.

use std::path::Path;

use penstock_bucket::Place;
use penstock_engine::Result;

use super::change::metadata_of;
use super::objects::{Former, check_group};
use super::pending::chunks_in;
use crate::ArraySchema;
use crate::formats::zarr::{self, Node};
use crate::formats::Form;
use crate::json;

/// Puts the metadata of a new array of `schema` in the group at `group`, and of the groups that are
/// missing. The chunks of the former array go. The repository takes chunks only of arrays that it
/// knows.
///
/// # Errors
/// [`penstock_engine::Kind::Schema`] when something else is there; the error of the repository.
pub(super) fn create(group: &Path, schema: &ArraySchema) -> Result<Form> {
    let array = Place::at(&group.join(&schema.name))?;
    let above = group.ancestors().filter(|above| Place::of(above).is_ok_and(|p| p.is_some()));
    for group in above {
        check_group(group)?;
        if Node::read(group)?.is_none() {
            let group = Place::at(&group.join("zarr.json"))?;
            group.write(json::text(&zarr::group_json()))?;
        }
    }
    if Former::read(&array)?.is_some() {
        // The node stays: forks of a draft cannot be merged that replace it.
        array.below("c")?.clear()?;
    }
    let metadata = zarr::array_json(schema)?;
    array.below("zarr.json")?.write(json::text(&metadata))?;
    chunks_in(array.url().to_path_buf(), schema, &metadata, None)
}

/// Prepares a change of a part of an array.
///
/// # Errors
/// [`penstock_engine::Kind::Unsupported`] for forms that Penstock reads, but does not write.
pub(super) fn change(location: &zarr::Location) -> Result<Form> {
    metadata_of(&location.directory)?;
    location.check_writable()?;
    let (directory, form) = (location.directory.clone(), location.form.clone());
    Ok(Form::Zarr(zarr::Location::new(directory, form)))
}
