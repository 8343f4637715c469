//! Consolidated metadata: those of all nodes of a group in the group's own `zarr.json`, so that
//! readers need not look into each. zarr-python and xarray read them by default, and take them for
//! the truth.
//!
//! ```text
//! run.zarr/zarr.json     {"node_type": "group", "consolidated_metadata": {"metadata": {
//!                            "u": {...}, "sub": {...}, "sub/v": {...}}}}
//! ```
//!
//! They are no part of Zarr's third format yet; this writes them as zarr-python does.

use std::path::Path;

use penstock_engine::Result;
use serde_json::{Map, Value, json};

use super::node::{Kind, Node};

/// The key in a group's metadata.
const KEY: &str = "consolidated_metadata";

/// The metadata of the nodes of a group, by their paths in it; `None` where it has none
/// consolidated.
pub(crate) fn of(json: &Value) -> Option<&Map<String, Value>> {
    json[KEY]["metadata"].as_object()
}

/// A group's metadata with those of its nodes.
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

/// The metadata of a node as they stand among those of the group that it is in: a group's own are
/// given up, which stand there, too.
pub(crate) fn entry(json: &Value) -> Value {
    match json["node_type"] == "group" {
        true => with(json.clone(), Map::new()),
        false => json.clone(),
    }
}

/// Looks for the nodes below a group of the third format, whose path begins with `prefix`. What is
/// hidden is left out, and so is what `skips`, by its path.
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

/// All nodes below a group.
///
/// # Errors
/// As [`scan`].
pub(crate) fn scan_all(directory: &Path) -> Result<Map<String, Value>> {
    let mut metadata = Map::new();
    scan(directory, "", &|_| false, &mut metadata)?;
    Ok(metadata)
}
