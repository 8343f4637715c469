//! The face to Python: turns Python's values into calls on a session, and errors into exceptions.
//!
//! The names that users see are in `python/penstock/`, which is built on this module,
//! `penstock._core`. Everything that does not depend on Python lives in the crates below.
//!
//! | module | what it holds |
//! |---|---|
//! | `session` | sessions and their calls |
//! | `spec` | an array as Python describes it |
//! | `group` | a group as Python describes it, and checkpoints |
//! | `files` | parallel files |
//! | `local` | the memory of a NumPy array |
//! | `stores` | reads, repairs and copies stores without a session |
//! | `repositories` | repositories of Icechunk, which Python opens |
//! | `interrupt` | Ctrl-C while a call waits |
//! | `errors` | errors as exceptions |
//! | `cli` | the command `penstock` |
//! | `trace` | the trace of the process |

mod errors;
mod files;
mod group;
mod interrupt;
mod list;
mod local;
mod repositories;
mod session;
mod spec;
mod stores;
mod trace;

use penstock_arrays::calls::{copy, settings};
use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    penstock_bucket::draft::lend(Box::new(repositories::Lent));
    module.add_class::<session::PySession>()?;
    module.add_class::<session::PySeat>()?;
    module.add_class::<files::PyFile>()?;
    module.add_class::<files::PyFileSystem>()?;
    module.add_class::<files::PyMoving>()?;
    module.add_class::<files::PyView>()?;
    module.add_class::<session::PyOpenArray>()?;
    module.add_class::<session::PyOutstanding>()?;
    module.add_class::<group::PyGroup>()?;
    module.add_class::<group::PyCheckpoint>()?;
    module.add_class::<list::PyList>()?;
    module.add_class::<spec::Spec>()?;
    module.add_function(wrap_pyfunction!(files::create_volume, module)?)?;
    module.add_function(wrap_pyfunction!(files::join_volume, module)?)?;
    module.add_function(wrap_pyfunction!(files::open_volume, module)?)?;
    module.add_function(wrap_pyfunction!(session::seats, module)?)?;
    module.add_function(wrap_pyfunction!(session::join_mpi, module)?)?;
    module.add_function(wrap_pyfunction!(stores::open_schema, module)?)?;
    module.add_function(wrap_pyfunction!(stores::describe, module)?)?;
    module.add_function(wrap_pyfunction!(stores::verify, module)?)?;
    module.add_function(wrap_pyfunction!(stores::repair, module)?)?;
    module.add_function(wrap_pyfunction!(stores::make_group, module)?)?;
    module.add_function(wrap_pyfunction!(stores::put_group, module)?)?;
    module.add_function(wrap_pyfunction!(stores::install_tree, module)?)?;
    module.add_function(wrap_pyfunction!(stores::remove_tree, module)?)?;
    module.add_function(wrap_pyfunction!(stores::copy, module)?)?;
    module.add_function(wrap_pyfunction!(trace::end_trace, module)?)?;
    module.add("BLOCK_BYTES", settings::BLOCK_BYTES)?;
    module.add("BACKGROUND_BYTES", settings::BACKGROUND_BYTES)?;
    module.add("CACHE_BYTES", settings::CACHE_BYTES)?;
    module.add("COPY_MEMORY_BYTES", copy::MEMORY_BYTES)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
