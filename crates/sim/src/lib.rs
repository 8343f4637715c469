//! The hardware of a simulated machine: disks, buses and networks, as pure state machines.
//!
//! Every model is driven by its caller, who says what time it is and what is asked; the model
//! answers when it will be done. There is no global clock, no executor, no I/O, and no randomness
//! but that of a seeded [`Random`] which the caller hands in. The same calls give the same answers,
//! to the picosecond, on every machine.
//!
//! | module | what it holds |
//! |---|---|
//! | [`time`] | [`Time`], [`Span`] and [`Interval`] in integer picoseconds |
//! | [`random`] | [`Random`], a seeded generator with the same stream everywhere |
//! | [`disk`] | [`Device`]: rotating drives (HP 97560 and its kind) and flash; the [`Bus`] they share |
//! | [`disk::parts`] | known devices, every number with its unit and its source |
//! | [`network`] | [`Network`]: a torus with wormhole routing, a fat tree |
//!
//! The models follow Kotz, PCS-TR94-226, section 4.1, and Kotz, TOCS 1997, section 4.1, and for the
//! drive Ruemmler and Wilkes, IEEE Computer, March 1994.
//!
//! ```
//! use penstock_sim::{Bus, Drive, DriveModel, Span, Time, disk::parts};
//!
//! let model = DriveModel::new(&parts::hp_97560())?;
//! let mut drive = Drive::new(&model, Span::ZERO);
//! let mut bus = Bus::new(parts::SCSI_2_BYTES_PER_SECOND);
//!
//! // An 8 KB read at logical block 0: 2.2 ms overhead, a seek of one cylinder, rotation, media, bus.
//! let read = drive.begin_read(Time::ZERO, 0, 16);
//! let sent = bus.transfer(read.in_buffer_at, 8192);
//! assert_eq!(format!("{:.2}", read.phases.seek.span()), "3.64 ms");
//! assert!(sent.end > read.in_buffer_at);
//! # Ok::<(), penstock_sim::ParameterError>(())
//! ```

pub mod disk;
mod error;
pub mod experiment;
pub mod machine;
pub mod network;
pub mod pattern;
pub mod preset;
pub mod random;
pub mod study;
pub mod time;
pub mod trace;

pub use disk::{
    Bus, Device, DiskParameters, Drive, DriveModel, Flash, FlashParameters, Phases, ReadReady,
    WriteReady, WriteReported,
};
pub use error::ParameterError;
pub use network::{
    Contention, Delivery, FatTree, FatTreeParameters, Network, Torus, TorusParameters,
};
pub use random::Random;
pub use time::{Interval, Span, Time};
