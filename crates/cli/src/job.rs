//! The command as one rank of an MPI job, which `mpiexec -n 4 penstock copy ...` starts.
//!
//! Each rank loads the MPI of its job by itself: the program is linked with none.

use std::ffi::OsString;

use penstock_arrays::calls::Session;
use penstock_arrays::calls::settings::SessionOptions;
use penstock_files::job::JobOptions;
use penstock_files::job::mpi::{self, JobArguments};
use penstock_machines::mpi::Transport;
use penstock_machines::mpi::runtime::{self, Runtime};

use crate::arguments::Copy;
use crate::failure::Failure;
use crate::files::arguments::Fs;
use crate::{copy, files};

/// Whether `arguments`, which begin with the command's own name, are to be run by all ranks of a
/// job together, and this process is one of them.
pub(crate) fn is_asked(arguments: &[OsString]) -> bool {
    let words: Vec<_> = arguments.iter().skip(1).map(|word| word.to_str()).collect();
    let is_collective = matches!(
        words.as_slice(),
        [Some("copy"), ..] | [Some("fs"), Some("import" | "export"), ..]
    );
    is_collective && runtime::is_rank()
}

/// Runs `penstock copy` as one rank.
///
/// # Collective
/// Over all ranks of the job, which must give the same arguments.
pub(crate) fn copy(asked: &Copy) -> Result<(), Failure> {
    in_job(|job| {
        let options = SessionOptions {
            sync: !asked.no_sync,
            ..SessionOptions::default()
        };
        let given = Ok((Transport::Shared, options));
        let threads = job.may_use_threads();
        let mut session = Session::mpi(job.api()?, job.world(), threads, given, None)?;
        let copied = copy::run_in(&session, asked);
        copied.and(session.close().map_err(Failure::from))
    })
}

/// Runs `penstock fs import` or `export` as one rank.
///
/// # Collective
/// Over all ranks of the job, which must give the same arguments.
pub(crate) fn files(asked: &Fs) -> Result<(), Failure> {
    in_job(|job| {
        files::run_in(asked, |volume| {
            let arguments = JobArguments {
                template: volume.to_string(),
                servers: None,
                is_dedicated: false,
                options: JobOptions::default(),
            };
            let threads = job.may_use_threads();
            mpi::open(
                (job.api()?, job.world()),
                threads,
                Ok(arguments),
                None,
                None,
            )
        })
    })
}

/// Acts with the job's MPI. Rank 0 alone says why it failed.
fn in_job(act: impl FnOnce(&Runtime) -> Result<(), Failure>) -> Result<(), Failure> {
    let job = Runtime::of_job()?;
    let (rank, _) = job.api()?.rank_and_size(job.world())?;
    let done = act(&job);
    let ended = job.finalize().map_err(Failure::from);
    match done.and(ended) {
        Err(failure) if rank > 0 => Err(Failure::silent(failure.code())),
        done => done,
    }
}
