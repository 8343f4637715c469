//! The arguments of the command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand, ValueEnum};
use penstock_arrays::calls::copy::Extents;
use penstock_experiments::experiment::Method;
use penstock_experiments::pattern::Pattern;
use penstock_experiments::{Case, Trials, names};
use penstock_sim::machine::Layout;
use penstock_sim::network::Contention;
use penstock_sim::preset::{NetworkKind, Preset};

use crate::failure::Failure;
use crate::files::arguments::Fs;
use crate::provenance::{self, Provenance};
use crate::selftest::Part;

/// Collective I/O for distributed arrays: the servers that own the disks direct the flow.
#[derive(Parser)]
#[command(name = "penstock", version, arg_required_else_help = true)]
pub(crate) struct Penstock {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
#[command(subcommand_required = true)]
pub(crate) enum Command {
    /// List the arrays, timesteps and checkpoints of a store, or the stores in a directory
    Ls(Ls),
    /// Describe a store: shapes, types, chunks and codecs
    Info(Info),
    /// Read all of a store and compare it with its checksums; exit code 1 if something is damaged,
    /// 3 if nothing has a checksum
    Verify(Verify),
    /// Repair a group whose metadata another tool has rewritten, from the files on disk
    Repair(Repair),
    /// Make one store of the parts that each server has written to a disk of its own
    Gather(Gather),
    /// Copy an array or a whole data set into another arrangement, out of core; go on where a
    /// killed copy has stopped
    Copy(Box<Copy>),
    /// Parallel files: volumes, and the files and directories in them
    #[command(subcommand, arg_required_else_help = true)]
    Fs(Box<Fs>),
    /// Serve a volume of parallel files to programs that come and go
    Serve(Serve),
    /// Make the keys of servers and users, for connections between hosts
    #[command(subcommand, arg_required_else_help = true)]
    Keys(Keys),
    /// Show the servers of a volume that stand; exit code 1 if one cannot be reached
    Servers(Servers),
    /// Show what the servers of a volume do, again and again
    Top(Top),
    /// Traces of clients and servers, which ui.perfetto.dev opens: see docs/serve.md
    #[command(subcommand, arg_required_else_help = true)]
    Trace(Traces),
    /// Mount a volume: ordinary programs see its files until it is unmounted
    Mount(Mount),
    /// Run an MPI program with MPI-IO by Penstock, as in
    /// `penstock mpiio -- mpiexec -n 4 ./program`; without a command, print the library's path
    Mpiio(Mpiio),
    /// Try in less than a minute what works on this machine; exit code 1 if something fails
    Selftest(Selftest),
    /// Experiments on a simulated machine
    #[command(subcommand, arg_required_else_help = true)]
    Sim(Box<Sim>),
    /// Measure this machine in about a minute, and describe it as a preset: memory, messages, disk
    /// or file system, each number with its spread
    Calibrate(Calibrate),
    /// Predict what a collective call costs by each strategy, on a machine that a preset describes:
    /// seconds and their range, bytes, messages, memory, and the bottleneck
    Predict(Box<Predict>),
    /// Weigh chunks, servers and strategies for a collective call on a machine that a preset
    /// describes: a table, the fastest first, and a plot
    Plan(Box<Plan>),
    /// Draw the JSON of `penstock sim table`, `figure`, `summary` and `scale`, with matplotlib
    Plot(Draw),
    /// Measure this machine: the benchmarks of the Python package penstock-bench
    #[command(disable_help_flag = true)]
    Bench(Bench),
}

#[derive(Args)]
pub(crate) struct Calibrate {
    /// The directory whose disk or file system is measured; nothing is left behind in it
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) path: PathBuf,
    /// The command that starts a job of two ranks or more, between which messages are measured, as
    /// in "mpiexec -n 2" [default: threads of one process]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) mpiexec: Option<String>,
    /// The file of the preset [default: the standard output]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// How long to measure, roughly: with less time numbers are less sure
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub(crate) seconds: f64,
    /// Measure as one rank of the job, with this MPI library
    #[arg(long, value_name = "LIBRARY", hide = true)]
    pub(crate) rank: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Predict {
    #[command(flatten)]
    pub(crate) asked: Call,
    #[command(flatten)]
    pub(crate) output: Json,
}

#[derive(Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) asked: Call,
    /// Rows of the table; JSON has all
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) rows: usize,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A collective call on a machine.
#[derive(Args)]
pub(crate) struct Call {
    /// A description of the call, as docs/predict.md has it, or - for the standard input; in place
    /// of the options that describe it
    #[arg(value_name = "FILE")]
    pub(crate) call: Option<PathBuf>,
    /// The machine: the file that `penstock calibrate` has written, or the name of a preset
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) preset: String,
    /// Extents of the array
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    pub(crate) shape: Option<Vec<u64>>,
    /// Type of the elements
    #[arg(long, default_value = "f8")]
    pub(crate) dtype: String,
    /// Distribution over the ranks: BLOCK, CYCLIC, CYCLIC(k) or * in each dimension
    #[arg(long, value_name = "KIND,KIND,...")]
    pub(crate) memory: Option<String>,
    /// Extents of the mesh of ranks [default: all ranks along the one dimension that is dealt out]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    pub(crate) mesh: Option<Vec<u64>>,
    /// Extents of a chunk on disk [default: one flat row-major file]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    pub(crate) chunks: Option<Vec<u64>>,
    /// Number of ranks
    #[arg(long, value_name = "N")]
    pub(crate) ranks: Option<usize>,
    /// Number of hosts that the ranks are on
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) hosts: usize,
    /// Number of servers [default: as a session chooses]
    #[arg(long, value_name = "N")]
    pub(crate) servers: Option<usize>,
    /// A strategy: disk-directed, two-phase, caching or independent; several times for several
    /// [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) strategy: Vec<String>,
    /// Predict a read
    #[arg(long)]
    pub(crate) read: bool,
    /// Go around the page cache
    #[arg(long)]
    pub(crate) direct: bool,
    /// Do not wait for stable storage
    #[arg(long)]
    pub(crate) no_sync: bool,
    /// The most that a server moves at once [default: 1MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) block_bytes: Option<String>,
}

/// The destination of a result without a plot.
#[derive(Args)]
pub(crate) struct Json {
    /// Write JSON to a file, or with - to the standard output in place of text
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl Json {
    /// The destinations that a result with a plot has.
    pub(crate) fn output(&self) -> Output {
        Output {
            json: self.json.clone(),
            plot: None,
            no_title: false,
        }
    }
}

#[derive(Args)]
pub(crate) struct Mount {
    /// The volume, as in `penstock fs`
    pub(crate) volume: String,
    /// The directory at which it is mounted; of several, each becomes a mount of its own
    #[arg(required = true)]
    pub(crate) places: Vec<PathBuf>,
    /// Refuse all changes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Let other users use it, too, with the permissions of the files
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// Event loops, each a thread
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) threads: usize,
    /// Seconds for which names and attributes may be as they were
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) attributes: f64,
    /// The cache of each server
    #[arg(long, value_name = "SIZE", default_value = "32MiB")]
    pub(crate) cache: String,
    /// Stay in the foreground until the volume is unmounted, which is the only way there is
    #[arg(long)]
    pub(crate) foreground: bool,
}

#[derive(Args)]
pub(crate) struct Mpiio {
    /// Report on the standard error, when a file is closed, how its accesses went
    #[arg(long)]
    pub(crate) report: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args)]
pub(crate) struct Selftest {
    /// The directory whose file system is tried; nothing is left behind in it
    #[arg(default_value = ".")]
    pub(crate) directory: PathBuf,
    /// The command that starts a job of two ranks or more [default: mpiexec -n 2, if it is there]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) mpiexec: Option<String>,
    /// Print JSON in place of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Be one of the processes that the test starts, in its directory
    #[arg(long, value_enum, hide = true)]
    pub(crate) part: Option<Part>,
}

#[derive(Args)]
pub(crate) struct Bench {
    /// The benchmark and its options; without any, the list of benchmarks
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Subcommand)]
pub(crate) enum Sim {
    /// Run one configuration
    Run(Run),
    /// Measure Table 3 or 4 of the technical report of 1994, beside the published cells
    Table(Table),
    /// Measure one of the Figures 4 to 15 of the article of 1997
    Figure(Figure),
    /// Measure what each method gains over caching: Table III of the article of 1997
    Summary(Summary),
    /// Run one trial and write the activity of each part over time: JSON that ui.perfetto.dev
    /// opens; the plot shows the positions of a disk's arm
    Trace(Trace),
    /// Measure 10 to 100,000 clients with 1 to 1,000 servers of today
    Scale(Scale),
    /// Measure filtering, and distribution by value, at the servers and at the clients, over the
    /// share of records that satisfy and the speed of the network
    Expand(Expand),
    /// Measure Figures 2 to 7 of Dickens and Thakur on the four machines of that paper, beside what
    /// it says; the name of each plot gets the figure and the machine: p-2-sp2-anl.png
    DickensThakur(DickensThakur),
    /// Measure Figures 3 to 9 of Panda (SC '95) on the machine of that paper, beside what it says;
    /// the name of each plot gets the figure: p-3.png
    Panda(Panda),
    /// Measure Table I and Figures 10 to 14, 16 and 17 of Vesta (TOCS 1996) on the machine of that
    /// paper, beside what it says; the name of each plot gets the figure: p-10.png
    Vesta(Vesta),
    /// Print a machine as TOML, to be changed and given as --preset FILE; without a name, list the
    /// machines
    Preset(PresetName),
}

#[derive(Args)]
pub(crate) struct Serve {
    /// The volume; one of a single server is made if nothing is there
    #[arg(required_unless_present = "config", conflicts_with = "config")]
    pub(crate) volume: Option<PathBuf>,
    /// A file that describes the volume and its server processes
    #[arg(long, value_name = "FILE", requires = "process")]
    pub(crate) config: Option<PathBuf>,
    /// The number of this process among those of the file
    #[arg(long, value_name = "N", requires = "config")]
    pub(crate) process: Option<usize>,
    /// An address to listen at [default: unix://VOLUME/penstock.sock]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    pub(crate) listen: Vec<String>,
    /// The keys of the server for connections with other hosts, as DIR/server-0
    #[arg(long, value_name = "DIR/NAME", conflicts_with = "config")]
    pub(crate) keys: Option<PathBuf>,
    /// The directory of arrays that sessions of ranks write and read [default: serve no arrays]
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub(crate) arrays: Option<PathBuf>,
    /// The cache of each server
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) cache: String,
    /// Read and write block files around the page cache
    #[arg(long)]
    pub(crate) direct: bool,
    /// An endpoint for Prometheus, which anybody may read who can reach it; a port alone is one of
    /// this host
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "config")]
    pub(crate) metrics: Option<String>,
    /// A file for a trace of all requests, or a directory for one [default: $PENSTOCK_TRACE]
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// The most bytes of that file [default: $PENSTOCK_TRACE_BYTES, or 256MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) trace_bytes: Option<String>,
    /// The form of the log on the standard error
    #[arg(long, value_enum, default_value_t = LogForm::Text)]
    pub(crate) log: LogForm,
}

#[derive(Subcommand)]
pub(crate) enum Traces {
    /// Make one trace of several: of clients and servers that have worked together
    Join {
        /// The traces
        #[arg(required = true)]
        traces: Vec<PathBuf>,
        /// The new one
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
    },
}

/// The form of a log.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// A line for people
    Text,
    /// A JSON object a line
    Json,
}

#[derive(Subcommand)]
pub(crate) enum Keys {
    /// Make an authority, which signs all other keys, in a directory
    Authority {
        /// The directory, which is made if it is not there
        directory: PathBuf,
        /// The days for which the certificate is valid
        #[arg(long, default_value_t = 3650)]
        days: u32,
    },
    /// Make the keys of a server process
    Server {
        /// The directory of the authority
        directory: PathBuf,
        /// The number of the process
        process: usize,
        /// A name or number of its host, as clients call it
        #[arg(long = "host", required = true)]
        hosts: Vec<String>,
        /// The days for which the certificate is valid
        #[arg(long, default_value_t = 365)]
        days: u32,
    },
    /// Make the keys of a user
    User {
        /// The directory of the authority
        directory: PathBuf,
        /// The name of the files
        name: String,
        /// The number of the user
        #[arg(long)]
        uid: u32,
        /// The number of the user's group
        #[arg(long)]
        gid: u32,
        /// The numbers of the user's other groups
        #[arg(long, value_delimiter = ',')]
        groups: Vec<u32>,
        /// The days for which the certificate is valid
        #[arg(long, default_value_t = 365)]
        days: u32,
    },
}

#[derive(Args)]
pub(crate) struct Servers {
    /// The URL of the volume: penstock://HOST:PORT,... or unix:///PATH
    pub(crate) url: String,
    /// Print JSON in place of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Top {
    /// The URL of the volume: penstock://HOST:PORT,... or unix:///PATH
    pub(crate) url: String,
    /// The seconds from one look to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) interval: f64,
    /// Look once, and show what was since the servers began
    #[arg(long)]
    pub(crate) once: bool,
    /// Print JSON in place of text, an object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// The most clients, and the most files, that text has
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) rows: usize,
}

#[derive(Args)]
pub(crate) struct Ls {
    /// A store, or a directory of stores
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,
}

#[derive(Args)]
pub(crate) struct Info {
    /// A store
    pub(crate) path: PathBuf,
    /// Print JSON in place of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Verify {
    /// A store
    pub(crate) path: PathBuf,
}

#[derive(Args)]
pub(crate) struct Repair {
    /// A group that Penstock has saved timesteps or checkpoints to
    pub(crate) path: PathBuf,
}

#[derive(Args)]
pub(crate) struct Gather {
    /// The store's directories, one a server in their order, or one path with {server} in it; then
    /// the new store
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"])]
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Copy {
    /// A Zarr array or group (format 2 or 3) with all of its nodes, an HDF5 or NetCDF-4 file, or a
    /// group or dataset of one (run.h5:/fields/u), references of kerchunk (refs.json), a .npy file,
    /// a raw file, or a directory of parts
    pub(crate) source: PathBuf,
    /// The copy: a node of the same kind in Zarr's format 3, an array of a Zarr group that exists,
    /// or a file: of HDF5 if its name ends in .h5, .hdf5 or .he5, of NetCDF-4 if in .nc or .nc4
    pub(crate) target: PathBuf,
    /// Only this array of the source, by its path in it; several times for several
    #[arg(long = "array", value_name = "PATH")]
    pub(crate) arrays: Vec<String>,
    /// The name of the array in the target, if only one is copied
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Chunks, for arrays with as many dimensions or dimensions of these names: 64,64,-1 or
    /// time=1,lat=512, where -1 is the whole dimension [default: as in the source]
    #[arg(long, value_name = "EXTENTS", allow_hyphen_values = true)]
    pub(crate) chunks: Option<Extents>,
    /// Sub-chunks of the chunks, which are then shards [default: as in the source, if they divide
    /// the chunks]
    #[arg(long, value_name = "EXTENTS", allow_hyphen_values = true)]
    pub(crate) subchunks: Option<Extents>,
    /// none, zstd[:LEVEL], gzip[:LEVEL], blosc[:CNAME[:LEVEL[:SHUFFLE]]], each with +crc32c if
    /// wanted, or a list of codecs in JSON as Zarr's metadata have it [default: as in the source]
    #[arg(long, value_name = "CODEC", conflicts_with = "row_major")]
    pub(crate) codec: Option<String>,
    /// Filters of HDF5: shuffle, deflate[:LEVEL], zstd[:LEVEL], bzip2[:LEVEL] and fletcher32, with
    /// + between, or none [default: as in the source, or shuffle+deflate for what Zarr compresses]
    #[arg(long, value_name = "FILTERS", conflicts_with = "row_major")]
    pub(crate) filters: Option<String>,
    /// One row-major file: .npy if its name ends so, otherwise raw with a JSON file beside it
    #[arg(long, conflicts_with_all = ["chunks", "subchunks"])]
    pub(crate) row_major: bool,
    /// Replace an existing target
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Shape of a raw source that has no JSON file beside it
    #[arg(
        long,
        value_name = "N,N,...",
        value_delimiter = ',',
        requires = "dtype"
    )]
    pub(crate) shape: Option<Vec<u64>>,
    /// Type of the elements of a raw source, such as f8
    #[arg(long, requires = "shape")]
    pub(crate) dtype: Option<String>,
    /// Memory that the copy may take
    #[arg(long, value_name = "BYTES", default_value = "256MiB")]
    pub(crate) memory: String,
    /// Number of threads that share the work; under mpiexec the processes do [default: 1, with two
    /// servers]
    #[arg(long, value_name = "N")]
    pub(crate) ranks: Option<usize>,
    /// Drop attributes if the target has no place for them
    #[arg(long)]
    pub(crate) drop_attributes: bool,
    /// Leave out what the target has no place for, such as texts and links
    #[arg(long)]
    pub(crate) skip_unsupported: bool,
    /// Do not wait for stable storage
    #[arg(long)]
    pub(crate) no_sync: bool,
}

#[derive(Args)]
pub(crate) struct Draw {
    /// What the JSON describes
    pub(crate) kind: Plot,
    /// One file, whose name ends in .png, .svg or .pdf, or else the stem of a .png and a .svg
    #[arg(value_name = "FILE|STEM")]
    pub(crate) out: PathBuf,
    /// Read the JSON from a file, and not from the standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// Draw no title: a caption stands elsewhere
    #[arg(long)]
    pub(crate) no_title: bool,
}

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) machine: Machine,
    #[command(flatten)]
    pub(crate) transfer: Transfer,
    #[command(flatten)]
    pub(crate) repeat: Repeat,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args)]
pub(crate) struct Table {
    /// 3 (random-blocks layout) or 4 (contiguous layout)
    pub(crate) number: u8,
    #[command(flatten)]
    pub(crate) machine: Machine,
    #[command(flatten)]
    pub(crate) repeat: Repeat,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args)]
pub(crate) struct Figure {
    /// 4 to 15
    pub(crate) number: u8,
    #[command(flatten)]
    pub(crate) machine: Machine,
    #[command(flatten)]
    pub(crate) repeat: Repeat,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args)]
pub(crate) struct Summary {
    #[command(flatten)]
    pub(crate) machine: Machine,
    #[command(flatten)]
    pub(crate) repeat: Repeat,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args)]
pub(crate) struct Trace {
    #[command(flatten)]
    pub(crate) machine: Machine,
    #[command(flatten)]
    pub(crate) transfer: Transfer,
    /// The number of the trial
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// The disk whose arm is plotted
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) disk: usize,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args)]
pub(crate) struct Scale {
    /// A preset's name, or a TOML file [default: nvme-server]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) preset: Option<String>,
    /// Numbers of clients [default: 10,100,1000,10000,100000]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    pub(crate) clients: Option<Vec<usize>>,
    /// Numbers of servers: I/O nodes, with as many disks each as in the preset [default:
    /// 1,10,100,1000]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    pub(crate) servers: Option<Vec<usize>>,
    /// The pattern: see `penstock sim run --help`
    #[arg(long, default_value = Scale::PATTERN)]
    pub(crate) pattern: String,
    /// Bytes of a record [default: an eighth of a block]
    #[arg(long, value_name = "BYTES")]
    pub(crate) record: Option<u64>,
    /// The layout of blocks on disk: contiguous, random-blocks or random-tracks
    #[arg(long, default_value = Scale::LAYOUT)]
    pub(crate) layout: String,
    /// The size of the file, in 2^20 bytes [default: 65536 blocks]
    #[arg(long, value_name = "N")]
    pub(crate) file_mb: Option<u64>,
    /// Number of runs of each point
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) trials: u64,
    /// The number of the first trial
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Number of trials that run at a time [default: one a processor]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The word of an option, if it is not the default.
fn other(given: &str, default: &str) -> Option<String> {
    (given != default).then(|| given.to_string())
}

impl Scale {
    const PATTERN: &str = "rbb";
    const LAYOUT: &str = "contiguous";

    /// Adds the options that differ from their defaults.
    pub(crate) fn note(&self, provenance: Provenance) -> Provenance {
        provenance
            .with_option("--clients", self.clients.clone())
            .with_option("--servers", self.servers.clone())
            .with_option("--pattern", other(&self.pattern, Self::PATTERN))
            .with_option("--record", self.record)
            .with_option("--layout", other(&self.layout, Self::LAYOUT))
            .with_option("--file-mb", self.file_mb)
    }
}

#[derive(Args)]
pub(crate) struct Expand {
    /// A preset's name, or a TOML file [default: tocs97, the papers' machine, and nvme-server]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) preset: Option<String>,
    /// Shares of the records that satisfy, in percent [default: 1,5,20,50,80,100]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    pub(crate) percent: Option<Vec<u64>>,
    /// How many times slower the network is than the preset's [default: 1,16,64]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    pub(crate) slower: Option<Vec<u64>>,
    /// Bytes of a record
    #[arg(long, value_name = "BYTES", default_value_t = Expand::RECORD)]
    pub(crate) record: u64,
    /// The layout of blocks on disk: contiguous, random-blocks or random-tracks
    #[arg(long, default_value = Scale::LAYOUT)]
    pub(crate) layout: String,
    /// Number of runs of each point
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) trials: u64,
    /// The number of the first trial
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Number of trials that run at a time [default: one a processor]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl Expand {
    const RECORD: u64 = 64;

    /// Adds the options that differ from their defaults.
    pub(crate) fn note(&self, provenance: Provenance) -> Provenance {
        provenance
            .with_option("--percent", self.percent.clone())
            .with_option("--slower", self.slower.clone())
            .with_option(
                "--record",
                (self.record != Self::RECORD).then_some(self.record),
            )
            .with_option("--layout", other(&self.layout, Scale::LAYOUT))
    }
}

#[derive(Args)]
pub(crate) struct DickensThakur {
    /// One of the machines: sp2-anl, paragon-caltech, origin2000-anl or exemplar-caltech; or a TOML
    /// file with one of these names in it [default: all]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) preset: Option<String>,
    /// One of the figures, 2 to 7 [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) figure: Option<u8>,
    /// The number of the trial
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Number of runs at a time [default: one a processor]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args)]
pub(crate) struct Panda {
    /// The machine: sp2-nas, or a TOML file with this name in it [default: sp2-nas]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) preset: Option<String>,
    /// One of the figures, 3 to 9 [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) figure: Option<u8>,
    /// Compute nodes in place of each figure's: 8, 16 or 32, in traditional order also 24
    #[arg(long, value_name = "N")]
    pub(crate) clients: Option<usize>,
    /// One size of the array, in 2^20 bytes: any from 1 to 4096 [default: 16, 32, 64, 128, 256 and
    /// 512]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(crate) array_mb: Option<u64>,
    /// Number of runs of each point, as in the paper
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) trials: u64,
    /// The number of the first trial
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Number of runs at a time [default: one a processor]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args)]
pub(crate) struct Vesta {
    /// The machine: sp1-vesta, or a TOML file with this name in it [default: sp1-vesta]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) preset: Option<String>,
    /// One of the figures, 10 to 14, 16 or 17; Table I comes with 10 [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) figure: Option<u8>,
    /// The length of a cell of a big file, in 2^20 bytes: from 1 to 256 [default: 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) cell_mb: Option<u64>,
    /// The number of the trial
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Number of runs at a time [default: one a processor]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args)]
pub(crate) struct PresetName {
    /// A machine that comes with Penstock
    pub(crate) name: Option<String>,
}

/// The machine, and its changes from a preset.
#[derive(Args)]
pub(crate) struct Machine {
    /// A preset's name, or a TOML file [default: tr94; tocs97 for figures and the summary]
    #[arg(long, value_name = "NAME|FILE")]
    preset: Option<String>,
    /// Clients, in place of the preset's
    #[arg(long, value_name = "N")]
    clients: Option<usize>,
    /// I/O nodes, in place of the preset's
    #[arg(long, value_name = "N")]
    io_nodes: Option<usize>,
    /// Disks, in place of the preset's
    #[arg(long, value_name = "N")]
    disks: Option<usize>,
    /// The size of the file in 2^20 bytes, in place of the preset's
    #[arg(long, value_name = "N")]
    file_mb: Option<u64>,
    /// The model of contention in a torus, in place of the preset's
    #[arg(long, value_name = "MODE")]
    network: Option<Network>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Network {
    /// By reservation of each link
    Exact,
    /// By chance, from recent utilisation
    Stochastic,
}

/// The transfer of a simulated run, and its method.
#[derive(Args)]
pub(crate) struct Transfer {
    /// The pattern: r or w, then n, b or c for a vector, two of them for a matrix; or ra
    #[arg(long, default_value = "rb")]
    pattern: String,
    /// Bytes of a record
    #[arg(long, value_name = "BYTES", default_value_t = 8192)]
    record: u64,
    /// The layout of blocks on disk: contiguous, random-blocks or random-tracks
    #[arg(long, default_value = "contiguous")]
    layout: String,
    /// The method: caching, two-phase, ddio or ddio-sort
    #[arg(long, default_value = "ddio-sort")]
    method: String,
}

/// The repetitions of each case.
#[derive(Args)]
pub(crate) struct Repeat {
    /// Number of runs of each case
    #[arg(long, value_name = "N", default_value_t = 5)]
    trials: u64,
    /// The number of the first trial: layouts and rotations are drawn by the number
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Number of trials that run at a time [default: one a processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

/// The destinations of a result.
#[derive(Args)]
pub(crate) struct Output {
    /// Write JSON to a file, or with - to the standard output in place of text
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Draw one file, whose name ends in .png, .svg or .pdf, or else STEM.png and STEM.svg; with
    /// Python and matplotlib
    #[arg(long, value_name = "FILE|STEM")]
    pub(crate) plot: Option<PathBuf>,
    /// Draw no title, for plots with a caption elsewhere
    #[arg(long, requires = "plot")]
    pub(crate) no_title: bool,
}

impl Machine {
    /// The preset of this machine, `default` if the options name none, with the options' changes;
    /// and its provenance.
    pub(crate) fn preset(
        &self,
        default: &str,
        trials: &Trials,
    ) -> Result<(Arc<Preset>, Provenance), Failure> {
        let given = self.preset.as_deref().unwrap_or(default);
        let found = find(given)?;
        let preset = self.changed(found.clone())?;
        preset.validate().map_err(Failure::input)?;
        let machine = provenance::Machine {
            given,
            found: &found,
            simulated: &preset,
        };
        let provenance = Provenance::new(&machine, trials)?;
        Ok((Arc::new(preset), provenance))
    }

    fn changed(&self, mut preset: Preset) -> Result<Preset, Failure> {
        let nodes = &mut preset.nodes;
        nodes.clients = self.clients.unwrap_or(nodes.clients);
        nodes.io_nodes = self.io_nodes.unwrap_or(nodes.io_nodes);
        nodes.disks = self.disks.unwrap_or(nodes.disks);
        if let Some(mb) = self.file_mb {
            preset.file.bytes = file_bytes(mb)?;
        }
        match (self.network, &mut preset.network) {
            (None, _) => {}
            (Some(mode), NetworkKind::Torus(torus)) => {
                torus.contention = match mode {
                    Network::Exact => Contention::Exact,
                    Network::Stochastic => Contention::Stochastic,
                }
            }
            (Some(_), NetworkKind::FatTree(_)) => {
                return Err(Failure::input(format!(
                    "--network is for a torus, and preset {} has none",
                    preset.name
                )));
            }
        }
        Ok(preset)
    }
}

impl Transfer {
    /// The case that runs this transfer on the machine of `preset`.
    pub(crate) fn case(&self, preset: &Arc<Preset>) -> Result<Case, Failure> {
        let case = Case {
            preset: preset.clone(),
            pattern: pattern(&self.pattern)?,
            record_bytes: self.record,
            layout: layout(&self.layout)?,
            method: method(&self.method)?,
        };
        case.weigh()?;
        Ok(case)
    }
}

impl Repeat {
    pub(crate) fn trials(&self) -> Result<Trials, Failure> {
        trials(self.trials, self.seed, self.jobs)
    }
}

pub(crate) fn trials(count: u64, first: u64, jobs: Option<usize>) -> Result<Trials, Failure> {
    // All trials are listed before the first is run.
    const COUNT_MAX: u64 = 1_000_000;
    if !(1..=COUNT_MAX).contains(&count) {
        return Err(Failure::input(format!(
            "--trials is {count}: take 1 to {COUNT_MAX}"
        )));
    }
    if jobs == Some(0) {
        return Err(Failure::input("--jobs is 0: take at least 1"));
    }
    let all = Trials::new(count);
    let threads = jobs.unwrap_or(all.threads);
    Ok(Trials {
        first,
        threads,
        ..all
    })
}

/// The preset `given`, as it is, and its provenance.
pub(crate) fn unchanged(given: &str, trials: &Trials) -> Result<(Preset, Provenance), Failure> {
    let preset = find(given)?;
    let machine = provenance::Machine {
        given,
        found: &preset,
        simulated: &preset,
    };
    let provenance = Provenance::new(&machine, trials)?;
    Ok((preset, provenance))
}

pub(crate) fn find(preset: &str) -> Result<Preset, Failure> {
    Preset::find(preset).map_err(Failure::input)
}

pub(crate) fn file_bytes(mb: u64) -> Result<u64, Failure> {
    mb.checked_mul(1 << 20)
        .ok_or_else(|| Failure::input(format!("--file-mb is {mb}: more than 2^64 bytes")))
}

pub(crate) fn pattern(name: &str) -> Result<Pattern, Failure> {
    name.parse().map_err(Failure::input)
}

pub(crate) fn layout(name: &str) -> Result<Layout, Failure> {
    names::parse_layout(name).ok_or_else(|| {
        Failure::input(format!(
            "there is no layout '{name}': take one of {}",
            list(&names::LAYOUTS)
        ))
    })
}

pub(crate) fn method(name: &str) -> Result<Method, Failure> {
    names::parse_method(name).ok_or_else(|| {
        Failure::input(format!(
            "there is no method '{name}': take one of {}",
            list(&names::METHODS)
        ))
    })
}

fn list<T>(known: &[(&str, T)]) -> String {
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

/// What `plots.py` can draw.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Plot {
    /// A table's throughputs, measured beside published
    Table,
    /// Series of points, as lines or as bars
    Figure,
    /// Least, mean and greatest gain of each method
    Summary,
    /// What many clients and servers do
    Scale,
    /// The way of a disk's arm
    Seeks,
}

impl Plot {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Plot::Table => "table",
            Plot::Figure => "figure",
            Plot::Summary => "summary",
            Plot::Scale => "scale",
            Plot::Seeks => "seeks",
        }
    }
}
