//! The end of a mount by a signal: the first unmounts, the second ends the process, and with it the
//! mount also for those who use it.
//!
//! A handler puts a byte into a pipe, and a thread takes it out: whatever thread of the process the
//! system has chosen for the signal, nothing is done in a handler.

use std::fs::File;
use std::io::Read;
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use penstock_engine::{Error, Kind, Result};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::Place;

/// The signals that end a mount.
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The pipe of the handler, which lasts as long as the process.
static PIPE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn note(_: libc::c_int) {
    let pipe: RawFd = PIPE.load(Ordering::Relaxed);
    let byte = [0u8];
    // SAFETY: `write` may be called in a handler, and the byte is there. A full pipe has enough.
    unsafe { libc::write(pipe, byte.as_ptr().cast(), 1) };
}

/// Signals that have come, and those that come.
pub struct Signals(File);

impl Signals {
    /// Takes the signals from now on.
    ///
    /// # Errors
    /// Those of the system.
    pub fn take() -> Result<Self> {
        let failed = |error: std::io::Error| Error::new(Kind::Io, "waiting for signals", error);
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        PIPE.store(write.into_raw_fd(), Ordering::Relaxed);
        for signal in SIGNALS {
            let handler: extern "C" fn(libc::c_int) = note;
            // SAFETY: an action without flags and mask is plain data; its handler only writes to a
            // pipe that is never closed.
            let taken = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as libc::sighandler_t;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &raw const action, std::ptr::null_mut())
            };
            if taken != 0 {
                return Err(failed(std::io::Error::last_os_error()));
            }
        }
        Ok(Self(File::from(read)))
    }

    /// Ends mounts by signals, in a thread of its own. `leave` ends the process at the second.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn end(self, places: Vec<Place>, leave: impl FnOnce() + Send + 'static) -> Result<()> {
        let started = std::thread::Builder::new()
            .name("penstock-signals".to_string())
            .spawn(move || {
                if !self.wait() {
                    return;
                }
                for place in &places {
                    if let Err(error) = place.unmount() {
                        eprintln!("penstock mount: {error}");
                    }
                }
                if self.wait() {
                    leave();
                }
            });
        let failed = |error| Error::new(Kind::Io, "starting a thread", error);
        started.map(|_| ()).map_err(failed)
    }

    /// Waits for a signal. Gives whether there may be more.
    fn wait(&self) -> bool {
        (&self.0).read_exact(&mut [0]).is_ok()
    }
}
