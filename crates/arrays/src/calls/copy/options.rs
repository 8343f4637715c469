//! What a user says about a copy.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use penstock_engine::{Ask, Error, Kind, Result};

use crate::{ElementType, Format, Storage};

/// How a source is to be copied. All ranks must give the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Which arrays of the source, by their paths in it; none for all that is there.
    pub arrays: Vec<String>,
    /// The name of the array in the target, where only one is copied.
    pub name: Option<String>,
    /// What a raw file holds that says nothing of itself.
    pub raw: Option<(Vec<u64>, ElementType)>,
    /// How it is to be stored.
    pub form: Form,
    /// Memory of all ranks together, bytes: their slabs and the servers' buffers.
    pub memory_bytes: u64,
    /// Whether attributes may be lost where the target has no place for them.
    pub drops_attributes: bool,
    /// Whether what is at the target is replaced.
    pub overwrites: bool,
}

/// The memory that a copy has if nobody says: it copies little worse than with more.
pub const MEMORY_BYTES: u64 = 256 << 20;

impl Default for Options {
    /// All of it as it is.
    fn default() -> Self {
        Self {
            arrays: Vec::new(),
            name: None,
            raw: None,
            form: Form::default(),
            memory_bytes: MEMORY_BYTES,
            drops_attributes: false,
            overwrites: false,
        }
    }
}

/// How a copy is stored.
#[derive(Debug, Clone, PartialEq)]
pub enum Form {
    /// In Zarr's third format; what is not said is as in the source.
    Zarr {
        /// Extents of chunks.
        chunks: Option<Extents>,
        /// Extents of the sub-chunks of a chunk.
        subchunks: Option<Extents>,
        /// What is done to the bytes: see [`crate::codec`].
        codec: Option<String>,
    },
    /// One array in one file.
    RowMajor(Format),
}

impl Default for Form {
    fn default() -> Self {
        Self::Zarr {
            chunks: None,
            subchunks: None,
            codec: None,
        }
    }
}

/// Extents of chunks, of any array that they fit; `None` is the whole extent of a dimension.
///
/// In text `64,64,-1` or `time=1,lat=512`, where -1 is the whole extent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extents {
    /// One a dimension.
    InOrder(Vec<Option<u64>>),
    /// Of dimensions of these names; in others as they are.
    ByName(Vec<(String, Option<u64>)>),
}

impl FromStr for Extents {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            let cause =
                "write them as 64,64,-1 or as time=1,lat=512, where -1 is the whole dimension";
            Error::new(Kind::Schema, format!("reading the extents {text:?}"), cause)
        };
        let extent = |text: &str| match text.trim() {
            "-1" => Ok(None),
            number => number.parse().map(Some).map_err(|_| refused()),
        };
        let parts = text.split(',');
        if !text.contains('=') {
            return Ok(Self::InOrder(parts.map(extent).collect::<Result<_>>()?));
        }
        let named = parts.map(|part| {
            let (name, number) = part.split_once('=').ok_or_else(refused)?;
            Ok((name.trim().to_string(), extent(number)?))
        });
        Ok(Self::ByName(named.collect::<Result<_>>()?))
    }
}

impl fmt::Display for Extents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |extent: &Option<u64>| extent.map_or("-1".to_string(), |n| n.to_string());
        let parts: Vec<String> = match self {
            Self::InOrder(extents) => extents.iter().map(number).collect(),
            Self::ByName(extents) => {
                let named = extents.iter();
                named
                    .map(|(name, extent)| format!("{name}={}", number(extent)))
                    .collect()
            }
        };
        f.write_str(&parts.join(","))
    }
}

impl Options {
    /// In what ranks must agree.
    pub(super) fn ask(&self, source: &Path, target: &Path) -> Ask {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "as it is".to_string());
        let raw = self.raw.as_ref();
        let ask = Ask::new(format!(
            "a copy of {} to {}",
            source.display(),
            target.display()
        ))
        .with("arrays", self.arrays.join(", "))
        .with("name", or_none(self.name.clone()))
        .with(
            "raw",
            or_none(raw.map(|(shape, element)| format!("{element} of {shape:?}"))),
        )
        .with("memory", self.memory_bytes)
        .with("drop attributes", self.drops_attributes)
        .with("overwrite", self.overwrites);
        match &self.form {
            Form::RowMajor(format) => {
                ask.with("disk schema", Storage::RowMajor { format: *format })
            }
            Form::Zarr {
                chunks,
                subchunks,
                codec,
            } => ask
                .with("chunks", or_none(chunks.as_ref().map(Extents::to_string)))
                .with(
                    "sub-chunks",
                    or_none(subchunks.as_ref().map(Extents::to_string)),
                )
                .with("codec", or_none(codec.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_read_as_they_are_written() {
        for (text, extents) in [
            ("64", Extents::InOrder(vec![Some(64)])),
            ("1,-1,512", Extents::InOrder(vec![Some(1), None, Some(512)])),
            (
                "time=1,lat=-1",
                Extents::ByName(vec![
                    ("time".to_string(), Some(1)),
                    ("lat".to_string(), None),
                ]),
            ),
        ] {
            assert_eq!(text.parse(), Ok(extents.clone()));
            assert_eq!(extents.to_string(), text);
        }
        for text in ["", ",", "1,", "1,x", "-2", "time=", "time=1,2", "time=1.5"] {
            assert!(text.parse::<Extents>().is_err(), "{text}");
        }
    }
}
