//! The records of a server in one file: a table of redb, a transactional store.
//!
//! A thread owns the store. It takes requests one after the other and answers them by futures, so
//! that nobody else ever waits for the disk:
//!
//! ```text
//! server's node    commit ...        next ...           | answer wakes the node
//! thread of store     | begin  insert, remove  sync     | begin
//! ```
//!
//! # Faults
//! A crash at any moment leaves the records of the last commit that was answered, or those of the
//! commit under way; redb makes a commit valid by one write, after all others. When a store is
//! opened, the checksums of all of its pages are compared, and a file that something else has
//! changed is [`Kind::Damaged`]. Of a store that was not closed, such a change may look like a
//! commit that was cut short; then the records of the commit before it come back, as a whole.
//!
//! After an error a store fails all requests until it is opened again. redb is to give errors, and
//! not to panic, whatever the file holds; a panic of it is an error here all the same.
//!
//! Cost: a commit syncs the file once. Opening reads all of the file.

use std::any::Any;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use futures::channel::oneshot;
use penstock_engine::{Error, Kind, Result};
use redb::TableDefinition;
use redb::backends::FileBackend;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, StorageBackend};

use super::system::Lock;
use crate::volume::records::{Change, RecordStore};

/// The table of all records.
const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

/// The bytes that redb may keep in memory. A server reads its records once, so the pages that it
/// changes again and again are all that matter.
const CACHE_BYTES: usize = 16 << 20;

/// All records of a store.
type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// The place of an answer.
type Answer<T> = oneshot::Sender<Result<T>>;

/// A request to the thread that owns the store.
enum Request {
    Load(Answer<Records>),
    Commit(Vec<Change>, Answer<()>),
}

/// A record store on a disk. See the module's head.
pub struct DiskRecords {
    path: PathBuf,
    /// The way to the thread, until this is dropped.
    requests: Option<mpsc::Sender<Request>>,
    worker: Option<JoinHandle<()>>,
    /// What nobody else may use as long as the store is open.
    _lock: Option<Lock>,
}

impl DiskRecords {
    /// Makes a store without records in a new file, and puts the file on stable storage; the entry
    /// in its directory is yet to be synced.
    ///
    /// # Errors
    /// [`Kind::Exists`] when there is a file; those of the file system.
    pub fn create(path: &Path) -> Result<()> {
        let mut options = File::options();
        let opened = options.read(true).write(true).create_new(true).open(path);
        let file = opened.map_err(|error| creating(&error, path))?;
        Self::create_in(file_backend(file, path)?, path)
    }

    /// Makes a store without records in a storage that is empty. Errors name `path`.
    ///
    /// # Errors
    /// [`Kind::Exists`] when the storage is not empty; those of the storage.
    pub fn create_in(storage: impl StorageBackend, path: &Path) -> Result<()> {
        let doing = Doing("making the store of records", path);
        if doing.length(&storage)? > 0 {
            return Err(doing.error(Kind::Exists, "the file is not empty"));
        }
        doing.guarded(|| {
            let database = builder().create_with_backend(storage)?;
            commit(&database, &[])
        })
    }

    /// Opens a store.
    ///
    /// # Errors
    /// [`Kind::Missing`]; [`Kind::Damaged`] when the file is not what was committed to it;
    /// [`Kind::Busy`] when somebody else has it open.
    pub fn open(path: &Path) -> Result<Self> {
        let opened = File::options().read(true).write(true).open(path);
        let file = opened.map_err(|error| Error::io(&error, OPENING, path))?;
        Self::open_in(file_backend(file, path)?, path)
    }

    /// Opens a store in a storage. Errors name `path`.
    ///
    /// # Errors
    /// As [`DiskRecords::open`].
    pub fn open_in(storage: impl StorageBackend, path: &Path) -> Result<Self> {
        let (requests, requested) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        let of_worker = path.to_path_buf();
        let work = move || match open(storage, &of_worker) {
            Ok(database) => {
                let _ = answer.send(Ok(())); // the opener waits for it
                work(database, &requested, &of_worker);
            }
            Err(error) => {
                let _ = answer.send(Err(error));
            }
        };
        let worker = Builder::new().name("records".to_string()).spawn(work);
        let no_thread = |error| Error::io(&error, "starting the thread of the records", path);
        let store = Self {
            path: path.to_path_buf(),
            requests: Some(requests),
            worker: Some(worker.map_err(no_thread)?),
            _lock: None,
        };
        let opened = answered.recv().map_err(|_| store.no_answer())?;
        opened.map(|()| store)
    }

    /// Keeps a lock until the store is closed.
    pub(super) fn with_lock(self, lock: Lock) -> Self {
        let mut store = self;
        store._lock = Some(lock);
        store
    }

    fn no_answer(&self) -> Error {
        Doing("waiting for the store of records", &self.path)
            .error(Kind::Io, "its thread has ended")
    }

    /// Makes a request, and waits for its answer.
    async fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T> {
        let (sender, answer) = oneshot::channel();
        let sent = self.requests.as_ref().map(|to| to.send(request(sender)));
        match sent {
            Some(Ok(())) => answer.await.map_err(|_| self.no_answer())?,
            Some(Err(_)) | None => Err(self.no_answer()),
        }
    }
}

impl RecordStore for DiskRecords {
    async fn load(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.ask(Request::Load).await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<()> {
        self.ask(|answer| Request::Commit(changes, answer)).await
    }
}

impl Drop for DiskRecords {
    /// Closes the store, once all requests have been served.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(worker) = self.worker.take() {
            // The thread catches panics: joining it gives nothing to report.
            let _ = worker.join();
        }
    }
}

/// What opening does, as errors say it.
const OPENING: &str = "opening the store of records";

/// The error of making a file.
fn creating(error: &io::Error, path: &Path) -> Error {
    let doing = "making the store of records";
    match error.kind() {
        io::ErrorKind::AlreadyExists => Doing(doing, path).error(Kind::Exists, error),
        _ => Error::io(error, doing, path),
    }
}

fn file_backend(file: File, path: &Path) -> Result<FileBackend> {
    FileBackend::new(file).map_err(|error| Doing(OPENING, path).of(error.into()))
}

fn builder() -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder.set_check_integrity_on_open(true);
    builder
}

fn open(storage: impl StorageBackend, path: &Path) -> Result<Database> {
    let doing = Doing(OPENING, path);
    if doing.length(&storage)? == 0 {
        return Err(doing.error(Kind::Damaged, "the file is empty"));
    }
    doing.guarded(|| {
        let database = builder().create_with_backend(storage)?;
        database.begin_read()?.open_table(RECORDS)?;
        Ok(database)
    })
}

/// Serves requests until nobody can make one any more, and closes the store.
fn work(database: Database, requests: &mpsc::Receiver<Request>, path: &Path) {
    let mut failed = None;
    while let Ok(request) = requests.recv() {
        // Who waited for an answer may have been given up.
        match request {
            Request::Load(answer) => {
                let loading = Doing("reading the records", path);
                let loaded = unless(&mut failed, || loading.guarded(|| load(&database)));
                let _ = answer.send(loaded);
            }
            Request::Commit(changes, answer) => {
                let committing = Doing("committing records", path);
                let committed = unless(&mut failed, || {
                    committing.guarded(|| commit(&database, &changes))
                });
                let _ = answer.send(committed);
            }
        }
    }
    let closing = Doing("closing the store of records", path);
    let _ = closing.guarded(move || {
        drop(database);
        Ok(())
    });
}

/// Acts, unless something has failed before.
fn unless<T>(failed: &mut Option<Error>, act: impl FnOnce() -> Result<T>) -> Result<T> {
    match failed {
        Some(error) => Err(error.clone()),
        None => act().inspect_err(|error| *failed = Some(error.clone())),
    }
}

fn load(database: &Database) -> std::result::Result<Records, redb::Error> {
    let table = database.begin_read()?.open_table(RECORDS)?;
    let pairs = table.iter()?.map(|pair| {
        let (key, value) = pair?;
        Ok((key.value().to_vec(), value.value().to_vec()))
    });
    pairs.collect()
}

fn commit(database: &Database, changes: &[Change]) -> std::result::Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    {
        let mut table = transaction.open_table(RECORDS)?;
        for (key, value) in changes {
            match value {
                Some(value) => table.insert(&key[..], &value[..])?,
                None => table.remove(&key[..])?,
            };
        }
    }
    transaction.commit()?;
    Ok(())
}

/// An act, and the path of the store.
#[derive(Clone, Copy)]
struct Doing<'a>(&'static str, &'a Path);

impl Doing<'_> {
    fn error(self, kind: Kind, cause: impl std::fmt::Display) -> Error {
        Error::new(kind, self.0, cause).at(self.1)
    }

    fn length(self, storage: &impl StorageBackend) -> Result<u64> {
        let length = storage.len();
        length.map_err(|error| Error::io(&error, self.0, self.1))
    }

    /// Calls redb, and turns what it says, or its panic, into an error.
    fn guarded<T>(self, act: impl FnOnce() -> std::result::Result<T, redb::Error>) -> Result<T> {
        match catch_unwind(AssertUnwindSafe(act)) {
            Ok(answer) => answer.map_err(|error| self.of(error)),
            Err(panic) => {
                let cause = format!("the store cannot be understood: {}", said(&*panic));
                Err(self.error(Kind::Damaged, cause))
            }
        }
    }

    fn of(self, error: redb::Error) -> Error {
        use redb::Error as Redb;
        let kind = match &error {
            Redb::Io(error) => return Error::io(error, self.0, self.1),
            Redb::DatabaseAlreadyOpen | Redb::LockProtocolMismatch => Kind::Busy,
            Redb::UpgradeRequired(_) | Redb::ValueTooLarge(_) | Redb::Unsupported => {
                Kind::Unsupported
            }
            Redb::Corrupted(_)
            | Redb::LockPoisoned(_)
            | Redb::RepairAborted
            | Redb::TableTypeMismatch { .. }
            | Redb::TableIsMultimap(_)
            | Redb::TableIsNotMultimap(_)
            | Redb::TypeDefinitionChanged { .. }
            | Redb::TableDoesNotExist(_) => Kind::Damaged,
            _ => Kind::Io,
        };
        self.error(kind, error)
    }
}

/// What a panic says.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it has panicked")
}
