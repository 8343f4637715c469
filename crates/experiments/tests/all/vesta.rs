//! The claims of Corbett and Feitelson, section 5, on the simulated machine: see
//! docs/simulation-vesta.md.

use penstock_experiments::vesta::{Case, Measured, PRESET, Part, Plan, SortCase, Way};
use penstock_experiments::{StudyError, Trials};
use penstock_sim::preset::Preset;

fn preset() -> Result<Preset, StudyError> {
    Ok(Preset::find(PRESET)?)
}

fn measured(figure: u8) -> Result<Measured, StudyError> {
    Plan::new(preset()?, &[figure])?.measure(&Trials::new(1))
}

/// A case with big cells: one client, one I/O node, accesses of 64 KB, written once.
fn case() -> Case {
    Case {
        clients: 1,
        servers: 1,
        way: Way::Cells,
        access_bytes: 64 << 10,
        cell_bytes: 128 << 20,
        is_synced: true,
        is_inside: false,
        is_rewritten: false,
        is_read: false,
    }
}

fn mb_s(case: &Case, part: Part) -> Result<f64, StudyError> {
    Ok(case.mb_s(part.of(&case.run(&preset()?, 0)?)))
}

fn assert_near(simulated: f64, paper: f64, what: &str) {
    let is_near = (simulated - paper).abs() <= 0.1 * paper;
    assert!(is_near, "{what}: {simulated}, and {paper} in the paper");
}

/// Figure 11: all of the model's points, and the rate of memory.
#[test]
fn writes_follow_the_model_of_the_cache() -> Result<(), StudyError> {
    let measured = measured(11)?;
    assert_eq!((measured.numbers.len(), measured.statements.len()), (1, 1));
    assert!(measured.numbers[0].is_near, "{measured}");
    assert!(measured.statements[0].holds, "{measured}");
    let points = &measured.figures[0].series[0].points;
    assert_eq!(points.len(), 9);
    assert_eq!(measured.figures[0].published.len(), 9);
    for (point, model) in points.iter().zip(&measured.figures[0].published) {
        assert_near(point.y, model.high, "the model");
    }
    Ok(())
}

/// Figure 10: the disk's rates for big files; half of them where blocks must be read first.
#[test]
fn big_files_go_at_the_rate_of_the_disk() -> Result<(), StudyError> {
    let both = Case {
        is_rewritten: true,
        is_read: true,
        ..case()
    };
    assert_near(mb_s(&both, Part::FirstWrite)?, 1.5, "first write");
    assert_near(mb_s(&both, Part::SecondWrite)?, 1.5, "second write");
    assert_near(mb_s(&both, Part::Read)?, 2.2, "read");
    let small = Case {
        access_bytes: 16 << 10,
        ..both
    };
    assert_near(mb_s(&small, Part::FirstWrite)?, 1.5, "small first write");
    assert_near(mb_s(&small, Part::SecondWrite)?, 0.9, "small second write");
    let large = Case {
        access_bytes: 1 << 20,
        ..both
    };
    assert_near(mb_s(&large, Part::FirstWrite)?, 1.5, "large first write");
    assert_near(mb_s(&large, Part::Read)?, 2.2, "large read");
    Ok(())
}

/// Table I: small files. Data inside requests save the two messages with which they are fetched.
#[test]
fn small_files_go_at_the_rate_of_messages() -> Result<(), StudyError> {
    let small = |access_bytes, is_inside| Case {
        cell_bytes: 4 << 20,
        access_bytes,
        is_synced: false,
        is_read: true,
        is_inside,
        ..case()
    };
    let ms = |case: Case, part: Part| -> Result<f64, StudyError> {
        Ok(case.access_ms(part.of(&case.run(&preset()?, 0)?)))
    };
    for bytes in [256, 4096, 65536, 1 << 20] {
        let n = bytes as f64;
        let read = ms(small(bytes, false), Part::Read)?;
        assert_near(read, 0.353 + 0.000144 * n, "read");
        let write = ms(small(bytes, false), Part::FirstWrite)?;
        assert_near(write, 0.489 + 0.000141 * n, "first write");
        let inside = ms(small(bytes, true), Part::FirstWrite)?;
        assert!(inside < write - 0.05, "{inside} ms inside, {write} not");
    }
    Ok(())
}

/// Figures 12 and 13: more I/O nodes, up to what one adapter carries, or in proportion to clients.
#[test]
fn rates_grow_with_the_system() -> Result<(), StudyError> {
    let nodes = |clients, servers| Case {
        clients,
        servers,
        cell_bytes: 64 << 20,
        is_read: true,
        ..case()
    };
    for part in [Part::FirstWrite, Part::Read] {
        let rate = |clients, servers| mb_s(&nodes(clients, servers), part);
        let one = rate(1, 1)?;
        assert_near(rate(1, 2)?, 2.0 * one, "2 I/O nodes");
        let (most, three) = (rate(1, 12)?, rate(1, 3)?);
        assert_near(most, 8.7, "one adapter");
        assert_near(rate(4, 12)?, 4.0 * three, "four times the system");
    }
    Ok(())
}

/// Figure 14: the three ways through a file.
#[test]
fn cyclic_accesses_use_several_disks() -> Result<(), StudyError> {
    let way = |way, access_bytes| Case {
        servers: 4,
        cell_bytes: 64 << 20,
        is_read: true,
        way,
        access_bytes,
        ..case()
    };
    let rate = |one, bytes, part| mb_s(&way(one, bytes), part);
    let (kb, mb) = (1 << 10, 1 << 20);
    assert_near(rate(Way::Sequence, 64 * kb, Part::Read)?, 2.2, "one disk");
    assert_near(rate(Way::Striped, mb, Part::FirstWrite)?, 6.0, "four disks");
    assert_near(rate(Way::Striped, mb, Part::Read)?, 8.8, "four disks, read");
    let cyclic = rate(Way::Cyclic, 512 * kb, Part::Read)?;
    assert!(cyclic > 2.0 * 2.2, "{cyclic}");
    let long = rate(Way::Cyclic, mb, Part::Read)?;
    assert!(long < 0.8 * cyclic, "{long} above 512 KB, {cyclic} below");
    assert!(rate(Way::Cyclic, 64 * kb, Part::FirstWrite)? > 2.0 * 1.5);
    Ok(())
}

/// Figure 16: a subfile a cell is as one client and one I/O node, four times.
#[test]
fn subfiles_that_are_cells_do_not_disturb_one_another() -> Result<(), StudyError> {
    let four = Case {
        clients: 4,
        servers: 4,
        access_bytes: 16 << 10,
        is_read: true,
        ..case()
    };
    let alone = Case {
        clients: 1,
        servers: 1,
        ..four
    };
    let striped = Case {
        way: Way::Striped,
        ..four
    };
    for part in [Part::FirstWrite, Part::Read] {
        let one = mb_s(&alone, part)?;
        assert_near(mb_s(&four, part)?, 4.0 * one, "cells");
        assert_near(mb_s(&striped, part)?, 4.0 * one, "striped");
    }
    Ok(())
}

/// Figure 17, with as many records as the paper has. Each run checks that the file is sorted.
#[test]
fn small_blocks_need_more_servers() -> Result<(), StudyError> {
    let seconds = |servers, block_records| -> Result<f64, StudyError> {
        let case = SortCase {
            servers,
            block_records,
            records: 1_000_000,
        };
        Ok(case.run(&preset()?, 0)?)
    };
    let small = (seconds(1, 512)?, seconds(8, 512)?);
    let large = (seconds(1, 16384)?, seconds(8, 16384)?);
    assert!(
        large.0 < small.0 && large.1 < small.1,
        "{small:?} {large:?}"
    );
    let gain = |(one, eight): (f64, f64)| one / eight;
    assert!(
        gain(small) > gain(large) && gain(large) > 1.2,
        "{small:?} {large:?}"
    );
    Ok(())
}

/// A file of a few records, too few for whole blocks, is sorted, too.
#[test]
fn files_of_any_length_are_sorted() -> Result<(), StudyError> {
    for (records, block_records, servers) in [(64, 8, 1), (640, 16, 3), (4096, 1024, 2)] {
        let case = SortCase {
            servers,
            block_records,
            records,
        };
        assert!(case.run(&preset()?, 1)? > 0.0);
    }
    Ok(())
}

#[test]
fn the_same_study_is_the_same_on_any_number_of_threads() -> Result<(), StudyError> {
    let on = |threads| {
        let plan = Plan::new(preset()?, &[12, 13])?.with_cells(2);
        let trials = Trials {
            threads,
            ..Trials::new(1)
        };
        plan.measure(&trials).map(|measured| measured.to_string())
    };
    assert_eq!(on(1)?, on(3)?);
    Ok(())
}

#[test]
fn what_is_not_in_the_paper_is_refused() -> Result<(), StudyError> {
    let refused = |preset: &str, figures: &[u8]| -> Result<String, StudyError> {
        let plan = Plan::new(Preset::find(preset)?, figures);
        let error = plan.expect_err("not in the paper");
        assert!(error.is_input());
        Ok(error.to_string())
    };
    assert!(refused("sp2-nas", &[])?.contains("is not the paper's machine"));
    assert!(refused(PRESET, &[15])?.contains("there is no figure 15"));
    Ok(())
}
