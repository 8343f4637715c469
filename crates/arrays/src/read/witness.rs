//! Notices that what is being read was replaced meanwhile.
//!
//! A write replaces a file or an array's directory by a rename, and every server of a read opens
//! the path for itself. One that opened the old file and one that opened the new would together
//! give a mixture, and a chunk of a directory that is being removed looks as if it had never been
//! written. So whoever directs a read looks before and after: the same file must stand there.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};

/// Device and number of a file, if there is one.
type Identity = Option<(u64, u64)>;

/// What stood at a path, and in the array of a group there, when a read began.
pub struct Witness(Vec<(PathBuf, Identity)>);

impl Witness {
    /// Looks at `path`, and at the array `name` in it. To be done before anything is opened.
    pub fn of(path: &Path, name: &str) -> Self {
        Self::of_all([path.to_path_buf(), path.join(name)])
    }

    /// Looks at several paths.
    pub fn of_all(paths: [PathBuf; 2]) -> Self {
        Self(
            paths
                .into_iter()
                .map(|path| (path.clone(), identity(&path)))
                .collect(),
        )
    }

    /// Looks again.
    ///
    /// # Errors
    /// [`Kind::Busy`] when something else stands there now: what was read may be a mixture.
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
    std::fs::metadata(path)
        .ok()
        .map(|meta| (meta.dev(), meta.ino()))
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
