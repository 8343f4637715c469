//! The claims of Seamons et al. about Figures 3 to 9, on the simulated machine: see
//! docs/simulation-panda.md.

use penstock_experiments::experiment::{Experiment, Method};
use penstock_experiments::panda::{Measured, NEAR_POINTS, PRESET, Plan, Says};
use penstock_experiments::pattern::Pattern;
use penstock_experiments::{StudyError, Trials};
use penstock_sim::machine::Layout;
use penstock_sim::preset::Preset;

/// Measures one trial of each run: the paper's five differ in the disks' angles, by a tenth of a
/// point.
fn measured(figures: &[u8]) -> Result<Measured, StudyError> {
    Plan::new(Preset::find(PRESET)?, figures)?.measure(&Trials::new(1))
}

/// Checks that all runs of the figures lie in their range, and reach both its ends, within 5
/// points.
fn assert_range(figures: &[u8], from: f64, to: f64) -> Result<(), StudyError> {
    let measured = measured(figures)?;
    assert_eq!(measured.comparisons.len(), figures.len());
    for comparison in &measured.comparisons {
        assert_eq!(comparison.paper, Says::Range(from, to));
        assert!(comparison.least >= from - NEAR_POINTS, "{measured}");
        assert!(comparison.most <= to + NEAR_POINTS, "{measured}");
        assert_eq!((comparison.near, comparison.runs), (18, 18), "{measured}");
        assert!(comparison.holds, "{measured}");
    }
    let ends = |end: fn(f64, f64) -> f64, all: &dyn Fn(usize) -> f64| {
        (1..figures.len()).fold(all(0), |so_far, next| end(so_far, all(next)))
    };
    let least = ends(f64::min, &|figure| measured.comparisons[figure].least);
    let most = ends(f64::max, &|figure| measured.comparisons[figure].most);
    assert!((least - from).abs() <= NEAR_POINTS, "{least}: {measured}");
    assert!((most - to).abs() <= NEAR_POINTS, "{most}: {measured}");
    assert!(measured.statements.iter().all(|s| s.holds), "{measured}");
    Ok(())
}

#[test]
fn natural_chunking() -> Result<(), StudyError> {
    assert_range(&[3, 4], 85.0, 98.0)
}

#[test]
fn figures_have_the_ranges_of_the_paper() -> Result<(), StudyError> {
    let plan = Plan::new(Preset::find(PRESET)?, &[5, 7])?.with_arrays(&[16]);
    let measured = plan.measure(&Trials::new(1))?;
    let published = measured.figures.iter().map(|figure| {
        let [one] = &figure.published[..] else {
            panic!("{:?}", figure.published);
        };
        assert_eq!(
            (&one.series, &one.x, one.is_relative),
            (&None, &None, false)
        );
        (one.name.as_str(), one.low, one.high)
    });
    let expected = [
        ("paper: near 90%", 90.0, 90.0),
        ("paper: 68 to 95%", 68.0, 95.0),
    ];
    assert!(published.eq(expected));
    Ok(())
}

#[test]
fn natural_chunking_without_disks() -> Result<(), StudyError> {
    let measured = measured(&[5, 6])?;
    for comparison in &measured.comparisons {
        assert_eq!(comparison.paper, Says::Most(90.0));
        assert!(2 * comparison.near > comparison.runs, "{measured}");
        assert!(
            (comparison.middle - 90.0).abs() <= NEAR_POINTS,
            "{measured}"
        );
        assert!(comparison.most <= 90.0 + NEAR_POINTS, "{measured}");
        assert!(comparison.holds, "{measured}");
    }
    // Runs further below have little for each I/O node, so that the start-up shows.
    let far = measured
        .cells
        .iter()
        .flatten()
        .filter(|cell| cell.percent < 85.0);
    let most_mb = far.map(|cell| cell.array_mb / cell.servers as u64).max();
    assert!(
        most_mb.is_some_and(|mb| mb <= 4),
        "{most_mb:?} MB: {measured}"
    );
    assert!(measured.statements.iter().all(|s| s.holds), "{measured}");
    Ok(())
}

#[test]
fn traditional_order() -> Result<(), StudyError> {
    assert_range(&[7, 8], 68.0, 95.0)
}

#[test]
fn traditional_order_without_disks() -> Result<(), StudyError> {
    assert_range(&[9], 38.0, 86.0)
}

#[test]
fn other_numbers_of_compute_nodes_are_alike() -> Result<(), StudyError> {
    for (figures, clients) in [
        (&[3, 4, 5, 6][..], &[16, 32][..]),
        (&[7, 8, 9], &[16, 24, 32]),
    ] {
        for &clients in clients {
            let plan = Plan::new(Preset::find(PRESET)?, figures)?.with_clients(clients)?;
            let measured = plan.with_arrays(&[32, 128, 512]).measure(&Trials::new(1))?;
            assert_eq!(measured.comparisons.len(), figures.len());
            let ranges = measured.comparisons.iter();
            let mut ranges = ranges.filter(|c| matches!(c.paper, Says::Range(..)));
            assert!(ranges.all(|comparison| comparison.holds), "{measured}");
        }
    }
    Ok(())
}

/// An array of another size than the paper's has all of its bytes: no I/O node is faster than its
/// peak.
#[test]
fn arrays_of_any_size_stay_below_the_peak() -> Result<(), StudyError> {
    let plan = Plan::new(Preset::find(PRESET)?, &[])?.with_arrays(&[1, 7, 8, 9, 100]);
    let measured = plan.measure(&Trials::new(1))?;
    for cell in measured.cells.iter().flatten() {
        assert!(cell.percent > 0.0 && cell.percent < 100.0, "{measured}");
    }
    // More MB take more time: 7 MB lie between 1 MB and 8 MB.
    for cells in &measured.cells {
        for of_servers in cells.chunks(5) {
            let seconds: Vec<f64> = of_servers
                .iter()
                .map(|cell| cell.array_mb as f64 / cell.mb_s)
                .collect();
            assert!(seconds.is_sorted(), "{seconds:?}: {measured}");
        }
    }
    Ok(())
}

#[test]
fn the_machine_is_that_of_table_1() -> Result<(), StudyError> {
    let plan = Plan::new(Preset::find(PRESET)?, &[9])?.with_arrays(&[16]);
    let measured = plan.measure(&Trials::new(1))?;
    assert_eq!(measured.numbers.len(), 5);
    assert!(
        measured.numbers.iter().all(|number| number.is_near),
        "{measured}"
    );
    Ok(())
}

/// On a machine whose calls block and whose disks have file systems, every method comes to its end.
#[test]
fn other_methods_run_on_the_machine() -> Result<(), StudyError> {
    let mut preset = Preset::find(PRESET)?;
    preset.file.bytes = 4 << 20;
    for method in [
        Method::Caching,
        Method::TwoPhase,
        Method::Ddio,
        Method::DdioSort,
    ] {
        for pattern in ["rb", "wb", "rcc", "wbb"] {
            let experiment = Experiment {
                preset: &preset,
                pattern: pattern.parse::<Pattern>()?,
                record_bytes: 8192,
                layout: Layout::RandomBlocks,
                method,
                trial: 0,
            };
            let rate = experiment.run()?.throughput_mb_s();
            assert!(rate > 0.0 && rate < 34.0 * 8.0, "{pattern}: {rate}");
        }
    }
    Ok(())
}

#[test]
fn the_same_study_is_the_same_on_any_number_of_threads() -> Result<(), StudyError> {
    let on = |threads| {
        let plan = Plan::new(Preset::find(PRESET)?, &[7, 9])?.with_arrays(&[16]);
        let trials = Trials {
            threads,
            ..Trials::new(2)
        };
        plan.measure(&trials).map(|measured| measured.to_string())
    };
    assert_eq!(on(1)?, on(3)?);
    Ok(())
}

#[test]
fn what_is_not_in_the_paper_is_refused() -> Result<(), StudyError> {
    let refused = |preset: &str, figures: &[u8], clients: usize| -> Result<String, StudyError> {
        let plan = Plan::new(Preset::find(preset)?, figures);
        let error = plan.and_then(|plan| plan.with_clients(clients));
        let error = error.expect_err("not in the paper");
        assert!(error.is_input());
        Ok(error.to_string())
    };
    assert!(refused("sp2-anl", &[], 8)?.contains("is not the paper's machine"));
    assert!(refused(PRESET, &[2], 8)?.contains("there is no figure 2"));
    assert!(refused(PRESET, &[3], 24)?.contains("no figure of 24 compute nodes"));
    assert!(refused(PRESET, &[], 64)?.contains("no figure of 64 compute nodes"));
    Ok(())
}
