//! Disks, and the bus that the disks of one I/O node share.
//!
//! A disk answers one command at a time. The caller, who owns the clock, carries a command through:
//!
//! ```text
//! read    begin_read ------> in_buffer_at;  then Bus::transfer(in_buffer_at): done at its end
//! write   begin_write -----> wants_data_at; then Bus::transfer(wants_data_at);
//!         data_received at its end --------> reported_at: done;  on_media_at: now it is safe
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`parameters`] | the facts about a rotating drive, as they stand in a preset |
//! | [`model`] | geometry, skews, seek times and rotation, worked out from the facts alone |
//! | [`drive`] | one rotating drive: arm, read-ahead, write buffer |
//! | [`flash`] | an SSD or a network disk: latency, bandwidth, operations a second, channels |
//! | [`bus`] | the shared bus |
//! | [`parts`] | known devices, with sources |

pub mod bus;
pub mod drive;
pub mod flash;
pub mod model;
pub mod parameters;
pub mod parts;

pub use bus::Bus;
pub use drive::Drive;
pub use flash::{Flash, FlashParameters};
pub use model::{DiskAddress, DriveModel};
pub use parameters::{DiskParameters, Region, SeekCurve, WriteSeek};

use crate::time::{Interval, Time};

/// Phases tell a trace what the mechanism did for one command. A phase that did not occur is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// The controller takes in the command.
    pub overhead: Interval,
    /// The arm moves to another cylinder, or another head is chosen.
    pub seek: Interval,
    /// The first sector comes round to the head.
    pub rotate: Interval,
    /// Sectors pass under the head, and heads and cylinders in between are changed. For a
    /// read-ahead hit this is the wait for the stream, and the overhead runs meanwhile.
    pub media: Interval,
    /// The cylinder of the first sector; 0 on flash.
    pub cylinder: u32,
}

/// The answer to `begin_read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadReady {
    /// The time when the last byte is in the device's buffer, and the bus can be reserved.
    pub in_buffer_at: Time,
    /// Whether the buffer had the data, or the stream was just coming to them.
    pub hit: bool,
    pub phases: Phases,
}

/// The answer to `begin_write`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteReady {
    /// The time when the device has taken in the command and has room, and the bus can be reserved.
    pub wants_data_at: Time,
    /// The controller takes in the command.
    pub overhead: Interval,
}

/// The answer to `data_received`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteReported {
    /// The time when the device reports the write, and takes the next command.
    pub reported_at: Time,
    /// The time when the data are on the media.
    pub on_media_at: Time,
    /// The phases, with the overhead of `begin_write`.
    pub phases: Phases,
}

/// A device of any kind answers the same calls.
///
/// # Panics
/// All calls panic when the range is empty or does not lie on the device, or when the time is
/// before an earlier call.
#[derive(Clone, Debug)]
pub enum Device {
    /// A rotating drive.
    Rotating(Drive),
    /// A device without moving parts.
    Flash(Flash),
}

impl Device {
    pub fn sectors(&self) -> u64 {
        match self {
            Device::Rotating(drive) => drive.model().sectors(),
            Device::Flash(flash) => flash.sectors(),
        }
    }

    pub fn sector_bytes(&self) -> u64 {
        match self {
            Device::Rotating(drive) => drive.model().sector_bytes(),
            Device::Flash(flash) => flash.sector_bytes(),
        }
    }

    /// The number of commands that the device works at together; the caller holds others back.
    pub fn queue_depth(&self) -> u32 {
        match self {
            Device::Rotating(_) => 1,
            Device::Flash(flash) => flash.queue_depth(),
        }
    }

    /// Takes the command to read `sectors` from `lba` on.
    pub fn begin_read(&mut self, now: Time, lba: u64, sectors: u64) -> ReadReady {
        match self {
            Device::Rotating(drive) => drive.begin_read(now, lba, sectors),
            Device::Flash(flash) => flash.begin_read(now, lba, sectors),
        }
    }

    /// Takes the command to write `sectors` from `lba` on. The data follow by `data_received`.
    pub fn begin_write(&mut self, now: Time, lba: u64, sectors: u64) -> WriteReady {
        match self {
            Device::Rotating(drive) => drive.begin_write(now, lba, sectors),
            Device::Flash(flash) => flash.begin_write(now, lba, sectors),
        }
    }

    /// Takes the data of the command that `begin_write` took; `now` is the end of their transfer.
    pub fn data_received(&mut self, now: Time, lba: u64, sectors: u64) -> WriteReported {
        match self {
            Device::Rotating(drive) => drive.data_received(now, lba, sectors),
            Device::Flash(flash) => flash.data_received(now, lba, sectors),
        }
    }

    /// The time when all received data are on the media.
    pub fn media_idle_at(&self) -> Time {
        match self {
            Device::Rotating(drive) => drive.media_idle_at(),
            Device::Flash(flash) => flash.media_idle_at(),
        }
    }
}
