//! Measurements of a machine, as they stand in the preset that was made of them.
//!
//! The simulator does not look at them. They say what the numbers were derived from, and what could
//! not be measured.

use serde::{Deserialize, Serialize};

use super::check::{Complaint, ensure};

/// The measurements, with remarks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// What could not be measured, and what was assumed in its place; a sentence each.
    pub remarks: Vec<String>,
    /// The rates of copies of elements of 8 bytes, by stride.
    #[serde(default)]
    pub copies: Vec<CopyRate>,
    /// The rates of reads and writes of files.
    #[serde(default)]
    pub files: Vec<FileRate>,
    /// The times of operations on names.
    #[serde(default)]
    pub metadata: Vec<MetadataTime>,
    /// Other times and rates, each with its unit at the end of its name.
    #[serde(default)]
    pub others: std::collections::BTreeMap<String, Median>,
}

/// The median of measurements, with the 10th and the 90th percentile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Median {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// The rate of a copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyRate {
    /// The distance from one element to the next, in elements of 8 bytes.
    pub stride: u64,
    /// The number of processors that copy at once.
    pub processors: usize,
    /// Bytes a second that one processor moves.
    pub bytes_per_second: Median,
}

/// The way of bytes between a program and the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Bytes go through the page cache.
    Cached,
    /// Bytes go around the page cache (O_DIRECT).
    Direct,
}

/// The order of accesses to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Each access begins where the one before ended.
    Sequential,
    /// Accesses are at places that are drawn.
    Random,
}

/// The rate of reads or writes of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRate {
    /// `read` or `write`.
    pub operation: String,
    pub access: Access,
    pub way: Way,
    /// The bytes of an access.
    pub bytes: u64,
    /// The number of accesses that are under way at once.
    pub depth: u32,
    pub bytes_per_second: Median,
}

/// The time of an operation on names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetadataTime {
    /// `create`, `open`, `rename`, `unlink` or `fsync`.
    pub operation: String,
    pub us: Median,
}

impl Measured {
    pub(super) fn check(&self) -> Complaint {
        for (place, copy) in self.copies.iter().enumerate() {
            let key = format!("measured.copies[{place}].bytes_per_second");
            copy.bytes_per_second.check(&key)?;
        }
        for (place, rate) in self.files.iter().enumerate() {
            let key = format!("measured.files[{place}]");
            ensure(["read", "write"].contains(&&*rate.operation), || {
                format!("{key}.operation is {}: give read or write", rate.operation)
            })?;
            ensure(rate.bytes > 0 && rate.depth > 0, || {
                format!("{key} has 0 bytes or depth 0: give at least 1")
            })?;
            rate.bytes_per_second
                .check(&format!("{key}.bytes_per_second"))?;
        }
        for (place, time) in self.metadata.iter().enumerate() {
            time.us.check(&format!("measured.metadata[{place}].us"))?;
        }
        for (name, median) in &self.others {
            median.check(&format!("measured.others.{name}"))?;
        }
        Ok(())
    }
}

impl Median {
    fn check(&self, key: &str) -> Complaint {
        let Self { median, low, high } = *self;
        let is_ordered = 0.0 < low && low <= median && median <= high && high.is_finite();
        ensure(is_ordered, || {
            format!("{key} is {low} to {high} around {median}: give positive numbers in order")
        })
    }
}
