//! Nodes of a Zarr hierarchy: arrays and groups, in directories or buckets. This module alone reads
//! their metadata.
//!
//! | format | array | group | attributes |
//! |---|---|---|---|
//! | 3 | `zarr.json`, `"node_type": "array"` | `zarr.json`, `"node_type": "group"` | in it |
//! | 2 | `.zarray` | `.zgroup` | `.zattrs` |

use std::path::{Path, PathBuf};

use penstock_engine::Result;
use serde_json::{Map, Value};

use crate::fs::files::{self, damaged, read_json};

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Array,
    Group,
}

/// A node, read from its directory.
#[derive(Debug, Clone)]
pub struct Node {
    directory: PathBuf,
    file: PathBuf,
    json: Value,
    kind: Kind,
}

impl Node {
    /// Reads the node in a directory; `None` if there is none.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Damaged`] when the metadata cannot be understood.
    pub fn read(directory: &Path) -> Result<Option<Self>> {
        for name in ["zarr.json", ".zarray", ".zgroup"] {
            let file = directory.join(name);
            if let Some(json) = read_json(&file)? {
                let kind = kind_of(&file, &json)?;
                return Ok(Some(Self {
                    directory: directory.to_path_buf(),
                    file,
                    json,
                    kind,
                }));
            }
        }
        Ok(None)
    }

    /// The kind of the node.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The directory of the node.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file of the node's metadata.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The node's metadata.
    pub(crate) fn json(&self) -> &Value {
        &self.json
    }

    /// Whether the node is of the second format.
    pub fn is_second(&self) -> bool {
        self.file
            .file_name()
            .is_some_and(|name| name != "zarr.json")
    }

    /// The attributes of the node.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Damaged`] when a `.zattrs` of the second format cannot be read.
    pub fn attributes(&self) -> Result<Map<String, Value>> {
        let json = match self.is_second() {
            true => read_json(&self.directory.join(".zattrs"))?.unwrap_or_default(),
            false => self.json["attributes"].clone(),
        };
        match json {
            Value::Object(attributes) => Ok(attributes),
            _ => Ok(Map::new()),
        }
    }

    /// The nodes in a group's directory, by name. Other directories and hidden ones are passed
    /// over.
    ///
    /// # Errors
    /// The error of the operating system. A node that cannot be understood is an error in the list.
    pub fn children(&self) -> Result<Vec<(String, Result<Node>)>> {
        self.children_but(&|_| false)
    }

    /// The nodes in a group's directory, as [`Node::children`] gives them, but for the names that
    /// `skips` takes.
    ///
    /// # Errors
    /// As [`Node::children`].
    pub(crate) fn children_but(
        &self,
        skips: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<(String, Result<Self>)>> {
        let mut children = Vec::new();
        let names = files::directories_in(&self.directory)?.into_iter();
        for name in names.filter(|name| !name.starts_with('.') && !skips(name)) {
            match Self::read(&self.directory.join(&name)) {
                Ok(None) => {}
                Ok(Some(node)) => children.push((name, Ok(node))),
                Err(error) => children.push((name, Err(error))),
            }
        }
        Ok(children)
    }
}

/// The kind of a node. Metadata of neither array nor group are damaged.
fn kind_of(file: &Path, json: &Value) -> Result<Kind> {
    let format = &json["zarr_format"];
    let second = file.file_name().is_some_and(|name| name != "zarr.json");
    if *format != if second { 2 } else { 3 } {
        return Err(damaged(file, format!("it says \"zarr_format\": {format}")));
    }
    match json["node_type"].as_str() {
        _ if second && file.ends_with(".zarray") => Ok(Kind::Array),
        _ if second => Ok(Kind::Group),
        Some("array") => Ok(Kind::Array),
        Some("group") => Ok(Kind::Group),
        _ => Err(damaged(
            file,
            "its \"node_type\" is neither array nor group",
        )),
    }
}
