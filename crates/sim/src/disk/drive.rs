//! A rotating drive: an arm, a platter, and a buffer for read-ahead or for writes.
//!
//! The mechanics follow Ruemmler and Wilkes (1994), as Kotz, Toh and Radhakrishnan rebuilt them. A
//! drive serves one command at a time:
//!
//! ```text
//! read, miss   |overhead|seek|rotate|media|                  then the caller's bus transfer
//! read, hit    |overhead|                                    the media stream on meanwhile
//!              |....media of the stream....|
//! write        |overhead|bus|seek|rotate|media|              reported after the bus if alone,
//! next write                |overhead|bus|....|seek|...      else when the former is on the media
//! ```
//!
//! - After a read the drive reads on, over tracks and cylinders, until it holds the read-ahead
//!   limit from that read's start, or until the arm is needed elsewhere.
//! - A read is a **hit** when its first sector is in the buffer, or is the very next one of the
//!   stream. A read that starts further ahead is a miss, even inside the limit: the drive positions
//!   anew. The drive decides when it has taken the command in.
//! - A **write** that continues the one before streams on without losing a revolution. It is
//!   reported once no more than the write-buffer limit is not yet on the media. Any other write is
//!   reported when all earlier writes are on the media. Without immediate report, or when it is
//!   larger than the write-buffer limit, a write is reported when it is on the media itself.
//! - Writes go to the media in the order of their arrival, reads after them. A write drops the
//!   data of read-ahead.
//!
//! Not modelled: defects, retries, recalibration; transfer of a request's first sectors over the
//! bus before its last is in the buffer (8 KB requests are below the fence of 64 KB); reading
//! written data back out of the buffer; reordering.
//!
//! A command costs time in proportion to the tracks that pass, and allocates nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use super::model::{DiskAddress, DriveModel};
use super::parameters::WriteSeek;
use super::{Phases, ReadReady, WriteReady, WriteReported};
use crate::time::{Interval, Span, Time};

#[derive(Clone, Debug)]
pub struct Drive {
    model: Arc<DriveModel>,
    initial_rotation: Span,
    /// The address of the arm when nothing streams.
    arm: DiskAddress,
    /// The time when the mechanism has done all its commands.
    arm_free_at: Time,
    reading: Option<Stream>,
    writing: Writes,
    /// The time of the last call.
    last_call: Time,
}

/// A stream is a sequential read that goes on by itself, run by run. A run is the stream's
/// part of one track.
#[derive(Clone, Debug)]
struct Stream {
    /// The first block that the buffer holds.
    oldest: u64,
    /// The first block of the run, with its address, and the time when it begins to pass.
    lba: u64,
    place: DiskAddress,
    start: Time,
    /// The block after the run's last, and the time when the last has passed.
    run_end: u64,
    end: Time,
    /// The block at which the drive stops.
    limit: u64,
}

/// The writes in the buffer.
#[derive(Clone, Debug, Default)]
struct Writes {
    /// The time when each write will be on the media, and its bytes; oldest first.
    pending: VecDeque<(Time, u64)>,
    pending_bytes: u64,
    /// The block after the last written one: a write there continues the stream.
    next_lba: Option<u64>,
    /// The overhead of the last command, whose data are to come.
    overhead: Interval,
}

impl Drive {
    /// Makes a drive at rest with its arm at cylinder 0, turned by `initial_rotation` from the
    /// index mark at time zero.
    pub fn new(model: &Arc<DriveModel>, initial_rotation: Span) -> Drive {
        Drive {
            model: Arc::clone(model),
            initial_rotation,
            arm: DiskAddress::default(),
            arm_free_at: Time::ZERO,
            reading: None,
            writing: Writes::default(),
            last_call: Time::ZERO,
        }
    }

    /// The kind of the drive.
    pub fn model(&self) -> &DriveModel {
        &self.model
    }

    /// The time when all received data are on the media.
    pub fn media_idle_at(&self) -> Time {
        self.arm_free_at
    }

    /// Takes the command to read `sectors` from `lba` on.
    ///
    /// # Panics
    /// When the drive does not have them, or `now` is before an earlier call.
    pub fn begin_read(&mut self, now: Time, lba: u64, sectors: u64) -> ReadReady {
        self.check(now, lba, sectors);
        let overhead = Interval::starting(now, self.model.read_overhead);
        let decided = overhead.end.max(self.arm_free_at);
        let end = lba + sectors;
        let limit = (lba + self.model.read_ahead_sectors.max(sectors)).min(self.model.sectors());
        if let Some(stream) = &mut self.reading {
            let known = stream.frontier(&self.model, self.initial_rotation, decided);
            let held = (stream.oldest..known).contains(&lba);
            if held || (lba == known && stream.end > decided) {
                stream.reach(&self.model, self.initial_rotation, decided, limit);
                let passed = stream.passed(&self.model, self.initial_rotation, end);
                let in_buffer_at = passed.max(decided);
                let oldest = limit.saturating_sub(self.model.read_ahead_sectors).min(lba);
                stream.oldest = stream.oldest.max(oldest);
                let media = Interval {
                    start: now.min(passed),
                    end: passed,
                };
                let media = if passed > now {
                    media
                } else {
                    Interval::empty(decided)
                };
                let cylinder = stream.place.cylinder;
                let none = Interval::empty(decided);
                let phases = Phases {
                    overhead,
                    seek: none,
                    rotate: none,
                    media,
                    cylinder,
                };
                return ReadReady {
                    in_buffer_at,
                    hit: true,
                    phases,
                };
            }
        }
        let (seek, rotate, place) = self.position(decided, lba);
        let stream = Stream::starting(&self.model, place, lba, rotate.end, limit);
        let in_buffer_at =
            self.reading
                .insert(stream)
                .passed(&self.model, self.initial_rotation, end);
        let media = Interval::new(rotate.end, in_buffer_at);
        let phases = Phases {
            overhead,
            seek,
            rotate,
            media,
            cylinder: place.cylinder,
        };
        ReadReady {
            in_buffer_at,
            hit: false,
            phases,
        }
    }

    /// Takes the command to write `sectors` from `lba` on.
    ///
    /// # Panics
    /// When the drive does not have them, or `now` is before an earlier call.
    pub fn begin_write(&mut self, now: Time, lba: u64, sectors: u64) -> WriteReady {
        self.check(now, lba, sectors);
        let overhead = Interval::starting(now, self.model.write_overhead);
        self.writing.overhead = overhead;
        let bytes = sectors * self.model.sector_bytes();
        let room = self.model.parameters.buffer_bytes.saturating_sub(bytes);
        let wants_data_at = self.writing.drained_to(overhead.end, room);
        WriteReady {
            wants_data_at,
            overhead,
        }
    }

    /// Takes the data of the command that `begin_write` took.
    ///
    /// # Panics
    /// When the drive does not have the sectors, or `now` is before an earlier call.
    pub fn data_received(&mut self, now: Time, lba: u64, sectors: u64) -> WriteReported {
        self.check(now, lba, sectors);
        let facts = &self.model.parameters;
        let ready = match facts.write_seek {
            WriteSeek::AfterData => now,
            WriteSeek::AfterCommand => self.writing.overhead.end,
        };
        let bytes = sectors * self.model.sector_bytes();
        let limit = facts.write_buffer_bytes;
        let immediate = facts.immediate_report && bytes <= limit;
        let earlier_done = self.arm_free_at.max(now);
        let contiguous = self.writing.next_lba == Some(lba);

        let (seek, rotate, place) = self.position(ready.max(self.arm_free_at), lba);
        // The data are written at the next pass of the sector after they have come.
        let rotate = match rotate.end < now {
            false => rotate,
            true => {
                let wait = self.model.rotation(now, self.initial_rotation, &place);
                Interval::new(rotate.start, now + wait)
            }
        };
        let end = lba + sectors;
        let mut run = Stream::starting(&self.model, place, lba, rotate.end, end);
        let on_media_at = run.passed(&self.model, self.initial_rotation, end);
        self.arm = run.place;
        self.arm_free_at = on_media_at;

        self.writing.forget_until(now);
        self.writing.pending.push_back((on_media_at, bytes));
        self.writing.pending_bytes += bytes;
        self.writing.next_lba = Some(end);
        let reported_at = match (immediate, contiguous) {
            (false, _) => on_media_at,
            (true, false) => earlier_done,
            (true, true) => self.writing.drained_to(now, limit),
        };
        let media = Interval::new(rotate.end, on_media_at);
        let overhead = self.writing.overhead;
        let phases = Phases {
            overhead,
            seek,
            rotate,
            media,
            cylinder: place.cylinder,
        };
        WriteReported {
            reported_at,
            on_media_at,
            phases,
        }
    }

    /// Sends the arm to `lba` at `at`, and ends the stream. Returns the seek, the rotation, and the
    /// address.
    fn position(&mut self, at: Time, lba: u64) -> (Interval, Interval, DiskAddress) {
        if let Some(mut stream) = self.reading.take() {
            stream.frontier(&self.model, self.initial_rotation, at);
            self.arm = stream.place;
        }
        let place = self.model.place(lba);
        let seek = Interval::starting(at, self.model.reposition(&self.arm, &place));
        self.arm = place;
        let wait = self.model.rotation(seek.end, self.initial_rotation, &place);
        (seek, Interval::starting(seek.end, wait), place)
    }

    fn check(&mut self, now: Time, lba: u64, sectors: u64) {
        assert!(
            now >= self.last_call,
            "a command at {now}, after one at {}",
            self.last_call
        );
        assert!(sectors > 0, "a command for no sectors");
        let end = lba.saturating_add(sectors);
        assert!(
            end <= self.model.sectors(),
            "block {end} of {}",
            self.model.sectors()
        );
        self.last_call = now;
    }
}

impl Stream {
    /// Begins to read (or write) at `lba`, whose sector comes under the head at `start`.
    fn starting(
        model: &DriveModel,
        place: DiskAddress,
        lba: u64,
        start: Time,
        limit: u64,
    ) -> Stream {
        let mut stream = Stream {
            oldest: lba,
            lba,
            place,
            start,
            run_end: lba,
            end: start,
            limit,
        };
        stream.extend_run(model);
        stream
    }

    /// Lets the run go on to the limit or to the end of the track, whichever is first.
    fn extend_run(&mut self, model: &DriveModel) {
        self.run_end = self.limit.min(self.lba + self.place.left_on_track());
        self.end = self.start + model.passage(&self.place, self.run_end - self.lba);
    }

    /// Begins the next run at `lba`, where the last run ended, when the arm is free at `at`.
    fn next_run(&mut self, model: &DriveModel, initial_rotation: Span, at: Time) {
        let place = model.place(self.run_end);
        let there = at + model.reposition(&self.place, &place);
        self.start = there + model.rotation(there, initial_rotation, &place);
        self.lba = self.run_end;
        self.place = place;
        self.extend_run(model);
    }

    /// The first block that has not passed whole at `now`. Earlier runs are forgotten.
    fn frontier(&mut self, model: &DriveModel, initial_rotation: Span, now: Time) -> u64 {
        while self.end <= now && self.run_end < self.limit {
            self.next_run(model, initial_rotation, self.end);
        }
        match () {
            _ if now >= self.end => self.run_end,
            _ if now <= self.start => self.lba,
            _ => self.lba + model.passed(&self.place, now - self.start),
        }
    }

    /// Moves the limit to `limit` at `now`, if it is further. A stream that had stopped goes on
    /// when its next sector comes round.
    fn reach(&mut self, model: &DriveModel, initial_rotation: Span, now: Time, limit: u64) {
        if limit <= self.limit {
            return;
        }
        let stopped = self.run_end == self.limit && self.end <= now;
        self.limit = limit;
        match stopped {
            true => self.next_run(model, initial_rotation, now),
            false => self.extend_run(model),
        }
    }

    /// The time when every block before `end` has passed. Later runs are begun as needed.
    ///
    /// # Panics
    /// When `end` is beyond the limit.
    fn passed(&mut self, model: &DriveModel, initial_rotation: Span, end: u64) -> Time {
        assert!(
            end <= self.limit,
            "{end} is beyond the limit of the stream, {}",
            self.limit
        );
        while self.run_end < end {
            self.next_run(model, initial_rotation, self.end);
        }
        match end <= self.lba {
            true => Time::ZERO, // in an earlier run, which is over
            false => self.start + model.passage(&self.place, end - self.lba),
        }
    }
}

impl Writes {
    /// Drops writes that are on the media at `now`.
    fn forget_until(&mut self, now: Time) {
        while self.pending.front().is_some_and(|&(at, _)| at <= now) {
            let done = self.pending.pop_front();
            self.pending_bytes -= done.map_or(0, |(_, bytes)| bytes);
        }
    }

    /// The first moment from `now` on when at most `bytes` are not yet on the media.
    fn drained_to(&mut self, now: Time, bytes: u64) -> Time {
        self.forget_until(now);
        let mut left = self.pending_bytes;
        let mut oldest = self.pending.iter();
        let mut at = now;
        while left > bytes {
            // There is a write left, since `left` is the sum of all that are left.
            let Some(&(done, written)) = oldest.next() else {
                break;
            };
            (at, left) = (done, left - written);
        }
        at
    }
}
