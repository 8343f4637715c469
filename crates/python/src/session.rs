//! Sessions: `penstock.Session` in Rust.

use std::any::Any;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, TryLockError};

use numpy::npyffi::NPY_ARRAY_WRITEABLE;
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use penstock_arrays::call::{ArrayCall, Local};
use penstock_arrays::groups::{GroupCall, Save};
use penstock_arrays::session::{Background, How, Options, Outstanding, Report, Seat, Session};
use penstock_arrays::store::group::Checkpoint;
use penstock_arrays::strategy::{self, Tuning};
use penstock_arrays::{ByteOrder, ElementType};
use penstock_engine::{Error, Kind, Operation, Result, Strategy};
use penstock_machines::ClientMemory;
use penstock_machines::mpi::Transport;
use penstock_machines::mpi::api::{Api, Constants};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyList, PyString};

use crate::errors::raise;
use crate::spec::{Spec, attributes_of, describe};

/// A session that one thread at a time may use.
struct Owned(Session);

// SAFETY: a session and all that it refers to is one value with nothing tied to a thread; its
// reference counts and cells are only reached through it, and the mutex in `PySession` lets only
// one thread do so at a time. (MPI wants its calls from one thread: the face says so.)
unsafe impl Send for Owned {}

/// A place in a machine of threads, to be opened in the thread that will use it.
#[pyclass(frozen, module = "penstock._core")]
pub struct PySeat(Mutex<Option<Seat>>, Tuning);

#[pymethods]
impl PySeat {
    fn open(&self, py: Python<'_>) -> PyResult<PySession> {
        let seat = self.0.lock().map_or(None, |mut seat| seat.take());
        match seat {
            Some(seat) => Ok(PySession(Mutex::new(Owned(seat.open())), self.1)),
            None => {
                let cause = "this rank has opened its session already";
                Err(raise(
                    py,
                    &Error::new(Kind::Schema, "opening a session", cause),
                ))
            }
        }
    }
}

/// How a session is set up, as the face has it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Setup {
    servers: Option<usize>,
    dedicated: bool,
    sync: bool,
    block_bytes: u64,
    background_bytes: u64,
    direct: bool,
    strategy: String,
    /// For tests: blocks of a cache for each client, and bytes of a client's staging buffer.
    small: Option<(u32, u64)>,
    /// For tests and benchmarks: what is wrong with the disks, as JSON.
    trial: Option<String>,
}

impl Setup {
    fn tuning(&self) -> Tuning {
        match self.small {
            None => Tuning::default(),
            Some((buffers_per_client, staging_bytes)) => Tuning {
                buffers_per_client,
                staging_bytes,
            },
        }
    }

    fn options(&self) -> Result<Options> {
        let opening = |error| Error {
            doing: "opening a session".to_string(),
            ..error
        };
        let trial = self.trial.as_deref().map(serde_json::from_str);
        let wrong = |e| Error::new(Kind::Schema, "opening a session", e);
        Ok(Options {
            servers: self.servers,
            dedicated: self.dedicated,
            sync: self.sync,
            block_bytes: self.block_bytes,
            strategy: strategy::named(&self.strategy, &self.tuning()).map_err(opening)?,
            background_bytes: self.background_bytes,
            direct: self.direct,
            trial: trial.transpose().map_err(wrong)?,
        })
    }
}

/// The seats of `ranks` threads.
#[pyfunction]
pub fn seats(py: Python<'_>, ranks: usize, setup: Setup) -> PyResult<Vec<PySeat>> {
    let tuning = setup.tuning();
    let seats = setup
        .options()
        .and_then(|options| Seat::all(ranks, &options));
    let seats = seats.map_err(|e| raise(py, &e))?;
    Ok(seats
        .into_iter()
        .map(|seat| PySeat(Mutex::new(Some(seat)), tuning))
        .collect())
}

/// How the MPI library is reached: `(shared object, communicator, MPI_BYTE, MPI_ANY_SOURCE)`, and whether
/// any thread may call it at any time.
type Mpi = (PathBuf, usize, usize, i32, bool);

/// The session of this rank of an MPI job. Collective, so that what is wrong with this rank's
/// options, which Python found, comes as `wrong`.
#[pyfunction]
pub fn join_mpi(
    py: Python<'_>,
    mpi: Mpi,
    transport: &str,
    setup: Setup,
    wrong: Option<&str>,
) -> PyResult<PySession> {
    let (library, comm, byte, any_source, may_use_threads) = mpi;
    let does_not_fit = |cause: &str| Error::new(Kind::Schema, "opening a session", cause);
    let transport = match (wrong, transport) {
        (Some(wrong), _) => Err(does_not_fit(wrong)),
        (None, "shared") => Ok(Transport::Shared),
        (None, "messages") => Ok(Transport::Messages),
        (None, other) => {
            let cause = format!("'{other}' is no transport: use \"shared\" or \"messages\"");
            Err(does_not_fit(&cause))
        }
    };
    let tuning = setup.tuning();
    let given = transport.and_then(|transport| Ok((transport, setup.options()?)));
    let joined = py.detach(|| {
        let api = Api::load(&library, Constants { byte, any_source })?;
        Session::mpi(api, comm, may_use_threads, given).map(Owned)
    });
    let joined = joined.map_err(|e| raise(py, &e))?;
    Ok(PySession(Mutex::new(joined), tuning))
}

/// The schema of an array on disk, as keyword arguments.
#[pyfunction]
pub fn open_schema<'py>(
    py: Python<'py>,
    path: PathBuf,
    name: Option<&str>,
) -> PyResult<Bound<'py, PyDict>> {
    let schema = py.detach(|| Session::open_schema(&path, name));
    describe(py, &schema.map_err(|e| raise(py, &e))?)
}

/// What a call has done.
#[pyclass(frozen, get_all, module = "penstock._core")]
pub struct PyReport {
    /// Bytes of the array.
    bytes: u64,
    /// Wall time on this rank.
    seconds: f64,
    /// Blocks moved by all servers.
    blocks: u64,
    /// Bytes between buffers and disks, decoded.
    disk_bytes: u64,
    /// Memgets or memputs.
    transfers: u64,
    /// Bytes of staging buffers of all servers.
    buffer_bytes: u64,
    /// Number of servers.
    servers: usize,
}

impl From<Report> for PyReport {
    fn from(report: Report) -> Self {
        let Report {
            bytes,
            seconds,
            moved,
            servers,
        } = report;
        Self {
            bytes,
            seconds,
            blocks: moved.blocks,
            disk_bytes: moved.disk_bytes,
            transfers: moved.transfers,
            buffer_bytes: moved.buffer_bytes,
            servers,
        }
    }
}

#[pymethods]
impl PyReport {
    fn __repr__(&self) -> String {
        format!(
            "Report(bytes={}, seconds={:.6}, blocks={}, disk_bytes={}, transfers={}, \
             buffer_bytes={}, servers={})",
            self.bytes,
            self.seconds,
            self.blocks,
            self.disk_bytes,
            self.transfers,
            self.buffer_bytes,
            self.servers
        )
    }
}

/// A session in use by this rank.
#[pyclass(frozen, module = "penstock._core")]
pub struct PySession(Mutex<Owned>, Tuning);

/// What is handed over with the GIL released: a NumPy array's memory, kept alive by the caller.
struct Given(Result<(ArrayCall, Local)>, Option<Strategy>);

/// A call that has been begun.
#[pyclass(frozen, module = "penstock._core")]
pub struct PyOutstanding(Outstanding);

#[pymethods]
impl PyOutstanding {
    /// Whether the call has ended. Never waits.
    fn has_ended(&self, py: Python<'_>, session: &PySession) -> PyResult<bool> {
        session.released(py, |session| Ok(session.has_ended(&self.0)))
    }

    /// Waits for the end of the call.
    fn end(&self, py: Python<'_>, session: &PySession) -> PyResult<PyReport> {
        session
            .released(py, |session| session.end(&self.0))
            .map(PyReport::from)
    }
}

/// A complete checkpoint.
#[pyclass(frozen, module = "penstock._core")]
pub struct PyCheckpoint(Checkpoint);

#[pymethods]
impl PyCheckpoint {
    /// The program's step.
    #[getter]
    fn step(&self) -> u64 {
        self.0.step
    }

    /// The program's time.
    #[getter]
    fn time(&self) -> Option<f64> {
        self.0.time
    }

    /// How many timesteps the group had.
    #[getter]
    fn timesteps(&self) -> u64 {
        self.0.timesteps
    }

    /// Its directory.
    #[getter]
    fn path(&self) -> PathBuf {
        self.0.path.clone()
    }
}

/// A group as Python describes it.
#[pyclass(frozen, module = "penstock._core")]
pub struct PyGroup(GroupCall);

#[pymethods]
impl PyGroup {
    #[new]
    fn new(
        py: Python<'_>,
        name: String,
        path: PathBuf,
        arrays: Vec<Bound<'_, Spec>>,
        attributes: &str,
        keep: usize,
    ) -> PyResult<Self> {
        let attributes = attributes_of(attributes).map_err(|e| raise(py, &e))?;
        let arrays = arrays.iter().map(|spec| spec.get().call.clone()).collect();
        Ok(Self(GroupCall {
            name,
            path,
            arrays,
            attributes,
            keep,
        }))
    }
}

/// The face hands over the words of an error where it could make no group, or found no local array.
fn group_given(
    group: &Bound<'_, PyAny>,
    locals: &Bound<'_, PyAny>,
) -> Result<(GroupCall, Vec<Local>)> {
    let wrong = |cause: String| Error::new(Kind::Schema, "describing a group", cause);
    let group = group
        .cast::<PyGroup>()
        .map_err(|_| wrong(group.to_string()))?;
    let all = locals
        .cast::<PyList>()
        .map_err(|_| wrong(locals.to_string()))?;
    let locals = all.iter().map(|local| local_of(&local));
    Ok((group.get().0.clone(), locals.collect::<Result<_>>()?))
}

impl PySession {
    fn save(
        &self,
        py: Python<'_>,
        (group, locals): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
        save: Save,
    ) -> PyResult<PyReport> {
        let given = group_given(group, locals);
        let call = move |session: &mut Session| session.save(given, save);
        self.released(py, call).map(PyReport::from)
    }

    fn session(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Owned>> {
        match self.0.try_lock() {
            Ok(owned) => Ok(owned),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let cause = "it is in use by another thread";
                Err(raise(
                    py,
                    &Error::new(Kind::Schema, "using a session", cause),
                ))
            }
        }
    }

    /// Runs `call` on the session with the GIL released.
    fn released<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Session) -> Result<T> + Send,
    ) -> PyResult<T> {
        let mut owned = self.session(py)?;
        let session = &mut *owned;
        py.detach(move || call(&mut session.0))
            .map_err(|e| raise(py, &e))
    }

    /// The strategy of that name; none if there is no name.
    fn named(&self, strategy: Option<&str>) -> Result<Option<Strategy>> {
        let named = strategy.map(|word| strategy::named(word, &self.1));
        named.transpose()
    }

    fn given(
        &self,
        array: &Bound<'_, PyAny>,
        local: &Bound<'_, PyAny>,
        strategy: &Bound<'_, PyAny>,
    ) -> Given {
        let strategy = match self.named(word(strategy).as_deref()) {
            Ok(strategy) => strategy,
            Err(error) => return Given(Err(error), None),
        };
        let given = spec_of(array)
            .and_then(|spec| local_of(local).map(|local| (spec.get().call.clone(), local)));
        Given(given, strategy)
    }
}

#[pymethods]
impl PySession {
    /// This rank; `None` on a dedicated server.
    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        Ok(self.session(py)?.0.rank())
    }

    /// Number of clients.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.session(py)?.0.clients())
    }

    /// Number of servers.
    #[getter]
    fn servers(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.session(py)?.0.servers())
    }

    fn write(
        &self,
        py: Python<'_>,
        path: PathBuf,
        array: &Bound<'_, PyAny>,
        local: &Bound<'_, PyAny>,
        strategy: &Bound<'_, PyAny>,
    ) -> PyResult<PyReport> {
        let given = self.given(array, local, strategy);
        let write = move |session: &mut Session| {
            let Given(given, strategy) = given;
            session.write(&path, given, strategy)
        };
        self.released(py, write).map(PyReport::from)
    }

    fn read(
        &self,
        py: Python<'_>,
        path: PathBuf,
        array: &Bound<'_, PyAny>,
        local: &Bound<'_, PyAny>,
        strategy: &Bound<'_, PyAny>,
    ) -> PyResult<PyReport> {
        let given = self.given(array, local, strategy);
        let read = move |session: &mut Session| {
            let Given(given, strategy) = given;
            session.read(&path, given, strategy)
        };
        self.released(py, read).map(PyReport::from)
    }

    /// Begins a write or a read; keeps `local` until it has ended.
    #[expect(clippy::too_many_arguments, reason = "they are Python's")]
    fn begin(
        &self,
        py: Python<'_>,
        path: PathBuf,
        array: &Bound<'_, PyAny>,
        local: &Bound<'_, PyAny>,
        is_write: bool,
        strategy: &Bound<'_, PyAny>,
        background: &Bound<'_, PyAny>,
    ) -> PyResult<PyOutstanding> {
        let given = self.given(array, local, strategy);
        let background = word(background);
        let keeps: Box<dyn Any + Send> = Box::new(local.clone().unbind());
        let begin = move |session: &mut Session| {
            let Given(given, strategy) = given;
            let background = background.map(|word| Background::named(&word)).transpose();
            let how = background.map(|background| How {
                strategy,
                background,
            });
            match is_write {
                true => session.begin_write(&path, given, how, keeps),
                false => session.begin_read(&path, given, how, keeps),
            }
        };
        self.released(py, begin).map(PyOutstanding)
    }

    fn explain(
        &self,
        py: Python<'_>,
        path: PathBuf,
        array: &Spec,
        is_write: bool,
        strategy: Option<&str>,
    ) -> PyResult<String> {
        let by = self.named(strategy).map_err(|e| raise(py, &e))?;
        let operation = if is_write {
            Operation::Write
        } else {
            Operation::Read
        };
        let call = &array.call;
        let explain =
            |session: &mut Session| session.explain(Path::new(&path), call, operation, by);
        self.released(py, explain)
    }

    /// Appends a timestep to a group.
    fn timestep(
        &self,
        py: Python<'_>,
        group: &Bound<'_, PyAny>,
        locals: &Bound<'_, PyAny>,
        time: Option<f64>,
    ) -> PyResult<PyReport> {
        self.save(py, (group, locals), Save::Timestep(time))
    }

    /// Saves a checkpoint of a group.
    fn checkpoint(
        &self,
        py: Python<'_>,
        group: &Bound<'_, PyAny>,
        locals: &Bound<'_, PyAny>,
        step: Option<u64>,
        time: Option<f64>,
    ) -> PyResult<PyReport> {
        self.save(py, (group, locals), Save::Checkpoint(step, time))
    }

    /// The newest checkpoint of a group, or that of a step.
    fn find_checkpoint(
        &self,
        py: Python<'_>,
        path: PathBuf,
        step: Option<u64>,
    ) -> PyResult<Option<PyCheckpoint>> {
        let find = move |session: &mut Session| session.find_checkpoint(&path, step);
        Ok(self.released(py, find)?.map(PyCheckpoint))
    }

    /// Reads a checkpoint into `locals`.
    fn restart(
        &self,
        py: Python<'_>,
        checkpoint: &PyCheckpoint,
        group: &Bound<'_, PyAny>,
        locals: &Bound<'_, PyAny>,
    ) -> PyResult<PyReport> {
        let given = group_given(group, locals);
        let checkpoint = &checkpoint.0;
        let restart = move |session: &mut Session| session.restart(checkpoint, given);
        self.released(py, restart).map(PyReport::from)
    }

    /// Runs `penstock copy` as one of the session's ranks; the exit code.
    fn run_copy(&self, py: Python<'_>, argv: Vec<OsString>) -> PyResult<u8> {
        self.released(py, move |session| Ok(penstock_cli::copy_in(session, argv)))
    }

    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.released(py, |session| session.barrier())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.released(py, Session::close)
    }

    fn leave(&self, py: Python<'_>, cause: String) -> PyResult<()> {
        self.released(py, move |session| {
            session.leave(&cause);
            Ok(())
        })
    }
}

/// A word, if there is one. What is no word is none of those that mean something.
fn word(given: &Bound<'_, PyAny>) -> Option<String> {
    (!given.is_none()).then(|| given.to_string())
}

/// An array, as it is or as described. The face hands over the words of an error where it could describe none.
fn spec_of<'py>(array: &Bound<'py, PyAny>) -> Result<Bound<'py, Spec>> {
    let wrong = |cause: String| Error::new(Kind::Schema, "describing an array", cause);
    if let Ok(spec) = array.cast::<Spec>() {
        return Ok(spec.clone());
    }
    if array.is_instance_of::<PyString>() {
        return Err(wrong(array.to_string()));
    }
    let spec = array.getattr(intern!(array.py(), "_spec"));
    let spec = spec.map_err(|e| wrong(e.to_string()))?;
    spec.cast_into().map_err(|e| wrong(e.to_string()))
}

/// The memory of a NumPy array, used in place.
fn local_of(local: &Bound<'_, PyAny>) -> Result<Local> {
    let wrong = |cause: String| Error::new(Kind::Schema, "bringing a local array", cause);
    let array = local
        .cast::<PyUntypedArray>()
        .map_err(|_| wrong(local.to_string()))?;
    let dtype = array.dtype();
    let (sign, letter) = (dtype.byteorder() as char, dtype.kind() as char);
    let element = ElementType::parse(&format!("{sign}{letter}{}", dtype.itemsize()));
    let (element, order) = element.map_err(|e| Error {
        doing: format!("reading the dtype {dtype}"),
        ..e
    })?;
    if order != ByteOrder::NATIVE && element.width() > 1 {
        let cause = format!(
            "its elements are {}: give them in the machine's byte order",
            dtype
        );
        return Err(wrong(cause));
    }
    // SAFETY: the array object is alive, and so is the struct that the pointer leads to.
    let fields = unsafe { &(*array.as_array_ptr()).fields };
    let (base, is_writable) = (
        fields.data.cast::<u8>(),
        fields.flags & NPY_ARRAY_WRITEABLE != 0,
    );
    let shape = array.shape().iter().map(|&extent| extent as u64).collect();
    let memory = ClientMemory {
        base,
        strides: array.strides().to_vec(),
    };
    Ok(Local {
        memory,
        shape,
        element,
        is_writable,
    })
}
