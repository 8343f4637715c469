//! Handles Ctrl-C while a call waits.
//!
//! Python runs handlers of signals in its main thread, between two instructions of Python: while
//! that thread waits in a call, the call must let them run now and then. An exception of a handler
//! ends the call on this rank, and is raised to the program.

use std::sync::{Arc, Mutex, PoisonError};

use penstock_arrays::calls::Interrupt;
use penstock_engine::{Error, Kind};
use pyo3::prelude::*;

/// The exception that a handler of a signal has raised.
#[derive(Clone, Default)]
pub struct RaisedException(Arc<Mutex<Option<PyErr>>>);

impl RaisedException {
    /// Gives an interrupt: it is true once a handler of a signal has raised an exception, or
    /// `stops` is true.
    pub fn interrupt(&self, stops: impl Fn() -> bool + Send + Sync + 'static) -> Interrupt {
        let raised = self.clone();
        Arc::new(move || stops() || raised.is_there() || Python::attach(|py| raised.check(py)))
    }

    /// Lets handlers of signals run, and gives whether one has raised an exception.
    pub fn check(&self, py: Python<'_>) -> bool {
        match py.check_signals() {
            Ok(()) => false,
            Err(error) => {
                self.put(error);
                true
            }
        }
    }

    /// Keeps an exception that was raised.
    pub fn put(&self, error: PyErr) {
        let mut raised = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        raised.get_or_insert(error);
    }

    /// Whether an exception has been raised.
    fn is_there(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    /// Takes out the exception.
    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The error that ends the work of an interrupted call.
    pub fn error(doing: &str) -> Error {
        Error::new(Kind::Peer, doing, "it was interrupted")
    }
}
