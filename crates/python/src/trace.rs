//! The trace of a Python process, which the environment asks for.

use std::sync::Once;

use pyo3::prelude::*;

/// Begins the trace with the first volume or session of the process. That there can be none is no
/// reason to fail: other ranks would wait for this one.
pub(crate) fn begin() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        if let Err(cause) = penstock_trace::begin("python") {
            eprintln!("penstock: {cause}");
        }
    });
}

/// Ends the trace of this process, if there is one.
#[pyfunction]
pub(crate) fn end_trace(py: Python<'_>) {
    py.detach(penstock_trace::end);
}
