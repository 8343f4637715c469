//! Errors of the outside world, as values that travel through the protocol to every rank.

use std::fmt;
use std::num::NonZeroI32;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The kind of an error, named alike in Rust, Python and C.
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
    /// Something is there already, or is not empty.
    Exists,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Schema,
        Self::Mismatch,
        Self::Overlap,
        Self::Missing,
        Self::Damaged,
        Self::ReadOnly,
        Self::Full,
        Self::Busy,
        Self::Peer,
        Self::Unsupported,
        Self::Io,
        Self::Exists,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The rank or server that met the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Who {
    /// A client, by its rank.
    Rank(usize),
    /// An I/O server, by its number.
    Server(usize),
}

/// An error names the rank or server that met it, its action, the bytes and the file, and the
/// cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Error {
    /// The kind of the error.
    pub kind: Kind,
    /// The rank or server that met the error, if known.
    pub who: Option<Who>,
    /// The action under way, as in "writing chunk 3.0.1".
    pub doing: String,
    /// The file or directory.
    pub path: Option<String>,
    /// The bytes of the file.
    pub bytes: Option<Range<u64>>,
    /// The number of the operating system's error, if that was the cause.
    pub os: Option<NonZeroI32>,
    /// The cause, and the remedy if known.
    pub cause: String,
}

impl Error {
    /// Makes an error of `kind`, met while `doing`, because of `cause`.
    pub fn new(kind: Kind, doing: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self {
            kind,
            who: None,
            doing: doing.into(),
            path: None,
            bytes: None,
            os: None,
            cause: cause.to_string(),
        }
    }

    /// Makes an error from the answer of the operating system, while `doing` something to `path`.
    pub fn io(error: &std::io::Error, doing: impl Into<String>, path: &std::path::Path) -> Self {
        use std::io::ErrorKind as Os;
        let kind = match error.kind() {
            Os::NotFound => Kind::Missing,
            Os::PermissionDenied | Os::ReadOnlyFilesystem => Kind::ReadOnly,
            Os::StorageFull | Os::QuotaExceeded | Os::FileTooLarge => Kind::Full,
            Os::UnexpectedEof | Os::InvalidData => Kind::Damaged,
            _ => Kind::Io,
        };
        Self {
            os: error.raw_os_error().and_then(NonZeroI32::new),
            ..Self::new(kind, doing, error).at(path)
        }
    }

    /// Adds the path.
    pub fn at(mut self, path: &std::path::Path) -> Self {
        self.path = Some(path.display().to_string());
        self
    }

    /// Adds the bytes of the file.
    pub fn in_bytes(mut self, bytes: Range<u64>) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Adds the rank or server that met the error, unless one is named already.
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

/// The result type of the engine.
pub type Result<T> = std::result::Result<T, Error>;
