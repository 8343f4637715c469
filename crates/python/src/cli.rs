//! The command `penstock`, which the package installs.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

/// Runs the command in `argv`, which begins with the command's own name, and gives the exit code.
/// `python` is the interpreter that draws plots.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, argv: Vec<OsString>, python: PathBuf) -> u8 {
    py.detach(|| penstock_cli::run(argv, Some(python)))
}
