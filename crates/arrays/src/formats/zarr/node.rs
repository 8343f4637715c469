//! Nodes of a Zarr hierarchy: arrays and groups, in directories. This is the one place that reads
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

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An array.
    Array,
    /// A group.
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
    /// The node in a directory; `None` where there is none.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Damaged`] when its metadata cannot be understood.
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

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file of its metadata.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Its metadata.
    pub(crate) fn json(&self) -> &Value {
        &self.json
    }

    /// Whether it is of the second format.
    pub fn is_second(&self) -> bool {
        self.file
            .file_name()
            .is_some_and(|name| name != "zarr.json")
    }

    /// Its attributes.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Damaged`] when those of the second format cannot be read.
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

    /// The nodes in a group's directory, by name. What is no node is passed over, and so is what is
    /// hidden.
    ///
    /// # Errors
    /// What the operating system says. A node that cannot be understood is an error in the list.
    pub fn children(&self) -> Result<Vec<(String, Result<Node>)>> {
        let mut children = Vec::new();
        for name in names_in(&self.directory)? {
            match Self::read(&self.directory.join(&name)) {
                Ok(None) => {}
                Ok(Some(node)) => children.push((name, Ok(node))),
                Err(error) => children.push((name, Err(error))),
            }
        }
        Ok(children)
    }
}

/// The names of directories in a directory that are not hidden, in order.
fn names_in(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in files::entries(directory)? {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && entry.path().is_dir() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// What is neither array nor group is damaged.
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
