//! The agreement of the ranks on one request.
//!
//! What a rank asks for is a value of a type that the engine does not know. It goes up the tree of
//! clients encoded, and encodings are compared: equal values have equal encodings on all ranks.
//! Only where two differ does rank 0 decode them, and [`Ask::difference`] says for people in what.
//!
//! ```text
//! rank 0   write g    first (0, write g)                    first: the ask of the lowest rank
//! rank 1   write g    first (0, write g)                    other: that of the lowest rank whose
//! rank 2   write h    first (0, write g), other (2, write h)       ask is not the first
//! ```
//!
//! Proposals that are merged have one ask, however many ranks agree, and two if some do not; and
//! what each rank has to say alone, such as boxes.

use penstock_layout::Region;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::encoding::{decode, encode};
use crate::error::{Error, Kind, Result, Who};
use crate::outcome::lowest;

/// An ask is what one rank asks for, as a value. Ranks agree if their asks have equal encodings.
pub trait Ask: Serialize + DeserializeOwned {
    /// Says for people in what the ask of `rank` and another rank's ask differ.
    fn difference(&self, rank: usize, other: &Self, other_rank: usize) -> String;
}

/// The ask of programs that make one kind of call only.
impl Ask for () {
    fn difference(&self, rank: usize, (): &Self, other_rank: usize) -> String {
        format!("ranks {rank} and {other_rank} differ in nothing")
    }
}

/// A proposal says what one rank asks for.
#[derive(Debug, Clone)]
pub struct Proposal<A> {
    /// The whole request, boxes aside.
    pub ask: A,
    /// The rank's boxes of each array for which each rank names its own.
    pub own_boxes: Vec<Option<Vec<Region>>>,
    /// What else this rank alone has to say, encoded: the director hears it.
    pub own: Vec<u8>,
    /// A complaint for all ranks to hear; it does not keep the session from being closed.
    pub complaint: Option<Error>,
}

impl<A> Proposal<A> {
    /// Whether the rank has anything of its own to say.
    fn has_own(&self) -> bool {
        self.own_boxes.iter().any(Option::is_some) || !self.own.is_empty()
    }
}

/// A proposal whose ask is encoded, or the reason why a rank cannot make one; and what says in what
/// two asks differ. The code of calls is the same for all types of asks.
pub struct Proposed {
    pub(super) proposal: Result<Proposal<Vec<u8>>>,
    pub(super) difference: fn(&Voice, &Voice) -> String,
}

impl<A: Ask> From<Result<Proposal<A>>> for Proposed {
    fn from(proposal: Result<Proposal<A>>) -> Self {
        let encoded = proposal.and_then(|proposal| {
            Ok(Proposal {
                ask: encode(&proposal.ask)?,
                own_boxes: proposal.own_boxes,
                own: proposal.own,
                complaint: proposal.complaint,
            })
        });
        Self {
            proposal: encoded,
            difference: difference::<A>,
        }
    }
}

/// A rank part is what one rank alone proposes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPart {
    /// The rank.
    pub rank: usize,
    /// The rank's boxes of each array for which each rank names its own.
    pub boxes: Vec<Option<Vec<Region>>>,
    /// What else the rank has to say, encoded.
    pub own: Vec<u8>,
}

/// What ranks alone propose, by rank. Ranks that have nothing of their own to say are left out.
pub type RankParts = Vec<RankPart>;

/// The encoded ask of a rank.
pub type Voice = (usize, Vec<u8>);

/// Proposals of several ranks, merged on their way up.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Proposals {
    first: Option<Voice>,
    other: Option<Voice>,
    pub(super) parts: RankParts,
    pub(super) complaint: Option<Error>,
    error: Option<Error>,
}

impl Proposals {
    pub(super) fn of_rank(rank: usize, proposal: Result<Proposal<Vec<u8>>>) -> Self {
        match proposal {
            Ok(proposal) => Self {
                parts: match proposal.has_own() {
                    true => vec![RankPart {
                        rank,
                        boxes: proposal.own_boxes,
                        own: proposal.own,
                    }],
                    false => Vec::new(),
                },
                first: Some((rank, proposal.ask)),
                complaint: proposal.complaint.map(|error| error.by(Who::Rank(rank))),
                ..Self::default()
            },
            Err(error) => Self {
                error: Some(error.by(Who::Rank(rank))),
                ..Self::default()
            },
        }
    }

    pub(super) fn merge(mut self, other: Self) -> Self {
        self.error = lowest(self.error, other.error);
        self.complaint = lowest(self.complaint, other.complaint);
        let voices = [self.first, self.other, other.first, other.other];
        let mut voices: Vec<Voice> = voices.into_iter().flatten().collect();
        voices.sort();
        let mut voices = voices.into_iter();
        self.first = voices.next();
        self.other = match &self.first {
            Some((_, ask)) => voices.find(|(_, other)| other != ask),
            None => None,
        };
        self.parts.extend(other.parts);
        self
    }

    /// Sorts the parts by rank, if all of the `clients` ranks asked for the same. `difference` says
    /// in what two asks differ.
    ///
    /// # Errors
    /// The error of a rank; [`Kind::Mismatch`] when ranks ask for different things;
    /// [`Kind::Schema`] when parts are of no rank, or of one rank twice.
    pub(super) fn agreed(
        mut self,
        clients: usize,
        difference: impl Fn(&Voice, &Voice) -> String,
    ) -> Result<Self> {
        let agreeing = "agreeing on a collective call";
        if let Some(error) = self.error {
            return Err(error);
        }
        if let (Some(one), Some(other)) = (&self.first, &self.other) {
            let cause = difference(one, other);
            return Err(Error::new(Kind::Mismatch, agreeing, cause));
        }
        self.parts.sort_by_key(|part| part.rank);
        let ranks = self.parts.iter().map(|part| part.rank);
        let is_by_rank = ranks.clone().is_sorted_by(|one, next| one < next);
        if !is_by_rank || ranks.clone().any(|rank| rank >= clients) {
            let cause = format!(
                "parts of the ranks {:?} of {clients}",
                ranks.collect::<Vec<_>>()
            );
            return Err(Error::new(Kind::Schema, agreeing, cause));
        }
        Ok(self)
    }
}

/// Says in what two encoded asks differ.
pub fn difference<A: Ask>((rank, one): &Voice, (other_rank, other): &Voice) -> String {
    match (decode::<A>(one), decode::<A>(other)) {
        (Ok(one), Ok(other)) => one.difference(*rank, &other, *other_rank),
        _ => format!("ranks {rank} and {other_rank} ask for what is not understood"),
    }
}
