//! What servers have moved, and how their parts of a call ended.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, Who};

/// The checksum of an object that was written: of its bytes decoded, padding included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// Which array of the call.
    pub array: usize,
    /// The object's number.
    pub object: u64,
    /// CRC-32C (Castagnoli).
    pub crc32c: u32,
}

/// What a call has done, as its director hears of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// What all servers together have moved.
    pub moved: Traffic,
    /// The checksums of what was written, where the disks were to make them; by array and object.
    pub sums: Vec<Sum>,
}

/// What one or several servers have moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Blocks read or written.
    pub blocks: u64,
    /// Their bytes on the way between buffers and disks, decoded, padding included.
    pub disk_bytes: u64,
    /// Memgets or memputs.
    pub transfers: u64,
    /// Bytes of staging buffers.
    pub buffer_bytes: u64,
}

impl Traffic {
    /// The sum of two.
    #[must_use]
    pub fn and(&self, other: &Traffic) -> Traffic {
        Traffic {
            blocks: self.blocks + other.blocks,
            disk_bytes: self.disk_bytes + other.disk_bytes,
            transfers: self.transfers + other.transfers,
            buffer_bytes: self.buffer_bytes + other.buffer_bytes,
        }
    }

    /// Adds what another has moved.
    pub fn add(&mut self, other: &Traffic) {
        *self = self.and(other);
    }
}

/// How some nodes' parts ended, merged on their way up.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// What they have moved.
    pub moved: Traffic,
    /// The checksums of what they have written.
    pub sums: Vec<Sum>,
    /// The error of the lowest rank or server, if any.
    pub error: Option<Error>,
}

impl Outcome {
    /// Both together.
    pub fn merge(mut self, other: Self) -> Self {
        self.moved.add(&other.moved);
        self.sums.extend(other.sums);
        self.error = lowest(self.error, other.error);
        self
    }

    /// How one part ended.
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

/// Of two errors the one met by the lowest rank or server, so that all runs report the same.
pub(crate) fn lowest(first: Option<Error>, second: Option<Error>) -> Option<Error> {
    let key = |error: &Error| match error.who {
        Some(Who::Rank(rank)) => (0, rank),
        Some(Who::Server(server)) => (1, server),
        None => (2, 0),
    };
    [first, second].into_iter().flatten().min_by_key(key)
}
