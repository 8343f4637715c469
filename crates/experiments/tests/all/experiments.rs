//! Whole experiments: they repeat, the two network models agree, and the landmarks of the papers
//! that take no time to run hold.

use penstock_experiments::experiment::{Experiment, Method, Outcome};
use penstock_sim::machine::Layout;
use penstock_sim::network::Contention;
use penstock_sim::preset::{NetworkKind, Preset};

fn run(preset: &Preset, pattern: &str, record_bytes: u64, method: Method, trial: u64) -> Outcome {
    let experiment = Experiment {
        preset,
        pattern: pattern.parse().unwrap(),
        record_bytes,
        layout: Layout::Contiguous,
        method,
        trial,
    };
    experiment.run().unwrap()
}

fn small(name: &str) -> Preset {
    let mut preset = Preset::find(name).unwrap();
    preset.file.bytes = 1 << 20;
    preset
}

const METHODS: [Method; 4] = [
    Method::Caching,
    Method::TwoPhase,
    Method::Ddio,
    Method::DdioSort,
];

#[test]
fn the_same_experiment_is_the_same_run_on_any_thread() {
    for method in METHODS {
        let preset = small("tocs97");
        let first = run(&preset, "wbc", 1024, method, 3);
        let again = std::thread::spawn(move || run(&small("tocs97"), "wbc", 1024, method, 3));
        assert_eq!(first, again.join().unwrap(), "{method:?}");
        assert_ne!(
            first.trace_hash,
            run(&preset, "wbc", 1024, method, 4).trace_hash
        );
    }
}

#[test]
fn a_run_is_the_same_on_every_machine() {
    // A change of a model, a strategy or a preset may change these; another machine may not.
    let preset = small("tocs97");
    let hashes = METHODS.map(|method| run(&preset, "wbc", 1024, method, 3).trace_hash);
    let known = [
        0x389d_bf7e_b124_d282,
        0xc1f3_6377_7390_3283,
        0x4228_f60a_4045_d7f0,
        0x4228_f60a_4045_d7f0, // on the contiguous layout there is nothing to sort
    ];
    assert_eq!(hashes, known, "{hashes:#018x?}");
}

#[test]
fn the_stochastic_network_gives_what_the_exact_one_gives() {
    // Kotz, TR94-226 and TOCS 1997, section 4.1: at most 5.4 % apart, with thousands of very short
    // messages and with many large ones.
    let stochastic = small("tocs97");
    let mut exact = stochastic.clone();
    let NetworkKind::Torus(torus) = &mut exact.network else {
        panic!("tocs97 has a torus");
    };
    torus.contention = Contention::Exact;
    for (pattern, record) in [
        ("ra", 8192),
        ("rb", 8192),
        ("rc", 8192),
        ("rbc", 64),
        ("wc", 64),
    ] {
        for method in METHODS {
            let mean = |preset: &Preset| {
                let runs = (0..3).map(|trial| run(preset, pattern, record, method, trial));
                runs.map(|outcome| outcome.throughput_mb_s()).sum::<f64>() / 3.0
            };
            let ratio = mean(&stochastic) / mean(&exact);
            assert!(
                (ratio - 1.0).abs() < 0.054,
                "{pattern} {record} {method:?}: {ratio}"
            );
        }
    }
}

#[test]
fn disk_directed_reads_come_near_the_disks() {
    // TR94-226, table 4: 32.8 MB/s; TOCS 1997, section 6: 31.4.
    for (name, published) in [("tr94", 32.8), ("tocs97", 31.4)] {
        let preset = Preset::find(name).unwrap();
        let runs = (0..5).map(|trial| run(&preset, "rb", 8192, Method::DdioSort, trial));
        let mean = runs.map(|outcome| outcome.throughput_mb_s()).sum::<f64>() / 5.0;
        assert!((mean / published - 1.0).abs() < 0.02, "{name}: {mean}");
    }
}

#[test]
fn caching_reads_blocks_that_nobody_wants() {
    // At the end of rb each client's last block on each disk is followed by another client's first,
    // which is read ahead in vain (TR94-226, section 6): 15 times on each of 16 disks.
    let preset = Preset::find("tr94").unwrap();
    assert_eq!(
        run(&preset, "rb", 8192, Method::Caching, 0).blocks,
        1280 + 15 * 16
    );
    assert_eq!(run(&preset, "rb", 8192, Method::Ddio, 0).blocks, 1280);
}

#[test]
fn disk_directed_needs_two_buffers_a_disk_and_caching_many() {
    let preset = Preset::find("tr94").unwrap();
    let buffers = |method| run(&preset, "rb", 8192, method, 0).buffer_bytes_max / 8192;
    assert_eq!(buffers(Method::DdioSort), 2);
    assert_eq!(buffers(Method::Caching), 2 * 16);
}
