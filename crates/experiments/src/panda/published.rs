//! The paper's claims about its figures, and the runs of each figure. The figures are drawings:
//! their ranges are those in the text.

use std::fmt;

use penstock_engine::Operation;
use serde::Serialize;

use super::run::{Case, Schema};
use crate::figure::Published;

/// The arrays of all figures, MB.
pub const ARRAYS_MB: [u64; 6] = [16, 32, 64, 128, 256, 512];

/// The rate of messages, by which throughput is divided if the disk is infinitely fast (Table 1).
pub const MESSAGES_MB_S: f64 = 34.0;
/// The latency of a message, microseconds (Table 1).
pub const MESSAGE_US: f64 = 43.0;
/// The rate of reading in the file system of an I/O node (Table 1).
pub const READ_MB_S: f64 = 2.85;
/// The rate of writing in the file system of an I/O node (Table 1).
pub const WRITE_MB_S: f64 = 2.23;
/// The time called "the startup overhead for Panda" (section 3).
pub const STARTUP_SECONDS: f64 = 0.013;

/// The greatest distance of a simulated percentage from the paper's, in points.
pub const NEAR_POINTS: f64 = 5.0;

/// The text's claim about a figure, percent of the peak of an I/O node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Says {
    /// All runs lie between two numbers, and reach them.
    Range(f64, f64),
    /// The runs lie near one number "in most cases", and decline for small arrays.
    Most(f64),
}

impl fmt::Display for Says {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Says::Range(from, to) => write!(f, "{from} to {to}"),
            Says::Most(most) => write!(f, "near {most}"),
        }
    }
}

impl Says {
    /// The claim as it is drawn: a band, or a line.
    pub fn published(self) -> Published {
        let (low, high) = match self {
            Says::Range(from, to) => (from, to),
            Says::Most(most) => (most, most),
        };
        Published {
            name: format!("paper: {self}%"),
            series: None,
            x: None,
            low,
            high,
            is_relative: false,
        }
    }
}

/// A figure of the paper.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    pub number: u8,
    pub operation: Operation,
    pub schema: Schema,
    pub is_disk_free: bool,
    /// The number of compute nodes, if no other is asked for.
    pub clients: usize,
    pub says: Says,
}

impl Shown {
    /// All figures, 3 to 9.
    pub const ALL: [Shown; 7] = [
        on_disk(
            3,
            Operation::Read,
            Schema::Natural,
            8,
            Says::Range(85.0, 98.0),
        ),
        on_disk(
            4,
            Operation::Write,
            Schema::Natural,
            8,
            Says::Range(85.0, 98.0),
        ),
        without(on_disk(
            5,
            Operation::Read,
            Schema::Natural,
            32,
            Says::Most(90.0),
        )),
        without(on_disk(
            6,
            Operation::Write,
            Schema::Natural,
            32,
            Says::Most(90.0),
        )),
        on_disk(
            7,
            Operation::Read,
            Schema::Traditional,
            32,
            Says::Range(68.0, 95.0),
        ),
        on_disk(
            8,
            Operation::Write,
            Schema::Traditional,
            32,
            Says::Range(68.0, 95.0),
        ),
        without(on_disk(
            9,
            Operation::Write,
            Schema::Traditional,
            16,
            Says::Range(38.0, 86.0),
        )),
    ];

    /// The title of the figure.
    pub fn title(&self) -> String {
        let which_way = match self.operation {
            Operation::Read => "reads",
            Operation::Write => "writes",
        };
        let schema = match self.schema {
            Schema::Natural => "natural chunking",
            Schema::Traditional => "traditional order",
        };
        let disk = match self.is_disk_free {
            true => ", infinitely fast disk",
            false => "",
        };
        format!(
            "{which_way}, {} compute nodes, {schema}{disk}",
            self.clients
        )
    }

    /// The I/O nodes with which the paper combines its compute nodes.
    pub fn servers(&self) -> [usize; 3] {
        match self.clients {
            24 => [2, 4, 6],
            _ => [2, 4, 8],
        }
    }

    /// Whether the paper ran the figure with this number of compute nodes, shown or not.
    pub fn has(&self, clients: usize) -> bool {
        match self.schema {
            Schema::Natural => [8, 16, 32].contains(&clients),
            Schema::Traditional => [8, 16, 24, 32].contains(&clients),
        }
    }

    /// The case of the run at one place of the figure.
    pub fn case(&self, servers: usize, array_mb: u64) -> Case {
        Case {
            operation: self.operation,
            schema: self.schema,
            is_disk_free: self.is_disk_free,
            clients: self.clients,
            servers,
            array_mb,
        }
    }

    /// The rate of an I/O node that is 100%, MB/s.
    pub fn peak_mb_s(&self) -> f64 {
        match (self.is_disk_free, self.operation) {
            (true, _) => MESSAGES_MB_S,
            (false, Operation::Read) => READ_MB_S,
            (false, Operation::Write) => WRITE_MB_S,
        }
    }
}

const fn on_disk(
    number: u8,
    operation: Operation,
    schema: Schema,
    clients: usize,
    says: Says,
) -> Shown {
    Shown {
        number,
        operation,
        schema,
        is_disk_free: false,
        clients,
        says,
    }
}

const fn without(shown: Shown) -> Shown {
    Shown {
        is_disk_free: true,
        ..shown
    }
}
