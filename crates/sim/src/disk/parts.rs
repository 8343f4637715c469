//! Known devices, every number with its source.
//!
//! Marks: **S**, seen in a stored copy of the named source; **R**, recalled from the named source,
//! which was not at hand; **D**, derived here from other numbers by arithmetic that is shown;
//! **E**, an estimate, because no data sheet states it. Nothing is fitted to a result.

use super::flash::FlashParameters;
use super::parameters::{DiskParameters, Region, SeekCurve, WriteSeek};

/// The "10 Mbytes/s" of the SCSI-2 bus (TR94-226, Table 1; TOCS 1997, Table I), by the article's
/// footnote 1 (MB = 2^20): 8 KB in 0.781 ms. **S**
pub const SCSI_2_BYTES_PER_SECOND: u64 = 10 << 20;
/// The rate of PCI Express 4.0 x4: 16e9 transfers/s * 4 lanes * 128/130 / 8, before packet headers.
/// **D**
pub const PCIE_4_X4_BYTES_PER_SECOND: u64 = 7_876_923_076;

/// The HP 97560, 1.3 GB, of Kotz's simulations.
///
/// Sources: Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer, March
/// 1994 (RW), as quoted by public simulators; data sheet abstracts (DS). **S**
///
/// | number | value | source |
/// |---|---|---|
/// | sector | 512 bytes | RW, DS |
/// | heads | 19 | RW, DS |
/// | cylinders | 1962 physical, 1935 with data | RW; DS: 1355 MB formatted |
/// | regions | 1/4 to 646/3, 654/0 to 1298/18, 1308/0 to 1952/18 | RW's table in a simulator |
/// | sectors per track | 72, no zones | RW, DS |
/// | track skew, cylinder skew | 8, 18 sectors | RW |
/// | rotation | 4002 rpm | RW, DS |
/// | seek | 3.24 + 0.400 sqrt(d) ms to d = 383, 8.00 + 0.008 d ms beyond | RW |
/// | head switch | 1.6 ms | RW |
/// | command overhead | 2.2 ms, reads and writes | RW |
/// | buffer, and so the most read-ahead | 128 KB | RW, DS |
/// | immediate report; write buffer | yes; 64 KB, the write fence | RW |
/// | start of a write's seek | after its data | inferred from published write rates |
pub fn hp_97560() -> DiskParameters {
    let region = |first_cylinder, first_head, last_cylinder, last_head| Region {
        first_cylinder,
        first_head,
        last_cylinder,
        last_head,
        sectors_per_track: 72,
        track_skew_sectors: 8,
        cylinder_skew_sectors: 18,
    };
    DiskParameters {
        name: "HP 97560".into(),
        sector_bytes: 512,
        heads: 19,
        cylinders: 1962,
        regions: vec![
            region(1, 4, 646, 3),
            region(654, 0, 1298, 18),
            region(1308, 0, 1952, 18),
        ],
        rotations_per_minute: 4002.0,
        seek: SeekCurve::TwoPart {
            short_ms: 3.24,
            short_root_ms: 0.400,
            short_cylinders_max: 383,
            long_ms: 8.00,
            long_cylinder_ms: 0.008,
        },
        head_switch_ms: 1.6,
        read_overhead_ms: 2.2,
        write_overhead_ms: 2.2,
        buffer_bytes: 128 << 10,
        read_ahead_bytes: 128 << 10,
        immediate_report: true,
        write_buffer_bytes: 64 << 10,
        write_seek: WriteSeek::AfterData,
    }
}

/// A nearline drive of 18 TB, 7200 rpm, SATA.
///
/// Sources: Seagate, "Exos X18 SATA Product Manual" and data sheet, ST18000NM000J (X18), and quotes
/// from them in the press: computerbase.de, November 2022 (CB); AnandTech, November 2019 (AT);
/// Tom's Hardware on the Exos 2X18 of the same family (TH). Western Digital, "Ultrastar DC HC310,
/// 3.5 inch Serial ATA, Hard Disk Drive Specifications", revision 1.4, section 4.5.1 (HC310), for
/// the seek times, which Seagate does not publish.
///
/// | number | value | source |
/// |---|---|---|
/// | rotation | 7200 rpm | X18 **R**, HC310 **S**, TH **S** |
/// | heads | 18, of nine platters, as expected before the drive came | AT **S** |
/// | capacity | 18.0e12 bytes (35,156,656,128 sectors) | X18 **R** |
/// | sector | 512 bytes, emulated | X18 **S** |
/// | sustained rate, outer | 270e6 bytes/s | CB **S** |
/// | sectors per track, outer | 4560 = 270e6 / 120 revolutions / 512, over the skew: 4394 * (1 + 0.038) | **D** |
/// | sectors per track, inner | 2192: 0.48 of the outer, the ratio of usable radii of a 3.5 inch disk | **E** |
/// | zones | 16, of 36,158 cylinders, evenly less from outer to inner | **E** |
/// | cylinders | 578,528: the capacity over 18 heads and 3376 sectors a track | **D** |
/// | single-track seek, also head switch | 0.32 ms: writes, typical (reads 0.23) | HC310 **S** |
/// | average seek | 7.4 ms: reads, typical (writes 8.2) | HC310 **S** |
/// | full stroke | 16 ms | **E** |
/// | skew, tracks and cylinders | 0.32 ms, rounded up to sectors | **D** |
/// | command overhead | 0.2 ms | **E** |
/// | buffer | 256 MB | TH **S** |
/// | read-ahead | 4 MB, about two tracks | **E** |
/// | write buffer | 64 MB | **E** |
///
/// Queued commands are not reordered: the caller sorts.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounded numbers below 5,000"
)]
pub fn nearline_18_tb() -> DiskParameters {
    const ZONES: u32 = 16;
    const ZONE_CYLINDERS: u32 = 36_158;
    const OUTER_SECTORS: u32 = 4560;
    const INNER_SECTORS: u32 = 2192;
    let zone = |zone: u32| {
        let inward = f64::from((OUTER_SECTORS - INNER_SECTORS) * zone) / f64::from(ZONES - 1);
        let sectors_per_track = OUTER_SECTORS - (inward / 8.0).round() as u32 * 8;
        let skew_sectors = (f64::from(sectors_per_track) * 0.32 * 7200.0 / 60_000.0).ceil() as u32;
        Region {
            first_cylinder: zone * ZONE_CYLINDERS,
            first_head: 0,
            last_cylinder: (zone + 1) * ZONE_CYLINDERS - 1,
            last_head: 17,
            sectors_per_track,
            track_skew_sectors: skew_sectors,
            cylinder_skew_sectors: skew_sectors,
        }
    };
    DiskParameters {
        name: "nearline 18 TB (Exos X18)".into(),
        sector_bytes: 512,
        heads: 18,
        cylinders: ZONES * ZONE_CYLINDERS,
        regions: (0..ZONES).map(zone).collect(),
        rotations_per_minute: 7200.0,
        seek: SeekCurve::ThreePoint {
            single_ms: 0.32,
            average_ms: 7.4,
            full_ms: 16.0,
        },
        head_switch_ms: 0.32,
        read_overhead_ms: 0.2,
        write_overhead_ms: 0.2,
        buffer_bytes: 256 << 20,
        read_ahead_bytes: 4 << 20,
        immediate_report: true,
        write_buffer_bytes: 64 << 20,
        write_seek: WriteSeek::AfterCommand,
    }
}

/// An NVMe SSD of 7.68 TB on PCI Express 4.0.
///
/// Source: Intel, "SSD D7-P5500 Series" product brief, June 2020 (PB), its sequential and random
/// rates seen in press reports of the announcement (ilsoftware.it, geektopia.es); Intel ARK, same
/// product (A). Lenovo's product guide of Intel's P4500 (L), the generation before, has 85 and 20
/// us. **S**
///
/// | number | value | source |
/// |---|---|---|
/// | sequential read, write | 7000e6, 4300e6 bytes/s | PB **S** |
/// | random read, write of 4 KiB | 1,000,000, 130,000 a second | PB **S** |
/// | latency of one read, one write | 78, 15 us | A **R**; near L |
/// | capacity | 7.68e12 bytes, in sectors of 512 | PB **S** |
/// | channels | 128: 78 by Little's law for the random reads (1e6/s * 78 us), to the next power of two | **D** |
/// | operation | up to 128 KiB: a usual largest transfer | **E** |
pub fn nvme_7_68_tb() -> FlashParameters {
    FlashParameters {
        name: "NVMe 7.68 TB (D7-P5500)".into(),
        sector_bytes: 512,
        sectors: 7_680_000_000_000 / 512,
        channels: 128,
        operation_bytes_max: 128 << 10,
        read_latency_us: 78.0,
        write_latency_us: 15.0,
        read_bytes_per_second: 7_000_000_000,
        write_bytes_per_second: 4_300_000_000,
        read_operations_per_second: 1_000_000,
        write_operations_per_second: 130_000,
    }
}

/// A network disk of a cloud: Amazon EBS gp3 with its default performance, 1 TiB.
///
/// Source: AWS, "Amazon EBS volume types" (VT) and "Amazon EBS I/O characteristics and monitoring"
/// (IO), in the EBS User Guide.
///
/// | number | value | source |
/// |---|---|---|
/// | operations | 3,000 a second, reads and writes (baseline) | VT **S** |
/// | throughput | 125 MiB/s (baseline) | VT **S** |
/// | largest operation | 256 KiB; larger ones are split, and count as several | IO **S** |
/// | latency | 1 ms: only "single-digit millisecond" is promised | VT **S**, value **E** |
/// | channels | 64: enough that the queue is not the limit | **E** |
///
/// Contiguous small operations, which EBS may merge into one, count one by one.
pub fn network_disk_gp3() -> FlashParameters {
    FlashParameters {
        name: "network disk (EBS gp3)".into(),
        sector_bytes: 4096,
        sectors: (1 << 40) / 4096,
        channels: 64,
        operation_bytes_max: 256 << 10,
        read_latency_us: 1000.0,
        write_latency_us: 1000.0,
        read_bytes_per_second: 125 << 20,
        write_bytes_per_second: 125 << 20,
        read_operations_per_second: 3_000,
        write_operations_per_second: 3_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Drive, DriveModel};
    use crate::time::{Span, Time};

    #[test]
    fn all_are_devices_that_could_be() {
        hp_97560().validate().unwrap();
        nearline_18_tb().validate().unwrap();
        nvme_7_68_tb().validate().unwrap();
        network_disk_gp3().validate().unwrap();
    }

    #[test]
    fn the_nearline_drive_is_that_of_its_data_sheet() {
        let model = DriveModel::new(&nearline_18_tb()).unwrap();
        let capacity = (model.sectors() * 512) as f64;
        assert!((capacity / 18e12 - 1.0).abs() < 3e-4, "{capacity}");
        let cylinders = u64::from(nearline_18_tb().cylinders);
        let pairs =
            (1..cylinders).map(|d| 2.0 * (cylinders - d) as f64 * model.seek(d as u32).as_ms_f64());
        let mean = pairs.sum::<f64>() / (cylinders * cylinders) as f64;
        assert!((mean - 7.4).abs() < 0.05, "average seek {mean}");
        for (lba, rate) in [(0, 270e6), (model.sectors() - 1_000_000, 130e6)] {
            let mut drive = Drive::new(&model, Span::ZERO);
            let bytes = 900_000.0 * 512.0;
            let read = drive
                .begin_read(Time::ZERO, lba, 900_000)
                .phases
                .media
                .span();
            let measured = bytes / read.as_seconds_f64();
            assert!((measured / rate - 1.0).abs() < 0.01, "{measured} at {lba}");
        }
    }

    #[test]
    fn parameters_pass_through_serde_and_refuse_what_they_do_not_know() {
        let text = serde_json::to_string(&hp_97560()).unwrap();
        assert_eq!(
            serde_json::from_str::<DiskParameters>(&text).unwrap(),
            hp_97560()
        );
        let more = text.replacen('{', "{\"colour\":\"grey\",", 1);
        assert!(serde_json::from_str::<DiskParameters>(&more).is_err());
        let text = serde_json::to_string(&nvme_7_68_tb()).unwrap();
        assert_eq!(
            serde_json::from_str::<FlashParameters>(&text).unwrap(),
            nvme_7_68_tb()
        );
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        let hp = hp_97560;
        #[rustfmt::skip]
        let table = [
            (DiskParameters { heads: 0, ..hp() }, "heads is 0"),
            (DiskParameters { regions: vec![], ..hp() }, "no regions"),
            (DiskParameters { rotations_per_minute: 0.0, ..hp() }, "rotations_per_minute is 0"),
            (DiskParameters { head_switch_ms: -1.0, ..hp() }, "head_switch_ms is -1"),
            (DiskParameters { read_ahead_bytes: 1 << 20, ..hp() }, "more than buffer_bytes"),
            (DiskParameters { heads: 4, ..hp() }, "there are 4 heads"),
            (DiskParameters { cylinders: 1952, ..hp() }, "there are 1952 cylinders"),
            (
                DiskParameters { regions: hp().regions.into_iter().rev().collect(), ..hp() },
                "starts in the one before",
            ),
            (
                DiskParameters {
                    seek: SeekCurve::ThreePoint { single_ms: 1.0, average_ms: 9.0, full_ms: 8.0 },
                    ..hp()
                },
                "no seek curve through 1, 9 and 8 ms",
            ),
        ];
        for (parameters, what) in table {
            let error = parameters.validate().unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
