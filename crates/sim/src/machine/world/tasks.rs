//! Tasks: the code of nodes, and the queue of the tasks that can go on.
//!
//! A run stays on one thread, and nothing of it is woken from another. So the queue belongs to the
//! thread, and waking a task takes no lock.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Wake, Waker};

use penstock_engine::NodeId;

thread_local! {
    /// The tasks that can go on, in the order in which they were woken.
    static READY: RefCell<VecDeque<usize>> = const { RefCell::new(VecDeque::new()) };
}

/// A task is code of one node.
pub(in crate::machine) type Task = (NodeId, Pin<Box<dyn Future<Output = ()>>>);

/// Begins a run of this many tasks, which can all go on; tasks of an earlier run are forgotten.
/// Returns the waker of each.
pub(super) fn begin(tasks: usize) -> Vec<Waker> {
    READY.set((0..tasks).collect());
    let waker = |task| Waker::from(Arc::new(TaskWaker(task)));
    (0..tasks).map(waker).collect()
}

/// Takes the task that can go on first.
pub(super) fn next_ready() -> Option<usize> {
    READY.with_borrow_mut(VecDeque::pop_front)
}

/// The waker of the task with this number.
struct TaskWaker(usize);

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        READY.with_borrow_mut(|ready| ready.push_back(self.0));
    }
}
