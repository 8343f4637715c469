//! Errors in a description of hardware.

use thiserror::Error;

/// An error in a description that no hardware fits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{part}: {what}")]
pub struct ParameterError {
    /// The name of a device, or the kind of network.
    pub part: String,
    /// The mistake, with the numbers.
    pub what: String,
}

/// A check makes errors that name their part.
pub(crate) struct Check<'a> {
    pub(crate) part: &'a str,
}

impl Check<'_> {
    /// Returns an error with `what` unless `holds`.
    pub(crate) fn that(
        &self,
        holds: bool,
        what: impl FnOnce() -> String,
    ) -> Result<(), ParameterError> {
        match holds {
            true => Ok(()),
            false => Err(ParameterError {
                part: self.part.into(),
                what: what(),
            }),
        }
    }

    /// Returns an error unless `count` is at least 1.
    pub(crate) fn positive(&self, what: &str, count: u64) -> Result<(), ParameterError> {
        self.that(count > 0, || format!("{what} is 0"))
    }

    /// Returns an error unless `length` of time is a number from 0 up to a million.
    pub(crate) fn duration(&self, what: &str, length: f64) -> Result<(), ParameterError> {
        self.that((0.0..1e6).contains(&length), || {
            format!("{what} is {length}")
        })
    }
}
