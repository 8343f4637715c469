//! Predictions of calls whose ranks hold lists.

use std::collections::HashSet;

use penstock_engine::{Kind, Strategy};
use penstock_predict::description::{Array, Description, Direction, STRATEGIES, Series};
use penstock_predict::predicting::predict_by;
use penstock_predict::{By, Prediction, Question, load, predict_all};
use penstock_sim::preset::Preset;
use penstock_sim::random::Random;

fn machine() -> Preset {
    Preset::from_toml(include_str!("host.toml"), "host.toml").unwrap()
}

fn series(first: u64, elements: u64) -> Series {
    Series {
        first,
        elements,
        loops: Vec::new(),
    }
}

/// A write of an array of one dimension, in blocks of 128 elements of 8 bytes.
fn description(extent: u64, ranks: usize, chunks: Option<u64>) -> Description {
    Description {
        operation: Direction::Write,
        ranks,
        hosts: 1,
        servers: Some(2),
        strategies: Vec::new(),
        direct: false,
        sync: false,
        block_bytes: 1024,
        arrays: vec![Array {
            shape: vec![extent],
            dtype: "f8".into(),
            memory: "BLOCK".into(),
            mesh: vec![ranks as u64],
            lists: Vec::new(),
            chunks: chunks.map(|extent| vec![extent]),
        }],
    }
}

/// The same, each rank with a list.
fn with_lists(mut described: Description, lists: Vec<Vec<Series>>) -> Description {
    described.arrays[0].memory.clear();
    described.arrays[0].mesh.clear();
    described.arrays[0].lists = lists;
    described
}

fn by_closed_form(described: &Description, strategy: Strategy) -> Prediction {
    let machine = machine();
    let (requests, lists) = (
        described.requests(&machine, strategy).unwrap(),
        described.lists().unwrap(),
    );
    let question = Question {
        requests: &requests,
        lists: &lists,
        clients: described.ranks,
        hosts: described.hosts,
    };
    predict_by(&machine, &question, Some(By::ClosedForm)).unwrap()
}

/// Lists of what a distribution deals out cost the same, and the messages that bring them.
#[test]
fn lists_of_shares_cost_what_shares_cost() {
    for chunks in [None, Some(256)] {
        let shares = description(4096, 4, chunks);
        let lists = (0..4).map(|rank| vec![series(rank * 1024, 1024)]).collect();
        let lists = with_lists(shares.clone(), lists);
        for strategy in shares.strategies().unwrap() {
            let [one, other] = [&shares, &lists].map(|call| by_closed_form(call, strategy));
            let added = match strategy {
                Strategy::DiskDirected(_) => 4 * 2 + 3,
                Strategy::TwoPhase(_) => 4 * 4,
                Strategy::Caching(_) | Strategy::Independent => 0,
            };
            assert_eq!(other.messages, one.messages + added, "{}", one.strategy);
            assert_eq!(
                (other.bytes, other.disk_bytes, other.memory_bytes),
                (one.bytes, one.disk_bytes, one.memory_bytes)
            );
            let slower = other.seconds - one.seconds;
            assert_eq!(slower > 0.0, added > 0, "{}: {slower}", one.strategy);
            assert!(slower < 0.5 * one.seconds, "{}: {slower}", one.strategy);
        }
    }
}

/// Blocks, portions and bytes are those that a look at each element finds.
#[test]
fn the_load_is_that_of_the_elements() {
    let mut random = Random::of(3, 0);
    for _ in 0..50 {
        let (extent, ranks) = (1000, 3);
        let mut lists = vec![Vec::new(); ranks];
        let mut at = 0;
        while at < extent {
            let length = (1 + random.below(200)).min(extent - at);
            let holder = random.below(ranks as u64 + 1) as usize; // the last is nobody
            if let Some(list) = lists.get_mut(holder) {
                list.push(series(at, length));
            }
            at += length;
        }
        let chunks = [None, Some(60)][random.below(2) as usize];
        let block = chunks.unwrap_or(128);
        let described = with_lists(description(extent, ranks, chunks), lists.clone());
        let requests = described.requests(&machine(), Strategy::default()).unwrap();
        let question = Question {
            requests: &requests,
            lists: &described.lists().unwrap(),
            clients: ranks,
            hosts: 1,
        };
        let found = load::of(&question).unwrap();
        let (mut blocks, mut portions, mut elements) = (HashSet::new(), HashSet::new(), 0);
        for (rank, list) in lists.iter().enumerate() {
            for one in list {
                for element in one.first..one.first + one.elements {
                    blocks.insert(element / block);
                    portions.insert((rank, element / block));
                    elements += 1;
                }
            }
        }
        assert_eq!(found.sum(|server| server.blocks), blocks.len() as f64);
        let moved = |of: fn(&load::Moves) -> f64| found.sum(|server| of(&server.moves()));
        assert_eq!(moved(|moves| moves.portions), portions.len() as f64);
        assert_eq!(moved(|moves| moves.bytes), f64::from(elements * 8));
        assert_eq!(found.client_bytes, f64::from(elements * 8));
    }
}

/// Loops are runs that are written once.
#[test]
fn loops_are_as_many_runs() {
    let one = vec![Series {
        first: 5,
        elements: 2,
        loops: vec![(10, 100), (3, 7)],
    }];
    let runs = (0..10).flat_map(|i| (0..3).map(move |j| series(5 + 100 * i + 7 * j, 2)));
    let [looped, listed] = [one, runs.collect()].map(|list| {
        predict_all(
            &machine(),
            &with_lists(description(1000, 1, None), vec![list]),
        )
    });
    assert_eq!(looped.unwrap(), listed.unwrap());
}

/// Ranks may hold nothing, and there may be fewer lists than ranks.
#[test]
fn ranks_may_hold_nothing() {
    for lists in [vec![vec![]], vec![vec![], vec![series(7, 1)]]] {
        let described = with_lists(description(1000, 4, Some(50)), lists);
        let all = predict_all(&machine(), &described).unwrap();
        assert_eq!(all.len(), STRATEGIES.len());
        for one in all {
            assert!(one.seconds > 0.0 && one.seconds.is_finite(), "{one:?}");
            assert_eq!(one.by, By::ClosedForm);
            assert!(one.disk_bytes <= 50 * 8, "{one:?}");
        }
    }
}

#[test]
fn lists_that_make_no_sense_are_refused() {
    let refused = |described: &Description| predict_all(&machine(), described).unwrap_err().kind;
    let few = with_lists(description(1000, 1, None), vec![vec![], vec![series(0, 1)]]);
    assert_eq!(refused(&few), Kind::Schema, "more lists than ranks");
    let beyond = with_lists(description(1000, 1, None), vec![vec![series(990, 11)]]);
    assert_eq!(refused(&beyond), Kind::Schema);
    let mut both = description(1000, 1, None);
    both.arrays[0].lists = vec![vec![series(0, 1)]];
    assert_eq!(refused(&both), Kind::Schema, "memory and lists");
}

#[test]
fn lists_are_not_simulated_and_not_guessed() {
    let described = with_lists(description(1000, 2, None), vec![vec![series(0, 9)]]);
    let machine = machine();
    let requests = described.requests(&machine, Strategy::default()).unwrap();
    let lists = described.lists().unwrap();
    let ask = |lists, by| {
        let question = Question {
            requests: &requests,
            lists,
            clients: 2,
            hosts: 1,
        };
        predict_by(&machine, &question, by).map(|told| told.by)
    };
    assert_eq!(ask(&lists, None).unwrap(), By::ClosedForm);
    for (lists, by) in [(&lists[..], Some(By::Simulation)), (&[], None)] {
        assert_eq!(ask(lists, by).unwrap_err().kind, Kind::Unsupported);
    }
}
