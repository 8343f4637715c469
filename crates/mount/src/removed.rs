//! Objects that were removed while they were open: they stay in a directory of the root, which a
//! mount does not show, until they are closed.

use penstock_engine::{Kind, Result};
use penstock_files::job::FileSystem;
use penstock_files::{FilePath, ObjectId};

/// The name of the directory in the root.
const DIRECTORY: &str = ".penstock-removed";

/// The mode of the directory.
pub(crate) const MODE: u16 = 0o700;

fn directory() -> Result<FilePath> {
    FilePath::root().join(DIRECTORY)
}

/// The directory, and the path of an object in it.
pub(crate) fn path_of(id: ObjectId) -> Result<(FilePath, FilePath)> {
    let directory = directory()?;
    let path = directory.join(&format!("{:x}", id.0))?;
    Ok((directory, path))
}

/// Whether a path names the directory.
pub(crate) fn is_directory(path: &FilePath) -> bool {
    is_hidden(path.parent().as_ref(), path.name())
}

/// Whether a mount does not show this name in a directory.
pub(crate) fn is_hidden(parent: Option<&FilePath>, name: &str) -> bool {
    parent == Some(&FilePath::root()) && name == DIRECTORY
}

/// Removes what mounts have left that did not end by themselves: what nobody has open any more.
///
/// # Errors
/// Those of the volume.
pub fn clear(fs: &FileSystem) -> Result<()> {
    let directory = directory()?;
    let left = match fs.list(directory.clone()) {
        Err(error) if error.kind == Kind::Missing => return Ok(()),
        left => left?,
    };
    for (name, _) in left {
        let path = directory.join(&name)?;
        let removed = match fs.status(path.clone()) {
            Ok(users) if users.is_empty() => fs.remove(path),
            other => other.map(drop),
        };
        match removed {
            Err(error) if error.kind == Kind::Missing => {} // another mount has been faster
            removed => removed?,
        }
    }
    match fs.remove(directory) {
        Err(error) if matches!(error.kind, Kind::Exists | Kind::Missing) => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_is_not_shown() {
        let path = |text| FilePath::new(text).unwrap();
        assert!(is_directory(&path("/.penstock-removed")));
        assert!(!is_directory(&path("/d/.penstock-removed")) && !is_directory(&path("/")));
        let (directory, object) = path_of(ObjectId(17)).unwrap();
        assert!(object.is_below(&directory));
    }
}
