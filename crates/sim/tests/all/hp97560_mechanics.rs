//! The HP 97560, command by command: seek, rotation, tracks, read-ahead, write buffer.

use crate::common::*;
use penstock_sim::{DiskParameters, Drive, Phases, Span, Time, disk::parts};

const TRACK: u64 = 72;
const CYLINDER: u64 = 72 * 19;
/// The first block of cylinder 2, so that tracks and cylinders are counted from a boundary.
const BOUNDARY: u64 = 15 * TRACK;

fn ms(span: Span) -> f64 {
    span.as_ms_f64()
}

fn near(measured: f64, expected: f64) -> bool {
    (measured - expected).abs() < 1e-3
}

/// The phases of a read at `lba` by a drive that has just read at `from`.
fn read_after(from: u64, lba: u64) -> Phases {
    let mut drive = Drive::new(&hp(), Span::ZERO);
    let first = drive.begin_read(Time::ZERO, from, BLOCK_SECTORS);
    drive
        .begin_read(first.in_buffer_at, lba, BLOCK_SECTORS)
        .phases
}

#[test]
fn seeks_and_switches() {
    let last = hp().sectors() - BLOCK_SECTORS;
    #[rustfmt::skip]
    let table = [
        // from,  to,                        seek
        (0,        last,                     8.0 + 0.008 * 1951.0),  // over all data
        (last,     0,                        8.0 + 0.008 * 1951.0),
        (BOUNDARY, BOUNDARY + CYLINDER,      3.64),                  // a single cylinder
        (BOUNDARY, BOUNDARY - TRACK,         3.64),                  // the one before
        (BOUNDARY, BOUNDARY + 4 * TRACK,     1.6),                   // another head
        (BOUNDARY, BOUNDARY + 48,            0.0),                   // further on this track
        (BOUNDARY, BOUNDARY + 383 * CYLINDER, 3.24 + 0.4 * 383f64.sqrt()),
        (BOUNDARY, BOUNDARY + 384 * CYLINDER, 8.0 + 0.008 * 384.0),
    ];
    for (from, to, seek) in table {
        let phases = read_after(from, to);
        assert!(
            near(ms(phases.seek.span()), seek),
            "{from} to {to}: {:?}",
            phases.seek
        );
        assert!(near(ms(phases.overhead.span()), 2.2));
        assert_eq!(phases.overhead.end, phases.seek.start);
        assert_eq!(phases.seek.end, phases.rotate.start);
        assert_eq!(phases.rotate.end, phases.media.start);
    }
}

#[test]
fn the_full_stroke_from_the_parked_arm() {
    // The arm starts at physical cylinder 0; the last data cylinder is 1952.
    let mut drive = Drive::new(&hp(), Span::ZERO);
    let read = drive.begin_read(Time::ZERO, hp().sectors() - BLOCK_SECTORS, BLOCK_SECTORS);
    assert!(near(ms(read.phases.seek.span()), 8.0 + 0.008 * 1952.0));
    assert_eq!(read.phases.cylinder, 1952);
    assert!(
        near(ms(hp().seek(1961)), 23.688),
        "to the last physical cylinder"
    );
}

#[test]
fn rotation_is_where_the_platter_is() {
    let sector = hp().revolution().as_ps() / 72;
    // Block 0 stands 50 sectors behind the index; the arm is there after 2.2 + 3.64 ms.
    for turned in [0, 10, 49, 50, 71] {
        let mut drive = Drive::new(&hp(), Span::from_ps(turned * sector));
        let read = drive.begin_read(Time::ZERO, 0, BLOCK_SECTORS);
        let passes = (50.0 - turned as f64).rem_euclid(72.0) * 14.9925 / 72.0;
        let expected = (passes - 5.84).rem_euclid(14.9925);
        assert!(
            near(ms(read.phases.rotate.span()), expected),
            "turned by {turned} sectors"
        );
        assert!(near(ms(read.phases.media.span()), 16.0 * 14.9925 / 72.0));
    }
}

#[test]
fn a_block_over_two_tracks_takes_the_skew_as_well() {
    let phases = read_after(0, BOUNDARY + 64);
    assert!(
        near(ms(phases.media.span()), (16.0 + 8.0) * 14.9925 / 72.0),
        "track skew"
    );
    let phases = read_after(0, BOUNDARY + CYLINDER - 8);
    assert!(
        near(ms(phases.media.span()), (16.0 + 18.0) * 14.9925 / 72.0),
        "cylinder skew"
    );
}

#[test]
fn sequential_rates() {
    let media = |sectors: u64| {
        let mut drive = Drive::new(&hp(), Span::ZERO);
        drive
            .begin_read(Time::ZERO, BOUNDARY, sectors)
            .phases
            .media
            .span()
    };
    // The rate is taken to the start of the following sector, so that each track counts with its
    // skew.
    let mb_s = |sectors: u64| {
        let seconds = (media(sectors + 1) - media(1)).as_seconds_f64();
        (sectors * 512) as f64 / MIB / seconds
    };
    let track = (TRACK * 512) as f64 / MIB / media(TRACK).as_seconds_f64();
    assert_near("MB/s on one track", track, 2.345, 0.1);
    assert_near(
        "MB/s over the tracks of a cylinder",
        mb_s(18 * TRACK),
        2.1104,
        0.1,
    );
    assert_near("MB/s over cylinders", mb_s(600 * CYLINDER), 2.0966, 0.1);
    assert_near(
        "MB/s over cylinders, 16 disks",
        16.0 * mb_s(600 * CYLINDER),
        33.55,
        0.1,
    );
}

#[test]
fn a_contiguous_file_streams_block_by_block() {
    // 80 blocks from a cylinder boundary: 1280 sectors and 17 track skews pass.
    let mut host = Host::new(&hp(), Span::ZERO);
    let first = host.read(BOUNDARY).0;
    let blocks = (1..80).map(|block| BOUNDARY + block * BLOCK_SECTORS);
    let mut last = first;
    for lba in blocks {
        last = host.read(lba).0;
        assert!(last.hit);
        assert!(last.phases.seek.is_empty() && last.phases.rotate.is_empty());
    }
    let media = last.in_buffer_at - first.phases.media.start;
    assert!(
        near(ms(media), (1280.0 + 17.0 * 8.0) * 14.9925 / 72.0),
        "{media}: 294.85 ms"
    );
    // The file starts at logical block 0, cylinder 1, head 4: one of the 17 skews is a cylinder
    // skew.
    let mut host = Host::new(&hp(), Span::ZERO);
    let first = host.read(0).0.phases.media.start;
    let end = host.read_all((1..80).map(|block| block * BLOCK_SECTORS));
    let media = ms(end - first) - 0.78125;
    assert!(
        near(media, (1280.0 + 16.0 * 8.0 + 18.0) * 14.9925 / 72.0),
        "{media}: 296.93 ms"
    );
}

/// Blocks 5 apart resonate. If one track end lies between, 80 sectors and the skew are a revolution
/// and a block: the wanted block starts exactly where the last one ended, is always missed, and
/// each read costs 88 sectors.
#[test]
fn resonance_of_blocks_five_apart() {
    let mut host = Host::new(&hp(), Span::ZERO);
    let sector = 14.9925 / 72.0;
    let mut before: Option<(u64, Time)> = None;
    let (mut exact, mut all) = (0, 0.0);
    for step in 0..95 {
        let lba = BOUNDARY + step * 80;
        let read = host.read(lba).0;
        assert!(!read.hit, "ahead in the window is a miss");
        let start = read.phases.media.start;
        if let Some((earlier, begun)) = before {
            let (from, to) = (hp().place(earlier), hp().place(lba));
            let cylinders = f64::from(to.cylinder - from.cylinder);
            let tracks = (lba / TRACK - earlier / TRACK) as f64 - cylinders;
            let cost = ms(start - begun) / sector;
            let skewed = 80.0 + 8.0 * tracks + 18.0 * cylinders;
            assert!(
                (cost - skewed).abs() < 1e-3,
                "{cost} sectors, not {skewed}, at {lba}"
            );
            exact += u32::from((cost - 88.0).abs() < 1e-3);
            all += cost;
        }
        before = Some((lba, start));
    }
    assert!(exact > 75, "only {exact} of 94 cost 88 sectors (18.32 ms)");
    println!(
        "mean {:.2} sectors, {:.2} ms; by arithmetic 88, 18.32",
        all / 94.0,
        all / 94.0 * sector
    );
}

/// The disk's part of the report's rb pattern, contiguous, 8 KB, first come, first served: each of
/// 16 clients reads 5 blocks, each read is followed by a prefetch of the next block, and the last
/// prefetch of each client but one is for nothing. TR Table 4: 5.6 MB/s.
#[test]
fn the_caching_rb_pattern() {
    let firsts = (0..16).map(|client| client * 5);
    let rounds = (0..6).flat_map(|round| firsts.clone().map(move |first| first + round));
    let blocks: Vec<u64> = rounds.filter(|&block| block < 80).collect();
    assert_eq!(blocks.len(), 95);
    let hp = hp();
    let ends = (0..DISKS).map(|disk| {
        let rotation = random_rotation(&hp, &mut penstock_sim::Random::of(1, disk));
        Host::new(&hp, rotation).read_all(blocks.iter().map(|block| block * BLOCK_SECTORS))
    });
    let mb_s = throughput(80, ends.max().unwrap());
    assert_near("contiguous rb, first come first served", mb_s, 5.6, 4.0);
}

#[test]
fn read_ahead_ends_with_a_full_buffer() {
    let mut drive = Drive::new(&hp(), Span::ZERO);
    let first = drive.begin_read(Time::ZERO, BOUNDARY, BLOCK_SECTORS);
    // A second later 128 KB, 256 sectors, are in the buffer, and the head waits behind them.
    let later = first.in_buffer_at + Span::from_seconds(1);
    let cases = [
        (0, true),
        (16, true),
        (240, true),
        (256, false),
        (257, false),
    ];
    for (beyond, hit) in cases {
        let mut drive = drive.clone();
        let read = drive.begin_read(later, BOUNDARY + beyond, BLOCK_SECTORS);
        assert_eq!(read.hit, hit, "{beyond} sectors on");
        if hit {
            assert!(
                near(ms(read.in_buffer_at - later), 2.2),
                "nothing but the overhead"
            );
        }
    }
    // A block that is half in the buffer goes on when the rest comes round.
    let half = drive.begin_read(later, BOUNDARY + 248, BLOCK_SECTORS);
    let wait = ms(half.in_buffer_at - later);
    assert!(
        half.hit && wait > 2.2 + 1.6 && wait < 2.2 + 15.0 + 3.4,
        "{wait}"
    );
}

#[test]
fn a_read_just_ahead_of_the_stream_is_a_miss() {
    let mut drive = Drive::new(&hp(), Span::ZERO);
    let first = drive.begin_read(Time::ZERO, BOUNDARY, BLOCK_SECTORS);
    // With the overhead, 2.2 ms, ten whole sectors have passed: 16 to 26; the next is 26.
    let hit_at = |lba: u64| drive.clone().begin_read(first.in_buffer_at, lba, 16).hit;
    let hits: Vec<bool> = (24..30).map(|sector| hit_at(BOUNDARY + sector)).collect();
    assert_eq!(hits, [true, true, true, false, false, false]);
}

#[test]
fn writes_stream_without_losing_a_revolution() {
    let mut host = Host::new(&hp(), Span::ZERO);
    let mut last: Option<Time> = None;
    for block in 0..100 {
        let write = host.write(BOUNDARY + block * BLOCK_SECTORS);
        let skew = write.phases.media.start - last.unwrap_or(write.phases.media.start);
        assert!(
            ms(skew) < 18.0 * 14.9925 / 72.0 + 1e-3,
            "lost a revolution at {block}"
        );
        assert!(write.reported_at <= write.on_media_at);
        last = Some(write.on_media_at);
    }
}

#[test]
fn the_write_buffer_holds_eight_blocks() {
    let mut host = Host::new(&hp(), Span::ZERO);
    host.turnaround = Span::ZERO;
    let writes: Vec<_> = (0..20)
        .map(|block| host.write(BOUNDARY + block * 16))
        .collect();
    for (index, write) in writes.iter().enumerate() {
        let unwritten = writes[..=index]
            .iter()
            .filter(|w| w.on_media_at > write.reported_at);
        assert!(unwritten.count() <= 8, "at write {index}");
    }
    assert!(writes[19].reported_at < writes[19].on_media_at);
    assert_eq!(host.drive.media_idle_at(), writes[19].on_media_at);
}

#[test]
fn a_write_elsewhere_waits_for_the_one_before() {
    let mut host = Host::new(&hp(), Span::ZERO);
    let first = host.write(BOUNDARY);
    assert!(
        near(ms(first.reported_at - Time::ZERO), 2.2 + 0.78125),
        "alone: at once"
    );
    let second = host.write(BOUNDARY + 100 * CYLINDER);
    assert_eq!(second.reported_at, first.on_media_at);
    assert_eq!(
        second.phases.seek.start, first.on_media_at,
        "overhead and bus are hidden"
    );
    let third = host.write(BOUNDARY);
    assert_eq!(third.reported_at, second.on_media_at);
}

#[test]
fn no_immediate_report_waits_for_the_media() {
    let parameters = DiskParameters {
        immediate_report: false,
        ..parts::hp_97560()
    };
    let mut host = Host::new(&model(&parameters), Span::ZERO);
    let write = host.write(BOUNDARY);
    assert_eq!(write.reported_at, write.on_media_at);
}

#[test]
fn data_wait_for_room_in_the_buffer() {
    let small = DiskParameters {
        buffer_bytes: 8192,
        read_ahead_bytes: 8192,
        write_buffer_bytes: 8192,
        ..parts::hp_97560()
    };
    let mut drive = Drive::new(&model(&small), Span::ZERO);
    let ready = drive.begin_write(Time::ZERO, 0, 16);
    let first = drive.data_received(ready.wants_data_at, 0, 16);
    let next = drive.begin_write(first.reported_at, 16, 16);
    assert_eq!(next.wants_data_at, first.on_media_at);
}

#[test]
fn a_read_after_writes_waits_for_them() {
    let mut host = Host::new(&hp(), Span::ZERO);
    let write = host.write(BOUNDARY);
    let read = host.read(BOUNDARY + 500 * CYLINDER).0;
    assert_eq!(read.phases.seek.start, write.on_media_at);
}

#[test]
#[should_panic(expected = "of 2647080")]
fn blocks_beyond_the_end_are_refused() {
    Drive::new(&hp(), Span::ZERO).begin_read(Time::ZERO, 2_647_079, 2);
}

#[test]
fn the_last_block_can_be_read_and_the_drive_stops_there() {
    let mut drive = Drive::new(&hp(), Span::ZERO);
    let read = drive.begin_read(Time::ZERO, 2_647_079, 1);
    let later = read.in_buffer_at + Span::from_seconds(1);
    assert!(drive.begin_read(later, 2_647_079, 1).hit);
}

#[test]
#[should_panic(expected = "after one at")]
fn calls_come_in_the_order_of_time() {
    let mut drive = Drive::new(&hp(), Span::ZERO);
    drive.begin_read(Time::ZERO + Span::from_ms(1), 0, 1);
    drive.begin_read(Time::ZERO, 0, 1);
}
