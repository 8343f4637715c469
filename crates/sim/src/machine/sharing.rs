//! The costs of sharing a file system between clients: the file's token, and attention.
//!
//! Every call for the file begins with its token, which clients hand on in the order in which they
//! come; waiting clients make that slower. The first request marks a call: the client then has no
//! other under way. A server that takes a request up looks at all clients that have requests at its
//! I/O node.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use penstock_engine::NodeId;

use super::world::World;
use crate::preset;
use crate::time::Span;

/// Sharing keeps account of requests between clients and servers.
#[derive(Default)]
pub(super) struct Sharing {
    costs: Option<Costs>,
    /// The number of unanswered requests of each client.
    under_way: RefCell<HashMap<NodeId, u64>>,
    /// The number of unanswered requests at each I/O node, by client.
    at_node: RefCell<HashMap<NodeId, HashMap<NodeId, u64>>>,
    is_taken: Cell<bool>,
    waiting: RefCell<VecDeque<Rc<Waiter>>>,
}

struct Costs {
    token: Span,
    token_waiting: Span,
    poll: Span,
    system_copy_ns_per_byte: f64,
}

#[derive(Default)]
struct Waiter {
    has_token: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

impl Sharing {
    pub(super) fn new(sharing: &Option<preset::Sharing>) -> Self {
        let costs = sharing.as_ref().map(|sharing| Costs {
            token: Span::from_us_f64(sharing.token_us),
            token_waiting: Span::from_us_f64(sharing.token_waiting_us),
            poll: Span::from_us_f64(sharing.poll_us),
            system_copy_ns_per_byte: sharing.system_copy_ns_per_byte,
        });
        Self {
            costs,
            ..Self::default()
        }
    }

    /// Takes the token when a client makes the first request of a call.
    pub(super) async fn take_token(&self, world: &Rc<World>, client: NodeId) {
        let is_first = !self.under_way.borrow().contains_key(&client);
        let Some(costs) = self.costs.as_ref().filter(|_| is_first) else {
            return;
        };
        if self.is_taken.replace(true) {
            let mine = Rc::<Waiter>::default();
            self.waiting.borrow_mut().push_back(mine.clone());
            poll_fn(|context| match mine.has_token.get() {
                true => Poll::Ready(()),
                false => {
                    mine.waker.set(Some(context.waker().clone()));
                    Poll::Pending
                }
            })
            .await;
        }
        let waiting = self.waiting.borrow().len() as u64;
        let taken = costs.token + costs.token_waiting * waiting;
        world.sleep_until(world.now() + taken).await;
        match self.waiting.borrow_mut().pop_front() {
            None => self.is_taken.set(false),
            Some(next) => {
                next.has_token.set(true);
                if let Some(waker) = next.waker.take() {
                    waker.wake();
                }
            }
        }
    }

    /// The time in which a server looks at clients when it takes a request up.
    pub(super) fn attention(&self, node: NodeId) -> Span {
        let Some(costs) = &self.costs else {
            return Span::ZERO;
        };
        let at_node = self.at_node.borrow();
        costs.poll * at_node.get(&node).map_or(0, HashMap::len) as u64
    }

    /// Notes a client's request to a server. Gives the client's cost of copying the data of the
    /// request, if they must be copied.
    pub(super) fn requests(&self, client: NodeId, server: NodeId, bytes: u64) -> Span {
        let Some(costs) = &self.costs else {
            return Span::ZERO;
        };
        *self.under_way.borrow_mut().entry(client).or_default() += 1;
        let mut at_node = self.at_node.borrow_mut();
        *at_node
            .entry(server)
            .or_default()
            .entry(client)
            .or_default() += 1;
        Span::from_ns_f64(costs.system_copy_ns_per_byte * bytes as f64)
    }

    /// Notes that a server answers a client's request.
    pub(super) fn replies(&self, server: NodeId, client: NodeId) {
        if let Some(clients) = self.at_node.borrow_mut().get_mut(&server) {
            one_less(clients, client);
        }
    }

    /// Notes that a client takes an answer.
    pub(super) fn answers(&self, client: NodeId) {
        one_less(&mut self.under_way.borrow_mut(), client);
    }
}

/// Counts one less, and forgets a count of zero.
fn one_less(counts: &mut HashMap<NodeId, u64>, node: NodeId) {
    if let Some(count) = counts.get_mut(&node) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&node);
        }
    }
}
