//! Runs of a test by seed.

#![allow(dead_code, reason = "each test uses a part")]

use std::time::{Duration, Instant};

/// Prints how to replay a seed that fails.
struct Replay(&'static str, u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(test, seed) = self;
            eprintln!("PENSTOCK_SEED={seed} cargo test -p penstock-files {test}");
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|n| n.parse().unwrap())
}

/// Runs a test on one seed after the other, for two seconds or as long as the environment says.
pub fn for_some_time(test: &'static str, of_seed: impl Fn(u64)) {
    let time = Duration::from_secs(number("PENSTOCK_FUZZ_SECONDS").unwrap_or(2));
    let begun = Instant::now();
    let one = number("PENSTOCK_SEED");
    let mut seed = one.unwrap_or(0);
    while begun.elapsed() < time {
        let replay = Replay(test, seed);
        of_seed(seed);
        drop(replay);
        if one.is_some() {
            return;
        }
        seed += 1;
    }
    println!("{test}: {seed} seeds");
}

/// Runs a test on this number of seeds, or on those that the environment asks for.
pub fn for_seeds(test: &'static str, seeds: u64, of_seed: impl Fn(u64)) {
    let seeds = match number("PENSTOCK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PENSTOCK_SEEDS").unwrap_or(seeds),
    };
    for seed in seeds {
        let replay = Replay(test, seed);
        of_seed(seed);
        drop(replay);
    }
}
