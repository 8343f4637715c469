//! Failures of MPI-IO calls: an error class of the standard, and a text that says what was wrong,
//! where, and what to do.

use std::ffi::c_int;
use std::fmt;
use std::path::Path;

use penstock_engine::{Error, Kind};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The error classes that calls of MPI-IO end with (MPI 5.0, section 14.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    /// Permission denied.
    Access,
    /// An access mode that is none, or does not allow the call.
    Amode,
    /// An argument that makes no sense.
    Arg,
    /// A file name that is too long or otherwise none.
    BadFile,
    /// A buffer that is none.
    Buffer,
    /// A communicator that is none.
    Comm,
    /// A data conversion function has failed.
    Conversion,
    /// A count that is none.
    Count,
    /// A data representation of that name is registered already.
    DupDatarep,
    /// A handle that is no error handler.
    Errhandler,
    /// A file handle that is none.
    File,
    /// The file is there already.
    FileExists,
    /// The file is open elsewhere.
    FileInUse,
    /// The ranks of a collective call asked for different things.
    NotSame,
    /// No space is left.
    NoSpace,
    /// No memory is left.
    NoMem,
    /// There is no such file.
    NoSuchFile,
    /// A value of a hint that makes no sense.
    InfoValue,
    /// Any other failure of the disk or the operating system.
    Io,
    /// Something is wrong in Penstock, or another rank is gone.
    Other,
    /// The quota is used up.
    Quota,
    /// The file, or its file system, can only be read.
    ReadOnly,
    /// A request that is none, or is under way already.
    Request,
    /// A datatype that is none, or cannot be used so.
    Type,
    /// A data representation that nobody has registered.
    UnsupportedDatarep,
    /// The file does not allow this operation.
    UnsupportedOperation,
    /// A value that does not fit its type.
    ValueTooLarge,
}

impl Class {
    /// The number of the class in MPICH's ABI, in Open MPI's, and in the standard ABI. A class that
    /// an ABI lacks has the number of one that is near.
    pub fn numbers(self) -> [c_int; 3] {
        match self {
            Self::Access => [20, 20, 20],
            Self::Amode => [21, 21, 21],
            Self::Arg => [12, 13, 13],
            Self::BadFile => [22, 23, 23],
            Self::Buffer => [1, 1, 1],
            Self::Comm => [5, 5, 5],
            Self::Conversion => [23, 25, 25],
            Self::Count => [2, 2, 2],
            Self::DupDatarep => [24, 27, 27],
            Self::Errhandler => [80, 13, 61],
            Self::File => [27, 30, 30],
            Self::FileExists => [25, 28, 28],
            Self::FileInUse => [26, 29, 29],
            Self::NotSame => [35, 40, 40],
            Self::NoSpace => [36, 41, 41],
            Self::NoMem => [34, 39, 39],
            Self::NoSuchFile => [37, 42, 42],
            Self::InfoValue => [30, 33, 33],
            Self::Io => [32, 35, 35],
            Self::Other => [15, 16, 16],
            Self::Quota => [39, 44, 44],
            Self::ReadOnly => [40, 45, 45],
            Self::Request => [19, 7, 7],
            Self::Type => [3, 3, 3],
            Self::UnsupportedDatarep => [43, 51, 54],
            Self::UnsupportedOperation => [44, 52, 55],
            Self::ValueTooLarge => [77, 79, 59],
        }
    }

    /// The class of an answer of the operating system.
    fn of_os(error: Errno) -> Self {
        match error {
            Errno::ACCESS | Errno::PERM => Self::Access,
            Errno::NOENT => Self::NoSuchFile,
            Errno::EXIST => Self::FileExists,
            Errno::ROFS => Self::ReadOnly,
            Errno::NOSPC | Errno::FBIG => Self::NoSpace,
            Errno::DQUOT => Self::Quota,
            Errno::NAMETOOLONG | Errno::ISDIR | Errno::NOTDIR | Errno::LOOP => Self::BadFile,
            Errno::TXTBSY | Errno::BUSY => Self::FileInUse,
            Errno::NOMEM => Self::NoMem,
            _ => Self::Io,
        }
    }
}

/// A failure is why a call has failed: the same on all ranks of a collective call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    /// The error class.
    pub class: Class,
    /// What was being done to what, and the cause.
    pub text: String,
}

/// The result of a call, or of a part of one.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Makes a failure.
    pub fn new(class: Class, text: impl fmt::Display) -> Self {
        Self {
            class,
            text: text.to_string(),
        }
    }

    /// Makes a failure from the answer of the operating system.
    pub fn os(error: Errno, doing: &str, path: &Path) -> Self {
        let why = std::io::Error::from(error);
        let text = format_args!("{doing} {}: {why}", path.display());
        Self::new(Class::of_os(error), text)
    }

    /// The failure with the rank that has met it.
    #[must_use]
    pub fn by_rank(self, rank: usize) -> Self {
        let text = format!("rank {rank}: {}", self.text);
        Self { text, ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Error> for Failure {
    /// The failure of a call that the engine has ended.
    fn from(error: Error) -> Self {
        let class = match (error.kind, error.os) {
            (Kind::Peer, _) => Class::Other,
            (_, Some(number)) => Class::of_os(Errno::from_raw_os_error(number.get())),
            (Kind::Schema | Kind::Overlap, _) => Class::Arg,
            (Kind::Mismatch, _) => Class::NotSame,
            (Kind::Missing, _) => Class::NoSuchFile,
            (Kind::ReadOnly, _) => Class::Access,
            (Kind::Full, _) => Class::NoSpace,
            (Kind::Busy, _) => Class::FileInUse,
            (Kind::Exists, _) => Class::FileExists,
            (Kind::Unsupported, _) => Class::UnsupportedOperation,
            (Kind::Damaged | Kind::Io, _) => Class::Io,
        };
        Self::new(class, error)
    }
}

/// A failure of an argument.
pub fn wrong(class: Class, text: impl fmt::Display) -> Failure {
    Failure::new(class, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_answers_have_classes() {
        let cases = [
            (Errno::NOENT, Class::NoSuchFile),
            (Errno::ACCESS, Class::Access),
            (Errno::ROFS, Class::ReadOnly),
            (Errno::NOSPC, Class::NoSpace),
            (Errno::DQUOT, Class::Quota),
            (Errno::IO, Class::Io),
        ];
        for (error, class) in cases {
            let failure = Failure::os(error, "opening", Path::new("/x"));
            assert_eq!(failure.class, class);
            assert!(failure.text.starts_with("opening /x: "), "{failure}");
        }
    }
}
