//! The agreement of the ranks on one request.

use std::fmt;

use penstock_layout::Region;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result, Who};
use crate::outcome::lowest;

/// A rank's ask describes its request in terms that people understand. Ranks with equal requests
/// give equal asks; if asks differ, an error says in which terms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ask {
    /// The kind of request, such as "a write".
    what: String,
    /// Names and values of the terms.
    terms: Vec<(String, String)>,
}

impl Ask {
    /// Makes an ask without terms.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            terms: Vec::new(),
        }
    }

    /// Adds one term.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        self.terms.push((name.into(), value.to_string()));
        self
    }

    /// Adds all terms of another ask.
    #[must_use]
    pub fn with_all(mut self, other: Self) -> Self {
        self.terms.extend(other.terms);
        self
    }

    /// Says in what the asks of two ranks differ.
    fn differs_from(&self, rank: usize, other: &Self, other_rank: usize) -> String {
        if self.what != other.what {
            let (what, other) = (&self.what, &other.what);
            return format!("rank {rank} asks for {what}, rank {other_rank} for {other}");
        }
        let both = self.terms.iter().zip(&other.terms);
        let differing = both
            .filter(|(one, other)| one != other)
            .map(|(one, other)| match one.0 == other.0 {
                true => format!(
                    "the {}: {} on rank {rank}, {} on rank {other_rank}",
                    one.0, one.1, other.1
                ),
                false => format!("{} on rank {rank}, {} on rank {other_rank}", one.0, other.0),
            });
        let mut in_what: Vec<String> = differing.take(TERMS_SHOWN).collect();
        if self.terms.len() != other.terms.len() {
            in_what.push("the number of terms".to_string());
        }
        format!("ranks differ, for {}, in {}", self.what, in_what.join("; "))
    }
}

/// The most differing terms that an error shows.
const TERMS_SHOWN: usize = 3;

/// A proposal says what one rank asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proposal {
    /// The whole request, boxes aside.
    pub ask: Ask,
    /// The rank's boxes of each array for which each rank names its own.
    pub own_boxes: Vec<Option<Vec<Region>>>,
    /// A complaint for all ranks to hear; it does not keep the session from being closed.
    pub complaint: Option<Error>,
}

/// Boxes of ranks, one list for each array, by rank. Ranks that name no boxes are left out.
pub type RankBoxes = Vec<(usize, Vec<Option<Vec<Region>>>)>;

/// Proposals of several ranks, merged on their way up.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Proposals {
    first: Option<(usize, Ask)>,
    other: Option<(usize, Ask)>,
    pub(super) boxes: RankBoxes,
    pub(super) complaint: Option<Error>,
    error: Option<Error>,
}

impl Proposals {
    pub(super) fn of_rank(rank: usize, proposal: Result<Proposal>) -> Self {
        match proposal {
            Ok(proposal) => Self {
                first: Some((rank, proposal.ask)),
                boxes: match proposal.own_boxes.iter().any(Option::is_some) {
                    true => vec![(rank, proposal.own_boxes)],
                    false => Vec::new(),
                },
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
        let mut voices: Vec<(usize, Ask)> = Vec::new();
        voices.extend(
            [self.first, self.other, other.first, other.other]
                .into_iter()
                .flatten(),
        );
        voices.sort();
        self.first = voices.first().cloned();
        self.other = match &self.first {
            Some((_, ask)) => voices.iter().find(|(_, other)| other != ask).cloned(),
            None => None,
        };
        self.boxes.extend(other.boxes);
        self
    }

    /// Sorts the boxes by rank, if all ranks asked for the same.
    pub(super) fn agreed(mut self) -> Result<Self> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if let (Some((rank, ask)), Some((other_rank, other))) = (&self.first, &self.other) {
            let cause = ask.differs_from(*rank, other, *other_rank);
            return Err(Error::new(
                Kind::Mismatch,
                "agreeing on a collective call",
                cause,
            ));
        }
        self.boxes.sort_by_key(|(rank, _)| *rank);
        Ok(self)
    }
}
