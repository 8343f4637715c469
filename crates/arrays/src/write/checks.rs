//! Checks that an array may go to a path.

use std::path::{Path, PathBuf};

use penstock_bucket::is_url;
use penstock_engine::{Error, Kind, Result};

use crate::formats::hdf5::mark::{Mark, group_of_checkpoints};
use crate::formats::record::{CHECKPOINTS, Record, SavedContents, saved_in};
use crate::formats::sidecar::{self, Sidecar};
use crate::formats::spread::is_template;
use crate::formats::zarr::{self, Node};
use crate::fs::files;

/// Resolves all links in a path, or in its parent if nothing is at the path.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf> {
    if is_template(path) {
        let cause = "this is written to one place: give a path without {server}";
        return Err(Error::new(Kind::Unsupported, "writing", cause).at(path));
    }
    if is_url(path) {
        return Err(not_in_buckets(path));
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

/// The error for a form that a bucket does not hold.
pub(super) fn not_in_buckets(url: &Path) -> Error {
    let cause = "a bucket holds arrays in chunks, written whole: use Chunks or natural chunking";
    Error::new(Kind::Unsupported, "writing", cause).at(url)
}

/// The error for something else at the array's path.
pub(super) fn in_the_way(path: &Path, cause: &str) -> Error {
    Error::new(Kind::Schema, "writing", cause).at(path)
}

/// Checks that an array `name` may go into the group at `path`. Gives whether the group exists.
pub(crate) fn check_group(path: &Path, name: &str) -> Result<bool> {
    check_not_in_checkpoints(path)?;
    let Some(group) = node_at(path, "a Zarr group")? else {
        return Ok(false);
    };
    if group.kind() == zarr::Kind::Array {
        let cause = "it is a Zarr array: give the group that holds it, or another path";
        return Err(in_the_way(path, cause));
    }
    check_not_saved(path, name)?;
    writable(path)?;
    same_file_system(path)?;
    check_array(&path.join(name))?;
    Ok(true)
}

/// Checks that a Zarr array may go to `path`.
pub(crate) fn check_array(path: &Path) -> Result<()> {
    check_not_in_checkpoints(path)?;
    match node_at(path, "a Zarr array")? {
        None => Ok(()),
        Some(node) if node.kind() == zarr::Kind::Array => writable(path),
        Some(_) => Err(in_the_way(path, "it is there, but not a Zarr array")),
    }
}

/// Checks that a Zarr node, with all of its nodes, may go to `path`, and replace any node there.
pub(crate) fn check_node(path: &Path) -> Result<()> {
    if let Some((group, name)) = is_in_group(path)? {
        check_not_saved(&group, &name)?;
    }
    match Node::read(path)? {
        None => check_array(path),
        Some(_) => {
            check_not_in_checkpoints(path)?;
            writable(path)
        }
    }
}

/// The node of Zarr's third format at `path`, to which `wanted` is to go; `None` if nothing or an
/// empty directory is there.
fn node_at(path: &Path, wanted: &str) -> Result<Option<Node>> {
    let Ok(found) = std::fs::metadata(path) else {
        return Ok(None);
    };
    if !found.is_dir() {
        let cause = format!("it is a file, and {wanted} is a directory");
        return Err(in_the_way(path, &cause));
    }
    match Node::read(path)? {
        Some(node) if node.is_second() => {
            let cause =
                "it is of Zarr format 2, to which Penstock does not write: give another path";
            Err(in_the_way(path, cause))
        }
        Some(node) => Ok(Some(node)),
        None if files::is_empty(path)? => Ok(None),
        None => {
            let cause = format!("it is a directory, but not {wanted}");
            Err(in_the_way(path, &cause))
        }
    }
}

/// Checks that the array `name` of `group` is not saved with its group, and that `group` is no
/// checkpoint.
///
/// # Errors
/// [`Kind::Schema`].
pub(crate) fn check_not_saved(group: &Path, name: &str) -> Result<()> {
    let cause = match saved_in(group)? {
        SavedContents::Nothing => return Ok(()),
        SavedContents::Arrays(names) if !names.iter().any(|saved| saved == name) => return Ok(()),
        SavedContents::Arrays(_) => {
            format!("{name:?} is saved with its group: save to it by timestep")
        }
        SavedContents::Checkpoint => "it is a checkpoint: give another path".to_string(),
    };
    Err(in_the_way(group, &cause))
}

/// Checks that `path` is not among the checkpoints of a group.
pub(crate) fn check_not_in_checkpoints(path: &Path) -> Result<()> {
    for directory in path.ancestors() {
        let is_checkpoints = directory
            .file_name()
            .is_some_and(|name| name == CHECKPOINTS);
        let is_of_group = || match directory.parent() {
            Some(group) if is_checkpoints => Ok(Record::read(group)?.is_some()),
            _ => Ok(false),
        };
        let is_of_file = || match group_of_checkpoints(directory) {
            Some(file) => Mark::is_of_group(&file),
            None => Ok(false),
        };
        if is_of_group()? || is_of_file()? {
            let cause = "checkpoints of a group are there: give another path";
            return Err(in_the_way(path, cause));
        }
    }
    Ok(())
}

/// The group that holds an array's directory, and the array's name there.
pub(crate) fn is_in_group(array: &Path) -> Result<Option<(PathBuf, String)>> {
    let (Some(parent), Some(name)) = (array.parent(), array.file_name()) else {
        return Ok(None);
    };
    let node = Node::read(parent)?;
    let is_group = node.is_some_and(|node| !node.is_second() && node.kind() == zarr::Kind::Group);
    let place = || (parent.to_path_buf(), name.to_string_lossy().into_owned());
    Ok(is_group.then(place))
}

/// Checks that a file may go to `path`.
pub(crate) fn check_file(path: &Path, raw: bool) -> Result<()> {
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

/// Checks that a directory of parts of the array `name` may go to `path`.
pub(crate) fn check_parts(path: &Path, name: &str) -> Result<()> {
    let Ok(found) = std::fs::metadata(path) else {
        return Ok(());
    };
    if !found.is_dir() {
        return Err(in_the_way(
            path,
            "it is a file, and parts go to a directory",
        ));
    }
    if files::is_empty(path)? {
        return Ok(());
    }
    let Some(old) = Sidecar::read(&path.join("schema.json"))? else {
        return Err(in_the_way(path, "it is a directory, but not one of parts"));
    };
    if old.array.name != name {
        let cause = format!("it holds the array {:?}: give another path", old.array.name);
        return Err(in_the_way(path, &cause));
    }
    for entry in files::entries(path)? {
        let file = entry.file_name();
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

pub(super) fn writable(path: &Path) -> Result<()> {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK)
        .map_err(|e| Error::io(&e.into(), "writing", path))
}

/// Checks that a group is no mount point: such a group has no place beside it from which to rename.
pub(crate) fn same_file_system(group: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
    if group.parent().and_then(device) == device(group) {
        return Ok(());
    }
    let cause = "it is a file system of its own: give a group in a directory of it";
    Err(Error::new(Kind::Unsupported, "writing", cause).at(group))
}
