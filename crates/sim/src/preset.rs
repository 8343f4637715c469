//! Descriptions of whole machines: hardware, software costs, and the tuning of each strategy.
//!
//! A preset is a TOML file in which every number stands with its unit in its name, and its source
//! in a comment. Unknown keys are refused. Those that come with Penstock are in `presets/`; a path
//! to another may be given wherever a name may.

mod check;
mod load;

use penstock_engine::tuning::{self, QueueOrder};
use serde::{Deserialize, Deserializer, Serialize};

use crate::disk::{DiskParameters, FlashParameters};
use crate::network::TorusParameters;

pub use load::PresetError;

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// What it is called.
    pub name: String,
    /// What it describes, in a line.
    pub about: String,
    /// How many of what there are.
    pub nodes: Nodes,
    /// The file that experiments move.
    pub file: File,
    /// Every disk.
    pub disk: DiskKind,
    /// How the disks stand when an experiment starts.
    pub start: Start,
    /// The bus of each I/O node.
    pub bus: BusParameters,
    /// The network.
    pub network: NetworkKind,
    /// What software costs.
    pub costs: Costs,
    /// Traditional caching.
    pub caching: Caching,
    /// Two-phase I/O, on top of that.
    pub two_phase: TwoPhase,
    /// Disk-directed I/O.
    pub disk_directed: DiskDirected,
    /// What compute processors do by themselves, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors: Option<Processors>,
    /// What clients of the file system get in one another's way with, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// What the file system of an I/O node adds to its disk, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<FileSystem>,
}

/// How many of what there are. Clients are nodes 0 and up, I/O nodes follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// Compute processors, each one client.
    pub clients: usize,
    /// I/O processors, each with a bus.
    pub io_nodes: usize,
    /// Disks, each with a server of its own, dealt out to the I/O nodes in turn.
    pub disks: usize,
    /// The place in the network of the first node; the others follow.
    pub first_place: u32,
}

/// The file that experiments move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Its size.
    pub bytes: u64,
    /// What it is striped over the disks by.
    pub block_bytes: u64,
}

/// What a disk is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum DiskKind {
    /// A disk that turns.
    Rotating(DiskParameters),
    /// One that does not.
    Flash(FlashParameters),
}

/// How the disks stand when an experiment starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Start {
    /// All at the same angle: so long before the index mark comes round.
    Common {
        /// Milliseconds of rotation that have passed since the index mark.
        rotation_ms: f64,
    },
    /// Each at an angle of its own, drawn anew for each trial.
    #[serde(deserialize_with = "no_keys")]
    Random,
}

/// The bus of an I/O node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusParameters {
    /// What it carries.
    pub bytes_per_second: u64,
}

/// What a network is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum NetworkKind {
    /// A torus with wormhole routing.
    Torus(TorusParameters),
    /// A fat tree, as large as the nodes need.
    FatTree(FatTreeKind),
}

/// A fat tree but for the number of its nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FatTreeKind {
    /// Nodes on one leaf switch.
    pub nodes_per_leaf: u32,
    /// Leaf switches in a pod.
    pub leaves_per_pod: u32,
    /// Of a port, in each direction.
    pub bytes_per_second: u64,
    /// Of both adapters together.
    pub adapter_latency_ns: f64,
    /// Of one switch and its cable.
    pub switch_latency_ns: f64,
}

/// What software costs: time of a node's one CPU, on which all its software waits its turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// To send a message, whatever its size: the network interface moves the bytes.
    pub send_us: f64,
    /// To take a message in: the interrupt, and telling the network interface where to.
    pub receive_us: f64,
    /// What a message has beside what the program sends.
    pub header_bytes: u64,
    /// A client's loop over blocks, for each request that it makes.
    pub request_us: f64,
    /// A thread for a request, created or woken.
    pub thread_us: f64,
    /// To look a block up in the cache, and to keep the cache.
    pub lookup_us: f64,
    /// To copy from memory to memory, whatever the size, and to keep account of it,
    pub copy_us: f64,
    /// and for each byte.
    pub copy_ns_per_byte: f64,
    /// To set a buffer up: its memory is zeroed.
    pub buffer_ns_per_byte: f64,
    /// To hand a request to a disk, and to take in its end.
    pub disk_request_us: f64,
    /// An entry of a list of blocks, made and sorted in.
    pub entry_us: f64,
    /// A memput, whatever its size, at the node that puts; the acknowledgement is in it.
    pub memput_us: f64,
    /// And for each byte.
    pub memput_ns_per_byte: f64,
    /// A memget, whatever its size, at the node that gets.
    pub memget_us: f64,
    /// To take in the answer to it, beside that.
    pub memget_reply_us: f64,
    /// And for each byte.
    pub memget_ns_per_byte: f64,
    /// A memput or memget at the node whose memory it is: the interrupt.
    pub remote_us: f64,
    /// And for each byte.
    pub remote_ns_per_byte: f64,
    /// For an I/O node to find where a contiguous stretch belongs: of an array of one dimension,
    pub index_1d_us: f64,
    /// and of more.
    pub index_2d_us: f64,
    /// Whether a server's calls block, of messages and of files: it moves one message, takes what
    /// has come to where it belongs, and moves none while its disk works. If not, all of that goes
    /// on side by side.
    #[serde(default)]
    pub one_call_at_a_time: bool,
    /// How memputs and memgets of many stretches travel.
    pub batch: Batch,
}

/// How memputs and memgets of many stretches travel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Batch {
    /// Each stretch as a message of its own.
    #[serde(deserialize_with = "no_keys")]
    None,
    /// Many stretches in one message.
    Gather {
        /// The longest message.
        bytes_max: u64,
        /// To ask for a stretch, at the node that gets.
        list_us: f64,
        /// To take a stretch into the message, at the node that has it.
        gather_us: f64,
        /// To take a stretch out of the message, at the node that is to have it.
        scatter_us: f64,
    },
}

/// Traditional caching.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caching {
    /// How many requests a client has under way at one disk, at most.
    pub outstanding_max: u32,
    /// Whether a client that has as many under way at one disk goes on to what it wants of others.
    pub looks_ahead: bool,
    /// Buffers of a disk's cache, one block each, for each client.
    pub buffers_per_client: u32,
    /// The order of a disk's queue: `fcfs`, `c-scan-file` or `c-scan-disk`.
    pub queue: QueueOrder,
    /// How many blocks are read after one that was asked for.
    pub read_ahead_blocks: u32,
    /// Whether a write ends only when its data are on the media.
    pub waits_for_media: bool,
}

impl Caching {
    /// As the engine has it, for a program whose calls are of at most so many bytes.
    pub fn tuning(&self, call_bytes_max: u64) -> tuning::Caching {
        tuning::Caching {
            call_bytes_max,
            outstanding_max: self.outstanding_max,
            looks_ahead: self.looks_ahead,
            buffers_per_client: self.buffers_per_client,
            queue: self.queue,
            read_ahead_blocks: self.read_ahead_blocks,
        }
    }
}

/// Two-phase I/O.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TwoPhase {
    /// The staging buffer of a client, at most.
    pub buffer_bytes_max: u64,
}

/// Disk-directed I/O.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskDirected {
    /// Whether a write ends only when its data are on the media.
    pub waits_for_media: bool,
}

/// What compute processors do by themselves: copies into buffers of messages and out of them, and
/// two threads at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processors {
    /// To copy byte for byte.
    pub byte_copy_ns_per_byte: f64,
    /// To copy as the library does (`memcpy`).
    pub kernel_copy_ns_per_byte: f64,
    /// And for each contiguous stretch, either way.
    pub stretch_us: f64,
    /// Processors differ: each takes up to this part longer for what it copies, drawn for each.
    pub slowness_max: f64,
    /// So many share a memory, where several such nodes make up the machine. 0: there is only one
    /// memory, or each has its own.
    pub hypernode: usize,
    /// What lies in another node's memory takes longer to copy: this part for each node further on.
    pub hypernode_slowness: f64,
    /// To start a thread beside the program's own, and to end it.
    pub spawn_us: f64,
    /// How long a thread that computes keeps the processor, if another wants it.
    pub slice_us: f64,
    /// To change from one thread to the other.
    pub switch_us: f64,
}

/// What clients of the file system get in one another's way with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// Every call for the file takes its token (or lock), one client after the other: to hand it
    /// over,
    pub token_us: f64,
    /// and for each client that waits for it.
    pub token_waiting_us: f64,
    /// A server takes a request up: for each client that has requests at its I/O node.
    pub poll_us: f64,
    /// A client copies what it writes into its system's buffers.
    pub system_copy_ns_per_byte: f64,
    /// What the system's copying takes at the I/O node where a program might write directly and
    /// does not, in place of `costs.copy_ns_per_byte`.
    pub buffered_copy_ns_per_byte: f64,
    /// What a disk's file system keeps of writes that it has reported, when that is more than the
    /// disk's own buffer.
    pub behind_bytes: u64,
    /// Where servers have no processor of their own: with so many clients or more they run on that
    /// of the last of these. 0: they have one.
    pub processors: usize,
}

/// What the file system of an I/O node adds to its disk. The disk waits meanwhile, the processor
/// does not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSystem {
    /// To open a file, to find where it lies, and to close it.
    pub open_us: f64,
    /// To create it instead, and to force out what describes it: of a call that waits for the
    /// media.
    pub sync_us: f64,
    /// It reads a file by commands of so many bytes, one behind the other: one is on the bus while
    /// the disk reads ahead for the next.
    pub read_cluster_bytes: u64,
    /// For each byte that is read,
    pub read_ns_per_byte: f64,
    /// or written.
    pub write_ns_per_byte: f64,
}

/// What has a kind and nothing else: serde by itself would let any key pass.
fn no_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NoKeys {}
    NoKeys::deserialize(deserializer).map(|NoKeys {}| ())
}
