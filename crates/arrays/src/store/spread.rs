//! A store of which each server has a part, on disks of its own.
//!
//! A path with `{server}` in it is one directory a server: `/nvme{server}/out/run.zarr`. Chunks are dealt out to
//! the servers in turn, as ever, and each keeps its own:
//!
//! ```text
//! /nvme0/out/run.zarr/                      a Zarr group with all metadata, as if it were whole
//!   u/zarr.json                             its attribute "penstock_spread" says how it is spread
//! /nvme0/out/run.zarr.parts/u/<version>/c/  chunks 0, N, 2 N, ...
//! /nvme1/out/run.zarr.parts/u/<version>/c/  chunks 1, N + 1, ...
//! ```
//!
//! Nobody can rename on several disks at once. So each write puts its chunks under a version of its own, and what
//! makes it the array is that server 0's metadata name the version: they come into place by one rename. The
//! version before stays until the next write, which removes it, and remains of writes that were killed.
//!
//! A server may be the only one that reaches its disk. A reading server looks for the directories that it needs
//! before it reads, since a chunk that is not there would read as zeros.

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::pending::make_directory;
use super::{change, file};

/// What stands for a server's number in a path.
const MARK: &str = "{server}";

/// How the chunks of an array are spread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spread {
    /// The group's directory, with `{server}` in it.
    pub(super) template: String,
    /// Number of servers that wrote it.
    pub(super) servers: usize,
    /// The directory of its chunks.
    pub(super) version: String,
}

/// Whether the path is one a server.
pub fn is_template(path: &Path) -> bool {
    path.to_string_lossy().contains(MARK)
}

/// The path of one server; a path that is the same for all is that.
pub fn of_server(path: &Path, server: usize) -> PathBuf {
    match is_template(path) {
        true => PathBuf::from(path.to_string_lossy().replace(MARK, &server.to_string())),
        false => path.to_path_buf(),
    }
}

/// Where the chunks of a store's arrays are that a server has.
pub(super) fn parts_of(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_os_string();
    name.push(".parts");
    PathBuf::from(name)
}

impl Spread {
    /// Where the chunks of an array are that a server has.
    pub(super) fn home(&self, array: &str, server: usize) -> PathBuf {
        self.all_versions(array, server).join(&self.version)
    }

    fn all_versions(&self, array: &str, server: usize) -> PathBuf {
        parts_of(&of_server(Path::new(&self.template), server)).join(array)
    }

    /// Makes a server's directory, and removes those of other versions but `former`.
    ///
    /// # Errors
    /// [`Kind::Missing`] when the directory above the store is not there.
    pub(super) fn make(&self, array: &str, server: usize, former: Option<&str>) -> Result<()> {
        let root = of_server(Path::new(&self.template), server);
        let versions = self.all_versions(array, server);
        let parent = root.parent().unwrap_or(&root);
        if !parent.is_dir() {
            let cause = format!("server {server} keeps its chunks below it, and it is not there");
            return Err(Error::new(Kind::Missing, "writing", cause).at(parent));
        }
        change::create_dir_all(&versions)
            .map_err(|e| Error::io(&e, "making the directory", &versions))?;
        let looking = |e: std::io::Error| Error::io(&e, "looking into", &versions);
        for entry in std::fs::read_dir(&versions).map_err(looking)? {
            let entry = entry.map_err(looking)?;
            if Some(entry.file_name().to_string_lossy().as_ref()) != former {
                change::remove_dir_all(&entry.path())
                    .map_err(|e| Error::io(&e, "removing", &entry.path()))?;
            }
        }
        make_directory(&self.home(array, server))?;
        for directory in versions.ancestors().take_while(|d| d.starts_with(parent)) {
            file::sync_path(directory)?;
        }
        Ok(())
    }

    /// Sees that what `reader` of `readers` servers is to read can be reached, of so many objects.
    ///
    /// # Errors
    /// [`Kind::Missing`], naming the directory.
    pub(super) fn check(
        &self,
        array: &str,
        (reader, readers): (usize, usize),
        objects: u64,
    ) -> Result<()> {
        let own = (reader as u64..objects).step_by(readers.max(1));
        for server in own
            .take(self.servers)
            .map(|object| object as usize % self.servers)
        {
            let home = self.home(array, server);
            if !home.is_dir() {
                let cause = format!(
                    "server {reader} is to read what server {server} of {} wrote there, and does not reach it: \
                     open the session with servers={0}, or gather the store",
                    self.servers
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
        let spread = Spread {
            template: template.to_string_lossy().into_owned(),
            servers: 3,
            version: "v".to_string(),
        };
        assert_eq!(spread.make("u", 0, None).unwrap_err().kind, Kind::Missing);
        for server in 0..2 {
            std::fs::create_dir(place.path().join(format!("disk{server}"))).unwrap();
            spread.make("u", server, None).unwrap();
        }
        spread.check("u", (1, 3), 9).unwrap();
        spread.check("u", (0, 1), 2).unwrap();
        assert_eq!(
            spread.check("u", (0, 1), 3).unwrap_err().kind,
            Kind::Missing
        );
        let next = Spread {
            version: "w".to_string(),
            ..spread.clone()
        };
        next.make("u", 0, Some("v")).unwrap();
        assert!(spread.home("u", 0).is_dir() && next.home("u", 0).is_dir());
        next.make("u", 0, None).unwrap();
        assert!(!spread.home("u", 0).is_dir());
    }
}
