//! The options of a copy.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use penstock_engine::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::formats::hdf5::name;
use crate::{ElementType, Format};

/// The options of a copy. All ranks must give the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// The paths of the arrays in the source; none for all arrays.
    pub arrays: Vec<String>,
    /// The name of the array in the target, if only one is copied.
    pub name: Option<String>,
    /// The shape and element type of a raw file that has no sidecar.
    pub raw: Option<(Vec<u64>, ElementType)>,
    /// The form of the target.
    pub form: Form,
    /// The memory of all ranks together, in bytes: their slabs and the servers' buffers.
    pub memory_bytes: u64,
    /// Whether the copy may drop attributes for which the target has no place.
    pub drops_attributes: bool,
    /// Whether the copy replaces an existing target.
    pub overwrites: bool,
    /// Whether the copy leaves out what the target has no place for.
    pub skips_unsupported: bool,
}

/// The default memory of a copy: more memory makes a copy little faster.
pub const MEMORY_BYTES: u64 = 256 << 20;

impl Default for Options {
    /// A copy of all arrays as they are.
    fn default() -> Self {
        Self {
            arrays: Vec::new(),
            name: None,
            raw: None,
            form: Form::default(),
            memory_bytes: MEMORY_BYTES,
            drops_attributes: false,
            overwrites: false,
            skips_unsupported: false,
        }
    }
}

/// The form of a copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Form {
    /// Zarr's third format; extents and codec that are `None` are as in the source.
    Zarr {
        /// The extents of chunks.
        chunks: Option<Extents>,
        /// The extents of the sub-chunks of a chunk.
        subchunks: Option<Extents>,
        /// The codec of the bytes: see [`crate::codec`].
        codec: Option<String>,
    },
    /// An HDF5 or NetCDF-4 file; extents and filters that are `None` are as in the source.
    Hdf5 {
        /// The extents of chunks.
        chunks: Option<Extents>,
        /// The filters of chunks, in words such as `shuffle+deflate:4`.
        filters: Option<String>,
        /// Whether the file is of NetCDF-4.
        is_netcdf: bool,
    },
    /// One array in one file.
    RowMajor(Format),
}

impl Form {
    /// Whether `target` names a file of HDF5, or a dataset of one.
    pub fn is_in_hdf5(target: &Path) -> bool {
        name::is_netcdf(target).is_some()
    }

    /// The form of a copy to `target`, which is not to be one row-major file.
    ///
    /// # Errors
    /// [`Kind::Schema`] for what the target does not have: sub-chunks and a codec in a file of
    /// HDF5, filters in Zarr.
    pub fn of(
        target: &Path,
        chunks: Option<Extents>,
        subchunks: Option<Extents>,
        codec: Option<String>,
        filters: Option<String>,
    ) -> Result<Self> {
        let refused = |cause: &str| {
            let error = Error::new(Kind::Schema, "choosing how to store a copy", cause);
            Err(error.at(target))
        };
        let Some(is_netcdf) = name::is_netcdf(target) else {
            return match filters {
                Some(_) => refused("Zarr has no filters: give a codec"),
                None => Ok(Self::Zarr {
                    chunks,
                    subchunks,
                    codec,
                }),
            };
        };
        match (codec, subchunks) {
            (Some(_), _) => refused("HDF5 has no codec: give filters, such as shuffle+deflate"),
            (_, Some(_)) => refused("HDF5 has no sub-chunks: give chunks"),
            (None, None) => Ok(Self::Hdf5 {
                chunks,
                filters,
                is_netcdf,
            }),
        }
    }
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

/// Extents of chunks for any array that they fit; `None` is the whole extent of a dimension.
///
/// In text they are `64,64,-1` or `time=1,lat=512`, where -1 is the whole extent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extents {
    /// One extent for each dimension.
    InOrder(Vec<Option<u64>>),
    /// Extents of named dimensions; other dimensions keep their extents.
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
