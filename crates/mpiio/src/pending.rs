//! Accesses that go on while the program computes: split, non-blocking.
//!
//! A collective one goes on as a job of the rank's node. An independent one is made by a thread of
//! this process, or at once if it is small: waking a thread takes longer.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

use penstock_machines::node::runner::Job;

use crate::access::Access;
use crate::context::{Context, lock};
use crate::failure::{Class, Failure, Result};

/// An access that has moved its data: the bytes in the file, if it went well.
pub struct Moved {
    pub access: Result<Access>,
    pub bytes: Result<u64>,
}

impl Moved {
    /// Ends the access, and gives the bytes of memory. Call it on a thread that may call MPI.
    ///
    /// # Errors
    /// The access's, or those of the conversion.
    pub fn land(self) -> Result<u64> {
        let mut access = self.access?;
        access.land(self.bytes?)
    }
}

/// An access under way.
pub enum Pending {
    /// A job of the rank's node.
    Job(Job<Moved>),
    /// Something that a thread does.
    Thread(Arc<Task>),
    /// An access that has ended.
    Ended(Box<Moved>),
}

/// What a thread does, and its end.
#[derive(Default)]
pub struct Task {
    moved: Mutex<Option<Moved>>,
    ended: Condvar,
}

impl Pending {
    /// Lets a thread do something.
    pub fn on_thread(
        act: impl FnOnce() -> Moved + Send + 'static,
        then: impl FnOnce() + Send + 'static,
    ) -> Self {
        let task = Arc::new(Task::default());
        let own = task.clone();
        run_on_thread(Box::new(move || {
            let moved = catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Moved {
                access: Err(failure_of(&*panic)),
                bytes: Ok(0),
            });
            *lock(&own.moved) = Some(moved);
            own.ended.notify_all();
            then();
        }));
        Self::Thread(task)
    }

    /// Whether the access has ended. Never waits.
    pub fn has_ended(&self, context: &Context) -> bool {
        match (self, &context.machine) {
            (Self::Ended(_), _) => true,
            (Self::Thread(task), _) => lock(&task.moved).is_some(),
            (Self::Job(job), Some(machine)) => machine.has_ended(job),
            (Self::Job(_), None) => true, // such a file has no jobs
        }
    }

    /// Waits until the access has moved its data.
    pub fn wait(self, context: &Context) -> Moved {
        match (self, &context.machine) {
            (Self::Ended(moved), _) => *moved,
            (Self::Thread(task), _) => {
                let waiting = lock(&task.moved);
                let ended = task.ended.wait_while(waiting, |moved| moved.is_none());
                let mut ended = ended.unwrap_or_else(std::sync::PoisonError::into_inner);
                ended.take().unwrap_or_else(gone)
            }
            (Self::Job(job), Some(machine)) => machine.end(&job).unwrap_or_else(|failure| Moved {
                access: Err(failure),
                bytes: Ok(0),
            }),
            (Self::Job(_), None) => gone(),
        }
    }
}

fn gone() -> Moved {
    Moved {
        access: Err(Failure::new(
            Class::Request,
            "the access has been ended already",
        )),
        bytes: Ok(0),
    }
}

/// A panic as a failure: it must not leave the library.
pub fn failure_of(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| {
        let text = panic.downcast_ref::<String>();
        text.map(String::as_str)
    });
    let text = text.unwrap_or("no reason");
    Failure::new(
        Class::Other,
        format_args!("something is wrong in Penstock: {text}"),
    )
}

type Act = Box<dyn FnOnce() + Send>;

/// Runs something on the thread of this process that makes accesses, after what came before.
fn run_on_thread(act: Act) {
    /// The way to the thread, and the process that has it: a child of `fork` has none.
    static THREAD: Mutex<Option<(u32, Sender<Act>)>> = Mutex::new(None);
    let mut thread = lock(&THREAD);
    let me = std::process::id();
    let act = match &*thread {
        Some((process, way)) if *process == me => match way.send(act) {
            Ok(()) => return,
            Err(not_sent) => not_sent.0,
        },
        _ => act,
    };
    let (way, acts) = channel::<Act>();
    let started = std::thread::Builder::new()
        .name("penstock-access".to_string())
        .spawn(move || acts.iter().for_each(|act| act()));
    match started {
        Ok(_) => {
            if let Err(not_sent) = way.send(act) {
                (not_sent.0)();
            }
            *thread = Some((me, way));
        }
        Err(_) => act(), // no thread: it is done now
    }
}
