//! The facts about a rotating drive: each field has its unit in its name; unknown fields are
//! refused.

use serde::{Deserialize, Serialize};

use crate::error::{Check, ParameterError};

/// The parameters of a rotating drive, in a preset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskParameters {
    pub name: String,
    pub sector_bytes: u32,
    /// Surfaces, each with a head: the tracks of a cylinder.
    pub heads: u32,
    /// Physical cylinders, spare ones too. The arm starts at cylinder 0.
    pub cylinders: u32,
    /// The regions with data, in the order of logical block numbers; spare tracks lie between.
    pub regions: Vec<Region>,
    pub rotations_per_minute: f64,
    /// The time that the arm takes to another cylinder.
    pub seek: SeekCurve,
    /// The time to another head in the same cylinder. A seek includes it at no charge.
    pub head_switch_ms: f64,
    /// The time from a read command to the first motion; the media stream on meanwhile.
    pub read_overhead_ms: f64,
    /// The time from a write command until the drive wants data; earlier writes go on meanwhile.
    pub write_overhead_ms: f64,
    /// The size of the buffer, for one stream of read-ahead or for writes. Data are taken when they
    /// fit.
    pub buffer_bytes: u64,
    /// The bytes that the drive holds from the start of a read before it stops reading on; 0 for no
    /// read-ahead. Not more than the buffer.
    pub read_ahead_bytes: u64,
    /// Whether a write is reported when its data are in the buffer, rather than on the media.
    pub immediate_report: bool,
    /// The most bytes of a contiguous stream in the buffer when a write is reported at once. Not
    /// more than the buffer.
    pub write_buffer_bytes: u64,
    /// The start of the arm for a write.
    pub write_seek: WriteSeek,
}

/// A region is tracks that lie together and are formatted alike, ends included, as in data sheets
/// and Ruemmler and Wilkes's tables ("1:4-646:3").
///
/// Sector 0 of cylinder c, head h stands `c * ((heads - 1) * track_skew + cylinder_skew) +
/// h * track_skew` sectors behind the index mark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    pub first_cylinder: u32,
    pub first_head: u32,
    pub last_cylinder: u32,
    pub last_head: u32,
    pub sectors_per_track: u32,
    /// The sectors from one track's first sector to the next track's in the same cylinder.
    pub track_skew_sectors: u32,
    /// The sectors from the last track of a cylinder to the first track of the next.
    pub cylinder_skew_sectors: u32,
}

/// The time of a seek over its distance. A seek to the same cylinder takes no time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "kind")]
pub enum SeekCurve {
    /// Seeks accelerate, then coast (Ruemmler and Wilkes 1994, table 3):
    /// `short_ms + short_root_ms * sqrt(d)` up to `short_cylinders_max`,
    /// `long_ms + long_cylinder_ms * d` beyond.
    TwoPart {
        /// Constant part of short seeks.
        short_ms: f64,
        /// The time for each square root of a cylinder.
        short_root_ms: f64,
        /// The longest short seek.
        short_cylinders_max: u32,
        /// Constant part of long seeks.
        long_ms: f64,
        /// The time for each cylinder.
        long_cylinder_ms: f64,
    },
    /// The curve passes through three numbers of a data sheet: `c + a * sqrt(d - 1) + b * (d - 1)`,
    /// with `a`, `b`, `c` from Lee and Katz, "An analytic performance model of disk arrays",
    /// SIGMETRICS 1993.
    ThreePoint {
        /// The time to the next cylinder.
        single_ms: f64,
        /// The mean time over all pairs of cylinders.
        average_ms: f64,
        /// The time from the first to the last cylinder.
        full_ms: f64,
    },
}

/// The start of the arm for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteSeek {
    /// The arm starts when the data are in the buffer.
    AfterData,
    /// The arm starts when the command is taken in, so that seek and transfer overlap.
    AfterCommand,
}

impl DiskParameters {
    /// Checks that the parameters describe a possible drive.
    ///
    /// # Errors
    /// The first mistake, with the numbers.
    pub fn validate(&self) -> Result<(), ParameterError> {
        let check = Check { part: &self.name };
        check.positive("sector_bytes", self.sector_bytes.into())?;
        check.positive("heads", self.heads.into())?;
        check.that(!self.regions.is_empty(), || "no regions: no data".into())?;
        check.that(
            self.rotations_per_minute.is_finite() && self.rotations_per_minute > 0.0,
            || format!("rotations_per_minute is {}", self.rotations_per_minute),
        )?;
        for (what, ms) in [
            ("head_switch_ms", self.head_switch_ms),
            ("read_overhead_ms", self.read_overhead_ms),
            ("write_overhead_ms", self.write_overhead_ms),
        ] {
            check.duration(what, ms)?;
        }
        for (what, bytes) in [
            ("read_ahead_bytes", self.read_ahead_bytes),
            ("write_buffer_bytes", self.write_buffer_bytes),
        ] {
            check.that(bytes <= self.buffer_bytes, || {
                format!(
                    "{what} is {bytes}, more than buffer_bytes, {}",
                    self.buffer_bytes
                )
            })?;
        }
        self.validate_regions(&check)?;
        self.seek.validate(&check)
    }

    fn validate_regions(&self, check: &Check<'_>) -> Result<(), ParameterError> {
        let mut next_track = 0;
        for region in &self.regions {
            let (first, last) = (
                region.first_track(self.heads),
                region.last_track(self.heads),
            );
            let name = format!(
                "region {}/{} to {}/{}",
                region.first_cylinder, region.first_head, region.last_cylinder, region.last_head
            );
            let heads = [region.first_head, region.last_head];
            check.that(heads.iter().all(|&head| head < self.heads), || {
                format!("{name}: there are {} heads, from 0 on", self.heads)
            })?;
            check.that(region.last_cylinder < self.cylinders, || {
                format!("{name}: there are {} cylinders, from 0 on", self.cylinders)
            })?;
            check.that(first <= last, || format!("{name} ends before it starts"))?;
            check.that(next_track <= first, || {
                format!("{name} starts in the one before")
            })?;
            check.that(region.sectors_per_track > 0, || {
                format!("{name} has empty tracks")
            })?;
            next_track = last + 1;
        }
        Ok(())
    }
}

impl Region {
    /// The first track of the region, counted over all cylinders and heads.
    pub(crate) fn first_track(&self, heads: u32) -> u64 {
        u64::from(self.first_cylinder) * u64::from(heads) + u64::from(self.first_head)
    }

    /// The last track of the region, counted over all cylinders and heads.
    pub(crate) fn last_track(&self, heads: u32) -> u64 {
        u64::from(self.last_cylinder) * u64::from(heads) + u64::from(self.last_head)
    }
}

impl SeekCurve {
    /// The milliseconds for each distance below `cylinders`.
    pub(crate) fn table_ms(&self, cylinders: u32) -> impl Iterator<Item = f64> + '_ {
        let longest = f64::from(cylinders.max(2) - 1);
        (0..cylinders).map(move |distance| match (distance, self) {
            (0, _) => 0.0,
            (
                _,
                SeekCurve::TwoPart {
                    short_ms,
                    short_root_ms,
                    short_cylinders_max,
                    ..
                },
            ) if distance <= *short_cylinders_max => {
                short_ms + short_root_ms * f64::from(distance).sqrt()
            }
            (
                _,
                SeekCurve::TwoPart {
                    long_ms,
                    long_cylinder_ms,
                    ..
                },
            ) => long_ms + long_cylinder_ms * f64::from(distance),
            (
                _,
                &SeekCurve::ThreePoint {
                    single_ms,
                    average_ms,
                    full_ms,
                },
            ) => {
                let root = (-10.0 * single_ms + 15.0 * average_ms - 5.0 * full_ms)
                    / (3.0 * longest.sqrt());
                let linear =
                    (7.0 * single_ms - 15.0 * average_ms + 8.0 * full_ms) / (3.0 * longest);
                let beyond = f64::from(distance - 1);
                single_ms + root * beyond.sqrt() + linear * beyond
            }
        })
    }

    fn validate(&self, check: &Check<'_>) -> Result<(), ParameterError> {
        match self {
            SeekCurve::TwoPart {
                short_ms,
                short_root_ms,
                long_ms,
                long_cylinder_ms,
                ..
            } => {
                check.duration("seek.short_ms", *short_ms)?;
                check.duration("seek.short_root_ms", *short_root_ms)?;
                check.duration("seek.long_ms", *long_ms)?;
                check.duration("seek.long_cylinder_ms", *long_cylinder_ms)
            }
            &SeekCurve::ThreePoint {
                single_ms,
                average_ms,
                full_ms,
            } => {
                check.duration("seek.single_ms", single_ms)?;
                check.duration("seek.average_ms", average_ms)?;
                check.duration("seek.full_ms", full_ms)?;
                // Neither the root's nor the linear coefficient may be negative.
                let rises = 15.0 * average_ms >= 10.0 * single_ms + 5.0 * full_ms
                    && 7.0 * single_ms + 8.0 * full_ms >= 15.0 * average_ms;
                check.that(rises, || {
                    format!("no seek curve through {single_ms}, {average_ms} and {full_ms} ms")
                })
            }
        }
    }
}
