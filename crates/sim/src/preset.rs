//! Descriptions of whole machines: hardware, software costs, and the tuning of each strategy.
//!
//! A preset is a TOML file in which every number stands with its unit in its name, and its source
//! in a comment. Unknown keys are refused. The presets of Penstock are in `presets/`; a path to
//! another file may be given in place of a name.

mod check;
mod host;
mod load;
mod measured;
mod spread;

use std::collections::BTreeMap;

use penstock_engine::tuning::{self, QueueOrder};
use serde::{Deserialize, Deserializer, Serialize};

use crate::disk::{DiskParameters, FlashParameters};
use crate::network::TorusParameters;

pub use host::{Around, Calls, Host, STRIDES};
pub use load::PresetError;
pub use measured::{Access, CopyRate, FileRate, Measured, Median, MetadataTime, Way};
pub use spread::Spread;

/// A preset describes a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    pub name: String,
    /// A description in a line.
    pub about: String,
    /// The numbers of nodes and disks.
    pub nodes: Nodes,
    /// The file that experiments move.
    pub file: File,
    /// The kind of every disk.
    pub disk: DiskKind,
    /// The state of the disks when an experiment starts.
    pub start: Start,
    pub bus: BusParameters,
    pub network: NetworkKind,
    /// The costs of software.
    pub costs: Costs,
    /// The tuning of traditional caching.
    pub caching: Caching,
    /// The tuning of two-phase I/O, beside the tuning of caching.
    pub two_phase: TwoPhase,
    /// The tuning of disk-directed I/O.
    pub disk_directed: DiskDirected,
    /// The costs of compute processors by themselves, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors: Option<Processors>,
    /// The costs of sharing the file system between clients, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// The costs of the file system of an I/O node beside its disk, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<FileSystem>,
    /// What nodes of one host share, if several nodes are processes of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// The disk and its file system for calls that go around the page cache, if that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub around: Option<Around>,
    /// The spread of numbers, by the paths of their keys: `costs.send_us`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spread: BTreeMap<String, Spread>,
    /// The measurements from which the numbers come, if they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// The numbers of nodes and disks. Clients are nodes 0 and up, I/O nodes follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// The number of compute processors, each one client.
    pub clients: usize,
    /// The number of I/O processors, each with a bus.
    pub io_nodes: usize,
    /// The number of disks, each with a server of its own, dealt out to the I/O nodes in turn.
    pub disks: usize,
    /// The place in the network of the first node; the others follow.
    pub first_place: u32,
}

/// The file that experiments move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub bytes: u64,
    /// The bytes of a block, by which the file is striped over the disks.
    pub block_bytes: u64,
}

/// The kind of a disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum DiskKind {
    /// A rotating drive.
    Rotating(DiskParameters),
    /// A device without moving parts.
    Flash(FlashParameters),
}

/// The state of the disks when an experiment starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Start {
    /// All disks stand at one angle.
    Common {
        /// Milliseconds of rotation that have passed since the index mark.
        rotation_ms: f64,
    },
    /// Each disk stands at an angle of its own, drawn anew for each trial.
    #[serde(deserialize_with = "no_keys")]
    Random,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusParameters {
    pub bytes_per_second: u64,
}

/// The kind of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum NetworkKind {
    /// A torus with wormhole routing.
    Torus(TorusParameters),
    /// A fat tree, as large as the nodes need.
    FatTree(FatTreeKind),
}

/// A fat tree without the number of its nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FatTreeKind {
    pub nodes_per_leaf: u32,
    pub leaves_per_pod: u32,
    /// The rate of a port, in each direction.
    pub bytes_per_second: u64,
    /// The latency of both adapters together.
    pub adapter_latency_ns: f64,
    /// The latency of one switch and its cable.
    pub switch_latency_ns: f64,
}

/// The costs of software: time of a node's one CPU, on which all its software waits its turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// The cost to send a message, whatever its size: the network interface moves the bytes.
    pub send_us: f64,
    /// The cost to take a message in: the interrupt, and the order to the network interface.
    pub receive_us: f64,
    /// The bytes of a message beside those that the program sends.
    pub header_bytes: u64,
    /// The cost of a client's loop over blocks, for each request that it makes.
    pub request_us: f64,
    /// The cost of a thread for a request, created or woken.
    pub thread_us: f64,
    /// The cost to look a block up in the cache, and to keep the cache.
    pub lookup_us: f64,
    /// The cost of a copy from memory to memory, whatever the size, with its accounting.
    pub copy_us: f64,
    /// The cost of a copy for each byte.
    pub copy_ns_per_byte: f64,
    /// The cost to set a buffer up, for each byte: its memory is zeroed.
    pub buffer_ns_per_byte: f64,
    /// The cost to hand a request to a disk, and to take in its end.
    pub disk_request_us: f64,
    /// The cost of an entry of a list of blocks, made and sorted in.
    pub entry_us: f64,
    /// The cost of a memput, whatever its size, at the node that puts, with the acknowledgement.
    pub memput_us: f64,
    /// The cost of a memput for each byte.
    pub memput_ns_per_byte: f64,
    /// The cost of a memget, whatever its size, at the node that gets.
    pub memget_us: f64,
    /// The cost to take in the answer to a memget, besides.
    pub memget_reply_us: f64,
    /// The cost of a memget for each byte.
    pub memget_ns_per_byte: f64,
    /// The cost of a memput or memget at the node that exposes the memory: the interrupt.
    pub remote_us: f64,
    /// The cost at that node for each byte.
    pub remote_ns_per_byte: f64,
    /// The cost for an I/O node to find where a stretch belongs, in an array of one dimension.
    pub index_1d_us: f64,
    /// The cost to find a stretch in an array of more dimensions.
    pub index_2d_us: f64,
    /// Whether a server's calls block, for messages and for files: it moves one message, copies it
    /// to where it belongs, and moves none while its disk works. Otherwise all of that goes on side
    /// by side.
    #[serde(default)]
    pub one_call_at_a_time: bool,
    /// The way in which memputs and memgets of many stretches travel.
    pub batch: Batch,
}

/// The way in which memputs and memgets of many stretches travel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Batch {
    /// Each stretch travels as a message of its own.
    #[serde(deserialize_with = "no_keys")]
    None,
    /// Many stretches travel in one message.
    Gather {
        /// The longest message.
        bytes_max: u64,
        /// The cost to ask for a stretch, at the node that gets.
        list_us: f64,
        /// The cost to take a stretch into the message, at the node that has it.
        gather_us: f64,
        /// The cost to take a stretch out of the message, at the node that is to have it.
        scatter_us: f64,
    },
}

/// The tuning of traditional caching.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caching {
    /// The most requests of one client under way at one disk.
    pub outstanding_max: u32,
    /// Whether a client with that number of requests under way at one disk goes on to ask others.
    pub looks_ahead: bool,
    /// The buffers of a disk's cache for each client, one block each.
    pub buffers_per_client: u32,
    /// The order of a disk's queue: `fcfs`, `c-scan-file` or `c-scan-disk`.
    pub queue: QueueOrder,
    /// The number of blocks that are read after one that was asked for.
    pub read_ahead_blocks: u32,
    /// Whether a write ends only when its data are on the media.
    pub waits_for_media: bool,
}

impl Caching {
    /// The engine's tuning, for a program whose calls are of at most `call_bytes_max` bytes.
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

/// The tuning of two-phase I/O.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TwoPhase {
    /// The most bytes of a client's staging buffer.
    pub buffer_bytes_max: u64,
}

/// The tuning of disk-directed I/O.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskDirected {
    /// Whether a write ends only when its data are on the media.
    pub waits_for_media: bool,
}

/// The costs of compute processors by themselves: copies into buffers of messages and out of them,
/// and two threads at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processors {
    /// The cost to copy byte for byte.
    pub byte_copy_ns_per_byte: f64,
    /// The cost to copy as the library does (`memcpy`).
    pub kernel_copy_ns_per_byte: f64,
    /// The cost of each contiguous stretch, either way.
    pub stretch_us: f64,
    /// The most that a processor is slower in its copies than another, as a part; drawn for each.
    pub slowness_max: f64,
    /// The number of processors that share a memory, if several such groups make up the machine. 0:
    /// there is only one memory, or each processor has its own.
    pub hypernode: usize,
    /// The slowness of copies from another group's memory, as a part for each group further on.
    pub hypernode_slowness: f64,
    /// The cost to start a thread beside the program's own, and to end it.
    pub spawn_us: f64,
    /// The time for which a thread that computes keeps the processor, if another wants it.
    pub slice_us: f64,
    /// The cost to change from one thread to the other.
    pub switch_us: f64,
}

/// The costs of sharing the file system between clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// The cost to hand over the file's token (or lock), which every call for the file takes, one
    /// client after the other.
    pub token_us: f64,
    /// The cost of the token for each client that waits for it.
    pub token_waiting_us: f64,
    /// The cost of a server's request for each client that has requests at its I/O node.
    pub poll_us: f64,
    /// The cost of a client's copy of its data into its system's buffers.
    pub system_copy_ns_per_byte: f64,
    /// The cost of the system's copies at the I/O node for a program that might write directly and
    /// does not, in place of `costs.copy_ns_per_byte`.
    pub buffered_copy_ns_per_byte: f64,
    /// The bytes of reported writes that a disk's file system keeps, if they are more than the
    /// disk's own buffer.
    pub behind_bytes: u64,
    /// The number of processors, if servers have none of their own: with this number of clients or
    /// more, servers run on the last of these processors. 0: servers have processors.
    pub processors: usize,
}

/// The costs of the file system of an I/O node beside its disk. The disk waits meanwhile, the
/// processor does not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSystem {
    /// The time to open a file, to find where it lies, and to close it.
    pub open_us: f64,
    /// The time to create a file instead and to force out its description, in a call that waits for
    /// the media.
    pub sync_us: f64,
    /// The bytes of a read command. Commands follow each other: one is on the bus while the disk
    /// reads ahead for the next.
    pub read_cluster_bytes: u64,
    /// The time for each byte that is read.
    pub read_ns_per_byte: f64,
    /// The time for each byte that is written.
    pub write_ns_per_byte: f64,
    /// The order in which requests that wait for the disk are handed to it: `fcfs`, `c-scan-file`
    /// or `c-scan-disk`.
    #[serde(default = "first_come")]
    pub queue: QueueOrder,
    /// The time of each read or write, whatever its size.
    #[serde(default)]
    pub request_us: f64,
    /// The time to make the file of an object, such as a chunk, that is written.
    #[serde(default)]
    pub object_create_us: f64,
    /// The time to open the file of an object that is read.
    #[serde(default)]
    pub object_open_us: f64,
    /// The time to force out an object, in a call that waits for the media.
    #[serde(default)]
    pub object_sync_us: f64,
    /// The time to force out each byte that was written, in a call that waits for the media.
    #[serde(default)]
    pub sync_ns_per_byte: f64,
    /// Whether the time of requests and bytes is a processor's of the host, as copies of a page
    /// cache are; only with a section `host`.
    #[serde(default)]
    pub takes_processor: bool,
    /// Whether writes to one file take turns, also those of several servers.
    #[serde(default)]
    pub writes_take_turns: bool,
}

/// The order of a file system that does not sort.
fn first_come() -> QueueOrder {
    QueueOrder::Fcfs
}

/// Refuses keys beside a kind that has none: serde by itself would let any key pass.
fn no_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NoKeys {}
    NoKeys::deserialize(deserializer).map(|NoKeys {}| ())
}
