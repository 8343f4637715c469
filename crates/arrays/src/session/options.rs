//! How a session is set up, how its calls are met, and what they report.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use penstock_engine::{Error, Kind, Moved, Operation, Result, Strategy};

use crate::Trial;

/// How a session is set up. All ranks must give the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Number of servers; `None` chooses by the processors of each host.
    pub servers: Option<usize>,
    /// Whether servers do nothing else.
    pub dedicated: bool,
    /// Whether a write ends only when the data are on stable storage.
    pub sync: bool,
    /// The most bytes of a block where the store leaves a choice.
    pub block_bytes: u64,
    /// How calls are met that do not say.
    pub strategy: Strategy,
    /// The most bytes that a server, or a rank that moves blocks itself, may have in buffers while
    /// disks work in the background.
    pub background_bytes: u64,
    /// Whether flat files and plain chunks are moved around the page cache: see
    /// [`Target::with_direct`].
    pub direct: bool,
    /// For tests and benchmarks: what is wrong with the disks.
    pub trial: Option<Trial>,
}

/// Panda's sub-chunk size, found best in its experiments (SC'95, section 2) and still large
/// compared with what a message or a disk access costs.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// As much as the arrays of many a rank: a split collective should rarely have to wait.
pub const BACKGROUND_BYTES: u64 = 1 << 30;

impl Default for Options {
    fn default() -> Self {
        Self {
            servers: None,
            dedicated: false,
            sync: true,
            block_bytes: BLOCK_BYTES,
            strategy: Strategy::default(),
            background_bytes: BACKGROUND_BYTES,
            direct: false,
            trial: None,
        }
    }
}

/// What of a split collective is done while the ranks compute (Dickens and Thakur, section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Background {
    /// All: a thread takes the rank's part.
    All,
    /// The disks' work: elements go from memory to memory in the foreground.
    Disk,
    /// Nothing: beginning a call is all of it.
    None,
}

impl Background {
    /// The one of that name.
    ///
    /// # Errors
    /// [`Kind::Schema`] for a word that is none of them.
    pub fn named(word: &str) -> Result<Self> {
        match word {
            "all" => Ok(Self::All),
            "disk" => Ok(Self::Disk),
            "none" => Ok(Self::None),
            _ => {
                let cause = format!("\"{word}\" is none of \"all\", \"disk\", \"none\"");
                Err(Error::new(
                    Kind::Schema,
                    "choosing what is in the background",
                    cause,
                ))
            }
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Disk => "disk",
            Self::None => "none",
        }
    }
}

/// How one call is met, where it says.
#[derive(Debug, Clone, Copy, Default)]
pub struct How {
    /// By what strategy; `None` by the session's.
    pub strategy: Option<Strategy>,
    /// Of a split collective: see [`Session::begin_write`] for what `None` is.
    pub background: Option<Background>,
}

/// A call that has been begun, and is to be ended: see [`Session::end`].
#[derive(Debug)]
pub struct Outstanding {
    pub(super) id: u64,
    pub(super) bytes: u64,
    pub(super) begun: Duration,
}

/// What a collective call has done.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Bytes of the array.
    pub bytes: u64,
    /// Wall time on this rank.
    pub seconds: f64,
    /// What all servers together have moved.
    pub moved: Moved,
    /// Number of servers.
    pub servers: usize,
}

/// What a split collective does.
#[derive(Debug, Clone)]
pub(super) struct Doing {
    pub(super) operation: Operation,
    pub(super) path: PathBuf,
    pub(super) name: String,
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, way) = match self.operation {
            Operation::Write => ("write", "to"),
            Operation::Read => ("read", "from"),
        };
        write!(
            f,
            "a {what} of '{}' {way} {}",
            self.name,
            self.path.display()
        )
    }
}
