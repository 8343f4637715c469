//! Traces: what this process does for requests and calls, as a file that Perfetto opens.
//!
//! ```text
//! spans (engine::trace) -> Spans: tracks, times -> a channel -> a thread: lines of JSON
//! ```
//!
//! The format is the trace event format of Chrome, an event a line: a slice (`X`) when a span has
//! ended, and the ends of arrows (`s`, `f`) behind it. So no begin is without its end, and a file
//! whose writer was killed lacks a bracket and the last half second. Nobody waits for the disk:
//! where the channel is full, or the file as long as it may be, slices are dropped and counted.
//!
//! | file | contents |
//! |---|---|
//! | `spans` | spans, as `tracing` tells of them, become slices |
//! | `tracks` | the track of each slice: slices of one track lie beside or within each other |
//! | `file` | the file, and the thread that writes it |
//! | `join` | one file of several |
//! | `failure` | the errors |
//! | [`sizes`] | sizes, as people write them |

#![warn(missing_docs)]

mod failure;
mod file;
mod join;
pub mod sizes;
mod spans;
mod tracks;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use penstock_engine::Result;
use penstock_engine::trace::TARGET;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use failure::failed;
use file::{Recorder, Sink};
pub use join::join;
use sizes::bytes;
use spans::Spans;

/// The environment variables that ask for a trace, and limit its file.
const FILE_VARIABLE: &str = "PENSTOCK_TRACE";
const BYTES_VARIABLE: &str = "PENSTOCK_TRACE_BYTES";

/// The bytes of a file, unless the user says otherwise: about a million slices.
const BYTES_MAX: u64 = 256 << 20;

/// What somebody wants traced.
pub struct Wanted {
    /// A file, or a directory in which each process makes one.
    path: PathBuf,
    bytes_max: u64,
}

impl Wanted {
    /// What options say, or else the environment.
    ///
    /// # Errors
    /// [`Kind::Schema`] when a size is none.
    pub fn of(path: Option<&Path>, size: Option<&str>) -> Result<Option<Self>> {
        let of_environment = || std::env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty());
        let path = path.map(Path::to_path_buf);
        let Some(path) = path.or_else(|| of_environment().map(PathBuf::from)) else {
            return Ok(None);
        };
        let size = size.map(str::to_string);
        let size = size.or_else(|| std::env::var(BYTES_VARIABLE).ok());
        let bytes_max = size.map_or(Ok(BYTES_MAX), |size| bytes(&size))?;
        Ok(Some(Self { path, bytes_max }))
    }
}

/// The trace of this process, which is begun once.
static RECORDER: OnceLock<Recorder> = OnceLock::new();

/// Opens the file of a trace, and gives the layer that writes it.
///
/// # Errors
/// When the file cannot be made, or another process writes it.
pub fn layer<S>(wanted: &Wanted, name: &str) -> Result<impl Layer<S> + use<S>>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    let recorder = Recorder::open(&wanted.path, wanted.bytes_max, name)?;
    let sink: Sink = recorder.sink();
    let spans = Spans::new(sink, recorder.began());
    let _ = RECORDER.set(recorder); // one that has been begun before goes on
    Ok(spans.with_filter(filter_fn(|metadata| metadata.target() == TARGET)))
}

/// Begins a trace if the environment asks for one, and none has begun. `name` says what this
/// process is.
///
/// # Errors
/// When the environment asks for a trace, and none can be made.
pub fn begin(name: &str) -> Result<()> {
    if RECORDER.get().is_some() {
        return Ok(());
    }
    if let Some(wanted) = Wanted::of(None, None)? {
        let layer = layer(&wanted, name)?;
        let begun = tracing_subscriber::registry().with(layer).try_init();
        begun.map_err(|error| failed(&wanted.path, error))?;
    }
    Ok(())
}

/// Ends the trace of this process, if there is one: the file is complete.
pub fn end() {
    if let Some(recorder) = RECORDER.get() {
        recorder.end();
    }
}
