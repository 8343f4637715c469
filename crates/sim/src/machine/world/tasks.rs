//! Tasks: the code of nodes, and the queue of the tasks that can go on.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use penstock_engine::NodeId;

/// A task is code of one node.
pub(in crate::machine) type Task = (NodeId, Pin<Box<dyn Future<Output = ()>>>);

/// The tasks that can go on.
#[derive(Default)]
pub(super) struct ReadyTasks(Mutex<VecDeque<usize>>);

impl ReadyTasks {
    pub(super) fn push(&self, task: usize) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(task);
    }

    /// Forgets the tasks of an earlier run.
    pub(super) fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    pub(super) fn pop(&self) -> Option<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    }

    /// The waker of a task.
    pub(super) fn waker(self: &Arc<Self>, task: usize) -> Waker {
        let ready = self.clone();
        Waker::from(Arc::new(TaskWaker { task, ready }))
    }
}

struct TaskWaker {
    task: usize,
    ready: Arc<ReadyTasks>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.task);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.push(self.task);
    }
}
