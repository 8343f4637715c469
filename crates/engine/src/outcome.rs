//! The traffic of servers, and the outcome of their parts of a call.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, Who};

/// A sum is the checksum of an object that was written: of its decoded bytes, padding included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// The array's number in the call.
    pub array: usize,
    /// The object's number.
    pub object: u64,
    /// CRC-32C (Castagnoli).
    pub crc32c: u32,
}

/// A tally is the result of a call, as its director hears of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// The traffic of all servers together.
    pub moved: Traffic,
    /// The checksums by array and object, if the disks were to make them.
    pub sums: Vec<Sum>,
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
    /// The checksums of the objects that these nodes have written.
    pub sums: Vec<Sum>,
    /// The changes of forks of repositories ([`crate::BlockFile::changes`]).
    pub changes: Vec<Vec<u8>>,
    /// The error of the lowest rank or server, if any.
    pub error: Option<Error>,
}

impl Outcome {
    /// Merges two outcomes.
    pub fn merge(mut self, other: Self) -> Self {
        self.moved.add(&other.moved);
        self.sums.extend(other.sums);
        self.changes.extend(other.changes);
        self.error = lowest(self.error, other.error);
        self
    }

    /// The result of a call of which this is the outcome of all parts.
    ///
    /// # Errors
    /// The outcome's error.
    pub(crate) fn tally(mut self) -> Result<Tally> {
        self.sums.sort_by_key(|sum| (sum.array, sum.object));
        let Self {
            moved,
            sums,
            changes,
            error,
        } = self;
        let tally = Tally {
            moved,
            sums,
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
