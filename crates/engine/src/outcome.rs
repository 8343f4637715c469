//! The traffic of servers, and the outcome of their parts of a call.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, Who};

/// A digest is what a disk knows of an object that was written, if it was to look at it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Digest {
    /// The object's number.
    pub object: u64,
    /// The CRC-32C (Castagnoli) of its decoded bytes, padding included.
    pub crc32c: u32,
    /// The bounds of its elements, if the disk was to find them.
    pub bounds: Option<Bounds>,
}

/// The bounds of elements: each of them is a number from `low` to `high`, or no number. No element
/// is between bounds whose `low` is greater.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// No element is less.
    pub low: f64,
    /// No element is greater.
    pub high: f64,
    /// Whether some elements are no numbers.
    pub has_nan: bool,
}

impl Bounds {
    /// The bounds of no elements.
    pub const NONE: Self = Self {
        low: f64::INFINITY,
        high: f64::NEG_INFINITY,
        has_nan: false,
    };

    /// The bounds of one number, or of what is none.
    #[must_use]
    pub fn of_one(number: f64) -> Self {
        match number.is_nan() {
            true => Self {
                has_nan: true,
                ..Self::NONE
            },
            false => Self {
                low: number,
                high: number,
                has_nan: false,
            },
        }
    }

    /// The bounds of the elements of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            has_nan: self.has_nan || other.has_nan,
        }
    }
}

/// A tally is the result of a call, as its director hears of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// The traffic of all servers together.
    pub moved: Traffic,
    /// The digests with the numbers of their arrays in the call, by array and object, if the disks
    /// were to make them.
    pub digests: Vec<(usize, Digest)>,
    /// The changes of forks of repositories ([`crate::BlockFile::changes`]).
    pub changes: Vec<Vec<u8>>,
}

/// The traffic of one or several servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Blocks read or written.
    pub blocks: u64,
    /// The bytes of these blocks between buffers and disks, decoded, padding included.
    pub disk_bytes: u64,
    /// Memgets, memputs or deliveries.
    pub transfers: u64,
    /// Bytes of staging buffers.
    pub buffer_bytes: u64,
    /// The bytes that sieves have let through, to all clients; 0 in calls that are not sifted.
    pub delivered_bytes: u64,
}

impl Traffic {
    /// Returns the sum of two traffics.
    #[must_use]
    pub fn and(&self, other: &Traffic) -> Traffic {
        Traffic {
            blocks: self.blocks.saturating_add(other.blocks),
            disk_bytes: self.disk_bytes.saturating_add(other.disk_bytes),
            transfers: self.transfers.saturating_add(other.transfers),
            buffer_bytes: self.buffer_bytes.saturating_add(other.buffer_bytes),
            delivered_bytes: self.delivered_bytes.saturating_add(other.delivered_bytes),
        }
    }

    /// Adds the traffic of another server.
    pub fn add(&mut self, other: &Traffic) {
        *self = self.and(other);
    }
}

/// An outcome says how the parts of some nodes ended, merged on their way up.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The traffic of these nodes.
    pub moved: Traffic,
    /// The digests of the objects that these nodes have written, with the numbers of their arrays.
    pub digests: Vec<(usize, Digest)>,
    /// The changes of forks of repositories ([`crate::BlockFile::changes`]).
    pub changes: Vec<Vec<u8>>,
    /// The error of the lowest rank or server, if any.
    pub error: Option<Error>,
}

impl Outcome {
    /// Merges two outcomes.
    pub fn merge(mut self, other: Self) -> Self {
        self.moved.add(&other.moved);
        self.digests.extend(other.digests);
        self.changes.extend(other.changes);
        self.error = lowest(self.error, other.error);
        self
    }

    /// The result of a call of which this is the outcome of all parts.
    ///
    /// # Errors
    /// The outcome's error.
    pub(crate) fn tally(mut self) -> Result<Tally> {
        self.digests
            .sort_by_key(|(array, digest)| (*array, digest.object));
        let Self {
            moved,
            digests,
            changes,
            error,
        } = self;
        let tally = Tally {
            moved,
            digests,
            changes,
        };
        error.map_or(Ok(tally), Err)
    }

    /// Makes the outcome of one part.
    pub fn of(result: Result<Traffic>) -> Self {
        match result {
            Ok(moved) => Self {
                moved,
                ..Self::default()
            },
            Err(error) => Self {
                error: Some(error),
                ..Self::default()
            },
        }
    }
}

/// Chooses the error of the lowest rank or server, so that all runs report one error.
pub(crate) fn lowest(first: Option<Error>, second: Option<Error>) -> Option<Error> {
    let key = |error: &Error| match error.who {
        Some(Who::Rank(rank)) => (0, rank),
        Some(Who::Server(server)) => (1, server),
        None => (2, 0),
    };
    [first, second].into_iter().flatten().min_by_key(key)
}
