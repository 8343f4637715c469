//! Errors as exceptions: one class for each kind, all of them `penstock.Error`.

use penstock_engine::{Error, Kind, Who};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

mod root {
    use super::{PyException, create_exception};
    create_exception!(
        penstock,
        Error,
        PyException,
        "What Penstock could not do, and why."
    );
}

macro_rules! kinds {
    ($($kind:ident $class:ident $name:literal $doc:literal,)*) => {
        $(create_exception!(penstock, $class, root::Error, $doc);)*

        /// Adds the exception classes to the module. Their attributes have defaults, for errors
        /// that Python's side of the face raises.
        pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            let py = module.py();
            let root = py.get_type::<root::Error>();
            for name in ["rank", "server", "doing", "path", "bytes"] {
                root.setattr(name, py.None())?;
            }
            module.add("Error", root)?;
            $(
                let class = py.get_type::<$class>();
                class.setattr("kind", Kind::$kind.to_string())?;
                module.add($name, class)?;
            )*
            Ok(())
        }

        fn exception(kind: Kind, message: String) -> PyErr {
            match kind {
                $(Kind::$kind => $class::new_err(message),)*
            }
        }
    };
}

kinds! {
    Schema SchemaError "SchemaError" "A schema, shape, type, mesh or option that does not fit.",
    Mismatch MismatchError "MismatchError" "The ranks of a collective call ask for different things.",
    Overlap OverlapError "OverlapError" "Boxes that must be disjoint overlap.",
    Missing MissingError "MissingError" "A store, array or file that is not there.",
    Damaged DamagedError "DamagedError" "A store that is there and cannot be understood.",
    ReadOnly ReadOnlyError "ReadOnlyError" "No permission to write or read there.",
    Full FullError "FullError" "No space left.",
    Busy BusyError "BusyError" "Another job is writing the same target.",
    Peer PeerError "PeerError" "Another rank left the session, or cannot be reached.",
    Unsupported UnsupportedError "UnsupportedError" "Something that Penstock does not do.",
    Io IoError "IoError" "Any other failure of a disk or of the operating system.",
}

/// An error as the exception of its kind, with its parts as attributes: `kind`, `rank`, `server`,
/// `doing`, `path`, `bytes`, `cause`.
pub fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let raised = exception(error.kind, error.to_string());
    let (rank, server) = match error.who {
        Some(Who::Rank(rank)) => (Some(rank), None),
        Some(Who::Server(server)) => (None, Some(server)),
        None => (None, None),
    };
    let value = raised.value(py);
    let bytes = error.bytes.as_ref().map(|bytes| (bytes.start, bytes.end));
    let set = || -> PyResult<()> {
        value.setattr("kind", error.kind.to_string())?;
        value.setattr("rank", rank)?;
        value.setattr("server", server)?;
        value.setattr("doing", &error.doing)?;
        value.setattr("path", error.path.as_deref())?;
        value.setattr("bytes", bytes)?;
        value.setattr("cause", &error.cause)
    };
    match set() {
        Ok(()) => raised,
        Err(other) => other,
    }
}
