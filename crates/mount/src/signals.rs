//! The end of a mount by a signal: the first unmounts, the second ends the mount also for those who
//! use it.

use std::io;

use penstock_engine::{Error, Kind, Result};

use crate::Place;

/// The signals that end a mount.
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Signals that wait for a thread that takes them. This thread, and all that it starts, leave them
/// alone.
pub struct Signals(libc::sigset_t);

impl Signals {
    /// Lets the signals wait from now on. Threads that are there already still take them.
    ///
    /// # Errors
    /// Those of the system.
    pub fn hold() -> Result<Self> {
        // SAFETY: a set of signals is plain data, which `sigemptyset` makes whole.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is ours, and the numbers are those of signals.
        let held = unsafe {
            libc::sigemptyset(&raw mut set);
            for signal in SIGNALS {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
        };
        match held {
            0 => Ok(Self(set)),
            number => {
                let error = io::Error::from_raw_os_error(number);
                Err(Error::new(Kind::Io, "holding signals", error))
            }
        }
    }

    /// Ends mounts by signals, in a thread of its own, until the process ends.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn end(self, places: Vec<Place>) -> Result<()> {
        let started = std::thread::Builder::new()
            .name("penstock-signals".to_string())
            .spawn(move || {
                self.wait();
                for place in &places {
                    if let Err(error) = place.unmount() {
                        eprintln!("penstock mount: {error}");
                    }
                }
                loop {
                    self.wait();
                    places.iter().for_each(Place::abort);
                }
            });
        let failed = |error| Error::new(Kind::Io, "starting a thread", error);
        started.map(|_| ()).map_err(failed)
    }

    /// Waits for a signal.
    fn wait(&self) {
        let mut signal = 0;
        // SAFETY: the set is whole, and `signal` is ours.
        unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
    }
}
