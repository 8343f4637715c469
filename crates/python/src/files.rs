//! Parallel files: `penstock.FileSystem` in Rust.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use numpy::npyffi::NPY_ARRAY_WRITEABLE;
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use penstock_engine::{Error, Kind, Operation, Result};
use penstock_files::disk::{CreateOptions, create};
use penstock_files::job::mpi::{self, JobArguments};
use penstock_files::job::{FileSystem, JobOptions, Memory, Moving, OpenFile, OpenView, open};
use penstock_files::rebalance::rebalance;
use penstock_files::transfer::{self, Party, TransferOptions};
use penstock_files::{
    Attributes, FileChange, FilePath, Mode, Moved, ObjectKind, PointerId, Seek, Version,
};
use penstock_layout::{SubfileOrder, View};
use penstock_machines::mpi::abi::Constants;
use penstock_machines::mpi::api::Api;
use penstock_machines::node::runner::Interrupt;
use pyo3::prelude::*;

use crate::errors::{kind_of, raise};
use crate::interrupt::RaisedException;
use crate::session::Mpi;
use crate::trace;

/// The part of a file that an import or export moves: view, subfile, order, version, the memory
/// that it may take, and whether all clients take part.
type Shown = ([u64; 4], u64, String, String, u64, bool);

/// The view, the order and the version that Python names.
fn shown_part(view: [u64; 4], order: &str, version: &str) -> Result<(View, SubfileOrder, Version)> {
    let wrong = |e: &dyn std::fmt::Display| Error::new(Kind::Schema, "opening a subfile", e);
    let view = View::try_from(view).map_err(|e| wrong(&e))?;
    let order = match order {
        "block" => SubfileOrder::Block,
        "row" => SubfileOrder::Row,
        "column" => SubfileOrder::Column,
        other => {
            let cause = format!("'{other}' is no order: use 'block', 'row' or 'column'");
            return Err(wrong(&cause));
        }
    };
    let version = match version {
        "active" => Version::Active,
        "checkpoint" => Version::Checkpoint,
        other => {
            let cause = format!("'{other}' is no version: use 'active' or 'checkpoint'");
            return Err(wrong(&cause));
        }
    };
    Ok((view, order, version))
}

/// The access that Python names.
fn mode_of(access: &str, mode: &str) -> Result<Mode> {
    let wrong = |cause| Error::new(Kind::Schema, "attaching a file", cause);
    if !["r", "w", "r+"].contains(&access) {
        return Err(wrong(format!(
            "'{access}' is no access: use 'r', 'w' or 'r+'"
        )));
    }
    if !["cautious", "reckless"].contains(&mode) {
        return Err(wrong(format!(
            "'{mode}' is no mode: use 'cautious' or 'reckless'"
        )));
    }
    Ok(Mode {
        reads: access != "w",
        writes: access != "r",
        is_reckless: mode == "reckless",
    })
}

/// The path and the options of a transfer. If all clients take part, a wrong argument of one is the
/// error of all.
fn agreed(fs: &FileSystem, path: &str, shown: Shown) -> Result<(FilePath, TransferOptions)> {
    let (view, subfile, order, version, memory_bytes, is_collective) = shown;
    let party = match is_collective {
        true => Party::All,
        false => Party::Alone,
    };
    let options = FilePath::new(path).and_then(|path| {
        let (view, order, version) = shown_part(view, &order, &version)?;
        let options = TransferOptions {
            view,
            subfile,
            order,
            version,
            memory_bytes,
            party,
        };
        Ok((path, options))
    });
    party.agree(fs, options.as_ref().map(|_| 0).map_err(Error::clone))?;
    options
}

/// The attributes of an object: identity, kind, path, owner, group, mode, times of creation, access
/// and change, cells, bytes of a BSU, base, checkpoints.
type AttributeFields = (
    u64,
    &'static str,
    String,
    u32,
    u32,
    u16,
    (u64, u64, u64),
    (u64, u64, usize),
    u64,
);

/// The time of the last change of contents, the size in canonical order, and the target of a
/// symbolic link.
type MoreFields = (u64, u64, Option<String>);

/// The attributes of an object, the bytes of cells, and what else `stat` tells.
type StatFields = (AttributeFields, Vec<(u64, u64)>, MoreFields);

fn fields_of(object: &Attributes) -> AttributeFields {
    let (kind, shape) = match object.kind {
        ObjectKind::File(shape) => ("file", (shape.cells, shape.bsu_bytes, shape.base)),
        ObjectKind::Xref => ("directory", (0, 0, 0)),
        ObjectKind::Symlink(_) => ("symlink", (0, 0, 0)),
    };
    (
        object.id.0,
        kind,
        object.path.to_string(),
        object.owner,
        object.group,
        object.mode,
        (object.created, object.accessed, object.changed),
        shape,
        object.checkpoints,
    )
}

/// Makes a volume.
#[pyfunction]
#[pyo3(signature = (template, servers, block_bytes, capacity, disks))]
pub fn create_volume(
    py: Python<'_>,
    template: &str,
    servers: usize,
    block_bytes: u64,
    capacity: Option<u64>,
    disks: Vec<String>,
) -> PyResult<()> {
    let options = CreateOptions {
        block_bytes,
        capacity,
        disks,
        ..CreateOptions::new(servers)
    };
    py.detach(|| create(template, &options))
        .map_err(|e| raise(py, &e))
}

/// A client of a volume, and the servers of this process.
#[pyclass(frozen, module = "penstock._core")]
pub struct PyFileSystem {
    fs: Mutex<Option<Arc<FileSystem>>>,
    raised: RaisedException,
}

/// Opens a volume in this process alone, or one whose servers stand.
#[pyfunction]
#[pyo3(signature = (template, keys, servers, cache_bytes, direct))]
pub fn open_volume(
    py: Python<'_>,
    template: &str,
    keys: Option<&str>,
    servers: Option<usize>,
    cache_bytes: u64,
    direct: bool,
) -> PyResult<PyFileSystem> {
    let raised = RaisedException::default();
    let interrupt = raised.interrupt(|| false);
    let options = JobOptions {
        cache_bytes,
        is_direct: direct,
    };
    trace::begin();
    let opened = py.detach(|| open(template, keys, servers, &options, Some(interrupt)));
    Ok(PyFileSystem {
        fs: Mutex::new(Some(Arc::new(ended(py, &raised, opened)?))),
        raised,
    })
}

/// Opens a volume in all ranks of an MPI job; nothing on a rank that has served alone, when the
/// volume has been closed. An error that Python found in this rank's arguments comes as `wrong`:
/// its kind and cause.
#[pyfunction]
#[pyo3(signature = (mpi, template, keys, servers, dedicated, options, wrong))]
#[expect(clippy::too_many_arguments, reason = "they are Python's")]
pub fn join_volume(
    py: Python<'_>,
    mpi: Mpi,
    template: String,
    keys: Option<&str>,
    servers: Option<usize>,
    dedicated: bool,
    options: (u64, bool),
    wrong: Option<(String, String)>,
) -> PyResult<Option<PyFileSystem>> {
    let (cache_bytes, is_direct) = options;
    let raised = RaisedException::default();
    let interrupt = raised.interrupt(|| false);
    let given = match wrong {
        Some((kind, cause)) => Err(Error::new(kind_of(&kind), "opening a volume", cause)),
        None => Ok(JobArguments {
            template,
            servers,
            is_dedicated: dedicated,
            options: JobOptions {
                cache_bytes,
                is_direct,
            },
        }),
    };
    trace::begin();
    let joined = py.detach(|| join_job(&mpi, given, keys, interrupt));
    let joined = ended(py, &raised, joined)?;
    Ok(joined.map(|fs| PyFileSystem {
        fs: Mutex::new(Some(Arc::new(fs))),
        raised,
    }))
}

/// Opens a volume in all ranks of an MPI job.
fn join_job(
    mpi: &Mpi,
    given: Result<JobArguments>,
    keys: Option<&str>,
    interrupt: Interrupt,
) -> Result<Option<FileSystem>> {
    let (library, comm, byte, any_source, may_use_threads) = mpi;
    let api = Api::load(
        library,
        Constants {
            byte: *byte,
            any_source: *any_source,
        },
    )?;
    mpi::open((api, *comm), *may_use_threads, given, keys, Some(interrupt))
}

/// The result of a call, or the exception that has interrupted it.
fn ended<T>(py: Python<'_>, raised: &RaisedException, result: Result<T>) -> PyResult<T> {
    match raised.take() {
        Some(error) => Err(error),
        None => result.map_err(|e| raise(py, &e)),
    }
}

fn closed(doing: &str) -> Error {
    Error::new(Kind::Schema, doing, "the file system has been closed")
}

impl PyFileSystem {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&FileSystem) -> Result<T> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| {
            let fs = {
                let fs = self.fs.lock().unwrap_or_else(PoisonError::into_inner);
                fs.clone()
            };
            act(&*fs.ok_or_else(|| closed("using a file system"))?)
        });
        ended(py, &self.raised, done)
    }
}

/// The files that could not be moved, by path, with the exceptions that say why.
type Unmoved = Vec<(String, Py<PyAny>)>;

#[pymethods]
impl PyFileSystem {
    #[getter]
    fn servers(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |fs| Ok(fs.servers()))
    }

    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        self.with(py, |fs| Ok(fs.rank()))
    }

    #[getter]
    fn clients(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |fs| Ok(fs.clients()))
    }

    #[getter]
    fn block_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |fs| Ok(fs.block_bytes()))
    }

    fn make_directory(&self, py: Python<'_>, path: &str, mode: u16) -> PyResult<()> {
        self.with(py, |fs| {
            fs.make_directory(FilePath::new(path)?, mode).map(|_| ())
        })
    }

    #[pyo3(signature = (path, cells, bsu_bytes, base, mode))]
    fn create(
        &self,
        py: Python<'_>,
        path: &str,
        cells: u64,
        bsu_bytes: u64,
        base: Option<usize>,
        mode: u16,
    ) -> PyResult<()> {
        self.with(py, |fs| {
            let shape = (cells, bsu_bytes, base);
            fs.create(FilePath::new(path)?, shape, mode).map(|_| ())
        })
    }

    fn stat(&self, py: Python<'_>, path: &str) -> PyResult<StatFields> {
        self.with(py, |fs| {
            let details = fs.details(FilePath::new(path)?)?;
            let (size, modified, changed) = (details.size(), details.modified(), details.changed());
            let object = Attributes {
                changed,
                ..details.object
            };
            let fields = fields_of(&object);
            let target = match object.kind {
                ObjectKind::Symlink(target) => Some(target),
                ObjectKind::File(_) | ObjectKind::Xref => None,
            };
            let cells = details.cells.into_iter().collect();
            Ok((fields, cells, (modified, size, target)))
        })
    }

    fn symlink(&self, py: Python<'_>, target: &str, path: &str) -> PyResult<()> {
        self.with(py, |fs| {
            let made = fs.make_symlink(FilePath::new(path)?, target.to_string());
            made.map(|_| ())
        })
    }

    /// Who has a file attached: program, whether it reads, whether it writes, whether it is
    /// reckless.
    fn status(&self, py: Python<'_>, path: &str) -> PyResult<Vec<(u64, bool, bool, bool)>> {
        self.with(py, |fs| {
            let all = fs.status(FilePath::new(path)?)?.into_iter();
            let fields = all.map(|one| (one.program, one.reads, one.writes, one.is_reckless));
            Ok(fields.collect())
        })
    }

    /// Names, and whether each is a directory.
    fn list(&self, py: Python<'_>, path: &str) -> PyResult<Vec<(String, bool)>> {
        self.with(py, |fs| {
            let entries = fs.list(FilePath::new(path)?)?.into_iter();
            Ok(entries
                .map(|(name, entry)| (name, entry.is_xref()))
                .collect())
        })
    }

    fn remove(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        self.with(py, |fs| fs.remove(FilePath::new(path)?))
    }

    fn rename(&self, py: Python<'_>, old: &str, new: &str) -> PyResult<()> {
        self.with(py, |fs| fs.rename(FilePath::new(old)?, FilePath::new(new)?))
    }

    #[pyo3(signature = (path, mode, owner, group))]
    fn protect(
        &self,
        py: Python<'_>,
        path: &str,
        mode: Option<u16>,
        owner: Option<u32>,
        group: Option<u32>,
    ) -> PyResult<()> {
        self.with(py, |fs| {
            fs.protect(FilePath::new(path)?, (mode, owner, group))
        })
    }

    fn checkpoint(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        self.with(py, |fs| {
            fs.change(FilePath::new(path)?, FileChange::Checkpoint)
        })
    }

    fn roll_back(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        self.with(py, |fs| {
            fs.change(FilePath::new(path)?, FileChange::RollBack)
        })
    }

    fn resize(&self, py: Python<'_>, path: &str, bytes: u64) -> PyResult<()> {
        let change = FileChange::Resize(bytes);
        self.with(py, |fs| fs.change(FilePath::new(path)?, change))
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, FileSystem::sync)
    }

    /// Bytes in all, in use, of a user, and the user's limit.
    #[pyo3(signature = (user))]
    fn space(&self, py: Python<'_>, user: Option<u32>) -> PyResult<(u64, u64, u64, Option<u64>)> {
        self.with(py, |fs| {
            let space = fs.space(user.unwrap_or(fs.identity().user))?;
            Ok((
                space.bytes,
                space.used_bytes,
                space.of_user_bytes,
                space.limit_bytes,
            ))
        })
    }

    /// Spreads the volume over servers: all of them, or these. Gives the slots and files that have
    /// moved, and the files that could not, with the reasons.
    #[pyo3(signature = (servers))]
    fn rebalance(
        &self,
        py: Python<'_>,
        servers: Option<Vec<usize>>,
    ) -> PyResult<(u64, u64, Unmoved)> {
        let done = self.with(py, |fs| {
            let servers = servers.unwrap_or_else(|| (0..fs.servers()).collect());
            rebalance(fs, &servers, &mut |_| Ok(()))
        })?;
        let failures = done.failures.iter().map(|(path, error)| {
            let error = raise(py, error).into_value(py).into_any();
            (path.to_string(), error)
        });
        let failures = failures.collect();
        Ok((done.progress.slots, done.progress.files, failures))
    }

    #[pyo3(signature = (user, bytes))]
    fn limit(&self, py: Python<'_>, user: u32, bytes: Option<u64>) -> PyResult<()> {
        self.with(py, |fs| fs.limit(user, bytes))
    }

    /// Attaches a file: for this client, or for all of them together.
    fn attach(
        &self,
        py: Python<'_>,
        path: &str,
        access: &str,
        mode: &str,
        is_collective: bool,
    ) -> PyResult<PyFile> {
        let file = self.with(py, |fs| {
            let (path, mode) = match (FilePath::new(path), mode_of(access, mode)) {
                (Ok(path), Ok(mode)) => (Ok(path), mode),
                (Err(error), _) | (_, Err(error)) => (Err(error), Mode::default()),
            };
            match is_collective {
                true => fs.attach_all(path, mode),
                false => fs.attach(path?, mode),
            }
        })?;
        Ok(PyFile {
            file,
            raised: self.raised.clone(),
        })
    }

    /// Moves the bytes of a local file into a file of the volume, and gives their number and that
    /// of those which are the file's. A new file gets this structure: cells, bytes of a BSU, base,
    /// mode.
    fn import_file(
        &self,
        py: Python<'_>,
        local: PathBuf,
        path: &str,
        shown: Shown,
        structure: (Option<u64>, Option<u64>, Option<usize>, u16),
    ) -> PyResult<(u64, u64)> {
        let (cells, bsu_bytes, base, mode) = structure;
        let moved = self.with(py, |fs| {
            let (path, options) = agreed(fs, path, shown)?;
            let shape = (fs.shape(cells, bsu_bytes, base), mode);
            transfer::import(fs, &local, &path, shape, &options, &mut |_, _| Ok(()))
        })?;
        Ok((moved.bytes, moved.moved))
    }

    /// Moves the bytes of a file of the volume into a local file, and gives their number and that
    /// of those which are the file's.
    fn export_file(
        &self,
        py: Python<'_>,
        path: &str,
        local: PathBuf,
        shown: Shown,
        replaces: bool,
    ) -> PyResult<(u64, u64)> {
        let moved = self.with(py, |fs| {
            let (path, options) = agreed(fs, path, shown)?;
            let local = (&*local, replaces);
            transfer::export(fs, &path, local, &options, &mut |_, _| Ok(()))
        })?;
        Ok((moved.bytes, moved.moved))
    }

    /// Leaves without closing: others fail instead of waiting for this rank.
    fn leave(&self, py: Python<'_>, cause: &str) {
        py.detach(|| {
            let taken = {
                let mut fs = self.fs.lock().unwrap_or_else(PoisonError::into_inner);
                fs.take()
            };
            if let Some(fs) = taken {
                fs.leave(&Error::new(Kind::Peer, "leaving a volume", cause));
            }
        });
    }

    /// Closes the file system; a second close does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let done = py.detach(|| {
            let taken = {
                let mut fs = self.fs.lock().unwrap_or_else(PoisonError::into_inner);
                fs.take()
            };
            taken.map_or(Ok(()), |fs| fs.close())
        });
        ended(py, &self.raised, done)
    }
}

/// An attached file.
#[pyclass(frozen, module = "penstock._core")]
pub struct PyFile {
    file: OpenFile,
    raised: RaisedException,
}

#[pymethods]
impl PyFile {
    fn attributes(&self) -> AttributeFields {
        fields_of(&self.file.attachment().object)
    }

    #[pyo3(signature = (view, subfile, order, version, pointer))]
    fn open(
        &self,
        py: Python<'_>,
        view: [u64; 4],
        subfile: u64,
        order: &str,
        version: &str,
        pointer: Option<(usize, u64)>,
    ) -> PyResult<PyView> {
        let open = || {
            let (view, order, version) = shown_part(view, order, version)?;
            let pointer = pointer.map(|(server, number)| PointerId { server, number });
            self.file.open(view, subfile, order, version, pointer)
        };
        Ok(PyView {
            view: open().map_err(|e| raise(py, &e))?,
            raised: self.raised.clone(),
        })
    }

    /// Takes part in a collective write, or read, of a part of an open subfile; or lets it fail
    /// with an error that Python has found: its kind and cause.
    #[pyo3(signature = (is_write, view, offset, array, wrong))]
    fn move_all(
        &self,
        py: Python<'_>,
        is_write: bool,
        view: Option<&Bound<'_, PyView>>,
        offset: u64,
        array: Option<&Bound<'_, PyUntypedArray>>,
        wrong: Option<(String, String)>,
    ) -> PyResult<u64> {
        let doing = "a collective call on a file";
        let operation = match is_write {
            true => Operation::Write,
            false => Operation::Read,
        };
        let part = match (view, array, wrong) {
            (_, _, Some((kind, cause))) => Err(Error::new(kind_of(&kind), doing, cause)),
            (Some(view), Some(array), None) => {
                let view = view.get().view.clone();
                let memory = memory_of(array, !is_write);
                memory.map(|memory| (view, (offset, memory.bytes()).into(), memory))
            }
            _ => Err(Error::new(Kind::Schema, doing, "there is no memory")),
        };
        let moved = py.detach(|| self.file.access_all(operation, part));
        Ok(ended(py, &self.raised, moved)?.bytes)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let synced = py.detach(|| self.file.sync());
        ended(py, &self.raised, synced)
    }

    fn detach(&self, py: Python<'_>) -> PyResult<()> {
        let detached = py.detach(|| self.file.clone().detach());
        ended(py, &self.raised, detached)
    }
}

/// An open subfile.
#[pyclass(frozen, module = "penstock._core")]
pub struct PyView {
    view: OpenView,
    raised: RaisedException,
}

/// The memory of a one-dimensional array of bytes, kept alive.
fn memory_of(array: &Bound<'_, PyUntypedArray>, is_written: bool) -> Result<Memory> {
    let wrong = |cause| Error::new(Kind::Schema, "using memory", cause);
    if array.dtype().itemsize() != 1 || array.ndim() != 1 || !array.is_contiguous() {
        return Err(wrong("it is no sequence of bytes"));
    }
    // SAFETY: the array object is alive, and so is the struct behind the pointer.
    let fields = unsafe { &(*array.as_array_ptr()).fields };
    if is_written && fields.flags & NPY_ARRAY_WRITEABLE == 0 {
        return Err(wrong("it is read-only"));
    }
    let keeps = Box::new(array.clone().unbind());
    // SAFETY: the array keeps its memory; the program leaves it alone meanwhile, as the
    // documentation asks.
    Ok(unsafe { Memory::new(fields.data.cast::<u8>(), array.len() as u64, Some(keeps)) })
}

impl PyView {
    fn access(
        &self,
        py: Python<'_>,
        operation: Operation,
        offset: u64,
        array: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<(u64, u64)> {
        let memory = memory_of(array, operation == Operation::Read).map_err(|e| raise(py, &e))?;
        let moved = py.detach(|| self.view.access(operation, offset, memory));
        let Moved { bytes, reach } = ended(py, &self.raised, moved)?;
        Ok((bytes, reach))
    }

    fn begin(
        &self,
        py: Python<'_>,
        operation: Operation,
        offset: u64,
        array: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<PyMoving> {
        let memory = memory_of(array, operation == Operation::Read).map_err(|e| raise(py, &e))?;
        let begun = py.detach(|| self.view.begin(operation, offset, memory));
        Ok(PyMoving {
            moving: ended(py, &self.raised, begun)?,
            raised: self.raised.clone(),
        })
    }
}

#[pymethods]
impl PyView {
    /// Moves the pointer for an access of `bytes` bytes, and gives where the access begins: at an
    /// offset, a distance from the pointer, or where the pointer is.
    #[pyo3(signature = (at, by, bytes))]
    fn advance(
        &self,
        py: Python<'_>,
        at: Option<u64>,
        by: Option<i64>,
        bytes: u64,
    ) -> PyResult<u64> {
        let seek = match (at, by) {
            (Some(offset), _) => Seek::At(offset),
            (None, Some(distance)) => Seek::By(distance),
            (None, None) => Seek::Here,
        };
        let begins = py.detach(|| self.view.advance(seek, bytes));
        ended(py, &self.raised, begins)
    }

    fn share(&self, py: Python<'_>) -> PyResult<(usize, u64)> {
        let shared = py.detach(|| self.view.share());
        let PointerId { server, number } = ended(py, &self.raised, shared)?;
        Ok((server, number))
    }

    /// The real bytes that were moved, and one past the last of them.
    fn read(
        &self,
        py: Python<'_>,
        offset: u64,
        array: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<(u64, u64)> {
        self.access(py, Operation::Read, offset, array)
    }

    fn write(
        &self,
        py: Python<'_>,
        offset: u64,
        array: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<(u64, u64)> {
        self.access(py, Operation::Write, offset, array)
    }

    fn begin_read(
        &self,
        py: Python<'_>,
        offset: u64,
        array: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<PyMoving> {
        self.begin(py, Operation::Read, offset, array)
    }

    fn begin_write(
        &self,
        py: Python<'_>,
        offset: u64,
        array: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<PyMoving> {
        self.begin(py, Operation::Write, offset, array)
    }

    /// What an access would do, in lines of text.
    fn explain(&self, py: Python<'_>, is_write: bool, offset: u64, bytes: u64) -> PyResult<String> {
        let operation = match is_write {
            true => Operation::Write,
            false => Operation::Read,
        };
        let plan = py.detach(|| self.view.explain(operation, (offset, bytes)));
        ended(py, &self.raised, plan.map(|plan| plan.to_string()))
    }

    fn prefetch(&self, py: Python<'_>, offset: u64, bytes: u64) -> PyResult<()> {
        let done = py.detach(|| self.view.prefetch(offset, bytes));
        ended(py, &self.raised, done)
    }

    fn flush(&self, py: Python<'_>, offset: u64, bytes: u64) -> PyResult<()> {
        let done = py.detach(|| self.view.flush(offset, bytes));
        ended(py, &self.raised, done)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let done = py.detach(|| self.view.sync());
        ended(py, &self.raised, done)
    }
}

/// A read or write under way.
#[pyclass(frozen, module = "penstock._core")]
pub struct PyMoving {
    moving: Moving,
    raised: RaisedException,
}

#[pymethods]
impl PyMoving {
    fn has_ended(&self, py: Python<'_>) -> bool {
        py.detach(|| self.moving.has_ended())
    }

    fn end(&self, py: Python<'_>) -> PyResult<u64> {
        let moved = py.detach(|| self.moving.end());
        Ok(ended(py, &self.raised, moved)?.bytes)
    }
}
