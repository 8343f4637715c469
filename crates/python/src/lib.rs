//! The Python face: turns Python's values into calls on a session and errors into exceptions.
//!
//! The names that users see are in `python/penstock/`; this module, `penstock._core`, is what they
//! stand on. Everything that does not depend on Python lives in the crates below.

mod cli;
mod errors;
mod session;
mod spec;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::register(module)?;
    module.add_class::<session::PySession>()?;
    module.add_class::<session::PySeat>()?;
    module.add_class::<session::PyReport>()?;
    module.add_class::<session::PyOutstanding>()?;
    module.add_class::<session::PyGroup>()?;
    module.add_class::<session::PyCheckpoint>()?;
    module.add_class::<spec::Spec>()?;
    module.add_function(wrap_pyfunction!(session::seats, module)?)?;
    module.add_function(wrap_pyfunction!(session::join_mpi, module)?)?;
    module.add_function(wrap_pyfunction!(session::open_schema, module)?)?;
    module.add_function(wrap_pyfunction!(cli::run_command, module)?)?;
    module.add("BLOCK_BYTES", penstock_arrays::session::BLOCK_BYTES)?;
    module.add(
        "BACKGROUND_BYTES",
        penstock_arrays::session::BACKGROUND_BYTES,
    )?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
