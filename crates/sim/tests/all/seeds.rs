//! What tests of faults have in common: all strategies, and runs by seed.

use penstock_engine::Strategy;
use penstock_engine::tuning::{Caching, DiskDirected, Exchange, QueueOrder, StoreAccess, TwoPhase};

/// All strategies, with all exchanges and both accesses to a store.
pub fn strategies() -> Vec<Strategy> {
    let caching = Caching {
        outstanding_max: 2,
        looks_ahead: true,
        call_bytes_max: 64,
        buffers_per_client: 1,
        queue: QueueOrder::CScanDisk,
        read_ahead_blocks: 1,
    };
    let mut all = vec![
        Strategy::DiskDirected(DiskDirected::default()),
        Strategy::Caching(caching),
        Strategy::Independent,
    ];
    for exchange in [Exchange::STEPS.as_slice(), &[Exchange::Remote]].concat() {
        for io in [StoreAccess::Servers(caching), StoreAccess::Direct] {
            all.push(Strategy::TwoPhase(TwoPhase {
                buffer_bytes_max: 100,
                exchange,
                io,
            }));
        }
    }
    all
}

/// Prints how to replay a seed that fails.
struct Replay(&'static str, u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(test, seed) = self;
            eprintln!("PENSTOCK_SEED={seed} cargo test -p penstock-sim {test}");
        }
    }
}

/// Runs a test on its seeds, until `of_seed` says that no further seed means anything.
pub fn for_seeds(test: &'static str, step: u64, of_seed: impl Fn(u64) -> bool) {
    let number = |name| std::env::var(name).ok().map(|n| n.parse::<u64>().unwrap());
    if let Some(seed) = number("PENSTOCK_SEED") {
        let _replay = Replay(test, seed);
        of_seed(seed);
        return;
    }
    let mut seed = 0;
    loop {
        let replay = Replay(test, seed);
        if !of_seed(seed) {
            return;
        }
        drop(replay);
        seed += number("PENSTOCK_STEP").unwrap_or(step);
    }
}
