//! Consolidated metadata: a group's own `zarr.json` holds the metadata of all of its nodes, so that
//! readers need not look into each. zarr-python and xarray read them by default, and take them for
//! the truth.
//!
//! ```text
//! run.zarr/zarr.json     {"node_type": "group", "consolidated_metadata": {"metadata": {
//!                            "u": {...}, "sub": {...}, "sub/v": {...}}}}
//! ```
//!
//! Consolidated metadata are no part of Zarr's third format yet; this module writes them as
//! zarr-python does.

use std::path::Path;

use penstock_engine::Result;
use serde_json::{Map, Value, json};

use super::node::{Kind, Node};

/// The key of consolidated metadata in a group's metadata.
const KEY: &str = "consolidated_metadata";

/// The metadata of the nodes of a group, by their paths in it; `None` if the group has no
/// consolidated metadata.
pub(crate) fn of(json: &Value) -> Option<&Map<String, Value>> {
    json[KEY]["metadata"].as_object()
}

/// A group's metadata, consolidated with the metadata of its nodes.
pub(crate) fn with(mut json: Value, metadata: Map<String, Value>) -> Value {
    json[KEY] = json!({ "kind": "inline", "must_understand": false, "metadata": metadata });
    json
}

/// The metadata of a group alone.
pub(crate) fn without(mut json: Value) -> Value {
    if let Some(fields) = json.as_object_mut() {
        fields.remove(KEY);
    }
    json
}

/// The metadata of a node as an entry in the metadata of the group above: a group's own entries are
/// left out, since they are in the group above, too.
pub(crate) fn entry(json: &Value) -> Value {
    match json["node_type"] == "group" {
        true => with(json.clone(), Map::new()),
        false => json.clone(),
    }
}

/// Finds the nodes below a group of the third format, with paths that begin with `prefix`. Hidden
/// nodes are left out, and so are nodes whose paths `skips` takes.
///
/// # Errors
/// When a node cannot be understood.
pub(crate) fn scan(
    directory: &Path,
    prefix: &str,
    skips: &dyn Fn(&str) -> bool,
    metadata: &mut Map<String, Value>,
) -> Result<()> {
    let Some(group) = Node::read(directory)? else {
        return Ok(());
    };
    for (name, node) in group.children()? {
        let path = format!("{prefix}{name}");
        if skips(&path) {
            continue;
        }
        let node = node?;
        if node.is_second() {
            continue; // no node of this hierarchy
        }
        metadata.insert(path.clone(), entry(node.json()));
        if node.kind() == Kind::Group {
            scan(node.directory(), &format!("{path}/"), skips, metadata)?;
        }
    }
    Ok(())
}

/// The metadata of all nodes below a group.
///
/// # Errors
/// As [`scan`].
pub(crate) fn scan_all(directory: &Path) -> Result<Map<String, Value>> {
    let mut metadata = Map::new();
    scan(directory, "", &|_| false, &mut metadata)?;
    Ok(metadata)
}
