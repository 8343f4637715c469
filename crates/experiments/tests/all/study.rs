//! Every study, from its plan to its numbers, on a machine small enough to run them all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_experiments::experiment::Method;
use penstock_experiments::figure::Plan;
use penstock_experiments::run::Report;
use penstock_experiments::scale::{self, Scale};
use penstock_experiments::summary::{self, Summary};
use penstock_experiments::table::{self, Table};
use penstock_experiments::trace::{Chrome, Seeks, busy};
use penstock_experiments::{Case, StudyError, Trials, Watch, measure};
use penstock_sim::machine::Layout;
use penstock_sim::preset::Preset;

/// Makes two clients, two I/O nodes with a disk each, and a file of 20 blocks.
fn tiny(name: &str) -> Arc<Preset> {
    let mut preset = Preset::find(name).unwrap();
    preset.nodes.clients = 2;
    preset.nodes.io_nodes = 2;
    preset.nodes.disks = 2;
    preset.file.bytes = 20 * preset.file.block_bytes;
    Arc::new(preset)
}

fn case(pattern: &str, method: Method) -> Case {
    Case {
        preset: tiny("tr94"),
        pattern: pattern.parse().unwrap(),
        record_bytes: 8192,
        layout: Layout::RandomBlocks,
        method,
    }
}

/// A watch that counts its news.
#[derive(Default)]
struct Counted {
    total: AtomicU64,
    done: AtomicU64,
}

impl Watch for Counted {
    fn begin(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    fn done(&self, units: u64, _: &Case) {
        self.done.fetch_add(units, Ordering::Relaxed);
    }
}

#[test]
fn side_by_side_is_one_by_one() -> Result<(), StudyError> {
    let cases = [
        case("rb", Method::Caching),
        case("wcc", Method::DdioSort),
        case("ra", Method::TwoPhase),
    ];
    let alone = Trials {
        threads: 1,
        ..Trials::new(4)
    };
    let together = Trials {
        threads: 4,
        ..alone
    };
    let watch = Counted::default();
    let alone = measure(&cases, &alone, &())?;
    let together = measure(&cases, &together, &watch)?;
    assert!(watch.total.load(Ordering::Relaxed) > 0);
    assert_eq!(
        watch.total.load(Ordering::Relaxed),
        watch.done.load(Ordering::Relaxed)
    );
    for (one, other) in alone.iter().zip(&together) {
        assert_eq!(one.outcomes, other.outcomes);
        assert_eq!(one.trace_hash(), other.trace_hash());
        assert_eq!(one.outcomes.len(), 4);
    }
    // Layouts differ from trial to trial, and with them hashes.
    let hashes: Vec<u64> = alone[0].outcomes.iter().map(|o| o.trace_hash).collect();
    assert!(
        hashes.windows(2).all(|pair| pair[0] != pair[1]),
        "{hashes:?}"
    );
    Ok(())
}

#[test]
fn a_trial_is_found_by_its_number() -> Result<(), StudyError> {
    let cases = [case("rcn", Method::Ddio)];
    let all = measure(&cases, &Trials::new(3), &())?;
    let last = Trials {
        first: 2,
        ..Trials::new(1)
    };
    let alone = measure(&cases, &last, &())?;
    assert_eq!(alone[0].outcomes[0], all[0].outcomes[2]);
    let report = Report::new(&cases[0], &last, &alone[0]);
    assert_eq!((report.trials, report.per_trial[0].trial), (1, 2));
    assert_eq!(report.trace_hash, report.per_trial[0].trace_hash);
    Ok(())
}

#[test]
fn what_cannot_be_is_not_run() {
    let mut odd = case("rb", Method::Ddio);
    odd.record_bytes = 7;
    let cases = [case("rb", Method::Ddio), odd];
    let watch = Counted::default();
    let error = measure(&cases, &Trials::new(1), &watch).unwrap_err();
    assert!(error.is_input(), "{error}");
    assert_eq!(watch.total.load(Ordering::Relaxed), 0);
    assert!(measure(&cases[..1], &Trials::new(0), &()).is_err());
}

#[test]
fn tables() -> Result<(), StudyError> {
    let preset = tiny("tr94");
    for (number, cells) in [(3, 105), (4, 70)] {
        let cases = table::cases(number, &preset)?;
        let measured = measure(&cases, &Trials::new(1), &())?;
        let table = Table::new(number, &preset, &cases, &measured);
        assert_eq!((table.cells.len(), table.trials), (cells, 1));
        assert!(table.cells.iter().all(|cell| cell.mb_s > 0.0));
        assert_eq!(table.to_string().lines().count(), 4 + 19 + 3);
    }
    Ok(())
}

#[test]
fn figures() -> Result<(), StudyError> {
    // 8 and 12 vary the machine, 13 the file up to the article's, which takes too long here.
    for number in [5, 8, 12, 15] {
        let plan = Plan::new(number, &tiny("tocs97"))?;
        let measured = measure(plan.cases(), &Trials::new(1), &())?;
        let figure = plan.figure(&measured);
        let points = || figure.series.iter().flat_map(|line| &line.points);
        assert!(points().all(|point| point.y > 0.0 && point.cv == Some(0.0)));
        let json = serde_json::to_value(&figure).unwrap();
        assert_eq!(json["figure"], number.to_string());
        assert!(json["series"][0]["points"][0]["y"].is_number());
    }
    Ok(())
}

/// With `ra` all clients have all of the file, but the rate is no faster than the disks.
#[test]
fn figures_count_one_copy() -> Result<(), StudyError> {
    let plan = Plan::new(7, &tiny("tocs97"))?;
    let measured = measure(plan.cases(), &Trials::new(1), &())?;
    let figure = plan.figure(&measured);
    let peak = figure.limits[0].points[0].y;
    for line in &figure.series {
        assert!(
            line.points[0].y < peak,
            "{} {} {peak}",
            line.name,
            line.points[0].y
        );
    }
    Ok(())
}

#[test]
fn the_summary() -> Result<(), StudyError> {
    let preset = tiny("tocs97");
    let cases = summary::cases(&preset)?;
    let measured = measure(&cases, &Trials::new(1), &())?;
    let summary = Summary::new(&preset, &cases, &measured);
    for row in &summary.rows {
        let range = &row.measured;
        assert!(
            range.min <= range.mean && range.mean <= range.max,
            "{row:?}"
        );
    }
    Ok(())
}

#[test]
fn scaled() -> Result<(), StudyError> {
    let preset = tiny("nvme-server");
    let options = scale::Options {
        pattern: "rcb".parse()?,
        record_bytes: None,
        layout: Layout::Contiguous,
        file_bytes: Some(40 * preset.file.block_bytes),
        clients: vec![2, 30],
        servers: vec![1, 5],
        preset,
    };
    let cases = scale::cases(&options)?;
    let measured = measure(&cases, &Trials::new(1), &())?;
    let scale = Scale::new(&options, &cases, &measured)?;
    assert_eq!(scale.rows.len(), 2 * 2 * 3);
    for row in &scale.rows {
        assert!(row.throughput_mb_s > 0.0 && row.messages > 0.0);
        assert_eq!(row.planning_us > 0.0, row.method == "ddio-sort", "{row:?}");
    }
    Ok(())
}

#[test]
fn traced() -> Result<(), StudyError> {
    let case = case("rb", Method::Ddio);
    let (outcome, trace) = case.experiment(0).run_traced()?;
    assert_eq!(outcome, case.experiment(0).run()?);
    let chrome = Chrome {
        trace: &trace,
        clients: 2,
    };
    let json = serde_json::to_value(&chrome).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    for name in ["client 0", "client 1", "I/O node 0", "I/O node 1"] {
        let named = |event: &&serde_json::Value| event["args"]["name"] == name;
        assert_eq!(events.iter().filter(named).count(), 1, "{name}");
    }
    let seeks = Seeks::new(&trace, 1, "rb".into())?;
    assert!(
        seeks
            .points
            .windows(2)
            .all(|pair| pair[0].t_ms <= pair[1].t_ms)
    );
    let busy = busy(&trace, outcome.elapsed);
    let disk = busy.into_iter().find(|busy| busy.part == "disk");
    assert!(disk.is_some_and(|busy| busy.count == 2 && busy.max <= 1.0));
    Ok(())
}

/// A disk may also read ahead while it takes the next command, or write behind, or be flash.
#[test]
fn no_part_is_busy_for_longer_than_the_run() -> Result<(), StudyError> {
    for preset in ["tr94", "nvme-server"] {
        for (pattern, method) in [
            ("rb", Method::DdioSort),
            ("rb", Method::Caching),
            ("wb", Method::Caching),
            ("wb", Method::DdioSort),
        ] {
            let case = Case {
                preset: tiny(preset),
                layout: Layout::Contiguous,
                ..case(pattern, method)
            };
            let (outcome, trace) = case.experiment(0).run_traced()?;
            let busy = busy(&trace, outcome.elapsed);
            let parts = busy.iter().map(|busy| busy.part);
            assert!(parts.eq(["CPU", "bus", "disk", "buffer"]), "{busy:?}");
            for busy in &busy {
                assert!(
                    0.0 < busy.mean && busy.mean <= busy.max,
                    "{case:?}: {busy:?}"
                );
                assert!(busy.max <= 1.0, "{case:?}: {busy:?}");
            }
        }
    }
    Ok(())
}
