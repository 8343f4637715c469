//! A simulated multiprocessor: the engine's strategies in virtual time.
//!
//! Start with [`machine`], which implements the engine's `Machine` over the models of hardware. The
//! models are pure: their caller gives the time and the request, and they answer when it will be
//! done. There is no wall clock, no I/O, and no randomness except from a seeded [`Random`]. A
//! program gives the same events, to the picosecond, on every machine. The papers' experiments
//! stand in the crate `penstock-experiments`.
//!
//! | module | contents |
//! |---|---|
//! | [`preset`] | whole machines, as TOML |
//! | [`machine`] | clock, events, CPUs, disks, messages: the engine's `Machine` |
//! | [`call`] | one collective call on the machine |
//! | [`trace`] | the activity of every part, with its time |
//! | [`time`] | [`Time`], [`Span`] and [`Interval`] in integer picoseconds |
//! | [`random`] | [`Random`], a seeded generator with the same stream everywhere |
//! | [`disk`] | [`Device`]: rotating drives (HP 97560 and its kind) and flash; the [`Bus`] they share |
//! | [`disk::parts`] | known devices, every number with its unit and its source |
//! | [`network`] | [`Network`]: a torus with wormhole routing, a fat tree |
//!
//! A disk by itself:
//!
//! ```
//! use penstock_sim::{Bus, Drive, DriveModel, Span, Time, disk::parts};
//!
//! let model = DriveModel::new(&parts::hp_97560())?;
//! let mut drive = Drive::new(&model, Span::ZERO);
//! let mut bus = Bus::new(parts::SCSI_2_BYTES_PER_SECOND);
//!
//! // An 8 KB read at block 0: 2.2 ms overhead, a seek of one cylinder, rotation, media, bus.
//! let read = drive.begin_read(Time::ZERO, 0, 16);
//! let sent = bus.transfer(read.in_buffer_at, 8192);
//! assert_eq!(format!("{:.2}", read.phases.seek.span()), "3.64 ms");
//! assert!(sent.end > read.in_buffer_at);
//! # Ok::<(), penstock_sim::ParameterError>(())
//! ```
//!
//! The models follow Kotz, PCS-TR94-226 and TOCS 1997, section 4.1 of each, and for the drive
//! Ruemmler and Wilkes, IEEE Computer, March 1994.

pub mod call;
pub mod disk;
mod error;
pub mod machine;
pub mod network;
pub mod preset;
pub mod random;
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
