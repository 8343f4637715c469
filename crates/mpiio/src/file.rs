//! Files: what a rank has of a file that the ranks of a communicator have open.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::{ffi::c_int, marker::PhantomData};

use penstock_engine::encoding::{decode, encode};
use penstock_engine::{Attendance, Director, Party, PartyId, Proposal};
use penstock_files::job::FileSystem;
use penstock_machines::memory::segment::SegmentName;
use penstock_machines::mpi::abi::Handle;
use penstock_machines::{Node, calls};
use rustc_hash::FxHashMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::access::Datatype;
use crate::ask::{Ask, Meeting, Say, heard};
use crate::context::{self, Context, Machine, Own, lock};
use crate::failure::{Class, Failure, Result, wrong};
use crate::handlers::Handler;
use crate::hints::Hints;
use crate::mode::Mode;
use crate::mpi::Mpi;
use crate::pending::Pending;
use crate::report::{self, Count, Counts, Subject};
use crate::representation::Representation;
use crate::shared::Shared;
use crate::storage::{self, Name, Storage};
use crate::view::View;

/// The view and the pointer of a rank.
pub struct Cursor {
    /// The view.
    pub view: Arc<View>,
    /// The handles of the view's types, which are kept as long as it.
    types: Option<(Datatype, Datatype)>,
    /// The individual pointer, in elementary types.
    pub pointer: i64,
}

/// A split collective access that was begun.
pub struct Split {
    /// The function that ends it.
    pub ends_with: &'static str,
    pub pending: Pending,
}

/// A file that is open.
pub struct File {
    /// The handle that the program has.
    pub handle: usize,
    pub mpi: &'static Mpi,
    pub context: Arc<Context>,
    pub storage: Arc<Storage>,
    pub mode: Mode,
    /// The number of the file in its context.
    number: u64,
    /// The ranks and the servers, if there are several ranks.
    party: Option<Arc<Party>>,
    calls: AtomicU64,
    /// The calls that rank 0 has reserved beside those that all ranks count.
    reserved: AtomicU64,
    pub cursor: Mutex<Cursor>,
    pub hints: Mutex<Hints>,
    pub handler: Mutex<Handler>,
    is_atomic: AtomicBool,
    pub shared: Shared,
    pub split: Mutex<Option<Split>>,
    /// What the rank has done with the file, if a report is wanted.
    counts: Mutex<Counts>,
}

/// Each access has the numbers of two calls; those from here on are reserved by rank 0.
const RESERVED: u64 = 1 << 31;

/// What ranks of a file do when they open it, beside opening.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Opened {
    /// The board of a host, if all ranks are on one.
    board: Option<SegmentName>,
    /// The ranks with servers.
    servers: Vec<usize>,
}

/// The files that are open, by their handles.
fn registry() -> &'static RwLock<FxHashMap<usize, Arc<File>>> {
    static REGISTRY: OnceLock<RwLock<FxHashMap<usize, Arc<File>>>> = OnceLock::new();
    REGISTRY.get_or_init(RwLock::default)
}

/// A handle that no file has had. Handles look like no pointer, and fit into an `int`.
fn new_handle() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x5053_0001);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl File {
    /// The file of a handle.
    ///
    /// # Errors
    /// [`Class::File`] when no file that is open has this handle.
    pub fn of(handle: usize) -> Result<Arc<Self>> {
        let files = registry().read().unwrap_or_else(PoisonError::into_inner);
        let file = files.get(&handle).cloned();
        file.ok_or_else(|| wrong(Class::File, "the handle is not of an open file"))
    }

    /// Opens a file.
    ///
    /// # Errors
    /// The same on all ranks, unless this rank has no communicator.
    ///
    /// # Collective
    /// Over the communicator.
    pub fn open(
        mpi: &'static Mpi,
        comm: Handle,
        name: Result<String>,
        mode: c_int,
        info: Handle,
    ) -> Result<usize> {
        let context = Context::of(mpi, comm)?;
        let number = context.next_file();
        let mut hints = Hints::default();
        let given = (|| {
            let name = Name::read(&name?)?;
            hints.take(&mpi.info(info)?)?;
            Ok((name, Mode::of(&mpi.dialect.modes, mode)?))
        })();
        let mut fs = None;
        if let Ok((Name::Volume(url, _), _)) = &given {
            // Ranks that have another name say so in the meeting.
            let url = url.clone();
            meet_all(
                &context,
                Ask::Connect { url: url.clone() },
                Ok(()),
                |_: Vec<()>| Ok(()),
            )?;
            fs = Some(storage::connect(&context, &url)?);
        }
        let said: Say<()> = given.as_ref().map(|_| ()).map_err(Clone::clone);
        let (made, wanted) = (Arc::new(Mutex::new(None)), given.as_ref().ok().cloned());
        // Rank 0 makes the file, so that MPI_MODE_EXCL means what it says.
        let (kept, owner, placing) = (made.clone(), context.clone(), hints.clone());
        let first = fs.take_if(|_| context.rank == 0);
        let direct = move |_: Vec<()>| {
            let (name, mode) = wanted.ok_or_else(|| wrong(Class::Arg, "rank 0 has no file"))?;
            let open = Arc::new(Storage::open(&name, mode, true, first)?);
            let machine = owner.machine.as_ref();
            let servers =
                machine.map(|machine| machine.servers(placing.servers, placing.servers_of_host));
            let mut board = None;
            if machine.is_some_and(|machine| machine.is_on_one_host()) {
                let (shared, name) = Shared::of_host(owner.mpi)?;
                board = Some(name);
                *lock(&kept) = Some((open, Some(shared)));
            } else {
                *lock(&kept) = Some((open, None));
            }
            Ok(Opened {
                board,
                servers: servers.unwrap_or_default(),
            })
        };
        let ask = Ask::Open { mode };
        let opened: Opened = meet_all(&context, ask, said, direct)?;
        let made = lock(&made).take();
        let own = Self::join(&context, made, &opened, given, fs);
        let proceeding = own.as_ref().map(|_| ()).map_err(Clone::clone);
        meet_all(&context, Ask::Proceed, proceeding, |_: Vec<()>| Ok(()))?;
        let (storage, shared, mode) = own?;
        let party = context.machine.as_ref().map(|_| {
            let clients = (0..context.size).collect();
            Arc::new(Party::new(PartyId(number), clients, opened.servers))
        });
        let view = View::of_bytes(mpi)?;
        let file = Arc::new(Self {
            handle: new_handle(),
            mpi,
            storage: storage.clone(),
            mode,
            number,
            party,
            calls: AtomicU64::new(0),
            reserved: AtomicU64::new(RESERVED),
            cursor: Mutex::new(Cursor {
                view: Arc::new(view),
                types: None,
                pointer: 0,
            }),
            hints: Mutex::new(hints),
            handler: Mutex::new(Handler::of_no_file()),
            is_atomic: AtomicBool::new(false),
            shared,
            split: Mutex::new(None),
            counts: Mutex::default(),
            context,
        });
        file.join_party()?;
        if let Some(open) = storage.file() {
            file.context.files.insert(number, open.clone());
        }
        if mode.append {
            let end = file.size()? as i64;
            lock(&file.cursor).pointer = end;
            if file.context.rank == 0 {
                file.shared.set_pointer(end)?;
            }
            file.meet(Ask::Proceed, Ok(()), |_: Vec<()>| Ok(()))?;
        }
        let mut files = registry().write().unwrap_or_else(PoisonError::into_inner);
        files.insert(file.handle, file.clone());
        Ok(file.handle)
    }

    /// What this rank does once rank 0 has made the file.
    fn join(
        context: &Arc<Context>,
        made: Option<(Arc<Storage>, Option<Shared>)>,
        opened: &Opened,
        given: Result<(Name, Mode)>,
        fs: Option<FileSystem>,
    ) -> Result<(Arc<Storage>, Shared, Mode)> {
        let (name, mode) = given?;
        let (storage, board) = match made {
            Some((storage, board)) => (storage, board),
            None => (Arc::new(Storage::open(&name, mode, false, fs)?), None),
        };
        let mpi = context.mpi;
        let shared = match (board, &opened.board, &context.machine) {
            (Some(board), ..) => board,
            (None, Some(name), _) => Shared::on_host(mpi, name)?,
            (None, None, None) => Shared::of_one(mpi),
            (None, None, Some(_)) => Shared::of_hosts(context)?,
        };
        Ok((storage, shared, mode))
    }

    /// Tells the servers of the file's party.
    fn join_party(&self) -> Result<()> {
        let (Some(machine), Some(party)) = (&self.context.machine, &self.party) else {
            return Ok(());
        };
        let mut joined = Ok(());
        if self.context.rank == 0 {
            let party = party.clone();
            joined = machine.run(|node| async move {
                let attendance = Attendance::new(party);
                Ok(calls::join(&node, &attendance).await?)
            });
        }
        meet_all(&self.context, Ask::Proceed, joined, |_: Vec<()>| Ok(()))
    }

    /// Closes the file.
    ///
    /// # Errors
    /// The same on all ranks. The file is closed all the same.
    ///
    /// # Collective
    /// Over the ranks that have opened it.
    pub fn close(handle: usize) -> Result<()> {
        let file = Self::of(handle)?;
        let forgotten = lock(&file.split).take();
        let complaint = match forgotten {
            None => Ok(()),
            Some(split) => {
                let _ = split.pending.wait(&file.context);
                let cause = format!(
                    "a split access was begun, and not ended by {}",
                    split.ends_with
                );
                Err(wrong(Class::Request, cause))
            }
        };
        let counts = std::mem::take(&mut *lock(&file.counts));
        let (said, reporter) = (complaint.map(|()| counts), file.clone());
        let met = file.meet(Ask::Close, said, move |counts: Vec<Counts>| {
            if report::is_wanted() {
                reporter.report(&counts);
            }
            Ok(())
        });
        let freed = file.shared.free();
        file.context.files.remove(file.number);
        let mut removed = Ok(());
        if file.context.rank == 0 && file.mode.delete_on_close {
            removed = file.storage.delete();
        }
        let removed = file.meet(Ask::Proceed, removed, |_: Vec<()>| Ok(()));
        if let (Some(machine), Some(party), 0) =
            (&file.context.machine, &file.party, file.context.rank)
        {
            let party = party.clone();
            // Servers that cannot be told forget the party with their process.
            let _ = machine.run(|node| async move {
                let attendance = Attendance::new(party);
                Ok(calls::part(&node, &attendance).await?)
            });
        }
        let mut files = registry().write().unwrap_or_else(PoisonError::into_inner);
        files.remove(&handle);
        drop(files);
        met.and(freed).and(removed).and(file.storage.close())
    }

    /// Counts something that this rank has done by a function, if a report is wanted.
    pub fn count(&self, function: &str, act: impl FnOnce(&mut Count)) {
        if report::is_wanted() {
            // Both forms of a function do the same.
            let function = function.strip_suffix("_c").unwrap_or(function);
            act(lock(&self.counts).entry(function.to_string()).or_default());
        }
    }

    /// Tells people how the accesses of all ranks went.
    fn report(&self, counts: &[Counts]) {
        let machine = self.context.machine.as_ref();
        let tuning = lock(&self.hints).tuning(true, self.servers());
        let subject = Subject {
            path: &self.storage.name(),
            hosts: machine.map_or(1, Machine::host_count),
            servers: self.servers(),
            block_bytes: tuning.block_bytes,
            is_atomic: self.is_atomic(),
        };
        eprint!("{}", report::text(&subject, counts));
    }

    /// Lets the ranks of the file meet: each says something, rank 0 decides, and all hear its
    /// answer, or the failure of the lowest rank that has one.
    ///
    /// # Errors
    /// The same on all ranks.
    ///
    /// # Collective
    /// Over the ranks of the file.
    pub fn meet<W, A>(
        &self,
        ask: Ask,
        said: Say<W>,
        direct: impl FnOnce(Vec<W>) -> Result<A> + 'static,
    ) -> Result<A>
    where
        W: Serialize + DeserializeOwned + 'static,
        A: Serialize + DeserializeOwned + Send + 'static,
    {
        let [number, _] = self.next_numbers()?;
        match (&self.context.machine, &self.party) {
            (Some(machine), Some(party)) => {
                let place = (party.clone(), self.context.rank, number);
                machine.run(|node| async move { meet(&node, place, ask, said, direct).await })
            }
            _ => direct(heard([said])?),
        }
    }

    /// The numbers of the two calls of the next access.
    ///
    /// # Errors
    /// When there were too many.
    pub fn next_numbers(&self) -> Result<[u64; 2]> {
        let next = self.calls.fetch_add(2, Ordering::Relaxed);
        match next < RESERVED - 1 {
            true => Ok([next, next + 1]),
            false => {
                let cause = "the file has seen too many collective calls: open it again";
                Err(Failure::new(Class::Other, cause))
            }
        }
    }

    /// Reserves the numbers of further calls, as rank 0.
    pub fn reserve(&self, calls: u64) -> u64 {
        self.reserved.fetch_add(calls, Ordering::Relaxed)
    }

    /// The ranks and the servers, if there are several ranks.
    pub fn party(&self) -> Option<&Arc<Party>> {
        self.party.as_ref()
    }

    /// The number of the file in its context.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The number of servers that the file has.
    pub fn servers(&self) -> usize {
        self.party.as_ref().map_or(1, |party| party.servers.len())
    }

    /// Whether the file is in atomic mode.
    pub fn is_atomic(&self) -> bool {
        self.is_atomic.load(Ordering::Acquire)
    }

    /// Sets atomic mode.
    pub fn set_atomic(&self, is_atomic: bool) {
        self.is_atomic.store(is_atomic, Ordering::Release);
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// What the operating system or the servers answer.
    pub fn size(&self) -> Result<u64> {
        self.storage.size()
    }

    /// Sets this rank's view, with handles of its own, and puts its pointer to the beginning.
    ///
    /// # Errors
    /// When a type is none or makes no view.
    pub fn make_view(
        &self,
        displacement: i64,
        (etype, filetype): (Handle, Handle),
        representation: Representation,
    ) -> Result<Cursor> {
        let etype = Datatype::keep(self.mpi, etype)?;
        let filetype = Datatype::keep(self.mpi, filetype)?;
        let (one, other) = (etype.handle, filetype.handle);
        let view = View::new(self.mpi, displacement, one, other, representation)?;
        if self.mode.writes && !view.is_orderly() {
            let cause = "setting a view: the filetype has bytes twice or goes back, and the file \
                         is open for writing";
            return Err(wrong(Class::Arg, cause));
        }
        Ok(Cursor {
            view: Arc::new(view),
            types: Some((etype, filetype)),
            pointer: 0,
        })
    }
}

impl Cursor {
    /// Whether the view is that of a new file.
    pub fn is_new(&self) -> bool {
        self.types.is_none()
    }
}

/// Lets all ranks of a context meet.
fn meet_all<W, A>(
    context: &Context,
    ask: Ask,
    said: Say<W>,
    direct: impl FnOnce(Vec<W>) -> Result<A> + 'static,
) -> Result<A>
where
    W: Serialize + DeserializeOwned + 'static,
    A: Serialize + DeserializeOwned + Send + 'static,
{
    match &context.machine {
        Some(machine) => {
            let place = (machine.all.clone(), context.rank, machine.next_call());
            machine.run(|node| async move { meet(&node, place, ask, said, direct).await })
        }
        None => direct(heard([said])?),
    }
}

/// A meeting of the ranks of a party, as this rank takes part in it.
///
/// # Errors
/// The same on all ranks.
pub async fn meet<W, A>(
    node: &Node,
    (party, rank, number): (Arc<Party>, usize, u64),
    ask: Ask,
    said: Say<W>,
    direct: impl FnOnce(Vec<W>) -> Result<A>,
) -> Result<A>
where
    W: Serialize + DeserializeOwned,
    A: Serialize + DeserializeOwned,
{
    let proposal = Proposal {
        ask,
        own_boxes: Vec::new(),
        own: encode(&said)?,
        complaint: None,
    };
    let mut meeting = Meeting::new((direct, PhantomData::<(W, A)>));
    let director = (rank == 0).then_some(&mut meeting as &mut dyn Director);
    let place = (party, rank, number);
    let verdict = context::call(node, place, Ok(proposal), Own::default(), director).await?;
    decode(&verdict.answer)?
}
