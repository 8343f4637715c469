//! Notices that an array was replaced while it was read.
//!
//! A write replaces a file or an array's directory by a rename, and every server of a read opens
//! the path for itself. Servers that opened the old file and the new would together give a mixture,
//! and a chunk of a directory that is being removed looks as if it had never been written. So the
//! rank that directs a read looks before and after: the same file must be there.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use penstock_bucket::{Place, Version, is_in_repository, is_url};
use penstock_engine::{Error, Kind, Result};

/// What tells one file at a path from the next, if there is one. A state of a repository does not
/// change while it is read.
type Identity = Option<Mark>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Mark {
    /// The device and number of a file.
    File(u64, u64),
    /// The version of the metadata in a bucket.
    Object(Version),
}

/// The identities of a path, and of an array in it, when a read began.
pub struct Witness(Vec<(PathBuf, Identity)>);

impl Witness {
    /// Notes the identities of `path`, and of the array `name` in it. This comes before anything is
    /// opened.
    pub fn of(path: &Path, name: &str) -> Self {
        Self::of_all([path.to_path_buf(), path.join(name)])
    }

    /// Notes the identities of paths.
    pub fn of_all(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(
            paths
                .into_iter()
                .map(|path| (path.clone(), identity(&path)))
                .collect(),
        )
    }

    /// Checks that the paths have the same identities as before.
    ///
    /// # Errors
    /// [`Kind::Busy`] when a path was replaced: the read may be a mixture.
    pub fn check(&self) -> Result<()> {
        for (path, before) in &self.0 {
            if before.is_some() && *before != identity(path) {
                let cause = "it was replaced meanwhile: read it again";
                return Err(Error::new(Kind::Busy, "reading", cause).at(path));
            }
        }
        Ok(())
    }
}

fn identity(path: &Path) -> Identity {
    if is_in_repository(path) {
        return None;
    }
    if is_url(path) {
        let place = Place::of(&path.join("zarr.json")).ok()??;
        let about = place.about().ok()??;
        return Some(Mark::Object(about.version));
    }
    let meta = std::fs::metadata(path).ok()?;
    Some(Mark::File(meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("u"), directory.path().join("v"));
        std::fs::write(&path, "old").unwrap();
        let witness = Witness::of(&path, "u");
        witness.check().unwrap();
        std::fs::write(&path, "written to in place").unwrap();
        witness.check().unwrap();
        std::fs::write(&other, "new").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(witness.check().unwrap_err().kind, Kind::Busy);
    }

    #[test]
    fn what_was_not_there_is_no_concern() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("u");
        let witness = Witness::of(&path, "u");
        std::fs::write(&path, "new").unwrap();
        witness.check().unwrap();
    }
}
