//! Parcels: elements that have come with a message.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use penstock_engine::NodeId;

use super::buffer::Staging;

/// A parcel is elements on their way with a message.
pub enum Parcel {
    /// The parcel has memory of its own.
    Own(Vec<u8>),
    /// The parcel is the end of a packet, from this byte on.
    End(Vec<u8>, usize),
    /// The parcel lies in the sender's buffer, which the sender leaves alone until this is dropped.
    Loan(Loan),
}

impl Parcel {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::End(packet, start) => &packet[*start..],
            Self::Loan(lent) => lent.bytes(),
        }
    }
}

/// A loan is memory of another node, with the owner's ticket.
pub struct Loan {
    memory: Arc<Staging>,
    bytes: usize,
    from: NodeId,
    ticket: u64,
    returned: Returns,
}

/// The loans that have been read and must be given back: node and ticket.
pub type Returns = Rc<RefCell<Vec<(NodeId, u64)>>>;

impl Loan {
    /// Makes a loan of the first `bytes` of `memory`, lent by `from` with `ticket`; `None` if
    /// `memory` has fewer.
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
        // SAFETY: in bounds, as checked when the loan was made; `self` keeps the memory, and the
        // sender does not write to it before the loan is given back.
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
    /// Lends a buffer until the lending is dropped; a node that has taken the buffer keeps its
    /// memory.
    pub fn lend(self: &Arc<Self>, from: NodeId, ticket: u64, staging: Arc<Staging>) -> Lending {
        self.lock().insert((from, ticket), staging);
        Lending {
            lendings: self.clone(),
            key: (from, ticket),
        }
    }

    /// Takes a lent buffer; `None` if the sender has given up.
    pub fn take(&self, from: NodeId, ticket: u64) -> Option<Arc<Staging>> {
        self.lock().get(&(from, ticket)).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(NodeId, u64), Arc<Staging>>> {
        // A panic elsewhere cannot leave the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lending ends when dropped.
pub struct Lending {
    lendings: Arc<Loans>,
    key: (NodeId, u64),
}

impl Drop for Lending {
    fn drop(&mut self) {
        self.lendings.lock().remove(&self.key);
    }
}
