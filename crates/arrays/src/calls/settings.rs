//! How a session is set up, how its calls are met, and what they report.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use penstock_engine::{
    Error, Kind, Operation, Request, Rest, Result, Roles, Split, Strategy, Traffic,
};
use penstock_layout::{Assignment, DiskSchema, MemorySchema};

use crate::Target;
use crate::testing::Faults;

/// How a session is set up. All ranks must give the same.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionOptions {
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
    pub faults: Option<Faults>,
}

/// Panda's sub-chunk size, found best in its experiments (SC'95, section 2) and still large
/// compared with what a message or a disk access costs.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// As much as the arrays of many a rank: a split collective should rarely have to wait.
pub const BACKGROUND_BYTES: u64 = 1 << 30;

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            servers: None,
            dedicated: false,
            sync: true,
            block_bytes: BLOCK_BYTES,
            strategy: Strategy::default(),
            background_bytes: BACKGROUND_BYTES,
            direct: false,
            faults: None,
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

    /// The word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Disk => "disk",
            Self::None => "none",
        }
    }
}

/// How a split collective is met, where it says.
#[derive(Debug, Clone, Copy, Default)]
pub struct SplitOptions {
    /// By what strategy; `None` by the session's.
    pub strategy: Option<Strategy>,
    /// What is in the background: see [`Session::begin_write`](super::Session::begin_write) for
    /// what `None` is.
    pub background: Option<Background>,
}

/// How a call is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// By what strategy.
    pub strategy: Strategy,
    /// Whether its disks are to work while the clients compute.
    pub is_split: bool,
}

impl Method {
    /// By this strategy, at once.
    pub fn by(strategy: Strategy) -> Self {
        let is_split = false;
        Self { strategy, is_split }
    }

    /// By the servers, at once.
    pub fn disk_directed() -> Self {
        Self::by(Strategy::default())
    }
}

/// What a session's calls have in common.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How the session was set up.
    pub options: SessionOptions,
    /// Number of clients.
    pub clients: usize,
    servers: usize,
    hosts: usize,
    /// Whether a call may go on in a thread of its own.
    pub has_threads: bool,
}

impl Settings {
    /// Of a session of `roles`, on so many hosts.
    pub fn new(roles: &Roles, hosts: usize, options: SessionOptions, has_threads: bool) -> Self {
        let (clients, servers) = (roles.clients.len(), roles.servers.len());
        Self {
            options,
            clients,
            servers,
            hosts,
            has_threads,
        }
    }

    /// Number of servers.
    pub fn servers(&self) -> usize {
        self.servers
    }

    /// The request for a target, which is moved as the session's options say; without one, for a
    /// call that is only explained.
    ///
    /// # Errors
    /// [`Kind::Schema`] for a target that is to be written by more servers than there are.
    pub fn request(
        &self,
        operation: Operation,
        method: Method,
        memory: MemorySchema,
        disk: DiskSchema,
        target: Option<Target>,
    ) -> Result<Request> {
        let Method { strategy, is_split } = method;
        let SessionOptions {
            background_bytes: buffer_bytes_max,
            sync,
            direct,
            ..
        } = self.options;
        let target = target.map(|target| target.with_direct(direct).with_sync(sync));
        let spread_over = target.as_ref().and_then(Target::spread_over);
        if let (Operation::Write, Some(target)) = (operation, &target) {
            target.check_servers(self.servers)?;
        }
        let servers = match (operation, spread_over) {
            // Each server writes what is on its disk, and reads that if there are as many.
            (_, Some(of)) => of.min(self.servers),
            // Linux lets one process at a time write to a file, and others wait for it awake. So
            // one server of each host writes a file that is dealt out, unless the user has said
            // how many. The first servers are of different hosts.
            (Operation::Write, None)
                if disk.assignment() == Assignment::Blocks && self.options.servers.is_none() =>
            {
                self.hosts.min(self.servers)
            }
            _ => self.servers,
        };
        let target = target.map_or(Ok(Vec::new()), |target| serde_json::to_vec(&target));
        Ok(Request {
            operation,
            strategy,
            memory,
            disk,
            target: target.map_err(|e| Error::new(Kind::Io, "encoding a request's target", e))?,
            servers,
            sync,
            split: is_split.then_some(Split { buffer_bytes_max }),
            rest: Rest::Fill(Vec::new()),
        })
    }
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
    pub moved: Traffic,
    /// Number of servers.
    pub servers: usize,
}

/// What a split collective is about.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) operation: Operation,
    pub(super) path: PathBuf,
    pub(super) name: String,
}

impl fmt::Display for Subject {
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
