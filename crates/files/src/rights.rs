//! What a client whom a server does not trust may do with a file, and what it has under way.

use std::cell::Cell;
use std::rc::Rc;

use penstock_engine::Operation;
use serde::{Deserialize, Serialize};

use crate::object::FileShape;

/// The most requests that a client may have under way at one server, and the most bytes of them.
/// Clients keep to the half of both.
pub(crate) const REQUESTS_MAX: u64 = 8192;
pub(crate) const REQUEST_BYTES_MAX: u64 = 64 << 20;

/// What a client may do with a file, and what the server must know of the file for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Right {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) owner: u32,
    pub(crate) shape: FileShape,
}

/// What a client has under way.
#[derive(Debug, Default)]
pub(crate) struct Load {
    requests: Cell<u64>,
    bytes: Cell<u64>,
}

/// A hold on a client's share of memory, as long as a request of it is under way.
#[derive(Debug)]
pub(crate) struct Hold {
    load: Rc<Load>,
    bytes: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Self { load, bytes } = self;
        load.requests.set(load.requests.get() - 1);
        load.bytes.set(load.bytes.get() - *bytes);
    }
}

impl Right {
    /// Whether it allows an access.
    pub(crate) fn allows(&self, operation: Operation) -> bool {
        match operation {
            Operation::Read => self.reads,
            Operation::Write => self.writes,
        }
    }
}

impl Load {
    /// What is too much of it, if anything is.
    pub(crate) fn excess(&self) -> Option<String> {
        let (requests, bytes) = (self.requests.get(), self.bytes.get());
        let is_too_much = requests > REQUESTS_MAX || bytes > REQUEST_BYTES_MAX;
        is_too_much.then(|| format!("it has {requests} requests of {bytes} bytes under way"))
    }
}

impl Hold {
    /// Counts a request, and its bytes.
    pub(crate) fn of(load: &Rc<Load>, bytes: u64) -> Self {
        load.requests.set(load.requests.get() + 1);
        load.bytes.set(load.bytes.get() + bytes);
        Self {
            load: load.clone(),
            bytes,
        }
    }
}
