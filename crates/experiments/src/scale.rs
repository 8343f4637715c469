//! Scale goes beyond the papers: clients and servers in numbers that were out of their reach, on a
//! machine of today.
//!
//! One file, the same for all, is moved by 10 to 100,000 clients and 1 to 1,000 servers, each an
//! I/O node with as many disks as the preset gives one. By default it is a matrix in blocks of rows
//! and columns, `rbb`: the more clients, the smaller the piece of each, and the more share a block;
//! if there are more clients than the matrix can be cut into, some hold nothing. Each point has
//! throughput, messages, the most buffer memory of a node and, for disk-directed I/O, the time in
//! which one server plans: it lists its blocks and their portions, as timed on this computer.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_engine::{Request, portions};
use serde::Serialize;

use super::text::{Grid, bytes, mean_bytes, rate, trials};
use super::{Case, Measured, StudyError, names};
use crate::experiment::Method;
use crate::pattern::Pattern;
use penstock_sim::machine::Layout;
use penstock_sim::preset::Preset;

/// The blocks of the file: every disk of 1,000 servers has some, and a run takes seconds.
pub const BLOCKS: u64 = 1 << 16;
/// The records in a block, if no size is given.
pub const RECORDS_PER_BLOCK: u64 = 8;
pub const CLIENTS: [usize; 5] = [10, 100, 1_000, 10_000, 100_000];
pub const SERVERS: [usize; 4] = [1, 10, 100, 1_000];
pub const METHODS: [Method; 3] = [Method::Caching, Method::TwoPhase, Method::DdioSort];

/// The time for which planning is repeated; the shortest run counts.
const PLANNING: Duration = Duration::from_millis(50);

/// The options of the study.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine, with other numbers of clients and servers.
    pub preset: Arc<Preset>,
    pub pattern: Pattern,
    /// The bytes of a record; a part of a block if none are given.
    pub record_bytes: Option<u64>,
    pub layout: Layout,
    /// The bytes of the file; [`BLOCKS`] if none are given.
    pub file_bytes: Option<u64>,
    pub clients: Vec<usize>,
    pub servers: Vec<usize>,
}

/// A row is one method with one number of clients and of servers.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub method: &'static str,
    pub clients: usize,
    /// The number of I/O nodes.
    pub servers: usize,
    /// The disks of all I/O nodes.
    pub disks: usize,
    pub throughput_mb_s: f64,
    /// The virtual seconds.
    pub seconds: f64,
    /// Messages between nodes.
    pub messages: f64,
    /// The microseconds of this computer in which one server plans its part; 0 if it does not plan.
    pub planning_us: f64,
    /// The blocks that the server plans.
    pub planned_blocks: u64,
    /// The most buffer bytes on one node.
    pub buffer_bytes_max: f64,
    /// The buffer bytes of all nodes.
    pub buffer_bytes: f64,
    /// The events of a trial.
    pub events: u64,
    /// The seconds of this computer for a trial.
    pub wall_seconds: f64,
}

/// The results of the study.
#[derive(Clone, Debug, Serialize)]
pub struct Scale {
    pub preset: String,
    pub pattern: Pattern,
    /// The bytes of a record.
    pub record: u64,
    pub block_bytes: u64,
    pub file_bytes: u64,
    /// The trials of each point.
    pub trials: u64,
    /// The rows by servers, clients, methods.
    pub rows: Vec<Row>,
}

/// The cases to measure, by servers, clients, methods.
///
/// # Errors
/// When a machine is impossible.
pub fn cases(options: &Options) -> Result<Vec<Case>, StudyError> {
    if options.clients.is_empty() || options.servers.is_empty() {
        return Err(StudyError::Input(
            "there is nothing to scale: give numbers of clients and of servers".into(),
        ));
    }
    let nodes = &options.preset.nodes;
    let disks_per_server = (nodes.disks / nodes.io_nodes.max(1)).max(1);
    let block_bytes = options.preset.file.block_bytes;
    let record_bytes = options.record_bytes;
    let record_bytes = record_bytes.unwrap_or((block_bytes / RECORDS_PER_BLOCK).max(1));
    let mut cases = Vec::new();
    for &servers in &options.servers {
        for &clients in &options.clients {
            let mut preset = Preset::clone(&options.preset);
            preset.nodes.clients = clients;
            preset.nodes.io_nodes = servers;
            preset.nodes.disks = servers.saturating_mul(disks_per_server);
            preset.file.bytes = options
                .file_bytes
                .unwrap_or(block_bytes.saturating_mul(BLOCKS));
            preset.validate()?;
            let preset = Arc::new(preset);
            cases.extend(METHODS.map(|method| Case {
                preset: preset.clone(),
                pattern: options.pattern,
                record_bytes,
                layout: options.layout,
                method,
            }));
        }
    }
    Ok(cases)
}

/// The cost of one server's plan: its blocks, and the portions of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanCost {
    /// The time of planning.
    pub took: Duration,
    /// The blocks of the server.
    pub blocks: u64,
    /// The portions of these blocks.
    pub pieces: u64,
}

/// Plans the part of the first server of `case`, all its disks, several times; the fastest counts.
///
/// # Errors
/// When the pattern does not fit.
pub fn plan(case: &Case) -> Result<PlanCost, StudyError> {
    let nodes = &case.preset.nodes;
    let request = case.experiment(0).request()?;
    let begun = Instant::now();
    let mut best = plan_once(&request, nodes.disks, nodes.io_nodes);
    while begun.elapsed() < PLANNING {
        let again = plan_once(&request, nodes.disks, nodes.io_nodes);
        best.took = best.took.min(again.took);
    }
    Ok(best)
}

fn plan_once(request: &Request, disks: usize, io_nodes: usize) -> PlanCost {
    let begun = Instant::now();
    let memory = request.holders.schema();
    let (mut blocks, mut pieces) = (0, 0);
    for disk in (0..disks).step_by(io_nodes) {
        for block in request.disk.blocks(disk, disks) {
            blocks += 1;
            let portions = memory.map(|memory| portions(memory, &block).collect::<Vec<_>>());
            pieces += std::hint::black_box(portions).map_or(0, |portions| portions.len() as u64);
        }
    }
    PlanCost {
        took: begun.elapsed(),
        blocks,
        pieces,
    }
}

impl Scale {
    /// Makes the results from the measured `cases`. Times planning, one server after the other.
    ///
    /// # Errors
    /// When a pattern does not fit.
    pub fn new(
        options: &Options,
        cases: &[Case],
        measured: &[Measured],
    ) -> Result<Self, StudyError> {
        let mut rows = Vec::new();
        for (case, measured) in cases.iter().zip(measured) {
            let nodes = &case.preset.nodes;
            let planned = match case.method {
                Method::Ddio | Method::DdioSort => Some(plan(case)?),
                Method::Caching | Method::TwoPhase => None,
            };
            let trials = measured.outcomes.len().max(1);
            rows.push(Row {
                method: names::method(case.method),
                clients: nodes.clients,
                servers: nodes.io_nodes,
                disks: nodes.disks,
                throughput_mb_s: measured.throughput().mean,
                seconds: measured.mean(|outcome| outcome.elapsed.as_seconds_f64()),
                messages: measured.mean(|outcome| outcome.messages as f64),
                planning_us: planned.map_or(0.0, |planned| planned.took.as_secs_f64() * 1e6),
                planned_blocks: planned.map_or(0, |planned| planned.blocks),
                buffer_bytes_max: measured.mean(|outcome| outcome.buffer_bytes_max as f64),
                buffer_bytes: measured.mean(|outcome| outcome.buffer_bytes as f64),
                events: measured.events() / trials as u64,
                wall_seconds: measured.wall().as_secs_f64() / trials as f64,
            });
        }
        let first = cases.first();
        Ok(Self {
            preset: options.preset.name.clone(),
            pattern: options.pattern,
            record: first.map_or(0, |case| case.record_bytes),
            block_bytes: options.preset.file.block_bytes,
            file_bytes: first.map_or(0, |case| case.preset.file.bytes),
            trials: measured.first().map_or(0, |m| m.outcomes.len() as u64),
            rows,
        })
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "A file of {} in blocks of {}, {} in records of {}, on {}, {}",
            bytes(self.file_bytes),
            bytes(self.block_bytes),
            self.pattern,
            bytes(self.record),
            self.preset,
            trials(self.trials)
        )?;
        writeln!(f)?;
        let mut grid = Grid::default();
        let heads = [
            "method",
            "servers",
            "clients",
            "MB/s",
            "messages",
            "planning, ms a server",
            "buffers, most on a node",
            "wall s",
        ];
        grid.row(heads.map(String::from));
        for row in &self.rows {
            let planning = match row.planning_us {
                0.0 => "-".into(),
                us => format!("{:.3}", us / 1e3),
            };
            grid.row([
                row.method.to_string(),
                row.servers.to_string(),
                row.clients.to_string(),
                rate(row.throughput_mb_s),
                format!("{:.0}", row.messages),
                planning,
                mean_bytes(row.buffer_bytes_max),
                format!("{:.2}", row.wall_seconds),
            ]);
        }
        write!(f, "{grid}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(clients: usize, servers: usize) -> Result<Options, StudyError> {
        Ok(Options {
            preset: Arc::new(Preset::find("nvme-server")?),
            pattern: "rbb".parse()?,
            record_bytes: None,
            layout: Layout::Contiguous,
            file_bytes: None,
            clients: vec![clients],
            servers: vec![servers],
        })
    }

    #[test]
    fn every_point_has_every_method() -> Result<(), StudyError> {
        let mut all = options(10, 1)?;
        all.clients = vec![10, 20, 30];
        all.servers = vec![1, 2];
        let cases = cases(&all)?;
        assert_eq!(cases.len(), 3 * 2 * 3);
        let nodes = &cases[17].preset.nodes;
        assert_eq!((nodes.clients, nodes.io_nodes), (30, 2));
        assert_eq!(
            nodes.disks / 2,
            all.preset.nodes.disks / all.preset.nodes.io_nodes
        );
        all.clients = vec![];
        assert!(self::cases(&all).is_err());
        Ok(())
    }

    /// With a hundred times the clients and the servers, each server has as many blocks and clients
    /// as before, and planning takes a server as long as before. A step for each client would take
    /// a hundred times as long.
    #[test]
    fn planning_does_not_cost_more_for_clients_that_are_not_served() -> Result<(), StudyError> {
        let planned = |clients: usize, servers: usize| -> Result<PlanCost, StudyError> {
            let mut options = options(clients, servers)?;
            options.pattern = "rcb".parse()?;
            options.file_bytes = Some(options.preset.file.block_bytes * clients as u64);
            plan(&cases(&options)?[0])
        };
        let mut least = f64::INFINITY;
        for _ in 0..20 {
            let few = planned(1 << 10, 1 << 3)?;
            let many = planned(1 << 17, 1 << 10)?;
            assert_eq!((few.blocks, few.pieces), (many.blocks, many.pieces));
            least = least.min(many.took.as_secs_f64() / few.took.as_secs_f64());
            if least < 10.0 {
                return Ok(()); // a machine that is busy may measure more, but not always
            }
        }
        panic!("a server plans for {least} times as long")
    }
}
