//! The setup of a simulated machine for one run.

use serde::Serialize;

/// The layout of the file's blocks on each disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Blocks lie one behind the other from the first block on.
    Contiguous,
    /// Each block lies at a place of its own, drawn over the whole disk.
    RandomBlocks,
    /// Blocks lie one behind the other in tracks that are drawn over the whole disk.
    RandomTracks,
}

/// The setup of a machine for one run.
#[derive(Clone, Debug)]
pub struct Setup {
    pub layout: Layout,
    /// The number of slots for blocks on each disk.
    pub slots: u64,
    pub slot_bytes: u64,
    /// Whether disks and their file systems take no time: only messages are left (Panda, section 3:
    /// "we simulated an infinitely fast disk by commenting out the actual file system" calls).
    pub is_disk_free: bool,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Whether memories, messages and disks hold real bytes.
    pub is_real: bool,
    /// Whether all events are recorded.
    pub is_traced: bool,
}
