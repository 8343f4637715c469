//! What a rank asks for in a collective call, as a value.
//!
//! Ranks agree if their asks are equal. English is made of asks only where they are not: the kind
//! of call if ranks make different calls, and otherwise the terms in which two asks differ.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use penstock_engine::{Operation, Strategy};
use penstock_layout::{Dists, Region};
use serde::{Deserialize, Serialize};

use super::copy::{Extents, Form, Options};
use super::settings::Background;
use super::strategy;
use crate::sieve::{Recipients, Reduction};
use crate::write::Slab;
use crate::{ElementType, Fill, Storage};

/// The most differing terms that an error shows.
const TERMS_SHOWN: usize = 3;

/// An ask is what one rank asks for in a collective call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    /// A write of one array.
    Write(TransferAsk),
    /// A read of one array.
    Read(TransferAsk),
    /// One more timestep of a group, or a checkpoint; and the part that goes on in the background,
    /// of a split collective.
    Save(SaveAsk, GroupAsk, Option<Background>),
    /// The search for a checkpoint.
    FindCheckpoint {
        /// The path of the group.
        path: PathBytes,
        /// The program's step; `None` for any.
        step: Option<u64>,
    },
    /// A read of the checkpoint with this number.
    Restart(u64, GroupAsk),
    /// The beginning of a copy.
    Copy {
        /// The path of the source.
        source: PathBytes,
        /// The path of the target.
        target: PathBytes,
        /// The options of the copy.
        options: Options,
    },
    /// One slab of a copy.
    Slab {
        /// The path of the array in the source.
        path: String,
        /// The slab.
        slab: Slab,
        /// Whether the slab is read into memory, or written to disk.
        operation: Operation,
    },
    /// A selection of elements of an array.
    Select {
        /// The path of the array or its group.
        path: PathBytes,
        /// The array.
        array: ArrayAsk,
        /// The condition, as it is written.
        condition: String,
        /// The fields that are wanted.
        fields: Option<Vec<String>>,
        /// To whom elements go.
        recipients: Recipients,
    },
    /// A reduction of an array.
    Reduce {
        /// The path of the array or its group.
        path: PathBytes,
        /// The array.
        array: ArrayAsk,
        /// The reduction.
        reduction: Reduction,
    },
    /// The opening of an array for requests of single ranks.
    Open {
        /// The path of the array or its group.
        path: PathBytes,
        /// The name of the array in a group.
        name: Option<String>,
        /// Whether the array is to be changed.
        is_writable: bool,
    },
    /// An order about the open array with this number.
    Order(u64),
    /// A write or read by all ranks on the open array with this number.
    Together(u64, Operation, MemoryAsk),
    /// The commit of all that was written to the repository of a path.
    Commit(PathBytes),
    /// The end of a copy.
    EndOfCopy,
    /// A barrier.
    Barrier,
    /// The end of the session.
    EndOfSession,
}

impl Ask {
    /// The kind of the call, as people see it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Write(_) => "write",
            Self::Read(_) => "read",
            Self::Save(SaveAsk::Timestep(_), ..) => "timestep",
            Self::Save(SaveAsk::Checkpoint { .. }, ..) => "checkpoint",
            Self::FindCheckpoint { .. } => "find_checkpoint",
            Self::Restart(..) => "restart",
            Self::Copy { .. } | Self::Slab { .. } | Self::EndOfCopy => "copy",
            Self::Select { .. } => "select",
            Self::Reduce { .. } => "reduce",
            Self::Open { .. } => "open",
            Self::Order(_) => "order",
            Self::Together(..) => "together",
            Self::Commit(_) => "commit",
            Self::Barrier => "meet",
            Self::EndOfSession => "close",
        }
    }
}

/// The bytes of a path, which need not be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathBytes(Vec<u8>);

impl From<&Path> for PathBytes {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl PathBytes {
    fn words(&self) -> String {
        Path::new(OsStr::from_bytes(&self.0)).display().to_string()
    }
}

/// The ask for a write or read of one array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferAsk {
    /// The path of the array or its group.
    pub path: PathBytes,
    /// The strategy, with its tuning.
    pub strategy: Strategy,
    /// The part that goes on in the background, of a split collective.
    pub background: Option<Background>,
    /// The array.
    pub array: ArrayAsk,
}

/// All of an array in which ranks must agree: all but a rank's own boxes, rows and halo.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArrayAsk {
    /// The name.
    pub name: String,
    /// The extents.
    pub shape: Vec<u64>,
    /// The element type.
    pub element: ElementType,
    /// The memory schema.
    pub memory: MemoryAsk,
    /// The storage on disk.
    pub disk: Storage,
    /// The names of the dimensions.
    pub dimension_names: Option<Vec<String>>,
    /// The attributes, as JSON.
    pub attributes: String,
    /// The fill value.
    pub fill: Fill,
}

/// The part of a memory schema in which ranks must agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryAsk {
    /// A distribution over a mesh.
    Distribution(Dists, Vec<u64>),
    /// Boxes of each rank's own.
    Boxes,
    /// Boxes of each rank's own, and the call is about them alone.
    Regions,
    /// A list of each rank's own.
    Lists {
        /// Whether the call is about the lists alone.
        is_region: bool,
    },
    /// Rows of each rank's own.
    Rows,
    /// Shares of a thinned array.
    Thinned(Thinning),
}

/// A thinned array has every n-th element of another one along each dimension, from the first on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thinning {
    /// The distance from one element to the next, in each dimension.
    pub every: Vec<u64>,
    /// The memory schema of the thinned array, as far as ranks must agree on it, in words.
    pub memory: String,
}

/// The kind of a save.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SaveAsk {
    /// A timestep at this time.
    Timestep(Option<f64>),
    /// A checkpoint.
    Checkpoint {
        /// The program's step.
        step: Option<u64>,
        /// The program's time.
        time: Option<f64>,
        /// The attributes of the checkpoint, as JSON.
        attributes: String,
    },
}

/// All of a group in which ranks must agree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupAsk {
    /// The name.
    pub name: String,
    /// The path.
    pub path: PathBytes,
    /// The number of checkpoints that are kept.
    pub keep: usize,
    /// The number of timesteps in a chunk.
    pub time_chunk: Option<u64>,
    /// The names of the arrays for which the bounds of chunks are kept.
    pub bounded: Vec<String>,
    /// The names of the coordinates; their values are not compared.
    pub coordinates: Vec<String>,
    /// The attributes, as JSON.
    pub attributes: String,
    /// The attributes of the times, as JSON.
    pub time_attributes: String,
    /// The arrays.
    pub arrays: Vec<ArrayAsk>,
}

impl Ask {
    /// The ask of a call that is split, with this part in the background.
    #[must_use]
    pub fn with_background(mut self, background: Background) -> Self {
        match &mut self {
            Self::Write(transfer) | Self::Read(transfer) => transfer.background = Some(background),
            Self::Save(_, _, of_save) => *of_save = Some(background),
            _ => {}
        }
        self
    }

    /// The kind of call, in words.
    fn kind(&self) -> String {
        match self {
            Self::Write(TransferAsk { path, .. }) => format!("a write to {}", path.words()),
            Self::Read(TransferAsk { path, .. }) => format!("a read from {}", path.words()),
            Self::Save(SaveAsk::Timestep(_), ..) => "a timestep".to_string(),
            Self::Save(SaveAsk::Checkpoint { .. }, ..) => "a checkpoint".to_string(),
            Self::FindCheckpoint { path, .. } => format!("a restart from {}", path.words()),
            Self::Restart(number, _) => format!("checkpoint {number}"),
            Self::Copy { source, target, .. } => {
                format!("a copy of {} to {}", source.words(), target.words())
            }
            Self::Slab {
                path,
                slab: (_, pass, index),
                operation,
            } => {
                let way = match operation {
                    Operation::Read => "memory",
                    Operation::Write => "disk",
                };
                format!("slab {index} of pass {pass} of a copy of '{path}', to {way}")
            }
            Self::Select { path, .. } => format!("a selection from {}", path.words()),
            Self::Reduce { path, .. } => format!("a reduction of {}", path.words()),
            Self::Open { path, .. } => format!("the opening of {}", path.words()),
            Self::Order(number) => format!("the opening, flush or end of open array {number}"),
            Self::Together(number, Operation::Write, _) => {
                format!("a write of all ranks to open array {number}")
            }
            Self::Together(number, Operation::Read, _) => {
                format!("a read by all ranks of open array {number}")
            }
            Self::Commit(path) => format!("a commit to {}", path.words()),
            Self::EndOfCopy => "the end of a copy".to_string(),
            Self::Barrier => "a barrier".to_string(),
            Self::EndOfSession => "the end of the session".to_string(),
        }
    }

    /// The terms of the call, in words.
    fn terms(&self) -> Terms {
        let terms = Terms::default();
        match self {
            Self::Write(transfer) | Self::Read(transfer) => {
                let terms = terms.with("strategy", strategy::in_words(&transfer.strategy));
                transfer
                    .array
                    .add_to(terms)
                    .with_background(transfer.background)
            }
            Self::Save(save, group, background) => {
                let terms = group.add_to(save.add_to(terms));
                terms.with_background(*background)
            }
            Self::FindCheckpoint { step, .. } => terms.with("step", or(*step, "any")),
            Self::Restart(_, group) => group.add_to(terms),
            Self::Select {
                array,
                condition,
                fields,
                recipients,
                ..
            } => array
                .add_to(terms)
                .with("condition", condition)
                .with(
                    "fields",
                    or(fields.as_ref().map(|all| all.join(", ")), "all"),
                )
                .with("recipients", recipients.words()),
            Self::Reduce {
                array, reduction, ..
            } => {
                let Region { start, shape } = &reduction.region;
                array
                    .add_to(terms)
                    .with("kind", reduction.how.words())
                    .with("field", or(reduction.field.clone(), "none"))
                    .with("region", format!("{start:?} + {shape:?}"))
                    .with("kept dimensions", format!("{:?}", reduction.kept))
            }
            Self::Copy { options, .. } => add_options(options, terms),
            Self::Open {
                name, is_writable, ..
            } => terms
                .with("name", or(name.as_ref(), "none"))
                .with("mode", if *is_writable { "r+" } else { "r" }),
            Self::Together(_, _, memory) => terms.with("memory schema", memory.words()),
            Self::Slab { .. } | Self::Order(_) => terms,
            Self::Commit(_) | Self::EndOfCopy | Self::Barrier | Self::EndOfSession => terms,
        }
    }
}

impl penstock_engine::Ask for Ask {
    fn difference(&self, rank: usize, other: &Self, other_rank: usize) -> String {
        let (kind, other_kind) = (self.kind(), other.kind());
        if kind != other_kind {
            return format!("rank {rank} asks for {kind}, rank {other_rank} for {other_kind}");
        }
        let (terms, others) = (self.terms().0, other.terms().0);
        let pairs = terms
            .iter()
            .zip(&others)
            .filter(|(one, other)| one != other);
        let differing = pairs.map(|(one, other)| match one.0 == other.0 {
            true => format!(
                "the {}: {} on rank {rank}, {} on rank {other_rank}",
                one.0, one.1, other.1
            ),
            false => format!("{} on rank {rank}, {} on rank {other_rank}", one.0, other.0),
        });
        let mut in_what: Vec<String> = differing.take(TERMS_SHOWN).collect();
        if terms.len() != others.len() {
            in_what.push("the number of terms".to_string());
        }
        if in_what.is_empty() {
            in_what.push(format!("what ranks {rank} and {other_rank} write alike"));
        }
        format!("ranks differ, for {kind}, in {}", in_what.join("; "))
    }
}

/// Names and values of an ask's terms, in words.
#[derive(Default)]
struct Terms(Vec<(String, String)>);

impl Terms {
    fn with(mut self, name: impl Into<String>, words: impl ToString) -> Self {
        self.0.push((name.into(), words.to_string()));
        self
    }

    fn with_background(self, background: Option<Background>) -> Self {
        match background {
            Some(background) => self.with("background", background.word()),
            None => self,
        }
    }
}

/// A value in words; `none` where there is none.
fn or<T: ToString>(value: Option<T>, none: &str) -> String {
    value.map_or_else(|| none.to_string(), |value| value.to_string())
}

impl MemoryAsk {
    /// The memory schema, in words.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Distribution(dists, mesh) => format!("{dists} over mesh {mesh:?}"),
            Self::Boxes => "boxes".to_string(),
            Self::Regions => "regions".to_string(),
            Self::Lists { is_region: false } => "lists".to_string(),
            Self::Lists { is_region: true } => "lists as regions".to_string(),
            Self::Rows => "rows of each rank's own".to_string(),
            Self::Thinned(Thinning { every, memory }) => {
                format!("{memory}, of every {every:?}")
            }
        }
    }
}

impl ArrayAsk {
    fn add_to(&self, terms: Terms) -> Terms {
        let of = |term: &str| format!("{term} of {:?}", self.name);
        let names = self.dimension_names.as_ref().map(|names| names.join(", "));
        terms
            .with("array", &self.name)
            .with(of("shape"), format!("{:?}", self.shape))
            .with(of("dtype"), &self.element)
            .with(of("memory schema"), self.memory.words())
            .with(of("disk schema"), &self.disk)
            .with(of("dims"), or(names, "none"))
            .with(of("attributes"), &self.attributes)
            .with(of("fill value"), self.fill.words(&self.element))
    }
}

impl SaveAsk {
    fn add_to(&self, terms: Terms) -> Terms {
        match self {
            Self::Timestep(time) => terms.with("time", or(*time, "none")),
            Self::Checkpoint {
                step,
                time,
                attributes,
            } => terms
                .with("step", or(*step, "none"))
                .with("time", or(*time, "none"))
                .with("attributes of the checkpoint", attributes),
        }
    }
}

impl GroupAsk {
    fn add_to(&self, terms: Terms) -> Terms {
        let terms = terms
            .with("group", &self.name)
            .with("path", self.path.words())
            .with("checkpoints kept", self.keep)
            .with("timesteps a chunk", or(self.time_chunk, "any"))
            .with("arrays with bounds", self.bounded.join(", "))
            .with("coordinates", self.coordinates.join(", "))
            .with("attributes", &self.attributes)
            .with("attributes of time", &self.time_attributes);
        let arrays = self.arrays.iter();
        arrays.fold(terms, |terms, array| array.add_to(terms))
    }
}

fn add_options(options: &Options, terms: Terms) -> Terms {
    let as_it_is = |words: Option<String>| or(words, "as it is");
    let raw = options.raw.as_ref();
    let terms = terms
        .with("arrays", options.arrays.join(", "))
        .with("name", as_it_is(options.name.clone()))
        .with(
            "raw",
            as_it_is(raw.map(|(shape, element)| format!("{element} of {shape:?}"))),
        )
        .with("memory", options.memory_bytes)
        .with("drop attributes", options.drops_attributes)
        .with("overwrite", options.overwrites)
        .with("skip what is unsupported", options.skips_unsupported);
    match &options.form {
        Form::RowMajor(format) => terms.with("disk schema", Storage::RowMajor { format: *format }),
        Form::Hdf5 {
            chunks,
            filters,
            is_netcdf,
        } => terms
            .with("chunks", as_it_is(chunks.as_ref().map(Extents::to_string)))
            .with("filters", as_it_is(filters.clone()))
            .with("NetCDF", is_netcdf),
        Form::Zarr {
            chunks,
            subchunks,
            codec,
        } => terms
            .with("chunks", as_it_is(chunks.as_ref().map(Extents::to_string)))
            .with(
                "sub-chunks",
                as_it_is(subchunks.as_ref().map(Extents::to_string)),
            )
            .with("codec", as_it_is(codec.clone())),
    }
}

#[cfg(test)]
mod tests {
    use penstock_engine::Ask as _;
    use penstock_engine::encoding::{decode, encode};

    use super::*;

    fn write(path: &str, shape: &[u64]) -> Ask {
        Ask::Write(TransferAsk {
            path: Path::new(path).into(),
            strategy: Strategy::default(),
            background: None,
            array: ArrayAsk {
                name: "u".to_string(),
                shape: shape.to_vec(),
                element: ElementType::F8,
                memory: MemoryAsk::Distribution("BLOCK,*".parse().unwrap(), vec![3]),
                disk: Storage::Natural,
                dimension_names: None,
                attributes: "{}".to_string(),
                fill: Fill::default(),
            },
        })
    }

    #[test]
    fn asks_come_back_and_differ_in_words() {
        let ask = write("g", &[6, 4]);
        let encoded = encode(&ask).unwrap();
        assert_eq!(decode::<Ask>(&encoded).unwrap(), ask);
        assert!(encoded.len() < 50, "{} bytes", encoded.len());
        for (other, words) in [
            (
                write("h", &[6, 4]),
                "rank 0 asks for a write to g, rank 2 for a write to h",
            ),
            (
                write("g", &[6, 5]),
                "ranks differ, for a write to g, in the shape of \"u\": [6, 4] on rank 0, [6, 5] on rank 2",
            ),
            (
                Ask::Barrier,
                "rank 0 asks for a write to g, rank 2 for a barrier",
            ),
            (
                write("g", &[6, 4]).with_background(Background::All),
                "ranks differ, for a write to g, in the number of terms",
            ),
        ] {
            assert_eq!(ask.difference(0, &other, 2), words);
        }
    }
}
