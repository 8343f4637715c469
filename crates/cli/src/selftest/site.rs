//! The directory of a self-test, and the limit of a check's waits.
//!
//! All that a self-test makes lies in one new directory. A check has a [`Site`] there: the
//! directory, and the moment by which the check must have ended. Checks wait by [`Site::wait_for`]
//! alone, so that no wait is longer.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use penstock_files::disk::new_identity;
use penstock_machines::node::runner::Interrupt;

use super::mounts;
use crate::failure::Failure;

/// The time between two looks at what a check waits for.
const LOOK: Duration = Duration::from_millis(5);

/// A new directory, which is removed when this is dropped.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes the directory below another one.
    ///
    /// # Errors
    /// When there is no directory, or nothing can be made in it.
    pub(super) fn below(directory: &Path) -> Result<Self, Failure> {
        let shown = directory.display();
        let above = directory.canonicalize();
        let above =
            above.map_err(|error| Failure::input(format!("cannot test {shown}: {error}")))?;
        if !above.is_dir() {
            return Err(Failure::input(format!(
                "cannot test {shown}: it is no directory"
            )));
        }
        // The name is short: a socket's path has room for 107 bytes.
        let path = above.join(format!("penstock-selftest-{:08x}", new_identity()? >> 32));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| Failure::failed(format!("cannot write to {shown}: {error}")))?;
        Ok(Self(path))
    }

    /// The path of the directory.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The site of a check that must end within `limit`, and earlier if a signal sets `stops`.
    pub(super) fn site(
        &self,
        mpiexec: Option<&str>,
        limit: Duration,
        stops: &Arc<AtomicBool>,
    ) -> Site {
        Site {
            directory: self.0.clone(),
            mpiexec: mpiexec.map(str::to_string),
            limit,
            until: Instant::now() + limit,
            stops: stops.clone(),
            doing: Mutex::new("beginning".to_string()),
        }
    }

    /// Removes the directory with all that is in it, unless something is mounted there.
    ///
    /// # Errors
    /// The reason why something is left.
    pub(super) fn remove(&self) -> Result<(), Failure> {
        if let Some(mounted) = mounts::below(&self.0) {
            return Err(Failure::failed(format!(
                "{} is mounted still: unmount it, and remove {}",
                mounted.display(),
                self.0.display()
            )));
        }
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if self.0.exists() => Err(Failure::failed(format!(
                "cannot remove {}: {error}",
                self.0.display()
            ))),
            _ => Ok(()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // An earlier failure is told; what is left has a name that says whose it is.
        let _ = self.remove();
    }
}

/// The place of one check, and its limit.
pub(super) struct Site {
    directory: PathBuf,
    mpiexec: Option<String>,
    limit: Duration,
    until: Instant,
    stops: Arc<AtomicBool>,
    /// What the check does, in words that follow "while".
    doing: Mutex<String>,
}

impl Site {
    /// The directory, which all checks have in common.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of a file or directory there.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The command that starts a job, if the user names one.
    pub(super) fn mpiexec(&self) -> Option<&str> {
        self.mpiexec.as_deref()
    }

    /// Whether the check must end.
    pub(super) fn is_over(&self) -> bool {
        self.stops.load(Ordering::Relaxed) || Instant::now() >= self.until
    }

    /// The function by which calls of Penstock ask whether they must end.
    pub(super) fn interrupt(&self) -> Interrupt {
        let (stops, until) = (self.stops.clone(), self.until);
        Arc::new(move || stops.load(Ordering::Relaxed) || Instant::now() >= until)
    }

    /// Notes what the check does from now on.
    pub(super) fn note(&self, doing: impl Into<String>) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = doing.into();
    }

    /// What the check does.
    pub(super) fn doing(&self) -> String {
        let doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
        doing.clone()
    }

    /// The complaint about a check whose time is over.
    pub(super) fn overdue(&self) -> String {
        let seconds = self.limit.as_secs_f64();
        format!("{seconds} s were over while {}", self.doing())
    }

    /// Looks again and again until `look` finds something.
    ///
    /// # Errors
    /// Those of `look`; when the time is over.
    pub(super) fn wait_for<T>(
        &self,
        awaited: &str,
        mut look: impl FnMut() -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        self.note(format!("waiting for {awaited}"));
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if self.is_over() {
                return Err(Failure::failed(self.overdue()));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Acts in a thread that may be left behind: in calls of the system that may never return.
    ///
    /// # Errors
    /// Those of `act`; when the time is over.
    pub(super) fn aside<T: Send + 'static>(
        &self,
        awaited: &str,
        act: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (ends, ended) = mpsc::channel();
        let run = move || {
            // Nobody may wait any more.
            let _ = ends.send(act());
        };
        let started = std::thread::Builder::new().spawn(run);
        started.map_err(|error| Failure::failed(format!("no thread can be started: {error}")))?;
        self.wait_for(awaited, || match ended.try_recv() {
            Ok(done) => done.map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Failure::failed("a thread has crashed")),
        })
    }
}

/// The failure of an action on a path.
pub(super) fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{doing} {}: {error}", path.display()))
}
