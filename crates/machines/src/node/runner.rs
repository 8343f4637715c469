//! Runs the futures of a node for the threads of its process.
//!
//! A node is one thing at a time. Whoever waits for a job looks in the node's place, and all jobs
//! and tasks go on meanwhile. Where the node serves others, a thread looks while nobody waits:
//!
//! ```text
//! a thread of the program     begin | compute | compute | end: looks until the job has ended
//! another                             end: looks, in turns with the first
//! the node's own thread       looks  looks  looks       waits       looks
//! ```
//!
//! Where the node serves nobody else while its program computes, the thread looks only as long as
//! jobs are under way that were begun and not entered.
//!
//! Waking a thread takes longer than a small job. Threads that wait one after another, each for a
//! short time, leave the node's own thread asleep; it looks again when nobody has waited for a nap.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_engine::{Error, Kind, NodeId, Result};

use super::Node;
use super::pause::{LOOKS_AWAKE, Pause};

/// Code of a node that runs beside its jobs.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A question that a waiting thread asks now and then: must it stop?
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// The time after which the node's own thread looks whether others still wait for jobs.
const NAP: Duration = Duration::from_micros(200);

/// The longest time that a waiting thread goes without asking whether it must stop.
const UNASKED_MAX: Duration = Duration::from_millis(100);

/// When a thread of the node's own looks, if nobody waits for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looking {
    /// Always: the node serves others.
    Always,
    /// While jobs that were begun are under way.
    ForJobs,
    /// Never: no thread but the program's may use the machine.
    Never,
}

/// The node, and all that runs on it.
struct Work {
    node: Rc<Node>,
    tasks: Vec<Task>,
    jobs: BTreeMap<u64, Task>,
    next: u64,
}

// SAFETY: the node and all that refers to it (futures, buffers, reference counts) are reached
// through this value alone, which a mutex guards: one thread at a time uses them.
unsafe impl Send for Work {}

impl Work {
    /// Polls all tasks and jobs once.
    fn look(&mut self, pause: &mut Pause) {
        let Self {
            node, tasks, jobs, ..
        } = self;
        let before = jobs.len();
        node.look(pause, |context| {
            tasks.retain_mut(|task| task.as_mut().poll(context).is_pending());
            jobs.retain(|_, job| job.as_mut().poll(context) == Poll::Pending);
        });
        if jobs.len() < before {
            node.wake(); // the threads that wait for these jobs
        }
    }
}

/// Who looks: threads that wait for jobs, or the node's own thread.
#[derive(Default)]
struct Watch {
    /// The number of threads that wait.
    waiting: usize,
    /// The number of times that a thread has begun to wait.
    waits: u64,
    /// Whether somebody has begun a job for which nobody waits.
    is_wanted: bool,
    /// Whether the node's own thread sleeps until nobody waits any more.
    is_asleep: bool,
    is_closed: bool,
}

impl Watch {
    /// Whether others look in the place of the node's own thread: one waits, or has waited since
    /// that thread has seen `seen` waits.
    fn has_others(&self, seen: u64) -> bool {
        self.waiting > 0 || self.waits != seen && !self.is_wanted
    }
}

struct Shared {
    work: Mutex<Work>,
    watch: Mutex<Watch>,
    looking: Looking,
    /// The number of jobs under way that were begun.
    begun: Arc<AtomicUsize>,
    /// Signals that the node's own thread is to look.
    unwatched: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Work> {
        // A panic of a job is met again when the job is polled next.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the node's own thread has something to look for.
    fn has_to_look(&self) -> bool {
        self.looking == Looking::Always || self.begun.load(Ordering::Acquire) > 0
    }

    /// Closes the runner: the node's own thread ends.
    fn close(&self) {
        self.watch().is_closed = true;
        self.unwatched.notify_all();
    }
}

/// A thread waits for a job, until this is dropped.
struct Waiting<'a>(&'a Shared);

impl<'a> Waiting<'a> {
    fn begin(shared: &'a Shared) -> Self {
        let mut watch = shared.watch();
        watch.waiting += 1;
        watch.waits += 1;
        drop(watch);
        Self(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut watch = self.0.watch();
        watch.waiting -= 1;
        let must_wake = watch.waiting == 0 && (watch.is_asleep || watch.is_wanted);
        drop(watch);
        if must_wake {
            self.0.unwatched.notify_all();
        }
    }
}

/// Counts a job that was begun, until this is dropped.
struct Begun(Arc<AtomicUsize>);

impl Begun {
    fn count(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::AcqRel);
        Self(all.clone())
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A job that was begun or entered.
pub struct Job<T> {
    number: u64,
    end: Arc<Mutex<JobEnd<T>>>,
}

/// The end of a job.
enum JobEnd<T> {
    /// The job is under way.
    ToCome,
    /// The job has ended with this result.
    Come(T),
    /// Somebody has taken the result.
    Taken,
}

impl<T> Job<T> {
    fn end(&self) -> MutexGuard<'_, JobEnd<T>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the result of a job that has ended, once.
    fn take(&self) -> Option<T> {
        let mut end = self.end();
        match std::mem::replace(&mut *end, JobEnd::Taken) {
            JobEnd::Come(result) => Some(result),
            JobEnd::ToCome | JobEnd::Taken => None,
        }
    }

    fn has_ended(&self) -> bool {
        !matches!(*self.end(), JobEnd::ToCome)
    }
}

/// A runner of a node's futures, which several threads may use.
pub struct Runner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    interrupt: Option<Interrupt>,
}

impl Runner {
    /// Makes a runner of a node with these tasks. `looking` says when a thread of its own looks
    /// while nobody waits for a job.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn new(
        node: Node,
        tasks: impl FnOnce(&Rc<Node>) -> Vec<Task>,
        looking: Looking,
        interrupt: Option<Interrupt>,
    ) -> Result<Self> {
        let node = Rc::new(node);
        let work = Work {
            tasks: tasks(&node),
            node,
            jobs: BTreeMap::new(),
            next: 0,
        };
        let shared = Arc::new(Shared {
            work: Mutex::new(work),
            watch: Mutex::default(),
            unwatched: Condvar::new(),
            looking,
            begun: Arc::default(),
        });
        let runner = Self {
            shared,
            thread: Mutex::default(),
            interrupt,
        };
        if looking == Looking::Always {
            runner.start_thread()?;
        }
        Ok(runner)
    }

    /// Starts the node's own thread, if it is not running.
    fn start_thread(&self) -> Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = self.shared.clone();
            let started = std::thread::Builder::new()
                .name("penstock-node".to_string())
                .spawn(move || look_after(&shared));
            *thread = Some(started.map_err(|e| Error::new(Kind::Io, "starting a thread", e))?);
        }
        Ok(())
    }

    /// The node's number.
    pub fn node(&self) -> NodeId {
        self.shared.lock().node.me
    }

    /// Begins a job, whose future is made with the node. It goes on while this thread does
    /// something else, if the node may have a thread of its own.
    pub fn begin<T, F>(&self, job: impl FnOnce(Rc<Node>) -> F) -> Job<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let count = Begun::count(&self.shared.begun);
        let begun = self.enter(|node| {
            let job = job(node);
            async move {
                let _count = count;
                job.await
            }
        });
        if self.shared.looking == Looking::ForJobs {
            let _ = self.start_thread(); // without one, the job goes on when somebody waits for it
        }
        self.shared.watch().is_wanted = true;
        self.shared.unwatched.notify_all();
        self.shared.lock().node.wake();
        begun
    }

    /// Begins a job for which this thread waits at once: nobody else is woken.
    pub fn enter<T, F>(&self, job: impl FnOnce(Rc<Node>) -> F) -> Job<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let end = Arc::new(Mutex::new(JobEnd::ToCome));
        let mut work = self.shared.lock();
        let (future, place) = (job(work.node.clone()), end.clone());
        let number = work.next;
        work.next += 1;
        let future = async move {
            let ended = future.await;
            *place.lock().unwrap_or_else(PoisonError::into_inner) = JobEnd::Come(ended);
        };
        work.jobs.insert(number, Box::pin(future));
        Job { number, end }
    }

    /// Waits for the end of a job, and takes its result.
    ///
    /// # Errors
    /// [`Kind::Peer`] when this thread is interrupted. The job has then been given up.
    pub fn end<T>(&self, job: &Job<T>) -> Result<T> {
        let waited = self.wait(|| job.has_ended());
        if waited.is_err() {
            self.give_up(job);
        }
        waited?;
        let gone = || Error::new(Kind::Schema, "ending a job", "it has been ended already");
        job.take().ok_or_else(gone)
    }

    /// Does a job to its end.
    ///
    /// # Errors
    /// As [`Runner::end`].
    pub fn run<T, F>(&self, job: impl FnOnce(Rc<Node>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        self.end(&self.enter(job))
    }

    /// Whether a job has ended. Does not look.
    pub fn is_done<T>(&self, job: &Job<T>) -> bool {
        job.has_ended()
    }

    /// Whether a job has ended. Looks once if nobody else does, and never waits.
    pub fn has_ended<T>(&self, job: &Job<T>) -> bool {
        if !job.has_ended() {
            let mut work = match self.shared.work.try_lock() {
                Ok(work) => work,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return false,
            };
            work.look(&mut Pause::default());
        }
        job.has_ended()
    }

    /// Waits until something has come, which a job or a task brings about.
    ///
    /// # Errors
    /// [`Kind::Peer`] when this thread is interrupted.
    pub fn wait(&self, has_come: impl Fn() -> bool) -> Result<()> {
        if has_come() {
            return Ok(());
        }
        let mut pause = Pause::after(LOOKS_AWAKE);
        let mut asked = Instant::now();
        let _waiting = Waiting::begin(&self.shared);
        loop {
            let mut work = self.shared.lock();
            if !has_come() {
                work.look(&mut pause);
            }
            if has_come() {
                work.node.post_all_kept();
                return Ok(());
            }
            drop(work);
            pause.sleep(Some(UNASKED_MAX));
            if asked.elapsed() >= UNASKED_MAX {
                if self.interrupt.as_ref().is_some_and(|interrupt| interrupt()) {
                    return Err(Error::new(Kind::Peer, "waiting", "it was interrupted"));
                }
                asked = Instant::now();
            }
        }
    }

    /// Gives a job up: what it holds is dropped.
    pub fn give_up<T>(&self, job: &Job<T>) {
        let mut work = self.shared.lock();
        drop(work.jobs.remove(&job.number)); // under the lock: what it refers to is the node's
    }

    /// Tells all other nodes that this node leaves the machine because of `error`, and gives all
    /// jobs and tasks up.
    pub fn leave(&self, error: &Error) {
        let mut work = self.shared.lock();
        work.jobs.clear();
        work.tasks.clear();
        self.shared.close();
        work.node.leave(error);
        work.node.wake();
    }
}

impl Drop for Runner {
    /// Ends the node's own thread, and drops jobs and tasks on this one.
    fn drop(&mut self) {
        let work = self.shared.lock();
        self.shared.close();
        work.node.post_all_kept();
        work.node.wake();
        drop(work);
        let thread = self.thread.get_mut();
        if let Some(thread) = thread.unwrap_or_else(PoisonError::into_inner).take() {
            // A panic of the thread is the panic of a job, whose result nobody needs any more.
            let _ = thread.join();
        }
    }
}

/// The node's own thread: looks while nobody waits for a job.
fn look_after(shared: &Shared) {
    let mut pause = Pause::after(LOOKS_AWAKE);
    let mut seen = 0;
    loop {
        let mut watch = shared.watch();
        while !watch.is_closed && (watch.has_others(seen) || !shared.has_to_look()) {
            // One who waits for longer than a nap will say when that is over.
            let has_to_look = shared.has_to_look();
            watch.is_asleep = has_to_look && watch.waiting > 0 && watch.waits == seen;
            seen = watch.waits;
            let nap = match watch.is_asleep || !has_to_look {
                true => Duration::MAX,
                false => NAP,
            };
            let woken = shared.unwatched.wait_timeout(watch, nap);
            watch = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        (watch.is_asleep, watch.is_wanted) = (false, false);
        drop(watch);
        shared.lock().look(&mut pause);
        // Who closes after this look rings the bell, and the pause ends at once.
        if shared.watch().is_closed {
            return;
        }
        pause.sleep(None);
    }
}
