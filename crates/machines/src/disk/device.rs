//! Devices of servers: each has one queue, and a worker that makes its blocking calls.
//!
//! A device of a server is what one file system lies on, or a raw block device, or a service that
//! is reached by a network, which has several workers: each waits for one answer. All files that
//! the server has open there, of all calls and parties, wait in the device's queue. The worker is a
//! thread. It takes the next request itself, so that it does not idle while one waits. Servers of
//! one node have a device each, though it may be the same disk: they are to work side by side.
//!
//! A call that panics is answered with an error, and the worker goes on.

use std::cell::Cell;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use futures::channel::oneshot;
use penstock_engine::trace::Span;
use penstock_engine::{Error, Kind, Result, span};

use super::queue::{Place, Queue};

/// The name of a device of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceId {
    /// The number of the device, as `stat` gives it, or a service's.
    number: u64,
    kind: DeviceKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DeviceKind {
    /// A device with a file system on it.
    FileSystem,
    /// A device on which the blocks lie themselves.
    Raw,
    /// A service that a network reaches.
    Service,
}

/// The calls to a service that one server makes at once: most of their time is waiting.
const SERVICE_WORKERS: usize = 16;

impl DeviceId {
    /// The device of a path, or of the nearest directory above it that is there. `None` if nothing
    /// above the path can be looked at.
    pub fn of(path: &Path) -> Option<Self> {
        let mut above = path.ancestors();
        let found = above.find_map(|path| std::fs::metadata(path).ok())?;
        Some(match found.file_type().is_block_device() {
            true => Self {
                number: found.rdev(),
                kind: DeviceKind::Raw,
            },
            false => Self {
                number: found.dev(),
                kind: DeviceKind::FileSystem,
            },
        })
    }

    /// The device that stands for a service.
    pub fn of_service(name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self {
            number: hasher.finish(),
            kind: DeviceKind::Service,
        }
    }

    /// The number of blocking calls that the device serves at once.
    pub fn workers(self) -> usize {
        match self.kind {
            DeviceKind::FileSystem | DeviceKind::Raw => 1,
            DeviceKind::Service => SERVICE_WORKERS,
        }
    }

    /// Whether it pays to know where blocks lie on the device: on a disk that turns, and on a raw
    /// device, whose positions cost nothing.
    pub fn has_order(self) -> bool {
        match self.kind {
            DeviceKind::FileSystem => self.turns(),
            DeviceKind::Raw => true,
            DeviceKind::Service => false,
        }
    }

    /// Whether the kernel says that the device turns. It knows no device behind a file system in
    /// memory, on a network, or over several devices.
    fn turns(self) -> bool {
        let of_device = PathBuf::from(format!("/sys/dev/block/{self}"));
        let answer = |of_disk: PathBuf| std::fs::read(of_disk.join("queue/rotational")).ok();
        // The queue of a partition is that of its disk.
        let answer = answer(of_device.clone()).or_else(|| answer(of_device.join("..")));
        answer.is_some_and(|answer| answer.starts_with(b"1"))
    }
}

impl fmt::Display for DeviceId {
    /// Writes the two numbers under which the kernel lists the device; a service has one.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == DeviceKind::Service {
            return write!(out, "{:x}", self.number);
        }
        let (major, minor) = (
            rustix::fs::major(self.number),
            rustix::fs::minor(self.number),
        );
        write!(out, "{major}:{minor}")
    }
}

/// A blocking call.
type Request = Box<dyn FnOnce() + Send>;

/// The requests of a device, as its node and its worker share them.
#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Tells the worker that a request has come, or that none will come.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    queue: Queue<Request>,
    is_closed: bool,
}

impl Shared {
    /// The requests that wait: their state is valid at any time, also after a panic of a holder.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves requests until the device is closed and none waits.
    fn work(&self) {
        while let Some(request) = self.next() {
            // The future that waits for the answer learns that there is none.
            let _ = catch_unwind(AssertUnwindSafe(request));
        }
    }

    fn next(&self) -> Option<Request> {
        let mut waiting = self.waiting();
        loop {
            match waiting.queue.pop() {
                Some(request) => return Some(request),
                None if waiting.is_closed => return None,
                None => {
                    let told = self.changed.wait(waiting);
                    waiting = told.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// A device of a server, with its queue and its workers.
pub struct Device {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    name: Arc<str>,
    has_order: bool,
    files: Cell<u64>,
}

impl Device {
    /// Starts the workers of a device, threads of this name. `has_order` says whether the device
    /// serves requests in the order of their positions, where these are known.
    ///
    /// # Errors
    /// When the system allows no more threads.
    pub fn start(name: String, has_order: bool, workers: usize) -> Result<Self> {
        let mut device = Self {
            shared: Arc::default(),
            workers: Vec::with_capacity(workers),
            name: name.as_str().into(),
            has_order,
            files: Cell::new(0),
        };
        for _ in 0..workers {
            let shared = device.shared.clone();
            let worker = Builder::new().name(name.clone());
            let worker = worker.spawn(move || shared.work());
            let failed = |e| Error::new(Kind::Io, "starting the worker of a device", e);
            device.workers.push(worker.map_err(failed)?);
        }
        Ok(device)
    }

    /// Whether several calls are made at once.
    pub(super) fn is_wide(&self) -> bool {
        self.workers.len() > 1
    }

    /// Whether the device serves requests in the order of their positions, where these are known.
    pub fn has_order(&self) -> bool {
        self.has_order
    }

    /// A number for a file on this device.
    pub(super) fn file_number(&self) -> u64 {
        let number = self.files.get();
        self.files.set(number + 1);
        number
    }

    /// Puts a request of a file into the queue, and gives the future of its answer. A trace shows
    /// its wait there, and the worker's part, within the span of now.
    ///
    /// # Errors
    /// When the request panics.
    pub(super) fn run<T: Send + 'static, R: FnOnce() -> T + Send + 'static>(
        &self,
        place: Place,
        file: u64,
        request: R,
    ) -> impl Future<Output = Result<T>> + use<T, R> {
        let (sender, answer) = oneshot::channel();
        let (asked, waits) = (Span::current(), span!("wait", kind = "queue"));
        let name = self.name.clone();
        let request = Box::new(move || {
            drop(waits);
            let worker = span!(parent: asked.id(), "worker", track = &*name);
            let answer = worker.in_scope(request);
            drop((worker, asked)); // before anybody goes on
            // Nobody waits any more if the call was given up.
            let _ = sender.send(answer);
        });
        self.shared.waiting().queue.push(place, file, request);
        self.shared.changed.notify_one();
        async move { answer.await.map_err(|_| no_answer()) }
    }
}

/// The error of a request that gives no answer.
pub(super) fn no_answer() -> Error {
    Error::new(Kind::Io, "waiting for a device", "the call has panicked")
}

impl Drop for Device {
    /// Ends the workers, once they have served all requests that wait.
    fn drop(&mut self) {
        self.shared.waiting().is_closed = true;
        self.shared.changed.notify_all();
        for worker in self.workers.drain(..) {
            // Workers catch the panics of requests: joining them gives nothing to report.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};

    use futures::FutureExt;

    use super::*;

    /// Runs a future to its end.
    pub fn end<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            match future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
            {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::yield_now(),
            }
        }
    }

    fn start(name: &str) -> Device {
        Device::start(name.to_string(), true, 1).unwrap()
    }

    /// The worker is held up until all requests have come.
    #[test]
    fn the_worker_serves_in_the_order_of_the_queue() {
        let device = start("order");
        let (served, order) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        drop(device.run(Place::Line, 0, move || wait.recv()));
        for place in [Place::At(7), Place::Line, Place::At(3), Place::AfterFile] {
            let served = served.clone();
            drop(device.run(place, 1, move || served.send(place)));
        }
        go.send(()).unwrap();
        drop((device, served));
        let order: Vec<Place> = order.iter().collect();
        assert_eq!(
            order,
            [Place::Line, Place::At(3), Place::At(7), Place::AfterFile]
        );
    }

    #[test]
    fn a_call_that_panics_is_an_answer_and_the_worker_goes_on() {
        let device = start("panics");
        let fails = device.run(Place::Line, 0, || -> u32 { panic!("of the call") });
        assert_eq!(end(fails).unwrap_err().kind, Kind::Io);
        let name = device.run(Place::At(1), 0, || {
            std::thread::current().name().map(String::from)
        });
        assert_eq!(end(name), Ok(Some("panics".to_string())));
    }

    #[test]
    fn a_device_that_goes_serves_what_waits_and_ends_its_worker() {
        let device = start("ends");
        let alive = Arc::new(());
        let requests: Vec<_> = (0..20)
            .map(|number| {
                let kept = alive.clone();
                device.run(Place::At(number), 0, move || drop(kept))
            })
            .collect();
        drop(device);
        assert_eq!(Arc::strong_count(&alive), 1);
        for request in requests {
            assert_eq!(request.now_or_never(), Some(Ok(())));
        }
    }

    #[test]
    fn a_device_is_that_of_the_nearest_directory() {
        let there = std::env::temp_dir();
        let missing = there.join("not there/nor this");
        assert_eq!(DeviceId::of(&missing), DeviceId::of(&there));
        assert!(DeviceId::of(Path::new("")).is_none());
        let in_memory = DeviceId::of(Path::new("/proc")).unwrap();
        assert!(!in_memory.has_order() && DeviceId::of(Path::new("/")) != Some(in_memory));
        match DeviceId::of(Path::new("/dev/loop0")) {
            Some(raw) if raw.kind == DeviceKind::Raw => {
                assert!(raw.has_order() && raw.to_string() == "7:0")
            }
            _ => println!("skipped: there is no raw device here"),
        }
    }
}
