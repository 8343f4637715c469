//! The machine of MPI ranks keeps what machines promise: by shared memory, and by messages.
//!
//! Started by itself this program starts `mpiexec` on itself, on two and on three ranks. Where no
//! `mpiexec` is on the path it says so and ends. The library is that beside `mpiexec`, or the one
//! that `PENSTOCK_TEST_MPI_LIBRARY` names.

#[path = "all/common/mod.rs"]
mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Memory, Stores};
use penstock_conformance::{Bench, Case, Form, Need, Seat};
use penstock_engine::{Error, Machine};
use penstock_layout::Share;
use penstock_machines::Node;
use penstock_machines::mpi::runtime::{Runtime, library_of};
use penstock_machines::mpi::{Transport, join};

/// Says to a rank that it is one, and how it reaches the others.
const TRANSPORT: &str = "PENSTOCK_TEST_TRANSPORT";
const LIBRARY: &str = "PENSTOCK_TEST_MPI_LIBRARY";
/// Only what hangs takes longer: a case on a rank, and a job.
const CASE_MAX: Duration = Duration::from_secs(120);
const JOB_MAX: Duration = Duration::from_secs(600);

fn main() {
    match std::env::var(TRANSPORT) {
        Ok(transport) => run_rank(&transport),
        Err(_) => start_jobs(),
    }
}

fn start_jobs() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|directory| directory.join("mpiexec"));
    let Some(mpiexec) = found.find(|mpiexec| mpiexec.is_file()) else {
        return println!("no mpiexec on the path: nothing is tested");
    };
    let named = std::env::var_os(LIBRARY).map(PathBuf::from);
    let library = named.or_else(|| library_of(mpiexec.to_str().unwrap()));
    let library = library.expect("no MPI library beside mpiexec: set PENSTOCK_TEST_MPI_LIBRARY");
    for ranks in ["2", "3"] {
        for transport in ["shared", "messages"] {
            let mut job = Command::new(&mpiexec);
            job.args(["-n", ranks])
                .arg(std::env::current_exe().unwrap());
            job.env(TRANSPORT, transport).env(LIBRARY, &library);
            let start = Instant::now();
            let passed = await_job(job.spawn().unwrap());
            assert!(passed, "failed on {ranks} ranks by {transport}");
            println!(
                "{ranks} ranks by {transport}: passed in {:.1?}",
                start.elapsed()
            );
        }
    }
}

/// Whether a job ends well. One that hangs is stopped.
fn await_job(mut job: Child) -> bool {
    let until = Instant::now() + JOB_MAX;
    while Instant::now() < until {
        if let Some(status) = job.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    job.kill().unwrap();
    false
}

struct OfRanks {
    mpi: Runtime,
    transport: Transport,
    ranks: usize,
    rank: usize,
    cases: Arc<AtomicU64>,
}

impl Bench for OfRanks {
    type Machine = Node;
    type Held = Memory;

    fn lacks(_need: Need) -> Option<&'static str> {
        None
    }

    fn sizes(&self) -> Vec<usize> {
        vec![self.ranks]
    }

    fn run(&self, nodes: usize, case: &Case<Self>) {
        self.cases.fetch_add(1, Ordering::Relaxed);
        let stores = Arc::new(Stores::default());
        let job = join(
            self.mpi.api().unwrap(),
            self.mpi.world(),
            self.transport,
            stores,
        )
        .unwrap();
        let node = Rc::new(job.node);
        let run = || node.block_on((case.program)(Seat::new(node.clone(), nodes)));
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            eprintln!("rank {}: \"{}\" failed", self.rank, case.name);
            std::process::abort();
        }
    }

    fn hold(share: &Share, width: usize, values: &[u8], form: Form) -> Memory {
        Memory::new(share, width, values, form)
    }

    fn leave(machine: &Node, error: &Error) {
        machine.leave(error);
    }

    fn servers(machine: &Node, nodes: usize) -> (Vec<usize>, usize) {
        (vec![machine.me()], nodes)
    }
}

/// Aborts this process, and with it the job, when a case takes too long.
fn watch(cases: Arc<AtomicU64>) {
    std::thread::spawn(move || {
        let mut seen = (0, Instant::now());
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let begun = cases.load(Ordering::Relaxed);
            if begun > seen.0 {
                seen = (begun, Instant::now());
            } else if seen.1.elapsed() > CASE_MAX {
                eprintln!("case {begun} hangs");
                std::process::abort();
            }
        }
    });
}

fn run_rank(transport: &str) {
    let mpi = Runtime::init(Path::new(&std::env::var_os(LIBRARY).unwrap())).unwrap();
    let (rank, ranks) = mpi.api().unwrap().rank_and_size(mpi.world()).unwrap();
    let bench = OfRanks {
        mpi,
        transport: match transport {
            "shared" => Transport::Shared,
            _ => Transport::Messages,
        },
        ranks,
        rank,
        cases: Arc::default(),
    };
    watch(bench.cases.clone());
    assert!(penstock_conformance::run(&bench).is_empty());
    bench.mpi.finalize().unwrap();
}
