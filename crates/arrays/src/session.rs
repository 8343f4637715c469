//! A session: the ranks of a program, and the servers among or beside them, ready for collective
//! calls on arrays.
//!
//! This is where the layers meet. A call checks what this rank was given, exposes its memory, and
//! hands the engine a proposal; the rank that directs it turns the agreed proposal into a request
//! on a store. Whatever is wrong on one rank becomes its proposal, so that all ranks end alike.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use futures::stream::FuturesUnordered;
use penstock_engine::{
    Call, Decision, Director, Error, Kind, Machine, Moved, Operation, Plan, Proposal, Request,
    Result, Roles, Strategy, Who,
};
use penstock_layout::Region;
use penstock_machines::mpi::api::{Api, Handle};
use penstock_machines::mpi::{self, Transport};
use penstock_machines::{Medium, Node, Opener, Threads};

use crate::call::{ArrayCall, Local, Memory};
use crate::directors::{By, MeetDirector, ReadDirector, Setting, WriteDirector, check_write};
use crate::driver::{Driver, Start};
use crate::strategy;
use crate::{ArraySchema, Disk, Stored, Target, Trial};

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

/// As much of a leaving rank's reason as the others are told.
const LEAVING_CAUSE_CHARS: usize = 2000;

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

    fn word(self) -> &'static str {
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
    id: u64,
    bytes: u64,
    begun: Duration,
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

/// Opens stores on servers.
struct StoreOpener {
    trial: Option<Trial>,
}

impl StoreOpener {
    fn new(options: &Options) -> Arc<Self> {
        let trial = options.trial.clone();
        Arc::new(Self { trial })
    }
}

impl Opener for StoreOpener {
    fn open(&self, request: &Request) -> Result<Arc<dyn Medium>> {
        let target: Target = serde_json::from_slice(&request.target)
            .map_err(|e| Error::new(Kind::Io, "decoding a request's target", e))?;
        let medium = match request.operation {
            Operation::Write => target.open_write(&request.disk),
            Operation::Read => target.open_read(&request.disk),
        }?;
        match &self.trial {
            Some(trial) => trial.around(medium, &target, &request.disk),
            None => Ok(medium),
        }
    }
}

/// A place in a machine of threads, to be opened by the thread that will use it.
pub struct Seat {
    threads: Threads,
    roles: Arc<Roles>,
    rank: usize,
    options: Options,
    dedicated: Vec<JoinHandle<()>>,
}

impl Seat {
    /// Makes a machine of `ranks` threads and starts its dedicated servers.
    ///
    /// # Errors
    /// When `ranks` or the number of servers is zero, or no thread can be started.
    pub fn all(ranks: usize, options: &Options) -> Result<Vec<Seat>> {
        let servers = options.servers.unwrap_or_else(|| default_servers(ranks));
        check_count("ranks", ranks)?;
        check_count("servers", servers)?;
        check_count("block_bytes", options.block_bytes as usize)?;
        let nodes = if options.dedicated {
            ranks + servers
        } else {
            ranks
        };
        let on = |server| {
            if options.dedicated {
                ranks + server
            } else {
                server % ranks
            }
        };
        let of_servers = (0..servers).map(on).collect();
        let roles = Arc::new(Roles::new(nodes, (0..ranks).collect(), of_servers));
        let threads = Threads::new(nodes);
        let mut dedicated = Vec::new();
        for node in ranks..nodes {
            let (threads, roles) = (threads.clone(), roles.clone());
            let opener = StoreOpener::new(options);
            let serve = move || serve(&threads.node(node, opener), &roles);
            let thread = std::thread::Builder::new()
                .name(format!("server-{node}"))
                .spawn(serve);
            dedicated
                .push(thread.map_err(|e| Error::new(Kind::Io, "starting a server's thread", e))?);
        }
        let mut seats: Vec<Seat> = (0..ranks)
            .map(|rank| Seat {
                threads: threads.clone(),
                roles: roles.clone(),
                rank,
                options: options.clone(),
                dedicated: Vec::new(),
            })
            .collect();
        seats[0].dedicated = dedicated;
        Ok(seats)
    }

    /// Opens the session of this seat's rank.
    pub fn open(self) -> Session {
        let opener = StoreOpener::new(&self.options);
        let node = self.threads.node(self.rank, opener);
        let setting = Setting::new(&self.roles, 1, self.options, true);
        Session {
            driver: Driver::new(node),
            roles: self.roles,
            rank: Some(self.rank),
            setting,
            outstanding: RefCell::default(),
            is_closed: Cell::new(false),
            dedicated: self.dedicated,
        }
    }
}

/// Servers where the user names no number: one a processor, but not more than ranks.
fn default_servers(ranks: usize) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.min(ranks.max(2)).max(1)
}

fn check_count(what: &str, count: usize) -> Result<()> {
    if count == 0 {
        let cause = format!("{what} must be at least 1");
        return Err(Error::new(Kind::Schema, "opening a session", cause));
    }
    Ok(())
}

/// Serves on a node that is no client until the session is closed, or broken. Listens for the next
/// call while it serves others: a rank may begin several before it ends one.
fn serve(node: &Node, roles: &Roles) {
    let handed_over = Cell::new(false); // nobody looks: a server has nothing else to do
    let serving = async {
        let mut served = FuturesUnordered::new();
        for id in 0.. {
            let call = Call::new(node, roles, id, &handed_over);
            let agreed = {
                let agree = pin!(async { call.agree(None, &mut None).await });
                let others = async {
                    while served.next().await.is_some() {}
                    std::future::pending::<()>().await
                };
                match select(agree, pin!(others)).await {
                    Either::Left((agreed, _)) => agreed,
                    Either::Right(((), _)) => unreachable!("that never ends"),
                }
            };
            match agreed {
                Ok(Decision::Serve(request)) => served.push(async move {
                    let outcome = call.transfer(&request).await;
                    call.conclude(outcome, &mut None).await
                }),
                Ok(Decision::Close(_)) => break,
                Ok(Decision::Meet) | Err(_) if node.broken().is_none() => {}
                Ok(Decision::Meet) | Err(_) => break,
            }
        }
        while served.next().await.is_some() {}
    };
    node.block_on(serving);
}

/// One rank's end of a session.
pub struct Session {
    driver: Driver,
    roles: Arc<Roles>,
    rank: Option<usize>,
    setting: Setting,
    /// Split collectives that have not been ended: their numbers, and what they do.
    outstanding: RefCell<BTreeMap<u64, Doing>>,
    is_closed: Cell<bool>,
    dedicated: Vec<JoinHandle<()>>,
}

/// What a split collective does.
#[derive(Debug, Clone)]
struct Doing {
    operation: Operation,
    path: PathBuf,
    name: String,
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

impl Session {
    /// A session of the ranks of `comm`; `may_use_threads` where MPI may be called from any thread at any
    /// time (`MPI_THREAD_MULTIPLE`). On a dedicated server it returns when the clients have
    /// closed the session.
    ///
    /// # Errors
    /// When the options do not fit the job or differ between ranks (a rank that has none gives its
    /// error instead), or when ranks of one host cannot share memory. On all ranks.
    ///
    /// # Collective
    /// Over `comm`.
    pub fn mpi(
        api: Api,
        comm: Handle,
        may_use_threads: bool,
        given: Result<(Transport, Options)>,
    ) -> Result<Session> {
        let opening = "opening a session";
        let mut hasher = DefaultHasher::new();
        if let Ok((transport, options)) = &given {
            // As words: not all of the tuning can be hashed.
            (format!("{options:?}"), *transport == Transport::Shared).hash(&mut hasher);
        }
        let all = api.allgather(comm, [u64::from(given.is_ok()), hasher.finish()])?;
        let (transport, options) = given?;
        if let Some(rank) = all.iter().position(|[is_ok, _]| *is_ok == 0) {
            let error = Error::new(Kind::Schema, opening, "its options do not fit");
            return Err(error.by(Who::Rank(rank)));
        }
        if let Some(other) = all.iter().position(|digest| *digest != all[0]) {
            let cause = format!("ranks 0 and {other} give different options");
            return Err(Error::new(Kind::Mismatch, opening, cause));
        }
        let job = mpi::join(api, comm, transport, StoreOpener::new(&options))?;
        let roles = mpi_roles(&job.hosts, &options)?;
        let rank = roles.rank(job.node.me());
        let hosts = job.hosts.iter().collect::<HashSet<_>>().len();
        let has_threads = may_use_threads || !job.node.needs_mpi();
        let setting = Setting::new(&roles, hosts, options, has_threads);
        let is_server = rank.is_none();
        if is_server {
            serve(&job.node, &roles);
        }
        Ok(Session {
            driver: Driver::new(job.node),
            roles: Arc::new(roles),
            rank,
            setting,
            outstanding: RefCell::default(),
            is_closed: Cell::new(is_server),
            dedicated: Vec::new(),
        })
    }

    /// This rank among the clients; `None` on a dedicated server.
    pub fn rank(&self) -> Option<usize> {
        self.rank
    }

    /// Number of clients.
    pub fn clients(&self) -> usize {
        self.roles.clients.len()
    }

    /// Number of servers.
    pub fn servers(&self) -> usize {
        self.roles.servers.len()
    }

    /// Writes `array` to `path`, each rank its `local` part, by the session's strategy if none is
    /// given.
    ///
    /// # Errors
    /// The same on all ranks: what is wrong with any rank's arguments (given here as `Err` where
    /// they could not even be made into a call), or what a server met. The old data set at `path`,
    /// if any, is then as it was.
    ///
    /// # Collective
    /// Over all clients.
    pub fn write(
        &self,
        path: &Path,
        given: Result<(ArrayCall, Local)>,
        by: Option<Strategy>,
    ) -> Result<Report> {
        self.transfer(Operation::Write, path, given, by)
    }

    /// Reads `array` from `path`, each rank its part into `local`, by the session's strategy if none
    /// is given.
    ///
    /// # Errors
    /// As [`Session::write`]; `local` may then hold anything.
    ///
    /// # Collective
    /// Over all clients.
    pub fn read(
        &self,
        path: &Path,
        given: Result<(ArrayCall, Local)>,
        by: Option<Strategy>,
    ) -> Result<Report> {
        self.transfer(Operation::Read, path, given, by)
    }

    /// Begins a write, as [`Session::write`] does it; [`Session::end`] ends it. Until then nobody may
    /// change `local`, and `keeps`, what owns it, is kept. Several calls may be under way, on different
    /// arrays.
    ///
    /// What is in the background, where `how` does not say: with dedicated servers, and with caching,
    /// which cannot be split, all; otherwise the disks' work.
    ///
    /// # Errors
    /// The same on all ranks: what is wrong with any rank's arguments. With all in the background it is
    /// [`Session::end`] that says so.
    ///
    /// # Collective
    /// Over all clients, in the same order.
    pub fn begin_write(
        &self,
        path: &Path,
        given: Result<(ArrayCall, Local)>,
        how: Result<How>,
        keeps: Box<dyn Any + Send>,
    ) -> Result<Outstanding> {
        self.begin_split(Operation::Write, path, given, how, keeps)
    }

    /// Begins a read, as [`Session::read`] does it: see [`Session::begin_write`]. Until it has ended
    /// nobody may use `local`.
    ///
    /// # Errors
    /// As [`Session::begin_write`].
    ///
    /// # Collective
    /// Over all clients, in the same order.
    pub fn begin_read(
        &self,
        path: &Path,
        given: Result<(ArrayCall, Local)>,
        how: Result<How>,
        keeps: Box<dyn Any + Send>,
    ) -> Result<Outstanding> {
        self.begin_split(Operation::Read, path, given, how, keeps)
    }

    /// Whether a call has ended, so that [`Session::end`] need not wait. Lets it go on a little; it may
    /// need that on all ranks. Never waits.
    pub fn has_ended(&self, call: &Outstanding) -> bool {
        self.driver.has_ended(call.id)
    }

    /// Waits for the end of a call. Its time counts from its beginning.
    ///
    /// # Errors
    /// As [`Session::write`] and [`Session::read`]; [`Kind::Schema`] when it has been ended already, here
    /// alone.
    ///
    /// # Collective
    /// Over all clients, in any order.
    pub fn end(&self, call: &Outstanding) -> Result<Report> {
        self.outstanding.borrow_mut().remove(&call.id);
        let verdict = self.driver.end(call.id)?;
        Ok(Report {
            bytes: call.bytes,
            seconds: (self.driver.now() - call.begun).as_secs_f64(),
            moved: verdict.moved,
            servers: self.servers(),
        })
    }

    fn transfer(
        &self,
        operation: Operation,
        path: &Path,
        given: Result<(ArrayCall, Local)>,
        by: Option<Strategy>,
    ) -> Result<Report> {
        let by = By {
            strategy: by.unwrap_or(self.setting.options.strategy),
            is_split: false,
        };
        let call = self.begin(operation, path, given, by, None, None)?;
        self.end(&call)
    }

    fn begin_split(
        &self,
        operation: Operation,
        path: &Path,
        given: Result<(ArrayCall, Local)>,
        how: Result<How>,
        keeps: Box<dyn Any + Send>,
    ) -> Result<Outstanding> {
        let checked = how.and_then(|how| self.check_split(how));
        let (given, by, background) = match checked {
            Ok((by, background)) => (given, by, background),
            Err(error) => {
                let by = By {
                    strategy: self.setting.options.strategy,
                    is_split: false,
                };
                (given.and(Err(error)), by, Background::None)
            }
        };
        let doing = given.as_ref().ok().map(|(array, _)| Doing {
            operation,
            path: path.to_path_buf(),
            name: array.schema.name.clone(),
        });
        let call = self.begin(operation, path, given, by, Some(background), Some(keeps))?;
        match background {
            Background::All => {}
            Background::Disk => {
                if !self.driver.is_handed_over(call.id) {
                    self.driver.end(call.id)?; // the ranks did not agree
                }
            }
            Background::None => {
                if !self.driver.is_well(call.id) {
                    self.driver.end(call.id)?;
                }
            }
        }
        if let Some(doing) = doing {
            self.outstanding.borrow_mut().insert(call.id, doing);
        }
        Ok(call)
    }

    /// Waits until all clients are here.
    ///
    /// # Errors
    /// When a rank has left, or calls something else.
    ///
    /// # Collective
    /// Over all clients.
    pub fn barrier(&self) -> Result<()> {
        self.meet("a barrier")
    }

    /// Ends the session; dedicated servers end too. Closing again does nothing. What has been begun is
    /// brought to its end first.
    ///
    /// # Errors
    /// As [`Session::barrier`]; on all ranks when one has begun a call and not ended it. The session is
    /// closed all the same, and the call has done what it was to do, unless it failed.
    ///
    /// # Collective
    /// Over all clients.
    pub fn close(&mut self) -> Result<()> {
        if self.is_closed.get() {
            return Ok(());
        }
        let complaint = self.end_forgotten();
        let closed = self.call("the end of the session", complaint, Decision::Close(None));
        self.is_closed.set(true);
        for server in self.dedicated.drain(..) {
            // A server's panic has already failed a call.
            let _ = server.join();
        }
        closed
    }

    /// Ends what nobody has ended, and says what that was.
    fn end_forgotten(&self) -> Option<Error> {
        let mut forgotten = None;
        for (id, doing) in self.outstanding.take() {
            let cause = match self.driver.end(id) {
                Ok(_) => format!("{doing} was begun and never ended; it has ended well"),
                Err(error) => format!("{doing} was begun and never ended; it failed: {error}"),
            };
            forgotten.get_or_insert(Error::new(Kind::Schema, "closing a session", cause));
        }
        forgotten
    }

    /// Leaves without closing: the calls of all other ranks fail and name `cause`, instead of
    /// waiting for this one.
    pub fn leave(&mut self, cause: &str) {
        if self.is_closed.replace(true) {
            return;
        }
        // A rank that leaves because another has left passes that one's reason on.
        let error = self.driver.broken().unwrap_or_else(|| {
            let cause: String = cause.chars().take(LEAVING_CAUSE_CHARS).collect();
            let error = Error::new(Kind::Peer, "leaving the session", cause);
            match self.rank {
                Some(rank) => error.by(Who::Rank(rank)),
                None => error,
            }
        });
        self.driver.leave(&error);
        for server in self.dedicated.drain(..) {
            let _ = server.join();
        }
    }

    /// What a write or read of `array` by that strategy would do, in words and numbers. Where each rank names its
    /// own box, the others' are not known here and are left out.
    ///
    /// # Errors
    /// When the schema does not fit, when the strategy cannot do it, or (for a read) when the store is
    /// not there.
    pub fn explain(
        &self,
        path: &Path,
        array: &ArrayCall,
        operation: Operation,
        by: Option<Strategy>,
    ) -> Result<String> {
        let by = By {
            strategy: by.unwrap_or(self.setting.options.strategy),
            is_split: false,
        };
        let memory = array.memory_schema(self.my_boxes(array)?, self.clients())?;
        let block_bytes = self.setting.options.block_bytes;
        let disk = match operation {
            Operation::Write => array.schema.disk_schema(block_bytes)?,
            Operation::Read => array.open_stored(path)?.disk_schema(block_bytes)?,
        };
        if operation == Operation::Write {
            check_write(&by.strategy, array, &memory, &disk)?;
        }
        let request = self
            .setting
            .request(operation, by, memory, disk, Vec::new());
        let mut text = Plan::new(&request, &self.roles).explain(self.roles.nodes);
        if matches!(array.memory, Memory::Box { .. }) && self.clients() > 1 {
            text.push_str(
                "  (of irregular boxes: this rank's only, the others' are not known here)\n",
            );
        }
        Ok(text)
    }

    /// The schema of an array on disk. Each rank may call it for itself.
    ///
    /// # Errors
    /// When it is not there or damaged, or when there are several and none was named.
    pub fn open_schema(path: &Path, name: Option<&str>) -> Result<ArraySchema> {
        Ok(Stored::open(path, name)?.schema().clone())
    }

    fn my_rank(&self) -> Result<usize> {
        let on_server = || {
            Error::new(
                Kind::Schema,
                "a collective call",
                "this rank is a dedicated server",
            )
        };
        self.rank.ok_or_else(on_server)
    }

    fn my_boxes(&self, array: &ArrayCall) -> Result<Vec<(usize, Region)>> {
        let rank = self.my_rank()?;
        Ok(array.own_box().map(|own| (rank, own)).into_iter().collect())
    }

    /// How a split collective is met, and what of it is in the background.
    fn check_split(&self, how: How) -> Result<(By, Background)> {
        let options = &self.setting.options;
        let strategy = how.strategy.unwrap_or(options.strategy);
        let is_caching = matches!(strategy, Strategy::Caching(_));
        let usual = match options.dedicated || is_caching {
            true => Background::All,
            false => Background::Disk,
        };
        let background = how.background.unwrap_or(usual);
        let cannot = |cause: &str| Error::new(Kind::Unsupported, "splitting a collective", cause);
        if background == Background::Disk && is_caching {
            return Err(cannot(
                "with caching, ranks ask for blocks to the end: use background=\"all\" or \"none\"",
            ));
        }
        if background == Background::All && !self.setting.has_threads {
            return Err(cannot(
                "ranks exchange MPI messages, and MPI allows them to one thread only: initialise it with \
                 MPI_THREAD_MULTIPLE, or use background=\"disk\"",
            ));
        }
        let is_split = background == Background::Disk;
        Ok((By { strategy, is_split }, background))
    }

    /// Begins to move an array.
    fn begin(
        &self,
        operation: Operation,
        path: &Path,
        given: Result<(ArrayCall, Local)>,
        by: By,
        background: Option<Background>,
        keeps: Option<Box<dyn Any + Send>>,
    ) -> Result<Outstanding> {
        let begun = self.driver.now();
        let (rank, clients) = (self.my_rank()?, self.clients());
        let checked = given.and_then(|(array, mut local)| {
            local.check_for(operation, &array, rank, clients)?;
            self.check_outstanding(operation, path, &array)?;
            Ok((array, local))
        });
        let bytes = checked.as_ref().map_or(0, |(array, _)| array.bytes());
        let (proposal, memory, director) = match checked {
            Ok((array, local)) => {
                let proposal = Proposal {
                    words: in_words(operation, path, &array, by, background),
                    own_box: array.own_box(),
                    complaint: None,
                };
                let setting = &self.setting;
                let director: Box<dyn Director> = match operation {
                    Operation::Write => Box::new(WriteDirector::new(path, array, setting, by)),
                    Operation::Read => Box::new(ReadDirector::new(path, array, setting, by)),
                };
                (Ok(proposal), Some(local.memory), director)
            }
            Err(error) => (Err(error), None, meet(Decision::Meet)),
        };
        let id = self.start(Start {
            proposal,
            memory,
            director: Some(director),
            in_background: background == Some(Background::All),
            keeps,
        })?;
        Ok(Outstanding { id, bytes, begun })
    }

    /// Refuses what would interfere with a call that is under way.
    fn check_outstanding(
        &self,
        operation: Operation,
        path: &Path,
        array: &ArrayCall,
    ) -> Result<()> {
        let outstanding = self.outstanding.borrow();
        let interferes = |doing: &&Doing| {
            let both_read = (operation, doing.operation) == (Operation::Read, Operation::Read);
            // Two arrays of one group have different names; otherwise the path is the array.
            let is_other =
                matches!(array.schema.disk, Disk::Chunks { .. }) && doing.name != array.schema.name;
            doing.path == path && !is_other && !both_read
        };
        match outstanding.values().find(interferes) {
            None => Ok(()),
            Some(doing) => {
                let cause = format!("{doing} is under way: end it first");
                Err(Error::new(Kind::Busy, "beginning a call", cause).at(path))
            }
        }
    }

    fn meet(&self, words: &str) -> Result<()> {
        self.call(words, None, Decision::Meet)
    }

    /// A call in which nothing is moved.
    fn call(&self, words: &str, complaint: Option<Error>, decision: Decision) -> Result<()> {
        let proposal = Proposal {
            words: words.to_string(),
            own_box: None,
            complaint,
        };
        let id = self.start(Start {
            proposal: Ok(proposal),
            memory: None,
            director: Some(meet(decision)),
            in_background: false,
            keeps: None,
        })?;
        self.driver.end(id)?.complaint.map_or(Ok(()), Err)
    }

    /// Begins a call; its director is that of rank 0, also where its own arguments are wrong.
    fn start(&self, mut start: Start) -> Result<u64> {
        if self.is_closed.get() {
            let cause = "the session is closed";
            return Err(Error::new(Kind::Schema, "a collective call", cause));
        }
        if self.my_rank()? != 0 {
            start.director = None;
        }
        Ok(self.driver.begin(&self.roles, start))
    }
}

fn meet(decision: Decision) -> Box<dyn Director> {
    Box::new(MeetDirector { decision })
}

/// What a call asks for: ranks that say the same ask for the same.
fn in_words(
    operation: Operation,
    path: &Path,
    array: &ArrayCall,
    by: By,
    background: Option<Background>,
) -> String {
    let (what, way) = match operation {
        Operation::Write => ("a write", "to"),
        Operation::Read => ("a read", "from"),
    };
    let mut how = strategy::in_words(&by.strategy);
    if let Some(background) = background {
        how = format!("{how}, in the background: {}", background.word());
    }
    format!("{what} ({how}) {way} {} of {array}", path.display())
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leave("it dropped its session without closing it");
    }
}

/// Which ranks of an MPI job are clients and which are servers.
fn mpi_roles(hosts: &[usize], options: &Options) -> Result<Roles> {
    let size = hosts.len();
    let mut by_host: Vec<Vec<usize>> = vec![Vec::new(); size];
    for (rank, &host) in hosts.iter().enumerate() {
        by_host[host].push(rank);
    }
    by_host.retain(|ranks| !ranks.is_empty());
    let chosen: usize = by_host
        .iter()
        .map(|ranks| default_servers(ranks.len()).min(ranks.len()))
        .sum();
    let servers = match options.servers {
        None if options.dedicated => by_host.len().min(size.saturating_sub(1)),
        None => chosen,
        Some(servers) => servers,
    };
    check_count("servers", servers)?;
    check_count("block_bytes", options.block_bytes as usize)?;
    if options.dedicated && servers >= size {
        let cause = format!("{servers} dedicated servers leave no client among {size} ranks");
        return Err(Error::new(Kind::Schema, "opening a session", cause));
    }
    // Servers are dealt out over the hosts; dedicated ones take the last ranks of each.
    let mut of_servers: Vec<usize> = Vec::with_capacity(servers);
    let turns = (0..).flat_map(|turn| (0..by_host.len()).map(move |host| (turn, host)));
    for (turn, host) in turns {
        if of_servers.len() == servers {
            break;
        }
        let ranks = &by_host[host];
        if !options.dedicated {
            of_servers.push(ranks[turn % ranks.len()]);
        } else if let Some(place) = ranks.len().checked_sub(turn + 1) {
            of_servers.push(ranks[place]);
        }
    }
    let is_client = |rank: &usize| !options.dedicated || !of_servers.contains(rank);
    let clients = (0..size).filter(is_client).collect();
    Ok(Roles::new(size, clients, of_servers))
}
