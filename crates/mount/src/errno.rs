//! Errors as the numbers that programs know.

use fuser::Errno;
use penstock_engine::{Error, Kind};
use penstock_files::FilePath;

/// The result of a request.
pub(crate) type Answer<T> = Result<T, Errno>;

/// The number of an error, where nothing more is known than its kind.
pub(crate) fn of(error: &Error) -> Errno {
    match error.kind {
        Kind::Missing => Errno::ENOENT,
        Kind::Exists => Errno::EEXIST,
        Kind::ReadOnly => Errno::EACCES,
        Kind::Full => Errno::ENOSPC,
        Kind::Busy => Errno::EBUSY,
        Kind::Schema | Kind::Mismatch | Kind::Overlap => Errno::EINVAL,
        Kind::Unsupported => Errno::EOPNOTSUPP,
        Kind::Damaged | Kind::Peer | Kind::Io => Errno::EIO,
    }
}

/// The number of an error of an operation on a directory that must have no entries.
pub(crate) fn of_removal(error: &Error) -> Errno {
    match error.kind {
        Kind::Exists => Errno::ENOTEMPTY,
        _ => of(error),
    }
}

/// The number of an error of an access to data.
pub(crate) fn of_access(error: &Error) -> Errno {
    match error.kind {
        Kind::Missing => Errno::ESTALE, // the file was removed by somebody else
        Kind::Schema => Errno::EFBIG,   // only an offset can be wrong
        _ => of(error),
    }
}

/// The error for a path at which there is nothing.
pub(crate) fn gone(path: &FilePath) -> Error {
    let mut error = Error::new(Kind::Missing, "looking for", "there is nothing");
    error.path = Some(path.to_string());
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_number() {
        let error = |kind| Error::new(kind, "testing", "");
        assert_eq!(of(&error(Kind::Full)), Errno::ENOSPC);
        assert_eq!(of_removal(&error(Kind::Exists)), Errno::ENOTEMPTY);
        assert_eq!(of_access(&error(Kind::Schema)), Errno::EFBIG);
    }
}
