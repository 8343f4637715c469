//! Runs of a test by seed.

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

/// Runs a test on this number of seeds, or on those that the environment asks for.
pub fn for_seeds(test: &'static str, seeds: u64, of_seed: impl Fn(u64)) {
    let number = |name| std::env::var(name).ok().map(|n| n.parse::<u64>().unwrap());
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
