//! A drive model works out a drive's facts: where a logical block lies, how long a seek takes, when
//! a sector passes under the head. All drives of the kind share one model; it holds no state.
//!
//! ```text
//!   logical block -> region -> track -> cylinder, head, slot
//!
//!   cylinder 1   head 4   |50|51| .. |71| 0| .. |49|      slot: sectors behind the index mark.
//!                head 5   |58|59| ..                      8 further on: the track skew.
//!   cylinder 2   head 0   ...                             18 further on: the cylinder skew.
//! ```
//!
//! A slot begins `slot * revolution / sectors_per_track` after the index mark, rounded down to the
//! picosecond, never added up from rounded sectors: so a track closes exactly, and a sector begins
//! at the very picosecond at which the one before it ends.
//!
//! Memory: 8 bytes for each cylinder (the seek table). Time: a few divisions for each look-up.

use penstock_layout::exact;
use std::sync::Arc;

use super::parameters::DiskParameters;
use crate::error::ParameterError;
use crate::time::{Span, Time};

/// A drive model is a kind of drive, worked out from its [`DiskParameters`].
#[derive(Debug)]
pub struct DriveModel {
    pub(super) parameters: DiskParameters,
    pub(super) read_overhead: Span,
    pub(super) write_overhead: Span,
    pub(super) read_ahead_sectors: u64,
    regions: Vec<Formatted>,
    sectors: u64,
    heads: u64,
    head_switch: Span,
    revolution_ps: u64,
    seeks: Vec<Span>,
}

/// A region, with numbers that are often needed.
#[derive(Debug)]
struct Formatted {
    first_lba: u64,
    first_track: u64,
    sectors_per_track: u64,
    /// The skews, modulo the track.
    skew_per_cylinder: u64,
    skew_per_head: u64,
}

/// The address of a logical block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskAddress {
    pub cylinder: u32,
    pub head: u32,
    /// The sector number on the track.
    pub sector: u32,
    /// The slot, in sectors behind the index mark.
    pub slot: u32,
    /// The sectors on this track.
    pub sectors_per_track: u32,
}

impl DiskAddress {
    /// The number of sectors from this one to the end of its track.
    pub fn left_on_track(&self) -> u64 {
        u64::from(self.sectors_per_track - self.sector)
    }
}

impl DriveModel {
    /// Works out the model.
    ///
    /// # Errors
    /// When the parameters do not describe a drive.
    pub fn new(parameters: &DiskParameters) -> Result<Arc<DriveModel>, ParameterError> {
        parameters.validate()?;
        let heads = u64::from(parameters.heads);
        let mut regions = Vec::with_capacity(parameters.regions.len());
        let mut sectors = 0;
        for region in &parameters.regions {
            let sectors_per_track = u64::from(region.sectors_per_track);
            let skew_per_head = u64::from(region.track_skew_sectors);
            let cylinder_skew = u64::from(region.cylinder_skew_sectors);
            let first_track = region.first_track(parameters.heads);
            regions.push(Formatted {
                first_lba: sectors,
                first_track,
                sectors_per_track,
                skew_per_cylinder: ((heads - 1) * skew_per_head + cylinder_skew)
                    % sectors_per_track,
                skew_per_head: skew_per_head % sectors_per_track,
            });
            sectors += (region.last_track(parameters.heads) + 1 - first_track) * sectors_per_track;
        }
        Ok(Arc::new(DriveModel {
            read_overhead: Span::from_ms_f64(parameters.read_overhead_ms),
            write_overhead: Span::from_ms_f64(parameters.write_overhead_ms),
            read_ahead_sectors: parameters.read_ahead_bytes / u64::from(parameters.sector_bytes),
            regions,
            sectors,
            heads,
            head_switch: Span::from_ms_f64(parameters.head_switch_ms),
            revolution_ps: Span::from_ms_f64(60_000.0 / parameters.rotations_per_minute).as_ps(),
            seeks: parameters
                .seek
                .table_ms(parameters.cylinders)
                .map(Span::from_ms_f64)
                .collect(),
            parameters: parameters.clone(),
        }))
    }

    pub fn parameters(&self) -> &DiskParameters {
        &self.parameters
    }

    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    pub fn sector_bytes(&self) -> u64 {
        u64::from(self.parameters.sector_bytes)
    }

    /// The time of one revolution.
    pub fn revolution(&self) -> Span {
        Span::from_ps(self.revolution_ps)
    }

    /// The time of a seek over `distance` cylinders.
    ///
    /// # Panics
    /// When the drive has fewer cylinders.
    pub fn seek(&self, distance: u32) -> Span {
        self.seeks[distance as usize]
    }

    /// The time from one track to another: a seek, a change of heads, or nothing.
    pub fn reposition(&self, from: &DiskAddress, to: &DiskAddress) -> Span {
        match (from.cylinder.abs_diff(to.cylinder), from.head == to.head) {
            (0, true) => Span::ZERO,
            (0, false) => self.head_switch,
            (distance, _) => self.seek(distance),
        }
    }

    /// The address of logical block `lba`.
    ///
    /// # Panics
    /// When the drive does not have the block.
    pub fn place(&self, lba: u64) -> DiskAddress {
        assert!(
            lba < self.sectors,
            "block {lba} of a drive with {}",
            self.sectors
        );
        // There are few regions (3 or 16), and the search ends at once in the first of them.
        let after = self
            .regions
            .iter()
            .position(|region| lba < region.first_lba);
        let region = &self.regions[after.unwrap_or(self.regions.len()) - 1];
        let (within, per_track) = (lba - region.first_lba, region.sectors_per_track);
        let (track, sector) = (region.first_track + within / per_track, within % per_track);
        let (cylinder, head) = (track / self.heads, track % self.heads);
        let slot = cylinder * region.skew_per_cylinder + head * region.skew_per_head + sector;
        DiskAddress {
            cylinder: exact::<u32>(cylinder),
            head: exact::<u32>(head),
            sector: exact::<u32>(sector),
            slot: exact::<u32>(slot % per_track),
            sectors_per_track: exact::<u32>(per_track),
        }
    }

    /// The time from the index mark until `slots` sectors of `place`'s track have passed it.
    fn edge_ps(&self, place: &DiskAddress, slots: u64) -> u64 {
        slots * self.revolution_ps / u64::from(place.sectors_per_track)
    }

    /// The time from `now` until the sector at `place` begins to pass under the head, on a drive
    /// that stood `initial_rotation` behind the index mark at time zero.
    pub fn rotation(&self, now: Time, initial_rotation: Span, place: &DiskAddress) -> Span {
        let angle = (now + initial_rotation).as_ps() % self.revolution_ps;
        let target = self.edge_ps(place, u64::from(place.slot));
        let ahead = if target >= angle {
            target
        } else {
            target + self.revolution_ps
        };
        Span::from_ps(ahead - angle)
    }

    /// The time in which `sectors` of one track pass, from `place` on.
    pub fn passage(&self, place: &DiskAddress, sectors: u64) -> Span {
        let slot = u64::from(place.slot);
        Span::from_ps(self.edge_ps(place, slot + sectors) - self.edge_ps(place, slot))
    }

    /// The number of whole sectors of one track that pass in `elapsed`, from `place` on: the
    /// inverse of [`passage`](Self::passage).
    pub fn passed(&self, place: &DiskAddress, elapsed: Span) -> u64 {
        let (slot, per_track) = (u64::from(place.slot), u64::from(place.sectors_per_track));
        let angle = self.edge_ps(place, slot) + elapsed.as_ps();
        // The greatest n with n * revolution / per_track, rounded down, not beyond the angle.
        ((angle + 1) * per_track - 1) / self.revolution_ps - slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::parts;

    fn hp() -> Arc<DriveModel> {
        DriveModel::new(&parts::hp_97560()).unwrap()
    }

    #[test]
    fn capacity_is_that_of_the_data_sheets() {
        assert_eq!(hp().sectors(), 2_647_080);
        assert_eq!(hp().sectors() * 512 / 8192, 165_442);
        assert_eq!(hp().sectors() * 512, 1_355_304_960);
    }

    #[test]
    fn places() {
        let region = 12_255 * 72;
        #[rustfmt::skip]
        let table = [
            // lba               cylinder head sector slot
            (0,                     1,  4,  0, 50),
            (71,                    1,  4, 71, 49),
            (72,                    1,  5,  0, 58),
            (15 * 72,               2,  0,  0, (2 * 162) % 72),
            (region - 1,          646,  3, 71, (646 * 162 + 24 + 71) % 72),
            (region,              654,  0,  0, (654 * 162) % 72),
            (2 * region,         1308,  0,  0, (1308 * 162) % 72),
            (3 * region - 1,     1952, 18, 71, (1952 * 162 + 144 + 71) % 72),
        ];
        for (lba, cylinder, head, sector, slot) in table {
            let place = DiskAddress {
                cylinder,
                head,
                sector,
                slot,
                sectors_per_track: 72,
            };
            assert_eq!(hp().place(lba), place, "block {lba}");
        }
    }

    #[test]
    fn seeks_are_those_of_the_curve() {
        let ms = |distance| hp().seek(distance).as_ms_f64();
        assert_eq!(ms(0), 0.0);
        assert!((ms(1) - 3.64).abs() < 1e-9, "one cylinder");
        assert!(
            (ms(383) - 11.068).abs() < 1e-3 && (ms(384) - 11.072).abs() < 1e-9,
            "both parts"
        );
        assert!((ms(1961) - 23.688).abs() < 1e-9, "full stroke");
        let cylinders = 1935u32;
        let pairs = u64::from(cylinders).pow(2) as f64;
        let mean: f64 = (1..cylinders)
            .map(|d| 2.0 * f64::from(cylinders - d) * ms(d))
            .sum::<f64>()
            / pairs;
        assert!(
            (mean - 12.75).abs() < 0.01,
            "{mean} by integration of the curve: 12.75"
        );
    }

    #[test]
    fn repositioning() {
        let model = hp();
        let at = |lba| model.place(lba);
        assert_eq!(model.reposition(&at(0), &at(71)), Span::ZERO, "same track");
        assert_eq!(
            model.reposition(&at(0), &at(72)),
            Span::from_us(1_600),
            "other head"
        );
        assert_eq!(
            model.reposition(&at(0), &at(15 * 72)),
            Span::from_us(3_640),
            "next cylinder"
        );
    }

    #[test]
    fn a_revolution_is_that_of_4002_rpm() {
        assert_eq!(hp().revolution().as_ps(), 14_992_503_748);
        let first = hp().place(0);
        assert_eq!(hp().passage(&first, 72), hp().revolution());
        assert!((hp().passage(&first, 1).as_ms_f64() - 0.208229).abs() < 1e-6);
    }

    #[test]
    fn rotation_brings_each_sector_round_once() {
        let model = hp();
        for lba in [0, 1, 21, 22, 71, 100, 2_000_000] {
            let place = model.place(lba);
            let slot_ps = u64::from(place.slot) * model.revolution_ps / 72;
            let at_mark = model.rotation(Time::ZERO, Span::ZERO, &place);
            assert_eq!(at_mark.as_ps(), slot_ps, "from the index mark");
            let there = Time::ZERO + at_mark;
            assert_eq!(
                model.rotation(there, Span::ZERO, &place),
                Span::ZERO,
                "just in time"
            );
            let late = there + Span::from_ps(1);
            let next = model.rotation(late, Span::ZERO, &place) + Span::from_ps(1);
            assert_eq!(next, model.revolution(), "just missed");
            let turned = model.rotation(Time::ZERO, Span::from_ps(slot_ps), &place);
            assert_eq!(turned, Span::ZERO, "initial rotation counts");
        }
    }

    #[test]
    fn passed_is_the_inverse_of_passage() {
        for model in [hp(), DriveModel::new(&parts::nearline_18_tb()).unwrap()] {
            for lba in [0, 5, 21, 22, 23, 71] {
                let place = model.place(lba);
                for sectors in 0..place.left_on_track().min(80) {
                    let span = model.passage(&place, sectors);
                    assert_eq!(model.passed(&place, span), sectors);
                    if sectors > 0 {
                        let short = span.saturating_sub(Span::from_ps(1));
                        assert_eq!(model.passed(&place, short), sectors - 1);
                    }
                }
            }
        }
    }
}
