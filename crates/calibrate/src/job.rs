//! Messages between the ranks of an MPI job, which a command such as `mpiexec -n 2` starts.
//!
//! The job runs this program again, as [`rank`]. Each rank loads the MPI library that lies beside
//! `mpiexec`, or that `MPI4PY_LIBMPI` names, and joins the machine of ranks; rank 0 prints what it
//! has measured as a line of JSON.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_engine::{Error, Kind, Result};
use penstock_machines::mpi::runtime::{LIBRARY_VARIABLE, Runtime, library_of};
use penstock_machines::mpi::{Transport, join};

use crate::Options;
use crate::messages::{Messages, NoStores, Told, measure_on};
use crate::sample::Watch;

/// How much longer than its measurement a job may take to start and to end.
const STARTING_MAX: Duration = Duration::from_secs(60);

/// Starts a job, and takes what it has measured; or the reason why there is none.
///
/// # Errors
/// [`Kind::Peer`] when stopped.
pub fn measure(
    options: &Options,
    time: Duration,
    watch: &Watch<'_>,
) -> Result<std::result::Result<Messages, String>> {
    let Some((program, words)) = options.mpiexec.split_first() else {
        return Ok(Err("no command was given".into()));
    };
    let Some(library) = library_of(program) else {
        return Ok(Err(format!(
            "no MPI library lies beside {program}: {LIBRARY_VARIABLE} names it"
        )));
    };
    let started = Command::new(program)
        .args(words)
        .args(&options.rank_command)
        .arg(&library)
        .arg("--seconds")
        .arg(time.as_secs_f64().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut job = match started {
        Ok(job) => job,
        Err(error) => return Ok(Err(format!("{program} cannot be run: {error}"))),
    };
    // Both are read meanwhile: a job that tells much waits for its reader.
    let (told, said) = (reader(job.stdout.take()), reader(job.stderr.take()));
    let ended = await_job(&mut job, time + STARTING_MAX, watch);
    if !matches!(ended, Ok(true)) {
        let _ = job.kill(); // it may have ended meanwhile
        let _ = job.wait();
    }
    watch.check()?;
    if !ended? {
        return Ok(Err("the job did not end in time".into()));
    }
    let (told, said) = (told.join(), said.join());
    let (told, said) = (told.unwrap_or_default(), said.unwrap_or_default());
    let line = told.lines().find(|line| line.starts_with('{'));
    let heard = line.and_then(|line| serde_json::from_str::<Told>(line).ok());
    Ok(heard.map(Told::heard).ok_or_else(|| {
        let last = said.lines().rfind(|line| !line.trim().is_empty());
        format!(
            "the job has told nothing: {}",
            last.unwrap_or("it gave no reason")
        )
    }))
}

/// A thread that reads to the end.
fn reader(from: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut bytes); // what has not come is missing later
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Whether a job has ended before its time was over.
fn await_job(job: &mut Child, time: Duration, watch: &Watch<'_>) -> Result<bool> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        watch.check()?;
        match job.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Ok(Some(_)) | Err(_) => return Ok(true),
        }
    }
    Ok(false)
}

/// Measures as one rank of the job, with this MPI library, for `time`. Rank 0 gives a line of JSON
/// to be printed.
///
/// # Errors
/// When the library is none, and those of the machine.
///
/// # Collective
/// Over all ranks of the job.
pub fn rank(library: &Path, time: Duration) -> Result<Option<String>> {
    let mpi = Runtime::init(library)?;
    let told = measured(&mpi, time);
    mpi.finalize()?;
    told
}

fn measured(mpi: &Runtime, time: Duration) -> Result<Option<String>> {
    let api = mpi.api()?;
    let (rank, ranks) = api.rank_and_size(mpi.world())?;
    if ranks < 2 {
        let cause = "the job has one rank: start two at least";
        return Err(Error::new(Kind::Schema, "measuring ranks", cause));
    }
    let job = join(api, mpi.world(), Transport::Shared, Arc::new(NoStores))?;
    let node = Rc::new(job.node);
    let measured = node.block_on(measure_on(&node, ranks, time))?;
    drop(node);
    let told = (rank == 0).then(|| serde_json::to_string(&Told::of(&measured)));
    let failed = |error| Error::new(Kind::Peer, "telling what was measured", error);
    told.transpose().map_err(failed)
}
