//! The closed form and the simulation of one model, over random calls.

use penstock_predict::description::{Array, Description, Direction, STRATEGIES};
use penstock_predict::predicting::predict_by;
use penstock_predict::{By, Question};
use penstock_sim::preset::Preset;
use penstock_sim::random::Random;

/// A host of today with two processors, on a file system in a page cache.
const HOST: &str = include_str!("host.toml");

fn presets() -> Vec<Preset> {
    let host = Preset::from_toml(HOST, "host.toml").unwrap();
    let around = host.around_page_cache().unwrap();
    let others = ["nvme-server", "cloud-vm"].map(|name| Preset::find(name).unwrap());
    [vec![host, around], others.to_vec()].concat()
}

fn drawn<T: Clone>(random: &mut Random, of: &[T]) -> T {
    of[usize::try_from(random.below(of.len() as u64)).unwrap()].clone()
}

/// An array of up to 64 MiB over 2 to 16 ranks.
fn description(random: &mut Random) -> Description {
    let ranks: usize = drawn(random, &[2, 4, 8, 16]);
    let extents = [32, 64, 100, 128, 256];
    let shape: Vec<u64> = (0..3).map(|_| drawn(random, &extents)).collect();
    let kinds = [
        ("BLOCK,*,*", vec![ranks as u64]),
        ("*,BLOCK,*", vec![ranks as u64]),
        ("*,*,BLOCK", vec![ranks as u64]),
        ("CYCLIC,*,*", vec![ranks as u64]),
        ("BLOCK,BLOCK,*", vec![2, ranks as u64 / 2]),
        ("*,BLOCK,BLOCK", vec![2, ranks as u64 / 2]),
    ];
    let (memory, mesh) = drawn(random, &kinds);
    let chunks = match random.below(3) {
        0 => None,
        1 => Some(shape.iter().map(|extent| extent.div_ceil(2)).collect()),
        _ => Some(vec![32, 64, 64]),
    };
    Description {
        operation: drawn(random, &[Direction::Write, Direction::Read]),
        ranks,
        hosts: 1,
        servers: Some(drawn(random, &[1, 2, 4])),
        strategies: Vec::new(),
        direct: false,
        sync: drawn(random, &[true, false]),
        block_bytes: 1 << 20,
        arrays: vec![Array {
            shape,
            dtype: "f8".into(),
            memory: memory.into(),
            mesh,
            lists: Vec::new(),
            chunks,
        }],
    }
}

#[test]
fn the_closed_form_is_near_the_simulation() {
    let show = std::env::var_os("PENSTOCK_SHOW").is_some();
    let mut random = Random::of(7, 0);
    let presets = presets();
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); STRATEGIES.len()];
    for _ in 0..40 {
        let described = description(&mut random);
        let machine = drawn(&mut random, &presets);
        for (nth, strategy) in described.strategies().unwrap().into_iter().enumerate() {
            let requests = described.requests(&machine, strategy).unwrap();
            let question = Question {
                requests: &requests,
                lists: &[],
                clients: described.ranks,
                hosts: 1,
            };
            let closed = predict_by(&machine, &question, Some(By::ClosedForm)).unwrap();
            if load_is_long(&closed) {
                continue;
            }
            let simulated = predict_by(&machine, &question, Some(By::Simulation)).unwrap();
            let ratio = closed.seconds / simulated.seconds;
            ratios[nth].push(ratio);
            if show {
                println!(
                    "{ratio:.2} {:>13} {} {:?} {} {:?} {:?} {}r {}s {:.4} {:.4} {:?}",
                    closed.strategy,
                    machine.name,
                    described.arrays[0].shape,
                    described.arrays[0].memory,
                    described.arrays[0].chunks,
                    described.operation,
                    described.ranks,
                    requests[0].servers,
                    closed.seconds,
                    simulated.seconds,
                    closed.times
                );
            }
        }
    }
    // Of each strategy nine in ten of the ratios are within the first bound, and all in the second.
    let bounds = [(1.25, 1.5), (1.35, 1.6), (1.75, 3.0), (1.75, 3.0)];
    for ((strategy, (most, all)), mut ratios) in STRATEGIES.into_iter().zip(bounds).zip(ratios) {
        ratios.sort_by(f64::total_cmp);
        let errors: Vec<f64> = ratios.iter().map(|r| r.max(1.0 / r)).collect();
        let within = |bound: f64| {
            let near = errors.iter().filter(|error| **error <= bound).count();
            near as f64 / errors.len() as f64
        };
        let [first, last] = [ratios[0], ratios[ratios.len() - 1]];
        println!(
            "{strategy}: {} cases, within 10%: {:.2}, 25%: {:.2}, 50%: {:.2}, from {first:.2} to \
             {last:.2}",
            errors.len(),
            within(1.1),
            within(1.25),
            within(1.5),
        );
        assert!(errors.len() >= 15, "{strategy}: {} cases", errors.len());
        assert!(
            within(most) >= 0.9,
            "{strategy}: {:.2} within {most}",
            within(most)
        );
        assert!(
            within(all) == 1.0,
            "{strategy}: from {first:.2} to {last:.2}"
        );
    }
}

fn load_is_long(closed: &penstock_predict::Prediction) -> bool {
    closed.messages > 8_000 || closed.times.cpu > 0.02
}

/// A call of terabytes on 100,000 ranks is put into formulas, in no time.
#[test]
fn large_calls_are_closed_forms() {
    let machine = Preset::from_toml(HOST, "host.toml").unwrap();
    let description = Description {
        operation: Direction::Write,
        ranks: 32_768,
        hosts: 2048,
        servers: Some(256),
        strategies: Vec::new(),
        direct: true,
        sync: false,
        block_bytes: 1 << 26,
        arrays: vec![Array {
            shape: vec![16_384, 16_384, 1024],
            dtype: "f8".into(),
            memory: "BLOCK,BLOCK,*".into(),
            mesh: vec![256, 128],
            lists: Vec::new(),
            chunks: Some(vec![512, 256, 64]),
        }],
    };
    for prediction in penstock_predict::predict_all(&machine, &description).unwrap() {
        assert_eq!(prediction.by, By::ClosedForm);
        assert_eq!(prediction.bytes, 1 << 41);
        assert_eq!(prediction.disk_bytes, 1 << 41);
        assert!(prediction.seconds > 0.1 && prediction.seconds.is_finite());
        assert!(prediction.low <= prediction.seconds && prediction.seconds <= prediction.high);
    }
}

/// Small and strange calls have an answer: no elements, no dimensions, one rank, more servers than
/// blocks, ranks without a share, several arrays.
#[test]
fn strange_calls_have_an_answer() {
    let array = |shape: &[u64], memory: &str, mesh: &[u64], chunks: Option<&[u64]>| Array {
        shape: shape.into(),
        dtype: "i4".into(),
        memory: memory.into(),
        mesh: mesh.into(),
        lists: Vec::new(),
        chunks: chunks.map(Into::into),
    };
    let all = [
        vec![array(&[], "", &[], None)],
        vec![array(&[0, 5], "BLOCK,*", &[3], Some(&[2, 2]))],
        vec![array(&[7], "CYCLIC", &[3], None)],
        vec![array(
            &[7, 11, 13],
            "CYCLIC(2),*,BLOCK",
            &[2, 2],
            Some(&[5, 3, 2]),
        )],
        vec![
            array(&[64, 64], "BLOCK,*", &[4], Some(&[16, 64])),
            array(&[64, 64], "*,BLOCK", &[4], None),
        ],
    ];
    for machine in presets() {
        for arrays in &all {
            for operation in [Direction::Write, Direction::Read] {
                for servers in [1, 5] {
                    let description = Description {
                        operation,
                        ranks: 5,
                        hosts: 1,
                        servers: Some(servers),
                        strategies: Vec::new(),
                        direct: false,
                        sync: true,
                        block_bytes: 100,
                        arrays: arrays.clone(),
                    };
                    let all = penstock_predict::predict_all(&machine, &description).unwrap();
                    for told in all {
                        assert!(told.seconds > 0.0 && told.seconds.is_finite(), "{told:?}");
                        assert!(
                            told.low <= told.seconds && told.seconds <= told.high,
                            "{told:?}"
                        );
                    }
                }
            }
        }
    }
}

/// The answer is a function of the question.
#[test]
fn the_same_question_has_the_same_answer() {
    let mut random = Random::of(11, 0);
    let machine = Preset::from_toml(HOST, "host.toml").unwrap();
    let described = description(&mut random);
    let ask = || penstock_predict::predict_all(&machine, &described).unwrap();
    assert_eq!(ask(), ask());
}

#[test]
fn questions_that_make_no_sense_are_refused() {
    let machine = Preset::from_toml(HOST, "host.toml").unwrap();
    let good = description(&mut Random::of(1, 0));
    let refused = |change: &dyn Fn(&mut Description)| {
        let mut wrong = good.clone();
        change(&mut wrong);
        penstock_predict::predict_all(&machine, &wrong)
            .unwrap_err()
            .kind
    };
    use penstock_engine::Kind;
    assert_eq!(refused(&|d| d.ranks = 0), Kind::Schema);
    assert_eq!(refused(&|d| d.hosts = d.ranks + 1), Kind::Schema);
    assert_eq!(refused(&|d| d.servers = Some(0)), Kind::Schema);
    assert_eq!(refused(&|d| d.arrays.clear()), Kind::Schema);
    assert_eq!(refused(&|d| d.arrays[0].mesh.push(2)), Kind::Schema);
    assert_eq!(refused(&|d| d.arrays[0].dtype = "f".into()), Kind::Schema);
    assert_eq!(refused(&|d| d.block_bytes = 0), Kind::Schema);
    assert_eq!(
        refused(&|d| d.strategies = vec!["magic".into()]),
        Kind::Schema
    );
    let around = machine.around_page_cache().unwrap();
    let direct = Description {
        direct: true,
        ..good
    };
    let kind = penstock_predict::predict_all(&around, &direct)
        .unwrap_err()
        .kind;
    assert_eq!(kind, Kind::Unsupported);
}
