//! An array's schema: its name, shape and element type, and its storage on disk.
//!
//! The schema is *identity* in the sense of the house style: it is stored with the data set and
//! fixed for its life. The size of the blocks in which it is moved is tuning, and comes in only
//! with [`ArraySchema::disk_schema`].

use std::fmt;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::{DiskSchema, Dist, Distribution, Dists, Edges, LayoutError, Order, Split};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::codec::Codec;
use crate::dtype::ElementType;
use crate::fill::Fill;
use crate::formats::hdf5::filters;

/// The most part files of an array: more are a mistake, or damage.
const PARTS_MAX: u64 = 1 << 20;
/// The most chunks that are listed for a dimension: more are a mistake, or damage.
pub(crate) const CHUNKS_LISTED_MAX: u64 = 1 << 20;
/// The most chunks of a dimension that a message lists.
const LISTED_SHOWN_MAX: usize = 16;

/// The schema of an array: its identity in memory and on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Encoded", into = "Encoded")]
pub struct ArraySchema {
    /// The array's name in a Zarr group, and the stem of part files.
    pub name: String,
    /// The extents.
    pub shape: Vec<u64>,
    /// The element type.
    pub element: ElementType,
    /// The storage on disk.
    pub disk: Storage,
    /// The names of the dimensions.
    pub dimension_names: Option<Vec<String>>,
    /// The attributes.
    pub attributes: Map<String, Value>,
    /// The value of elements that were never written.
    pub fill: Fill,
}

/// An [`ArraySchema`] in its stored form.
#[derive(Serialize, Deserialize)]
#[serde(rename = "ArraySchema", deny_unknown_fields)]
struct Encoded {
    name: String,
    shape: Vec<u64>,
    element: ElementType,
    disk: Storage,
    dimension_names: Option<Vec<String>>,
    attributes: Map<String, Value>,
    /// The fill value as Zarr's metadata have it; `None` for zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fill_value: Option<Value>,
}

impl From<ArraySchema> for Encoded {
    fn from(schema: ArraySchema) -> Self {
        let ArraySchema { element, fill, .. } = &schema;
        Self {
            fill_value: (!fill.is_zero()).then(|| fill.zarr(element)),
            name: schema.name,
            shape: schema.shape,
            element: schema.element,
            disk: schema.disk,
            dimension_names: schema.dimension_names,
            attributes: schema.attributes,
        }
    }
}

impl TryFrom<Encoded> for ArraySchema {
    type Error = Error;

    fn try_from(stored: Encoded) -> Result<Self> {
        let fill = stored.fill_value.map_or(Ok(Fill::default()), |value| {
            Fill::of_zarr(&stored.element, &value)
        })?;
        Ok(Self {
            name: stored.name,
            shape: stored.shape,
            element: stored.element,
            disk: stored.disk,
            dimension_names: stored.dimension_names,
            attributes: stored.attributes,
            fill,
        })
    }
}

/// The storage of an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// Natural chunking: each rank's share is a chunk of a Zarr array.
    /// [`ArrayCall::stored_schema`](crate::calls::array::ArrayCall::stored_schema) makes explicit
    /// chunks of it before anything is stored.
    Natural,
    /// A Zarr array in a Zarr group.
    Chunks {
        /// The extents of chunks along each dimension. A server writes a chunk as one file.
        chunk: Vec<Edges>,
        /// The extents of a chunk's sub-chunks, each encoded by itself; they divide every chunk.
        subchunks: Option<Vec<u64>>,
        /// The codec of the bytes: see [`crate::codec`].
        codec: String,
    },
    /// One file, row-major.
    RowMajor {
        /// The form of the file.
        format: Format,
    },
    /// A dataset of an HDF5 or NetCDF-4 file.
    Hdf5 {
        /// The path of the dataset in its file; empty for the array's name in the root.
        dataset: String,
        /// The extents of a chunk; `None` for one run of elements.
        chunk: Option<Vec<u64>>,
        /// The filters of chunks, in words such as `shuffle+deflate:4`; `none` for none.
        filters: String,
        /// Whether the file is of NetCDF-4.
        is_netcdf: bool,
    },
    /// One file for each part of a BLOCK and `*` distribution over a mesh of parts.
    Parts(#[serde(with = "dists_text")] Dists, Vec<u64>),
    /// Each rank's share is a chunk of a Zarr array, whatever its extents.
    /// [`ArrayCall::stored_schema`](crate::calls::array::ArrayCall::stored_schema) makes explicit
    /// chunks of it before anything is stored.
    Shares {
        /// The extents of a chunk's sub-chunks, each encoded by itself; they divide every share.
        subchunks: Option<Vec<u64>>,
        /// The codec of the bytes: see [`crate::codec`].
        codec: String,
    },
}

impl Storage {
    /// Chunks of one extent in each dimension, without sub-chunks or codec.
    pub fn plain_chunks(chunk: Vec<u64>) -> Self {
        Self::Chunks {
            chunk: Edges::regular(&chunk),
            subchunks: None,
            codec: "none".to_string(),
        }
    }

    /// The number of rows of the first dimension in a chunk; `None` for other storage, and if
    /// chunks have different numbers of rows.
    pub fn chunk_rows(&self) -> Option<u64> {
        match self {
            Self::Chunks { chunk, .. } => chunk.first()?.extent(),
            _ => None,
        }
    }

    /// Whether the array is a Zarr array.
    pub fn is_zarr(&self) -> bool {
        matches!(
            self,
            Self::Natural | Self::Shares { .. } | Self::Chunks { .. }
        )
    }

    /// Whether the ranks' shares decide about the chunks.
    pub fn is_natural(&self) -> bool {
        matches!(self, Self::Natural | Self::Shares { .. })
    }

    /// The storage of a new array of this shape: HDF5 has no chunk that is larger than an array
    /// that does not grow, and none of an array without dimensions.
    #[must_use]
    pub fn of_shape(mut self, shape: &[u64]) -> Self {
        if let Self::Hdf5 { chunk, filters, .. } = &mut self
            && let Some(extents) = chunk
        {
            for (extent, &n) in extents.iter_mut().zip(shape) {
                *extent = n.max(1).min(*extent);
            }
            if extents.is_empty() {
                *chunk = None;
                *filters = "none".to_string();
            }
        }
        self
    }

    /// Whether several ranks can write runs of bytes of one object at once: elements lie as they
    /// are, and no index locates them.
    pub fn writes_parts(&self) -> bool {
        match self {
            Self::Natural | Self::RowMajor { .. } | Self::Parts(..) => true,
            Self::Hdf5 { filters, .. } => filters == "none",
            Self::Chunks {
                subchunks, codec, ..
            }
            | Self::Shares { subchunks, codec } => {
                let is_plain = codec.parse().is_ok_and(|codec: Codec| codec.is_none());
                subchunks.is_none() && is_plain
            }
        }
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Natural => write!(f, "natural chunking"),
            Self::Shares {
                subchunks: None,
                codec,
            } => write!(f, "shares as chunks, {codec}"),
            Self::Shares {
                subchunks: Some(inner),
                codec,
            } => write!(f, "shares as shards of sub-chunks {inner:?}, {codec}"),
            Self::Chunks {
                chunk,
                subchunks: None,
                codec,
            } => write!(f, "chunks {}, {codec}", grid_text(chunk)),
            Self::Chunks {
                chunk,
                subchunks: Some(inner),
                codec,
            } => {
                let chunk = grid_text(chunk);
                write!(f, "shards {chunk} of sub-chunks {inner:?}, {codec}")
            }
            Self::RowMajor {
                format: Format::Raw,
            } => write!(f, "row-major, raw"),
            Self::RowMajor {
                format: Format::Npy,
            } => write!(f, "row-major, npy"),
            Self::Parts(dists, mesh) => write!(f, "parts {dists} over {mesh:?}"),
            Self::Hdf5 {
                dataset,
                chunk,
                filters,
                is_netcdf,
            } => {
                write!(f, "{}", if *is_netcdf { "NetCDF-4" } else { "HDF5" })?;
                if !dataset.is_empty() {
                    write!(f, " {dataset}")?;
                }
                match chunk {
                    None => Ok(()),
                    Some(chunk) => write!(f, ", chunks {chunk:?}, {filters}"),
                }
            }
        }
    }
}

/// The form of a row-major file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Elements and nothing else; a sidecar describes them.
    Raw,
    /// NumPy's `.npy` form.
    Npy,
}

impl ArraySchema {
    /// An array without dimension names and attributes.
    pub fn new(name: &str, shape: &[u64], element: ElementType, disk: Storage) -> Self {
        Self {
            name: name.to_string(),
            shape: shape.to_vec(),
            element,
            disk,
            dimension_names: None,
            attributes: Map::new(),
            fill: Fill::default(),
        }
    }

    /// The bytes of all elements.
    pub fn bytes(&self) -> u64 {
        let elements = self.shape.iter().copied().fold(1, u64::saturating_mul);
        elements.saturating_mul(self.element.width())
    }

    /// The names of the dimensions, made up if none are given: xarray wants a name for each
    /// dimension, and one name to have one extent.
    pub fn names_of_dimensions(&self) -> Vec<String> {
        let own = |d| format!("{}_{d}", self.name);
        let named = || (0..self.shape.len()).map(own).collect();
        self.dimension_names.clone().unwrap_or_else(named)
    }

    /// The disk schema: the array cut into objects, and these into blocks of at most
    /// `block_bytes_max` bytes where the store leaves a choice. See the table in
    /// [`penstock_layout::disk`].
    ///
    /// # Errors
    /// [`Kind::Schema`] when the schema does not fit together, and for natural chunking, which
    /// depends on the memory schema; [`Kind::Unsupported`] for parts that are CYCLIC, for
    /// attributes of a `.npy` file, and for records in a file of HDF5.
    pub fn disk_schema(&self, block_bytes_max: u64) -> Result<DiskSchema> {
        self.check_names()?;
        let width = self.element.width();
        let contiguous = Split::Contiguous(block_bytes_max);
        if matches!(self.disk, Storage::Hdf5 { .. }) && self.element.record().is_some() {
            let cause = "records are not written to files of HDF5 and NetCDF: Zarr, .npy and raw \
                files hold them";
            return Err(self.error(Kind::Unsupported, cause));
        }
        match &self.disk {
            Storage::Natural | Storage::Shares { .. } => {
                let cause = "natural chunking depends on the memory schema";
                Err(self.error(Kind::Schema, cause))
            }
            Storage::Chunks {
                chunk,
                subchunks,
                codec,
            } => {
                let codec: Codec = codec.parse()?;
                self.check_lists(chunk)?;
                let chunked = DiskSchema::rectilinear(&self.shape, width, chunk);
                let chunked = chunked.map_err(|e| self.refused(e))?;
                self.check_codec(&codec, chunked.chunk(), subchunks.as_deref())?;
                let split = match subchunks {
                    Some(inner) => Split::Inner(inner.clone()),
                    None if codec.is_none() => contiguous,
                    None => Split::Whole,
                };
                chunked.split(split).map_err(|e| self.refused(e))
            }
            Storage::Hdf5 {
                chunk: Some(chunk),
                filters,
                ..
            } => {
                let filters = filters::parse(filters, &self.element)?;
                let chunked = DiskSchema::chunked(&self.shape, width, chunk);
                let split = match filters.is_empty() {
                    true => contiguous,
                    false => Split::Whole,
                };
                let chunked = chunked.and_then(|chunked| chunked.split(split));
                chunked.map_err(|e| self.refused(e))
            }
            Storage::Hdf5 {
                chunk: None,
                filters,
                ..
            } if filters != "none" => {
                let cause = "filters work on chunks: give their extents";
                Err(self.error(Kind::Schema, cause))
            }
            Storage::RowMajor { .. } | Storage::Hdf5 { chunk: None, .. } => {
                let flat = DiskSchema::flat(&self.shape, width, Order::RowMajor, block_bytes_max);
                flat.map_err(|e| self.refused(e))
            }
            Storage::Parts(dists, mesh) => {
                self.check_parts(dists, mesh)?;
                let chunk = part_extents(&self.shape, dists, mesh);
                let parts = DiskSchema::chunked(&self.shape, width, &chunk);
                let parts = parts.and_then(|parts| parts.unpadded().split(contiguous));
                parts.map_err(|e| self.refused(e))
            }
        }
    }

    fn check_names(&self) -> Result<()> {
        let name = self.name.as_str();
        let dots = name.chars().all(|c| c == '.');
        if dots || name.starts_with("__") || name.contains(['/', '\0']) || name == "zarr.json" {
            let cause = "an array's name is a file's name: it must not be empty or of dots alone, \
                start with \"__\" or contain \"/\"";
            return Err(self.error(Kind::Schema, cause));
        }
        if let Some(names) = &self.dimension_names
            && names.len() != self.shape.len()
        {
            let (named, dims) = (names.len(), self.shape.len());
            let cause = format!("{named} dimension names for an array of {dims} dimensions");
            return Err(self.error(Kind::Schema, cause));
        }
        let npy = self.disk
            == Storage::RowMajor {
                format: Format::Npy,
            };
        if npy && !self.attributes.is_empty() {
            let cause =
                "a .npy file has no place for attributes: use format \"raw\" or Zarr chunks";
            return Err(self.error(Kind::Unsupported, cause));
        }
        Ok(())
    }

    fn check_lists(&self, chunk: &[Edges]) -> Result<()> {
        let is_too_long = |edges: &Edges| match edges {
            Edges::Regular(_) => false,
            Edges::Listed(extents) => extents.len() as u64 > CHUNKS_LISTED_MAX,
        };
        if !chunk.iter().any(is_too_long) {
            return Ok(());
        }
        let cause = format!("more than {CHUNKS_LISTED_MAX} chunks are listed for a dimension");
        Err(self.error(Kind::Schema, cause))
    }

    /// Checks that the largest chunk can be counted, and that what is encoded at once, this chunk
    /// or a sub-chunk, is not larger than the codec takes.
    fn check_codec(&self, codec: &Codec, chunk: &[u64], subchunks: Option<&[u64]>) -> Result<()> {
        let encoded = subchunks.unwrap_or(chunk);
        let bytes = |extents: &[u64]| {
            extents
                .iter()
                .try_fold(self.element.width(), |bytes, &n| bytes.checked_mul(n))
        };
        let most = i64::MAX as u64;
        for (what, extents, bytes_max) in [
            ("a chunk", chunk, most),
            ("what is encoded", encoded, codec.bytes_max()),
        ] {
            if bytes(extents).is_none_or(|bytes| bytes > bytes_max) {
                let cause = format!("{what} of {extents:?} has more than {bytes_max} bytes");
                return Err(self.error(Kind::Schema, cause));
            }
        }
        Ok(())
    }

    fn check_parts(&self, dists: &Dists, mesh: &[u64]) -> Result<()> {
        if let Some(cyclic) = dists.0.iter().find(|dist| matches!(dist, Dist::Cyclic(_))) {
            let cause = format!("on disk a distribution is of BLOCK and *, not {cyclic}");
            return Err(self.error(Kind::Unsupported, cause));
        }
        Distribution::new(&self.shape, dists, mesh).map_err(|e| self.refused(e))?;
        let parts = mesh
            .iter()
            .try_fold(1, |parts: u64, &p| parts.checked_mul(p));
        if parts.is_none_or(|parts| parts > PARTS_MAX) {
            let cause = format!("the mesh {mesh:?} has more than {PARTS_MAX} part files");
            return Err(self.error(Kind::Schema, cause));
        }
        Ok(())
    }

    fn refused(&self, cause: LayoutError) -> Error {
        self.error(Kind::Schema, cause)
    }

    fn error(&self, kind: Kind, cause: impl std::fmt::Display) -> Error {
        Error::new(kind, format!("laying out the array {:?}", self.name), cause)
    }
}

/// The extents of chunks in words: of a long list no more than the beginning and the end.
fn grid_text(grid: &[Edges]) -> String {
    let words = grid.iter().map(|edges| match edges {
        Edges::Listed(extents) if extents.len() > LISTED_SHOWN_MAX => {
            let begin = &extents[..LISTED_SHOWN_MAX / 2];
            let words: Vec<String> = begin.iter().map(u64::to_string).collect();
            let last = extents[extents.len() - 1];
            let count = extents.len();
            format!("[{}, ... {last} ({count} chunks)]", words.join(", "))
        }
        edges => format!("{edges:?}"),
    });
    format!("[{}]", words.collect::<Vec<_>>().join(", "))
}

/// The mesh with an extent of 1 for each dimension that is not distributed.
pub(crate) fn part_mesh(dists: &Dists, mesh: &[u64]) -> Vec<u64> {
    let mut extents = mesh.iter().copied();
    let each = |dist: &Dist| {
        if *dist == Dist::Whole {
            1
        } else {
            extents.next().unwrap_or(1)
        }
    };
    dists.0.iter().map(each).collect()
}

/// The lengths of all parts, empty parts included.
pub(crate) fn part_bytes(schema: &ArraySchema, mesh: &[u64]) -> Result<Vec<u64>> {
    let disk = schema.disk_schema(1)?;
    let parts: u64 = mesh.iter().product();
    let length = |number: u64| {
        let mut rest = number;
        let mut bytes = schema.element.width();
        for d in (0..mesh.len()).rev() {
            let start = (rest % mesh[d]).saturating_mul(disk.chunk()[d]);
            rest /= mesh[d];
            bytes *= schema.shape[d].saturating_sub(start).min(disk.chunk()[d]);
        }
        bytes
    };
    Ok((0..parts).map(length).collect())
}

/// The extents of the largest part, at least 1. A CYCLIC dimension is cut as BLOCK would be.
pub(crate) fn part_extents(shape: &[u64], dists: &Dists, mesh: &[u64]) -> Vec<u64> {
    let extents = shape.iter().zip(part_mesh(dists, mesh));
    extents.map(|(n, p)| n.div_ceil(p).max(1)).collect()
}

/// Stores distributions as `BLOCK,*` rather than as a list of variants, since people read them.
mod dists_text {
    use penstock_layout::Dists;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(dists: &Dists, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(dists)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Dists, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Turns a mistake in a schema into an error.
pub fn of_layout(error: LayoutError) -> Error {
    let kind = match error {
        LayoutError::Overlap { .. } => Kind::Overlap,
        _ => Kind::Schema,
    };
    Error::new(kind, "laying out an array", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(chunk: &[u64], subchunks: Option<&[u64]>, codec: &str) -> Storage {
        let subchunks = subchunks.map(<[u64]>::to_vec);
        Storage::Chunks {
            chunk: Edges::regular(chunk),
            subchunks,
            codec: codec.to_string(),
        }
    }

    fn rectilinear(subchunks: Option<&[u64]>) -> Storage {
        Storage::Chunks {
            chunk: vec![Edges::Listed(vec![2, 4, 4]), Edges::Regular(7)],
            subchunks: subchunks.map(<[u64]>::to_vec),
            codec: "zstd".to_string(),
        }
    }

    fn parts(dists: &str, mesh: &[u64]) -> Storage {
        Storage::Parts(dists.parse().unwrap(), mesh.to_vec())
    }

    #[test]
    fn each_form_is_split_as_the_table_says() {
        for (disk, chunk, split) in [
            (chunks(&[4, 4], None, "none"), [4, 4], Split::Contiguous(64)),
            (chunks(&[4, 4], None, "crc32c"), [4, 4], Split::Whole),
            (
                chunks(&[4, 4], Some(&[2, 4]), "none"),
                [4, 4],
                Split::Inner(vec![2, 4]),
            ),
            (
                Storage::RowMajor {
                    format: Format::Raw,
                },
                [10, 7],
                Split::Contiguous(64),
            ),
            (parts("BLOCK,*", &[3]), [4, 7], Split::Contiguous(64)),
            (parts("BLOCK,BLOCK", &[3, 2]), [4, 4], Split::Contiguous(64)),
        ] {
            let schema = ArraySchema::new("u", &[10, 7], ElementType::F8, disk);
            let blocks = schema.disk_schema(64).unwrap();
            assert_eq!((blocks.chunk(), blocks.split_of()), (&chunk[..], &split));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (disk, kind, word) in [
            (chunks(&[4], None, "none"), Kind::Schema, "chunk"),
            (chunks(&[4, 0], None, "none"), Kind::Schema, "0"),
            (
                chunks(&[4, 4], Some(&[3, 4]), "none"),
                Kind::Schema,
                "[3, 4]",
            ),
            (chunks(&[4, 4], None, "lzma"), Kind::Schema, "zstd:LEVEL"),
            (
                rectilinear(Some(&[4, 7])),
                Kind::Schema,
                "the chunk [[2, 4, 4], 7]",
            ),
            (
                Storage::Chunks {
                    chunk: vec![Edges::Listed(vec![2, 4]), Edges::Regular(7)],
                    subchunks: None,
                    codec: "none".to_string(),
                },
                Kind::Schema,
                "of 6 elements together, and the array has 10",
            ),
            (
                Storage::Shares {
                    subchunks: None,
                    codec: "none".to_string(),
                },
                Kind::Schema,
                "memory schema",
            ),
            (
                chunks(&[1 << 31, 1], None, "blosc"),
                Kind::Schema,
                "more than",
            ),
            (
                parts("BLOCK,CYCLIC(2)", &[2, 2]),
                Kind::Unsupported,
                "CYCLIC(2)",
            ),
            (parts("BLOCK,*", &[2, 2]), Kind::Schema, "mesh"),
        ] {
            let schema = ArraySchema::new("u", &[10, 7], ElementType::F8, disk);
            let error = schema.disk_schema(64).unwrap_err();
            assert!(error.kind == kind && error.cause.contains(word), "{error}");
        }
        for name in ["", "..", "a/b", "__a"] {
            let disk = Storage::RowMajor {
                format: Format::Raw,
            };
            let schema = ArraySchema::new(name, &[1], ElementType::F8, disk);
            assert_eq!(
                schema.disk_schema(64).unwrap_err().kind,
                Kind::Schema,
                "{name:?}"
            );
        }
    }

    #[test]
    fn long_lists_of_chunks_are_not_written_out() {
        let text = |chunks: usize| {
            let extents = (0..chunks as u64).map(|i| i + 1).collect();
            let chunk = vec![Edges::Listed(extents), Edges::Regular(7)];
            let disk = Storage::Chunks {
                chunk,
                subchunks: None,
                codec: "none".to_string(),
            };
            disk.to_string()
        };
        assert_eq!(text(3), "chunks [[1, 2, 3], 7], none");
        assert_eq!(
            text(100),
            "chunks [[1, 2, 3, 4, 5, 6, 7, 8, ... 100 (100 chunks)], 7], none"
        );
    }

    #[test]
    fn a_schema_survives_json() {
        for disk in [
            chunks(&[4, 4], Some(&[2, 4]), "zstd"),
            rectilinear(Some(&[2, 7])),
            Storage::Shares {
                subchunks: None,
                codec: "none".to_string(),
            },
            parts("BLOCK,*", &[3]),
            Storage::RowMajor {
                format: Format::Npy,
            },
        ] {
            let mut schema = ArraySchema::new("u", &[10, 7], ElementType::C16, disk);
            schema
                .attributes
                .insert("units".into(), serde_json::json!(["K", 1.5]));
            schema.dimension_names = Some(vec!["x".into(), "y".into()]);
            schema.fill =
                Fill::of_zarr(&ElementType::C16, &serde_json::json!([0.0, "NaN"])).unwrap();
            let text = serde_json::to_string(&schema).unwrap();
            assert_eq!(
                serde_json::from_str::<ArraySchema>(&text).unwrap(),
                schema,
                "{text}"
            );
        }
    }
}
