//! Reports of one configuration, measured by itself.

use std::fmt;

use serde::Serialize;

use super::figure::{Figure, Line, Point, Published, Scale, X};
use super::text::{Grid, bytes, rate};
use super::{Case, Measured, Trials, names, table};
use crate::pattern::Pattern;

/// The result of one trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// The number of the trial.
    pub trial: u64,
    pub throughput_mb_s: f64,
    /// The virtual seconds.
    pub seconds: f64,
    /// Bytes that clients got or gave.
    pub bytes: u64,
    pub events: u64,
    /// The digest of all events, 16 hexadecimal digits.
    pub trace_hash: String,
    /// Messages between nodes.
    pub messages: u64,
    /// The bytes of the messages.
    pub message_bytes: u64,
    /// Blocks that disks have read or written.
    pub blocks: u64,
    /// The buffer bytes of all nodes.
    pub buffer_bytes: u64,
    /// The most buffer bytes on one node.
    pub buffer_bytes_max: u64,
    /// The seconds of this computer.
    pub wall_seconds: f64,
}

/// A report of a configuration, with the results of its trials.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub preset: String,
    pub clients: usize,
    pub io_nodes: usize,
    pub disks: usize,
    pub file_bytes: u64,
    pub pattern: Pattern,
    /// The bytes of a record.
    pub record: u64,
    pub layout: &'static str,
    pub method: &'static str,
    /// The number of trials.
    pub trials: u64,
    /// The number of the first trial.
    pub seed: u64,
    /// The mean throughput.
    pub throughput_mb_s: f64,
    /// The coefficient of variation of the throughput.
    pub cv: f64,
    /// The throughput in the report's table, MB/s, if it has a cell for this case.
    pub published: Option<f64>,
    /// The mean of virtual seconds.
    pub seconds: f64,
    /// The events of all trials.
    pub events: u64,
    /// A digest of all trials' digests, 16 hexadecimal digits.
    pub trace_hash: String,
    /// The seconds of this computer for all trials together.
    pub wall_seconds: f64,
    /// The result of each trial.
    pub per_trial: Vec<Trial>,
}

impl Report {
    /// Makes the report of `case`, measured in `trials`.
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

    /// Makes a figure of the trials, side by side.
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

/// Draws a cell of the report's table beside all trials.
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
