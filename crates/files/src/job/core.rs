//! What all that a program has open shares.

use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{Either, select};
use penstock_engine::{Change, Error, Kind, Machine, Message, NodeId, Port, Result};
use penstock_machines::Node;
use penstock_machines::memory::parcel::Parcel;
use penstock_machines::node::runner::{Job, Runner};

use crate::client::{ClientState, Mode};

/// The first error of a server of this process.
#[derive(Clone, Default)]
pub(crate) struct Failure(Arc<Mutex<Option<Error>>>);

impl Failure {
    pub(crate) fn get(&self) -> Option<Error> {
        let failure = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone()
    }

    pub(crate) fn set(&self, error: Error) {
        let mut failure = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
    }
}

/// Receives a message of a node of the program.
///
/// # Errors
/// The reason why a node has left that matters.
pub(super) async fn hear(
    node: &Node,
    port: Port,
    matters: impl Fn(NodeId) -> bool,
) -> Result<Message<Parcel>> {
    let (heard, left) = (pin!(node.receive(port)), pin!(departure(node, matters)));
    match select(heard, left).await {
        Either::Left((message, _)) => Ok(message),
        Either::Right((error, _)) => Err(error),
    }
}

/// Waits until a node has left that matters.
async fn departure(node: &Node, matters: impl Fn(NodeId) -> bool) -> Error {
    let mut next = 0;
    loop {
        match node.change(next).await {
            (_, who, Change::Left(error)) if matters(who) => return error,
            (after, ..) => next = after,
        }
    }
}

/// What all that a program has open shares.
pub(crate) struct Core {
    pub(crate) runner: Runner,
    /// The rank of the client, if this process has one.
    pub(crate) rank: Option<usize>,
    pub(crate) state: ClientState,
    /// The error of a server of this process.
    pub(crate) failure: Failure,
    /// Whether others wait for this node until it leaves.
    pub(super) is_joined: AtomicBool,
    /// Whether the program has attached a file to write it.
    pub(super) has_changed: AtomicBool,
}

impl Drop for Core {
    fn drop(&mut self) {
        let cause = "it dropped its file system without closing it";
        self.leave(&Error::new(Kind::Peer, "leaving a volume", cause));
    }
}

impl Core {
    /// Tells all others that this program leaves because of an error, unless it has left.
    pub(super) fn leave(&self, error: &Error) {
        if self.is_joined.swap(false, Ordering::Relaxed) {
            self.runner.leave(error);
        }
    }

    /// Notes that the program attaches a file.
    pub(super) fn note_use(&self, mode: Mode) {
        if mode.writes {
            self.has_changed.store(true, Ordering::Relaxed);
        }
    }

    /// Does a job of the client to its end.
    pub(crate) fn run<T, F>(&self, job: impl FnOnce(Rc<Node>, ClientState) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + 'static,
    {
        let state = self.state.clone();
        self.end(&self.runner.enter(|node| job(node, state)))
    }

    /// Waits for the end of a job. It is given up, and the program's memory with it, when a server
    /// of this process fails or this thread is interrupted.
    pub(crate) fn end<T>(&self, job: &Job<Result<T>>) -> Result<T> {
        let Self {
            runner, failure, ..
        } = self;
        let waited = runner.wait(|| runner.is_done(job) || failure.get().is_some());
        match waited.err().or_else(|| failure.get()) {
            Some(error) if !runner.is_done(job) => {
                runner.give_up(job);
                Err(error)
            }
            _ => runner.end(job)?,
        }
    }
}
