//! Notices that an array was replaced while it was read.
//!
//! A write replaces a file or an array's directory by a rename, and every server of a read opens
//! the path for itself. Servers that opened the old file and the new would together give a mixture,
//! and a chunk of a directory that is being removed looks as if it had never been written. So the
//! rank that directs a read looks before and after: the same file must be there. It keeps the file
//! open in between, since a file system may give the number of one that is gone to another.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use penstock_bucket::{About, Place, is_in_repository, is_url};
use penstock_engine::{Error, Kind, Result};

/// What tells one file at a path from the next, if there is one. A state of a repository does not
/// change while it is read.
type Identity = Option<Mark>;

#[derive(Debug, PartialEq, Eq)]
enum Mark {
    /// The device and number of a file.
    File(u64, u64),
    /// What is known of the metadata in a bucket: services that tell versions by their content
    /// tell equal ones by the time of the put.
    Object(About),
}

impl Mark {
    fn of_file(meta: &Metadata) -> Self {
        Self::File(meta.dev(), meta.ino())
    }
}

/// A path when a read began.
struct Seen {
    path: PathBuf,
    identity: Identity,
    _held: Option<File>,
}

impl Seen {
    fn new(path: PathBuf) -> Self {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_PATH);
        let held = match is_in_repository(&path) || is_url(&path) {
            true => None,
            false => options.open(&path).ok(),
        };
        let of_held = held.as_ref().and_then(|file| file.metadata().ok());
        let identity = match of_held {
            Some(meta) => Some(Mark::of_file(&meta)),
            None => identity(&path),
        };
        Self {
            path,
            identity,
            _held: held,
        }
    }
}

/// The identities of a path, and of an array in it, when a read began.
pub struct Witness(Vec<Seen>);

impl Witness {
    /// Notes the identities of `path`, and of the array `name` in it. This comes before anything is
    /// opened.
    pub fn of(path: &Path, name: &str) -> Self {
        Self::of_all([path.to_path_buf(), path.join(name)])
    }

    /// Notes the identities of paths.
    pub fn of_all(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(paths.into_iter().map(Seen::new).collect())
    }

    /// Checks that the paths have the same identities as before.
    ///
    /// # Errors
    /// [`Kind::Busy`] when a path was replaced: the read may be a mixture.
    pub fn check(&self) -> Result<()> {
        for seen in &self.0 {
            if seen.identity.is_some() && seen.identity != identity(&seen.path) {
                let cause = "it was replaced meanwhile: read it again";
                return Err(Error::new(Kind::Busy, "reading", cause).at(&seen.path));
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
        return Some(Mark::Object(place.about().ok()??));
    }
    std::fs::metadata(path)
        .ok()
        .map(|meta| Mark::of_file(&meta))
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

    /// Many file systems give the number of the file that was replaced first to the last.
    #[test]
    fn a_file_that_was_replaced_twice_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("u"), directory.path().join("v"));
        std::fs::write(&path, "old").unwrap();
        let witness = Witness::of(&path, "u");
        for new in ["newer", "newest"] {
            std::fs::write(&other, new).unwrap();
            std::fs::rename(&other, &path).unwrap();
        }
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
