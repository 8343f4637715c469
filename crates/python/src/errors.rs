//! Errors as exceptions: one class of `penstock._errors` for each kind.

use penstock_engine::{Error, Kind, Who};
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// The kind with this name. Any other error is one of the schema.
pub fn kind_of(name: &str) -> Kind {
    let mut kinds = Kind::ALL.into_iter();
    let named = kinds.find(|kind| kind.to_string() == name);
    named.unwrap_or(Kind::Schema)
}

/// An error as the exception of its kind, with its parts as attributes: `kind`, `rank`, `server`,
/// `doing`, `path`, `bytes`, `cause`.
pub fn raise(py: Python<'_>, error: &Error) -> PyErr {
    exception(py, error).map_or_else(|other| other, PyErr::from_value)
}

/// The exception of an error.
pub fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let (rank, server) = match error.who {
        Some(Who::Rank(rank)) => (Some(rank), None),
        Some(Who::Server(server)) => (None, Some(server)),
        None => (None, None),
    };
    let bytes = error.bytes.as_ref().map(|bytes| (bytes.start, bytes.end));
    let class = PyString::new(py, &format!("{}Error", class_stem(error.kind)));
    let module = py.import(intern!(py, "penstock._errors"))?;
    let value = module.getattr(class)?.call1((error.to_string(),))?;
    value.setattr("rank", rank)?;
    value.setattr("server", server)?;
    value.setattr("doing", &error.doing)?;
    value.setattr("path", error.path.as_deref())?;
    value.setattr("bytes", bytes)?;
    value.setattr("cause", &error.cause)?;
    Ok(value)
}

/// An exception of Python code that was called, as an error. Ctrl-C comes again where the program
/// waits for its call.
pub fn error_of(py: Python<'_>, raised: &PyErr, doing: &str) -> Error {
    if !raised.is_instance_of::<PyException>(py) {
        // SAFETY: it sets a flag, as the handler of a signal does.
        unsafe { pyo3::ffi::PyErr_SetInterrupt() };
        return Error::new(Kind::Peer, doing, "it was interrupted");
    }
    let value = raised.value(py);
    let text = |name| value.getattr(name)?.extract::<String>();
    match (text(intern!(py, "kind")), text(intern!(py, "cause"))) {
        (Ok(kind), Ok(cause)) => Error::new(kind_of(&kind), doing, cause),
        _ => Error::new(Kind::Io, doing, raised),
    }
}

fn class_stem(kind: Kind) -> String {
    kind.to_string()
}
