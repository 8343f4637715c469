//! Sessions: `penstock.Session` in Rust.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use numpy::{PyArray1, PyUntypedArray};
use penstock_arrays::DirectIo;
use penstock_arrays::calls::array::{ArrayCall, LocalPart};
use penstock_arrays::calls::save::Save;
use penstock_arrays::calls::select::SelectOptions;
use penstock_arrays::calls::settings::{
    Background, Outstanding, Report, SessionOptions, SplitOptions,
};
use penstock_arrays::calls::strategy::{self, Tuning};
use penstock_arrays::calls::{ArrayPart, OpenArray, Seat, Session, call_of};
use penstock_arrays::sieve::{How, Recipients, Reduction};
use penstock_engine::{Error, Kind, Operation, Result, Strategy};
use penstock_layout::Region;
use penstock_machines::mpi::Transport;
use penstock_machines::mpi::abi::Constants;
use penstock_machines::mpi::api::Api;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict};

use crate::errors::{exception, kind_of, raise};
use crate::group::{Locals, PyCheckpoint, PyGroup};
use crate::interrupt::RaisedException;
use crate::list::ListArgument;
use crate::local::{local_of, locals_of};
use crate::spec::{self, Spec, attributes_of};
use crate::stores::{CopyArgument, Listener, copied};
use crate::trace;

/// A session that one thread at a time may use.
struct SessionCell(Session);

// SAFETY: a session and all that it refers to is one value, and no part of it is tied to a thread;
// its reference counts and cells are only reached through it, and the mutex in `PySession` lets
// only one thread do so at a time. (MPI wants its calls from one thread: the face says so.)
unsafe impl Send for SessionCell {}

/// A rank's place in a machine of threads. The thread that will use the session opens it.
#[pyclass(frozen, module = "penstock._core")]
pub struct PySeat {
    seat: Mutex<Option<Seat>>,
    tuning: Tuning,
    /// Whether all ranks of the machine are to stop.
    stops: Arc<AtomicBool>,
}

#[pymethods]
impl PySeat {
    fn open(&self, py: Python<'_>) -> PyResult<PySession> {
        let seat = self.seat.lock().map_or(None, |mut seat| seat.take());
        let Some(seat) = seat else {
            let cause = "this rank has opened its session already";
            let error = Error::new(Kind::Schema, "opening a session", cause);
            return Err(raise(py, &error));
        };
        let raised = RaisedException::default();
        let stops = self.stops.clone();
        let interrupt = raised.interrupt(move || stops.load(Ordering::Relaxed));
        let opened = py.detach(|| seat.open(Some(interrupt)).map(SessionCell));
        if let Some(error) = raised.take() {
            return Err(error);
        }
        let opened = opened.map_err(|e| raise(py, &e))?;
        Ok(PySession::new(opened.0, self.tuning, raised))
    }

    /// Stops all ranks of the machine: their calls fail.
    fn interrupt(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }
}

/// The options of a session in Python's terms.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct OptionsArgument {
    servers: Option<usize>,
    /// The URL of servers that stand, and the keys for them.
    standing: Option<(String, Option<String>)>,
    dedicated: bool,
    sync: bool,
    block_bytes: u64,
    background_bytes: u64,
    cache_bytes: u64,
    /// `None`: cold reads alone.
    direct: Option<bool>,
    /// `None`: the usual one.
    strategy: Option<String>,
    /// For tests: the number of cached blocks for each client, and the bytes of a client's staging
    /// buffer.
    buffers: Option<(u32, u64)>,
    /// For tests and benchmarks: the faults of the disks, as JSON.
    faults: Option<String>,
}

impl OptionsArgument {
    fn tuning(&self) -> Tuning {
        match self.buffers {
            None => Tuning::default(),
            Some((buffers_per_client, staging_bytes)) => Tuning {
                buffers_per_client,
                staging_bytes,
            },
        }
    }

    fn options(&self) -> Result<SessionOptions> {
        let opening = |error| Error {
            doing: "opening a session".to_string(),
            ..error
        };
        let faults = self.faults.as_deref().map(serde_json::from_str);
        let wrong = |e| Error::new(Kind::Schema, "opening a session", e);
        let named = self.strategy.as_deref();
        let strategy = named.map(|word| strategy::named(word, &self.tuning()));
        let usual = SessionOptions::default();
        Ok(SessionOptions {
            servers: self.servers,
            dedicated: self.dedicated,
            sync: self.sync,
            block_bytes: self.block_bytes,
            background_bytes: self.background_bytes,
            cache_bytes: self.cache_bytes,
            direct: self.direct.map_or(DirectIo::ColdReads, DirectIo::from),
            faults: faults.transpose().map_err(wrong)?,
            strategy: strategy
                .transpose()
                .map_err(opening)?
                .unwrap_or(usual.strategy),
            ..usual
        })
    }
}

/// The seats of `ranks` threads.
#[pyfunction]
pub fn seats(py: Python<'_>, ranks: usize, options: OptionsArgument) -> PyResult<Vec<PySeat>> {
    trace::begin();
    let tuning = options.tuning();
    let seats = options
        .options()
        .and_then(|chosen| match &options.standing {
            Some((url, keys)) => Seat::all_of_standing(ranks, &chosen, (url, keys.as_deref())),
            None => Seat::all(ranks, &chosen),
        });
    let seats = seats.map_err(|e| raise(py, &e))?;
    let stops = Arc::new(AtomicBool::new(false));
    let seats = seats.into_iter().map(|seat| PySeat {
        seat: Mutex::new(Some(seat)),
        tuning,
        stops: stops.clone(),
    });
    Ok(seats.collect())
}

/// The MPI library: `(shared object, communicator, MPI_BYTE, MPI_ANY_SOURCE)`, and whether any
/// thread may call it at any time.
pub type Mpi = (PathBuf, usize, usize, i32, bool);

/// Joins the session of an MPI job. The call is collective, so an error that Python found in this
/// rank's options comes as `wrong`: its kind and cause.
#[pyfunction]
pub fn join_mpi(
    py: Python<'_>,
    mpi: Mpi,
    transport: &str,
    options: Option<OptionsArgument>,
    wrong: Option<(String, String)>,
) -> PyResult<PySession> {
    trace::begin();
    let (library, comm, byte, any_source, may_use_threads) = mpi;
    let opening = "opening a session";
    let does_not_fit = |cause: &str| Error::new(Kind::Schema, opening, cause);
    let transport = match transport {
        "shared" => Ok(Transport::Shared),
        "messages" => Ok(Transport::Messages),
        other => {
            let cause = format!("'{other}' is no transport: use \"shared\" or \"messages\"");
            Err(does_not_fit(&cause))
        }
    };
    let tuning = options
        .as_ref()
        .map_or_else(Tuning::default, OptionsArgument::tuning);
    let given = match (wrong, options) {
        (Some((kind, cause)), _) => Err(Error::new(kind_of(&kind), opening, cause)),
        (None, None) => Err(does_not_fit("there are no options")),
        (None, Some(options)) => transport.and_then(|transport| {
            let chosen = options.options()?;
            Ok((transport, chosen, options.standing))
        }),
    };
    let raised = RaisedException::default();
    let interrupt = raised.interrupt(|| false);
    let joined = py.detach(|| {
        let api = Api::load(&library, Constants { byte, any_source })?;
        let session = match given {
            Ok((_, options, Some((url, keys)))) => {
                let given = call_of(&url, keys.as_deref()).map(|call| (call, options));
                Session::mpi_standing(&api, comm, given, Some(interrupt))
            }
            given => {
                let given = given.map(|(transport, options, _)| (transport, options));
                Session::mpi(api, comm, may_use_threads, given, Some(interrupt))
            }
        };
        session.map(SessionCell)
    });
    if let Some(error) = raised.take() {
        return Err(error);
    }
    let joined = joined.map_err(|e| raise(py, &e))?;
    Ok(PySession::new(joined.0, tuning, raised))
}

/// A checkpoint of this step and time, with attributes as JSON.
fn checkpoint_of(
    py: Python<'_>,
    (step, time): (Option<u64>, Option<f64>),
    attributes: &str,
) -> PyResult<Save> {
    let attributes = attributes_of(attributes).map_err(|e| raise(py, &e))?;
    Ok(Save::Checkpoint {
        step,
        time,
        attributes,
    })
}

/// The report of a call: bytes, seconds, blocks, disk_bytes, transfers, buffer_bytes, servers.
type ReportFields = (u64, f64, u64, u64, u64, u64, usize);

fn fields_of(report: Report) -> ReportFields {
    let moved = report.moved;
    (
        report.bytes,
        report.seconds,
        moved.blocks,
        moved.disk_bytes,
        moved.transfers,
        moved.buffer_bytes,
        report.servers,
    )
}

/// A session in use by this rank.
#[pyclass(frozen, module = "penstock._core")]
pub struct PySession {
    session: Mutex<SessionCell>,
    tuning: Tuning,
    raised: RaisedException,
}

/// A call that has begun; `None` once it was abandoned.
#[pyclass(frozen, module = "penstock._core")]
pub struct PyOutstanding(Mutex<Option<Outstanding>>);

impl PyOutstanding {
    fn with<T>(&self, body: impl FnOnce(&Outstanding) -> Result<T>) -> Result<T> {
        let call = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let given_up = || {
            let cause = "the call was given up";
            Error::new(Kind::Schema, "ending a call", cause)
        };
        body(call.as_ref().ok_or_else(given_up)?)
    }
}

#[pymethods]
impl PyOutstanding {
    /// Whether the call has ended. Never waits.
    fn has_ended(&self, py: Python<'_>, session: &PySession) -> PyResult<bool> {
        session.released(py, |session| self.with(|call| Ok(session.has_ended(call))))
    }

    /// Waits for the end of the call.
    fn end(&self, py: Python<'_>, session: &PySession) -> PyResult<ReportFields> {
        session
            .released(py, |session| self.with(|call| session.end(call)))
            .map(fields_of)
    }

    /// Abandons the call: nobody will end it.
    fn abandon(&self, py: Python<'_>, session: &PySession) -> PyResult<()> {
        let call = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        session.released(py, |session| {
            if let Some(call) = call {
                session.abandon(call);
            }
            Ok(())
        })
    }
}

/// An array that stays open.
#[pyclass(frozen, module = "penstock._core")]
pub struct PyOpenArray(Mutex<OpenArray>);

fn operation_of(is_write: bool) -> Operation {
    match is_write {
        true => Operation::Write,
        false => Operation::Read,
    }
}

/// A part of an open array in Python's terms.
#[derive(FromPyObject)]
enum PartArgument<'py> {
    /// A box: its start and its extents.
    #[pyo3(transparent)]
    Box((Vec<u64>, Vec<u64>)),
    /// A list with its places.
    #[pyo3(transparent)]
    List(ListArgument<'py>),
}

impl PartArgument<'_> {
    /// The part of an array of this shape.
    fn of(self, array: &[u64]) -> Result<ArrayPart> {
        match self {
            Self::Box((start, shape)) => Ok(ArrayPart::Box(Region { start, shape })),
            Self::List(list) => list.for_shape(array).map(ArrayPart::List),
        }
    }
}

impl PyOpenArray {
    fn new(array: OpenArray) -> Self {
        Self(Mutex::new(array))
    }

    fn lock(&self) -> MutexGuard<'_, OpenArray> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[pymethods]
impl PyOpenArray {
    /// The name of the array.
    #[getter]
    fn name(&self) -> String {
        self.lock().name().to_string()
    }

    /// The extents of the array.
    #[getter]
    fn shape(&self) -> Vec<u64> {
        self.lock().shape().to_vec()
    }

    /// The element type, as NumPy writes it.
    #[getter]
    fn dtype(&self) -> String {
        self.lock().element().numpy()
    }
}

/// The kind of a reduction, by its word.
fn how_of(word: &str, bins: Vec<f64>) -> Result<How> {
    Ok(match word {
        "min" => How::Min,
        "max" => How::Max,
        "sum" => How::Sum,
        "mean" => How::Mean,
        "count" => How::Count,
        "histogram" => How::Histogram(bins),
        other => {
            let cause = format!(
                "'{other}' is no reduction: there are min, max, mean, sum, count, histogram"
            );
            return Err(Error::new(Kind::Schema, "reducing an array", cause));
        }
    })
}

/// What a selection gives: indices, bytes, the dtype, and the report.
type Selected<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<u8>>,
    String,
    ReportFields,
);

/// What a reduction gives: bytes, the shape, the dtype, and the report.
type Reduced<'py> = (Bound<'py, PyArray1<u8>>, Vec<u64>, String, ReportFields);

/// A method of a session that moves an array.
type Transfer = fn(&Session, &Path, ArrayCall, Vec<LocalPart>, Option<Strategy>) -> Result<Report>;

impl PySession {
    fn new(session: Session, tuning: Tuning, raised: RaisedException) -> Self {
        Self {
            session: Mutex::new(SessionCell(session)),
            tuning,
            raised,
        }
    }

    fn save(
        &self,
        py: Python<'_>,
        group: &Bound<'_, PyGroup>,
        locals: &Locals<'_>,
        save: Save,
    ) -> PyResult<ReportFields> {
        let given = group.get().with_locals(locals);
        let call = move |session: &mut Session| match given {
            Ok((group, locals)) => session.save(group, locals, save),
            Err(error) => Err(session.refuse(error)),
        };
        self.released(py, call).map(fields_of)
    }

    /// Begins a save; keeps `locals` until it has ended.
    fn begin_save(
        &self,
        py: Python<'_>,
        group: &Bound<'_, PyGroup>,
        locals: Locals<'_>,
        save: Save,
        background: Option<&str>,
    ) -> PyResult<PyOutstanding> {
        let given = group
            .get()
            .with_locals(&locals)
            .and_then(|(group, locals)| {
                let background = background.map(Background::named).transpose()?;
                Ok((group, locals, background))
            });
        let kept = locals.into_iter().flatten().map(Bound::unbind);
        let keeps: Box<dyn Any + Send> = Box::new(kept.collect::<Vec<_>>());
        let begin = move |session: &mut Session| match given {
            Ok((group, locals, background)) => {
                session.begin_save(group, locals, save, background, keeps)
            }
            Err(error) => Err(session.refuse(error)),
        };
        let begun = self.released(py, begin)?;
        Ok(PyOutstanding(Mutex::new(Some(begun))))
    }

    /// Runs `call`, which is [`Session::write`] or [`Session::read`], or refuses.
    fn transfer(
        &self,
        py: Python<'_>,
        call: Transfer,
        path: &Path,
        array: &Bound<'_, Spec>,
        locals: &[Bound<'_, PyUntypedArray>],
        strategy: Option<&str>,
    ) -> PyResult<ReportFields> {
        let array = array.get().call.clone();
        let given = locals_of(locals).and_then(|locals| Ok((locals, self.named(strategy)?)));
        let run = move |session: &mut Session| match given {
            Ok((locals, strategy)) => call(session, path, array, locals, strategy),
            Err(error) => Err(session.refuse(error)),
        };
        self.released(py, run).map(fields_of)
    }

    fn session(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, SessionCell>> {
        match self.session.try_lock() {
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

    /// Runs `call` on the session with the GIL released. An exception of a signal handler comes
    /// first.
    fn released<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Session) -> Result<T> + Send,
    ) -> PyResult<T> {
        let mut owned = self.session(py)?;
        let session = &mut *owned;
        let done = py.detach(move || call(&mut session.0));
        match (done, self.raised.take()) {
            (_, Some(error)) => Err(error),
            (Ok(done), None) => Ok(done),
            (Err(error), None) => Err(raise(py, &error)),
        }
    }

    /// The strategy with this name; `None` without a name.
    fn named(&self, strategy: Option<&str>) -> Result<Option<Strategy>> {
        let named = strategy.map(|word| strategy::named(word, &self.tuning));
        named.transpose()
    }
}

#[pymethods]
impl PySession {
    /// The rank of this client; `None` on a dedicated server.
    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        Ok(self.session(py)?.0.rank())
    }

    /// The number of clients.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.session(py)?.0.clients())
    }

    /// The number of servers.
    #[getter]
    fn servers(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.session(py)?.0.servers())
    }

    /// Takes part in the call that the other ranks make, with the complaint that this rank cannot.
    /// Gives the exception of the call, the same on all ranks.
    fn refuse<'py>(
        &self,
        py: Python<'py>,
        kind: &str,
        doing: &str,
        cause: String,
    ) -> PyResult<Bound<'py, PyAny>> {
        let error = Error::new(kind_of(kind), doing, cause);
        let verdict = self.released(py, move |session| Ok(session.refuse(error)))?;
        exception(py, &verdict)
    }

    fn write(
        &self,
        py: Python<'_>,
        path: PathBuf,
        array: &Bound<'_, Spec>,
        locals: Vec<Bound<'_, PyUntypedArray>>,
        strategy: Option<&str>,
    ) -> PyResult<ReportFields> {
        self.transfer(py, Session::write, &path, array, &locals, strategy)
    }

    fn read(
        &self,
        py: Python<'_>,
        path: PathBuf,
        array: &Bound<'_, Spec>,
        locals: Vec<Bound<'_, PyUntypedArray>>,
        strategy: Option<&str>,
    ) -> PyResult<ReportFields> {
        self.transfer(py, Session::read, &path, array, &locals, strategy)
    }

    /// Selects elements: their indices, one element after the other, their bytes and their dtype,
    /// and the report. They go to who holds them, to all evenly, or by a value.
    #[expect(clippy::too_many_arguments, reason = "they are Python's")]
    fn select<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        array: &Bound<'_, Spec>,
        condition: String,
        fields: Option<Vec<String>>,
        is_balanced: bool,
        by: Option<(String, Option<Vec<f64>>)>,
    ) -> PyResult<Selected<'py>> {
        let array = array.get().call.clone();
        let options = SelectOptions {
            condition,
            fields,
            recipients: match by {
                Some((expression, splitters)) => Recipients::ByValue {
                    expression,
                    splitters,
                },
                None if is_balanced => Recipients::Evenly,
                None => Recipients::Holders,
            },
        };
        let select = move |session: &mut Session| session.select(&path, &array, options);
        let selected = self.released(py, select)?;
        Ok((
            PyArray1::from_vec(py, selected.indices),
            PyArray1::from_vec(py, selected.values),
            selected.element.numpy(),
            fields_of(selected.report),
        ))
    }

    /// The splitters that deal elements out evenly by the value of an expression, from a sample of
    /// those that satisfy a condition.
    fn sampled_splitters(
        &self,
        py: Python<'_>,
        path: PathBuf,
        array: &Bound<'_, Spec>,
        condition: String,
        expression: String,
    ) -> PyResult<Vec<f64>> {
        let array = array.get().call.clone();
        let sample = move |session: &mut Session| {
            session.sampled_splitters(&path, &array, condition, &expression)
        };
        self.released(py, sample)
    }

    /// Reduces an array: the bytes of the result, its shape and its dtype, and the report. `bins`
    /// are the edges of a histogram; the region is its start and its extents.
    #[expect(clippy::too_many_arguments, reason = "they are Python's")]
    fn reduce<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        array: &Bound<'_, Spec>,
        how: &str,
        bins: Vec<f64>,
        region: (Vec<u64>, Vec<u64>),
        kept: Vec<usize>,
        field: Option<String>,
    ) -> PyResult<Reduced<'py>> {
        let array = array.get().call.clone();
        let reduction = how_of(how, bins).map(|how| {
            let (start, shape) = region;
            let region = Region { start, shape };
            Reduction {
                how,
                region,
                kept,
                field,
            }
        });
        let reduce = move |session: &mut Session| match reduction {
            Ok(reduction) => session.reduce(&path, &array, reduction),
            Err(error) => Err(session.refuse(error)),
        };
        let reduced = self.released(py, reduce)?;
        Ok((
            PyArray1::from_vec(py, reduced.values),
            reduced.shape,
            reduced.element.numpy(),
            fields_of(reduced.report),
        ))
    }

    /// Begins a write or a read; keeps `locals` until it has ended.
    #[expect(clippy::too_many_arguments, reason = "they are Python's")]
    fn begin(
        &self,
        py: Python<'_>,
        path: PathBuf,
        array: &Bound<'_, Spec>,
        locals: Vec<Bound<'_, PyUntypedArray>>,
        is_write: bool,
        strategy: Option<&str>,
        background: Option<&str>,
    ) -> PyResult<PyOutstanding> {
        let array = array.get().call.clone();
        let split = || {
            Ok(SplitOptions {
                strategy: self.named(strategy)?,
                background: background.map(Background::named).transpose()?,
            })
        };
        let given = locals_of(&locals).and_then(|locals| Ok((locals, split()?)));
        let kept: Vec<Py<PyUntypedArray>> = locals.into_iter().map(Bound::unbind).collect();
        let keeps: Box<dyn Any + Send> = Box::new(kept);
        let begin = move |session: &mut Session| match (given, is_write) {
            (Ok((locals, split)), true) => session.begin_write(&path, array, locals, split, keeps),
            (Ok((locals, split)), false) => session.begin_read(&path, array, locals, split, keeps),
            (Err(error), _) => Err(session.refuse(error)),
        };
        let begun = self.released(py, begin)?;
        Ok(PyOutstanding(Mutex::new(Some(begun))))
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

    /// The schema of a stored array, as keyword arguments.
    fn describe<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        name: Option<&str>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let described = self.released(py, |session| session.describe(&path, name))?;
        spec::describe(py, &described)
    }

    /// Appends a timestep to a group.
    fn timestep(
        &self,
        py: Python<'_>,
        group: &Bound<'_, PyGroup>,
        locals: Locals<'_>,
        time: Option<f64>,
    ) -> PyResult<ReportFields> {
        self.save(py, group, &locals, Save::Timestep(time))
    }

    /// Begins a timestep of a group.
    fn begin_timestep(
        &self,
        py: Python<'_>,
        group: &Bound<'_, PyGroup>,
        locals: Locals<'_>,
        time: Option<f64>,
        background: Option<&str>,
    ) -> PyResult<PyOutstanding> {
        self.begin_save(py, group, locals, Save::Timestep(time), background)
    }

    /// Saves a checkpoint of a group.
    fn checkpoint(
        &self,
        py: Python<'_>,
        group: &Bound<'_, PyGroup>,
        locals: Locals<'_>,
        step: Option<u64>,
        time: Option<f64>,
        attributes: &str,
    ) -> PyResult<ReportFields> {
        let save = checkpoint_of(py, (step, time), attributes)?;
        self.save(py, group, &locals, save)
    }

    /// Begins a checkpoint of a group.
    #[expect(clippy::too_many_arguments, reason = "they are Python's")]
    fn begin_checkpoint(
        &self,
        py: Python<'_>,
        group: &Bound<'_, PyGroup>,
        locals: Locals<'_>,
        step: Option<u64>,
        time: Option<f64>,
        attributes: &str,
        background: Option<&str>,
    ) -> PyResult<PyOutstanding> {
        let save = checkpoint_of(py, (step, time), attributes)?;
        self.begin_save(py, group, locals, save, background)
    }

    /// Finds the newest checkpoint of a group, or the newest of a step.
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
        group: &Bound<'_, PyGroup>,
        locals: Locals<'_>,
    ) -> PyResult<ReportFields> {
        let given = group.get().with_locals(&locals);
        let checkpoint = &checkpoint.0;
        let restart = move |session: &mut Session| match given {
            Ok((group, locals)) => session.restart(checkpoint, &group, locals),
            Err(error) => Err(session.refuse(error)),
        };
        self.released(py, restart).map(fields_of)
    }

    /// Copies a source to a target, and gives the report as keyword arguments.
    fn copy<'py>(
        &self,
        py: Python<'py>,
        source: PathBuf,
        target: PathBuf,
        argument: CopyArgument,
        listener: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let mut listener = Listener::new(listener, self.raised.clone());
        let copy = move |session: &mut Session| {
            let options = match argument.options(&target) {
                Ok(options) => options,
                Err(error) => return Err(session.refuse(error)),
            };
            let mut has_raised = false;
            let copied = session.copy(&source, &target, &options, &mut |progress| {
                let told = listener.tell(progress);
                has_raised |= told.is_err();
                told
            });
            if has_raised {
                session.leave("who was told of its copy raised an exception");
            }
            copied
        };
        copied(py, &self.released(py, copy)?)
    }

    /// Opens an array for requests of single ranks.
    fn open_array(
        &self,
        py: Python<'_>,
        path: PathBuf,
        name: Option<String>,
        is_writable: bool,
    ) -> PyResult<PyOpenArray> {
        let open =
            move |session: &mut Session| session.open_array(&path, name.as_deref(), is_writable);
        self.released(py, open).map(PyOpenArray::new)
    }

    /// Moves a part of an open array between its servers and this rank's memory.
    fn move_part(
        &self,
        py: Python<'_>,
        array: &PyOpenArray,
        is_write: bool,
        part: PartArgument<'_>,
        local: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<()> {
        let (local, part) = (local_of(local), part.of(array.lock().shape()));
        let operation = operation_of(is_write);
        let moved = move |session: &mut Session| {
            session.move_part(&array.lock(), operation, &part?, local?)
        };
        self.released(py, moved)
    }

    /// What `move_part` would do, in lines of text.
    fn explain_part(
        &self,
        py: Python<'_>,
        array: &PyOpenArray,
        is_write: bool,
        part: PartArgument<'_>,
    ) -> PyResult<String> {
        let part = part.of(array.lock().shape());
        let operation = operation_of(is_write);
        let explain =
            move |session: &mut Session| session.explain_part(&array.lock(), operation, &part?);
        self.released(py, explain)
    }

    /// Moves parts of an open array between its servers and the memories of all ranks.
    fn move_together(
        &self,
        py: Python<'_>,
        open: &PyOpenArray,
        is_write: bool,
        array: &Bound<'_, Spec>,
        locals: Vec<Bound<'_, PyUntypedArray>>,
    ) -> PyResult<ReportFields> {
        let (call, locals) = (array.get().call.clone(), locals_of(&locals));
        let operation = operation_of(is_write);
        let moved = move |session: &mut Session| match locals {
            Ok(locals) => session.move_together(&open.lock(), operation, call, locals),
            Err(error) => Err(session.refuse(error)),
        };
        self.released(py, moved).map(fields_of)
    }

    /// Brings what was written to an open array to its disks.
    fn flush_array(&self, py: Python<'_>, array: &PyOpenArray) -> PyResult<()> {
        self.released(py, |session| session.flush_array(&array.lock()))
    }

    /// Flushes and closes an open array.
    fn close_array(&self, py: Python<'_>, array: &PyOpenArray) -> PyResult<()> {
        self.released(py, |session| session.close_array(&mut array.lock()))
    }

    /// Commits what calls have written to a repository that keeps the commits of calls back.
    fn commit(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.released(py, move |session| session.commit(&path))
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
