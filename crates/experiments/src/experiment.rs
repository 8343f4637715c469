//! An experiment is one run of the simulated machine: a pattern, moved by a method, timed.

use std::rc::Rc;

use penstock_engine::tuning::{DiskDirected, Exchange, StoreAccess, TwoPhase};
use penstock_engine::{Error, Kind, Request, Rest, Strategy};
use serde::Serialize;

use crate::pattern::Pattern;
use penstock_sim::call::CollectiveRun;
use penstock_sim::machine::{Layout, Setup, Simulation};
use penstock_sim::preset::Preset;
use penstock_sim::time::{Span, Time};
use penstock_sim::trace::Trace;

/// The method by which data are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Clients and servers use traditional caching.
    Caching,
    /// Clients use two-phase I/O.
    TwoPhase,
    /// Servers use disk-directed I/O, in the order of the file.
    Ddio,
    /// Servers use disk-directed I/O, presorted.
    DdioSort,
}

/// An experiment sets up one run. Equal experiments give equal outcomes, to the last bit.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    pub preset: &'a Preset,
    pub pattern: Pattern,
    pub record_bytes: u64,
    pub layout: Layout,
    pub method: Method,
    /// The seed of all random numbers: trial `t` has one set of disk layouts for all patterns and
    /// methods.
    pub trial: u64,
}

/// The outcome of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The virtual time from the start to the end of the slowest client.
    #[serde(skip)]
    pub elapsed: Span,
    /// Bytes that clients got or gave; with `ra`, the file once for each client.
    pub bytes: u64,
    pub events: u64,
    /// A digest of all events, in order.
    pub trace_hash: u64,
    /// Messages between nodes, including acknowledgements.
    pub messages: u64,
    /// The bytes of the messages.
    pub message_bytes: u64,
    /// Blocks that disks have read or written.
    pub blocks: u64,
    /// The bytes of staging and cache buffers of all nodes together.
    pub buffer_bytes: u64,
    /// The most buffer bytes on one node.
    pub buffer_bytes_max: u64,
}

impl Outcome {
    /// The throughput, in 2^20 bytes a second.
    pub fn throughput_mb_s(&self) -> f64 {
        self.bytes as f64 / (1u64 << 20) as f64 / self.elapsed.as_seconds_f64()
    }
}

impl Experiment<'_> {
    /// Runs the experiment.
    ///
    /// # Errors
    /// When the pattern does not fit the machine, or the machine is impossible.
    pub fn run(&self) -> Result<Outcome, Error> {
        self.simulate(false).map(|(outcome, _)| outcome)
    }

    /// Runs the experiment, and keeps a trace.
    ///
    /// # Errors
    /// Like [`Experiment::run`].
    pub fn run_traced(&self) -> Result<(Outcome, Trace), Error> {
        self.simulate(true)
    }

    /// The request of the clients.
    ///
    /// # Errors
    /// When the pattern does not fit the machine.
    pub fn request(&self) -> Result<Request, Error> {
        let Preset { nodes, file, .. } = self.preset;
        let clients = nodes.clients;
        let (memory, disk) = self
            .pattern
            .schemas(file.bytes, file.block_bytes, self.record_bytes, clients)
            .map_err(|e| Error::new(Kind::Schema, "setting up an experiment", e))?;
        // A program that deals out records one by one makes a call for each, even as the only
        // client.
        let call_bytes_max = match self.pattern.is_cyclic_inside() {
            true => self.record_bytes,
            false => u64::MAX,
        };
        let caching = self.preset.caching.tuning(call_bytes_max);
        let strategy = match self.method {
            Method::Caching => Strategy::Caching(caching),
            Method::TwoPhase => Strategy::TwoPhase(TwoPhase {
                buffer_bytes_max: self.preset.two_phase.buffer_bytes_max,
                exchange: Exchange::Remote,
                io: StoreAccess::Servers(self.preset.caching.tuning(u64::MAX)),
            }),
            Method::Ddio => Strategy::DiskDirected(DiskDirected {
                presort: false,
                ..DiskDirected::default()
            }),
            Method::DdioSort => Strategy::DiskDirected(DiskDirected::default()),
        };
        let waits_for_media = match self.method {
            Method::Caching | Method::TwoPhase => self.preset.caching.waits_for_media,
            Method::Ddio | Method::DdioSort => self.preset.disk_directed.waits_for_media,
        };
        Ok(Request {
            operation: self.pattern.operation(),
            strategy,
            holders: memory.into(),
            disk,
            target: Vec::new(),
            servers: nodes.disks,
            sync: waits_for_media,
            split: None,
            file: None,
            rest: Rest::Fill(Vec::new()),
            sifting: None,
        })
    }

    /// The setup of the machine for a request of this experiment.
    pub(crate) fn setup(&self, request: &Request, is_traced: bool) -> Setup {
        Setup {
            layout: self.layout,
            slots: request.disk.conforming_blocks_max(self.preset.nodes.disks),
            slot_bytes: request.disk.block_bytes_max(),
            is_disk_free: false,
            seed: self.trial,
            is_real: false,
            is_traced,
        }
    }

    fn simulate(&self, is_traced: bool) -> Result<(Outcome, Trace), Error> {
        let request = self.request()?;
        let setup = self.setup(&request, is_traced);
        let clients = self.preset.nodes.clients;
        let held = (0..clients).map(|rank| request.holders.share(rank).elements());
        let bytes = held.sum::<u64>() * request.disk.width();
        let simulation = Simulation::new(self.preset, &setup)?;
        let run = Rc::new(CollectiveRun {
            requests: vec![request],
            party: simulation.party().clone(),
            is_collective: self.method != Method::Caching,
        });
        run.in_simulation(&simulation, |node| {
            let run = run.clone();
            async move { run.call(&node).await }
        })?;
        let totals = simulation.totals();
        let outcome = Outcome {
            elapsed: simulation.now().saturating_since(Time::ZERO),
            bytes,
            events: totals.events,
            trace_hash: totals.trace_hash,
            messages: totals.messages,
            message_bytes: totals.message_bytes,
            blocks: totals.blocks,
            buffer_bytes: totals.buffer_bytes,
            buffer_bytes_max: totals.buffer_bytes_max,
        };
        Ok((outcome, simulation.take_trace().unwrap_or_default()))
    }
}
