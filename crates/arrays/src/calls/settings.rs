//! The options of a session, how its calls are met, and their reports.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use penstock_engine::encoding::{decode, encode};
use penstock_engine::tuning::DiskDirected;
use penstock_engine::version::Version;
use penstock_engine::{
    Error, Holders, Kind, Operation, Party, Request, Rest, Result, Split, Strategy, Traffic,
};
use penstock_layout::{Assignment, DiskSchema};
use serde::{Deserialize, Serialize};

use crate::fs::user::User;
use crate::testing::Faults;
use crate::{DirectIo, Target};

/// The most buffers of a server for arrays in a bucket, and the bytes that they take together,
/// unless two of them take more.
const BUCKET_BUFFERS_MAX: u64 = 16;
const BUCKET_BUFFER_BYTES: u64 = 64 << 20;

/// The options of a session. All ranks must give the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionOptions {
    /// The number of servers; `None` chooses by the processors of each host.
    pub servers: Option<usize>,
    /// Whether servers are dedicated.
    pub dedicated: bool,
    /// Whether a write ends only when the data are on stable storage.
    pub sync: bool,
    /// The most bytes of a block where the store leaves a choice.
    pub block_bytes: u64,
    /// The strategy of calls that name none.
    pub strategy: Strategy,
    /// The most bytes that a server, or a rank that moves blocks itself, may have in buffers while
    /// disks work in the background.
    pub background_bytes: u64,
    /// The most bytes of each server's cache for arrays that stay open.
    pub cache_bytes: u64,
    /// Which moves of flat files and plain chunks go around the page cache: see
    /// [`Target::with_direct`].
    pub direct: DirectIo,
    /// The faults of the disks, for tests and benchmarks.
    pub faults: Option<Faults>,
    /// The version of the build; another one is for tests.
    pub version: Version,
}

/// The default block size: Panda's sub-chunk size, found best in its experiments (SC'95, section 2)
/// and still large compared with the cost of a message or a disk access.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// The default limit of background buffers, large enough for the arrays of many a rank: a split
/// collective should rarely have to wait.
pub const BACKGROUND_BYTES: u64 = 1 << 30;

/// The default size of a server's cache: some dozens of blocks, and little beside the memory of a
/// node.
pub const CACHE_BYTES: u64 = 64 << 20;

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            servers: None,
            dedicated: false,
            sync: true,
            block_bytes: BLOCK_BYTES,
            strategy: Strategy::default(),
            background_bytes: BACKGROUND_BYTES,
            cache_bytes: CACHE_BYTES,
            direct: DirectIo::ColdReads,
            faults: None,
            version: Version::THIS,
        }
    }
}

/// The part of a split collective that goes on while the ranks compute (Dickens and Thakur, section
/// 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Background {
    /// The whole call: a thread takes the rank's part.
    All,
    /// The work of the disks: elements go from memory to memory in the foreground.
    Disk,
    /// No part: the call ends where it begins.
    None,
}

impl Background {
    /// The value with the name `word`.
    ///
    /// # Errors
    /// [`Kind::Schema`] for any other word.
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

    /// The name of this value.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Disk => "disk",
            Self::None => "none",
        }
    }
}

/// The options of one split collective.
#[derive(Debug, Clone, Copy, Default)]
pub struct SplitOptions {
    /// The strategy; `None` takes the session's.
    pub strategy: Option<Strategy>,
    /// The part in the background; [`Session::begin_write`](super::Session::begin_write) says what
    /// `None` chooses.
    pub background: Option<Background>,
}

/// The way in which a call is to be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Method {
    pub strategy: Strategy,
    /// Whether the disks are to work while the clients compute.
    pub is_split: bool,
}

impl Method {
    /// A method that uses `strategy` at once.
    pub fn by(strategy: Strategy) -> Self {
        let is_split = false;
        Self { strategy, is_split }
    }

    /// A method that is disk-directed, at once.
    pub fn disk_directed() -> Self {
        Self::by(Strategy::default())
    }
}

/// The settings that all calls of a session have in common.
#[derive(Debug, Clone)]
pub struct Settings {
    pub options: SessionOptions,
    pub clients: usize,
    servers: usize,
    hosts: usize,
    /// Whether a call may go on in a thread of its own.
    pub has_threads: bool,
    /// The user for whom servers that stand open targets.
    user: Option<User>,
}

/// The byte before the targets of servers that stand: no other of their openings begins with it.
const MARK: u8 = 0;

/// A target that servers that stand open for a user, as they hear of it; `None` for other targets.
pub fn heard_target(told: &[u8]) -> Option<Result<(User, Target)>> {
    let (mark, told) = told.split_first()?;
    (*mark == MARK).then(|| decode(told))
}

impl Settings {
    /// Creates the settings of a session of `party` on `hosts` hosts.
    pub fn new(party: &Party, hosts: usize, options: SessionOptions, has_threads: bool) -> Self {
        let (clients, servers) = (party.clients.len(), party.servers.len());
        Self {
            options,
            clients,
            servers,
            hosts,
            has_threads,
            user: None,
        }
    }

    /// The settings of servers that stand, for a session of this user.
    #[must_use]
    pub fn for_user(self, user: User) -> Self {
        Self {
            user: Some(user),
            ..self
        }
    }

    /// A target as servers hear of it.
    fn told(&self, target: Target) -> Result<Vec<u8>> {
        let target = target.lent()?;
        let Some(user) = &self.user else {
            return encode(&target);
        };
        let mut told = vec![MARK];
        told.extend(encode(&(user, &target))?);
        Ok(told)
    }

    /// A target that is moved as the session's options say.
    fn as_set(&self, target: Target) -> Target {
        let SessionOptions { sync, direct, .. } = self.options;
        target.with_direct(direct).with_sync(sync)
    }

    /// The target of an array that servers keep open, encoded, and the number of servers. What such
    /// an array has read from the disk may be wanted again: by itself no read goes around the page
    /// cache.
    ///
    /// # Errors
    /// [`Kind::Schema`] for a target that needs more servers than there are.
    pub fn opened(&self, target: &Target) -> Result<(Vec<u8>, usize)> {
        let direct = DirectIo::from(self.options.direct == DirectIo::Always);
        let target = self.as_set(target.clone()).with_direct(direct);
        target.check_servers(self.servers)?;
        let servers = target.spread_over().unwrap_or(self.servers);
        Ok((self.told(target)?, servers))
    }

    /// The number of servers.
    pub fn servers(&self) -> usize {
        self.servers
    }

    /// The request for a target, which is moved as the session's options say. An explained call has
    /// no target.
    ///
    /// # Errors
    /// [`Kind::Schema`] for a target that needs more servers to write it than there are.
    pub fn request(
        &self,
        operation: Operation,
        method: Method,
        holders: Holders,
        disk: DiskSchema,
        target: Option<Target>,
    ) -> Result<Request> {
        let Method { strategy, is_split } = method;
        let strategy = match target.as_ref().is_some_and(Target::is_in_bucket) {
            true => strategy_of_bucket(strategy, &disk)?,
            false => strategy,
        };
        let SessionOptions {
            background_bytes: buffer_bytes_max,
            sync,
            ..
        } = self.options;
        let target = target.map(|target| self.as_set(target));
        let spread_over = target.as_ref().and_then(Target::spread_over);
        if let (Operation::Write, Some(target)) = (operation, &target) {
            target.check_servers(self.servers)?;
        }
        let servers = match (operation, spread_over) {
            // Each server writes the part on its disk, and reads it if there are as many servers.
            (_, Some(of)) => of.min(self.servers),
            // Linux lets one process at a time write to a file, and the others wait awake. So one
            // server of each host writes a file that is dealt out, unless the user gives a number
            // of servers. The first servers are on different hosts.
            (Operation::Write, None)
                if disk.assignment() == Assignment::Blocks && self.options.servers.is_none() =>
            {
                self.hosts.min(self.servers)
            }
            _ => self.servers,
        };
        let target = target.map_or(Ok(Vec::new()), |target| self.told(target));
        Ok(Request {
            operation,
            strategy,
            holders,
            disk,
            target: target?,
            servers,
            sync,
            split: is_split.then_some(Split { buffer_bytes_max }),
            file: None,
            rest: Rest::Fill(Vec::new()),
            sifting: None,
        })
    }
}

/// The strategy for an array in a bucket: a server has many requests under way.
///
/// # Errors
/// [`Kind::Unsupported`] for other strategies than the disk-directed one.
fn strategy_of_bucket(strategy: Strategy, disk: &DiskSchema) -> Result<Strategy> {
    let Strategy::DiskDirected(tuning) = strategy else {
        let cause = "in a bucket, arrays are disk-directed: use strategy=\"disk-directed\"";
        return Err(Error::new(Kind::Unsupported, "moving an array", cause));
    };
    let fit = BUCKET_BUFFER_BYTES / disk.block_bytes_max().max(1);
    let buffers = fit.clamp(tuning.buffers, BUCKET_BUFFERS_MAX);
    Ok(Strategy::DiskDirected(DiskDirected { buffers, ..tuning }))
}

/// A call that has begun: [`Session::end`] ends it.
#[derive(Debug)]
pub struct Outstanding {
    pub(super) id: u64,
    pub(super) bytes: u64,
    pub(super) begun: Duration,
}

/// The report of a collective call.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The bytes of the array.
    pub bytes: u64,
    /// The wall time on this rank.
    pub seconds: f64,
    /// The traffic of all servers together.
    pub moved: Traffic,
    pub servers: usize,
}

/// The subject of a split collective.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) operation: Operation,
    pub(super) path: PathBuf,
    /// The name of the array; `None` for all arrays of a group.
    pub(super) name: Option<String>,
}

impl Subject {
    pub(super) fn new(operation: Operation, path: &Path, name: &str) -> Self {
        Self {
            operation,
            path: path.to_path_buf(),
            name: Some(name.to_string()),
        }
    }

    /// The subject of a save of a group.
    pub(super) fn of_group(path: &Path) -> Self {
        Self {
            operation: Operation::Write,
            path: path.to_path_buf(),
            name: None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, way) = match self.operation {
            Operation::Write => ("write", "to"),
            Operation::Read => ("read", "from"),
        };
        let path = self.path.display();
        match &self.name {
            Some(name) => write!(f, "a {what} of '{name}' {way} {path}"),
            None => write!(f, "a save of the group {path}"),
        }
    }
}
