//! For tests and benchmarks: a medium around another, which is slow, fails, or keeps nothing.
//!
//! # Slow
//! A medium is given `bytes_per_second`. A write or read, of a block or a part of one, reserves its
//! time on the medium's schedule and returns when that time is over, however long the medium below
//! takes: so calls made one after the other, or several at once, together take the time of their
//! bytes at that rate. No processor works while the time passes. An idle medium saves no time up
//! for later. Each medium has a schedule of its own, as each server has a disk.
//!
//! # Failing
//! A [`Fault`] names an operation and the number of its failing call, which each medium counts by
//! itself from 1: a server opens a medium for each collective call, so a fault meets every server,
//! in every call, that gets so far. The call fails with the error of a failing device, path and
//! bytes included; the calls before and after it work. A failing write writes nothing, but for
//! [`Failure::Short`].
//!
//! # Null
//! A medium that is `null` is an infinitely fast disk, as Panda's authors simulated one (Seamons et
//! al., SC'95, section 3, "by commenting out the actual file system open/close/write/read
//! commands"): only the messages of a collective call are left. Writes are taken and dropped, reads
//! leave the buffer as it is, and finishing does nothing. Metadata and empty files, which do not go
//! through the medium, are written still; the elements of such an array mean nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use penstock_engine::{Digest, Error, Kind, Result};
use penstock_layout::{Block, DiskSchema};
use penstock_machines::Medium;
use serde::{Deserialize, Serialize};

use crate::Target;

/// The width of the widest element: data are cut into parts at multiples of it.
const ELEMENT_BYTES_MAX: usize = 16;

/// The faults of a medium. By default there are none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// The most bytes a second that go through the medium; `None` sets no limit.
    pub bytes_per_second: Option<f64>,
    /// The calls that fail.
    pub faults: Vec<Fault>,
    /// Whether writes do not reach the medium below, and reads bring nothing from it.
    pub null: bool,
}

/// One call that fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The operation that fails.
    pub operation: Step,
    /// The number of the failing call of this operation, from 1 on.
    pub nth: u64,
    /// The failure of the call.
    pub error: Failure,
}

/// An operation on a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// The opening of the medium, which happens once.
    Open,
    /// A write of a block, or of a part of one.
    Write,
    /// A read of a block, or of a part of one.
    Read,
    /// The finish of the medium, which happens once.
    Finish,
}

/// The failure of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// No space left on the device.
    #[serde(rename = "ENOSPC")]
    Full,
    /// The device reports a failure.
    #[serde(rename = "EIO")]
    Io,
    /// The first half of the data are moved, and then the device is full, or the file at its end. A
    /// medium that moves no parts moves nothing. Only writes and reads fail so.
    #[serde(rename = "short")]
    Short,
}

impl Faults {
    /// Wraps a medium, to make it slow and failing; `target` and `schema` are the ones with which
    /// it was opened.
    ///
    /// # Errors
    /// The fault of [`Step::Open`], if there is one; [`Kind::Schema`] for faults that mean nothing.
    pub fn around(
        &self,
        medium: Arc<dyn Medium>,
        target: &Target,
        schema: &DiskSchema,
    ) -> Result<Arc<dyn Medium>> {
        self.check()?;
        let tried = FaultyMedium {
            medium,
            faults: self.faults.clone(),
            calls: Default::default(),
            bytes_per_second: self.bytes_per_second,
            is_null: self.null,
            schedule: Mutex::default(),
            target: target.clone(),
            schema: schema.clone(),
        };
        match tried.fault(Step::Open) {
            Some(failure) => Err(failure.of_whole("opening", target)),
            None => Ok(Arc::new(tried)),
        }
    }

    fn check(&self) -> Result<()> {
        let wrong = |cause: String| Err(Error::new(Kind::Schema, "setting up faults", cause));
        if let Some(rate) = self.bytes_per_second
            && !(rate.is_finite() && rate > 0.0)
        {
            return wrong(format!("{rate} bytes per second"));
        }
        for fault in &self.faults {
            let is_moving = matches!(fault.operation, Step::Write | Step::Read);
            if fault.nth == 0 || (fault.error == Failure::Short && !is_moving) {
                return wrong(format!("no call fails as {fault:?}"));
            }
        }
        Ok(())
    }
}

impl Failure {
    /// The failure as an error of the operating system.
    fn answer(self) -> std::io::Error {
        std::io::Error::from_raw_os_error(match self {
            Self::Full | Self::Short => libc::ENOSPC,
            Self::Io => libc::EIO,
        })
    }

    fn of_whole(self, doing: &str, target: &Target) -> Error {
        Error::io(&self.answer(), doing, target.path())
    }
}

/// The reserved time of a medium.
#[derive(Default)]
struct Schedule {
    /// The end of all reserved time.
    next_free: Option<Instant>,
    /// The time by which the last call returned too late, as sleepers do: the next begins that much
    /// earlier, so that many small calls keep the rate.
    overslept: Duration,
}

impl Schedule {
    fn reserve(&mut self, time: Duration) -> Instant {
        let now = Instant::now();
        let asked = now.checked_sub(std::mem::take(&mut self.overslept));
        let start = asked.unwrap_or(now).max(self.next_free.unwrap_or(now));
        let end = start + time;
        self.next_free = Some(end);
        end
    }
}

/// A medium that is slow, fails, or keeps nothing.
struct FaultyMedium {
    medium: Arc<dyn Medium>,
    faults: Vec<Fault>,
    /// The number of calls so far, by [`Step`].
    calls: [AtomicU64; 4],
    bytes_per_second: Option<f64>,
    is_null: bool,
    schedule: Mutex<Schedule>,
    target: Target,
    schema: DiskSchema,
}

impl FaultyMedium {
    /// Counts a call, and gives its failure if it is to fail.
    fn fault(&self, step: Step) -> Option<Failure> {
        let call = self.calls[step as usize].fetch_add(1, Ordering::Relaxed) + 1;
        let mut faults = self.faults.iter();
        let fault = faults.find(|fault| fault.operation == step && fault.nth == call);
        fault.map(|fault| fault.error)
    }

    /// Makes a call take its time.
    fn slowly(&self, bytes: usize, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some(rate) = self.bytes_per_second else {
            return call();
        };
        let schedule = || self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        let end = schedule().reserve(Duration::from_secs_f64(bytes as f64 / rate));
        let answer = call();
        let left = end.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            std::thread::sleep(left);
            schedule().overslept = end.elapsed();
        }
        answer
    }

    /// The error of a failed call, as the media of the store give it.
    fn error(&self, failure: Failure, doing: &str, (block, part): (&Block, Part)) -> Error {
        let (path, place) = match self.target.place_of(&self.schema, block) {
            Ok(found) => found,
            Err(error) => return error,
        };
        let error = match (failure, doing) {
            (Failure::Short, "reading") => {
                let bytes = std::fs::metadata(&path).map_or(0, |meta| meta.len());
                let cause = format!("the file is cut short: it has {bytes} bytes");
                Error::new(Kind::Damaged, doing, cause).at(&path)
            }
            _ => Error::io(&failure.answer(), doing, &path),
        };
        match place {
            Some(place) => {
                let start = place + part.offset;
                error.in_bytes(start..start + part.bytes as u64)
            }
            None => error,
        }
    }
}

/// Some bytes of a block.
#[derive(Clone, Copy)]
struct Part {
    offset: u64,
    bytes: usize,
}

impl Part {
    fn new(offset: u64, data: &[u8]) -> Self {
        let bytes = data.len();
        Self { offset, bytes }
    }

    /// Half of the part's bytes, rounded down to a multiple of any element.
    fn half(self) -> usize {
        let half = self.bytes / 2;
        half - half % ELEMENT_BYTES_MAX
    }
}

impl FaultyMedium {
    fn write_tried(
        &self,
        (block, part): (&Block, Part),
        data: &[u8],
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let failure = self.fault(Step::Write);
        self.slowly(data.len(), || {
            let Some(failure) = failure else {
                return if self.is_null { Ok(()) } else { write() };
            };
            if failure == Failure::Short && !self.is_null && self.medium.moves_parts() {
                self.medium
                    .write_part(block, part.offset, &data[..part.half()])?;
            }
            Err(self.error(failure, "writing", (block, part)))
        })
    }

    fn read_tried(
        &self,
        (block, part): (&Block, Part),
        data: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let failure = self.fault(Step::Read);
        self.slowly(data.len(), || {
            let Some(failure) = failure else {
                return if self.is_null { Ok(()) } else { read(data) };
            };
            if failure == Failure::Short && !self.is_null && self.medium.moves_parts() {
                self.medium
                    .read_part(block, part.offset, &mut data[..part.half()])?;
            }
            Err(self.error(failure, "reading", (block, part)))
        })
    }
}

impl Medium for FaultyMedium {
    fn position(&self, block: &Block) -> Option<u64> {
        self.medium.position(block)
    }

    fn is_in_order(&self) -> bool {
        self.medium.is_in_order()
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        let part = Part::new(0, data);
        self.write_tried((block, part), data, || self.medium.write(block, data))
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        let part = Part::new(0, data);
        self.read_tried((block, part), data, |data| self.medium.read(block, data))
    }

    fn moves_parts(&self) -> bool {
        self.medium.moves_parts()
    }

    fn write_part(&self, block: &Block, offset: u64, data: &[u8]) -> Result<()> {
        let part = Part::new(offset, data);
        let write = || self.medium.write_part(block, offset, data);
        self.write_tried((block, part), data, write)
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        let part = Part::new(offset, data);
        let read = |data: &mut [u8]| self.medium.read_part(block, offset, data);
        self.read_tried((block, part), data, read)
    }

    /// Finishes the medium, and returns only when the schedule is over.
    fn finish(&self, sync: bool) -> Result<()> {
        let failure = self.fault(Step::Finish);
        self.slowly(0, || match failure {
            Some(failure) => Err(failure.of_whole("syncing", &self.target)),
            None if self.is_null => Ok(()),
            None => self.medium.finish(sync),
        })
    }

    fn digests(&self) -> Vec<Digest> {
        match self.is_null {
            true => Vec::new(),
            false => self.medium.digests(),
        }
    }

    fn changes(&self) -> Vec<u8> {
        self.medium.changes()
    }
}
