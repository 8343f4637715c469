//! A run of the paper's application: every processor has a block of a square array of integers, and
//! all write it to one file.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use futures::future::join;
use penstock_engine::tuning::{Exchange, StoreAccess, TwoPhase};
use penstock_engine::{Error, Kind, Machine, Operation, Request, Rest, Strategy};
use penstock_layout::{DiskSchema, Dist, Distribution, Dists, LayoutError, Order};
use serde::Serialize;

use penstock_sim::call::CollectiveRun;
use penstock_sim::machine::Layout;
use penstock_sim::machine::{Setup, SimNode, Simulation};
use penstock_sim::preset::Preset;
use penstock_sim::time::{Span, Time};

/// The bytes of an integer.
const WIDTH: u64 = 4;

/// The way of the array into the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Each processor writes each of its rows by a call of its own.
    NonCollective,
    /// The processors write by two-phase I/O, by this step of the paper.
    Step(u8),
    /// Each processor has the rows of the file that it writes already, and writes them by one call.
    Conforming,
    /// The processors write conforming rows, but begin this number of microseconds one after the
    /// other.
    Staggered(u32),
}

/// The work that goes on while the processor computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Background {
    /// Nothing goes on: computation follows.
    None,
    /// The disks work.
    Disk,
    /// All of the collective call goes on.
    All,
}

/// A case is one setup of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Case {
    /// The number of processors.
    pub clients: usize,
    /// The size of the file, in units of 2^20 bytes.
    pub file_mb: u64,
    /// The way of writing.
    pub way: Way,
    /// Whether writes go through the system's buffers though they need not.
    pub is_buffered: bool,
    /// The work in the background of computation, if each processor also computes.
    pub computes: Option<Background>,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunResult {
    /// The time from the first processor's start to the last one's end.
    pub seconds: f64,
    pub events: u64,
}

impl Case {
    /// Makes a case without computation.
    pub fn new(clients: usize, file_mb: u64, way: Way) -> Self {
        Self {
            clients,
            file_mb,
            way,
            is_buffered: false,
            computes: None,
        }
    }

    /// The rough cost of simulating the case.
    pub fn weight(&self) -> u64 {
        match self.way {
            // Every processor writes its part of every row.
            Way::NonCollective => self.shape()[0] * self.clients.isqrt() as u64,
            _ => self.file_mb * 16,
        }
    }

    /// Rows and columns: square if possible, or else twice as high as wide.
    fn shape(&self) -> [u64; 2] {
        let elements = (self.file_mb << 20) / WIDTH;
        let columns = 1 << (elements.ilog2() / 2);
        [elements / columns, columns]
    }

    fn request(&self, preset: &Preset) -> Result<Request, LayoutError> {
        let shape = self.shape();
        let mesh = mesh(self.clients as u64);
        let (dists, mesh) = match self.way {
            Way::NonCollective | Way::Step(_) => (vec![Dist::Block; 2], mesh.to_vec()),
            Way::Conforming | Way::Staggered(_) => {
                (vec![Dist::Block, Dist::Whole], vec![self.clients as u64])
            }
        };
        let memory = Distribution::new(&shape, &Dists(dists), &mesh)?;
        let caching = preset.caching.tuning(u64::MAX);
        let strategy = match self.way {
            Way::Step(step) => Strategy::TwoPhase(TwoPhase {
                buffer_bytes_max: preset.two_phase.buffer_bytes_max,
                exchange: Exchange::STEPS[usize::from(step) - 1],
                io: StoreAccess::Servers(caching),
            }),
            _ => Strategy::Caching(caching),
        };
        let disk = DiskSchema::flat(&shape, WIDTH, Order::RowMajor, preset.file.block_bytes)?;
        Ok(Request {
            operation: Operation::Write,
            strategy,
            holders: memory.into(),
            disk,
            target: Vec::new(),
            servers: preset.nodes.disks,
            sync: preset.caching.waits_for_media,
            split: None,
            file: None,
            rest: Rest::Fill(Vec::new()),
            sifting: None,
        })
    }

    /// The case that takes as long as the computation: it has 64 processors, and none computes.
    pub fn yardstick(&self) -> Self {
        let clients = 64;
        let file_mb = match self.way {
            Way::Conforming => self.file_mb / self.clients as u64 * clients as u64,
            _ => self.file_mb,
        };
        Self {
            clients,
            file_mb,
            computes: None,
            ..*self
        }
    }

    /// Runs the case on the machine of `preset`, but with its own number of processors and file. A
    /// computation takes `computing` seconds.
    ///
    /// # Errors
    /// When the machine is impossible.
    pub fn run(&self, preset: &Preset, trial: u64, computing: f64) -> Result<RunResult, Error> {
        let mut preset = preset.clone();
        preset.nodes.clients = self.clients;
        preset.file.bytes = self.file_mb << 20;
        if let Some(sharing) = preset.sharing.as_ref().filter(|_| self.is_buffered) {
            preset.costs.copy_ns_per_byte = sharing.buffered_copy_ns_per_byte;
        }
        let unfit = |error| Error::new(Kind::Schema, "setting up an experiment", error);
        let request = self.request(&preset).map_err(unfit)?;
        let setup = Setup {
            layout: Layout::Contiguous,
            slots: request.disk.conforming_blocks_max(preset.nodes.disks),
            slot_bytes: request.disk.block_bytes_max(),
            is_disk_free: false,
            seed: trial,
            is_real: false,
            is_traced: false,
        };
        let simulation = Simulation::new(&preset, &setup)?;
        let application = Rc::new(Application {
            run: Rc::new(CollectiveRun {
                requests: vec![request],
                party: simulation.party().clone(),
                is_collective: matches!(self.way, Way::Step(_)),
            }),
            case: *self,
            computing: Span::from_us_f64(computing * 1e6),
            last: Cell::new(Time::ZERO),
        });
        application.run.in_simulation(&simulation, |node| {
            let application = application.clone();
            async move { application.on(&node).await }
        })?;
        let elapsed = application.last.get().saturating_since(Time::ZERO);
        Ok(RunResult {
            seconds: elapsed.as_seconds_f64(),
            events: simulation.totals().events,
        })
    }
}

/// The processors as a grid, no wider than high.
fn mesh(clients: u64) -> [u64; 2] {
    let across = 1 << (clients.ilog2() / 2);
    [clients / across, across]
}

/// The application of every processor.
struct Application {
    run: Rc<CollectiveRun>,
    case: Case,
    /// The time that each processor computes.
    computing: Span,
    /// The end of the last processor.
    last: Cell<Time>,
}

impl Application {
    async fn on(&self, node: &SimNode) -> Result<(), Error> {
        match self.case.computes {
            None => self.write(node).await?,
            Some(Background::None) => {
                self.write(node).await?;
                node.compute(self.computing).await;
            }
            Some(background) => {
                // The processor has done its own part of the exchange when it asks the servers.
                let begun = || background == Background::All || node.has_asked();
                let computing = async {
                    poll_fn(|_| match begun() {
                        true => Poll::Ready(()),
                        false => Poll::Pending, // what the call waits for wakes this node
                    })
                    .await;
                    node.spawn().await;
                    node.compute(self.computing).await;
                };
                let (written, ()) = join(self.write(node), computing).await;
                written?;
            }
        }
        self.last.set(self.last.get().max(node.time()));
        Ok(())
    }

    async fn write(&self, node: &SimNode) -> Result<(), Error> {
        if let Way::Staggered(us) = self.case.way {
            let rank = self.run.party.rank(node.me()).unwrap_or(0);
            node.sleep(Span::from_us(u64::from(us)) * rank as u64).await;
        }
        self.run.call(node).await
    }
}
