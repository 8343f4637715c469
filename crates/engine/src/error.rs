//! What the world does wrong, as a value that travels through the protocol to every rank.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// What sort of thing went wrong: the same word in Rust, Python and C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A schema, shape, element type, mesh or option that does not fit.
    Schema,
    /// The ranks of one collective call asked for different things.
    Mismatch,
    /// Shares that must be disjoint overlap.
    Overlap,
    /// A store, array or file that is not there.
    Missing,
    /// A store that is there but cannot be understood: truncated, corrupt, inconsistent.
    Damaged,
    /// No permission to write (or read) there.
    ReadOnly,
    /// No space left.
    Full,
    /// Another job is writing the same target.
    Busy,
    /// Another rank left the session or failed outside of a collective call.
    Peer,
    /// Something that the format allows and Penstock does not do.
    Unsupported,
    /// Any other failure of a disk or the operating system.
    Io,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Who met the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Who {
    /// A client, by its rank.
    Rank(usize),
    /// An I/O server, by its number.
    Server(usize),
}

/// Which server or rank was doing what to which bytes of what, and why that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Error {
    /// What sort of thing went wrong.
    pub kind: Kind,
    /// Who met it, where that is known.
    pub who: Option<Who>,
    /// What was being done, as in "writing chunk 3.0.1".
    pub doing: String,
    /// To which file or directory.
    pub path: Option<String>,
    /// To which bytes of it.
    pub bytes: Option<Range<u64>>,
    /// The cause, and what to do about it where that is known.
    pub cause: String,
}

impl Error {
    /// An error of `kind` met while `doing`, because of `cause`.
    pub fn new(kind: Kind, doing: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self {
            kind,
            who: None,
            doing: doing.into(),
            path: None,
            bytes: None,
            cause: cause.to_string(),
        }
    }

    /// What the operating system answered, while `doing` something to `path`.
    pub fn io(error: &std::io::Error, doing: impl Into<String>, path: &std::path::Path) -> Self {
        use std::io::ErrorKind as Os;
        let kind = match error.kind() {
            Os::NotFound => Kind::Missing,
            Os::PermissionDenied | Os::ReadOnlyFilesystem => Kind::ReadOnly,
            Os::StorageFull | Os::QuotaExceeded | Os::FileTooLarge => Kind::Full,
            Os::UnexpectedEof | Os::InvalidData => Kind::Damaged,
            _ => Kind::Io,
        };
        Self::new(kind, doing, error).at(path)
    }

    /// The same, at `path`.
    pub fn at(mut self, path: &std::path::Path) -> Self {
        self.path = Some(path.display().to_string());
        self
    }

    /// The same, at these bytes of the file.
    pub fn in_bytes(mut self, bytes: Range<u64>) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// The same, met by `who` unless somebody is named already.
    pub fn by(mut self, who: Who) -> Self {
        self.who.get_or_insert(who);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.who {
            Some(Who::Rank(rank)) => write!(f, "rank {rank}: ")?,
            Some(Who::Server(server)) => write!(f, "server {server}: ")?,
            None => {}
        }
        write!(f, "{}", self.doing)?;
        if let Some(bytes) = &self.bytes {
            write!(f, " (bytes {}..{})", bytes.start, bytes.end)?;
        }
        if let Some(path) = &self.path {
            write!(f, " {path}")?;
        }
        write!(f, ": {}", self.cause)
    }
}

/// A result of the engine.
pub type Result<T> = std::result::Result<T, Error>;
