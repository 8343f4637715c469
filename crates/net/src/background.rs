//! Work in the background: a runtime in a thread of its own, as long as it is kept.

use std::sync::Arc;
use std::thread::JoinHandle;

use penstock_engine::{Error, Kind, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

/// Tasks that go on in a thread, until this is dropped.
pub(crate) struct Background {
    closing: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

/// Makes a runtime for the thread that uses it.
///
/// # Errors
/// When the process has too many files open.
pub(crate) fn runtime() -> Result<Runtime> {
    let made = Builder::new_current_thread().enable_all().build();
    made.map_err(|error| Error::new(Kind::Io, "starting to connect", error))
}

impl Background {
    /// Goes on with a runtime in a thread of this name, in which `begin` spawns tasks.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(
        name: &str,
        runtime: Runtime,
        begin: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let closing = Arc::new(Notify::new());
        let closed = closing.clone();
        let run = move || {
            runtime.block_on(async {
                begin();
                closed.notified().await;
            });
            runtime.shutdown_background();
        };
        let builder = std::thread::Builder::new().name(name.to_string());
        let thread = builder.spawn(run);
        Ok(Self {
            closing,
            thread: Some(thread.map_err(|e| Error::new(Kind::Io, "starting a thread", e))?),
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.closing.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there has been told
        }
    }
}
