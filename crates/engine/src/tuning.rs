//! Strategies and their tuning. They are data alone, and may change speed, never a stored byte.

use serde::{Deserialize, Serialize};

use crate::machine::CopyKind;

/// A strategy says how a request is met, with its tuning: all ranks use one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// The servers direct the flow: [`crate::disk_directed`].
    DiskDirected(DiskDirected),
    /// Clients ask for what they want, servers cache: [`crate::caching`].
    Caching(Caching),
    /// Clients move conforming parts and permute: [`crate::two_phase`].
    TwoPhase(TwoPhase),
    /// Every client moves its own runs itself: [`crate::independent`].
    Independent,
}

impl Strategy {
    /// The word for the strategy.
    pub fn name(&self) -> &'static str {
        match self {
            Self::DiskDirected(_) => "disk-directed",
            Self::Caching(_) => "caching",
            Self::TwoPhase(options) => options.exchange.name(),
            Self::Independent => "independent",
        }
    }
}

impl Default for Strategy {
    fn default() -> Self {
        Self::DiskDirected(DiskDirected::default())
    }
}

/// The tuning of disk-directed I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskDirected {
    /// Whether the blocks are sorted by where they lie on disk before any is moved.
    pub presort: bool,
    /// The buffers of each server, one block each.
    pub buffers: u64,
}

impl Default for DiskDirected {
    /// Blocks are presorted: it costs next to nothing, and seeks are dear. One buffer is filled
    /// while the other is drained (Kotz, Table I).
    fn default() -> Self {
        Self {
            presort: true,
            buffers: 2,
        }
    }
}

/// The tuning of caching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caching {
    /// The most requests of one client under way at one disk.
    pub outstanding_max: u32,
    /// Whether a client with that number of requests under way at one disk goes on to ask others.
    /// Kotz's client does not, according to Figure 2(a).
    pub looks_ahead: bool,
    /// The most bytes of one call of the file system. A longer contiguous chunk is several calls.
    pub call_bytes_max: u64,
    /// The buffers of a disk's cache for each client, one block each.
    pub buffers_per_client: u32,
    /// The order of a disk's queue.
    pub queue: QueueOrder,
    /// The number of blocks, next on the same disk, that are read after one that was asked for.
    pub read_ahead_blocks: u32,
}

impl Default for Caching {
    /// The tuning of the article (TOCS 1997, section 4 and Table I).
    fn default() -> Self {
        Self {
            outstanding_max: 4,
            looks_ahead: true,
            call_bytes_max: u64::MAX,
            buffers_per_client: 8,
            queue: QueueOrder::CScanFile,
            read_ahead_blocks: 1,
        }
    }
}

/// The order of a disk's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueOrder {
    /// The first to come is the first served.
    Fcfs,
    /// Requests are served by Cyclical Scan over places in the file.
    CScanFile,
    /// Requests are served by Cyclical Scan over places on the disk.
    CScanDisk,
}

/// The way in which clients exchange elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exchange {
    /// Clients use memget and memput, with a barrier around each phase (Kotz).
    Remote,
    /// Clients go rank after rank: one message is sent, one waited for; copies go byte for byte.
    Step1,
    /// Clients go rank after rank as in step 1; copies go as fast as the machine can, also in steps
    /// 3 to 5.
    Step2,
    /// All sends are begun, then all receives; messages are taken as they come.
    Step3,
    /// All receives are posted, then all sends begun.
    Step4,
    /// All receives are posted; one send after the other, from one send buffer.
    Step5,
}

impl Exchange {
    /// All steps in order: step `n` is `STEPS[n - 1]`.
    pub const STEPS: [Self; 5] = [
        Self::Step1,
        Self::Step2,
        Self::Step3,
        Self::Step4,
        Self::Step5,
    ];

    /// The word for two-phase I/O with this exchange.
    pub fn name(self) -> &'static str {
        match self {
            Self::Remote | Self::Step5 => "two-phase",
            Self::Step1 => "two-phase:1",
            Self::Step2 => "two-phase:2",
            Self::Step3 => "two-phase:3",
            Self::Step4 => "two-phase:4",
        }
    }

    pub(crate) fn copies_by(self) -> CopyKind {
        match self {
            Self::Step1 => CopyKind::Bytes,
            _ => CopyKind::Kernels,
        }
    }
}

/// The way in which conforming parts reach the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreAccess {
    /// Clients ask the servers of a parallel file system.
    Servers(Caching),
    /// Clients open the store themselves.
    Direct,
}

/// The tuning of two-phase I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TwoPhase {
    /// The most bytes of a client's staging buffer, which holds one block at least.
    pub buffer_bytes_max: u64,
    /// The way in which elements are exchanged.
    pub exchange: Exchange,
    /// The way in which the disks are reached.
    pub io: StoreAccess,
}

impl Default for TwoPhase {
    /// The best step of Dickens and Thakur, with 16 MiB, a usual size of MPI-IO's collective
    /// buffers.
    fn default() -> Self {
        Self {
            buffer_bytes_max: 16 << 20,
            exchange: Exchange::Step5,
            io: StoreAccess::Direct,
        }
    }
}

/// The split of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The most bytes of buffers that a server, or a client that moves blocks itself, may fill
    /// while the disks work. Data that do not fit are moved in the foreground.
    pub buffer_bytes_max: u64,
}

/// The most buffers of a split collective, however small they are.
const BUFFERS_MAX: u64 = 1 << 14;

impl Split {
    /// The number of buffers of `bytes` bytes each.
    pub fn buffers(&self, bytes: u64) -> u64 {
        (self.buffer_bytes_max / bytes.max(1)).clamp(1, BUFFERS_MAX)
    }
}

impl TwoPhase {
    /// The number of blocks of `block_bytes` that a client's staging buffer holds.
    pub(crate) fn blocks_staged(&self, split: Option<Split>, block_bytes: u64) -> u64 {
        let split = split.map_or(0, |split| split.buffer_bytes_max);
        (self.buffer_bytes_max.max(split) / block_bytes.max(1)).max(1)
    }
}
