//! Contexts: the ranks of a communicator, ready for collective calls on files.
//!
//! A context is made when the first file is opened on a communicator, and kept with it as an
//! attribute. When the communicator is freed, the context stays for the next one of the same ranks:
//! libraries such as HDF5 duplicate a communicator for each file that they open. Its ranks are the
//! nodes of one machine. Each file is a party of this machine, whose servers are part-time: they
//! serve while their ranks are in a call.
//!
//! A communicator of one rank has no machine: the rank does everything alone.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures::future::{Either, select};
use penstock_engine::{Attendance, Director, Error, Party, PartyId, Proposal, Verdict};
use penstock_layout::Holding;
use penstock_machines::calls::{self, CallPart, NodeServers};
use penstock_machines::mpi::abi::Handle;
use penstock_machines::mpi::api::Api;
use penstock_machines::mpi::{self, Transport};
use penstock_machines::node::runner::{Job, Looking, Runner, Task};
use penstock_machines::{ClientMemory, Node};

use crate::ask::Ask;
use crate::failure::{Class, Result, wrong};
use crate::medium::{FileOpener, OpenFiles};
use crate::mpi::{Mpi, no_copy};

/// What a mutex guards is valid at any time, also after a panic of a holder.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The party of all ranks of a context, which opens files; files have the numbers from 1 on.
const ALL: u64 = 0;

/// No context has this number.
const NONE: u64 = 0;

/// The contexts of communicators that are gone, the last one last.
static IDLE: Mutex<Vec<Arc<Context>>> = Mutex::new(Vec::new());

/// How many contexts of communicators that are gone a process keeps at most.
const IDLE_MAX: usize = 4;

/// The ranks of a communicator.
pub struct Context {
    /// A number that no other context has.
    number: u64,
    /// The MPI library.
    pub mpi: &'static Mpi,
    /// A duplicate of the communicator.
    pub comm: Handle,
    /// This rank.
    pub rank: usize,
    /// The number of ranks.
    pub size: usize,
    /// The files that ranks have open.
    pub files: Arc<OpenFiles>,
    /// The machine, if there are several ranks.
    pub machine: Option<Machine>,
    opened: AtomicU64,
}

/// The machine of a context.
pub struct Machine {
    runner: Runner,
    /// The host of each rank, named by its first rank.
    pub hosts: Vec<usize>,
    /// For each rank, how many processors the ranks of its host may use together.
    pub processors: Vec<usize>,
    /// Whether at least some messages travel by MPI.
    needs_mpi: bool,
    /// The party that opens files.
    pub all: Arc<Party>,
    calls: AtomicU64,
}

impl Context {
    /// The context of a communicator, which is made if there is none yet.
    ///
    /// # Errors
    /// [`Class::Comm`] for an intercommunicator or none; what MPI answers; when ranks of one host
    /// cannot share memory.
    ///
    /// # Collective
    /// Over the communicator.
    pub fn of(mpi: &'static Mpi, comm: Handle) -> Result<Arc<Self>> {
        if comm == mpi.dialect.comm_null {
            return Err(wrong(Class::Comm, "opening a file on MPI_COMM_NULL"));
        }
        let mut is_inter = 0;
        // SAFETY: the out-parameter lives across the call.
        let code = unsafe { (mpi.call.comm_test_inter)(comm, &mut is_inter) };
        mpi.check("looking at a communicator", code)?;
        if is_inter != 0 {
            return Err(wrong(Class::Comm, "opening a file on an intercommunicator"));
        }
        let keyval = keyval(mpi)?;
        let (mut kept, mut is_kept): (*mut Self, c_int) = (ptr::null_mut(), 0);
        // SAFETY: out-parameters live across the call; the attribute is a pointer.
        let code =
            unsafe { (mpi.call.comm_get_attr)(comm, keyval, (&raw mut kept).cast(), &mut is_kept) };
        mpi.check("reading an attribute of a communicator", code)?;
        if is_kept != 0 {
            // SAFETY: the attribute is an `Arc` that was put there below.
            unsafe {
                Arc::increment_strong_count(kept);
                return Ok(Arc::from_raw(kept));
            }
        }
        let api = mpi.api()?;
        let context = match Self::idle(mpi, &api, comm)? {
            (Some(idle), _) => idle,
            (None, number) => Arc::new(Self::join(mpi, api, comm, number)?),
        };
        let kept = Arc::into_raw(context.clone()).cast_mut();
        // SAFETY: the attribute is dropped by `forget`.
        let code = unsafe { (mpi.call.comm_set_attr)(comm, keyval, kept.cast()) };
        mpi.check("keeping an attribute of a communicator", code)?;
        keeping().push(comm);
        Ok(context)
    }

    /// A context of the same ranks whose communicator is gone, if all ranks have kept it, and the
    /// number for a new one.
    fn idle(mpi: &'static Mpi, api: &Api, comm: Handle) -> Result<(Option<Arc<Self>>, u64)> {
        let is_of = |context: &Arc<Self>| {
            let mut how = 0;
            // SAFETY: the out-parameter lives across the call.
            let code = unsafe { (mpi.call.comm_compare)(context.comm, comm, &mut how) };
            code == 0 && how == mpi.dialect.congruent
        };
        let found = lock(&IDLE).iter().rev().find(|idle| is_of(idle)).cloned();
        let mine = [
            found.map_or(NONE, |idle| idle.number),
            penstock_net::new_number()?,
        ];
        let all = api.allgather(comm, mine)?;
        let number = all.first().map_or(mine[1], |first| first[1]);
        let is_same = mine[0] != NONE && all.iter().all(|[idle, _]| *idle == mine[0]);
        let mut idle = lock(&IDLE);
        let place = idle
            .iter()
            .position(|idle| is_same && idle.number == mine[0]);
        Ok((place.map(|place| idle.remove(place)), number))
    }

    fn join(mpi: &'static Mpi, api: Api, comm: Handle, number: u64) -> Result<Self> {
        let comm = api.dup(comm)?;
        let (rank, size) = api.rank_and_size(comm)?;
        let files = Arc::new(OpenFiles::default());
        let machine = match size {
            1 => None,
            _ => Some(Machine::join((mpi, api), comm, files.clone())?),
        };
        Ok(Self {
            number,
            mpi,
            comm,
            rank,
            size,
            files,
            machine,
            opened: AtomicU64::new(ALL + 1),
        })
    }

    /// The number of the next file, the same on all ranks.
    pub fn next_file(&self) -> u64 {
        self.opened.fetch_add(1, Ordering::Relaxed)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.machine = None; // it sends its last messages before the communicator goes
        if self.mpi.is_usable() {
            // SAFETY: nobody else has the duplicate. There is nobody to tell of a failure.
            let _ = unsafe { (self.mpi.call.comm_free)((&raw mut self.comm).cast()) };
        }
    }
}

impl Machine {
    fn join((mpi, api): (&Mpi, Api), comm: Handle, files: Arc<OpenFiles>) -> Result<Self> {
        let opener = Arc::new(FileOpener(files));
        let job = mpi::join(api, comm, transport(), opener)?;
        let ranks = job.hosts.len();
        let all = Party::new(PartyId(ALL), (0..ranks).collect(), (0..ranks).collect());
        let all = Arc::new(all);
        let needs_mpi = job.node.needs_mpi();
        let looking = match mpi.has_threads() || !needs_mpi {
            true => Looking::ForJobs,
            false => Looking::Never,
        };
        let party = all.clone();
        let tasks = |node: &Rc<Node>| -> Vec<Task> {
            let attendance = Rc::new(Attendance::new(party));
            let (listening, me) = (attendance.clone(), node.clone());
            let listen: Task = Box::pin(async move { calls::listen(&me, &listening).await });
            let me = node.clone();
            let serve: Task =
                Box::pin(async move { NodeServers::of_party(&me, attendance, 0).run().await });
            vec![listen, serve]
        };
        Ok(Self {
            runner: Runner::new(job.node, tasks, looking, None)?,
            hosts: job.hosts,
            processors: job.processors,
            needs_mpi,
            all,
            calls: AtomicU64::new(0),
        })
    }

    /// The number of the next call that opens a file.
    pub fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether at least some messages travel by MPI: then who waits must let MPI go on.
    pub fn needs_mpi(&self) -> bool {
        self.needs_mpi
    }

    /// The number of hosts.
    pub fn host_count(&self) -> usize {
        let hosts = self.hosts.iter().enumerate();
        hosts.filter(|(rank, host)| rank == *host).count()
    }

    /// Whether all ranks are on one host.
    pub fn is_on_one_host(&self) -> bool {
        self.hosts.iter().all(|host| *host == self.hosts[0])
    }

    /// Does something on this node to its end.
    ///
    /// # Errors
    /// Its own.
    pub fn run<T, F>(&self, job: impl FnOnce(Rc<Node>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + 'static,
    {
        self.runner.run(job)?
    }

    /// Begins something on this node, which goes on while the rank computes.
    pub fn begin<T, F>(&self, job: impl FnOnce(Rc<Node>) -> F) -> Job<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        self.runner.begin(job)
    }

    /// Waits for the end of what was begun.
    ///
    /// # Errors
    /// When it was ended already.
    pub fn end<T>(&self, job: &Job<T>) -> Result<T> {
        Ok(self.runner.end(job)?)
    }

    /// Whether what was begun has ended. Looks once, and never waits.
    pub fn has_ended<T>(&self, job: &Job<T>) -> bool {
        self.runner.has_ended(job)
    }

    /// The numbers of the ranks that have servers, if there are so many, or as many as fit: each
    /// host has one for each of its processors, but no more than ranks.
    pub fn servers(&self, wanted: Option<usize>, each_host: Option<usize>) -> Vec<usize> {
        place_servers(&self.hosts, &self.processors, wanted, each_host)
    }
}

/// Deals out servers over the hosts, in turn.
fn place_servers(
    hosts: &[usize],
    processors: &[usize],
    wanted: Option<usize>,
    each_host: Option<usize>,
) -> Vec<usize> {
    let ranks_of = |host: usize| -> Vec<usize> {
        (0..hosts.len())
            .filter(|&rank| hosts[rank] == host)
            .collect()
    };
    let by_host = (0..hosts.len()).filter(|&rank| hosts[rank] == rank);
    let by_host: Vec<Vec<usize>> = by_host
        .map(|host| {
            let mut ranks = ranks_of(host);
            let room = each_host.unwrap_or_else(|| processors[host].max(1));
            if wanted.is_none() || each_host.is_some() {
                ranks.truncate(room.max(1));
            }
            ranks
        })
        .collect();
    let longest = by_host.iter().map(Vec::len).max().unwrap_or(0);
    let turns =
        (0..longest).flat_map(|turn| by_host.iter().filter_map(move |ranks| ranks.get(turn)));
    let all: Vec<usize> = turns.copied().collect();
    let count = wanted.unwrap_or(all.len()).clamp(1, all.len().max(1));
    all.into_iter().take(count).collect()
}

/// How ranks of one host reach each other: for tests, by messages as other hosts do.
fn transport() -> Transport {
    match std::env::var_os("PENSTOCK_MPIIO_TRANSPORT") {
        Some(word) if word == "messages" => Transport::Messages,
        _ => Transport::Shared,
    }
}

/// The key of the attribute under which communicators keep their contexts.
fn keyval(mpi: &'static Mpi) -> Result<c_int> {
    static KEYVAL: OnceLock<Result<c_int>> = OnceLock::new();
    let made = KEYVAL.get_or_init(|| {
        let (mut keyval, mut of_self) = (0, 0);
        // SAFETY: out-parameters live across the calls.
        unsafe {
            let state = ptr::null_mut();
            let code = (mpi.call.comm_create_keyval)(no_copy, forget, &mut keyval, state);
            mpi.check("making a key of attributes", code)?;
            // MPI drops the attributes of MPI_COMM_SELF first when it is finalised.
            let code = (mpi.call.comm_create_keyval)(no_copy, finalize, &mut of_self, state);
            mpi.check("making a key of attributes", code)?;
            let comm = mpi.dialect.comm_self;
            let code = (mpi.call.comm_set_attr)(comm, of_self, ptr::null_mut());
            mpi.check("keeping an attribute of a communicator", code)?;
        }
        Ok(keyval)
    });
    made.clone()
}

/// The communicators that keep contexts, in the order of all ranks.
static KEEPING: Mutex<Vec<Handle>> = Mutex::new(Vec::new());

fn keeping() -> MutexGuard<'static, Vec<Handle>> {
    lock(&KEEPING)
}

/// Keeps the context of a communicator that goes, for the next one of the same ranks.
unsafe extern "C" fn forget(comm: Handle, _: c_int, kept: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: the attribute is an `Arc` that `Context::of` has put there.
    let context = unsafe { Arc::from_raw(kept.cast::<Context>()) };
    let comm = context.mpi.dialect.handle(comm);
    keeping().retain(|keeping| *keeping != comm);
    if Arc::strong_count(&context) > 1 {
        return 0; // a file is open, and the context goes with it
    }
    let mut idle = lock(&IDLE);
    idle.push(context);
    let oldest = (idle.len() > IDLE_MAX).then(|| idle.remove(0));
    drop(idle);
    drop(oldest); // it calls MPI
    0
}

/// Drops all contexts before MPI is finalised.
unsafe extern "C" fn finalize(_: Handle, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
    let all = std::mem::take(&mut *keeping());
    if let (Ok(mpi), Ok(keyval)) = (Mpi::get(), Mpi::get().and_then(keyval)) {
        for comm in all {
            // SAFETY: the communicator is there, since it keeps a context. There is nobody to tell
            // of a failure.
            let _ = unsafe { (mpi.call.comm_delete_attr)(comm, keyval) };
        }
    }
    let idle = std::mem::take(&mut *lock(&IDLE));
    drop(idle); // they call MPI
    0
}

/// What a rank brings to a call that moves data.
#[derive(Default)]
pub struct Own {
    /// The rank's memory.
    pub memory: Option<ClientMemory>,
    /// The bytes that it holds.
    pub holding: Holding,
}

/// Makes a collective call of a party, as the client of `rank`.
///
/// # Errors
/// The verdict's.
///
/// # Collective
/// Over the party.
pub async fn call(
    node: &Node,
    (party, rank, sequence): (Arc<Party>, usize, u64),
    proposal: std::result::Result<Proposal<Ask>, Error>,
    own: Own,
    director: Option<&mut dyn Director>,
) -> std::result::Result<Verdict, Error> {
    let attendance = Attendance::new(party);
    let handed_over = Cell::new(false);
    let part = CallPart {
        proposal: proposal.into(),
        memories: vec![own.memory.into_iter().collect()],
        lists: vec![&own.holding],
        catch: None,
        director: director.map(|director| director as &mut dyn Director),
        errand: None,
        handed_over: &handed_over,
    };
    let running = calls::call(node, &attendance, (rank, sequence), part);
    match select(running, calls::listen(node, &attendance)).await {
        Either::Left((verdict, _)) => verdict,
        Either::Right(((), running)) => running.await, // it listens for ever
    }
}
