//! A run of the paper's application: an array of three dimensions, BLOCK in each, is written to the
//! files of the I/O nodes, or read from them, by one collective call.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use penstock_engine::tuning::DiskDirected;
use penstock_engine::{
    BlockFile, Error, Kind, Machine, Operation, Port, Request, Rest, Result, Strategy,
};
use penstock_layout::{DiskSchema, Dist, Distribution, Dists, LayoutError, Split};
use serde::Serialize;

use crate::MB;
use penstock_sim::call::CollectiveRun;
use penstock_sim::machine::Layout;
use penstock_sim::machine::{Setup, SimNode, Simulation};
use penstock_sim::preset::Preset;
use penstock_sim::time::Time;

/// The bytes of an element, a 64-bit number.
const WIDTH: u64 = 8;
/// The most bytes of a sub-chunk: "we chose a subchunk size of 1 MB for all experiments" (section
/// 2).
pub const SUB_CHUNK_BYTES: u64 = 1 << 20;

/// The schema of the array on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schema {
    /// The array lies as in memory: a chunk is a client's share; chunks are dealt out to the
    /// servers in turn.
    Natural,
    /// The array lies as BLOCK,*,*: one piece a server, in row-major order.
    Traditional,
}

/// A case is one setup of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    pub operation: Operation,
    pub schema: Schema,
    /// Whether the disk is infinitely fast.
    pub is_disk_free: bool,
    /// The number of compute nodes.
    pub clients: usize,
    /// The number of I/O nodes.
    pub servers: usize,
    /// The size of the array, in units of 2^20 bytes.
    pub array_mb: u64,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunResult {
    /// The time from the call to its end on the last of the clients.
    pub seconds: f64,
    pub events: u64,
}

impl Case {
    /// The extents of the array, which has exactly `array_mb` times 2^20 bytes: the three factors
    /// that come nearest to a cube. 128 x 128 x 128 for 16 MB, 256 x 512 x 512 for 512 MB, 64 x 112
    /// x 128 for 7 MB.
    pub fn shape(&self) -> [u64; 3] {
        nearest_to_cube((self.array_mb << 20) / WIDTH)
    }

    /// The mesh of the compute nodes, as in the paper.
    ///
    /// # Errors
    /// When the paper has no mesh of this number.
    pub fn mesh(&self) -> Result<[u64; 3]> {
        match self.clients {
            8 => Ok([2, 2, 2]),
            16 => Ok([4, 2, 2]),
            24 => Ok([6, 2, 2]),
            32 => Ok([4, 4, 2]),
            other => {
                let cause = format!("there is no mesh of {other} compute nodes");
                Err(unfit(cause))
            }
        }
    }

    /// The request of the call that all nodes make.
    ///
    /// # Errors
    /// When the paper has no such case.
    pub fn request(&self) -> Result<Request> {
        let mesh = self.mesh()?;
        let schemas = self.schemas(mesh).map_err(unfit)?;
        Ok(self.request_of(schemas))
    }

    fn schemas(
        &self,
        mesh: [u64; 3],
    ) -> std::result::Result<(Distribution, DiskSchema), LayoutError> {
        let shape = self.shape();
        let memory = Distribution::new(&shape, &Dists(vec![Dist::Block; 3]), &mesh)?;
        let mesh_on_disk = match self.schema {
            Schema::Natural => mesh,
            Schema::Traditional => [self.servers as u64, 1, 1],
        };
        let extents = [0, 1, 2].map(|d| shape[d].div_ceil(mesh_on_disk[d]));
        let disk = DiskSchema::chunked(&shape, WIDTH, &extents)?
            .unpadded()
            .split(Split::Contiguous(SUB_CHUNK_BYTES))?;
        Ok((memory, disk))
    }

    fn request_of(&self, (memory, disk): (Distribution, DiskSchema)) -> Request {
        Request {
            operation: self.operation,
            strategy: Strategy::DiskDirected(DiskDirected::default()),
            holders: memory.into(),
            disk,
            target: Vec::new(),
            servers: self.servers,
            sync: true,
            split: None,
            file: None,
            rest: Rest::Fill(Vec::new()),
            sifting: None,
        }
    }

    /// Runs the case on the machine of `preset`, but with its own numbers of nodes and its own
    /// array.
    ///
    /// # Errors
    /// When the machine is impossible.
    pub fn run(&self, preset: &Preset, trial: u64) -> Result<RunResult> {
        run(
            self.request()?,
            preset,
            (self.clients, self.is_disk_free),
            trial,
        )
    }

    /// Runs the case with an array of one element: the time of a call before anything is moved.
    ///
    /// # Errors
    /// Like [`Case::run`].
    pub fn run_empty(&self, preset: &Preset, trial: u64) -> Result<RunResult> {
        let nothing = || {
            let memory = Distribution::new(&[1; 3], &Dists(vec![Dist::Block; 3]), &self.mesh()?)
                .map_err(unfit)?;
            let disk = DiskSchema::chunked(&[1; 3], WIDTH, &[1; 3]).map_err(unfit)?;
            Ok(self.request_of((memory, disk)))
        };
        run(nothing()?, preset, (self.clients, self.is_disk_free), trial)
    }
}

/// The three factors of `elements` with the least sum, in ascending order.
fn nearest_to_cube(elements: u64) -> [u64; 3] {
    let lowest = (1..).take_while(|low| low * low * low <= elements);
    let shapes = lowest
        .filter(|low| elements.is_multiple_of(*low))
        .filter_map(|low| {
            let rest = elements / low;
            // Of two factors, those nearest to each other have the least sum.
            let middle = (low..=rest.isqrt())
                .rev()
                .find(|&m| rest.is_multiple_of(m))?;
            Some([low, middle, rest / middle])
        });
    let nearest = shapes.min_by_key(|shape| shape.iter().sum::<u64>());
    nearest.unwrap_or([1, 1, elements])
}

/// Reads or writes a file of `file_mb` MB on one I/O node by requests of 1 MB, one after the other.
/// Returns the MB/s that the paper's normalised throughput is a part of.
///
/// # Errors
/// When the machine is impossible.
pub fn peak_mb_s(preset: &Preset, operation: Operation, file_mb: u64, trial: u64) -> Result<f64> {
    let elements = (file_mb << 20) / WIDTH;
    let memory = Distribution::new(&[elements], &Dists(vec![Dist::Block]), &[1]).map_err(unfit)?;
    let disk = DiskSchema::chunked(&[elements], WIDTH, &[elements]).map_err(unfit)?;
    let disk = disk
        .split(Split::Contiguous(SUB_CHUNK_BYTES))
        .map_err(unfit)?;
    let request = Request {
        operation,
        strategy: Strategy::DiskDirected(DiskDirected::default()),
        holders: memory.into(),
        disk,
        target: Vec::new(),
        servers: 1,
        sync: true,
        split: None,
        file: None,
        rest: Rest::Fill(Vec::new()),
        sifting: None,
    };
    let simulation = simulation(&request, preset, (1, false), trial)?;
    let request = Rc::new(request);
    let server = simulation.party().servers[0];
    on_every_node(&simulation, |node| {
        let request = request.clone();
        async move {
            match node.me() == server {
                true => one_after_the_other(&node, &request).await,
                false => Ok(()),
            }
        }
    })?;
    let seconds = simulation.now().saturating_since(Time::ZERO);
    Ok(file_mb as f64 / seconds.as_seconds_f64())
}

/// The seconds that a message of `bytes` takes from one compute node to another.
///
/// # Errors
/// When the machine is impossible.
pub fn message_seconds(preset: &Preset, bytes: u64) -> Result<f64> {
    let any = Case {
        operation: Operation::Write,
        schema: Schema::Natural,
        is_disk_free: true,
        clients: 8,
        servers: 2,
        array_mb: 16,
    };
    let simulation = simulation(&any.request()?, preset, (any.clients, true), 0)?;
    let port = Port::new([0; 3]);
    on_every_node(&simulation, |node| async move {
        match node.me() {
            0 => {
                let buffer = node.buffer(bytes)?;
                let parcel = node.cut(&buffer, 0..bytes);
                node.send(1, port, Vec::new(), Some(parcel)).await
            }
            1 => {
                node.receive(port).await;
                Ok(())
            }
            _ => Ok(()),
        }
    })?;
    let elapsed = simulation.now().saturating_since(Time::ZERO);
    Ok(elapsed.as_seconds_f64())
}

async fn one_after_the_other(node: &SimNode, request: &Request) -> Result<()> {
    let disk = node.open(request.opening(0)).await?;
    let buffer = node.buffer(request.disk.block_bytes_max())?;
    for block in request.disk.blocks(0, 1) {
        match request.operation {
            Operation::Write => disk.write(&block, &buffer, 0).await?,
            Operation::Read => disk.read(&block, &buffer, 0).await?,
        }
    }
    match request.operation {
        Operation::Write => disk.finish().await,
        Operation::Read => Ok(()),
    }
}

fn run(
    request: Request,
    preset: &Preset,
    (clients, is_disk_free): (usize, bool),
    trial: u64,
) -> Result<RunResult> {
    let simulation = simulation(&request, preset, (clients, is_disk_free), trial)?;
    let application = Rc::new(Application {
        run: Rc::new(CollectiveRun {
            requests: vec![request],
            party: simulation.party().clone(),
            is_collective: true,
        }),
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

/// Makes the machine of `preset` with `clients`, and as many I/O nodes as the request has servers.
fn simulation(
    request: &Request,
    preset: &Preset,
    (clients, is_disk_free): (usize, bool),
    trial: u64,
) -> Result<Simulation> {
    let mut preset = preset.clone();
    preset.nodes.clients = clients;
    preset.nodes.io_nodes = request.servers;
    preset.nodes.disks = request.servers;
    preset.file.bytes = request.disk.bytes();
    let setup = Setup {
        layout: Layout::Contiguous,
        slots: request.disk.conforming_blocks_max(request.servers),
        slot_bytes: request.disk.block_bytes_max(),
        is_disk_free,
        seed: trial,
        is_real: false,
        is_traced: false,
    };
    Simulation::new(&preset, &setup)
}

/// Runs the nodes; an error of one node is the error of all.
fn on_every_node<F>(simulation: &Simulation, main: impl Fn(SimNode) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + 'static,
{
    let ended = Rc::new(RefCell::new(Ok(())));
    simulation.run(|node| {
        let (running, ended) = (main(node), ended.clone());
        async move {
            if let Err(error) = running.await {
                *ended.borrow_mut() = Err(error);
            }
        }
    })?;
    ended.borrow().clone()
}

fn unfit(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Schema, "setting up an experiment", cause)
}

/// The application of every compute node.
struct Application {
    run: Rc<CollectiveRun>,
    /// The end of the last client: "the maximum time spent by any compute node" (section 3).
    last: Cell<Time>,
}

impl Application {
    async fn on(&self, node: &SimNode) -> Result<()> {
        self.run.call(node).await?;
        self.last.set(self.last.get().max(node.time()));
        Ok(())
    }
}

/// The throughput of all I/O nodes together in a case.
pub fn rate_mb_s(case: &Case, seconds: f64) -> f64 {
    (case.array_mb << 20) as f64 / MB / seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(clients: usize, array_mb: u64) -> Case {
        Case {
            operation: Operation::Write,
            schema: Schema::Natural,
            is_disk_free: true,
            clients,
            servers: 8,
            array_mb,
        }
    }

    #[test]
    fn the_sizes_of_the_paper_are_powers_of_two_in_each_extent() {
        for (array_mb, shape) in [
            (16, [128, 128, 128]),
            (32, [128, 128, 256]),
            (64, [128, 256, 256]),
            (128, [256, 256, 256]),
            (256, [256, 256, 512]),
            (512, [256, 512, 512]),
        ] {
            assert_eq!(case(8, array_mb).shape(), shape, "{array_mb} MB");
        }
    }

    #[test]
    fn any_size_has_exactly_its_bytes_and_no_share_is_empty() {
        for array_mb in 1..=4096 {
            let shape = case(8, array_mb).shape();
            let elements: u64 = shape.iter().product();
            assert_eq!(elements * WIDTH, array_mb << 20, "{array_mb} MB: {shape:?}");
            assert!(shape.is_sorted(), "{array_mb} MB: {shape:?}");
            // The longest mesh of each dimension has 8 I/O nodes or 6 compute nodes; 4; 2.
            for (extent, parts) in [(shape[0], 8), (shape[0], 6), (shape[1], 4), (shape[2], 2)] {
                let part = extent.div_ceil(parts);
                assert!((parts - 1) * part < extent, "{array_mb} MB: {shape:?}");
            }
        }
    }

    #[test]
    fn what_is_moved_are_the_bytes_of_the_array() -> Result<()> {
        for (clients, array_mb) in [(8, 1), (16, 7), (24, 11), (32, 4093), (32, 4096)] {
            for schema in [Schema::Natural, Schema::Traditional] {
                let case = Case {
                    schema,
                    ..case(clients, array_mb)
                };
                let request = case.request()?;
                let shares = (0..clients).map(|rank| request.holders.share(rank).elements());
                assert_eq!(shares.sum::<u64>() * WIDTH, array_mb << 20);
                assert_eq!(request.disk.bytes(), array_mb << 20);
            }
        }
        Ok(())
    }
}
