//! The outcome of a check.

/// The result of a check that has not failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The subject works: what is worth knowing of it.
    Works(String),
    /// The machine lacks the subject, which is optional: why, what follows, and what to do.
    Lacks(String),
}
