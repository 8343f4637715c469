//! The version of the protocol between nodes.
//!
//! Builds of one major and minor version understand each other. Nodes compare versions before they
//! send anything else, and a session of different ones is refused on all ranks.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};

/// The most ranks of one version that an error names.
const RANKS_SHOWN: usize = 8;

/// The major and minor version of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// The major version.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
}

impl Version {
    /// The version of this build.
    pub const THIS: Self = Self {
        major: number(env!("CARGO_PKG_VERSION_MAJOR")),
        minor: number(env!("CARGO_PKG_VERSION_MINOR")),
    };

    /// The version as one word of a hello.
    pub fn word(self) -> u64 {
        u64::from(self.major) << 32 | u64::from(self.minor)
    }

    /// The version that a word of a hello says.
    pub fn of_word(word: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = word.to_be_bytes();
        Self {
            major: u32::from_be_bytes([a, b, c, d]),
            minor: u32::from_be_bytes([e, f, g, h]),
        }
    }

    /// Checks that all ranks are of one version.
    ///
    /// # Errors
    /// [`Kind::Mismatch`], which names the versions and their ranks, the same on all ranks.
    pub fn check_all(by_rank: &[Self]) -> Result<()> {
        let mut ranks: BTreeMap<Self, Vec<usize>> = BTreeMap::new();
        for (rank, version) in by_rank.iter().enumerate() {
            ranks.entry(*version).or_default().push(rank);
        }
        if ranks.len() < 2 {
            return Ok(());
        }
        let of = |(version, ranks): (Self, Vec<usize>)| {
            let shown = ranks.iter().take(RANKS_SHOWN).map(usize::to_string);
            let shown = shown.collect::<Vec<_>>().join(", ");
            match ranks.len() {
                1 => format!("rank {shown} has version {version}"),
                0..=RANKS_SHOWN => format!("ranks {shown} have version {version}"),
                all => format!("{all} ranks, {shown} among them, have version {version}"),
            }
        };
        let all: Vec<String> = ranks.into_iter().map(of).collect();
        let cause = format!("{}: all ranks need one version of Penstock", all.join("; "));
        Err(Error::new(Kind::Mismatch, "opening a session", cause))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The number in decimal digits; a constant, so that a build with another text fails.
const fn number(digits: &str) -> u32 {
    let (digits, mut at, mut number) = (digits.as_bytes(), 0, 0);
    while at < digits.len() {
        number = number * 10 + (digits[at] - b'0') as u32;
        at += 1;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_differ_are_named_with_their_ranks() {
        let other = Version {
            major: 7,
            minor: u32::MAX,
        };
        assert_eq!(Version::of_word(other.word()), other);
        assert_eq!(
            format!("{}.", Version::THIS),
            env!("CARGO_PKG_VERSION")
                .rsplit_once('.')
                .unwrap()
                .0
                .to_string()
                + "."
        );
        assert_eq!(Version::check_all(&[other; 3]), Ok(()));
        let error = Version::check_all(&[Version::THIS, other, Version::THIS]).unwrap_err();
        assert_eq!(error.kind, Kind::Mismatch);
        let both = format!(
            "ranks 0, 2 have version {}; rank 1 has version {other}",
            Version::THIS
        );
        assert!(error.cause.starts_with(&both), "{error}");
    }
}
