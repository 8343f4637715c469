//! Cases are configurations, run for several trials each, many side by side.
//!
//! Trials are independent: they are handed to one thread a processor, the longest first by a rough
//! count of their steps, so that all threads end at about the same time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_engine::Error;
use serde::Serialize;

use super::{StudyError, names, text, threads};
use crate::experiment::{Experiment, Method, Outcome};
use crate::pattern::Pattern;
use penstock_sim::machine::Layout;
use penstock_sim::preset::Preset;

/// A case is an [`Experiment`] without the number of the trial.
#[derive(Clone, Debug)]
pub struct Case {
    pub preset: Arc<Preset>,
    pub pattern: Pattern,
    pub record_bytes: u64,
    pub layout: Layout,
    pub method: Method,
}

/// The trials of each case.
#[derive(Clone, Copy, Debug)]
pub struct Trials {
    /// The number of trials of each case.
    pub count: u64,
    /// The number of the first trial, on which all random numbers depend; the others follow.
    pub first: u64,
    /// The number of trials run at a time.
    pub threads: usize,
}

impl Trials {
    /// `count` trials from number 0 on, on all processors.
    pub fn new(count: u64) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            count,
            first: 0,
            threads,
        }
    }
}

/// A watch hears of the progress of trials, from any thread.
pub trait Watch: Sync {
    /// Begins work of `total` units.
    fn begin(&self, total: u64) {
        let _ = total;
    }

    /// Notes that a trial of `case` is done, with `units` of the work.
    fn done(&self, units: u64, case: &Case) {
        let _ = (units, case);
    }
}

/// The empty watch ignores all news.
impl Watch for () {}

/// The results of the trials of a case.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The outcome of each trial, in order.
    pub outcomes: Vec<Outcome>,
    /// The time of each trial on this computer.
    pub walls: Vec<Duration>,
}

/// The mean of some values, with their variation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mean {
    pub mean: f64,
    /// The coefficient of variation.
    pub cv: f64,
}

impl Mean {
    /// Makes the mean of `values`; without values it is no number.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let cv = match values.len() {
            1 => 0.0,
            _ => (squares / (count - 1.0)).sqrt() / mean,
        };
        Self { mean, cv }
    }
}

impl Measured {
    /// The mean throughput, MB/s.
    pub fn throughput(&self) -> Mean {
        let rates: Vec<f64> = self.outcomes.iter().map(Outcome::throughput_mb_s).collect();
        Mean::of(&rates)
    }

    /// The mean of a count of the outcomes.
    pub fn mean(&self, count: impl Fn(&Outcome) -> f64) -> f64 {
        let values: Vec<f64> = self.outcomes.iter().map(count).collect();
        Mean::of(&values).mean
    }

    /// The events of all trials together.
    pub fn events(&self) -> u64 {
        self.outcomes.iter().map(|outcome| outcome.events).sum()
    }

    /// A digest of all trials; of one trial, its own digest.
    pub fn trace_hash(&self) -> u64 {
        // The prime of FNV-1a, 64 bits: any odd number that spreads bits would do.
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let hashes = self.outcomes.iter().map(|outcome| outcome.trace_hash);
        let together = hashes.reduce(|all, hash| all.rotate_left(17).wrapping_mul(PRIME) ^ hash);
        together.unwrap_or(0)
    }

    /// The time of all trials together on this computer.
    pub fn wall(&self) -> Duration {
        self.walls.iter().sum()
    }
}

impl Case {
    /// Makes the experiment with number `trial`.
    pub fn experiment(&self, trial: u64) -> Experiment<'_> {
        Experiment {
            preset: &self.preset,
            pattern: self.pattern,
            record_bytes: self.record_bytes,
            layout: self.layout,
            method: self.method,
            trial,
        }
    }

    /// Describes the case: "rbb, 8-byte records, contiguous, ddio".
    pub fn describe(&self) -> String {
        format!(
            "{}, {} records, {}, {}",
            self.pattern,
            text::record(self.record_bytes),
            names::layout(self.layout),
            names::method(self.method)
        )
    }

    /// Checks that the machine is possible and the pattern fits it. Returns the rough cost of a
    /// trial, in steps of about one length.
    ///
    /// # Errors
    /// When the case cannot be run.
    pub fn weigh(&self) -> Result<u64, StudyError> {
        self.preset.validate()?;
        let file = &self.preset.file;
        let clients = self.preset.nodes.clients;
        let (memory, disk) =
            self.pattern
                .schemas(file.bytes, file.block_bytes, self.record_bytes, clients)?;
        // The first block has as many stretches as any other.
        let first = disk.blocks(0, 1).next();
        let stretches = first.map_or(0, |block| {
            let holders = memory.touching(&block.region).into_iter();
            let pieces = holders.filter_map(|rank| memory.share(rank).intersect(&block.region));
            pieces
                .map(|piece| piece.stretches(&block.region.shape))
                .sum::<u64>()
        });
        let blocks = file.bytes.div_ceil(file.block_bytes);
        let for_each_stretch = match self.method {
            // A stretch takes a message there and one back, a thread, a look into the cache.
            Method::Caching => 8,
            Method::TwoPhase | Method::Ddio | Method::DdioSort => 1,
        };
        Ok(blocks.saturating_mul(10 + stretches.saturating_mul(for_each_stretch)))
    }
}

/// A run is one trial of one case.
struct Run {
    case: usize,
    trial: u64,
    units: u64,
}

type RunResult = Result<(Outcome, Duration), Error>;

/// Runs the trials of all `cases`. Returns the results in the order of the cases.
///
/// # Errors
/// When a case is impossible, before any is run; else the first failure, in the order of cases.
pub fn measure(
    cases: &[Case],
    trials: &Trials,
    watch: &dyn Watch,
) -> Result<Vec<Measured>, StudyError> {
    if trials.count == 0 {
        return Err(StudyError::Input(
            "0 trials measure nothing: take at least 1".into(),
        ));
    }
    let last = trials.first.checked_add(trials.count - 1);
    let numbers = trials.first..=last.ok_or_else(|| {
        StudyError::Input("the numbers of the trials go beyond 2^64 - 1: begin lower".into())
    })?;
    let mut runs = Vec::new();
    for (case, what) in cases.iter().enumerate() {
        let units = what.weigh()?;
        let trial = |trial| Run { case, trial, units };
        runs.extend(numbers.clone().map(trial));
    }
    watch.begin(runs.iter().map(|run| run.units).sum());
    let ran = run_all(cases, &runs, trials.threads, watch);
    let mut measured: Vec<Measured> = cases
        .iter()
        .map(|_| Measured {
            outcomes: Vec::new(),
            walls: Vec::new(),
        })
        .collect();
    for (run, ran) in runs.iter().zip(ran) {
        // After a failure others have no result; the failure is among these.
        if let Some(ran) = ran {
            let (outcome, wall) = ran?;
            measured[run.case].outcomes.push(outcome);
            measured[run.case].walls.push(wall);
        }
    }
    Ok(measured)
}

/// Runs all trials, the longest first. A trial that a failure kept from its start has no result.
fn run_all(
    cases: &[Case],
    runs: &[Run],
    threads: usize,
    watch: &dyn Watch,
) -> Vec<Option<RunResult>> {
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(runs[index].units));
    let ran = threads::run_all(&order, threads, |&index| {
        let run = &runs[index];
        let begun = Instant::now();
        let ran = cases[run.case].experiment(run.trial).run();
        let ran = ran.map(|outcome| (outcome, begun.elapsed()));
        watch.done(run.units, &cases[run.case]);
        ran
    });
    let mut results: Vec<_> = order.into_iter().zip(ran).collect();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, ran)| ran).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_sim::time::Span;

    pub(crate) fn outcome(mb: u64, ms: u64, trace_hash: u64) -> Outcome {
        Outcome {
            elapsed: Span::from_ms(ms),
            bytes: mb << 20,
            events: 10,
            trace_hash,
            messages: 0,
            message_bytes: 0,
            blocks: 0,
            buffer_bytes: 0,
            buffer_bytes_max: 0,
        }
    }

    fn measured(outcomes: Vec<Outcome>) -> Measured {
        let walls = outcomes.iter().map(|_| Duration::from_millis(1)).collect();
        Measured { outcomes, walls }
    }

    #[test]
    fn means() {
        assert_eq!(Mean::of(&[4.0]), Mean { mean: 4.0, cv: 0.0 });
        let three = Mean::of(&[1.0, 2.0, 3.0]);
        assert_eq!(three, Mean { mean: 2.0, cv: 0.5 });
    }

    #[test]
    fn rates_are_averaged_not_times() {
        let two = measured(vec![outcome(10, 1000, 1), outcome(10, 500, 2)]);
        assert_eq!(two.throughput().mean, 15.0);
        assert_eq!(two.events(), 20);
        assert_eq!(two.mean(|outcome| outcome.elapsed.as_seconds_f64()), 0.75);
    }

    #[test]
    fn one_hash_for_all_trials() {
        let hash = |hashes: &[u64]| {
            let outcomes = hashes.iter().map(|&hash| outcome(1, 1, hash)).collect();
            measured(outcomes).trace_hash()
        };
        assert_eq!(hash(&[7]), 7);
        assert_ne!(hash(&[7, 8]), hash(&[8, 7]));
        assert_eq!(hash(&[7, 8]), hash(&[7, 8]));
    }
}
