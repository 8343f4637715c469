//! `penstock selftest`: what works on this machine, in one directory.
//!
//! Each check is a row of [`CHECKS`]: it does what programs do with Penstock, in a new directory
//! below the one that is named, and gives an [`Outcome`]. The checks run one after another, each in
//! a thread of its own with a limit of time, so that none can keep the command from its end. What a
//! check starts it ends: other processes are killed and reaped, a mount is unmounted, and all files
//! are removed with the directory.
//!
//! | file | contents |
//! |---|---|
//! | `outcome` | what a check comes to |
//! | `site` | the directory, and the limit of all waits |
//! | `part` | the processes that checks start: this program in other parts |
//! | `mounts` | the table of mounts |
//! | `space` | bytes: free ones, and in words |
//! | `disk` | the file system, direct I/O |
//! | `arrays` | arrays written and read, checksums, copies |
//! | `kill` | a writer that is killed |
//! | `servers` | servers of parallel files that stand |
//! | `memory` | memory that processes share, huge pages |
//! | `mpi` | a job of ranks, the MPI-IO library |
//! | `mount` | a volume that is mounted |

mod arrays;
mod disk;
mod kill;
mod memory;
mod mount;
mod mounts;
mod mpi;
mod outcome;
mod part;
mod servers;
mod site;
mod space;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::arguments::Selftest;
use crate::failure::Failure;
use crate::output;
use outcome::Outcome;
pub(crate) use part::Part;
use site::{Scratch, Site};

/// The longest time that a check may take: the slowest takes a tenth of it on two slow processors.
const LIMIT: Duration = Duration::from_secs(30);
/// The time in which a check whose limit is over ends what it has started.
const GRACE: Duration = Duration::from_secs(5);
/// The time between two looks at a check.
const LOOK: Duration = Duration::from_millis(20);
/// The exit code of a command that a signal has stopped.
const STOPPED: u8 = 130;

/// A check: a subject, and the function that tries it.
struct Check {
    name: &'static str,
    run: fn(&Site) -> Result<Outcome, Failure>,
}

/// All checks, in their order.
const CHECKS: [Check; 12] = [
    Check {
        name: "file system",
        run: disk::file_system,
    },
    Check {
        name: "direct I/O",
        run: disk::direct,
    },
    Check {
        name: "arrays",
        run: arrays::arrays,
    },
    Check {
        name: "checksums",
        run: arrays::checksums,
    },
    Check {
        name: "kill",
        run: kill::kill,
    },
    Check {
        name: "copy",
        run: arrays::copy,
    },
    Check {
        name: "servers",
        run: servers::servers,
    },
    Check {
        name: "shared memory",
        run: memory::shared,
    },
    Check {
        name: "huge pages",
        run: memory::huge_pages,
    },
    Check {
        name: "MPI",
        run: mpi::job,
    },
    Check {
        name: "MPI-IO library",
        run: mpi::library,
    },
    Check {
        name: "FUSE",
        run: mount::mount,
    },
];

/// The width of the longest name.
const NAME_WIDTH: usize = 14;

/// The verdict on a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Verdict {
    #[serde(rename = "ok")]
    Works,
    #[serde(rename = "not here")]
    Lacks,
    #[serde(rename = "failed")]
    Failed,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Works => "ok",
            Self::Lacks => "not here",
            Self::Failed => "FAILED",
        }
    }
}

/// A row of the table: a check that was made.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    result: Verdict,
    detail: String,
    seconds: f64,
}

impl Row {
    fn new(name: &'static str, outcome: Result<Outcome, Failure>, time: Duration) -> Self {
        let (result, detail) = match outcome {
            Ok(Outcome::Works(detail)) => (Verdict::Works, detail),
            Ok(Outcome::Lacks(detail)) => (Verdict::Lacks, detail),
            Err(failure) => (Verdict::Failed, failure.text()),
        };
        Self {
            name,
            result,
            detail: one_line(&detail),
            seconds: time.as_secs_f64(),
        }
    }

    fn line(&self) -> String {
        let (name, word) = (self.name, self.result.word());
        let (seconds, detail) = (self.seconds, &self.detail);
        format!("{name:<NAME_WIDTH$}  {word:<8}  {seconds:>4.1} s  {detail}\n")
    }
}

/// A detail without line breaks and other characters that move a terminal's cursor.
fn one_line(detail: &str) -> String {
    let plain = detail.replace(|char: char| char.is_control(), " ");
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// All rows, and their numbers.
#[derive(Serialize)]
struct Table {
    version: &'static str,
    directory: String,
    checks: Vec<Row>,
    ok: usize,
    not_here: usize,
    failed: usize,
    seconds: f64,
}

impl Table {
    fn new(directory: &Path, checks: Vec<Row>, time: Duration) -> Self {
        let count = |verdict| checks.iter().filter(|row| row.result == verdict).count();
        let directory = directory.canonicalize().unwrap_or(directory.to_path_buf());
        Self {
            version: env!("CARGO_PKG_VERSION"),
            directory: directory.display().to_string(),
            ok: count(Verdict::Works),
            not_here: count(Verdict::Lacks),
            failed: count(Verdict::Failed),
            seconds: time.as_secs_f64(),
            checks,
        }
    }

    fn summary(&self) -> String {
        format!(
            "penstock {} in {}: {} checks in {:.1} s, {} ok, {} not here, {} FAILED\n",
            self.version,
            self.directory,
            self.checks.len(),
            self.seconds,
            self.ok,
            self.not_here,
            self.failed
        )
    }
}

/// Runs all checks, and tells what each has come to; or plays the part that a check has started.
pub(crate) fn run(asked: &Selftest) -> Result<(), Failure> {
    if let Some(part) = asked.part {
        return play(part, &asked.directory);
    }
    let stops = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stops.clone()).map_err(Failure::failed)?;
    }
    let begun = Instant::now();
    let scratch = Scratch::below(&asked.directory)?;
    let mut rows = Vec::new();
    for check in &CHECKS {
        let site = scratch.site(asked.mpiexec.as_deref(), LIMIT, &stops);
        let row = carry_out(check, site);
        if stops.load(Ordering::Relaxed) {
            return Err(Failure::silent(STOPPED));
        }
        if !asked.json {
            output::text(&row.line())?;
        }
        rows.push(row);
    }
    scratch.remove()?;
    let table = Table::new(&asked.directory, rows, begun.elapsed());
    let text = match asked.json {
        true => serde_json::to_string_pretty(&table).map_err(Failure::failed)? + "\n",
        false => table.summary(),
    };
    output::text(&text)?;
    match table.failed {
        0 => Ok(()),
        _ => Err(Failure::silent(1)),
    }
}

/// Plays a part in the directory of a self-test.
fn play(part: Part, directory: &Path) -> Result<(), Failure> {
    match part {
        Part::Writer => {
            part::end_with_parent()?;
            kill::write(directory)
        }
        Part::Server => {
            part::end_with_parent()?;
            servers::serve(directory)
        }
        Part::Mount => mount::serve(directory),
        Part::Lender => memory::lend(),
        Part::Borrower => memory::borrow(directory),
        Part::Rank => {
            part::end_in_time()?;
            mpi::rank(directory)
        }
    }
}

/// Makes a check in a thread of its own, and waits for it no longer than its limit.
fn carry_out(check: &Check, site: Site) -> Row {
    let (begun, site) = (Instant::now(), Arc::new(site));
    let (run, own, (ends, ended)) = (check.run, site.clone(), mpsc::channel());
    let started = std::thread::Builder::new()
        .name(check.name.to_string())
        .spawn(move || {
            // Nobody may wait for the outcome any more.
            let _ = ends.send(run(&own));
        });
    let outcome = match started {
        Ok(_) => await_outcome(&site, &ended),
        Err(error) => Err(Failure::failed(format!(
            "no thread can be started: {error}"
        ))),
    };
    Row::new(check.name, outcome, begun.elapsed())
}

/// The outcome of a check. A check that fails because its time was over fails for what it did then.
fn await_outcome(
    site: &Site,
    ended: &Receiver<Result<Outcome, Failure>>,
) -> Result<Outcome, Failure> {
    let over = || Err(Failure::failed(site.overdue()));
    let mut over_since = None;
    loop {
        match ended.recv_timeout(LOOK) {
            Ok(Err(_)) if site.is_over() => return over(),
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::failed(format!(
                    "the check crashed while {}",
                    site.doing()
                )));
            }
            Err(RecvTimeoutError::Timeout) if site.is_over() => {
                let since = over_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= GRACE {
                    return over();
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried_out(run: fn(&Site) -> Result<Outcome, Failure>, limit: Duration) -> Row {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::below(directory.path()).unwrap();
        let site = scratch.site(None, limit, &Arc::default());
        let row = carry_out(&Check { name: "one", run }, site);
        drop(scratch);
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
        row
    }

    #[test]
    fn a_check_is_a_line() {
        let outcomes = [
            Ok(Outcome::Works("two\n words".into())),
            Ok(Outcome::Lacks("there is none".into())),
            Err(Failure::failed("it broke")),
        ];
        let time = Duration::from_millis(12_345);
        let lines = outcomes.map(|outcome| Row::new("one", outcome, time).line());
        assert_eq!(
            lines,
            [
                "one             ok        12.3 s  two words\n",
                "one             not here  12.3 s  there is none\n",
                "one             FAILED    12.3 s  it broke\n",
            ]
        );
    }

    #[test]
    fn a_check_has_an_outcome() {
        let row = carried_out(|_| Ok(Outcome::Lacks("there is none".into())), LIMIT);
        assert_eq!(
            (row.result, &*row.detail),
            (Verdict::Lacks, "there is none")
        );
        let row = carried_out(|_| Err(Failure::failed("it broke")), LIMIT);
        assert_eq!((row.result, &*row.detail), (Verdict::Failed, "it broke"));
    }

    #[test]
    fn a_check_that_waits_too_long_fails_for_what_it_waited_for() {
        let waits = |site: &Site| {
            site.wait_for("a word", || Ok(None::<()>))?;
            Ok(Outcome::Works(String::new()))
        };
        let row = carried_out(waits, Duration::from_millis(50));
        assert_eq!(row.result, Verdict::Failed);
        assert!(row.detail.ends_with("waiting for a word"), "{}", row.detail);
        assert!(row.seconds < GRACE.as_secs_f64());
    }

    #[test]
    fn a_check_that_crashes_has_failed() {
        let row = carried_out(|_| panic!("a test's own"), LIMIT);
        assert_eq!(row.result, Verdict::Failed);
    }

    #[test]
    fn names_fit_their_column() {
        let longest = CHECKS.iter().map(|check| check.name.len()).max();
        assert_eq!(longest, Some(NAME_WIDTH));
    }
}
