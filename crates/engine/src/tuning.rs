//! How a request is met: strategies and their tuning. Data alone; it may change speed, never a
//! stored byte.

use serde::{Deserialize, Serialize};

use crate::machine::CopyKind;

/// How a request is met, and the tuning of it: all ranks use the same.
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
    /// The word for it.
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
}

impl Default for DiskDirected {
    /// Presorted: it costs next to nothing, and seeks are dear.
    fn default() -> Self {
        Self { presort: true }
    }
}

/// The tuning of caching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caching {
    /// How many requests a client has under way at one disk, at most.
    pub outstanding_max: u32,
    /// Whether a client that has as many under way at one disk goes on to what it wants of others.
    /// Kotz's does not, as Figure 2(a) has it.
    pub looks_ahead: bool,
    /// The most bytes of one call of the file system. A longer contiguous chunk is several calls.
    pub call_bytes_max: u64,
    /// Buffers of a disk's cache, one block each, for each client.
    pub buffers_per_client: u32,
    /// The order of a disk's queue.
    pub queue: QueueOrder,
    /// How many blocks, those that follow on the same disk, are read after one that was asked for.
    pub read_ahead_blocks: u32,
}

impl Default for Caching {
    /// The article's (TOCS 1997, section 4 and Table I).
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

/// In which order a disk's queue is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueOrder {
    /// First come, first served.
    Fcfs,
    /// Cyclical Scan by place in the file.
    CScanFile,
    /// Cyclical Scan by place on the disk.
    CScanDisk,
}

/// How clients exchange elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exchange {
    /// By memget and memput, with a barrier around each phase (Kotz).
    Remote,
    /// Rank after rank: one message is sent, one waited for; copies byte for byte.
    Step1,
    /// The same; copies as fast as the machine can. So are those of the steps that follow.
    Step2,
    /// All sends are begun, then all receives; messages are taken as they come.
    Step3,
    /// All receives are posted, then all sends begun.
    Step4,
    /// All receives are posted; one send after the other, from one send buffer.
    Step5,
}

impl Exchange {
    /// The steps by number, less one.
    pub const STEPS: [Self; 5] = [
        Self::Step1,
        Self::Step2,
        Self::Step3,
        Self::Step4,
        Self::Step5,
    ];

    /// The word for two-phase I/O that exchanges so.
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

/// How conforming parts reach the disks.
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
    /// The staging buffer of a client, bytes: one block at least.
    pub buffer_bytes_max: u64,
    /// How elements are exchanged.
    pub exchange: Exchange,
    /// How the disks are reached.
    pub io: StoreAccess,
}

impl Default for TwoPhase {
    /// The best of Dickens and Thakur's, with 16 MiB, as MPI-IO's collective buffers usually have.
    fn default() -> Self {
        Self {
            buffer_bytes_max: 16 << 20,
            exchange: Exchange::Step5,
            io: StoreAccess::Direct,
        }
    }
}

/// How a call is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The most bytes of buffers that a server, or a client that moves blocks itself, may fill
    /// while the disks work. With less than what it is to move, some of that is moved in the
    /// foreground.
    pub buffer_bytes_max: u64,
}

/// Buffers of a split collective are not more than this, however small.
const BUFFERS_MAX: u64 = 1 << 14;

impl Split {
    /// How many buffers of that size there may be.
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
