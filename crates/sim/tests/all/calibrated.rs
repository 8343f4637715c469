//! Presets as values: written, read back, and at either end of their spread; and a host whose
//! processors several nodes share.

use std::rc::Rc;

use penstock_engine::{Holders, Operation, Request, Rest, Strategy};
use penstock_layout::{DiskSchema, Distribution};
use penstock_sim::call::CollectiveRun;
use penstock_sim::machine::{Layout, Setup, Simulation};
use penstock_sim::preset::{Preset, Spread};

const HOST: &str = include_str!("../../../predict/tests/all/host.toml");

fn host() -> Preset {
    Preset::from_toml(HOST, "host.toml").unwrap()
}

fn request(preset: &Preset, operation: Operation, strategy: Strategy) -> Request {
    let clients = preset.nodes.clients as u64;
    let shape = [64, 64, 16];
    let dists = "BLOCK,*,*".parse().unwrap();
    let memory = Distribution::new(&shape, &dists, &[clients]).unwrap();
    Request {
        operation,
        strategy,
        holders: Holders::Schema(memory.into()),
        disk: DiskSchema::chunked(&shape, 8, &[16, 64, 16]).unwrap(),
        target: Vec::new(),
        file: None,
        servers: preset.nodes.disks,
        sync: true,
        split: None,
        rest: Rest::Fill(Vec::new()),
        sifting: None,
    }
}

/// The seconds, the events and their digest.
fn simulated(preset: &Preset, request: Request) -> (f64, u64, u64) {
    let setup = Setup {
        layout: Layout::Contiguous,
        slots: request.disk.conforming_blocks_max(preset.nodes.disks),
        slot_bytes: request.disk.block_bytes_max(),
        is_disk_free: false,
        seed: 3,
        is_real: false,
        is_traced: false,
    };
    let simulation = Simulation::new(preset, &setup).unwrap();
    let run = Rc::new(CollectiveRun {
        requests: vec![request],
        party: simulation.party().clone(),
        is_collective: true,
    });
    run.in_simulation(&simulation, |node| {
        let run = run.clone();
        async move { run.call(&node).await }
    })
    .unwrap();
    let totals = simulation.totals();
    (
        simulation.now().as_seconds_f64(),
        totals.events,
        totals.trace_hash,
    )
}

fn strategies() -> [Strategy; 4] {
    [
        Strategy::default(),
        Strategy::Caching(Default::default()),
        Strategy::TwoPhase(Default::default()),
        Strategy::Independent,
    ]
}

/// A preset that was written and read back simulates to the same last event.
#[test]
fn a_preset_read_back_simulates_to_the_same_last_event() {
    let built_in = ["tr94", "tocs97", "nvme-server", "sp2-nas", "sp1-vesta"];
    let mut presets: Vec<_> = built_in.map(|name| Preset::find(name).unwrap()).to_vec();
    presets.extend([host(), host().around_page_cache().unwrap()]);
    for preset in presets {
        let back = Preset::from_toml(&preset.to_toml().unwrap(), &preset.name).unwrap();
        assert_eq!(back, preset);
        for strategy in strategies() {
            for operation in [Operation::Write, Operation::Read] {
                let [one, other] = [&preset, &back]
                    .map(|preset| simulated(preset, request(preset, operation, strategy)));
                assert_eq!(one, other, "{} {strategy:?}", preset.name);
            }
        }
    }
}

#[test]
fn the_ends_of_the_spread_are_faster_and_slower() {
    let preset = host();
    let [fast, slow] = [preset.fastest().unwrap(), preset.slowest().unwrap()];
    assert_eq!(fast.host.as_ref().unwrap().copy_ns_per_byte, 0.1);
    assert_eq!(slow.host.as_ref().unwrap().stretch_ns[3], 4.0);
    let rate = |preset: &Preset| match &preset.around_page_cache().unwrap().disk {
        penstock_sim::preset::DiskKind::Flash(flash) => flash.read_bytes_per_second,
        other => panic!("{other:?}"),
    };
    assert_eq!((rate(&fast), rate(&slow)), (2_200_000_000, 1_500_000_000));
    assert!(fast.spread.is_empty() && slow.spread.is_empty());
    let seconds = |preset: &Preset| {
        let request = request(preset, Operation::Write, Strategy::default());
        simulated(preset, request).0
    };
    assert!(seconds(&fast) < seconds(&preset) && seconds(&preset) < seconds(&slow));
    let none = Preset::find("tr94").unwrap();
    assert_eq!(none.fastest().unwrap(), none);
}

#[test]
fn a_spread_of_no_number_is_refused() {
    for (key, low, high, what) in [
        ("costs.sent_us", 0.0, 1.0, "is the spread of no number"),
        ("costs", 0.0, 1.0, "is the spread of no number"),
        ("name", 0.0, 1.0, "is the spread of no number"),
        ("host.stretch_ns", 0.0, 1.0, "is the spread of no number"),
        ("host.stretch_ns[5]", 0.0, 1.0, "is the spread of no number"),
        ("host.stretch_ns[x]", 0.0, 1.0, "is the spread of no number"),
        ("costs.send_us", 2.0, 3.0, "and costs.send_us is 1"),
        ("costs.send_us", 0.0, 0.5, "and costs.send_us is 1"),
        ("costs.send_us", -1.0, 2.0, "and costs.send_us is 1"),
        ("costs.send_us", f64::NAN, 2.0, "and costs.send_us is 1"),
        (
            "costs.send_us",
            0.0,
            f64::INFINITY,
            "and costs.send_us is 1",
        ),
    ] {
        let mut preset = host();
        preset.spread.insert(key.into(), Spread { low, high });
        let complaint = preset.validate().unwrap_err().to_string();
        assert!(complaint.contains(what), "{key}: {complaint}");
    }
}

#[test]
fn hosts_and_measurements_that_cannot_be_are_refused() {
    let refused = |from: &str, to: &str, what: &str| {
        assert!(HOST.contains(from), "{from}");
        let text = HOST.replacen(from, to, 1);
        let complaint = Preset::from_toml(&text, "host.toml")
            .unwrap_err()
            .to_string();
        assert!(complaint.contains(what), "{complaint}");
    };
    refused("processors = 2", "processors = 0", "host.processors is 0");
    refused("crowding = 0.3", "crowding = -0.3", "host.crowding is -0.3");
    refused("copy_us = 0.3", "copy_us = nan", "host.copy_us is NaN");
    refused(
        "client_us = 30.0",
        "client_us = 1e9",
        "host.calls.client_us",
    );
    refused(
        "client_us = 30.0",
        "client_ms = 30.0",
        "unknown key `client_ms`",
    );
    refused(
        "takes_processor = true",
        "takes_processors = true",
        "unknown key",
    );
    refused(
        "channels = 16",
        "channels = 0",
        "around: disk.channels is 0",
    );
    refused(
        "[spread]",
        "[[measured.files]]\noperation = \"erase\"\naccess = \"random\"\nway = \"direct\"\nbytes = 1\n\
         depth = 1\nbytes_per_second = { median = 1.0, low = 1.0, high = 1.0 }\n[measured]\n\
         remarks = []\n[spread]",
        "measured",
    );
    refused("[caching]\n", "[cachings]\n", "unknown key `cachings`");
    refused("[host]\n", "[hosts]\n", "missing key `processors`");
}

/// Eight clients that copy on two processors take four times as long as two do.
#[test]
fn processors_of_a_host_are_shared() {
    let with = |processors: usize| {
        let mut preset = host();
        preset.nodes.clients = 8;
        let shared = preset.host.as_mut().unwrap();
        (shared.processors, shared.crowding) = (processors, 0.0);
        let work = request(&preset, Operation::Write, Strategy::Independent);
        simulated(
            &preset,
            Request {
                sync: false,
                ..work
            },
        )
        .0
    };
    let [one, two, eight] = [1, 2, 8].map(with);
    assert!(one > 1.6 * two && two > 2.0 * eight, "{one} {two} {eight}");
    assert!(one < 2.2 * two && two < 4.4 * eight, "{one} {two} {eight}");
}
