//! Polls the calls of one rank that are under way.
//!
//! A call is a future on the rank's node. Whenever the rank waits for one of its calls, all of its
//! calls go on: servers among the ranks serve one call while their client waits for another, so
//! that ranks may end calls in different orders. While the rank computes, a call goes on if it was
//! begun *in the background*, or if an array is open: then a thread looks in the rank's place. Only
//! one of the two threads uses the node at a time.
//!
//! ```text
//! rank's thread      begin  compute compute compute  end: looks until the call has ended
//! background thread     look  sleep  look  sleep  look   ends with the last call that needs it
//! ```

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_engine::trace::Instrument;
use penstock_engine::{
    Attendance, Call, Catch, Director, Error, FileId, FilePart, Kind, Machine, NodeId, Operation,
    Party, Proposal, Result, Verdict, Who, span,
};
use penstock_layout::{DiskSchema, Holding};
use penstock_machines::calls::{self, CallPart, NodeServers, ServedFile};
use penstock_machines::node::pause::{LOOKS_AWAKE, Pause};
use penstock_machines::{ClientMemory, Node};

use super::ask::Ask;

/// The arguments with which a rank starts a call.
pub struct CallStart<D> {
    /// The rank's proposal, or the reason why it cannot make one.
    pub proposal: Result<Proposal<Ask>>,
    /// The rank's memory, for each array and each of its shares.
    pub memories: Vec<Vec<ClientMemory>>,
    /// The rank's list, for each array; one with nothing in it where a schema says who holds what.
    pub lists: Vec<Arc<Holding>>,
    /// What takes the deliveries of a sifted read.
    pub catch: Option<Arc<dyn Catch>>,
    /// Who directs the call.
    pub direct: D,
    /// Whether the call goes on while the rank computes.
    pub in_background: bool,
    /// The owner of the memory, which is kept until the call has ended.
    pub keeps: Option<Box<dyn Any + Send>>,
}

/// Who directs a call, as one rank knows.
pub enum Direct {
    /// This rank.
    Here(Box<dyn Director>),
    /// Servers that stand, whom this rank sends on an errand.
    Servers(Vec<u8>),
    /// Somebody else.
    Other,
}

/// The arguments of a request that a rank makes alone, on an open array.
pub struct AloneStart {
    pub file: FileId,
    pub disk: Arc<DiskSchema>,
    pub servers: usize,
    pub operation: Operation,
    /// The rank's part of the array.
    pub part: FilePart,
    pub memory: ClientMemory,
}

/// A call under way, or a finished call whose verdict nobody has collected.
struct UnderWay {
    future: Option<Pin<Box<dyn Future<Output = Result<Verdict>>>>>,
    handed_over: Rc<Cell<bool>>,
    verdict: Option<Result<Verdict>>,
    in_background: bool,
    _keeps: Option<Box<dyn Any + Send>>,
}

impl UnderWay {
    fn poll(&mut self, context: &mut std::task::Context<'_>) {
        if let Some(future) = &mut self.future
            && let Poll::Ready(verdict) = future.as_mut().poll(context)
        {
            self.future = None; // takes the memory back
            self.verdict = Some(verdict);
        }
    }
}

/// What a rank does alone, while it waits, and the answer.
enum Alone {
    UnderWay(AloneFuture),
    Ended(Result<Vec<u8>>),
}

type AloneFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>>>>>;

impl Alone {
    fn poll(&mut self, context: &mut std::task::Context<'_>) {
        if let Self::UnderWay(future) = self
            && let Poll::Ready(ended) = future.as_mut().poll(context)
        {
            *self = Self::Ended(ended);
        }
    }
}

/// Code of a node that runs beside its calls.
type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The node of a rank, and all of its calls.
struct Calls {
    node: Rc<Node>,
    attendance: Rc<Attendance>,
    /// What the node does for others: it hears of ranks that leave, and its servers serve.
    tasks: Vec<Task>,
    begun: u64,
    /// What this rank does alone, or its end.
    alone: Option<Alone>,
    /// The number of the next such request.
    tickets: Rc<Cell<u64>>,
    /// The number of arrays that are open: their servers are to answer at any time.
    open_arrays: u64,
    under_way: BTreeMap<u64, UnderWay>,
    /// Whether the background thread is running.
    is_looked_after: bool,
    /// Whether the rank waits for a call, and polls in the thread's place.
    rank_waits: bool,
}

// SAFETY: the node and all that refers to it (futures, buffers, reference counts) are reached
// through this value alone, which a mutex guards: one thread at a time uses them.
unsafe impl Send for Calls {}

impl Calls {
    /// Polls all calls once.
    fn look(&mut self, pause: &mut Pause) {
        let Self {
            node,
            tasks,
            alone,
            under_way,
            ..
        } = self;
        node.look(pause, |context| {
            tasks.retain_mut(|task| task.as_mut().poll(context).is_pending());
            alone.iter_mut().for_each(|request| request.poll(context));
            under_way.values_mut().for_each(|call| call.poll(context));
        });
    }

    fn any_in_background(&self) -> bool {
        if self.open_arrays > 0 {
            return true;
        }
        let mut calls = self.under_way.values();
        calls.any(|call| call.in_background && call.verdict.is_none())
    }
}

struct Shared {
    calls: Mutex<Calls>,
    /// Signals that the rank computes again.
    computes: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        // A panic of a call is met again when the call is polled next.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rank waits for a call, until this is dropped.
struct RankWaits<'a>(&'a Shared);

impl<'a> RankWaits<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.lock().rank_waits = true;
        Self(shared)
    }
}

impl Drop for RankWaits<'_> {
    fn drop(&mut self) {
        self.0.lock().rank_waits = false;
        self.0.computes.notify_all();
    }
}

/// A question that a waiting rank asks now and then: must it stop?
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// The longest time that a waiting rank goes without asking whether it must stop.
pub(super) const UNASKED_MAX: Duration = Duration::from_millis(100);

/// The calls of one rank.
pub struct Driver {
    shared: Arc<Shared>,
    thread: Cell<Option<JoinHandle<()>>>,
    interrupt: Option<Interrupt>,
    has_left: Cell<bool>,
    /// The number of the next question.
    questions: Cell<u32>,
}

impl Driver {
    /// Creates a driver for a node of `party` that has no calls.
    ///
    /// Servers of this node have a cache of `cache_bytes` bytes each.
    pub fn new(
        node: Node,
        party: Arc<Party>,
        cache_bytes: u64,
        interrupt: Option<Interrupt>,
    ) -> Self {
        let (node, attendance) = (Rc::new(node), Rc::new(Attendance::new(party)));
        let calls = Calls {
            tasks: tasks(&node, &attendance, cache_bytes),
            node,
            attendance,
            begun: 0,
            alone: None,
            tickets: Rc::default(),
            open_arrays: 0,
            under_way: BTreeMap::new(),
            is_looked_after: false,
            rank_waits: false,
        };
        Self {
            shared: Arc::new(Shared {
                calls: Mutex::new(calls),
                computes: Condvar::new(),
            }),
            thread: Cell::new(None),
            interrupt,
            has_left: Cell::new(false),
            questions: Cell::new(0),
        }
    }

    /// Begins the next call of the client of `rank`, and gives its number. If no background thread
    /// can start, the call fails with that error.
    ///
    /// # Collective
    /// Every rank must call it, in the same order.
    pub fn begin(&self, rank: usize, start: CallStart<Direct>) -> u64 {
        let CallStart {
            mut proposal,
            memories,
            lists,
            catch,
            direct,
            in_background,
            keeps,
        } = start;
        let mut calls = self.shared.lock();
        if in_background && let Err(error) = self.look_after(&mut calls) {
            proposal = Err(error);
        }
        let id = calls.begun;
        calls.begun += 1;
        let (node, attendance) = (calls.node.clone(), calls.attendance.clone());
        let handed_over = Rc::new(Cell::new(false));
        let tell = handed_over.clone();
        let span = span!(
            parent: None,
            "call",
            kind = proposal.as_ref().map_or("call", |proposal| proposal.ask.name()),
            rank = rank as u64,
            call = id,
            out_call = Call::new(&*node, &attendance, id).arrow("call", rank),
        );
        let future = async move {
            let (mut director, errand) = match direct {
                Direct::Here(director) => (Some(director), None),
                Direct::Servers(errand) => (None, Some(errand)),
                Direct::Other => (None, None),
            };
            let director = director
                .as_mut()
                .map(|director| &mut **director as &mut dyn Director);
            let part = CallPart {
                proposal: proposal.into(),
                memories,
                lists: lists.iter().map(|list| &**list).collect(),
                catch: catch.as_deref(),
                director,
                errand,
                handed_over: &tell,
            };
            calls::call(&node, &attendance, (rank, id), part).await
        };
        let call = UnderWay {
            future: Some(Box::pin(future.instrument(span))),
            handed_over,
            verdict: None,
            in_background,
            _keeps: keeps,
        };
        calls.under_way.insert(id, call);
        calls.node.wake();
        id
    }

    /// Keeps this node's servers at work while the rank computes, for one array more or less. Does
    /// nothing where there are none.
    pub fn keep_serving(&self, more: i64) {
        let mut calls = self.shared.lock();
        if calls
            .attendance
            .party
            .place_serving(calls.node.me())
            .is_none()
        {
            return;
        }
        calls.open_arrays = calls.open_arrays.saturating_add_signed(more);
        // Without a thread, requests of others wait until this rank makes a call.
        let _ = self.look_after(&mut calls);
        calls.node.wake();
    }

    /// Makes a request on an open array, and waits for its end.
    ///
    /// # Errors
    /// The error of a server; [`Kind::Peer`] when this rank is interrupted while it waits.
    pub fn alone(&self, start: AloneStart) -> Result<()> {
        let tickets = self.shared.lock().tickets.clone();
        let request = |node: Rc<Node>, attendance: Rc<Attendance>| async move {
            let AloneStart {
                file,
                disk,
                servers,
                operation,
                part,
                memory,
            } = start;
            let file = ServedFile {
                file,
                disk: &disk,
                servers,
            };
            let asked = (operation, &part, memory);
            let moved = calls::transfer(&node, &attendance, file, &tickets, asked).await;
            moved.map(|()| Vec::new())
        };
        let doing = ("moving a part of an array", LOOKS_AWAKE);
        self.wait_alone(doing, request).map(drop)
    }

    /// Brings the party to its servers, which stand, as its rank 0.
    ///
    /// # Errors
    /// Their refusal; [`Kind::Peer`] when this rank is interrupted while it waits.
    pub fn join(&self) -> Result<()> {
        let joining = |node: Rc<Node>, attendance: Rc<Attendance>| async move {
            calls::join(&node, &attendance).await.map(|()| Vec::new())
        };
        self.wait_alone(("joining servers", 0), joining).map(drop)
    }

    /// Asks servers that stand something.
    ///
    /// # Errors
    /// As [`Driver::join`].
    pub fn ask(&self, question: Vec<u8>) -> Result<Vec<u8>> {
        let number = self.questions.get();
        self.questions.set(number.wrapping_add(1));
        self.wait_alone(("asking servers", 0), |node, attendance| async move {
            calls::ask(&node, &attendance, number, question).await
        })
    }

    /// Does something for which no other rank is needed, and waits for its end.
    fn wait_alone<F>(
        &self,
        (doing, looks_awake): (&str, u32),
        begin: impl FnOnce(Rc<Node>, Rc<Attendance>) -> F,
    ) -> Result<Vec<u8>>
    where
        F: Future<Output = Result<Vec<u8>>> + 'static,
    {
        let mut calls = self.shared.lock();
        let future = begin(calls.node.clone(), calls.attendance.clone());
        calls.alone = Some(Alone::UnderWay(Box::pin(future)));
        drop(calls);
        let has_ended = |calls: &Calls| !matches!(calls.alone, Some(Alone::UnderWay(_)));
        self.wait_for(looks_awake, has_ended)?;
        match self.shared.lock().alone.take() {
            Some(Alone::Ended(ended)) => ended,
            _ => Err(Error::new(Kind::Peer, doing, "it was given up")),
        }
    }

    /// Waits until a call has been handed over. Gives false if the call has ended without a
    /// hand-over.
    pub fn is_handed_over(&self, id: u64) -> bool {
        let waited = self.wait(id, |call| call.handed_over.get() || call.verdict.is_some());
        waited.is_ok() && self.is_so(id, |call| call.handed_over.get())
    }

    /// Waits for the end of a call. Gives false if the call has failed, and keeps the error.
    pub fn is_well(&self, id: u64) -> bool {
        let waited = self.wait(id, |call| call.verdict.is_some());
        waited.is_ok() && self.is_so(id, |call| matches!(call.verdict, Some(Ok(_))))
    }

    /// Waits for the end of a call.
    ///
    /// # Errors
    /// The verdict; [`Kind::Peer`] when this rank is interrupted while it waits. The rank has then
    /// left the session.
    pub fn end(&self, id: u64) -> Result<Verdict> {
        self.wait(id, |call| call.verdict.is_some())?;
        let ended = self.shared.lock().under_way.remove(&id);
        let unknown = || Error::new(Kind::Schema, "ending a call", "it has been ended already");
        ended.and_then(|call| call.verdict).ok_or_else(unknown)?
    }

    fn is_so(&self, id: u64, question: impl FnOnce(&UnderWay) -> bool) -> bool {
        self.shared.lock().under_way.get(&id).is_some_and(question)
    }

    /// Whether a call has ended. Polls all calls if no background thread does. Never waits.
    pub fn has_ended(&self, id: u64) -> bool {
        let mut calls = match self.shared.calls.try_lock() {
            Ok(calls) => calls,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if !calls.is_looked_after {
            calls.look(&mut Pause::default());
        }
        let call = calls.under_way.get(&id);
        call.is_none_or(|call| call.verdict.is_some())
    }

    /// The time since some moment before the first call.
    pub fn now(&self) -> Duration {
        self.shared.lock().node.now()
    }

    /// The rank of this node's client, if it has one.
    fn rank(&self) -> Option<usize> {
        let calls = self.shared.lock();
        calls.attendance.party.rank(calls.node.me())
    }

    /// Whether this rank was interrupted while it waited.
    pub fn has_left(&self) -> bool {
        self.has_left.get()
    }

    /// The reason why no new call can succeed, if there is one.
    pub fn broken(&self) -> Option<Error> {
        self.shared.lock().attendance.broken()
    }

    /// Gives up all calls that have not ended, and tells all nodes the reason. Nobody looks into
    /// this rank's memory any more.
    pub fn leave(&self, error: &Error) {
        let mut calls = self.shared.lock();
        let open = calls.under_way.iter();
        let open = open.filter(|(_, call)| call.verdict.is_none());
        let mut given_up: Vec<_> = open.map(|(&id, _)| id..id + 1).collect();
        given_up.push(calls.begun..u64::MAX);
        drop(std::mem::take(&mut calls.under_way));
        calls.alone = None;
        calls.open_arrays = 0;
        drop(std::mem::take(&mut calls.tasks));
        calls::leave(&calls.node, &calls.attendance.party, error, &given_up);
        calls.node.wake();
    }

    /// Polls all calls until the call `id` satisfies `has_come`, or is unknown.
    ///
    /// # Errors
    /// When this rank is interrupted. The rank has then left the session.
    fn wait(&self, id: u64, has_come: impl Fn(&UnderWay) -> bool) -> Result<()> {
        self.wait_for(0, |calls| calls.under_way.get(&id).is_none_or(&has_come))
    }

    /// Polls all calls until there is enough; sleeps after that many looks in vain.
    ///
    /// # Errors
    /// As [`Driver::wait`].
    fn wait_for(&self, looks_awake: u32, is_enough: impl Fn(&Calls) -> bool) -> Result<()> {
        let mut pause = Pause::after(looks_awake);
        let mut asked = Instant::now();
        let _waiting = RankWaits::begin(&self.shared);
        let mut calls = self.shared.lock();
        loop {
            if is_enough(&calls) {
                calls.node.post_all_kept();
                return Ok(());
            }
            calls.look(&mut pause);
            if !is_enough(&calls) {
                drop(calls);
                pause.sleep(Some(UNASKED_MAX));
                calls = self.shared.lock();
            }
            if asked.elapsed() >= UNASKED_MAX {
                drop(calls);
                self.heed_interrupt()?;
                asked = Instant::now();
                calls = self.shared.lock();
            }
        }
    }

    /// Leaves the session if the interrupt says so.
    fn heed_interrupt(&self) -> Result<()> {
        if !self.interrupt.as_ref().is_some_and(|interrupt| interrupt()) {
            return Ok(());
        }
        let error = Error::new(Kind::Peer, "waiting for a call", "it was interrupted");
        let error = match self.rank() {
            Some(rank) => error.by(Who::Rank(rank)),
            None => error,
        };
        self.leave(&error);
        self.has_left.set(true);
        Err(error)
    }

    /// Starts the background thread if it is not running. The thread polls once the caller releases
    /// the lock.
    fn look_after(&self, calls: &mut Calls) -> Result<()> {
        if calls.is_looked_after {
            return Ok(());
        }
        let shared = self.shared.clone();
        let started = std::thread::Builder::new()
            .name("penstock-calls".to_string())
            .spawn(move || look_until_none(&shared));
        let thread = started.map_err(|e| Error::new(Kind::Io, "starting a thread", e))?;
        calls.is_looked_after = true;
        if let Some(earlier) = self.thread.replace(Some(thread)) {
            let _ = earlier.join(); // it has said that it leaves, and does nothing after that
        }
        Ok(())
    }
}

impl Drop for Driver {
    /// Joins the background thread, so that the rank's own thread drops the node: MPI may allow no
    /// other.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is the panic of a call, whose verdict nobody needs any more.
            let _ = thread.join();
        }
    }
}

/// The tasks of a node of a party, beside its calls.
fn tasks(node: &Rc<Node>, attendance: &Rc<Attendance>, cache_bytes: u64) -> Vec<Task> {
    let (me, party) = (node.clone(), attendance.clone());
    let listen: Task = Box::pin(async move { calls::listen(&me, &party).await });
    let (me, party) = (node.clone(), attendance.clone());
    let cache_bytes = node_cache_bytes(&party.party, node.me(), cache_bytes);
    let serve: Task = Box::pin(async move {
        NodeServers::of_party(&me, party, cache_bytes).run().await;
    });
    match attendance.party.place_serving(node.me()) {
        Some(_) => vec![listen, serve],
        None => vec![listen],
    }
}

/// The bytes of the one cache of a node, whose servers have `cache_bytes` bytes each.
pub(super) fn node_cache_bytes(party: &Party, node: NodeId, cache_bytes: u64) -> u64 {
    cache_bytes.saturating_mul(party.servers_on(node).count() as u64)
}

/// The background thread: polls all calls until none is in the background.
fn look_until_none(shared: &Shared) {
    /// Lets the rank poll for itself when a call panics in this thread.
    struct Panicking<'a>(&'a Shared);
    impl Drop for Panicking<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.lock().is_looked_after = false;
            }
        }
    }
    let _panicking = Panicking(shared);
    let mut pause = Pause::default();
    loop {
        let calls = shared.lock();
        let computing = shared.computes.wait_while(calls, |calls| calls.rank_waits);
        let mut calls = computing.unwrap_or_else(PoisonError::into_inner);
        calls.look(&mut pause);
        // The lock decides whether a beginning call still finds this thread.
        let stays = calls.any_in_background();
        pause.looks_awake = match calls.open_arrays {
            0 => 0,
            _ => LOOKS_AWAKE,
        };
        if !stays {
            calls.node.post_all_kept();
            calls.is_looked_after = false;
        }
        drop(calls);
        if !stays {
            return;
        }
        pause.sleep(None);
    }
}
