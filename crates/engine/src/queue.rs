//! The queue of a disk chooses the next request.
//!
//! A disk works at a few requests at a time (one, if it has an arm). Others wait here. When a
//! request ends, the next is chosen: the first come, or by Cyclical Scan the nearest one ahead in a
//! sweep that always goes one way (Seltzer, Chen and Ousterhout 1990; Kotz, TOCS 1997, section 4).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use penstock_layout::Block;

use crate::machine::BlockFile;
use crate::signal::Signal;
use crate::tuning::QueueOrder;

/// The sort key of a request: the order's key for the block, then the order of arrival.
type Key = ((u64, u64), u64);

/// A queue of requests at one disk.
pub struct Queue {
    order: QueueOrder,
    state: RefCell<State>,
}

struct State {
    free: u32,
    arrivals: u64,
    /// The place that the sweep has come to.
    head: (u64, u64),
    waiting: BTreeMap<Key, Rc<Waiter>>,
}

#[derive(Default)]
struct Waiter {
    is_next: Cell<bool>,
    signal: Signal,
}

impl Queue {
    /// Makes an empty queue for a disk that works at `depth` requests at a time.
    pub fn new(order: QueueOrder, depth: u32) -> Self {
        let state = State {
            free: depth.max(1),
            arrivals: 0,
            head: (0, 0),
            waiting: BTreeMap::new(),
        };
        Self {
            order,
            state: RefCell::new(state),
        }
    }

    /// Waits for the disk. The disk is the caller's until the turn is dropped. A future that is
    /// dropped before takes no place. If the disk is idle,
    /// `wake` is awaited before the next request is chosen: the cost of waking the disk's thread.
    pub async fn turn<D: BlockFile>(
        &self,
        disk: &D,
        block: &Block,
        wake: impl Future<Output = ()>,
    ) -> Turn<'_> {
        let place = match self.order {
            QueueOrder::Fcfs => (0, 0),
            QueueOrder::CScanFile => (block.object, block.offset),
            QueueOrder::CScanDisk => disk.position(block),
        };
        self.turn_at(place, wake).await
    }

    /// Waits for the disk, for a request at this place.
    async fn turn_at(&self, place: (u64, u64), wake: impl Future<Output = ()>) -> Turn<'_> {
        let mut waiting = self.enter(place);
        if waiting.keeps_place {
            wake.await;
            waiting.keeps_place = false;
            self.choose();
        }
        let is_next = || waiting.waiter.is_next.get().then_some(());
        waiting.waiter.signal.until(is_next).await;
        waiting.waiter.is_next.set(false); // the turn is dropped instead
        Turn { queue: self }
    }

    /// Begins to wait. If the disk has a free place, it is kept for the request chosen next.
    fn enter(&self, place: (u64, u64)) -> Waiting<'_> {
        let mut state = self.state.borrow_mut();
        let waiter = Rc::new(Waiter::default());
        let key = (place, state.arrivals);
        state.arrivals += 1;
        state.waiting.insert(key, waiter.clone());
        let keeps_place = state.free > 0;
        state.free -= u32::from(keeps_place);
        Waiting {
            queue: self,
            key,
            waiter,
            keeps_place,
        }
    }

    /// Gives the place at the disk to the next request, if any.
    fn choose(&self) {
        let mut state = self.state.borrow_mut();
        let ahead = state.waiting.range((state.head, 0)..).next();
        let next = ahead.or_else(|| state.waiting.first_key_value());
        match next.map(|(&key, _)| key) {
            None => state.free += 1,
            Some(key) => {
                state.head = key.0;
                if let Some(waiter) = state.waiting.remove(&key) {
                    waiter.is_next.set(true);
                    waiter.signal.tell();
                }
            }
        }
    }
}

/// A request that waits. If it is dropped, nothing of it stays in the queue, and its place at the
/// disk, if it has one, goes to the next.
struct Waiting<'a> {
    queue: &'a Queue,
    key: Key,
    waiter: Rc<Waiter>,
    /// Whether this request keeps a free place, until its disk is awake.
    keeps_place: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.queue.state.borrow_mut().waiting.remove(&self.key);
        let places = u32::from(self.keeps_place) + u32::from(self.waiter.is_next.get());
        (0..places).for_each(|_| self.queue.choose());
    }
}

/// A turn is a place at the disk.
pub struct Turn<'a> {
    queue: &'a Queue,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.queue.choose();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures::task::noop_waker;

    use super::*;

    type Request<'a> = Pin<Box<dyn Future<Output = Turn<'a>> + 'a>>;

    /// Requests at one place, each with a disk that takes `looks` looks to wake.
    fn request(queue: &Queue, place: u64, looks: u64) -> Request<'_> {
        Box::pin(async move {
            let left = Cell::new(looks);
            let wake = std::future::poll_fn(move |_| match left.replace(left.get().max(1) - 1) {
                0 => Poll::Ready(()),
                _ => Poll::Pending,
            });
            queue.turn_at((place, 0), wake).await
        })
    }

    /// Requests come, are looked at, get their turns and are dropped, in any order and at any
    /// moment: there are never more turns than places, and at the end all places are free.
    #[test]
    fn a_request_that_is_dropped_takes_no_place() {
        let mut random = 88172645463325252u64;
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        for depth in 1..4 {
            for _ in 0..300 {
                let queue = Queue::new(QueueOrder::CScanDisk, depth);
                let mut requests: Vec<Request<'_>> = Vec::new();
                let turns = RefCell::new(Vec::new());
                for _ in 0..60 {
                    match below(4) {
                        0 => requests.push(request(&queue, below(9), below(3))),
                        1 if !requests.is_empty() => {
                            drop(requests.swap_remove(below(requests.len() as u64) as usize));
                        }
                        2 => drop(turns.borrow_mut().pop()),
                        _ => requests.retain_mut(|request| {
                            let waker = noop_waker();
                            match request.as_mut().poll(&mut Context::from_waker(&waker)) {
                                Poll::Ready(turn) => {
                                    turns.borrow_mut().push(turn);
                                    false
                                }
                                Poll::Pending => true,
                            }
                        }),
                    }
                    assert!(turns.borrow().len() <= depth as usize);
                }
                drop(requests);
                drop(turns);
                let state = queue.state.borrow();
                assert_eq!((state.free, state.waiting.len()), (depth, 0));
            }
        }
    }
}
