//! The end of a mount by a signal: the first unmounts, the second ends the process, and with it the
//! mount also for those who use it.

use penstock_engine::{Error, Kind, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Caught;

use crate::Place;

/// Signals that have come, and those that come.
pub struct Signals(Caught);

impl Signals {
    /// Takes the signals from now on.
    ///
    /// # Errors
    /// Those of the system.
    pub fn take() -> Result<Self> {
        let caught = Caught::new([SIGINT, SIGTERM, SIGHUP]);
        let failed = |error| Error::new(Kind::Io, "waiting for signals", error);
        Ok(Self(caught.map_err(failed)?))
    }

    /// Ends mounts by signals, in a thread of its own. `leave` ends the process at the second.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn end(mut self, places: Vec<Place>, leave: impl FnOnce() + Send + 'static) -> Result<()> {
        let started = std::thread::Builder::new()
            .name("penstock-signals".to_string())
            .spawn(move || {
                let mut signals = self.0.forever();
                if signals.next().is_none() {
                    return;
                }
                for place in &places {
                    if let Err(error) = place.unmount() {
                        eprintln!("penstock mount: {error}");
                    }
                }
                if signals.next().is_some() {
                    leave();
                }
            });
        let failed = |error| Error::new(Kind::Io, "starting a thread", error);
        started.map(|_| ()).map_err(failed)
    }
}
