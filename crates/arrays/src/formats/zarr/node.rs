//! Nodes of a Zarr hierarchy: arrays and groups, in directories, buckets or sets of references.
//! This module alone reads their metadata.
//!
//! | format | array | group | attributes |
//! |---|---|---|---|
//! | 3 | `zarr.json`, `"node_type": "array"` | `zarr.json`, `"node_type": "group"` | in it |
//! | 2 | `.zarray` | `.zgroup` | `.zattrs` |

use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_engine::Result;
use serde_json::{Map, Value};

use crate::formats::references::References;
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
    /// The references that have the node, and its path there, if it is not in a directory.
    references: Option<(Arc<References>, String)>,
}

impl Node {
    /// Reads the node in a directory; `None` if there is none.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Damaged`] when the metadata cannot be understood.
    pub fn read(directory: &Path) -> Result<Option<Self>> {
        Self::read_from(directory.to_path_buf(), None)
    }

    /// Reads the node in a directory, or in the references to which the path leads; `None` if there
    /// is none.
    ///
    /// # Errors
    /// As [`Node::read`]; [`penstock_engine::Kind::Unsupported`] for references that Penstock does
    /// not read.
    pub fn find(path: &Path) -> Result<Option<Self>> {
        if let Some(node) = Self::read(path)? {
            return Ok(Some(node));
        }
        let Some((set, inner)) = References::find(path)? else {
            return Ok(None);
        };
        let home = set.home().to_path_buf();
        if !inner.is_empty() {
            return Self::read_from(home.join(&inner), Some((set, inner)));
        }
        let root = Self::read_from(home.clone(), Some((set, inner)))?;
        let cause = "the references have no node at their root: .zgroup, .zarray or zarr.json";
        root.ok_or_else(|| damaged(&home, cause)).map(Some)
    }

    fn read_from(
        directory: PathBuf,
        references: Option<(Arc<References>, String)>,
    ) -> Result<Option<Self>> {
        for name in ["zarr.json", ".zarray", ".zgroup"] {
            let file = directory.join(name);
            let json = match &references {
                None => read_json(&file)?,
                Some((set, inner)) => set.json(&key_of(inner, name))?,
            };
            if let Some(json) = json {
                let kind = kind_of(&file, &json)?;
                return Ok(Some(Self {
                    directory,
                    file,
                    json,
                    kind,
                    references,
                }));
            }
        }
        Ok(None)
    }

    /// The node of this name in a group; `None` if there is none.
    ///
    /// # Errors
    /// As [`Node::read`].
    pub fn child(&self, name: &str) -> Result<Option<Self>> {
        let of_set = |(set, inner): &(Arc<References>, String)| (set.clone(), key_of(inner, name));
        let references = self.references.as_ref().map(of_set);
        Self::read_from(self.directory.join(name), references)
    }

    /// The references that have the node, and its path there; `None` if it is in a directory.
    pub(crate) fn references(&self) -> Option<(&References, &str)> {
        let (set, path) = self.references.as_ref()?;
        Some((set, path))
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
        let json = match (self.is_second(), &self.references) {
            (true, None) => read_json(&self.directory.join(".zattrs"))?.unwrap_or_default(),
            (true, Some((set, path))) => set.json(&key_of(path, ".zattrs"))?.unwrap_or_default(),
            (false, _) => self.json["attributes"].clone(),
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
        let names = match &self.references {
            None => files::directories_in(&self.directory)?,
            Some((set, path)) => set.names_below(path),
        };
        let names = names.into_iter();
        for name in names.filter(|name| !name.starts_with('.') && !skips(name)) {
            match self.child(&name) {
                Ok(None) => {}
                Ok(Some(node)) => children.push((name, Ok(node))),
                Err(error) => children.push((name, Err(error))),
            }
        }
        Ok(children)
    }
}

/// The key of a name below a node of this path.
fn key_of(path: &str, name: &str) -> String {
    match path {
        "" => name.to_string(),
        path => format!("{path}/{name}"),
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
