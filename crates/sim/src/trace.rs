//! Traces show people what every part of the machine did, with its time.

use crate::time::Interval;

/// A part of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A node's CPU.
    Cpu,
    /// An I/O node's bus.
    Bus,
    /// A disk's mechanism, by the disk's number.
    Disk(usize),
    /// A buffer, by its number on its node.
    Buffer(usize),
}

/// A record tells one action of one part.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub node: usize,
    pub part: Part,
    /// The action, as in "seek", "rotate", "media", "memput".
    pub what: &'static str,
    /// The time of the action.
    pub interval: Interval,
    /// The cylinder of the arm after a "seek", or during "media", of a disk with an arm.
    pub cylinder: Option<u32>,
    /// The block in the file, if the action is about one.
    pub block: Option<u64>,
}

/// A trace has the actions of all parts, in the order of their beginnings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    pub records: Vec<Record>,
}
