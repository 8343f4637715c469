//! Elements that have come with a message.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use penstock_engine::NodeId;

use super::buffer::Staging;

/// Elements on their way with a message.
pub enum Parcel {
    /// In memory of its own.
    Own(Vec<u8>),
    /// In the sender's buffer, which the sender leaves alone until this is dropped.
    Loan(Loan),
}

impl Parcel {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Loan(lent) => lent.bytes(),
        }
    }
}

/// Memory of another node, and its owner's ticket.
pub struct Loan {
    memory: Arc<Staging>,
    bytes: usize,
    from: NodeId,
    ticket: u64,
    returned: Returns,
}

/// What has been read, and is to be given back: node and ticket.
pub type Returns = Rc<RefCell<Vec<(NodeId, u64)>>>;

impl Loan {
    /// The first `bytes` of `memory`, which `from` has lent with `ticket`. `None` if it has fewer.
    pub fn new(
        memory: Arc<Staging>,
        bytes: usize,
        (from, ticket): (NodeId, u64),
        returned: &Returns,
    ) -> Option<Self> {
        (bytes <= memory.bytes()).then(|| Self {
            memory,
            bytes,
            from,
            ticket,
            returned: returned.clone(),
        })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: in bounds, as checked when this was made; the memory is kept by `self`, and the
        // sender does not write to it before it is given back.
        unsafe { std::slice::from_raw_parts(self.memory.base(), self.bytes) }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.returned.borrow_mut().push((self.from, self.ticket));
    }
}

/// The buffers that nodes of this process have lent each other, by sender and ticket.
#[derive(Default)]
pub struct Loans(Mutex<HashMap<(NodeId, u64), Arc<Staging>>>);

impl Loans {
    /// Lends a buffer until the lending is dropped; who has taken it keeps its memory.
    pub fn lend(self: &Arc<Self>, from: NodeId, ticket: u64, staging: Arc<Staging>) -> Lending {
        self.lock().insert((from, ticket), staging);
        Lending {
            lendings: self.clone(),
            key: (from, ticket),
        }
    }

    /// What has been lent; `None` where the sender has given up.
    pub fn take(&self, from: NodeId, ticket: u64) -> Option<Arc<Staging>> {
        self.lock().get(&(from, ticket)).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(NodeId, u64), Arc<Staging>>> {
        // A panic elsewhere cannot leave the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends when dropped.
pub struct Lending {
    lendings: Arc<Loans>,
    key: (NodeId, u64),
}

impl Drop for Lending {
    fn drop(&mut self) {
        self.lendings.lock().remove(&self.key);
    }
}
