//! What stands where an array is to go, and whether it may.

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use serde_json::Value;

use super::file::{self, read_if_there};
use super::sidecar::{self, Sidecar};
use super::spread::is_template;

/// The path with no link in it that could lead to another file system, and its parent there.
pub(super) fn resolve(path: &Path) -> Result<PathBuf> {
    if is_template(path) {
        let cause = "this is written to one place: give a path without {server}";
        return Err(Error::new(Kind::Unsupported, "writing", cause).at(path));
    }
    let failed = |e: std::io::Error, path: &Path| Error::io(&e, "looking for", path);
    let path = std::path::absolute(path).map_err(|e| failed(e, path))?;
    let resolved = if std::fs::symlink_metadata(&path).is_ok() {
        std::fs::canonicalize(&path).map_err(|e| failed(e, &path))?
    } else {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::new(Kind::Schema, "writing", "the path names no file").at(&path));
        };
        let parent = std::fs::canonicalize(parent).map_err(|e| {
            let error = Error::io(&e, "looking for the parent directory", parent);
            let cause = format!("{} (it must exist before {} is written)", e, path.display());
            Error { cause, ..error }
        })?;
        parent.join(name)
    };
    if resolved.to_str().is_none() {
        let cause = "the path is not valid UTF-8";
        return Err(Error::new(Kind::Unsupported, "writing", cause).at(&resolved));
    }
    Ok(resolved)
}

/// Something else stands where the array is to go.
fn in_the_way(path: &Path, cause: &str) -> Error {
    Error::new(Kind::Schema, "writing", cause).at(path)
}

/// Whether a Zarr group stands at `path`, into which chunks of a new array `name` may be put.
pub(super) fn check_chunks(path: &Path, name: &str) -> Result<bool> {
    check_not_within_saved(path)?;
    let there = check_group(path, name)?;
    if there {
        same_file_system(path)?;
    }
    Ok(there)
}

/// Whether a Zarr group stands at `path`, into which an array `name` may be put.
pub(super) fn check_group(path: &Path, name: &str) -> Result<bool> {
    let Ok(found) = std::fs::metadata(path) else {
        return Ok(false);
    };
    if !found.is_dir() {
        return Err(in_the_way(
            path,
            "it is a file, and a Zarr group is a directory",
        ));
    }
    if is_empty(path)? {
        return Ok(false);
    }
    match node_type(path)?.as_deref() {
        Some("group") => check_not_saved(path)?,
        Some("array") => {
            let cause = "it is a Zarr array: give the group that holds it, or another path";
            return Err(in_the_way(path, cause));
        }
        Some(other) => return Err(in_the_way(path, &format!("it is {other}"))),
        None => return Err(in_the_way(path, "it is a directory, but not a Zarr group")),
    }
    writable(path)?;
    let array = path.join(name);
    if std::fs::symlink_metadata(&array).is_err() {
        return Ok(true);
    }
    if node_type(&array)?.as_deref() != Some("array") && !(array.is_dir() && is_empty(&array)?) {
        return Err(in_the_way(&array, "it is there, but not a Zarr array"));
    }
    writable(&array)?;
    Ok(true)
}

/// Arrays that are saved together are not written one by one.
pub(super) fn check_not_saved(group: &Path) -> Result<()> {
    let json = file::read_if_there(&group.join("zarr.json"))?.unwrap_or_default();
    let json: Value = serde_json::from_slice(&json).unwrap_or_default();
    if json["attributes"]["penstock"].is_null() {
        return Ok(());
    }
    let cause = "it is a group with timesteps, or a checkpoint of one: save to it by timestep and \
                 checkpoint, or give another path";
    Err(in_the_way(group, cause))
}

/// Nothing is made within groups of such arrays: consolidated metadata would have to go, and those of a group
/// with timesteps are what says which there are.
fn check_not_within_saved(path: &Path) -> Result<()> {
    let above = path.ancestors().skip(1);
    let mut groups = above.take_while(|group| group.join("zarr.json").exists());
    groups.try_for_each(check_not_saved)
}

/// The group in which an array's directory is, and its name there.
pub(super) fn is_in_group(array: &Path) -> Result<Option<(PathBuf, String)>> {
    let (Some(parent), Some(name)) = (array.parent(), array.file_name()) else {
        return Ok(None);
    };
    let is_group = node_type(parent)?.as_deref() == Some("group");
    let place = || (parent.to_path_buf(), name.to_string_lossy().into_owned());
    Ok(is_group.then(place))
}

/// What Zarr says a directory is: `array`, `group`, a thing of the second format, or nothing.
fn node_type(directory: &Path) -> Result<Option<String>> {
    let file = directory.join("zarr.json");
    if let Some(bytes) = read_if_there(&file)? {
        let json: Value = serde_json::from_slice(&bytes)
            .map_err(|e| file::damaged(&file, format!("it is not JSON: {e}")))?;
        let node_type = json["node_type"].as_str();
        let cause = "it has no \"node_type\"";
        return Ok(Some(
            node_type
                .ok_or_else(|| file::damaged(&file, cause))?
                .to_string(),
        ));
    }
    let second = [".zgroup", ".zarray"]
        .iter()
        .any(|name| directory.join(name).exists());
    let what = "of Zarr format 2, to which Penstock does not write: give another path";
    Ok(second.then(|| what.to_string()))
}

/// Whether a file may be put at `path`.
pub(super) fn check_file(path: &Path, raw: bool) -> Result<()> {
    if let Ok(found) = std::fs::metadata(path) {
        if !found.is_file() {
            return Err(in_the_way(path, "it is a directory or device, not a file"));
        }
        writable(path)?;
    }
    let sidecar = sidecar::beside(path);
    let theirs = || !matches!(Sidecar::read(&sidecar), Ok(Some(_)));
    if raw && std::fs::symlink_metadata(&sidecar).is_ok() && theirs() {
        let cause = "the schema of the raw file is to go there, and something else is there";
        return Err(in_the_way(&sidecar, cause));
    }
    Ok(())
}

/// Whether a directory of parts of the array `name` may be put at `path`.
pub(super) fn check_parts(path: &Path, name: &str) -> Result<()> {
    let Ok(found) = std::fs::metadata(path) else {
        return Ok(());
    };
    if !found.is_dir() {
        return Err(in_the_way(
            path,
            "it is a file, and parts go to a directory",
        ));
    }
    if is_empty(path)? {
        return Ok(());
    }
    let Some(old) = Sidecar::read(&path.join("schema.json"))? else {
        return Err(in_the_way(path, "it is a directory, but not one of parts"));
    };
    if old.array.name != name {
        let cause = format!("it holds the array {:?}: give another path", old.array.name);
        return Err(in_the_way(path, &cause));
    }
    let looking = |e: std::io::Error| Error::io(&e, "looking into", path);
    for entry in std::fs::read_dir(path).map_err(looking)? {
        let file = entry.map_err(looking)?.file_name();
        let file = file.to_string_lossy();
        let number = file
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('.'));
        let part = number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        if !part && file != "schema.json" {
            let cause = format!("besides parts it holds {file:?}, which would be lost");
            return Err(in_the_way(path, &cause));
        }
    }
    writable(path)
}

fn is_empty(directory: &Path) -> Result<bool> {
    let entries = std::fs::read_dir(directory);
    let mut entries = entries.map_err(|e| Error::io(&e, "looking into", directory))?;
    Ok(entries.next().is_none())
}

fn writable(path: &Path) -> Result<()> {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK)
        .map_err(|e| Error::io(&e.into(), "writing", path))
}

/// A group that is a mount point has no place beside it from which to rename.
pub(super) fn same_file_system(group: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
    if group.parent().and_then(device) == device(group) {
        return Ok(());
    }
    let cause = "it is a file system of its own: give a group in a directory of it";
    Err(Error::new(Kind::Unsupported, "writing", cause).at(group))
}
