//! A store that has a part on the disks of each server.
//!
//! A path with `{server}` in it is one directory a server: `/nvme{server}/out/run.zarr`. Chunks,
//! and parts of a distribution, are dealt out to the servers in turn, as in other stores, and each
//! server keeps its own:
//!
//! ```text
//! /nvme0/out/run.zarr/                      all metadata, as if the store were whole
//!   u/zarr.json                             its attribute "penstock_spread" says how it is spread
//! /nvme0/out/run.zarr.parts/u/<version>/c/  chunks 0, N, 2 N, ...
//! /nvme1/out/run.zarr.parts/u/<version>/c/  chunks 1, N + 1, ...
//! ```
//!
//! No rename covers several disks. So each write puts its chunks under a version of its own, and
//! the metadata on server 0 name the version: one rename puts them, and with them the array, in
//! place. The version before stays until the next write, which removes it, and the remains of
//! writes that were killed. If a part of an array is changed, each server fills the new version
//! with hard links to its objects of the old.
//!
//! In an array group, all timesteps of an array are one version, and each of its checkpoints is
//! another. The group's record counts the timesteps, as in other groups; a server removes the
//! chunks of abandoned timesteps before it writes.
//!
//! A server may be the only one that reaches its disk. A reading server looks for the directories
//! that it needs before it reads, since a missing chunk would read as zeros.

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use penstock_layout::DiskSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fs::files::{self, link_tree};
use crate::fs::{ops, temporary};

/// The attribute that describes the spread of an array's chunks.
pub(crate) const SPREAD: &str = "penstock_spread";
/// The mark for a server's number in a path.
const MARK: &str = "{server}";

/// The spread of an array's chunks over servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spread {
    /// The store's path, with `{server}` in it.
    pub(crate) template: String,
    /// The number of servers that wrote the array.
    pub(crate) servers: usize,
    /// The name of the directory of the array's chunks.
    pub(crate) version: String,
    /// The number of directories between the store and the array's group: two for an array of a
    /// checkpoint.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) depth: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A [`Spread`] as it travels: its stored form leaves fields out.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Spread")]
struct SpreadMessage {
    template: String,
    servers: usize,
    version: String,
    depth: usize,
}

/// An array whose chunks are spread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SpreadArray {
    pub(crate) name: String,
    #[serde(with = "SpreadMessage")]
    pub(crate) spread: Spread,
    /// The versions that a write does not remove.
    pub(crate) keeps: Vec<String>,
    /// The version that is changed; it stays as it is.
    pub(crate) base: Option<String>,
}

/// Whether a path contains `{server}`.
pub fn is_template(path: &Path) -> bool {
    path.to_string_lossy().contains(MARK)
}

/// The path for one server; a path without `{server}` is the same for all.
pub fn of_server(path: &Path, server: usize) -> PathBuf {
    match is_template(path) {
        true => PathBuf::from(path.to_string_lossy().replace(MARK, &server.to_string())),
        false => path.to_path_buf(),
    }
}

/// The directory of the chunks of a store's arrays on one server.
pub(crate) fn parts_of(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_os_string();
    name.push(".parts");
    PathBuf::from(name)
}

impl Spread {
    /// A new version of the store at `template`, which may be relative, for `servers` servers.
    pub(crate) fn new(template: &Path, servers: usize) -> Self {
        Self {
            template: template.to_string_lossy().into_owned(),
            servers,
            version: temporary::nonce(),
            depth: 0,
        }
    }

    /// The spread that an attribute in the metadata of `file` describes.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the attribute makes no sense.
    pub(crate) fn of_mark(mark: Option<Value>, file: &Path) -> Result<Option<Self>> {
        let spread = mark.map(serde_json::from_value).transpose();
        spread.map_err(|e| files::damaged(file, format!("its \"{SPREAD}\" makes no sense: {e}")))
    }

    /// Moves the spread to the store in which `template` is the array's group.
    pub(crate) fn move_to(&mut self, template: &Path) {
        let store = template.ancestors().nth(self.depth).unwrap_or(template);
        self.template = store.to_string_lossy().into_owned();
    }

    /// Checks that `servers` servers can write to the store.
    ///
    /// # Errors
    /// [`Kind::Schema`] when the store is on the disks of more servers.
    pub(crate) fn check_servers(&self, servers: usize) -> Result<()> {
        let all = self.servers;
        if all <= servers {
            return Ok(());
        }
        let cause = format!(
            "it is on the disks of {all} servers, and the session has {servers}: open it with servers={all}, or \
             gather the store"
        );
        Err(Error::new(Kind::Schema, "writing", cause).at(Path::new(&self.template)))
    }

    /// Notes the spread in an array's metadata.
    ///
    /// # Errors
    /// When the spread cannot be put into JSON.
    pub(crate) fn mark(&self, metadata: &mut Value) -> Result<()> {
        let mark = serde_json::to_value(self);
        let mark = mark.map_err(|e| Error::new(Kind::Schema, "describing a store", e))?;
        metadata["attributes"][SPREAD] = mark;
        Ok(())
    }
}

impl SpreadArray {
    /// A spread array that is read.
    pub(crate) fn new(name: &str, spread: Spread) -> Self {
        Self {
            name: name.to_string(),
            spread,
            keeps: Vec::new(),
            base: None,
        }
    }

    /// The array with a new version, which takes its objects from the current one.
    pub(crate) fn changed(&self) -> Self {
        let former = &self.spread.version;
        Self {
            spread: Spread {
                version: temporary::nonce(),
                ..self.spread.clone()
            },
            keeps: vec![former.clone()],
            base: Some(former.clone()),
            ..self.clone()
        }
    }

    /// The directory of a server's chunks.
    pub(crate) fn of_server(&self, server: usize) -> PathBuf {
        self.versions(server).join(&self.spread.version)
    }

    fn versions(&self, server: usize) -> PathBuf {
        parts_of(&of_server(Path::new(&self.spread.template), server)).join(&self.name)
    }

    /// The directory of an object, on the server that keeps it.
    pub(crate) fn home(&self, schema: &DiskSchema, object: u64) -> PathBuf {
        self.of_server(schema.server_of_object(object, self.spread.servers))
    }

    /// The directory of an object in the version that is changed.
    pub(crate) fn base_home(&self, schema: &DiskSchema, object: u64) -> Option<PathBuf> {
        self.base_of_server(schema.server_of_object(object, self.spread.servers))
    }

    /// The directory of a server's chunks in the version that is changed.
    pub(crate) fn base_of_server(&self, server: usize) -> Option<PathBuf> {
        Some(self.versions(server).join(self.base.as_ref()?))
    }

    /// Makes a server's directory, and removes all versions that are not kept. Gives the directory.
    ///
    /// # Errors
    /// [`Kind::Missing`] when the directory above the store is missing.
    pub(crate) fn make(&self, server: usize) -> Result<PathBuf> {
        let root = of_server(Path::new(&self.spread.template), server);
        let versions = self.versions(server);
        let parent = root.parent().unwrap_or(&root);
        if !parent.is_dir() {
            let cause = format!("server {server} keeps its chunks below it, and it is not there");
            return Err(Error::new(Kind::Missing, "writing", cause).at(parent));
        }
        let home = self.of_server(server);
        if !home.is_dir() {
            ops::create_dir_all(&home).map_err(|e| Error::io(&e, "making the directory", &home))?;
            for directory in versions.ancestors().take_while(|d| d.starts_with(parent)) {
                files::sync_path(directory)?;
            }
        }
        for entry in files::entries(&versions)? {
            let version = entry.file_name().to_string_lossy().into_owned();
            if version != self.spread.version && !self.keeps.contains(&version) {
                ops::remove_dir_all(&entry.path())
                    .map_err(|e| Error::io(&e, "removing", &entry.path()))?;
            }
        }
        Ok(home)
    }

    /// Checks that server `server` of `servers` reaches its objects, which it is to change in
    /// place, and removes former versions: some of their objects may be links to these.
    ///
    /// # Errors
    /// [`Kind::Schema`] when there are other servers than those that wrote the array;
    /// [`Kind::Missing`] when the server's directory is missing.
    pub(crate) fn take_up(
        &self,
        (server, servers): (usize, usize),
        schema: &DiskSchema,
    ) -> Result<()> {
        self.spread.check_servers(servers)?;
        if servers > self.spread.servers {
            let all = self.spread.servers;
            let cause =
                format!("it is on the disks of {all} servers, and {servers} are to change it");
            let template = Path::new(&self.spread.template);
            return Err(Error::new(Kind::Schema, "changing in place", cause).at(template));
        }
        self.check((server, servers), schema)?;
        if self.of_server(server).is_dir() {
            self.make(server)?;
        }
        Ok(())
    }

    /// Links the objects of the changed version that the server has not written.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn link_rest(&self, server: usize) -> Result<()> {
        match self.base_of_server(server) {
            None => Ok(()),
            Some(base) => link_tree(&base, &self.of_server(server)),
        }
    }

    /// Checks that server `reader` of `readers` can reach all objects that it is to read.
    ///
    /// # Errors
    /// [`Kind::Missing`], naming the directory.
    pub(crate) fn check(
        &self,
        (reader, readers): (usize, usize),
        schema: &DiskSchema,
    ) -> Result<()> {
        let servers = self.spread.servers;
        for object in schema.objects_of(reader, readers).take(servers) {
            let home = self.home(schema, object);
            if !home.is_dir() {
                let server = schema.server_of_object(object, servers);
                let cause = format!(
                    "server {reader} is to read what server {server} of {servers} wrote there, and does not reach \
                     it: open the session with servers={servers}, or gather the store"
                );
                return Err(Error::new(Kind::Missing, "reading", cause).at(&home));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_a_path() {
        let path = Path::new("/nvme{server}/out/run-{server}.zarr");
        assert!(is_template(path));
        assert_eq!(of_server(path, 12), Path::new("/nvme12/out/run-12.zarr"));
        assert!(!is_template(Path::new("/out/{servers}.zarr")));
        assert_eq!(of_server(Path::new("/out"), 3), Path::new("/out"));
    }

    #[test]
    fn what_cannot_be_reached_is_missed() {
        let place = tempfile::tempdir().unwrap();
        let template = place.path().join("disk{server}/s.zarr");
        let array = SpreadArray::new("u", Spread::new(&template, 3));
        assert_eq!(array.make(0).unwrap_err().kind, Kind::Missing);
        for server in 0..2 {
            std::fs::create_dir(place.path().join(format!("disk{server}"))).unwrap();
            array.make(server).unwrap();
        }
        let objects = |count| DiskSchema::chunked(&[count], 1, &[1]).unwrap();
        array.check((1, 3), &objects(9)).unwrap();
        array.check((0, 1), &objects(2)).unwrap();
        let missing = array.check((0, 1), &objects(3)).unwrap_err();
        assert_eq!(missing.kind, Kind::Missing);
    }

    #[test]
    fn versions_that_nobody_needs_go() {
        let place = tempfile::tempdir().unwrap();
        let template = place.path().join("{server}-s.zarr");
        let old = SpreadArray::new("u", Spread::new(&template, 1));
        let home = old.make(0).unwrap();
        let new = SpreadArray {
            keeps: vec![old.spread.version],
            ..SpreadArray::new("u", Spread::new(&template, 1))
        };
        assert!(new.make(0).unwrap().is_dir() && home.is_dir());
        let keeps = Vec::new();
        assert!(SpreadArray { keeps, ..new }.make(0).unwrap().is_dir() && !home.is_dir());
    }

    #[test]
    fn a_store_that_was_moved_is_found_from_within() {
        let mut spread = Spread::new(Path::new("/old{server}/s.zarr"), 2);
        spread.depth = 2;
        spread.move_to(Path::new("/new{server}/t.zarr/checkpoints/7"));
        assert_eq!(spread.template, "/new{server}/t.zarr");
    }
}
