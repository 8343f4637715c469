//! Arrays and groups in a draft of a repository. What is put there is seen when the draft is
//! committed, so they are replaced and changed where they are.

use std::path::{Path, PathBuf};

use penstock_bucket::{Draft, Place, is_in_repository};
use penstock_engine::{Error, Kind, Result};
use serde_json::{Map, Value};

use super::checks::{check_not_in_checkpoints, check_not_saved};
use super::goal::TreeNode;
use super::objects::{ALL_KEYS, Former, Keys, check_group, dims_of};
use super::objects_tree::{check_tree, with_odd_names};
use crate::ArraySchema;
use crate::formats::zarr::{self, Node};
use crate::fs::files;
use crate::json;

/// Puts the metadata of a new array of `schema` in the group at `group`, and of the groups that are
/// missing. The chunks of the former array go. The repository takes chunks only of arrays that it
/// knows. Gives the place of the array, and the metadata.
///
/// # Errors
/// [`Kind::Schema`] when something else is there; the error of the repository.
pub(super) fn create(group: &Path, schema: &ArraySchema) -> Result<(PathBuf, Value)> {
    check_not_in_checkpoints(group)?;
    check_not_saved(group, &schema.name)?;
    let array = Place::at(&group.join(&schema.name))?;
    make_groups(group)?;
    let metadata = zarr::array_json(schema)?;
    put_array(&array, &metadata)?;
    Ok((array.url().to_path_buf(), metadata))
}

/// Puts the metadata of an array, in place of those of another one, whose chunks go.
fn put_array(array: &Place, metadata: &Value) -> Result<()> {
    if Former::read(array)?.is_some() {
        // The node stays: forks of a draft cannot be merged that replace it.
        array.below("c")?.remove_tree()?;
    }
    array.below("zarr.json")?.write(json::text(metadata))
}

/// Puts the metadata of the group at `path`, and of the groups above it, that are missing.
///
/// # Errors
/// [`Kind::Schema`] when one of them is an array; the error of the repository.
pub(crate) fn make_groups(path: &Path) -> Result<()> {
    for group in path.ancestors().take_while(|above| is_in_repository(above)) {
        check_group(group)?;
        if Node::read(group)?.is_none() {
            files::write_json(&group.join("zarr.json"), &zarr::group_json())?;
        }
    }
    Ok(())
}

/// Puts the metadata of a tree of nodes at `root`, in place of what is there, and the chunks of
/// arrays that stay as they are. Gives the arrays that servers write, each with its place and
/// metadata.
///
/// # Errors
/// [`Kind::Schema`] when a program saves there, or when an array is to take the place of a group,
/// or a group that of an array; [`Kind::Unsupported`] for chunks that stay as they are, and have
/// odd names; the error of the repository.
pub(super) fn create_tree<'a>(
    root: &Path,
    nodes: &'a [TreeNode],
) -> Result<Vec<(&'a ArraySchema, PathBuf, Value)>> {
    check_tree(root)?;
    if let Some(above) = root.parent().filter(|above| is_in_repository(above)) {
        make_groups(above)?;
    }
    remove_others(root, &|path| nodes.iter().any(|node| node.path == path))?;
    let mut arrays = Vec::new();
    for node in nodes {
        let url = match node.path.as_str() {
            "" => root.to_path_buf(),
            path => root.join(path),
        };
        if node.json["node_type"] == "group" {
            check_group(&url)?;
            files::write_json(&url.join("zarr.json"), &node.json)?;
            continue;
        }
        let (place, mut metadata) = (Place::at(&url)?, node.json.clone());
        metadata["chunk_key_encoding"] = ALL_KEYS[0].in_json(); // a repository has no others
        put_array(&place, &metadata)?;
        if let Some(source) = &node.chunks_in {
            let keys = Keys::of(&node.json).ok_or_else(|| with_odd_names(source))?;
            keys.copy_chunks(source, &place, ALL_KEYS[0], dims_of(&metadata))?;
        }
        if let Some(schema) = &node.schema {
            arrays.push((schema, url, metadata));
        }
    }
    Ok(arrays)
}

/// Removes the nodes below `root`, in a draft, that are not to stay.
fn remove_others(root: &Path, stays: &dyn Fn(&str) -> bool) -> Result<()> {
    let place = Place::at(root)?;
    let keys = place.keys_below(|key| key.ends_with("/zarr.json"))?;
    let nodes = keys.iter().filter_map(|key| key.strip_suffix("/zarr.json"));
    let mut others: Vec<&str> = nodes.filter(|node| !stays(node)).collect();
    others.sort_unstable();
    for node in others {
        place.below(node)?.remove_tree()?; // those below a node come after it
    }
    Ok(())
}

/// Gives the group at a URL in a repository these attributes, in one commit, or together with other
/// calls: besides those that it has; or alone, if it is to hold no more than `only` the nodes of
/// these paths. The group is made if it is missing.
///
/// # Errors
/// [`Kind::Schema`] when something else is there, or a program saves there; the error of the
/// repository.
pub fn put_group(
    url: &Path,
    attributes: &Map<String, Value>,
    only: Option<&[String]>,
) -> Result<()> {
    let Some((draft, group)) = Draft::begin(url)? else {
        let cause = "it is no path in a repository";
        return Err(Error::new(Kind::Schema, "writing", cause).at(url));
    };
    make_groups(&group)?;
    let file = group.join("zarr.json");
    let mut json = files::read_json(&file)?.unwrap_or_else(zarr::group_json);
    let mut all = attributes.clone();
    match only {
        Some(only) => {
            check_tree(&group)?;
            remove_others(&group, &|path| only.iter().any(|stays| stays == path))?;
        }
        None => {
            let mut known = json["attributes"].as_object().cloned().unwrap_or_default();
            known.append(&mut all);
            all = known;
        }
    }
    json["attributes"] = all.into();
    files::write_json(&file, &json)?;
    draft.commit("give a group attributes").map(drop)
}
