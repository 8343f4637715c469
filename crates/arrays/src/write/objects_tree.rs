//! A tree of Zarr nodes that comes to a place in a bucket: a copy of a whole group, or of an array
//! that stands alone.
//!
//! Chunks are put where they belong, under keys that the former array at the same path has not (see
//! `objects`), so that the former tree stays readable. The metadata of the nodes follow, and those
//! of the tree's root come last, under the condition that they are still what they were: they are
//! consolidated, and name the keys of all chunks. Then all else goes that was below the root.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use penstock_bucket::{Place, Version};
use penstock_engine::{Error, Kind, Result};
use serde_json::{Map, Value};

use super::checks::{check_not_in_checkpoints, check_not_saved, in_the_way, is_in_group};
use super::lease::{self, Lease};
use super::objects::{Keys, change_json, dims_of, of_second_format};
use super::place::groups_above;
use crate::formats::record::Record;
use crate::formats::zarr::{Node, consolidated};
use crate::fs::files;
use crate::json;

/// A node of a tree, which is to come.
pub(super) struct ObjectsNode {
    /// The path in the tree; empty for the root.
    pub(super) path: String,
    pub(super) json: Value,
    /// The place of the chunks of an array whose chunks stay as they are.
    pub(super) chunks_in: Option<PathBuf>,
}

/// A write of a tree to a bucket, as its root has it.
pub(super) struct ObjectsTree {
    root: Place,
    lease: Lease,
    nodes: BTreeMap<String, Coming>,
    /// The former tree's root.
    version: Option<Version>,
    /// Whether the new tree is there: before, what was written goes when this is dropped.
    is_there: bool,
}

/// The metadata of a node that is to come, and the keys of its chunks if it is an array.
struct Coming {
    json: Value,
    keys: Option<Keys>,
}

impl ObjectsTree {
    /// Leases the place of a tree at a URL.
    ///
    /// # Errors
    /// [`Kind::Busy`] when somebody else writes it; [`Kind::Schema`] when something is there that
    /// is not replaced; [`Kind::ReadOnly`] for a web server; the error of the service.
    pub(super) fn new(url: &Path, nodes: Vec<ObjectsNode>) -> Result<Self> {
        let root = Place::at(url)?;
        root.check_writable()?;
        check_tree(url)?;
        let lease = Lease::take(&root)?;
        if Node::read(url)?.is_some_and(|node| node.is_second()) {
            return Err(of_second_format(url));
        }
        let version = root.below("zarr.json")?.read()?.map(|(_, version)| version);
        let below = root.keys_below(|key| key != lease::NAME)?;
        if version.is_none() && lease.former().is_none() && !below.is_empty() {
            let cause = "it is no Zarr array or group, but objects are below: give another path";
            return Err(in_the_way(url, cause));
        }
        let mut tree = Self {
            root,
            lease,
            nodes: BTreeMap::new(),
            version,
            is_there: false,
        };
        let mut sources = Vec::new();
        for node in nodes {
            if let Some(chunks_in) = node.chunks_in {
                sources.push((node.path.clone(), chunks_in, Keys::of(&node.json)));
            }
            let coming = tree.coming(&node.path, node.json)?;
            tree.nodes.insert(node.path, coming);
        }
        let arrays = tree.nodes.iter();
        let keys = arrays.filter_map(|(path, node)| Some((path.clone(), node.keys?.in_json())));
        tree.lease.note(&Value::Object(keys.collect()))?;
        let remains = below.into_iter().filter(|key| tree.has_written(key));
        tree.root.remove_all(&remains.collect::<Vec<_>>())?;
        for (path, source, keys) in sources {
            tree.take_chunks(&path, &source, keys)?;
        }
        Ok(tree)
    }

    /// A node that is to come, with keys for its chunks that the former node at this path has not.
    fn coming(&self, path: &str, mut json: Value) -> Result<Coming> {
        if json["node_type"] != "array" {
            return Ok(Coming { json, keys: None });
        }
        let there = files::read_json(&self.url(path).join("zarr.json"))?;
        let former = there.as_ref().and_then(Keys::of);
        let dead = self.lease.former().map(|note| &note[path]);
        let dead = dead.and_then(Keys::in_words);
        let taken: Vec<Keys> = former.into_iter().chain(dead).collect();
        let keys = Keys::beside(&taken, dims_of(&json));
        json["chunk_key_encoding"] = keys.in_json();
        Ok(Coming {
            json,
            keys: Some(keys),
        })
    }

    /// The URL of a node.
    pub(super) fn url(&self, path: &str) -> PathBuf {
        match path {
            "" => self.root.url().to_path_buf(),
            path => self.root.url().join(path),
        }
    }

    /// The metadata of a node.
    pub(super) fn metadata(&self, path: &str) -> Option<&Value> {
        Some(&self.nodes.get(path)?.json)
    }

    /// Copies the chunks of an array as they are, to their new keys.
    fn take_chunks(&self, path: &str, source: &Path, keys: Option<Keys>) -> Result<()> {
        let (Some(node), Some(keys)) = (self.nodes.get(path), keys) else {
            return Err(with_odd_names(source));
        };
        let (Some(new), dims) = (node.keys, dims_of(&node.json)) else {
            return Ok(()); // a group has none
        };
        keys.copy_chunks(source, &Place::at(&self.url(path))?, new, dims)
    }

    /// The node below which a key is, and the rest of the key.
    fn owner<'a>(&self, key: &'a str) -> Option<(&Coming, &'a str)> {
        let ends = key.rmatch_indices('/').map(|(at, _)| at);
        let mut parts = ends.map(|at| (&key[..at], &key[at + 1..]));
        let found = parts.find_map(|(path, rest)| Some((self.nodes.get(path)?, rest)));
        found.or_else(|| Some((self.nodes.get("")?, key)))
    }

    /// Whether a key is that of a chunk of the new tree.
    fn has_written(&self, key: &str) -> bool {
        let owner = self.owner(key);
        owner.is_some_and(|(node, rest)| node.keys.is_some_and(|keys| keys.has(rest)))
    }

    /// Puts the tree in its place, after all servers have put its chunks.
    ///
    /// # Errors
    /// [`Kind::Busy`] when the lease was lost, or another program has replaced the tree; the error
    /// of the service.
    pub(super) fn install(mut self) -> Result<()> {
        self.lease.check()?;
        let url = self.root.url().to_path_buf();
        let mut all = Map::new();
        for (path, node) in self.nodes.iter().filter(|(path, _)| !path.is_empty()) {
            files::write_json(&self.url(path).join("zarr.json"), &node.json)?;
            all.insert(path.clone(), consolidated::entry(&node.json));
        }
        let root = self.metadata("").cloned().unwrap_or_default();
        let whole = match root["node_type"] == "group" {
            true => consolidated::with(root, all.clone()),
            false => root,
        };
        let file = self.root.below("zarr.json")?;
        let put = match &self.version {
            None => file.create(&json::text(&whole))?,
            Some(version) => file.replace(&json::text(&whole), version)?,
        };
        if put.is_none() {
            let cause = "another program has written there meanwhile";
            return Err(Error::new(Kind::Busy, "writing", cause).at(&url));
        }
        self.is_there = true;
        show_above(&url, &whole, &all)?;
        // The tree is there: old objects that remain are no failure of the write.
        let is_old = |key: &str| {
            let owner = self.owner(key);
            let is_metadata = owner.is_some_and(|(_, rest)| rest == "zarr.json");
            key != lease::NAME && !is_metadata && !self.has_written(key)
        };
        let old = self.root.keys_below(is_old);
        let _ = old.and_then(|old| self.root.remove_all(&old));
        Ok(())
    }
}

impl Drop for ObjectsTree {
    fn drop(&mut self) {
        if self.is_there {
            return;
        }
        // All of it is this one's if nothing was there.
        let is_new = self.version.is_none();
        let is_own = |key: &str| key != lease::NAME && (is_new || self.has_written(key));
        let own = self.root.keys_below(is_own);
        let _ = own.and_then(|own| self.root.remove_all(&own)); // or the next write does it
    }
}

/// Refuses to put a tree where a program saves.
pub(super) fn check_tree(url: &Path) -> Result<()> {
    check_not_in_checkpoints(url)?;
    if let Some((group, name)) = is_in_group(url)? {
        check_not_saved(&group, &name)?;
    }
    if Record::read(url)?.is_some() {
        let cause = "a program saves timesteps and checkpoints there: give another path";
        return Err(in_the_way(url, cause));
    }
    Ok(())
}

/// The refusal of chunks that stay as they are, but cannot keep their names.
pub(super) fn with_odd_names(source: &Path) -> Error {
    let cause = "its chunks have names that Penstock does not write";
    Error::new(Kind::Unsupported, "copying", cause).at(source)
}

/// Brings the consolidated metadata of the groups above a tree up to the tree.
fn show_above(url: &Path, whole: &Value, nodes: &Map<String, Value>) -> Result<()> {
    for (group, key) in groups_above(url)? {
        let below = format!("{key}/");
        change_json(&group, |json| {
            let mut known = consolidated::of(&json)?.clone();
            known.retain(|path, _| !path.starts_with(&below));
            known.insert(key.clone(), consolidated::entry(whole));
            let nodes = nodes.iter();
            known.extend(nodes.map(|(path, json)| (format!("{below}{path}"), json.clone())));
            Some(consolidated::with(json, known))
        })?;
    }
    Ok(())
}

/// Makes a group at a URL if none is there, and gives it these attributes besides those that it
/// has.
///
/// # Errors
/// [`Kind::Schema`] when something else is there; the error of the service.
pub fn make_group(url: &Path, attributes: &Map<String, Value>) -> Result<()> {
    let place = Place::at(&url.join("zarr.json"))?;
    place.check_writable()?;
    let mut json = crate::formats::zarr::group_json();
    json["attributes"] = attributes.clone().into();
    let whole = consolidated::with(json, Map::new());
    match Node::read(url)? {
        None if place.create(&json::text(&whole))?.is_some() => return Ok(()),
        Some(node) if node.is_second() => return Err(of_second_format(url)),
        _ => {}
    }
    let mut is_group = true;
    change_json(url, |mut json| {
        is_group = json["node_type"] == "group";
        let known = json["attributes"].as_object().cloned();
        let mut known = known.unwrap_or_default();
        known.extend(attributes.clone());
        json["attributes"] = known.into();
        is_group.then_some(json)
    })?;
    match is_group {
        true => Ok(()),
        false => Err(in_the_way(url, "it is there, but no Zarr group")),
    }
}

/// Puts a tree of Zarr nodes, which nobody else writes, in another place, whole at one moment; what
/// is there is replaced if `replaces`.
///
/// # Errors
/// [`Kind::Exists`] when something is there and is not to be replaced; else as the errors of a
/// copy.
pub fn install_tree(from: &Path, to: &Path, replaces: bool) -> Result<()> {
    if !replaces && Node::read(to)?.is_some() {
        let cause = "something is there";
        return Err(Error::new(Kind::Exists, "writing", cause).at(to));
    }
    let Some(root) = Node::read(from)? else {
        let cause = "no Zarr group is there";
        return Err(Error::new(Kind::Missing, "writing", cause).at(from));
    };
    let node = |path: String, json: Value| ObjectsNode {
        chunks_in: Some(from.join(&path)),
        path,
        json,
    };
    let mut nodes = vec![node(
        String::new(),
        consolidated::without(root.json().clone()),
    )];
    let below = consolidated::scan_all(from)?.into_iter();
    nodes.extend(below.map(|(path, json)| {
        let json = match json["node_type"] == "group" {
            true => consolidated::without(json),
            false => json,
        };
        node(path, json)
    }));
    for node in &mut nodes {
        node.chunks_in = node
            .chunks_in
            .take()
            .filter(|_| node.json["node_type"] == "array");
    }
    ObjectsTree::new(to, nodes)?.install()
}

/// Removes all that is below a URL.
///
/// # Errors
/// The error of the service.
pub fn remove_tree(url: &Path) -> Result<()> {
    Place::at(url)?.remove_tree()
}
