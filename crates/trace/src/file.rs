//! The file of a trace, and the thread that writes it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use penstock_engine::Result;
use serde_json::json;

use super::tracks::Track;
use crate::failure::failed;

/// The nanoseconds of a step of time.
pub(super) const STEP_NS: u64 = 125;

/// The most slices that wait for the thread: some MiB.
const WAITING_MAX: usize = 1 << 14;

/// The time after which events are in the file, though the process may be killed then.
const FLUSH: Duration = Duration::from_millis(500);

/// The room that is kept for the end of a file.
const END_BYTES: u64 = 4096;

/// The names of the first and of the last event: what the file is, and whether it is whole.
pub(super) const BEGIN: &str = "penstock_trace";
pub(super) const END: &str = "penstock_trace_end";

/// A number, a text or a flag of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Text(String),
    Flag(bool),
}

/// An end of an arrow, at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrow {
    pub(super) name: &'static str,
    pub(super) id: u64,
    pub(super) at: u64,
    pub(super) is_out: bool,
}

/// A span that has ended. Times are steps since the trace began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) name: String,
    pub(super) category: &'static str,
    pub(super) track: Track,
    pub(super) track_name: Arc<str>,
    pub(super) begun: u64,
    pub(super) ended: u64,
    pub(super) values: Vec<(&'static str, Value)>,
    pub(super) arrows: Vec<Arrow>,
}

/// What the thread is told.
enum Event {
    Slice(Box<Slice>),
    /// Nothing more comes.
    End,
}

/// The beginning of a trace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Began {
    pub(super) at: Instant,
    /// The nanoseconds since 1970.
    pub(super) unix_ns: u64,
    /// The number of the process.
    pub(super) process: u32,
}

impl Began {
    /// A beginning now: of some looks at both clocks the one that took the least time.
    fn now() -> Self {
        let looks = (0..8).map(|_| {
            let (before, unix, after) = (Instant::now(), SystemTime::now(), Instant::now());
            (after - before, before, unix)
        });
        let best = looks.min_by_key(|(took, ..)| *took);
        let (took, at, unix) = best.unwrap_or((Duration::ZERO, Instant::now(), UNIX_EPOCH));
        let since = unix.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            at: at + took / 2,
            unix_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
            process: std::process::id(),
        }
    }
}

/// Takes slices, and never waits.
#[derive(Clone)]
pub(super) struct Sink {
    events: SyncSender<Event>,
    dropped: Arc<AtomicU64>,
}

impl Sink {
    /// Gives a slice to the thread, or counts it if there is no room.
    pub(super) fn tell(&self, slice: Slice) {
        if self.events.try_send(Event::Slice(Box::new(slice))).is_err() {
            self.drop_one();
        }
    }

    /// Counts a slice that nobody will see.
    pub(super) fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// The trace of a process.
pub(super) struct Recorder {
    sink: Sink,
    began: Began,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Recorder {
    /// Makes the file of a trace, and starts the thread that writes it. `name` says what the
    /// process is.
    ///
    /// # Errors
    /// When the file cannot be made, or another process writes it.
    pub(super) fn open(path: &Path, bytes_max: u64, name: &str) -> Result<Self> {
        let process = std::process::id();
        let host = host();
        let path = file_of(path, &format!("{host}-{process}.json"))?;
        let wrong = |cause: &dyn std::fmt::Display| failed(&path, cause);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(|error| wrong(&error))?;
        // A device is no file to be emptied, and may have many writers.
        if file.metadata().is_ok_and(|about| about.is_file()) {
            let locked = file.try_lock();
            locked.map_err(|_| {
                wrong(&"another process writes it: name a directory, where each has its own")
            })?;
            file.set_len(0).map_err(|error| wrong(&error))?;
        }
        let began = Began::now();
        let (events, receiver) = sync_channel(WAITING_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let mut writer = Writer {
            out: BufWriter::new(file),
            began,
            room: bytes_max.saturating_sub(END_BYTES),
            named: BTreeSet::new(),
            slices: 0,
            dropped: dropped.clone(),
            told: 0,
        };
        writer.begin(&host, name).map_err(|error| wrong(&error))?;
        let thread = std::thread::Builder::new().name("penstock-trace".to_string());
        let thread = thread.spawn(move || writer.run(&receiver));
        let thread = thread.map_err(|error| wrong(&error))?;
        Ok(Self {
            sink: Sink { events, dropped },
            began,
            writer: Mutex::new(Some(thread)),
        })
    }

    pub(super) fn sink(&self) -> Sink {
        self.sink.clone()
    }

    pub(super) fn began(&self) -> Began {
        self.began
    }

    /// Ends the file. What comes after is not in it.
    pub(super) fn end(&self) {
        if self.began.process != std::process::id() {
            return; // the thread is another process's
        }
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = writer.take() {
            let _ = self.sink.events.send(Event::End); // it has ended if it does not hear that
            let _ = writer.join(); // a panic is on the standard error
        }
    }
}

/// The name of this host.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_plain = |char: &char| char.is_ascii_alphanumeric() || "-._".contains(*char);
    let name: String = name.trim().chars().filter(is_plain).collect();
    match name.is_empty() {
        true => "host".to_string(),
        false => name,
    }
}

/// The file at a path, or the one of this name in the directory that is there or ends in a slash.
fn file_of(path: &Path, name: &str) -> Result<PathBuf> {
    let is_directory = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    if is_directory && !path.exists() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| failed(path, error))?;
    }
    Ok(match is_directory || path.is_dir() {
        true => path.join(name),
        false => path.to_path_buf(),
    })
}

/// Steps as microseconds.
pub(super) fn microseconds(steps: u64) -> String {
    let ns = u128::from(steps) * u128::from(STEP_NS);
    let (whole, part) = (ns / 1000, ns % 1000);
    match part {
        0 => whole.to_string(),
        part => format!("{whole}.{part:03}")
            .trim_end_matches('0')
            .to_string(),
    }
}

/// Writes the lines of a file.
struct Writer {
    out: BufWriter<File>,
    began: Began,
    /// The bytes that may yet be written, but for the end.
    room: u64,
    /// The tracks that have got their names.
    named: BTreeSet<Track>,
    /// The slices in the file.
    slices: u64,
    /// The slices that found no room on their way here, or in the file.
    dropped: Arc<AtomicU64>,
    /// As many of these as the file tells of.
    told: u64,
}

impl Writer {
    /// Writes what the file is.
    fn begin(&mut self, host: &str, name: &str) -> io::Result<()> {
        let Began {
            process, unix_ns, ..
        } = self.began;
        let began = unix_ns.to_string();
        let about = json!({"version": 1, "host": host, "process": process, "began_ns": began});
        let whole = format!("{name} ({host}:{process})");
        let first = self.about(BEGIN, &about);
        let second = self.about("process_name", &json!({"name": whole}));
        self.out
            .write_all(format!("[\n{first}{second}").as_bytes())?;
        self.out.flush()
    }

    /// A line about the process.
    fn about(&self, name: &str, values: &serde_json::Value) -> String {
        let process = self.began.process;
        let line = json!({"ph": "M", "name": name, "pid": process, "tid": 0, "args": values});
        format!("{line},\n")
    }

    /// Writes slices until none comes. If the disk fails, they are dropped from then on.
    fn run(mut self, events: &Receiver<Event>) {
        let mut flushed = Instant::now();
        loop {
            let written = match events.recv_timeout(FLUSH) {
                Ok(Event::Slice(slice)) => self.take(&slice),
                Ok(Event::End) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => Ok(()),
            };
            let flushed = match flushed.elapsed() >= FLUSH {
                true => {
                    flushed = Instant::now();
                    written.and_then(|()| self.out.flush())
                }
                false => written,
            };
            if let Err(error) = flushed {
                tracing::error!(%error, "the trace cannot be written");
                self.room = 0;
            }
        }
        if let Err(error) = self.end() {
            tracing::error!(%error, "the trace cannot be ended");
        }
    }

    /// Writes a slice, if there is room.
    fn take(&mut self, slice: &Slice) -> io::Result<()> {
        let (mut lines, told) = (String::with_capacity(512), self.told);
        if !self.named.contains(&slice.track) {
            lines.push_str(&self.track(slice));
        }
        self.push_drops(&mut lines, slice.ended);
        // Writing into a text does not fail.
        let _ = push_slice(&mut lines, self.began.process, slice);
        let bytes = lines.len() as u64;
        if bytes > self.room {
            self.room = 0; // what comes later would be a part without the beginning
            self.told = told;
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.named.insert(slice.track);
        self.room -= bytes;
        self.slices += 1;
        self.out.write_all(lines.as_bytes())
    }

    /// The line that names a track.
    fn track(&self, slice: &Slice) -> String {
        let (process, track) = (self.began.process, slice.track.number());
        let name = json!({"name": &*slice.track_name});
        let line = json!({"ph": "M", "name": "thread_name", "pid": process, "tid": track,
            "args": name});
        format!("{line},\n")
    }

    /// Shows where slices are missing, if more are than before.
    fn push_drops(&mut self, lines: &mut String, at: u64) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        let more = dropped - self.told;
        if more > 0 {
            self.told = dropped;
            let (process, at) = (self.began.process, microseconds(at));
            let _ = writeln!(
                lines,
                "{{\"ph\":\"i\",\"s\":\"p\",\"name\":\"dropped\",\"pid\":{process},\"tid\":0,\
                 \"ts\":{at},\"args\":{{\"slices\":{more}}}}},"
            );
        }
    }

    /// Writes the end: how much is in the file, and how much is not.
    fn end(&mut self) -> io::Result<()> {
        let (slices, dropped) = (self.slices, self.dropped.load(Ordering::Relaxed));
        let mut lines = String::new();
        let now = self.began.at.elapsed().as_nanos() / u128::from(STEP_NS);
        self.push_drops(&mut lines, u64::try_from(now).unwrap_or(u64::MAX));
        lines.push_str(&self.about(END, &json!({"slices": slices, "dropped": dropped})));
        let lines = lines.trim_end_matches(",\n");
        self.out.write_all(format!("{lines}\n]\n").as_bytes())?;
        self.out.flush()
    }
}

/// Whether a value is an identity, which is written in hexadecimal as everywhere.
fn is_identity(name: &str) -> bool {
    matches!(name, "client" | "file" | "ticket")
}

/// The lines of a slice and of its arrows.
fn push_slice(lines: &mut String, process: u32, slice: &Slice) -> std::fmt::Result {
    let track = slice.track.number();
    let (begun, time) = (
        microseconds(slice.begun),
        microseconds(slice.ended.saturating_sub(slice.begun)),
    );
    write!(
        lines,
        "{{\"ph\":\"X\",\"name\":{},\"cat\":\"{}\",\"pid\":{process},\"tid\":{track},\
         \"ts\":{begun},\"dur\":{time},\"args\":{{",
        json!(slice.name),
        slice.category,
    )?;
    for (nth, (name, value)) in slice.values.iter().enumerate() {
        let comma = if nth == 0 { "" } else { "," };
        match value {
            Value::Number(number) if is_identity(name) => {
                write!(lines, "{comma}\"{name}\":\"{number:016x}\"")?;
            }
            Value::Number(number) => write!(lines, "{comma}\"{name}\":{number}")?,
            Value::Flag(flag) => write!(lines, "{comma}\"{name}\":{flag}")?,
            Value::Text(text) => write!(lines, "{comma}\"{name}\":{}", json!(text))?,
        }
    }
    lines.push_str("}},\n");
    for Arrow {
        name,
        id,
        at,
        is_out,
    } in &slice.arrows
    {
        let (phase, at) = match is_out {
            true => ("\"s\"", microseconds(*at)),
            false => ("\"f\",\"bp\":\"e\"", microseconds(*at)),
        };
        writeln!(
            lines,
            "{{\"ph\":{phase},\"name\":\"{name}\",\"cat\":\"flow\",\"id\":{id},\"pid\":{process},\
             \"tid\":{track},\"ts\":{at}}},"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str, track: usize, times: (u64, u64)) -> Slice {
        Slice {
            name: name.to_string(),
            category: "disk",
            track: Track(track),
            track_name: "a \"track\"".into(),
            begun: times.0,
            ended: times.1,
            values: vec![
                ("bytes", Value::Number(5)),
                ("client", Value::Number(0xabc)),
                ("failed", Value::Flag(true)),
                ("text", Value::Text("\"\n".to_string())),
            ],
            arrows: vec![Arrow {
                name: "token",
                id: 77,
                at: times.0,
                is_out: false,
            }],
        }
    }

    fn read(path: &Path) -> Vec<serde_json::Value> {
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn times_are_exact() {
        for (steps, text) in [(0, "0"), (1, "0.125"), (2, "0.25"), (8, "1"), (12, "1.5")] {
            assert_eq!(microseconds(steps), text);
        }
        assert_eq!(microseconds(u64::MAX), "2305843009213693951.875");
    }

    #[test]
    fn a_file_is_json_with_all_that_was_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.json");
        std::fs::write(&path, "what was there before, and longer").unwrap();
        let recorder = Recorder::open(&path, 1 << 20, "a process").unwrap();
        let another = Recorder::open(&path, 1 << 20, "another");
        assert!(
            another
                .err()
                .unwrap()
                .to_string()
                .contains("another process")
        );
        for nth in 0..3 {
            recorder
                .sink()
                .tell(slice("read", nth % 2, (8 * nth as u64, 8 * nth as u64 + 1)));
        }
        recorder.end();
        recorder.end();
        recorder.sink().tell(slice("late", 0, (1, 2)));
        let events = read(&path);
        let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
        assert_eq!((of("X"), of("f"), of("M")), (3, 3, 2 + 2 + 1));
        let last = events.last().unwrap();
        assert_eq!(
            (&last["args"]["slices"], &last["args"]["dropped"]),
            (&json!(3), &json!(0))
        );
        let first = events.iter().find(|event| event["ph"] == "X").unwrap();
        assert_eq!(first["args"]["client"], "0000000000000abc");
        assert_eq!(first["args"]["text"], "\"\n");
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/");
        let recorder = Recorder::open(&path, END_BYTES + 1000, "a process").unwrap();
        for nth in 0..50 {
            recorder.sink().tell(slice("read", 0, (nth, nth + 1)));
        }
        recorder.end();
        let made: Vec<_> = std::fs::read_dir(&path).unwrap().collect();
        assert_eq!(made.len(), 1);
        let path = made[0].as_ref().unwrap().path();
        assert!(path.metadata().unwrap().len() < END_BYTES + 1000);
        let events = read(&path);
        let slices = events.iter().filter(|event| event["ph"] == "X").count();
        let end = &events.last().unwrap()["args"];
        assert!(slices > 0 && slices < 50);
        assert_eq!(
            (&end["slices"], &end["dropped"]),
            (&json!(slices), &json!(50 - slices))
        );
        let drops = events.iter().filter(|event| event["name"] == "dropped");
        let drops = drops.map(|event| event["args"]["slices"].as_u64().unwrap());
        assert_eq!(drops.sum::<u64>(), 50 - slices as u64);
    }
}
