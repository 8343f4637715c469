//! The loops of Kotz's experiments without a file system: one host, one disk, one command at a
//! time, and a host turnaround between commands.

#![allow(dead_code)] // each test uses its part

use std::sync::Arc;

use penstock_sim::{
    Bus, DiskParameters, Drive, DriveModel, Interval, Random, ReadReady, Span, Time, WriteReported,
    disk::parts,
};

pub const DISKS: u64 = 16;
pub const BLOCK_SECTORS: u64 = 16;
pub const BLOCK_BYTES: u64 = 8192;
pub const MIB: f64 = (1 << 20) as f64;

/// The moment at which a write counts as done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    Reported,
    OnMedia,
}

/// A host drives one drive on a bus of its own.
pub struct Host {
    pub drive: Drive,
    pub bus: Bus,
    pub now: Time,
    pub turnaround: Span,
}

impl Host {
    pub fn new(model: &Arc<DriveModel>, initial_rotation: Span) -> Host {
        Host {
            drive: Drive::new(model, initial_rotation),
            bus: Bus::new(parts::SCSI_2_BYTES_PER_SECOND),
            now: Time::ZERO,
            turnaround: Span::from_us(100),
        }
    }

    /// Reads one block at `lba`. The host has the block at the end of the interval, and sends its
    /// next command a turnaround later.
    pub fn read(&mut self, lba: u64) -> (ReadReady, Interval) {
        let read = self.drive.begin_read(self.now, lba, BLOCK_SECTORS);
        let sent = self.bus.transfer(read.in_buffer_at, BLOCK_BYTES);
        self.now = sent.end + self.turnaround;
        (read, sent)
    }

    /// Writes one block at `lba`.
    pub fn write(&mut self, lba: u64) -> WriteReported {
        let ready = self.drive.begin_write(self.now, lba, BLOCK_SECTORS);
        let sent = self.bus.transfer(ready.wants_data_at, BLOCK_BYTES);
        let report = self.drive.data_received(sent.end, lba, BLOCK_SECTORS);
        self.now = report.reported_at + self.turnaround;
        report
    }

    /// Reads the blocks at `lbas`. Returns the time when the last block is there.
    pub fn read_all(&mut self, lbas: impl IntoIterator<Item = u64>) -> Time {
        lbas.into_iter()
            .map(|lba| self.read(lba).1.end)
            .last()
            .unwrap_or(self.now)
    }

    /// Writes the blocks at `lbas`. Returns the time when the last block is reported, or on the
    /// media.
    pub fn write_all(&mut self, lbas: impl IntoIterator<Item = u64>, until: Until) -> Time {
        let last = lbas.into_iter().map(|lba| self.write(lba)).last();
        last.map_or(self.now, |write| match until {
            Until::Reported => write.reported_at,
            Until::OnMedia => self.drive.media_idle_at(),
        })
    }
}

pub fn model(parameters: &DiskParameters) -> Arc<DriveModel> {
    DriveModel::new(parameters).unwrap()
}

pub fn hp() -> Arc<DriveModel> {
    model(&parts::hp_97560())
}

/// Draws a rotational position, each equally likely.
pub fn random_rotation(model: &DriveModel, random: &mut Random) -> Span {
    Span::from_ps(random.below(model.revolution().as_ps()))
}

/// The MB/s (2^20) of `blocks` on each of the 16 disks that are done at `end`.
pub fn throughput(blocks: u64, end: Time) -> f64 {
    (DISKS * blocks * BLOCK_BYTES) as f64 / MIB / end.as_seconds_f64()
}

/// Fails unless `measured` is within `percent` of `expected`; prints both.
pub fn assert_near(what: &str, measured: f64, expected: f64, percent: f64) {
    let off = (measured / expected - 1.0) * 100.0;
    println!("{what:<58} {measured:>8.3}  expected {expected:>8.3}  {off:+.2} %");
    assert!(
        off.abs() <= percent,
        "{what}: {measured}, not {expected} to {percent} %"
    );
}
