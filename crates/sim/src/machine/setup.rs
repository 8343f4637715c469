//! How a simulated machine is set up for one run.

use serde::Serialize;

/// How the blocks of the file lie on each disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// One behind the other from the first block on.
    Contiguous,
    /// Each at a place of its own, drawn over the whole disk.
    RandomBlocks,
    /// In tracks that are drawn over the whole disk, one behind the other in each.
    RandomTracks,
}

/// How a machine is set up for one run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How blocks lie on disks.
    pub layout: Layout,
    /// How many slots each disk has for blocks.
    pub slots: u64,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Whether disks and their file systems take no time: what is left is the messages (Panda,
    /// section 3: "we simulated an infinitely fast disk by commenting out the actual file system"
    /// calls).
    pub is_disk_free: bool,
    /// Seeds everything that is drawn.
    pub seed: u64,
    /// Whether memories, messages and disks hold real bytes.
    pub is_real: bool,
    /// Whether all that happens is noted.
    pub is_traced: bool,
}
