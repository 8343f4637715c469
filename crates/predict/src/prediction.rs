//! The answer: what a call will cost.

use std::fmt;

use serde::Serialize;

/// A prediction of one call by one strategy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The word for the strategy.
    pub strategy: &'static str,
    /// The servers that take part.
    pub servers: usize,
    /// Seconds from the start to the end of the slowest client.
    pub seconds: f64,
    /// The seconds on the machine with every number at the fast end of its spread.
    pub low: f64,
    /// The seconds with every number at the slow end.
    pub high: f64,
    /// Bytes of the arrays' elements.
    pub bytes: u64,
    /// Bytes between buffers and disks, padding included.
    pub disk_bytes: u64,
    /// Messages: of agreement and verdict, and those of the strategy. A copy within a host is none.
    pub messages: u64,
    /// Bytes of staging, send and cache buffers of all nodes together.
    pub memory_bytes: u64,
    /// The part of the machine that works longest.
    pub bottleneck: Bottleneck,
    /// The seconds that each part works, on the node where it works longest.
    pub times: Times,
    /// How it was found.
    pub by: By,
}

/// A part of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// Disks, or their page caches.
    Disk,
    /// Messages and their bytes between nodes.
    Network,
    /// Copies of elements from memory to memory.
    Copying,
    /// Software: requests, threads, lists, indices.
    Cpu,
    /// Files made, opened, renamed and forced out, and what a call takes that moves nothing.
    Metadata,
}

/// The seconds that each part of the machine works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    pub disk: f64,
    pub network: f64,
    pub copying: f64,
    pub cpu: f64,
    pub metadata: f64,
}

/// The way in which a prediction was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    Simulation,
    ClosedForm,
}

impl Times {
    /// The part that works longest.
    pub fn bottleneck(&self) -> Bottleneck {
        let parts = [
            (self.disk, Bottleneck::Disk),
            (self.network, Bottleneck::Network),
            (self.copying, Bottleneck::Copying),
            (self.cpu, Bottleneck::Cpu),
            (self.metadata, Bottleneck::Metadata),
        ];
        let longest = parts
            .into_iter()
            .reduce(|longest, part| match part.0 > longest.0 {
                true => part,
                false => longest,
            });
        longest.map_or(Bottleneck::Metadata, |(_, part)| part)
    }

    /// Adds the times of a call that follows.
    pub(crate) fn add(&mut self, other: &Times) {
        self.disk += other.disk;
        self.network += other.network;
        self.copying += other.copying;
        self.cpu += other.cpu;
        self.metadata += other.metadata;
    }
}

impl Prediction {
    /// Adds the prediction of a call that follows this one.
    pub(crate) fn add(&mut self, other: &Prediction) {
        self.seconds += other.seconds;
        self.low += other.low;
        self.high += other.high;
        self.bytes += other.bytes;
        self.disk_bytes += other.disk_bytes;
        self.messages += other.messages;
        self.memory_bytes = self.memory_bytes.max(other.memory_bytes);
        self.times.add(&other.times);
        self.bottleneck = self.times.bottleneck();
        if other.by == By::ClosedForm {
            self.by = By::ClosedForm;
        }
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Copying => "copying",
            Self::Cpu => "CPU",
            Self::Metadata => "metadata",
        })
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Simulation => "simulation",
            Self::ClosedForm => "closed form",
        })
    }
}
