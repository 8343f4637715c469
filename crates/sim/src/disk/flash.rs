//! Devices without moving parts: an NVMe SSD, or a disk behind a network.
//!
//! A request passes three stages, each with a queue:
//!
//! ```text
//! request --> channels (each holds one for its latency) --> gate (operations/s, bytes/s) --> done
//! ```
//!
//! The channels work in parallel: each is a flash die, or a slot of a network disk's queue. The
//! gate is the limit that the data sheet states, or that the provider enforces: a request keeps it
//! for the longer of its operations' time and its bytes' time. A request of more than
//! `operation_bytes_max` counts as several operations. Requests are served in the order of arrival;
//! a lone request takes its latency and its bytes' time.
//!
//! Not modelled: garbage collection, burst credits, variation of latency. A write is on the media
//! when it is reported (power-loss protection, or replication before the answer).
//!
//! Serving a request takes the logarithm of the number of channels, and allocates nothing.

use penstock_layout::exact;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

use super::{Phases, ReadReady, WriteReady, WriteReported};
use crate::error::{Check, ParameterError};
use crate::time::{Interval, Span, Time};

/// The parameters of a device without moving parts, in a preset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashParameters {
    pub name: String,
    pub sector_bytes: u32,
    pub sectors: u64,
    /// The number of requests that the device works at together.
    pub channels: u32,
    /// The most bytes of an operation. A larger request counts as several, but holds one channel.
    pub operation_bytes_max: u64,
    /// The time from a read request to its data, for one request alone.
    pub read_latency_us: f64,
    /// The time from a write's data to its report, for one request alone.
    pub write_latency_us: f64,
    pub read_bytes_per_second: u64,
    pub write_bytes_per_second: u64,
    pub read_operations_per_second: u64,
    pub write_operations_per_second: u64,
}

/// The costs of one direction.
#[derive(Clone, Copy, Debug)]
struct Costs {
    latency: Span,
    operation: Span,
    bytes_per_second: u64,
}

#[derive(Clone, Debug)]
pub struct Flash {
    sectors: u64,
    sector_bytes: u64,
    operation_bytes_max: u64,
    read: Costs,
    write: Costs,
    /// The time when each channel is free.
    channels: BinaryHeap<Reverse<Time>>,
    gate_free_at: Time,
    media_idle_at: Time,
    last_call: Time,
}

impl FlashParameters {
    /// Checks that the parameters describe a possible device.
    ///
    /// # Errors
    /// The first mistake, with the numbers.
    pub fn validate(&self) -> Result<(), ParameterError> {
        let check = Check { part: &self.name };
        for (what, count) in [
            ("sector_bytes", u64::from(self.sector_bytes)),
            ("sectors", self.sectors),
            ("channels", u64::from(self.channels)),
            ("operation_bytes_max", self.operation_bytes_max),
            ("read_bytes_per_second", self.read_bytes_per_second),
            ("write_bytes_per_second", self.write_bytes_per_second),
            (
                "read_operations_per_second",
                self.read_operations_per_second,
            ),
            (
                "write_operations_per_second",
                self.write_operations_per_second,
            ),
        ] {
            check.positive(what, count)?;
        }
        check.duration("read_latency_us", self.read_latency_us)?;
        check.duration("write_latency_us", self.write_latency_us)
    }
}

impl Flash {
    /// Makes a device at rest.
    ///
    /// # Errors
    /// When the parameters do not describe a device.
    pub fn new(parameters: &FlashParameters) -> Result<Flash, ParameterError> {
        parameters.validate()?;
        let costs = |latency_us, operations_per_second, bytes_per_second| Costs {
            latency: Span::from_us_f64(latency_us),
            operation: Span::of_bytes(1, operations_per_second),
            bytes_per_second,
        };
        Ok(Flash {
            sectors: parameters.sectors,
            sector_bytes: u64::from(parameters.sector_bytes),
            operation_bytes_max: parameters.operation_bytes_max,
            read: costs(
                parameters.read_latency_us,
                parameters.read_operations_per_second,
                parameters.read_bytes_per_second,
            ),
            write: costs(
                parameters.write_latency_us,
                parameters.write_operations_per_second,
                parameters.write_bytes_per_second,
            ),
            channels: vec![Reverse(Time::ZERO); parameters.channels as usize].into(),
            gate_free_at: Time::ZERO,
            media_idle_at: Time::ZERO,
            last_call: Time::ZERO,
        })
    }

    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    pub fn sector_bytes(&self) -> u64 {
        self.sector_bytes
    }

    /// The number of requests that the device works at together.
    pub fn queue_depth(&self) -> u32 {
        exact::<u32>(self.channels.len())
    }

    /// The time when all received data are on the media.
    pub fn media_idle_at(&self) -> Time {
        self.media_idle_at
    }

    /// Takes the request to read `sectors` from `lba` on.
    ///
    /// # Panics
    /// When the device does not have them, or `now` is before an earlier call.
    pub fn begin_read(&mut self, now: Time, lba: u64, sectors: u64) -> ReadReady {
        self.check(now, lba, sectors);
        let media = self.serve(now, sectors, self.read);
        ReadReady {
            in_buffer_at: media.end,
            hit: false,
            phases: phases(now, media),
        }
    }

    /// Takes the request to write `sectors` from `lba` on. There is always room.
    ///
    /// # Panics
    /// When the device does not have them, or `now` is before an earlier call.
    pub fn begin_write(&mut self, now: Time, lba: u64, sectors: u64) -> WriteReady {
        self.check(now, lba, sectors);
        WriteReady {
            wants_data_at: now,
            overhead: Interval::empty(now),
        }
    }

    /// Takes the data of a request that `begin_write` took.
    ///
    /// # Panics
    /// When the device does not have the sectors, or `now` is before an earlier call.
    pub fn data_received(&mut self, now: Time, lba: u64, sectors: u64) -> WriteReported {
        self.check(now, lba, sectors);
        let media = self.serve(now, sectors, self.write);
        self.media_idle_at = self.media_idle_at.max(media.end);
        WriteReported {
            reported_at: media.end,
            on_media_at: media.end,
            phases: phases(now, media),
        }
    }

    /// Sends a request through channel and gate. Returns the time from its channel's start to its
    /// end.
    fn serve(&mut self, now: Time, sectors: u64, costs: Costs) -> Interval {
        let bytes = sectors * self.sector_bytes;
        let streaming = Span::of_bytes(bytes, costs.bytes_per_second);
        let operations = bytes.div_ceil(self.operation_bytes_max);
        let Some(mut channel) = self.channels.peek_mut() else {
            unreachable!("no channels")
        };
        let start = channel.0.max(now);
        let admitted = start.max(self.gate_free_at);
        self.gate_free_at = admitted + streaming.max(costs.operation * operations);
        channel.0 = admitted + costs.latency;
        Interval::new(start, channel.0 + streaming)
    }

    fn check(&mut self, now: Time, lba: u64, sectors: u64) {
        assert!(
            now >= self.last_call,
            "a request at {now}, after one at {}",
            self.last_call
        );
        assert!(sectors > 0, "a request for no sectors");
        let end = lba.saturating_add(sectors);
        assert!(end <= self.sectors, "block {end} of {}", self.sectors);
        self.last_call = now;
    }
}

/// Phases that show all of a flash device's work as media.
fn phases(now: Time, media: Interval) -> Phases {
    let none = Interval::empty(now);
    Phases {
        overhead: none,
        seek: none,
        rotate: none,
        media,
        cylinder: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::parts;

    /// Sends `count` reads of `sectors` each at time zero. Returns the seconds until the last is
    /// there.
    fn flood(parameters: &FlashParameters, count: u64, sectors: u64) -> f64 {
        let mut flash = Flash::new(parameters).unwrap();
        let ends = (0..count).map(|_| flash.begin_read(Time::ZERO, 0, sectors).in_buffer_at);
        ends.max().unwrap().as_seconds_f64()
    }

    #[test]
    fn one_request_takes_its_latency_and_its_bytes() {
        let facts = parts::nvme_7_68_tb();
        let mut flash = Flash::new(&facts).unwrap();
        let at = Time::ZERO + Span::from_ms(1);
        let read = flash.begin_read(at, 0, 8).in_buffer_at - at;
        let streaming = 4096e6 / facts.read_bytes_per_second as f64;
        assert!((read.as_ms_f64() * 1e3 - facts.read_latency_us - streaming).abs() < 1e-3);
        let at = at + Span::from_ms(1);
        assert_eq!(flash.begin_write(at, 0, 8).wants_data_at, at);
        let written = flash.data_received(at, 0, 8);
        assert_eq!(written.reported_at, flash.media_idle_at());
    }

    #[test]
    fn a_flood_reaches_the_stated_limits() {
        for facts in [parts::nvme_7_68_tb(), parts::network_disk_gp3()] {
            let seconds = facts.read_operations_per_second as f64 / 10.0;
            let small = 0.1 / flood(&facts, seconds as u64, 8);
            assert!(
                (0.98..1.01).contains(&small),
                "{}: {small} of its operations",
                facts.name
            );
            let count = facts.read_bytes_per_second / (1 << 20) / 4;
            let bytes = (count << 20) as f64 / facts.read_bytes_per_second as f64;
            let large = bytes / flood(&facts, count, (1 << 20) / u64::from(facts.sector_bytes));
            assert!(
                (0.98..1.01).contains(&large),
                "{}: {large} of its bytes",
                facts.name
            );
        }
    }

    #[test]
    fn channels_limit_what_goes_on_together() {
        let facts = FlashParameters {
            channels: 2,
            ..parts::nvme_7_68_tb()
        };
        let seconds = flood(&facts, 100, 8);
        assert!(
            (seconds * 1e6 / (50.0 * facts.read_latency_us) - 1.0).abs() < 0.02,
            "{seconds}"
        );
    }

    #[test]
    fn a_large_request_is_several_operations() {
        let facts = FlashParameters {
            read_bytes_per_second: 1 << 40,
            ..parts::network_disk_gp3()
        };
        // 1 MiB counts as four operations of 256 KiB.
        let large = flood(&facts, 30, (1 << 20) / u64::from(facts.sector_bytes));
        assert!((large * 3000.0 / 120.0 - 1.0).abs() < 0.05, "{large}");
    }

    #[test]
    fn nonsense_is_refused() {
        let no_channels = FlashParameters {
            channels: 0,
            ..parts::nvme_7_68_tb()
        };
        assert!(
            no_channels
                .validate()
                .unwrap_err()
                .to_string()
                .ends_with("channels is 0")
        );
        let late = FlashParameters {
            read_latency_us: f64::NAN,
            ..parts::nvme_7_68_tb()
        };
        assert!(
            late.validate()
                .unwrap_err()
                .to_string()
                .contains("read_latency_us")
        );
    }
}
