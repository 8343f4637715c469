//! Errands: what the node that directs a call is to do, as values.
//!
//! Where rank 0 directs, it makes the director of its errand. Where servers stand, rank 0 sends the
//! errand to the node of server 0, and the director is made there.

use std::path::PathBuf;
use std::sync::Arc;

use penstock_engine::encoding::{decode, encode};
use penstock_engine::{Decision, Director, Error, Kind, RankParts, Result, Tally, Traffic};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::desk::Desk;

/// What an errand is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Topic {
    Write,
    Read,
    Timestep,
    Checkpoint,
    FindCheckpoint,
    Restart,
    Select,
    Reduce,
    Open,
    Order,
    Together,
    Meet,
    Commit,
    Close,
    /// One that makes no sense.
    Unknown,
}

impl Topic {
    /// The name that people see.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Timestep => "timestep",
            Self::Checkpoint => "checkpoint",
            Self::FindCheckpoint => "find_checkpoint",
            Self::Restart => "restart",
            Self::Select => "select",
            Self::Reduce => "reduce",
            Self::Open => "open",
            Self::Order => "order",
            Self::Together => "together",
            Self::Meet => "meet",
            Self::Commit => "commit",
            Self::Close => "close",
            Self::Unknown => "unknown",
        }
    }
}

/// An errand of one topic.
pub(super) trait Errand: Serialize + DeserializeOwned + Send + 'static {
    /// What the errand is about.
    fn topic(&self) -> Topic;

    /// The paths in it, which are below the directory of the node that directs.
    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }

    /// The path to which the call writes arrays.
    fn written(&mut self) -> Option<&mut PathBuf> {
        None
    }

    /// What the call does, in words.
    fn words(&self) -> String {
        self.topic().name().to_string()
    }

    /// The director, which works with what is on this desk.
    fn director(self, desk: &Arc<Desk>) -> Box<dyn Director + Send>;
}

/// An errand of any topic.
pub(super) trait AnyErrand: Send {
    /// The errand, encoded.
    ///
    /// # Errors
    /// When a path in it is no text.
    fn told(&self) -> Result<Vec<u8>>;

    /// As [`Errand::paths`].
    fn paths(&mut self) -> Vec<&mut PathBuf>;

    /// As [`Errand::written`].
    fn written(&mut self) -> Option<&mut PathBuf>;

    /// As [`Errand::words`].
    fn words(&self) -> String;

    /// As [`Errand::director`].
    fn director(self: Box<Self>, desk: &Arc<Desk>) -> Box<dyn Director + Send>;
}

impl<E: Errand> AnyErrand for E {
    fn told(&self) -> Result<Vec<u8>> {
        encode(&(self.topic(), encode(self)?))
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Errand::paths(self)
    }

    fn written(&mut self) -> Option<&mut PathBuf> {
        Errand::written(self)
    }

    fn words(&self) -> String {
        Errand::words(self)
    }

    fn director(self: Box<Self>, desk: &Arc<Desk>) -> Box<dyn Director + Send> {
        Errand::director(*self, desk)
    }
}

/// Reads an errand of a topic that was told.
///
/// # Errors
/// When it makes no sense.
pub(super) fn heard<E: Errand>(told: &[u8]) -> Result<Box<dyn AnyErrand>> {
    Ok(Box::new(decode::<E>(told)?))
}

/// Who directs a call.
pub(super) enum Direction {
    /// The node that directs, on an errand.
    Errand(Box<dyn AnyErrand>),
    /// Rank 0 itself: servers that stand cannot.
    Here(Box<dyn Director>),
}

impl Direction {
    pub(super) fn of(errand: impl Errand) -> Self {
        Self::Errand(Box::new(errand))
    }
}

/// The meeting of all ranks, about nothing.
#[derive(Serialize, Deserialize)]
pub(super) struct Meet;

impl Errand for Meet {
    fn topic(&self) -> Topic {
        Topic::Meet
    }

    fn director(self, _desk: &Arc<Desk>) -> Box<dyn Director + Send> {
        Box::new(Saying::new(|| Ok(())))
    }
}

/// The end of the session.
#[derive(Serialize, Deserialize)]
pub(super) struct Close;

impl Errand for Close {
    fn topic(&self) -> Topic {
        Topic::Close
    }

    fn director(self, _desk: &Arc<Desk>) -> Box<dyn Director + Send> {
        Box::new(self)
    }
}

impl Director for Close {
    fn prepare(&mut self, _parts: RankParts) -> Result<Decision> {
        Ok(Decision::Close(None))
    }

    fn conclude(&mut self, outcome: Result<Tally>) -> Result<Traffic> {
        outcome.map(|done| done.moved)
    }
}

/// What the node that directs has to say, encoded for all ranks.
type Words = Box<dyn FnOnce() -> Result<Vec<u8>> + Send>;

/// Directs a call in which nothing moves: says something to all ranks.
pub(super) struct Saying(Option<Words>);

impl Saying {
    pub(super) fn new<T: Serialize>(say: impl FnOnce() -> Result<T> + Send + 'static) -> Self {
        Self(Some(Box::new(move || encode(&say()?))))
    }
}

impl Director for Saying {
    fn prepare(&mut self, _parts: RankParts) -> Result<Decision> {
        let twice = || Error::new(Kind::Schema, "deciding on a call", "it was decided before");
        let say = self.0.take().ok_or_else(twice)?;
        Ok(Decision::Tell(say()?))
    }

    fn conclude(&mut self, outcome: Result<Tally>) -> Result<Traffic> {
        outcome.map(|done| done.moved)
    }
}
