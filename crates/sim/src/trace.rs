//! What every part of the machine did when, for people to look at.

use crate::time::Interval;

/// A part of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A node's CPU.
    Cpu,
    /// An I/O node's bus.
    Bus,
    /// A disk's mechanism: the second number is the disk's.
    Disk(usize),
    /// A buffer: the second number is the buffer's on its node.
    Buffer(usize),
}

/// One thing that one part did.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The node.
    pub node: usize,
    /// The part of it.
    pub part: Part,
    /// What it did, as in "seek", "rotate", "media", "memput".
    pub what: &'static str,
    /// From when to when.
    pub interval: Interval,
    /// For "seek" and "media" of a disk with an arm: the cylinder it is then at.
    pub cylinder: Option<u32>,
    /// The block in the file, where it is about one.
    pub block: Option<u64>,
}

/// What every part of the machine did when, in the order in which it was begun.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// All of it.
    pub records: Vec<Record>,
}
