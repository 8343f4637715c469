//! Reads, repairs and copies stores without a session.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use penstock_arrays::calls::Session;
use penstock_arrays::calls::copy::{Extents, Form, Options, Report, on_threads};
use penstock_arrays::{ElementType, Format, Progress, groups, json};
use penstock_engine::Result;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value};

use crate::errors::{exception, raise};
use crate::interrupt::RaisedException;
use crate::spec;
use crate::trace;

/// The schema of an array on disk, as keyword arguments.
#[pyfunction]
pub fn open_schema<'py>(
    py: Python<'py>,
    path: PathBuf,
    name: Option<&str>,
) -> PyResult<Bound<'py, PyDict>> {
    let schema = py.detach(|| Session::open_schema(&path, name));
    spec::describe(py, &schema.map_err(|e| raise(py, &e))?)
}

/// Describes the contents of a path, as JSON.
#[pyfunction]
pub fn describe(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let described = py.detach(|| groups::describe(&path));
    let described = described.map_err(|e| raise(py, &e))?;
    Ok(json::line(&described))
}

/// A Python object that hears of the bytes that are done, and of their number in all.
pub struct Listener {
    listener: Option<Py<PyAny>>,
    raised: RaisedException,
    done: u64,
    all: u64,
}

impl Listener {
    pub fn new(listener: Option<Py<PyAny>>, raised: RaisedException) -> Self {
        Self {
            listener,
            raised,
            done: 0,
            all: 0,
        }
    }

    /// Reports the progress, and lets handlers of signals run. Gives an error if one of them has
    /// raised an exception.
    pub fn tell(&mut self, progress: Progress) -> Result<()> {
        match progress {
            Progress::All(bytes) => self.all = bytes,
            Progress::More(bytes) => self.done += bytes,
        }
        let is_well = Python::attach(|py| {
            let told = match &self.listener {
                Some(listener) => listener.call1(py, (self.done, self.all)).map(drop),
                None => Ok(()),
            };
            if let Err(error) = told {
                self.raised.put(error);
                return false;
            }
            !self.raised.check(py)
        });
        match is_well {
            true => Ok(()),
            false => Err(RaisedException::error("telling of what is done")),
        }
    }
}

/// Verifies a store, and gives the result as keyword arguments.
#[pyfunction]
pub fn verify<'py>(
    py: Python<'py>,
    path: PathBuf,
    listener: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let raised = RaisedException::default();
    let mut listener = Listener::new(listener, raised.clone());
    let found = py.detach(|| groups::verify(&path, &mut |progress| listener.tell(progress)));
    if let Some(error) = raised.take() {
        return Err(error);
    }
    let found = found.map_err(|e| raise(py, &e))?;
    let described = PyDict::new(py);
    described.set_item("timesteps", found.timesteps)?;
    described.set_item("checkpoints", found.checkpoints)?;
    described.set_item("arrays", found.arrays)?;
    described.set_item("chunks", found.chunks)?;
    described.set_item("compared", found.compared)?;
    described.set_item("absent", found.absent)?;
    described.set_item("bytes", found.bytes)?;
    let unread = found.unread.iter();
    let unread = unread.map(|(path, error)| Ok((path.clone(), exception(py, error)?)));
    described.set_item("unread", unread.collect::<PyResult<Vec<_>>>()?)?;
    let damages = found.damages.iter().map(|error| exception(py, error));
    described.set_item("damages", damages.collect::<PyResult<Vec<_>>>()?)?;
    described.set_item("verdict", found.verdict())?;
    Ok(described)
}

/// Repairs the metadata of a group, and gives the findings, a line each.
#[pyfunction]
pub fn repair(py: Python<'_>, path: PathBuf) -> PyResult<Vec<String>> {
    let said = py.detach(|| groups::repair(&path));
    said.map_err(|e| raise(py, &e))
}

/// Makes a Zarr group at a URL if none is there, and gives it attributes: a JSON object.
#[pyfunction]
pub fn make_group(py: Python<'_>, url: PathBuf, attributes: &str) -> PyResult<()> {
    let attributes = parsed(attributes);
    let made = py.detach(|| penstock_arrays::make_group(&url, &attributes));
    made.map_err(|e| raise(py, &e))
}

/// Gives a group in a repository attributes, a JSON object; with `only`, in place of those that it
/// has, and of all nodes but those of these paths.
#[pyfunction]
#[pyo3(signature = (url, attributes, only))]
pub fn put_group(
    py: Python<'_>,
    url: PathBuf,
    attributes: &str,
    only: Option<Vec<String>>,
) -> PyResult<()> {
    let attributes = parsed(attributes);
    let put = py.detach(|| penstock_arrays::put_group(&url, &attributes, only.as_deref()));
    put.map_err(|e| raise(py, &e))
}

/// The members of a JSON object, which this package has made.
fn parsed(attributes: &str) -> Map<String, Value> {
    let parsed = json::parse(attributes.as_bytes());
    let parsed = parsed.ok().and_then(|json| json.as_object().cloned());
    parsed.unwrap_or_default()
}

/// Puts a tree of Zarr nodes in another place of a bucket.
#[pyfunction]
pub fn install_tree(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    replaces: bool,
) -> PyResult<()> {
    let done = py.detach(|| penstock_arrays::install_tree(&source, &target, replaces));
    done.map_err(|e| raise(py, &e))
}

/// Removes all that is below a URL.
#[pyfunction]
pub fn remove_tree(py: Python<'_>, url: PathBuf) -> PyResult<()> {
    let done = py.detach(|| penstock_arrays::remove_tree(&url));
    done.map_err(|e| raise(py, &e))
}

/// The options of a copy in Python's terms.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct CopyArgument {
    arrays: Vec<String>,
    name: Option<String>,
    raw: Option<(Vec<u64>, String)>,
    /// The form of a row-major file: "raw", "npy" or none.
    row_major: Option<String>,
    chunks: Option<String>,
    subchunks: Option<String>,
    codec: Option<String>,
    filters: Option<String>,
    memory_bytes: u64,
    drop_attributes: bool,
    overwrite: bool,
    skip_unsupported: bool,
}

impl CopyArgument {
    /// The options of a copy to `target`.
    pub fn options(self, target: &Path) -> Result<Options> {
        let raw = self.raw.map(|(shape, dtype)| {
            let (element, _) = ElementType::parse(&dtype)?;
            Ok((shape, element))
        });
        let extents = |text: Option<String>| text.as_deref().map(Extents::from_str).transpose();
        Ok(Options {
            arrays: self.arrays,
            name: self.name,
            raw: raw.transpose()?,
            form: match self.row_major.as_deref() {
                Some("npy") => Form::RowMajor(Format::Npy),
                Some(_) => Form::RowMajor(Format::Raw),
                None => Form::of(
                    target,
                    extents(self.chunks)?,
                    extents(self.subchunks)?,
                    self.codec,
                    self.filters,
                )?,
            },
            memory_bytes: self.memory_bytes,
            drops_attributes: self.drop_attributes,
            overwrites: self.overwrite,
            skips_unsupported: self.skip_unsupported,
        })
    }
}

/// The report of a copy, as keyword arguments.
pub fn copied<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let described = PyDict::new(py);
    described.set_item("bytes", report.bytes)?;
    described.set_item("seconds", report.seconds)?;
    described.set_item("read_bytes", report.read_bytes)?;
    described.set_item("slabs", report.slabs)?;
    described.set_item("slabs_found", report.slabs_found)?;
    let arrays = report.plans.iter().map(|(path, _)| path.as_str());
    described.set_item("arrays", arrays.collect::<Vec<_>>())?;
    described.set_item("as_they_are", report.as_they_are.as_slice())?;
    described.set_item("skipped", report.skipped.as_slice())?;
    Ok(described)
}

/// Copies on threads of this process, and gives the report as keyword arguments.
#[pyfunction]
pub fn copy<'py>(
    py: Python<'py>,
    source: PathBuf,
    target: PathBuf,
    argument: CopyArgument,
    ranks: usize,
    sync: bool,
    listener: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    trace::begin();
    let raised = RaisedException::default();
    let listener = Mutex::new(Listener::new(listener, raised.clone()));
    let report = py.detach(|| {
        let options = argument.options(&target)?;
        // Only the calling thread handles signals.
        let interrupt = || Python::attach(|py| raised.check(py));
        let tell = |progress| {
            let mut listener = listener.lock().unwrap_or_else(PoisonError::into_inner);
            listener.tell(progress)
        };
        on_threads((&source, &target), &options, ranks, sync, &interrupt, &tell)
    });
    if let Some(error) = raised.take() {
        return Err(error);
    }
    copied(py, &report.map_err(|e| raise(py, &e))?)
}
