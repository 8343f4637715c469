//! What a server has done and does, in numbers.
//!
//! The server's node writes them as it serves; the thread of an endpoint, or the server itself when
//! a client asks, takes snapshots of them. Numbers of requests stand behind a mutex that nobody
//! holds for longer than a copy of them takes; behind another is the state of now, as the bytes in
//! the cache, which changes without a request.
//!
//! ```text
//! server   note a request ->  Meter  <- snapshot   endpoint: Prometheus's text
//!                                    <- snapshot   an answer to a client: `penstock top`
//! ```
//!
//! A request costs one look at the clock when it comes, and another, with one lock, when it has
//! been answered: about 0.1 µs. A snapshot has a row for each of at most 256 clients and 256 files.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the meter of a server |
//! | `kinds` | the kinds of requests, waits and disk operations |
//! | `histogram` | how long requests took |
//! | `table` | rows by client and by file, of which there are not too many |
//! | `snapshot` | a copy of the numbers, as it travels; sums and differences of copies |
//! | `exposition` | the text that Prometheus reads |

pub mod exposition;
mod histogram;
mod kinds;
mod snapshot;
mod table;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use penstock_engine::NodeId;
use penstock_engine::blocks::CacheCounts;

pub use histogram::Histogram;
pub use kinds::{DiskKind, RequestKind, WaitKind};
pub(crate) use snapshot::Viewer;
pub use snapshot::{ClientRow, DoorCounts, FileRow, Snapshot};
use table::Table;
pub use table::Turnover;

use crate::object::ObjectId;
use serde::{Deserialize, Serialize};

/// The most clients, and the most files, that are told apart.
pub(crate) const ROWS_MAX: usize = 256;

/// The requests of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindCounts {
    /// How long each took, from its coming to its answer. It is in here when it has been answered.
    pub times: Histogram,
    /// Those that were answered by an error.
    pub failed: u64,
    /// The bytes that they have moved.
    pub bytes: u64,
}

/// The waits of one kind that have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitCounts {
    /// Their number.
    pub count: u64,
    /// The nanoseconds of all.
    pub ns: u64,
}

/// The disk operations of one kind that have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCounts {
    /// Their number.
    pub count: u64,
    /// Those that have failed.
    pub failed: u64,
    /// The bytes that they have moved.
    pub bytes: u64,
    /// The nanoseconds of all, with the time in the queue of the device.
    pub ns: u64,
}

/// The label of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct FileLabel {
    owner: u32,
    /// The path at which it was attached last, on the server that keeps its object.
    path: Option<String>,
}

/// The numbers behind the mutex.
struct Counts {
    kinds: Vec<KindCounts>,
    waits: [WaitCounts; WaitKind::ALL.len()],
    disks: [DiskCounts; DiskKind::ALL.len()],
    /// Each with the number of its user.
    clients: Table<NodeId, u32>,
    files: Table<ObjectId, FileLabel>,
}

/// A request that has been answered.
pub(crate) struct Answered {
    pub(crate) kind: RequestKind,
    /// The client.
    pub(crate) from: NodeId,
    /// The file, and its owner, if it moved bytes of one.
    pub(crate) file: Option<(ObjectId, u32)>,
    pub(crate) bytes: u64,
    pub(crate) has_failed: bool,
    /// When it came, and the time of now.
    pub(crate) times: (Duration, Duration),
}

/// The state of a server between two events.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct State {
    pub(crate) is_ready: bool,
    /// Requests, and parts of them, that are under way.
    pub(crate) tasks: usize,
    /// What waits, in the order of [`WaitKind::ALL`].
    pub(crate) waiting: [usize; WaitKind::ALL.len()],
    pub(crate) cache: CacheCounts,
}

/// The meter of a server.
pub struct Meter {
    server: usize,
    runner: u32,
    counts: Mutex<Counts>,
    state: Mutex<State>,
}

/// The turnover of bytes that requests of a kind have moved.
fn moved(kind: RequestKind, bytes: u64) -> Turnover {
    let (read_bytes, written_bytes) = match kind.reads() {
        true => (bytes, 0),
        false => (0, bytes),
    };
    Turnover {
        read_bytes,
        written_bytes,
        ..Turnover::default()
    }
}

/// Nanoseconds, as many as there can be.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Meter {
    /// Makes the meter of a server that this user runs.
    pub fn new(server: usize, runner: u32) -> Self {
        Self {
            server,
            runner,
            counts: Mutex::new(Counts {
                kinds: vec![KindCounts::default(); RequestKind::ALL.len()],
                waits: Default::default(),
                disks: Default::default(),
                clients: Table::new(ROWS_MAX),
                files: Table::new(ROWS_MAX),
            }),
            state: Mutex::default(),
        }
    }

    /// The number of the server.
    pub fn server(&self) -> usize {
        self.server
    }

    /// The user who runs the server.
    pub(crate) fn runner(&self) -> u32 {
        self.runner
    }

    /// Whether the server serves clients.
    pub fn is_ready(&self) -> bool {
        self.state().is_ready
    }

    /// The counts: they are valid at any time, also after a panic of a holder.
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, which is valid at any time, too.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request that has been answered. `user` tells who its client is, if that is new and
    /// has not left.
    pub(crate) fn note(&self, answered: &Answered, user: impl FnOnce() -> Option<u32>) {
        let (came, now) = (nanoseconds(answered.times.0), nanoseconds(answered.times.1));
        let turnover = Turnover {
            requests: 1,
            ns: now.saturating_sub(came),
            ..moved(answered.kind, answered.bytes)
        };
        let mut counts = self.counts();
        let kind = &mut counts.kinds[answered.kind as usize];
        kind.times.add(turnover.ns);
        kind.failed += u64::from(answered.has_failed);
        kind.bytes += answered.bytes;
        *counts.clients.at(answered.from, now, user) += turnover;
        if let Some((file, owner)) = answered.file {
            let label = || Some(FileLabel { owner, path: None });
            *counts.files.at(file, now, label) += turnover;
        }
    }

    /// Notes bytes that this server has moved for a request that another answers, or answers later.
    pub(crate) fn note_bytes(
        &self,
        kind: RequestKind,
        (from, file, owner): (NodeId, ObjectId, u32),
        bytes: u64,
        now: Duration,
        user: impl FnOnce() -> Option<u32>,
    ) {
        let now = nanoseconds(now);
        let turnover = moved(kind, bytes);
        let mut counts = self.counts();
        counts.kinds[kind as usize].bytes += bytes;
        *counts.clients.at(from, now, user) += turnover;
        let label = || Some(FileLabel { owner, path: None });
        *counts.files.at(file, now, label) += turnover;
    }

    /// Notes a wait that has ended.
    pub(crate) fn note_wait(&self, kind: WaitKind, time: Duration) {
        let wait = &mut self.counts().waits[kind as usize];
        wait.count += 1;
        wait.ns = wait.ns.saturating_add(nanoseconds(time));
    }

    /// Notes a disk operation that has ended.
    pub(crate) fn note_disk(&self, kind: DiskKind, bytes: u64, time: Duration, has_failed: bool) {
        let disk = &mut self.counts().disks[kind as usize];
        disk.count += 1;
        disk.failed += u64::from(has_failed);
        disk.bytes += bytes;
        disk.ns = disk.ns.saturating_add(nanoseconds(time));
    }

    /// Notes the path of a file that is attached.
    pub(crate) fn note_path(&self, file: ObjectId, owner: u32, path: &str, now: Duration) {
        let mut counts = self.counts();
        counts
            .files
            .at(file, nanoseconds(now), || Some(FileLabel::default()));
        if let Some(label) = counts.files.label(file) {
            label.owner = owner;
            label.path = Some(path.to_string());
        }
    }

    /// Forgets the path of a file whose object has gone from it.
    pub(crate) fn forget_path(&self, file: ObjectId) {
        let mut counts = self.counts();
        if let Some(label) = counts.files.label(file) {
            label.path = None;
            counts.files.remove_unused(file);
        }
    }

    /// Notes that a file is another user's.
    pub(crate) fn note_owner(&self, file: ObjectId, owner: u32) {
        if let Some(label) = self.counts().files.label(file) {
            label.owner = owner;
        }
    }

    /// Drops the row of a file that has been removed.
    pub(crate) fn forget_file(&self, file: ObjectId) {
        self.counts().files.remove(file);
    }

    /// Drops the row of a client that has left.
    pub(crate) fn forget_client(&self, node: NodeId) {
        self.counts().clients.remove(node);
    }

    /// Notes that the server is about to end.
    pub(crate) fn note_end(&self) {
        self.state().is_ready = false;
    }

    /// Puts the state of the server where others see it.
    pub(crate) fn publish(&self, state: State) {
        *self.state() = state;
    }

    /// A copy of all numbers, with the rows that a viewer may see.
    pub(crate) fn snapshot(&self, viewer: Viewer) -> Snapshot {
        let state = *self.state();
        let counts = self.counts();
        let clients = counts
            .clients
            .rows()
            .map(|(node, user, turnover)| ClientRow {
                node,
                user: *user,
                turnover: *turnover,
            });
        let clients = clients.filter(|row| viewer.sees(row.user)).collect();
        let files = counts
            .files
            .rows()
            .map(|(id, label, turnover)| (id, label, *turnover));
        let files = files.filter(|(_, label, _)| viewer.sees(label.owner));
        let files = files.map(|(id, label, turnover)| FileRow {
            id,
            owner: label.owner,
            path: label.path.clone(),
            turnover,
        });
        let is_whole = viewer == Viewer::All;
        Snapshot {
            servers: 1,
            ready: u64::from(state.is_ready),
            age_ns: 0,
            kinds: counts.kinds.clone(),
            waits: counts.waits.to_vec(),
            disks: counts.disks.to_vec(),
            tasks: state.tasks as u64,
            waiting: state.waiting.iter().map(|&count| count as u64).collect(),
            cache: state.cache,
            files: files.collect(),
            clients,
            other_clients: is_whole.then(|| counts.clients.others()),
            other_files: is_whole.then(|| counts.files.others()),
            doors: Default::default(),
            calls: Default::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(kind: RequestKind, from: NodeId, file: u64, bytes: u64) -> Answered {
        Answered {
            kind,
            from,
            file: Some((ObjectId(file), 7)),
            bytes,
            has_failed: false,
            times: (Duration::from_micros(5), Duration::from_micros(15)),
        }
    }

    #[test]
    fn requests_are_counted_by_kind_client_and_file() {
        let meter = Meter::new(3, 0);
        meter.note(&answered(RequestKind::Read, 1, 10, 4096), || Some(1000));
        meter.note(&answered(RequestKind::Write, 1, 11, 100), || Some(1000));
        meter.note(&answered(RequestKind::Write, 2, 11, 1), || Some(1001));
        meter.note_bytes(
            RequestKind::ReadAll,
            (2, ObjectId(10), 7),
            50,
            Duration::from_micros(20),
            || Some(1001),
        );
        let all = meter.snapshot(Viewer::All);
        assert_eq!(
            (all.requests(), all.read_bytes(), all.written_bytes()),
            (3, 4146, 101)
        );
        let of_client = |node| {
            let row = all.clients.iter().find(|row| row.node == node).unwrap();
            (
                row.user,
                row.turnover.requests,
                row.turnover.read_bytes,
                row.turnover.written_bytes,
            )
        };
        assert_eq!(of_client(1), (1000, 2, 4096, 100));
        assert_eq!(of_client(2), (1001, 1, 50, 1));
        let of_file = |id| {
            let row = all.files.iter().find(|row| row.id == ObjectId(id)).unwrap();
            (
                row.owner,
                row.turnover.requests,
                row.turnover.read_bytes,
                row.turnover.written_bytes,
            )
        };
        assert_eq!(of_file(10), (7, 1, 4146, 0));
        assert_eq!(of_file(11), (7, 2, 0, 101));
        meter.forget_client(1);
        meter.forget_file(ObjectId(10));
        let left = meter.snapshot(Viewer::All);
        assert_eq!(
            (left.clients.len(), left.files.len(), left.requests()),
            (1, 1, 3)
        );
    }

    /// A user sees all sums, and of rows those of the user's own clients and files.
    #[test]
    fn a_user_sees_no_rows_of_others() {
        let meter = Meter::new(0, 0);
        meter.note(&answered(RequestKind::Read, 1, 10, 5), || Some(7));
        meter.note(&answered(RequestKind::Read, 2, 10, 5), || Some(8));
        meter.note_path(ObjectId(12), 8, "/secret", Duration::ZERO);
        meter.note_path(ObjectId(10), 7, "/own", Duration::ZERO);
        let seen = meter.snapshot(Viewer::User(7));
        assert_eq!((seen.requests(), seen.read_bytes()), (2, 10));
        assert_eq!(seen.clients.len(), 1);
        let files: Vec<_> = seen.files.iter().map(|row| row.path.as_deref()).collect();
        assert_eq!(files, [Some("/own")]);
        assert_eq!((seen.other_clients, seen.other_files), (None, None));
        meter.note_owner(ObjectId(10), 8);
        assert_eq!(meter.snapshot(Viewer::User(7)).files, []);
        assert_eq!(meter.snapshot(Viewer::User(8)).files.len(), 2);
        // What was moved stays when a file gets another path; of the other nothing was moved.
        meter.forget_path(ObjectId(10));
        meter.forget_path(ObjectId(12));
        let left = meter.snapshot(Viewer::All).files;
        assert_eq!((left.len(), &left[0].path), (1, &None));
    }
}
