//! The command `penstock`, as a library, so that tests can run it in their own process.
//!
//! | command | what it does |
//! |---|---|
//! | `ls`, `info` | describe a store |
//! | `verify` | reads all of a store, and compares it with its checksums |
//! | `repair` | repairs a group whose metadata were rewritten |
//! | `gather` | makes one store of the parts on all servers |
//! | `copy` | copies an array or a data set into another arrangement |
//! | `serve` | serves a volume to programs that come and go |
//! | `keys` | makes the keys of servers and users |
//! | `servers` | shows the servers of a volume that stand |
//! | `top` | shows what they do |
//! | `trace` | makes one trace of several |
//! | `fs` | makes and uses volumes of parallel files |
//! | `mount` | mounts a volume of parallel files |
//! | `mpiio` | runs an MPI program with MPI-IO by Penstock |
//! | `selftest` | tries what works on this machine |
//! | `sim` | runs the papers' experiments on the simulated machine |
//! | `calibrate` | measures this machine, and describes it as a preset |
//! | `predict` | predicts what a collective call costs on a machine |
//! | `bench` | the papers' measurements on this one, with the Python package |
//!
//! `penstock sim` runs the papers' experiments on the simulated machine; each has a subcommand:
//!
//! | subcommand | what it does |
//! |---|---|
//! | `run` | one configuration |
//! | `table` | Tables 3 and 4 of Kotz, PCS-TR94-226, measured beside published |
//! | `figure` | Figures 4 to 15 of Kotz, TOCS 1997 |
//! | `summary` | Table III of the latter |
//! | `trace` | the activity of each part of the machine over time |
//! | `scale` | clients and servers in numbers beyond all papers |
//! | `dickens-thakur` | Figures 2 to 7 of Dickens and Thakur |
//! | `panda` | Figures 3 to 9 of Seamons et al., SC '95 |
//! | `preset` | a machine as TOML, or a list of the machines |
//!
//! Text goes to the standard output, progress and errors to the standard error. `--json FILE`
//! writes the same as JSON, `--json -` writes it instead of the text. `--plot FILE` draws it with
//! matplotlib: the command hands the JSON to a Python interpreter, which is `$PENSTOCK_PYTHON`, the
//! one beside the program, or `python3`. Text, JSON and plots include their provenance.
//!
//! Exit codes: 0; 1 when something failed; 2 for bad input; 3 when `verify` found nothing to
//! compare with. If the code is not 0, one line names the reason.

mod arguments;
mod calibrate;
mod copy;
mod failure;
mod files;
mod job;
mod mount;
mod mpiio;
mod output;
mod plan;
mod predict;
mod progress;
mod provenance;
mod selftest;
mod serve;
mod sim;
mod store;
mod top;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;

use arguments::{Bench, Command, Penstock, Traces};
use failure::Failure;

/// Runs a command and returns its exit code. The first of `arguments` is the command's own name.
///
/// # Collective
/// As a rank of an MPI job `copy`, `fs import` and `fs export` are: all ranks must give the same
/// arguments.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let is_in_job = job::is_asked(&arguments);
    let python = python();
    let done = Penstock::try_parse_from(arguments)
        .map_err(refused)
        .and_then(|penstock| match penstock.command {
            Command::Ls(ls) => store::ls(&ls),
            Command::Info(info) => store::info(&info),
            Command::Verify(verify) => store::verify(&verify),
            Command::Repair(repair) => store::repair(&repair),
            Command::Gather(gather) => store::gather(&gather),
            Command::Copy(copy) if is_in_job => traced(|| job::copy(&copy)),
            Command::Copy(copy) => traced(|| copy::run(&copy)),
            Command::Fs(fs) if is_in_job => traced(|| job::files(&fs)),
            Command::Fs(fs) => traced(|| files::run(&fs)),
            Command::Serve(asked) => serve::serve(&asked),
            Command::Keys(asked) => serve::keys(&asked),
            Command::Servers(asked) => serve::servers(&asked),
            Command::Top(asked) => top::run(&asked),
            Command::Trace(Traces::Join { traces, output }) => {
                Ok(penstock_trace::join(&traces, &output)?)
            }
            Command::Mount(mount) => traced(|| mount::run(&mount)),
            Command::Mpiio(asked) => mpiio::run(&asked),
            Command::Selftest(asked) => selftest::run(&asked),
            Command::Sim(sim) => sim::run(&sim, &python),
            Command::Calibrate(asked) => calibrate::run(&asked),
            Command::Predict(asked) => predict::run(&asked),
            Command::Plan(asked) => plan::run(&asked, &python),
            Command::Plot(asked) => output::plot(&asked, &python),
            Command::Bench(bench) => Err(become_benchmark(&bench, &python)),
        });
    match done {
        Ok(()) => 0,
        Err(failure) => failure.report(),
    }
}

/// The Python that draws plots and has the benchmarks: the one that the environment names, or the
/// one that this program was installed beside.
fn python() -> PathBuf {
    let named = std::env::var_os("PENSTOCK_PYTHON").map(PathBuf::from);
    let own = std::env::current_exe().ok();
    let beside = own.map(|program| program.with_file_name("python3"));
    named
        .or_else(|| beside.filter(|python| python.is_file()))
        .unwrap_or_else(|| "python3".into())
}

/// Runs a command, traced if the environment asks for that.
fn traced(command: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    penstock_trace::begin("penstock")?;
    let done = command();
    penstock_trace::end();
    done
}

/// Lets a benchmark of the Python package take this process, which may be a rank of a job.
fn become_benchmark(bench: &Bench, python: &Path) -> Failure {
    let mut command = std::process::Command::new(python);
    let error = command
        .args(["-m", "penstock_bench"])
        .args(&bench.words)
        .exec();
    Failure::failed(format!("cannot run {}: {error}", python.display()))
}

/// Turns clap's answer into a failure: help and the version go to the standard output, complaints
/// become bad input.
fn refused(said: clap::Error) -> Failure {
    let text = said.render().to_string();
    match said.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::DisplayVersion => {
            let mut out = std::io::stdout().lock();
            match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                Ok(()) => Failure::silent(0),
                Err(error) => output::to_stdout(error),
            }
        }
        _ => Failure::input(failure::without_usage(&text)),
    }
}
