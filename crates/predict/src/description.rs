//! A call in words: arrays, ranks, hosts and servers; and the requests that it makes.
//!
//! ```toml
//! operation = "write"      # or "read"
//! ranks = 8
//! servers = 2              # or none: as a session chooses
//! direct = false           # around the page cache
//! sync = true              # a write that waits for stable storage
//!
//! [[arrays]]
//! shape = [512, 512, 256]
//! dtype = "f8"
//! memory = "BLOCK,BLOCK,BLOCK"
//! mesh = [2, 2, 2]
//! chunks = [128, 128, 128] # or none: one flat row-major file
//!
//! [[arrays]]
//! shape = [1000]
//! dtype = "f8"
//! lists = [                # of each rank, in the place of a distribution
//!     [{ first = 0, elements = 10 }, { first = 500, elements = 1, loops = [[50, 2]] }],
//!     [{ first = 10, elements = 90 }],
//! ]
//! ```

use std::ops::Range;
use std::sync::Arc;

use penstock_engine::tuning::TwoPhase;
use penstock_engine::{Error, Holders, Kind, Operation, Request, Rest, Result, Strategy};
use penstock_layout::{DiskSchema, Distribution, Dists, Holding, List, Order, Split};
use penstock_sim::preset::Preset;
use serde::{Deserialize, Serialize};

use crate::predicting::predict;
use crate::prediction::Prediction;
use crate::question::Question;

/// The most bytes that a server moves at once where the store leaves it a choice: as a session
/// has it.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// The names of the strategies, in the order in which they are told.
pub const STRATEGIES: [&str; 4] = ["disk-directed", "two-phase", "caching", "independent"];

/// A collective call on arrays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The direction of the data.
    pub operation: Direction,
    /// The number of ranks, each one client.
    pub ranks: usize,
    /// The number of hosts that the ranks are on.
    #[serde(default = "one")]
    pub hosts: usize,
    /// The number of servers. By default one for each processor of a host, but not more than it
    /// has ranks; and one for each host if they write one flat file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<usize>,
    /// The strategies; by default all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strategies: Vec<String>,
    /// Whether elements go around the page cache.
    #[serde(default)]
    pub direct: bool,
    /// Whether a write returns only when the data are on stable storage.
    #[serde(default = "yes")]
    pub sync: bool,
    /// The most bytes that a server moves at once where the store leaves it a choice.
    #[serde(default = "block_bytes")]
    pub block_bytes: u64,
    pub arrays: Vec<Array>,
}

/// The direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Write,
    Read,
}

/// An array, in memory and on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Array {
    pub shape: Vec<u64>,
    /// The type of the elements as NumPy writes it, such as `f8`: its digits are the bytes.
    pub dtype: String,
    /// The distribution over the ranks: `BLOCK`, `CYCLIC`, `CYCLIC(k)` or `*` in each dimension.
    #[serde(default)]
    pub memory: String,
    /// The extents of the mesh of ranks, one for each dimension that is dealt out.
    #[serde(default)]
    pub mesh: Vec<u64>,
    /// In the place of a distribution, what each rank holds, by rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<Vec<Series>>,
    /// The extents of a chunk on disk. By default the array is one flat row-major file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Vec<u64>>,
}

/// Elements that a rank holds of an array, counted in row-major order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// The first element.
    pub first: u64,
    /// The number of elements of a run.
    pub elements: u64,
    /// Loops over runs, the outermost first: how often, and the elements from begin to begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loops: Vec<(u64, i64)>,
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

fn block_bytes() -> u64 {
    BLOCK_BYTES
}

fn wrong(cause: impl Into<String>) -> Error {
    Error::new(Kind::Schema, "describing a call", cause.into())
}

/// What the index mathematics answers.
type Laid<T> = std::result::Result<T, penstock_layout::LayoutError>;

fn refused(error: penstock_layout::LayoutError) -> Error {
    wrong(error.to_string())
}

impl Array {
    /// The bytes of an element.
    pub(crate) fn width(&self) -> Result<u64> {
        let letters = ['b', 'i', 'u', 'f', 'c', '<', '>', '|', '='];
        let digits = self.dtype.trim_start_matches(letters);
        let width = digits
            .parse()
            .ok()
            .filter(|width| (1..=1 << 16).contains(width));
        width.ok_or_else(|| wrong(format!("'{}' is no dtype: use one such as f8", self.dtype)))
    }

    /// The extents of the largest part of a rank along each dimension; of lists those of the array.
    pub(crate) fn part(&self) -> Result<Vec<u64>> {
        if !self.lists.is_empty() {
            return Ok(self.shape.iter().map(|extent| (*extent).max(1)).collect());
        }
        let dists: Dists = self.memory.parse().map_err(refused)?;
        let memory = Distribution::new(&self.shape, &dists, &self.mesh).map_err(refused)?;
        let extents = memory.share(0).extents();
        let whole = extents.iter().all(|extent| *extent > 0) && extents.len() == self.shape.len();
        Ok(match whole {
            true => extents,
            false => self.shape.iter().map(|extent| (*extent).max(1)).collect(),
        })
    }

    /// What ranks hold, in words that the engine has.
    fn holders(&self, ranks: usize) -> Result<Holders> {
        if self.lists.is_empty() {
            let dists: Dists = self.memory.parse().map_err(refused)?;
            let memory = Distribution::new(&self.shape, &dists, &self.mesh).map_err(refused)?;
            return Ok(memory.into());
        }
        if !self.memory.is_empty() || !self.mesh.is_empty() {
            return Err(wrong(
                "an array has lists, or memory and mesh, and not both",
            ));
        }
        let shape = self.shape.clone();
        Ok(Holders::Lists { shape, ranks })
    }

    /// What each rank holds by its list.
    fn holdings(&self) -> Result<Vec<Arc<Holding>>> {
        let elements = self
            .shape
            .iter()
            .try_fold(1u64, |all, &n| all.checked_mul(n));
        let elements = elements.ok_or_else(|| wrong("the array is too large"))?;
        let holding = |series: &Vec<Series>| {
            let strided = |one: &Series| List::strided(one.first, one.elements, &one.loops);
            let lists: Vec<List> = series.iter().map(strided).collect::<Laid<_>>()?;
            let list = List::concat(lists)?;
            list.check(elements)?;
            let dense = List::strided(0, list.elements(), &[])?;
            Ok(Arc::new(Holding::new(&list, &dense)?))
        };
        let all: Laid<_> = self.lists.iter().map(holding).collect();
        all.map_err(refused)
    }

    fn disk_schema(&self, block_bytes: u64) -> Result<DiskSchema> {
        let width = self.width()?;
        let disk = match &self.chunks {
            Some(chunks) => DiskSchema::chunked(&self.shape, width, chunks)
                .and_then(|chunked| chunked.split(Split::Contiguous(block_bytes))),
            None => DiskSchema::flat(&self.shape, width, Order::RowMajor, block_bytes),
        };
        disk.map_err(refused)
    }
}

impl Description {
    /// The strategies of the description.
    ///
    /// # Errors
    /// [`Kind::Schema`] for a name that is none.
    pub fn strategies(&self) -> Result<Vec<Strategy>> {
        let names: Vec<&str> = match self.strategies.is_empty() {
            true => STRATEGIES.to_vec(),
            false => self.strategies.iter().map(String::as_str).collect(),
        };
        let named = |name: &str| match name {
            "disk-directed" => Ok(Strategy::default()),
            "two-phase" => Ok(Strategy::TwoPhase(TwoPhase::default())),
            "caching" => Ok(Strategy::Caching(Default::default())),
            "independent" => Ok(Strategy::Independent),
            _ => Err(wrong(format!(
                "'{name}' is no strategy: use one of {}",
                STRATEGIES.join(", ")
            ))),
        };
        names.into_iter().map(named).collect()
    }

    /// The machine as the call sees it: through the page cache, or around it.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for direct I/O on a machine whose preset has no section `around`.
    pub fn machine(&self, machine: &Preset) -> Result<Preset> {
        match (self.direct, &machine.host) {
            (true, Some(_)) => machine.around_page_cache().ok_or_else(|| {
                let cause = "the preset has no section `around`: its disk has no direct I/O";
                Error::new(Kind::Unsupported, "predicting a call", cause)
            }),
            _ => Ok(machine.clone()),
        }
    }

    /// The requests of the call by one strategy, one for each array.
    ///
    /// # Errors
    /// [`Kind::Schema`] when something does not fit.
    pub fn requests(&self, machine: &Preset, strategy: Strategy) -> Result<Vec<Request>> {
        if !(1..=1 << 30).contains(&self.block_bytes) {
            return Err(wrong("block_bytes are from 1 to 2^30"));
        }
        if self.ranks == 0 || self.hosts == 0 || self.hosts > self.ranks {
            return Err(wrong("give one rank at least, and a rank for each host"));
        }
        if self.arrays.is_empty() {
            return Err(wrong("there is no array"));
        }
        let request = |array: &Array| {
            let holders = array.holders(self.ranks)?;
            let (places, lists, ranks) = (holders.ranks(), array.lists.len(), self.ranks);
            if places.max(lists) > ranks {
                return Err(wrong(match lists {
                    0 => format!("the mesh has {places} places, and there are {ranks} ranks"),
                    _ => format!("there are {lists} lists and {ranks} ranks"),
                }));
            }
            Ok(Request {
                operation: match self.operation {
                    Direction::Write => Operation::Write,
                    Direction::Read => Operation::Read,
                },
                strategy,
                holders,
                target: Vec::new(),
                file: None,
                servers: self.servers_for(machine, array.chunks.is_none())?,
                sync: self.sync,
                split: None,
                rest: Rest::Fill(Vec::new()),
                sifting: None,
                disk: array.disk_schema(self.block_bytes)?,
            })
        };
        self.arrays.iter().map(request).collect()
    }

    /// For each array what each rank holds by lists, as a [`Question`] has it.
    ///
    /// # Errors
    /// [`Kind::Schema`] when a list makes no sense.
    pub fn lists(&self) -> Result<Vec<Vec<Arc<Holding>>>> {
        self.arrays.iter().map(Array::holdings).collect()
    }

    fn servers_for(&self, machine: &Preset, is_flat: bool) -> Result<usize> {
        let each = self.ranks.div_ceil(self.hosts);
        match (self.servers, &machine.host) {
            (Some(0), _) => Err(wrong("servers are 1 or more")),
            (Some(servers), _) => Ok(servers),
            // Linux lets one process at a time write to a file.
            (None, Some(_)) if is_flat && self.operation == Direction::Write => Ok(self.hosts),
            (None, Some(host)) => Ok(self.hosts * each.min(host.processors)),
            (None, None) => Ok(machine.nodes.disks),
        }
    }
}

/// Predicts the call by each of its strategies. Strategies that move one array at a time are
/// predicted one array after the other.
///
/// # Errors
/// [`Kind::Schema`] when something does not fit; [`Kind::Unsupported`] for direct I/O on a machine
/// whose preset has no section `around`.
pub fn predict_all(machine: &Preset, description: &Description) -> Result<Vec<Prediction>> {
    let machine = &description.machine(machine)?;
    let lists = description.lists()?;
    let of_strategy = |strategy: Strategy| {
        let requests = description.requests(machine, strategy)?;
        let ask = |range: Range<usize>| {
            let question = Question {
                requests: &requests[range.clone()],
                lists: &lists[range],
                clients: description.ranks,
                hosts: description.hosts,
            };
            predict(machine, &question)
        };
        if matches!(strategy, Strategy::DiskDirected(_)) {
            return ask(0..requests.len());
        }
        let mut all = ask(0..1)?;
        for nth in 1..requests.len() {
            all.add(&ask(nth..nth + 1)?);
        }
        Ok(all)
    };
    description
        .strategies()?
        .into_iter()
        .map(of_strategy)
        .collect()
}
