//! Ctrl-C while a call waits.
//!
//! Python's handlers of signals run in its main thread, between two of its own instructions: while
//! that thread waits in a call, it must ask for them now and then. What a handler raises ends the
//! call on this rank, and is raised to the program.

use std::sync::{Arc, Mutex, PoisonError};

use penstock_arrays::calls::Interrupt;
use penstock_engine::{Error, Kind};
use pyo3::prelude::*;

/// What a handler of a signal has raised.
#[derive(Clone, Default)]
pub struct RaisedException(Arc<Mutex<Option<PyErr>>>);

impl RaisedException {
    /// Says whether a rank is to stop: because a handler of a signal has raised something, or
    /// `stops` says so.
    pub fn interrupt(&self, stops: impl Fn() -> bool + Send + Sync + 'static) -> Interrupt {
        let raised = self.clone();
        Arc::new(move || stops() || raised.is_there() || Python::attach(|py| raised.check(py)))
    }

    /// Lets handlers of signals run; whether one of them has raised something.
    pub fn check(&self, py: Python<'_>) -> bool {
        match py.check_signals() {
            Ok(()) => false,
            Err(error) => {
                self.put(error);
                true
            }
        }
    }

    /// Keeps what has been raised.
    pub fn put(&self, error: PyErr) {
        let mut raised = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        raised.get_or_insert(error);
    }

    /// Whether something has been raised.
    fn is_there(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    /// What has been raised, once.
    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The error by which work ends because of it.
    pub fn error(doing: &str) -> Error {
        Error::new(Kind::Peer, doing, "it was interrupted")
    }
}
