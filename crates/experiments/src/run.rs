//! One configuration, measured by itself.

use std::fmt;

use serde::Serialize;

use super::figure::{Figure, Line, Point, Published, Scale, X};
use super::text::{Grid, bytes, rate};
use super::{Case, Measured, Trials, names, table};
use crate::pattern::Pattern;

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// Its number.
    pub trial: u64,
    /// MB/s.
    pub throughput_mb_s: f64,
    /// Virtual seconds.
    pub seconds: f64,
    /// Bytes that clients got or gave.
    pub bytes: u64,
    /// Events of the simulation.
    pub events: u64,
    /// The digest of all events, 16 hexadecimal digits.
    pub trace_hash: String,
    /// Messages between nodes.
    pub messages: u64,
    /// Their bytes.
    pub message_bytes: u64,
    /// Blocks that disks have read or written.
    pub blocks: u64,
    /// Buffers of all nodes.
    pub buffer_bytes: u64,
    /// Buffers of the node that has most.
    pub buffer_bytes_max: u64,
    /// Seconds of this computer.
    pub wall_seconds: f64,
}

/// A configuration and how its trials went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The machine.
    pub preset: String,
    /// Its clients.
    pub clients: usize,
    /// Its I/O nodes.
    pub io_nodes: usize,
    /// Its disks.
    pub disks: usize,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Who holds what.
    pub pattern: Pattern,
    /// Bytes of a record.
    pub record: u64,
    /// Where blocks lie.
    pub layout: &'static str,
    /// Who directs the flow.
    pub method: &'static str,
    /// How many trials.
    pub trials: u64,
    /// The number of the first.
    pub seed: u64,
    /// MB/s: the mean.
    pub throughput_mb_s: f64,
    /// Its coefficient of variation.
    pub cv: f64,
    /// MB/s in the report's table, where that has a cell of this.
    pub published: Option<f64>,
    /// Virtual seconds: the mean.
    pub seconds: f64,
    /// Events of all trials.
    pub events: u64,
    /// A digest of all trials' digests, 16 hexadecimal digits.
    pub trace_hash: String,
    /// Seconds of this computer, all trials together.
    pub wall_seconds: f64,
    /// One a trial.
    pub per_trial: Vec<Trial>,
}

impl Report {
    /// Of `case`, measured in `trials`.
    pub fn new(case: &Case, trials: &Trials, measured: &Measured) -> Self {
        let nodes = &case.preset.nodes;
        let rate = measured.throughput();
        let ran = measured.outcomes.iter().zip(&measured.walls);
        let per_trial = (trials.first..)
            .zip(ran)
            .map(|(trial, (outcome, wall))| Trial {
                trial,
                throughput_mb_s: outcome.throughput_mb_s(),
                seconds: outcome.elapsed.as_seconds_f64(),
                bytes: outcome.bytes,
                events: outcome.events,
                trace_hash: hex(outcome.trace_hash),
                messages: outcome.messages,
                message_bytes: outcome.message_bytes,
                blocks: outcome.blocks,
                buffer_bytes: outcome.buffer_bytes,
                buffer_bytes_max: outcome.buffer_bytes_max,
                wall_seconds: wall.as_secs_f64(),
            });
        Self {
            preset: case.preset.name.clone(),
            clients: nodes.clients,
            io_nodes: nodes.io_nodes,
            disks: nodes.disks,
            file_bytes: case.preset.file.bytes,
            pattern: case.pattern,
            record: case.record_bytes,
            layout: names::layout(case.layout),
            method: names::method(case.method),
            trials: trials.count,
            seed: trials.first,
            throughput_mb_s: rate.mean,
            cv: rate.cv,
            published: table::published_of(case),
            seconds: measured.mean(|outcome| outcome.elapsed.as_seconds_f64()),
            events: measured.events(),
            trace_hash: hex(measured.trace_hash()),
            wall_seconds: measured.wall().as_secs_f64(),
            per_trial: per_trial.collect(),
        }
    }

    /// The trials side by side.
    pub fn figure(&self, case: &Case) -> Figure {
        let point = |trial: &Trial| Point {
            x: X::Name(trial.trial.to_string()),
            y: trial.throughput_mb_s,
            cv: None,
        };
        Figure {
            figure: "of a run".into(),
            title: case.describe(),
            x_label: "trial".into(),
            y_label: "throughput (MB/s)".into(),
            x_scale: Scale::Category,
            series: vec![Line {
                name: self.method.into(),
                points: self.per_trial.iter().map(point).collect(),
            }],
            limits: Vec::new(),
            published: self.published.map(published).into_iter().collect(),
            preset: self.preset.clone(),
            trials: self.trials,
        }
    }
}

/// A cell of the report's table, beside all trials.
fn published(mb_s: f64) -> Published {
    Published {
        name: format!("published: {mb_s:.1}"),
        series: None,
        x: None,
        low: mb_s,
        high: mb_s,
        is_relative: false,
    }
}

fn hex(hash: u64) -> String {
    format!("{hash:016x}")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, {} records, {}, {} on {}: a file of {}, {} clients, {} I/O nodes, {} disks",
            self.pattern,
            bytes(self.record),
            self.layout,
            self.method,
            self.preset,
            bytes(self.file_bytes),
            self.clients,
            self.io_nodes,
            self.disks
        )?;
        writeln!(f)?;
        let mut grid = Grid::default();
        let heads = [
            "trial", "MB/s", "seconds", "messages", "blocks", "buffers", "events", "trace",
        ];
        grid.row(heads.map(String::from));
        for trial in &self.per_trial {
            grid.row([
                trial.trial.to_string(),
                rate(trial.throughput_mb_s),
                format!("{:.6}", trial.seconds),
                trial.messages.to_string(),
                trial.blocks.to_string(),
                bytes(trial.buffer_bytes),
                trial.events.to_string(),
                trial.trace_hash.clone(),
            ]);
        }
        writeln!(f, "{grid}")?;
        write!(
            f,
            "{} MB/s{}, variation {:.3}; {:.2} million events a second",
            rate(self.throughput_mb_s),
            self.published
                .map_or(String::new(), |mb_s| format!(" (published: {mb_s:.1})")),
            self.cv,
            self.events as f64 / self.wall_seconds / 1e6
        )
    }
}
