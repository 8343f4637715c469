//! Claims: the order in which requests have the blocks of open files.
//!
//! A request that moves bytes of a block holds a claim on the block: a shared one in order to read,
//! a sole one in order to change it. Claims that conflict are granted in the order in which they
//! came; a request that is to keep to another order asks for its claims in that order.
//!
//! ```text
//! come      read A | read B | change C | read D
//! granted   A and B together; C when both have ended; D when C has ended
//! ```
//!
//! Two rules keep claims free of deadlock: a request that holds a claim never waits for another
//! claim, and a cache drops only blocks that nobody claims. A claim ends when it is dropped, so
//! that a request that is given up leaves nothing behind.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::Hash;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::signal::Signal;

/// The intent of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// The block is read: others may read it, too.
    Read,
    /// The block is changed: nobody else has it.
    Change,
}

/// The claims on all blocks of a server's open files. `K` names a block.
pub struct Claims<K> {
    queues: RefCell<FxHashMap<K, Queue>>,
    next: Cell<u64>,
}

/// The claims on one block, in the order in which they came.
#[derive(Default)]
struct Queue {
    claimants: VecDeque<Claimant>,
    changed: Rc<Signal>,
}

struct Claimant {
    number: u64,
    intent: Intent,
}

impl Queue {
    /// Whether no claim that came before this one conflicts with it.
    fn grants(&self, number: u64, intent: Intent) -> bool {
        let mut before = self.claimants.iter().take_while(|one| one.number != number);
        match intent {
            Intent::Read => before.all(|one| one.intent == Intent::Read),
            Intent::Change => before.next().is_none(),
        }
    }
}

impl<K> Default for Claims<K> {
    fn default() -> Self {
        Self {
            queues: RefCell::default(),
            next: Cell::new(0),
        }
    }
}

impl<K: Clone + Eq + Hash> Claims<K> {
    /// Waits for a claim on a block.
    pub async fn claim(&self, block: &K, intent: Intent) -> Claim<'_, K> {
        let claim = self.enter(block.clone(), intent);
        let granted = || {
            let queues = self.queues.borrow();
            let queue = queues.get(block)?;
            queue.grants(claim.number, intent).then_some(())
        };
        let changed = self.queues.borrow()[block].changed.clone();
        changed.until(granted).await;
        claim
    }

    /// Takes a place at the end of the block's queue.
    fn enter(&self, block: K, intent: Intent) -> Claim<'_, K> {
        let number = self.next.get();
        self.next.set(number + 1);
        let mut queues = self.queues.borrow_mut();
        let queue = queues.entry(block.clone()).or_default();
        queue.claimants.push_back(Claimant { number, intent });
        Claim {
            claims: self,
            block,
            number,
        }
    }

    /// Whether anybody holds a claim on the block, or waits for one.
    pub fn is_claimed(&self, block: &K) -> bool {
        self.queues.borrow().contains_key(block)
    }

    /// Whether no claims are left.
    pub fn is_empty(&self) -> bool {
        self.queues.borrow().is_empty()
    }
}

/// A claim on a block, until it is dropped.
pub struct Claim<'a, K: Clone + Eq + Hash> {
    claims: &'a Claims<K>,
    block: K,
    number: u64,
}

impl<K: Clone + Eq + Hash> Drop for Claim<'_, K> {
    fn drop(&mut self) {
        let mut queues = self.claims.queues.borrow_mut();
        let Some(queue) = queues.get_mut(&self.block) else {
            return;
        };
        queue.claimants.retain(|one| one.number != self.number);
        match queue.claimants.is_empty() {
            true => drop(queues.remove(&self.block)),
            false => queue.changed.tell(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn claims_are_granted_in_the_order_in_which_they_came() {
        let claims = Claims::default();
        let mut first = pin!(claims.claim(&1, Intent::Read));
        let mut second = pin!(claims.claim(&1, Intent::Read));
        let mut change = pin!(claims.claim(&1, Intent::Change));
        let mut last = pin!(claims.claim(&1, Intent::Read));
        let Poll::Ready(one) = poll(first.as_mut()) else {
            panic!("the first reader waits");
        };
        let Poll::Ready(two) = poll(second.as_mut()) else {
            panic!("the second reader waits");
        };
        assert!(poll(change.as_mut()).is_pending());
        assert!(poll(last.as_mut()).is_pending());
        drop(one);
        assert!(poll(change.as_mut()).is_pending());
        drop(two);
        let Poll::Ready(sole) = poll(change.as_mut()) else {
            panic!("nobody is before the change");
        };
        assert!(poll(last.as_mut()).is_pending());
        drop(sole);
        assert!(poll(last.as_mut()).is_ready());
        assert!(claims.is_empty());
    }

    #[test]
    fn a_claim_that_is_given_up_lets_the_others_pass() {
        let claims = Claims::default();
        let Poll::Ready(held) = poll(pin!(claims.claim(&1, Intent::Change))) else {
            panic!("nobody is before it");
        };
        let mut last = pin!(claims.claim(&1, Intent::Read));
        {
            let mut given_up = pin!(claims.claim(&1, Intent::Change));
            assert!(poll(given_up.as_mut()).is_pending());
            assert!(poll(last.as_mut()).is_pending());
        }
        assert!(claims.is_claimed(&1) && !claims.is_claimed(&2));
        drop(held);
        assert!(poll(last.as_mut()).is_ready());
        assert!(claims.is_empty());
    }
}
