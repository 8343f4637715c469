//! The errors of traces.

use std::path::Path;

use penstock_engine::{Error, Kind};

/// The action that errors of this crate name.
pub(crate) const DOING: &str = "the trace";

/// A trace could not be made or read, for this cause.
pub(crate) fn failed(path: &Path, cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Io, DOING, cause).at(path)
}
