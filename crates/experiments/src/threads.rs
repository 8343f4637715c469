//! The runs of a study, side by side on the threads of this process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Calls `run` for all items, in their order, on as many threads. Returns the results in the order
/// of the items. After a failure no item is begun: an item that was not begun has no result.
pub(crate) fn run_all<T: Sync, R: Send, E: Send>(
    items: &[T],
    threads: usize,
    run: impl Fn(&T) -> Result<R, E> + Sync,
) -> Vec<Option<Result<R, E>>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<_>> = Mutex::new(items.iter().map(|_| None).collect());
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { break };
            let result = run(item);
            if result.is_err() {
                next.store(items.len(), Ordering::Relaxed);
            }
            // A thread that panicked takes the whole study with it when the scope ends.
            results.lock().unwrap_or_else(PoisonError::into_inner)[number] = Some(result);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.clamp(1, items.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}
