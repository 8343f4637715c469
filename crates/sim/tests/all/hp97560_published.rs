//! The HP 97560 alone against the published throughputs, and against another model made from the
//! same parameters: sixteen disks, the slowest counts. Nothing is fitted.
//!
//! `cargo test -p penstock-sim --test all hp97560_published -- --nocapture` prints the table.

#![allow(clippy::approx_constant)] // 6.28 MB/s is no circle

use std::sync::Arc;

use crate::common::*;
use penstock_sim::{DiskParameters, DriveModel, Random, Span, Time, disk::parts};

const BLOCKS: u64 = 80; // 10 MB over 16 disks

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Do {
    Read,
    Write(Until),
}

fn run(host: &mut Host, what: Do, lbas: impl IntoIterator<Item = u64>) -> Time {
    match what {
        Do::Read => host.read_all(lbas),
        Do::Write(until) => host.write_all(lbas, until),
    }
}

/// The mean MB/s over many layouts of 80 random blocks on each disk, in random or in sorted order.
fn random_blocks(model: &Arc<DriveModel>, what: Do, sorted: bool, turnaround_us: u64) -> f64 {
    random_blocks_on(model, what, sorted, turnaround_us, 1.0)
}

/// The mean MB/s of random blocks on the first part of the disk.
fn random_blocks_on(
    model: &Arc<DriveModel>,
    what: Do,
    sorted: bool,
    turnaround_us: u64,
    part: f64,
) -> f64 {
    const LAYOUTS: u64 = 150;
    let on_disk = model.sectors() / BLOCK_SECTORS;
    let usable = (on_disk as f64 * part) as u64;
    let layouts = (0..LAYOUTS).map(|layout| {
        let ends = (0..DISKS).map(|disk| {
            let mut random = Random::of(layout, disk);
            let mut blocks = random.distinct(BLOCKS as usize, usable);
            if sorted {
                blocks.sort_unstable();
            }
            let mut host = Host::new(model, random_rotation(model, &mut random));
            host.turnaround = Span::from_us(turnaround_us);
            run(
                &mut host,
                what,
                blocks.iter().map(|block| block * BLOCK_SECTORS),
            )
        });
        throughput(BLOCKS, ends.max().unwrap())
    });
    layouts.sum::<f64>() / LAYOUTS as f64
}

/// The mean MB/s of a contiguous file from block 0 on, with an independent rotation for each disk.
fn contiguous(model: &Arc<DriveModel>, what: Do, blocks: u64, trials: u64) -> f64 {
    let trial = |trial| {
        let ends = (0..DISKS).map(|disk| {
            let rotation = random_rotation(model, &mut Random::of(trial, disk));
            let mut host = Host::new(model, rotation);
            host.now = Time::ZERO + Span::from_us(500);
            run(
                &mut host,
                what,
                (0..blocks).map(|block| block * BLOCK_SECTORS),
            )
        });
        throughput(blocks, ends.max().unwrap())
    };
    (0..trials).map(trial).sum::<f64>() / trials as f64
}

const MEDIA: Do = Do::Write(Until::OnMedia);
const REPORTED: Do = Do::Write(Until::Reported);

#[test]
fn random_blocks_as_published() {
    let hp = hp();
    #[rustfmt::skip]
    let table = [
        ("random, sorted, read",             Do::Read,  true,  6.28),
        ("random, unsorted, read",           Do::Read,  false, 4.43),
        ("random, sorted, write",            MEDIA,     true,  7.45),
        ("random, unsorted, write",          MEDIA,     false, 4.98),
        ("random, sorted, write, no wait",   REPORTED,  true,  7.52),
        ("random, unsorted, write, no wait", REPORTED,  false, 5.03),
    ];
    for (name, what, sorted, expected) in table {
        assert_near(name, random_blocks(&hp, what, sorted, 100), expected, 2.0);
    }
}

#[test]
fn random_blocks_with_a_slower_host() {
    let hp = hp();
    #[rustfmt::skip]
    let table = [
        (Do::Read, 500,  6.14, 4.37),
        (Do::Read, 1000, 5.99, 4.30),
        (MEDIA,    500,  7.44, 4.98),
    ];
    for (what, turnaround_us, sorted, unsorted) in table {
        let name = format!("random, {what:?}, host {turnaround_us} us, sorted");
        assert_near(
            &name,
            random_blocks(&hp, what, true, turnaround_us),
            sorted,
            2.0,
        );
        let name = format!("random, {what:?}, host {turnaround_us} us, unsorted");
        assert_near(
            &name,
            random_blocks(&hp, what, false, turnaround_us),
            unsorted,
            2.0,
        );
    }
}

#[test]
fn random_blocks_on_part_of_the_disk() {
    let hp = hp();
    #[rustfmt::skip]
    let table = [
        (Do::Read, 0.5,       6.46, 5.00),
        (Do::Read, 1.0 / 3.0, 6.58, 5.26),
        (Do::Read, 0.25,      6.63, 5.43),
        (MEDIA,    0.5,       7.69, 5.70),
    ];
    for (what, part, sorted, unsorted) in table {
        let name = format!("random, {what:?}, {part:.2} of the disk, sorted");
        assert_near(
            &name,
            random_blocks_on(&hp, what, true, 100, part),
            sorted,
            2.0,
        );
        let name = format!("random, {what:?}, {part:.2} of the disk, unsorted");
        assert_near(
            &name,
            random_blocks_on(&hp, what, false, 100, part),
            unsorted,
            2.0,
        );
    }
}

#[test]
fn random_blocks_on_other_drives() {
    use penstock_sim::disk::WriteSeek;
    let quick = |parameters: DiskParameters| DiskParameters {
        read_overhead_ms: 0.0,
        ..parameters
    };
    let slow = DiskParameters {
        immediate_report: false,
        ..parts::hp_97560()
    };
    let slow_overlapped = DiskParameters {
        write_seek: WriteSeek::AfterCommand,
        ..slow.clone()
    };
    #[rustfmt::skip]
    let table = [
        ("overhead hidden, read", quick(parts::hp_97560()), Do::Read, 7.08, 4.83),
        ("no immediate report, seek while data come, write", slow_overlapped, MEDIA, 6.54, 4.57),
        ("no immediate report: one block in drive, write", slow, MEDIA, 6.29, 4.45),
    ];
    for (name, parameters, what, sorted, unsorted) in table {
        let model = model(&parameters);
        let name = format!("random, {name}");
        assert_near(&name, random_blocks(&model, what, true, 100), sorted, 2.0);
        assert_near(
            &name,
            random_blocks(&model, what, false, 100),
            unsorted,
            2.0,
        );
    }
}

#[test]
fn contiguous_files_as_published() {
    let hp = hp();
    assert_near(
        "contiguous 10 MB, read",
        contiguous(&hp, Do::Read, BLOCKS, 200),
        31.42,
        0.5,
    );
    assert_near(
        "contiguous 10 MB, write",
        contiguous(&hp, MEDIA, BLOCKS, 200),
        31.39,
        0.5,
    );
    assert_near(
        "contiguous 1000 MB, read",
        contiguous(&hp, Do::Read, 8000, 2),
        33.48,
        0.3,
    );
    assert_near(
        "contiguous 1000 MB, write",
        contiguous(&hp, MEDIA, 8000, 2),
        33.47,
        0.3,
    );
}

#[test]
fn contiguous_files_on_other_drives() {
    let no_read_ahead = DiskParameters {
        read_ahead_bytes: 0,
        ..parts::hp_97560()
    };
    let no_report = DiskParameters {
        immediate_report: false,
        ..parts::hp_97560()
    };
    let slow = DiskParameters {
        read_overhead_ms: 3.0,
        ..parts::hp_97560()
    };
    for (name, parameters, what, expected, percent) in [
        ("no read-ahead, read", no_read_ahead, Do::Read, 6.65, 2.0),
        ("no immediate report, write", no_report, MEDIA, 6.65, 2.0),
        ("overhead 3.0 ms, read", slow, Do::Read, 30.5, 2.0),
    ] {
        let measured = contiguous(&model(&parameters), what, BLOCKS, 50);
        assert_near(&format!("contiguous, {name}"), measured, expected, percent);
    }
}

/// All disks have one rotational position, in ms at time zero. The host begins 0.5 ms later, as in
/// the other model. Writes at phase 3 are left out: the arm is there 0.29 ms before the first
/// sector comes, and whether it catches the sector depends on what the host does first (the other
/// model fetches the block from a client, and misses it).
#[test]
fn contiguous_files_with_a_common_phase() {
    let hp = hp();
    #[rustfmt::skip]
    let table = [
        // phase, read,  write reported, write on media
        (0,       32.43, Some((35.95,    32.54))),
        (2,       32.64, Some((36.21,    32.75))),
        (3,       32.75, None),
        (4,       32.85, Some((34.58,    31.41))),
        (5,       31.41, Some((34.70,    31.51))),
        (6,       31.51, Some((34.82,    31.61))),
        (10,      31.91, Some((35.31,    32.02))),
        (14,      32.32, Some((35.82,    32.43))),
    ];
    let check = |phase_ms, what, expected| {
        let mut host = Host::new(&hp, Span::from_ms(phase_ms));
        host.now = Time::ZERO + Span::from_us(500);
        let end = run(
            &mut host,
            what,
            (0..BLOCKS).map(|block| block * BLOCK_SECTORS),
        );
        let name = format!("contiguous, {what:?}, phase {phase_ms} ms");
        assert_near(&name, throughput(BLOCKS, end), expected, 0.4);
    };
    for (phase_ms, read, written) in table {
        check(phase_ms, Do::Read, read);
        if let Some((reported, on_media)) = written {
            check(phase_ms, REPORTED, reported);
            check(phase_ms, MEDIA, on_media);
        }
    }
}

/// The limit of the write buffer shows if nothing waits for the media.
#[test]
fn contiguous_writes_with_other_buffers() {
    for (blocks, expected) in [(2, 31.97), (4, 32.85), (8, 34.55), (16, 38.60)] {
        let write_buffer_bytes = blocks * BLOCK_BYTES;
        let parameters = DiskParameters {
            write_buffer_bytes,
            ..parts::hp_97560()
        };
        let mut host = Host::new(&model(&parameters), Span::from_ms(4));
        host.now = Time::ZERO + Span::from_us(500);
        let end = run(
            &mut host,
            REPORTED,
            (0..BLOCKS).map(|block| block * BLOCK_SECTORS),
        );
        let name = format!("contiguous, write, {blocks} blocks in the drive");
        assert_near(&name, throughput(BLOCKS, end), expected, 2.0);
    }
}
