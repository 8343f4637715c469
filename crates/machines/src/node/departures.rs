//! The nodes that have left the machine.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use penstock_engine::{Error, NodeId};

/// The departures of which a node has heard, in their order, and the futures that wait for more.
#[derive(Default)]
pub(super) struct Departures {
    nodes: RefCell<Vec<(NodeId, Error)>>,
    wakers: RefCell<Vec<Waker>>,
}

impl Departures {
    /// Notes that a node has left, unless that is known.
    pub(super) fn add(&self, node: NodeId, error: Error) {
        if self.of(node).is_none() {
            self.nodes.borrow_mut().push((node, error));
            self.wakers.take().into_iter().for_each(Waker::wake);
        }
    }

    /// The reason for which a node has left, if it has.
    pub(super) fn of(&self, node: NodeId) -> Option<Error> {
        let nodes = self.nodes.borrow();
        let mut found = nodes.iter().filter(|(other, _)| *other == node);
        found.next().map(|(_, error)| error.clone())
    }

    /// Waits until more than `known` nodes have left, and gives the next.
    pub(super) async fn after(&self, known: usize) -> (NodeId, Error) {
        poll_fn(|context| match self.nodes.borrow().get(known) {
            Some(departure) => Poll::Ready(departure.clone()),
            None => {
                let mut wakers = self.wakers.borrow_mut();
                if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
        })
        .await
    }
}
