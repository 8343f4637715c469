//! What an error of an object store means.

use std::error::Error as _;
use std::fmt;
use std::ops::Range;

use object_store::Error as Failure;
use penstock_engine::{Error, Kind};

/// The error of the store, as one of Penstock; its caller adds the place.
pub(crate) fn error(failure: &Failure, doing: &str) -> Error {
    if let Failure::Generic { source, .. } = failure
        && let Some(Told(error)) = source.downcast_ref()
    {
        return error.clone();
    }
    Error::new(kind(failure), doing, cause(failure))
}

fn kind(failure: &Failure) -> Kind {
    match failure {
        Failure::NotFound { .. } => Kind::Missing,
        Failure::AlreadyExists { .. } => Kind::Exists,
        Failure::Precondition { .. } => Kind::Busy,
        Failure::PermissionDenied { .. } | Failure::Unauthenticated { .. } => Kind::ReadOnly,
        failure if is_wrong_length(failure) => Kind::Damaged,
        Failure::InvalidPath { .. } | Failure::UnknownConfigurationKey { .. } => Kind::Schema,
        Failure::NotSupported { .. } | Failure::NotImplemented { .. } => Kind::Unsupported,
        _ => Kind::Io,
    }
}

/// The failure and the failures behind it, each said once.
fn cause(failure: &Failure) -> String {
    let mut said = failure.to_string();
    let mut behind = failure.source();
    while let Some(next) = behind {
        let text = next.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        behind = next.source();
    }
    said
}

/// Whether a failure says that there is no such object.
pub(crate) fn is_missing(failure: &Failure) -> bool {
    matches!(failure, Failure::NotFound { .. })
}

/// Whether a put was refused because its condition is not met.
pub(crate) fn is_condition(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::AlreadyExists { .. } | Failure::Precondition { .. }
    )
}

/// An object that ends too early.
#[derive(Debug)]
struct WrongLength {
    range: Range<u64>,
    found: usize,
}

impl fmt::Display for WrongLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.range;
        write!(
            f,
            "bytes {start} to {end} were asked for, and {} came",
            self.found
        )
    }
}

impl std::error::Error for WrongLength {}

/// The failure of a read of `range` that has given `found` bytes.
pub(crate) fn wrong_length(range: Range<u64>, found: usize) -> Failure {
    Failure::Generic {
        store: "bucket",
        source: Box::new(WrongLength { range, found }),
    }
}

/// Whether a failure is one of [`wrong_length`].
pub(crate) fn is_wrong_length(failure: &Failure) -> bool {
    matches!(failure, Failure::Generic { source, .. } if source.is::<WrongLength>())
}

/// The error of a repository.
#[derive(Debug)]
struct Told(Error);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Told {}

/// The failure of a repository that gives this error.
pub(crate) fn told(error: Error) -> Failure {
    Failure::Generic {
        store: "repository",
        source: Box::new(Told(error)),
    }
}

/// Whether a failure is that of a repository, which makes a request again by itself.
fn is_told(failure: &Failure) -> bool {
    matches!(failure, Failure::Generic { source, .. } if source.is::<Told>())
}

/// Whether a request may succeed if it is made again.
pub(crate) fn may_pass(failure: &Failure) -> bool {
    matches!(failure, Failure::Generic { .. } | Failure::JoinError { .. })
        && !is_wrong_length(failure)
        && !is_told(failure)
}
