//! What ranks ask for in collective calls on files, and what rank 0 answers.

use penstock_engine::Ask as EngineAsk;
use penstock_engine::encoding::{decode, encode};
use penstock_engine::{Decision, Director, Error, Kind, RankParts, Tally, Traffic};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failure::{Class, Failure, Result};

/// What a rank asks for: the same on all ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// To open a file, with an access mode.
    Open { mode: i32 },
    /// To connect with the servers of a volume.
    Connect { url: String },
    /// To say how the rank has got on with what was agreed.
    Proceed,
    /// To let servers move data.
    Move,
    /// To read or write, by the function of this name.
    Access { function: String },
    /// To set a view.
    SetView,
    /// To set the bytes of the file.
    SetSize { bytes: i64 },
    /// To reserve space for the bytes of the file.
    Preallocate { bytes: i64 },
    /// To set atomic mode.
    SetAtomicity { is_atomic: bool },
    /// To move the shared pointer.
    SeekShared { offset: i64, whence: i32 },
    /// To put what was written on stable storage.
    Sync,
    /// To set hints.
    SetInfo,
    /// To close the file.
    Close,
}

impl Ask {
    /// The function that asks for it.
    pub fn function(&self) -> &str {
        match self {
            Self::Open { .. } | Self::Connect { .. } => "MPI_File_open",
            Self::Proceed | Self::Move => "a collective access",
            Self::Access { function } => function,
            Self::SetView => "MPI_File_set_view",
            Self::SetSize { .. } => "MPI_File_set_size",
            Self::Preallocate { .. } => "MPI_File_preallocate",
            Self::SetAtomicity { .. } => "MPI_File_set_atomicity",
            Self::SeekShared { .. } => "MPI_File_seek_shared",
            Self::Sync => "MPI_File_sync",
            Self::SetInfo => "MPI_File_set_info",
            Self::Close => "MPI_File_close",
        }
    }

    /// The arguments that must be the same on all ranks.
    fn arguments(&self) -> String {
        match self {
            Self::Open { mode } => format!("access mode {mode}"),
            Self::Connect { url } => format!("a file of the volume {url}"),
            Self::SetSize { bytes } | Self::Preallocate { bytes } => format!("{bytes} bytes"),
            Self::SetAtomicity { is_atomic } => format!("{is_atomic}"),
            Self::SeekShared { offset, whence } => format!("offset {offset}, whence {whence}"),
            Self::Proceed
            | Self::Move
            | Self::SetView
            | Self::Access { .. }
            | Self::Sync
            | Self::SetInfo
            | Self::Close => String::new(),
        }
    }
}

impl EngineAsk for Ask {
    fn difference(&self, rank: usize, other: &Self, other_rank: usize) -> String {
        let (one, two) = (self.function(), other.function());
        match one == two {
            false => format!("rank {rank} calls {one}, rank {other_rank} {two}"),
            true => format!(
                "{one}: rank {rank} gives {}, rank {other_rank} {}",
                self.arguments(),
                other.arguments()
            ),
        }
    }
}

/// What one rank alone says in a meeting: its words, or why the call must fail.
pub type Say<W> = Result<W>;

/// Directs a meeting: rank 0 hears all ranks, and answers all. The failure of the lowest rank that
/// has one is the answer, if there is one.
pub struct Meeting<F> {
    direct: Option<F>,
}

impl<F> Meeting<F> {
    /// Makes the director of one meeting.
    pub fn new(direct: F) -> Self {
        Self {
            direct: Some(direct),
        }
    }
}

/// What all ranks say, or the failure of the lowest that has one.
///
/// # Errors
/// That failure.
pub fn heard<W>(all: impl IntoIterator<Item = Say<W>>) -> Result<Vec<W>> {
    let all = all.into_iter().enumerate();
    all.map(|(rank, said)| said.map_err(|failure| failure.by_rank(rank)))
        .collect()
}

impl<W, A, F> Director for Meeting<(F, std::marker::PhantomData<(W, A)>)>
where
    W: DeserializeOwned,
    A: Serialize,
    F: FnOnce(Vec<W>) -> Result<A>,
{
    fn prepare(&mut self, parts: RankParts) -> std::result::Result<Decision, Error> {
        let said: Vec<Say<W>> = parts
            .iter()
            .map(|part| decode(&part.own))
            .collect::<std::result::Result<_, _>>()?;
        let (direct, _) = self.direct.take().ok_or_else(twice)?;
        let answer: Result<A> = heard(said).and_then(direct);
        Ok(Decision::Tell(encode(&answer)?))
    }

    fn conclude(
        &mut self,
        _: std::result::Result<Tally, Error>,
    ) -> std::result::Result<Traffic, Error> {
        Err(twice())
    }
}

fn twice() -> Error {
    Error::new(Kind::Schema, "a collective call", "it was directed twice")
}

/// A failure as the engine's error, where a rank has it before data are moved.
pub fn error_of(failure: &Failure) -> Error {
    let kind = match failure.class {
        Class::NoSpace | Class::NoMem | Class::Quota => Kind::Full,
        Class::Io => Kind::Io,
        Class::UnsupportedOperation => Kind::Unsupported,
        _ => Kind::Schema,
    };
    Error::new(kind, "a collective access", &failure.text)
}
