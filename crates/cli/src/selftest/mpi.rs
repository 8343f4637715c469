//! Checks of MPI: a job of ranks that write and read an array, and the library that stands in front
//! of MPI-IO.

use std::ffi::OsString;
use std::path::Path;

use penstock_arrays::calls::Session;
use penstock_arrays::calls::settings::SessionOptions;
use penstock_engine::{Error, Kind};
use penstock_machines::mpi::Transport;
use penstock_machines::mpi::abi::Abi;
use penstock_machines::mpi::loaded::loaded_with;
use penstock_machines::mpi::runtime::{Runtime, is_rank, library_of};
use serde::{Deserialize, Serialize};

use super::arrays::{SHAPE, array, chunks, compare, number, write};
use super::outcome::Outcome;
use super::part::{Part, Process};
use super::site::Site;
use crate::failure::Failure;
use crate::{mpiio, output};

/// The command that starts a job, unless the user names one.
const COMMAND: &str = "mpiexec -n 2";

/// What rank 0 says of its job.
#[derive(Serialize, Deserialize)]
enum Word {
    /// The ranks have written an array, and read it back.
    Done {
        library: String,
        abi: String,
        ranks: usize,
    },
    /// The ranks have found no MPI library that fits.
    NoLibrary(String),
}

/// Writes and reads an array as a rank of a job. Rank 0 says how that went.
///
/// # Collective
/// Over all ranks of the job.
pub(super) fn rank(directory: &Path) -> Result<(), Failure> {
    let job = match Runtime::of_job() {
        Ok(job) => job,
        Err(error) if error.kind == Kind::Unsupported => {
            return say(&Word::NoLibrary(error.to_string()));
        }
        Err(error) => return Err(error.into()),
    };
    let done = write_and_read(&job, directory);
    job.finalize()?;
    match done? {
        (0, word) => say(&word),
        _ => Ok(()),
    }
}

fn say(word: &Word) -> Result<(), Failure> {
    output::text(&(serde_json::to_string(word).map_err(Failure::failed)? + "\n"))
}

/// What the job comes to, and this rank's number.
fn write_and_read(job: &Runtime, directory: &Path) -> penstock_engine::Result<(usize, Word)> {
    let (rank, ranks) = job.api()?.rank_and_size(job.world())?;
    let given = Ok((Transport::Shared, SessionOptions::default()));
    let threads = job.may_use_threads();
    let mut session = Session::mpi(job.api()?, job.world(), threads, given, None)?;
    let path = directory.join("job.zarr");
    let mesh = [ranks as u64];
    let distributed = |dists| array(SHAPE, chunks([256, 128], "zstd:1"), (dists, &mesh));
    write(&session, &path, &distributed("BLOCK,*")?, number)?;
    compare(&session, &path, &distributed("*,CYCLIC")?)?;
    session.close()?;
    let missing = || Error::new(Kind::Unsupported, "looking for MPI", "it is not loaded");
    let (library, abi) = loaded_with(c"MPI_Init_thread")
        .map(|(path, library)| (path.display().to_string(), Abi::of(&library)))
        .ok_or_else(missing)?;
    let abi = match abi {
        Abi::Mpich => "MPICH's ABI",
        Abi::OpenMpi => "Open MPI's ABI",
        Abi::Standard => "the standard ABI of MPI 5",
    };
    let abi = abi.to_string();
    Ok((
        rank,
        Word::Done {
            library,
            abi,
            ranks,
        },
    ))
}

/// Starts a job whose ranks write and read an array.
pub(super) fn job(site: &Site) -> Result<Outcome, Failure> {
    if is_rank() {
        return Ok(Outcome::Lacks(
            "this is a rank of a job, which can start no other: run it outside of the job"
                .to_string(),
        ));
    }
    let command = site.mpiexec().unwrap_or(COMMAND);
    let words: Vec<OsString> = command.split_whitespace().map(OsString::from).collect();
    let Some(program) = words.first().and_then(|program| program.to_str()) else {
        return Err(Failure::failed("--mpiexec names no command"));
    };
    if site.mpiexec().is_none() && !is_on_path(program) {
        return Ok(Outcome::Lacks(format!(
            "there is no {program} on the PATH: without MPI, threads are the ranks; load the \
             module of an MPI, or name its command with --mpiexec"
        )));
    }
    let words = [&words[..], &Part::Rank.words(site)?].concat();
    let mut job = Process::start(site, "job", &words)?;
    let lines = job.last_lines(site)?;
    let status = job.wait(site)?;
    let told = lines
        .iter()
        .find_map(|line| serde_json::from_str(line).ok());
    match told {
        Some(word) if status.success() => word_of(program, word),
        _ => {
            let complaint = job.complaint();
            let complaint = complaint.unwrap_or_else(|| "it gave no reason".to_string());
            Err(Failure::failed(format!(
                "{command} ended with {status}: {complaint}"
            )))
        }
    }
}

/// What the word of a job comes to that `program` has started.
fn word_of(program: &str, word: Word) -> Result<Outcome, Failure> {
    match word {
        Word::Done {
            library,
            abi,
            ranks,
        } => Ok(Outcome::Works(format!(
            "{ranks} ranks of {program} wrote and read an array, compared; {library}, {abi}"
        ))),
        Word::NoLibrary(reason) if library_of(program).is_none() => Ok(Outcome::Lacks(format!(
            "{program} is there, and no MPI library: {reason}"
        ))),
        Word::NoLibrary(reason) => Err(Failure::failed(reason)),
    }
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|place| place.join(program).is_file())
}

/// Looks for the library that stands in front of MPI-IO.
pub(super) fn library(_: &Site) -> Result<Outcome, Failure> {
    match mpiio::find() {
        Ok(path) => Ok(Outcome::Works(path.display().to_string())),
        // A user who names it expects it there.
        Err(failure) if std::env::var_os(mpiio::VARIABLE).is_some() => Err(failure),
        Err(failure) => Ok(Outcome::Lacks(format!(
            "{}; all but `penstock mpiio` works; `make install` and the wheel bring it",
            failure.text()
        ))),
    }
}
