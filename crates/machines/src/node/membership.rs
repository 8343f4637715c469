//! The nodes that have left the machine or joined it, as one node has heard.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use penstock_engine::{Change, Error, NodeId};

/// The most changes that a node keeps for futures that have not looked yet: more than all clients
/// of a server.
const CHANGES_MAX: usize = 1 << 16;

/// The changes of the membership in their order, and the futures that wait for more.
#[derive(Default)]
pub(super) struct Membership {
    absent: RefCell<HashMap<NodeId, Error>>,
    changes: RefCell<Changes>,
    wakers: RefCell<Vec<Waker>>,
}

#[derive(Default)]
struct Changes {
    /// The number of the first change that is kept.
    first: u64,
    kept: VecDeque<(NodeId, Change)>,
}

impl Membership {
    /// Notes that a node has joined.
    pub(super) fn join(&self, node: NodeId) {
        self.absent.borrow_mut().remove(&node);
        self.note(node, Change::Joined);
    }

    /// Notes that a node has left, unless that is known.
    pub(super) fn leave(&self, node: NodeId, error: Error) {
        let mut absent = self.absent.borrow_mut();
        if absent.contains_key(&node) {
            return;
        }
        absent.insert(node, error.clone());
        drop(absent);
        self.note(node, Change::Left(error));
    }

    fn note(&self, node: NodeId, change: Change) {
        let mut changes = self.changes.borrow_mut();
        changes.kept.push_back((node, change));
        if changes.kept.len() > CHANGES_MAX
            && let Some((forgotten, _)) = changes.kept.pop_front()
        {
            changes.first += 1;
            self.absent.borrow_mut().remove(&forgotten); // the links know who is no member
        }
        drop(changes);
        self.wakers.take().into_iter().for_each(Waker::wake);
    }

    /// The reason for which a node has left, if it has and is not back.
    pub(super) fn absence(&self, node: NodeId) -> Option<Error> {
        self.absent.borrow().get(&node).cloned()
    }

    /// The number of changes so far.
    pub(super) fn changes(&self) -> u64 {
        let changes = self.changes.borrow();
        changes.first + changes.kept.len() as u64
    }

    /// Waits for the first change with this number or a later one that is kept.
    pub(super) async fn change(&self, from: u64) -> (u64, NodeId, Change) {
        poll_fn(|context| {
            let changes = self.changes.borrow();
            let from = from.max(changes.first);
            let place = usize::try_from(from - changes.first);
            match place.ok().and_then(|place| changes.kept.get(place)) {
                Some((node, change)) => Poll::Ready((from + 1, *node, change.clone())),
                None => {
                    let mut wakers = self.wakers.borrow_mut();
                    if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                        wakers.push(context.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }
}
