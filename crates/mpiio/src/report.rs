//! Reports: how the accesses of a file went, on the standard error when it is closed.
//!
//! `PENSTOCK_MPIIO_REPORT=1` asks for them. Each rank counts its accesses by function; rank 0 puts
//! the counts of all ranks together when they meet to close the file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::OnceLock;
use std::time::Duration;

use penstock_engine::Traffic;
use serde::{Deserialize, Serialize};

/// Runs that are shorter than this on average are better gathered by servers.
const RUN_BYTES_SHORT: u64 = 32 << 10;
/// Fewer accesses than this are not worth advice.
const CALLS_MIN: u64 = 100;

/// Whether reports are wanted.
pub fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| {
        let word = std::env::var("PENSTOCK_MPIIO_REPORT").unwrap_or_default();
        !matches!(word.as_str(), "" | "0")
    })
}

/// What one rank counts of one function.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Count {
    pub calls: u64,
    /// The bytes of the file.
    pub bytes: u64,
    /// The runs of the file.
    pub runs: u64,
    /// The time in calls, where they wait for the end.
    pub time: Duration,
    /// The calls in which servers directed the flow.
    pub directed: u64,
    /// What servers did, as rank 0 hears.
    pub moved: Moved,
}

/// What servers did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    pub blocks: u64,
    pub transfers: u64,
}

impl Moved {
    /// Adds the traffic of a call.
    pub fn add(&mut self, traffic: &Traffic) {
        self.blocks += traffic.blocks;
        self.transfers += traffic.transfers;
    }
}

/// The counts of one rank, by function.
pub type Counts = BTreeMap<String, Count>;

/// What a report says of the file beside counts.
pub struct Subject<'a> {
    pub path: &'a str,
    pub hosts: usize,
    pub servers: usize,
    pub block_bytes: u64,
    pub is_atomic: bool,
}

/// The report of all ranks' counts.
pub fn text(subject: &Subject<'_>, ranks: &[Counts]) -> String {
    let mut text = String::new();
    let Subject {
        path,
        hosts,
        servers,
        block_bytes,
        ..
    } = subject;
    let (count, blocks) = (ranks.len(), size(*block_bytes));
    // Writing to a text cannot fail.
    let _ = writeln!(
        text,
        "penstock: {path}: {} on {}, {} with blocks of {blocks}",
        counted(count as u64, "rank"),
        counted(*hosts as u64, "host"),
        counted(*servers as u64, "server")
    );
    let mut all: BTreeMap<&str, Count> = BTreeMap::new();
    for (name, own) in ranks.iter().flatten() {
        let sum = all.entry(name).or_default();
        sum.calls += own.calls;
        sum.bytes += own.bytes;
        sum.runs += own.runs;
        sum.time = sum.time.max(own.time);
        sum.directed += own.directed;
        sum.moved.blocks += own.moved.blocks;
        sum.moved.transfers += own.moved.transfers;
    }
    for (name, sum) in &all {
        let _ = writeln!(text, "  {name}: {}", line(sum));
    }
    let times: Vec<Duration> = ranks
        .iter()
        .map(|counts| counts.values().map(|count| count.time).sum())
        .collect();
    let slowest = (0..count).max_by_key(|&rank| times[rank]);
    let fastest = (0..count).min_by_key(|&rank| times[rank]);
    if let (Some(slow), Some(fast)) = (slowest, fastest)
        && count > 1
    {
        let seconds = |rank: usize| times[rank].as_secs_f64();
        let _ = writeln!(
            text,
            "  the slowest rank is {slow} with {:.3} s, the fastest {fast} with {:.3} s",
            seconds(slow),
            seconds(fast)
        );
    }
    for advice in all
        .iter()
        .filter_map(|(name, sum)| advice(name, sum, count))
    {
        let _ = writeln!(text, "  {advice}");
    }
    if subject.is_atomic {
        let _ = writeln!(
            text,
            "  the file is in atomic mode: accesses that touch each other's bytes wait for each other"
        );
    }
    text
}

/// What is said of one function.
fn line(sum: &Count) -> String {
    let seconds = sum.time.as_secs_f64();
    let mean = sum.bytes.checked_div(sum.runs).unwrap_or(0);
    let mut line = format!(
        "{}, {} in {} of {} on average, {seconds:.3} s",
        counted(sum.calls, "call"),
        size(sum.bytes),
        counted(sum.runs, "run"),
        size(mean)
    );
    if seconds > 0.0 {
        let rate = sum.bytes as f64 / seconds / f64::from(1 << 20);
        let _ = write!(line, ", {rate:.0} MiB/s");
    }
    let _ = match sum.directed {
        0 => write!(line, "; each rank alone"),
        directed => write!(
            line,
            "; {directed} directed by servers: {}, {}",
            counted(sum.moved.blocks, "block"),
            counted(sum.moved.transfers, "transfer")
        ),
    };
    line
}

/// What would help, if anything.
fn advice(name: &str, sum: &Count, ranks: usize) -> Option<String> {
    let mean = sum.bytes.checked_div(sum.runs)?;
    let is_collective = name.contains("_all") || name.contains("_ordered");
    if ranks > 1 && !is_collective && mean < RUN_BYTES_SHORT && sum.calls >= CALLS_MIN {
        return Some(format!(
            "{name} moves {} at a time, each rank alone: if all ranks make such calls together, a \
             collective call lets servers gather them",
            size(mean)
        ));
    }
    let of_call = sum.bytes.checked_div(sum.calls)?;
    if is_collective && of_call < 4096 && sum.calls >= CALLS_MIN {
        return Some(format!(
            "{name} moves {} a rank in each call: fewer calls with more data would spare agreement",
            size(of_call)
        ));
    }
    None
}

/// A number of things.
fn counted(count: u64, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        _ => format!("{count} {thing}s"),
    }
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    match unit {
        "B" => format!("{bytes} B"),
        _ => format!("{value:.1} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(name: &str, count: Count) -> Counts {
        BTreeMap::from([(name.to_string(), count)])
    }

    #[test]
    fn short_independent_accesses_are_pointed_at() {
        let count = Count {
            calls: 1000,
            bytes: 47_000,
            runs: 1000,
            time: Duration::from_millis(20),
            ..Count::default()
        };
        let subject = Subject {
            path: "/x",
            hosts: 1,
            servers: 2,
            block_bytes: 1 << 20,
            is_atomic: false,
        };
        let all = [
            counts("MPI_File_write_at", count.clone()),
            Counts::default(),
        ];
        let report = text(&subject, &all);
        assert!(report.contains("MPI_File_write_at: 1000 calls, 45.9 KiB in 1000 runs of 47 B"));
        assert!(
            report.contains("collective call lets servers gather them"),
            "{report}"
        );
        assert!(
            report.contains("the slowest rank is 0 with 0.020 s"),
            "{report}"
        );
        let one = text(&subject, &[counts("MPI_File_write_at", count)]);
        assert!(!one.contains("slowest") && !one.contains("gather"), "{one}");
    }

    #[test]
    fn directed_calls_are_told() {
        let count = Count {
            calls: 2,
            bytes: 3 << 30,
            runs: 3 << 20,
            time: Duration::from_secs(2),
            directed: 2,
            moved: Moved {
                blocks: 3072,
                transfers: 24_576,
            },
        };
        let subject = Subject {
            path: "/x",
            hosts: 1,
            servers: 2,
            block_bytes: 1 << 20,
            is_atomic: true,
        };
        let report = text(&subject, &[counts("MPI_File_write_all", count)]);
        let told = "3.0 GiB in 3145728 runs of 1.0 KiB on average, 2.000 s, 1536 MiB/s; 2 directed by \
                    servers: 3072 blocks, 24576 transfers";
        assert!(report.contains(told), "{report}");
        assert!(report.contains("atomic mode"));
    }
}
