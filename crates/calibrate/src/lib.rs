//! Measures a machine, and describes it as a [`Preset`] of the simulator.
//!
//! [`calibrate`] takes about as long as it is told: a third of the time goes to memory and
//! messages, the rest to the disk or file system at a directory. Every number of the preset that is
//! measured has its median and its 10th and 90th percentile. What could not be measured is a
//! sentence in `measured.remarks`; a number that stands in its place is an assumption, and has no
//! spread.
//!
//! | module | what it measures |
//! |---|---|
//! | [`sample`] | the clock: repeated measurements, their median and percentiles |
//! | [`memory`] | copies by the kernels of the machines, by stride, alone and on all processors |
//! | [`messages`] | messages, memgets and waking, between threads or ranks of an MPI job |
//! | [`job`] | starts an MPI job that measures messages, and is a rank of it |
//! | [`files`] | reads, writes, names and syncs at a directory, cached and direct |
//! | [`calls`] | collective calls that move next to nothing |
//! | [`assemble`] | the preset that follows from the measurements |
//!
//! Nothing but the command uses this crate. Collective calls are made by the caller, so that the
//! crate stands on machines and knows nothing of arrays.

pub mod assemble;
pub mod calls;
pub mod files;
pub mod job;
pub mod memory;
pub mod messages;
pub mod sample;

use std::path::PathBuf;
use std::time::Duration;

use penstock_engine::{Error, Kind, Result};
use penstock_sim::preset::Preset;

pub use calls::{CallKind, MakeCalls};
pub use sample::Watch;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory whose disk or file system is measured.
    pub path: PathBuf,
    /// The time that all takes, roughly.
    pub time: Duration,
    /// The command that starts a job of two ranks at least, such as `mpiexec -n 2`, word by word.
    pub mpiexec: Vec<String>,
    /// The command by which a rank of that job runs this measurement: [`job::rank`].
    pub rank_command: Vec<String>,
}

/// Measures, and makes the preset. `watch` is asked again and again whether to stop, and told what
/// is being measured.
///
/// Everything that is made below the directory is removed again, also after an error and when
/// stopped.
///
/// # Errors
/// [`Kind::Peer`] when stopped; an error of the directory if nothing at all can be read
/// there. A directory that cannot be written to, too little space, or a file system without direct
/// I/O is no error, but a remark.
pub fn calibrate(
    options: &Options,
    make_calls: &MakeCalls<'_>,
    watch: &Watch<'_>,
) -> Result<Preset> {
    if !options.path.is_dir() {
        let cause = "it is no directory";
        let doing = format!("calibrating at {}", options.path.display());
        return Err(Error::new(Kind::Missing, &doing, cause));
    }
    let mut remarks = Vec::new();
    let part = |percent: u32| options.time * percent / 100;
    watch.tell("memory");
    let memory = memory::measure(part(12), watch)?;
    watch.tell("messages between threads");
    let threads = messages::measure_threads(part(10), watch)?;
    let ranks = match options.mpiexec.is_empty() {
        true => None,
        false => {
            watch.tell("messages between ranks");
            job::measure(options, part(10), watch)?
                .map_err(|why| remarks.push(format!("ranks were not measured: {why}")))
                .ok()
        }
    };
    watch.tell("the file system");
    let files = files::measure(&options.path, part(60), watch, &mut remarks)?;
    watch.tell("calls");
    let calls = calls::measure(
        files.scratch.as_ref(),
        part(8),
        make_calls,
        watch,
        &mut remarks,
    )?;
    let all = assemble::All {
        memory,
        threads,
        ranks,
        files,
        calls,
    };
    assemble::preset(all, remarks)
}
