//! The processors that the nodes of a host share.
//!
//! Work of a node, or of a worker of one of its disks, waits for a processor of its host, in the
//! order in which it comes; and for its turn among the work of its own thread, of which one piece
//! is done at a time. While all processors work, each works more slowly (they share memory): by
//! [`Host::slowness`], with the processors that work when the piece begins.
//!
//! ```text
//! 2 processors   rank 0  ####....            8 ranks that compute 1 ms each take 4 ms,
//!                rank 1  ####                and a little more if they crowd each other
//!                rank 2      ####
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use penstock_engine::NodeId;

use crate::preset::Host;
use crate::time::Span;

/// The hosts of a machine, with their processors.
pub(super) struct Hosts {
    host: Host,
    clients: usize,
    nodes: usize,
    processors: Vec<Processors>,
}

/// The processors of one host.
#[derive(Default)]
struct Processors {
    working: Cell<usize>,
    /// The threads that work.
    threads: RefCell<Vec<usize>>,
    waiting: RefCell<VecDeque<Rc<Waiter>>>,
}

struct Waiter {
    thread: usize,
    is_called: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

/// A processor is held until this is dropped.
pub(super) struct Processor<'a> {
    hosts: &'a Hosts,
    host: usize,
    thread: usize,
    /// The factor on the time of the work.
    slowness: f64,
}

impl Hosts {
    pub(super) fn new(host: &Host, clients: usize, nodes: usize) -> Self {
        let count = host.count(clients);
        Self {
            host: host.clone(),
            clients,
            nodes,
            processors: (0..count).map(|_| Processors::default()).collect(),
        }
    }

    /// Whether two nodes are on one host.
    pub(super) fn are_mates(&self, one: NodeId, other: NodeId) -> bool {
        self.host.of(one, self.clients) == self.host.of(other, self.clients)
    }

    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// Waits for a processor for the thread of a node.
    pub(super) async fn processor_of(&self, node: NodeId) -> Processor<'_> {
        self.enter(self.host.of(node, self.clients), node).await
    }

    /// Waits for a processor for the worker that moves bytes between a node and the disk of a
    /// server.
    pub(super) async fn processor_of_worker(&self, node: NodeId, server: usize) -> Processor<'_> {
        let host = self.host.of(node, self.clients);
        self.enter(host, self.nodes * (server + 1) + node).await
    }

    async fn enter(&self, host: usize, thread: usize) -> Processor<'_> {
        let processors = &self.processors[host];
        if !processors.takes(thread, self.host.processors) {
            let waiter = Rc::new(Waiter {
                thread,
                is_called: Cell::new(false),
                waker: Cell::default(),
            });
            processors.waiting.borrow_mut().push_back(waiter.clone());
            let _gone = Gone {
                hosts: self,
                host,
                waiter: &waiter,
            };
            poll_fn(|context| match waiter.is_called.get() {
                true => Poll::Ready(()),
                false => {
                    waiter.waker.set(Some(context.waker().clone()));
                    Poll::Pending
                }
            })
            .await;
            waiter.is_called.set(false); // the processor is no longer the waiter's to give back
        }
        Processor {
            hosts: self,
            host,
            thread,
            slowness: self.host.slowness(processors.working.get()),
        }
    }

    /// Gives a processor back, and calls the first that may have one.
    fn leave(&self, host: usize, thread: usize) {
        let processors = &self.processors[host];
        processors.working.set(processors.working.get() - 1);
        let mut threads = processors.threads.borrow_mut();
        if let Some(place) = threads.iter().position(|&other| other == thread) {
            threads.swap_remove(place);
        }
        drop(threads);
        let mut waiting = processors.waiting.borrow_mut();
        let mut place = 0;
        while let Some(waiter) = waiting.get(place) {
            if !processors.takes(waiter.thread, self.host.processors) {
                place += 1;
                continue;
            }
            let called = waiting.remove(place);
            if let Some(waiter) = called {
                waiter.is_called.set(true);
                if let Some(waker) = waiter.waker.take() {
                    waker.wake();
                }
            }
        }
    }
}

impl Processor<'_> {
    /// The time that work takes on this processor.
    pub(super) fn slowed(&self, span: Span) -> Span {
        Span::from_ns_f64(span.as_ps() as f64 / 1e3 * self.slowness)
    }
}

impl Processors {
    /// Takes a processor for a thread, if one is free and the thread does not work already.
    fn takes(&self, thread: usize, all: usize) -> bool {
        let mut threads = self.threads.borrow_mut();
        let is_free = self.working.get() < all && !threads.contains(&thread);
        if is_free {
            self.working.set(self.working.get() + 1);
            threads.push(thread);
        }
        is_free
    }
}

/// Takes a waiter that is dropped out of the line, or gives back the processor that it was called
/// to.
struct Gone<'a> {
    hosts: &'a Hosts,
    host: usize,
    waiter: &'a Rc<Waiter>,
}

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        let mut waiting = self.hosts.processors[self.host].waiting.borrow_mut();
        waiting.retain(|other| !Rc::ptr_eq(other, self.waiter));
        drop(waiting);
        if self.waiter.is_called.get() {
            self.hosts.leave(self.host, self.waiter.thread);
        }
    }
}

impl Drop for Processor<'_> {
    fn drop(&mut self) {
        self.hosts.leave(self.host, self.thread);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::preset::Calls;

    fn hosts(processors: usize) -> Hosts {
        let host = Host {
            processors,
            clients: 0,
            crowding: 1.0,
            message_latency_us: 0.0,
            message_bytes_per_second: 1,
            copy_us: 0.0,
            copy_ns_per_byte: 0.0,
            stretch_ns: [0.0; 5],
            calls: Calls::default(),
        };
        Hosts::new(&host, 4, 6)
    }

    #[test]
    fn work_waits_for_a_processor() {
        let hosts = hosts(2);
        let first = hosts.processor_of(0).now_or_never();
        let second = hosts.processor_of(1).now_or_never();
        assert_eq!(first.as_ref().map(|held| held.slowness), Some(1.0));
        assert_eq!(second.as_ref().map(|held| held.slowness), Some(2.0));
        let mut third = Box::pin(hosts.processor_of(2));
        let mut worker = Box::pin(hosts.processor_of_worker(4, 0));
        assert!(third.as_mut().now_or_never().is_none());
        assert!(worker.as_mut().now_or_never().is_none());
        drop(first);
        assert!(
            worker.as_mut().now_or_never().is_none(),
            "the third is before it"
        );
        let third = third.as_mut().now_or_never();
        assert!(third.is_some());
        drop(second);
        assert!(worker.as_mut().now_or_never().is_some());
    }

    #[test]
    fn a_thread_does_one_thing_at_a_time() {
        let hosts = hosts(2);
        let first = hosts.processor_of(0).now_or_never();
        let mut again = Box::pin(hosts.processor_of(0));
        assert!(again.as_mut().now_or_never().is_none());
        assert!(
            hosts.processor_of(1).now_or_never().is_some(),
            "another may"
        );
        drop(first);
        assert!(again.as_mut().now_or_never().is_some());
    }

    #[test]
    fn who_does_not_wait_any_more_is_not_waited_for() {
        let hosts = hosts(1);
        let first = hosts.processor_of(0).now_or_never();
        let mut second = Box::pin(hosts.processor_of(1));
        let mut third = Box::pin(hosts.processor_of(2));
        let mut fourth = Box::pin(hosts.processor_of(3));
        for waiting in [&mut second, &mut third, &mut fourth] {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        drop(second);
        drop(first);
        drop(third); // it had been called
        assert!(fourth.as_mut().now_or_never().is_some());
    }
}
