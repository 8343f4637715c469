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

    /// Waits for the disk. The disk is the caller's until the turn is dropped. If the disk is idle,
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
        let (waiter, is_idle) = self.enter(place);
        if is_idle {
            wake.await;
            self.choose();
        }
        let is_next = || waiter.is_next.get().then_some(());
        waiter.signal.until(is_next).await;
        Turn { queue: self }
    }

    /// Begins to wait; true if the disk has a free place, which is then kept for the request chosen
    /// next.
    fn enter(&self, place: (u64, u64)) -> (Rc<Waiter>, bool) {
        let mut state = self.state.borrow_mut();
        let waiter = Rc::new(Waiter::default());
        let key = (place, state.arrivals);
        state.arrivals += 1;
        state.waiting.insert(key, waiter.clone());
        let is_idle = state.free > 0;
        state.free -= u32::from(is_idle);
        (waiter, is_idle)
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

/// A turn is a place at the disk.
pub struct Turn<'a> {
    queue: &'a Queue,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.queue.choose();
    }
}
