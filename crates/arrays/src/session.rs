//! A session: the ranks of a program, and the servers among or beside them, ready for collective
//! calls on arrays.
//!
//! This is where the layers meet. A call checks what this rank was given, exposes its memory, and
//! hands the engine a proposal; the rank that directs it turns the agreed proposal into a request
//! on a store. Whatever is wrong on one rank becomes its proposal, so that all ranks end alike.

use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use penstock_engine::{
    Call, Decision, Director, Error, Kind, Machine, Moved, Operation, Plan, Proposal, Request,
    Result, Roles, Strategy, Verdict, Who,
};
use penstock_layout::Region;
use penstock_machines::mpi::api::{Api, Handle};
use penstock_machines::mpi::{self, Transport};
use penstock_machines::{ClientMemory, Medium, Node, Opener, Threads};

use crate::call::{ArrayCall, Local, Memory};
use crate::directors::{MeetDirector, ReadDirector, Setting, WriteDirector, check_write};
use crate::strategy;
use crate::{ArraySchema, Stored, Target};

/// How a session is set up. All ranks must give the same.
#[derive(Debug, Clone, PartialEq, Eq)]
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
}

/// Panda's sub-chunk size, found best in its experiments (SC'95, section 2) and still large
/// compared with what a message or a disk access costs.
pub const BLOCK_BYTES: u64 = 1 << 20;

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
        }
    }
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
struct StoreOpener;

impl Opener for StoreOpener {
    fn open(&self, request: &Request) -> Result<Arc<dyn Medium>> {
        let target: Target = serde_json::from_slice(&request.target)
            .map_err(|e| Error::new(Kind::Io, "decoding a request's target", e))?;
        match request.operation {
            Operation::Write => target.open_write(&request.disk),
            Operation::Read => target.open_read(&request.disk),
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
            let serve = move || serve(&threads.node(node, Arc::new(StoreOpener)), &roles);
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
        let node = self.threads.node(self.rank, Arc::new(StoreOpener));
        let setting = Setting::new(&self.roles, 1, self.options);
        Session {
            node,
            roles: self.roles,
            rank: Some(self.rank),
            setting,
            calls: Cell::new(0),
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

/// Serves on a node that is no client until the session is closed, or broken.
fn serve(node: &Node, roles: &Roles) {
    for id in 0.. {
        let call = Call::new(node, roles, id);
        let ended = node.block_on(call.run(None, None));
        if ended.is_ok_and(|verdict| verdict.is_closed) || node.broken().is_some() {
            return;
        }
    }
}

/// One rank's end of a session.
pub struct Session {
    node: Node,
    roles: Arc<Roles>,
    rank: Option<usize>,
    setting: Setting,
    calls: Cell<u64>,
    is_closed: Cell<bool>,
    dedicated: Vec<JoinHandle<()>>,
}

impl Session {
    /// A session of the ranks of `comm`. On a dedicated server it returns when the clients have
    /// closed the session.
    ///
    /// # Errors
    /// When the options do not fit the job or differ between ranks (a rank that has none gives its
    /// error instead), or when ranks of one host cannot share memory. On all ranks.
    ///
    /// # Collective
    /// Over `comm`.
    pub fn mpi(api: Api, comm: Handle, given: Result<(Transport, Options)>) -> Result<Session> {
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
        let job = mpi::join(api, comm, transport, Arc::new(StoreOpener))?;
        let roles = mpi_roles(&job.hosts, &options)?;
        let rank = roles.rank(job.node.me());
        let hosts = job.hosts.iter().collect::<HashSet<_>>().len();
        let setting = Setting::new(&roles, hosts, options);
        let session = Session {
            node: job.node,
            roles: Arc::new(roles),
            rank,
            setting,
            calls: Cell::new(0),
            is_closed: Cell::new(false),
            dedicated: Vec::new(),
        };
        if session.rank.is_none() {
            serve(&session.node, &session.roles);
            session.is_closed.set(true);
        }
        Ok(session)
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
        let by = by.unwrap_or(self.setting.options.strategy);
        let checked = given.and_then(|(array, mut local)| {
            local.check_for(Operation::Write, &array, self.my_rank()?, self.clients())?;
            Ok((array, local))
        });
        let words = |array: &ArrayCall| {
            let by = strategy::in_words(&by);
            format!("a write ({by}) to {} of {array}", path.display())
        };
        let director = |array| WriteDirector::new(path, array, &self.setting, by);
        self.transfer(checked, words, director)
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
        let by = by.unwrap_or(self.setting.options.strategy);
        let checked = given.and_then(|(array, mut local)| {
            local.check_for(Operation::Read, &array, self.my_rank()?, self.clients())?;
            Ok((array, local))
        });
        let words = |array: &ArrayCall| {
            let by = strategy::in_words(&by);
            format!("a read ({by}) from {} of {array}", path.display())
        };
        let director = |array| ReadDirector::new(path, array, &self.setting, by);
        self.transfer(checked, words, director)
    }

    fn transfer<D: Director>(
        &self,
        checked: Result<(ArrayCall, Local)>,
        words: impl Fn(&ArrayCall) -> String,
        director: impl Fn(ArrayCall) -> D,
    ) -> Result<Report> {
        let begun = self.node.now();
        let bytes = checked.as_ref().map_or(0, |(array, _)| array.bytes());
        let (proposal, memory, director) = match checked {
            Ok((array, local)) => {
                let own_box = array.own_box();
                let proposal = Proposal {
                    words: words(&array),
                    own_box,
                };
                (Ok(proposal), Some(local.memory), Some(director(array)))
            }
            Err(error) => (Err(error), None, None),
        };
        let verdict = self.call(proposal, memory, director)?;
        let seconds = (self.node.now() - begun).as_secs_f64();
        Ok(Report {
            bytes,
            seconds,
            moved: verdict.moved,
            servers: self.servers(),
        })
    }

    /// Waits until all clients are here.
    ///
    /// # Errors
    /// When a rank has left, or calls something else.
    ///
    /// # Collective
    /// Over all clients.
    pub fn barrier(&self) -> Result<()> {
        self.meet("a barrier", Decision::Meet)
    }

    /// Ends the session; dedicated servers end too. Closing again does nothing.
    ///
    /// # Errors
    /// As [`Session::barrier`].
    ///
    /// # Collective
    /// Over all clients.
    pub fn close(&mut self) -> Result<()> {
        if self.is_closed.get() {
            return Ok(());
        }
        let closed = self.meet("the end of the session", Decision::Close);
        self.is_closed.set(true);
        for server in self.dedicated.drain(..) {
            // A server's panic has already failed a call.
            let _ = server.join();
        }
        closed
    }

    /// Leaves without closing: the calls of all other ranks fail and name `cause`, instead of
    /// waiting for this one.
    pub fn leave(&mut self, cause: &str) {
        if self.is_closed.replace(true) {
            return;
        }
        // A rank that leaves because another has left passes that one's reason on.
        let error = self.node.broken().unwrap_or_else(|| {
            let cause: String = cause.chars().take(LEAVING_CAUSE_CHARS).collect();
            let error = Error::new(Kind::Peer, "leaving the session", cause);
            match self.rank {
                Some(rank) => error.by(Who::Rank(rank)),
                None => error,
            }
        });
        self.node.leave(&error);
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
        let by = by.unwrap_or(self.setting.options.strategy);
        let memory = array.memory_schema(self.my_boxes(array)?, self.clients())?;
        let block_bytes = self.setting.options.block_bytes;
        let disk = match operation {
            Operation::Write => array.schema.disk_schema(block_bytes)?,
            Operation::Read => array.open_stored(path)?.disk_schema(block_bytes)?,
        };
        if operation == Operation::Write {
            check_write(&by, array, &memory, &disk)?;
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

    fn meet(&self, words: &str, decision: Decision) -> Result<()> {
        self.my_rank()?;
        let proposal = Proposal {
            words: words.to_string(),
            own_box: None,
        };
        self.call(Ok(proposal), None, Some(MeetDirector { decision }))
            .map(|_| ())
    }

    fn call<D: Director>(
        &self,
        proposal: Result<Proposal>,
        memory: Option<ClientMemory>,
        director: Option<D>,
    ) -> Result<Verdict> {
        if self.is_closed.get() {
            let cause = "the session is closed";
            return Err(Error::new(Kind::Schema, "a collective call", cause));
        }
        let rank = self.my_rank()?;
        let id = self.calls.replace(self.calls.get() + 1);
        // A rank whose own arguments are wrong still directs, if it is the one to do so.
        let mut direct: Option<Box<dyn Director>> = match director {
            Some(director) if rank == 0 => Some(Box::new(director)),
            None if rank == 0 => Some(Box::new(MeetDirector {
                decision: Decision::Meet,
            })),
            _ => None,
        };
        let exposed = memory.map(|memory| self.node.expose(id, memory));
        let call = Call::new(&self.node, &self.roles, id);
        let direct = direct
            .as_mut()
            .map(|director| &mut **director as &mut dyn Director);
        let verdict = self.node.block_on(call.run(Some(proposal), direct));
        drop(exposed);
        verdict
    }
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
