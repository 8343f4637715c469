//! The numbers of the paper's Table I and of its text.

use serde::Serialize;

use super::messages::Pattern;
use super::run::Part;

/// A number of the text, beside the simulated one: MB/s.
#[derive(Clone, Debug, Serialize)]
pub struct Number {
    pub figure: u8,
    /// The quantity, in words.
    pub what: &'static str,
    pub paper: f64,
    pub simulated: f64,
    /// Whether the simulated number is within a tenth of the paper's.
    pub is_near: bool,
}

/// A rule of the text.
#[derive(Clone, Debug, Serialize)]
pub struct Statement {
    pub figure: u8,
    /// The rule, in words.
    pub what: &'static str,
    /// The simulated numbers.
    pub found: String,
    /// Whether the rule holds.
    pub holds: bool,
}

/// A line of Table I.
#[derive(Clone, Copy, Debug)]
pub struct TableLine {
    pub name: &'static str,
    pub measured: Measured,
    /// Milliseconds, and milliseconds a byte.
    pub c: f64,
    pub b: f64,
    /// Whether the machine has these numbers from this line.
    pub is_input: bool,
}

/// The measurements of a line.
#[derive(Clone, Copy, Debug)]
pub enum Measured {
    /// Messages alone.
    Messages(Pattern),
    /// A file that the cache holds.
    Small(Part),
    /// A file that the cache does not hold.
    Big(Part),
}

const fn line(
    name: &'static str,
    measured: Measured,
    (c, b): (f64, f64),
    is_input: bool,
) -> TableLine {
    TableLine {
        name,
        measured,
        c,
        b,
        is_input,
    }
}

const fn read(is_copied: bool) -> Measured {
    Measured::Messages(Pattern::Read { is_copied })
}

const fn write(is_copied: bool) -> Measured {
    Measured::Messages(Pattern::Write { is_copied })
}

/// Table I.
pub const TABLE: [TableLine; 9] = [
    line(
        "piped mp",
        Measured::Messages(Pattern::Piped),
        (0.067, 0.000115),
        true,
    ),
    line("rd mp", read(false), (0.143, 0.000115), true),
    line("wr mp", write(false), (0.143, 0.000116), false),
    line("rd mp+cp", read(true), (0.139, 0.000129), true),
    line("wr mp+cp", write(true), (0.143, 0.000129), false),
    line(
        "rd small",
        Measured::Small(Part::Read),
        (0.353, 0.000144),
        false,
    ),
    line(
        "1st wr small",
        Measured::Small(Part::FirstWrite),
        (0.489, 0.000141),
        false,
    ),
    line(
        "rd big",
        Measured::Big(Part::Read),
        (-1.04, 0.000489),
        false,
    ),
    line(
        "1st wr big",
        Measured::Big(Part::FirstWrite),
        (-0.02, 0.000658),
        false,
    ),
];

/// The figures of section 5 that have numbers.
pub const FIGURES: [u8; 7] = [10, 11, 12, 13, 14, 16, 17];

/// The rate of writes of 64 KB into the cache, MB/s (section 5.3).
pub const MEMORY_MB_S: f64 = 6.7;
/// The rates of an I/O node's disk, MB/s (sections 5.2 and 5.3).
pub const WRITE_MB_S: f64 = 1.5;
pub const READ_MB_S: f64 = 2.2;
/// The rates of each I/O node with several of them (section 5.4).
pub const NODE_READ_MB_S: f64 = 2.1;
pub const NODE_REWRITE_MB_S: f64 = 0.9;

/// The rate of writing a data set of so many MB, in MB/s, by the paper's model: the first 41.23 MB
/// go at the rate of memory, the rest at that of the disk (section 5.3). The model's MB are 2^20
/// bytes for the data set and 10^6 for the rates, as the paper's footnote 4 says of all of it; the
/// model itself does not tell them apart.
pub fn model_mb_s(data_mb: f64) -> f64 {
    const THRESHOLD_MB: f64 = 41.23;
    match data_mb <= THRESHOLD_MB {
        true => MEMORY_MB_S,
        false => data_mb / (6.15 + (data_mb - THRESHOLD_MB) / WRITE_MB_S),
    }
}
