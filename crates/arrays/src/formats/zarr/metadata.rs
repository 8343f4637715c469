//! Zarr's metadata: written by Penstock, and understood of other writers.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use penstock_engine::{Error, Kind, Result};
use penstock_layout::{DiskSchema, Edges, Split};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use zarrs::array::codec::{ShardingCodecConfiguration, ShardingCodecConfigurationV1};
use zarrs::array::{
    Array, ArrayCreateError, ArrayMetadata, ChunkKeyEncoding, CodecChain, FillValue,
    data_type as zarrs_types,
};
use zarrs::plugin::PluginCreateError;

use super::coder::{self, Coder};
use super::data_type;
use super::grid::{self, Fault};
use super::second;
use super::shard_form::{IndexForm, ShardForm};
use crate::codec::{Codec, byte_order_in, byte_order_of, bytes_codec, name_of};
use crate::dtype::{ByteOrder, ElementType, StoredElement};
use crate::fill::Fill;
use crate::fs::files::damaged;
use crate::schema::{ArraySchema, Storage};

/// The `zarr.json` of an empty group.
pub(crate) fn group_json() -> Value {
    json!({ "zarr_format": 3, "node_type": "group", "attributes": {} })
}

/// The `zarr.json` of an array of this schema.
///
/// # Errors
/// When the codec is unknown.
///
/// # Panics
/// If the array is not stored in chunks.
pub(crate) fn array_json(schema: &ArraySchema) -> Result<Value> {
    let Storage::Chunks {
        chunk,
        subchunks,
        codec,
    } = &schema.disk
    else {
        unreachable!("Zarr's metadata for an array that is not stored in chunks");
    };
    let element = &schema.element;
    let inner = codec.parse::<Codec>()?.zarr(element);
    let codecs = match subchunks {
        None => inner,
        Some(subchunks) => vec![json!({
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": subchunks,
                "codecs": inner,
                "index_codecs": [
                    bytes_codec(&ElementType::U8, ByteOrder::Little), { "name": "crc32c" }
                ],
                "index_location": "end",
            }
        })],
    };
    Ok(json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": schema.shape,
        "data_type": data_type::to_json(element)?,
        "chunk_grid": grid::grid_json(chunk),
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
        "fill_value": schema.fill.zarr(element),
        "codecs": codecs,
        "attributes": schema.attributes,
        // xarray cannot open an array without dimension names.
        "dimension_names": schema.names_of_dimensions(),
    }))
}

/// The layout of chunks that hold the elements as they are, but perhaps in the other byte order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plain {
    pub(super) element: StoredElement,
    pub(super) fill: Vec<u8>,
}

/// The layout of elements in the chunks.
pub(super) enum Layout {
    /// Elements as they are.
    Plain(Plain),
    /// Elements through one codec chain.
    Encoded(Coder),
    /// Sub-chunks, each through a codec chain.
    Shards(Box<ShardForm>),
}

/// The field of the metadata that names the chunks.
const KEYS: &str = "chunk_key_encoding";

/// The form of an array's chunks, which the root sends to servers. Servers need not parse all
/// metadata of plain chunks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ChunkForm {
    /// Plain chunks, and their names in Zarr's words.
    Plain(Plain, #[serde(with = "crate::json::as_text")] Value),
    /// All of the metadata but attributes, and the bytes of the fill value.
    Encoded(String, Vec<u8>),
}

impl ChunkForm {
    /// The form of a new array with these metadata, which are written to `path`.
    ///
    /// # Errors
    /// As [`Metadata::parse`].
    pub(crate) fn of_new(schema: &ArraySchema, json: &Value, path: &Path) -> Result<Self> {
        if schema.disk.writes_parts() {
            let plain = Plain {
                element: StoredElement::of(&schema.element, ByteOrder::NATIVE),
                fill: schema.fill.element(&schema.element),
            };
            return Ok(Self::Plain(plain, json[KEYS].clone()));
        }
        Ok(Metadata::parse(json.clone(), path)?.chunk_form())
    }

    /// The same form with the names of chunks that `metadata` give.
    pub(crate) fn with_keys(&self, metadata: &Value) -> Self {
        let keys = &metadata[KEYS];
        match self {
            Self::Plain(plain, _) => Self::Plain(plain.clone(), keys.clone()),
            Self::Encoded(text, fill) => {
                let mut raw: Value = serde_json::from_str(text).unwrap_or_default();
                raw[KEYS] = keys.clone();
                Self::Encoded(raw.to_string(), fill.clone())
            }
        }
    }

    /// The element that fills unwritten blocks of a chunk, as bytes; empty for zeros.
    pub(crate) fn fill(&self) -> Vec<u8> {
        let (Self::Plain(Plain { fill, .. }, _) | Self::Encoded(_, fill)) = self;
        match fill.iter().all(|&byte| byte == 0) {
            true => Vec::new(),
            false => fill.clone(),
        }
    }

    /// The layout of elements in the chunks of the array in `directory`, and the names of the
    /// chunks. With `is_whole`, shards are moved whole.
    ///
    /// # Errors
    /// As [`Metadata::parse`].
    pub(super) fn open(
        &self,
        directory: &Path,
        is_whole: bool,
    ) -> Result<(Layout, ChunkKeyEncoding)> {
        match self {
            Self::Plain(plain, keys) => {
                let keys = key_encoding(keys, directory)?;
                Ok((Layout::Plain(plain.clone()), keys))
            }
            Self::Encoded(text, _) => {
                let raw = serde_json::from_str(text).map_err(|e| {
                    damaged(
                        directory,
                        format!("it is not the metadata of an array: {e}"),
                    )
                })?;
                let metadata = Metadata::parse(raw, directory)?;
                let keys = metadata.array.chunk_key_encoding().clone();
                Ok((metadata.layout(is_whole)?, keys))
            }
        }
    }
}

/// The names of chunks of the array in `directory`, from Zarr's words.
///
/// # Errors
/// [`Kind::Damaged`] for words that are not known.
pub(super) fn key_encoding(words: &Value, directory: &Path) -> Result<ChunkKeyEncoding> {
    let unknown = |e: String| damaged(directory, format!("names of chunks: {e}"));
    let words = serde_json::from_value(words.clone()).map_err(|e| unknown(e.to_string()))?;
    ChunkKeyEncoding::from_metadata(&words).map_err(|e| unknown(e.to_string()))
}

/// The parsed `zarr.json` or `.zarray` of an array.
#[derive(Debug)]
pub(crate) struct Metadata {
    raw: Value,
    array: Array<()>,
    /// The element as chunks have it.
    element: StoredElement,
    /// The value of elements that were never written.
    fill: Fill,
    /// The extents of chunks along each dimension.
    chunk: Vec<Edges>,
}

impl Metadata {
    /// Parses the metadata at `path`.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when these are not Zarr's metadata of an array; [`Kind::Unsupported`] for
    /// element types, codecs, grids and extensions that Penstock does not read.
    pub(crate) fn parse(raw: Value, path: &Path) -> Result<Self> {
        let unsupported = |what: String| {
            Error::new(
                Kind::Unsupported,
                "reading",
                format!("{what} is not supported"),
            )
            .at(path)
        };
        let not_zarr = |e| damaged(path, format!("it is not the metadata of an array: {e}"));
        let is_second = raw["zarr_format"] == 2;
        let chunk = match is_second {
            true => second_chunk(&raw).map_err(not_zarr)?,
            false => third_chunk(&raw).map_err(|fault| match fault {
                Fault::Damaged(cause) => damaged(path, cause),
                Fault::Unsupported(what) => unsupported(what),
            })?,
        };
        let found = match is_second {
            true => data_type::of_second(&raw["dtype"]),
            false => data_type::of_third(&raw["data_type"]).map(|element| {
                let codecs = raw["codecs"].as_array().map_or(&[][..], Vec::as_slice);
                StoredElement::of(&element, byte_order_in(codecs, &element))
            }),
        };
        let element = found.map_err(|e| match e.kind {
            Kind::Unsupported => unsupported(e.cause),
            _ => damaged(path, e.cause),
        })?;
        let mut known = raw.clone();
        let mut fill = None;
        if element.element().record().is_some() {
            let value = match is_second {
                true => second::fill_of(&element, &raw["fill_value"]),
                false => Fill::of_zarr(element.element(), &raw["fill_value"]),
            };
            let value = value.map_err(|e| damaged(path, e.cause))?;
            bytes_for_zarrs(&mut known, &element, &value);
            fill = Some(value);
        }
        let metadata = if is_second {
            let known = second::suited(&known);
            ArrayMetadata::V2(serde_json::from_value(known).map_err(not_zarr)?)
        } else {
            // zarrs need not know which chunks there are.
            known["chunk_grid"] = grid::grid_json(&Edges::regular(&Edges::largest_of(&chunk)));
            ArrayMetadata::V3(serde_json::from_value(known).map_err(not_zarr)?)
        };
        let transformers = raw["storage_transformers"].as_array();
        if transformers.is_some_and(|list| !list.is_empty()) {
            return Err(unsupported("a storage transformer".to_string()));
        }
        // This call lets zarrs make its global state now.
        coder::options();
        let array = Array::new_with_metadata(Arc::new(()), "/", metadata).map_err(|e| {
            let foreign = matches!(
                &e,
                ArrayCreateError::CodecsCreateError(PluginCreateError::Unsupported(_))
                    | ArrayCreateError::DataTypeCreateError(PluginCreateError::Unsupported(_))
                    | ArrayCreateError::ChunkKeyEncodingCreateError(
                        PluginCreateError::Unsupported(_)
                    )
                    | ArrayCreateError::UnsupportedZarrV2Array(_)
            );
            if foreign {
                let said = e.to_string();
                unsupported(said.trim_end_matches(" is not supported").to_string())
            } else {
                damaged(path, e)
            }
        })?;
        let fill = match fill {
            Some(fill) => fill,
            None => Fill::new(element.element(), array.fill_value().as_ne_bytes())
                .map_err(|e| damaged(path, e.cause))?,
        };
        Ok(Self {
            raw,
            array,
            element,
            fill,
            chunk,
        })
    }

    /// The form of the array's chunks, as servers need it.
    pub(crate) fn chunk_form(&self) -> ChunkForm {
        if let Some(plain) = self.plain() {
            let keys = json!(self.array.chunk_key_encoding().metadata());
            return ChunkForm::Plain(plain, keys);
        }
        let mut raw = self.raw.clone();
        if let Some(raw) = raw.as_object_mut() {
            raw.remove("attributes");
            raw.remove("consolidated_metadata");
        }
        ChunkForm::Encoded(raw.to_string(), self.fill())
    }

    /// The array's schema under the given name. `attributes` are for arrays of the second format,
    /// which have them in a file of their own.
    pub(crate) fn schema(&self, name: &str, attributes: Map<String, Value>) -> ArraySchema {
        let shape = self.array.shape().to_vec();
        let (names, attributes) = match self.is_second() {
            true => {
                // xarray has no missing records.
                let is_number = self.element.element().record().is_none();
                let missing = (is_number && !self.raw["fill_value"].is_null())
                    .then(|| second::missing_value(self.element.element(), &self.fill()));
                second::names_and_attributes(attributes, missing)
            }
            false => self.of_third(),
        };
        let names = names.filter(|names: &Vec<String>| names.len() == shape.len());
        let (subchunks, codec) = match self.sharding() {
            Some(sharding) => {
                let codecs = &self.raw["codecs"][0]["configuration"]["codecs"];
                (
                    Some(extents(&sharding.chunk_shape)),
                    self.codec_word(codecs),
                )
            }
            None => (None, self.codec_word(&self.raw["codecs"])),
        };
        let disk = Storage::Chunks {
            chunk: self.chunk.clone(),
            subchunks,
            codec,
        };
        ArraySchema {
            name: name.to_string(),
            shape,
            element: self.element.element().clone(),
            disk,
            dimension_names: names,
            attributes,
            fill: self.fill.clone(),
        }
    }

    /// The dimension names and attributes. A name that is null becomes an empty one: Zarr takes
    /// both for "none".
    fn of_third(&self) -> (Option<Vec<String>>, Map<String, Value>) {
        let names = self.array.dimension_names().as_ref();
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let names = names.map(|names| names.iter().map(name).collect());
        (names, self.array.attributes().clone())
    }

    /// The codec as a word of Penstock, or as Zarr's own JSON if there is no word.
    fn codec_word(&self, codecs: &Value) -> String {
        if self.is_second() {
            let raw = &self.raw;
            let parts = json!({
                "dtype": raw["dtype"],
                "compressor": raw["compressor"],
                "filters": raw["filters"],
                "order": raw["order"],
            });
            return match second::codecs(raw) {
                Some(chain) => Codec::of_zarr(&chain, self.element.element()).to_string(),
                None => parts.to_string(),
            };
        }
        let chain = codecs.as_array().map(Vec::as_slice).unwrap_or_default();
        Codec::of_zarr(chain, self.element.element()).to_string()
    }

    /// The disk schema: the array cut into blocks that can be moved at once.
    pub(crate) fn disk_schema(&self, block_bytes_max: u64) -> Result<DiskSchema> {
        let split = match self.sharding() {
            Some(sharding) => Split::Inner(extents(&sharding.chunk_shape)),
            None if self.plain_element().is_some() => Split::Contiguous(block_bytes_max),
            None => Split::Whole,
        };
        let largest = Edges::largest_of(&self.chunk);
        let width = self.element.element().width();
        let countable = largest.iter().try_fold(width, |n, &c| n.checked_mul(c));
        if countable.is_none_or(|bytes| bytes > i64::MAX as u64) {
            let cause = format!("a chunk of {largest:?} has more than 2^63 - 1 bytes");
            return Err(Error::new(Kind::Damaged, "reading", cause));
        }
        DiskSchema::rectilinear(self.array.shape(), width, &self.chunk)
            .and_then(|chunked| chunked.split(split))
            .map_err(|e| Error::new(Kind::Damaged, "reading", e))
    }

    /// Checks that the array can be opened as a medium.
    pub(crate) fn check(&self) -> Result<()> {
        self.layout(false).map(drop)
    }

    /// The bytes of the fill value.
    fn fill(&self) -> Vec<u8> {
        self.fill.element(self.element.element())
    }

    /// The layout of chunks that hold only the elements as they are.
    fn plain(&self) -> Option<Plain> {
        Some(Plain {
            element: self.plain_element()?,
            fill: self.fill(),
        })
    }

    /// The layout of elements in the chunks.
    fn layout(&self, is_whole: bool) -> Result<Layout> {
        if let Some(plain) = self.plain() {
            return Ok(Layout::Plain(plain));
        }
        let coder = |chain: Arc<CodecChain>, shape: &[NonZeroU64]| Coder {
            chain,
            data_type: self.array.data_type().clone(),
            fill_value: self.array.fill_value().clone(),
            shape: shape.to_vec(),
            swapped: self
                .element
                .element()
                .record()
                .map(|_| self.element.clone()),
        };
        // No chunk is larger, and each has an extent of 1 at least.
        let chunk = self.chunk.iter();
        let chunk = chunk.filter_map(|edges| NonZeroU64::new(edges.largest()));
        let chunk: Vec<NonZeroU64> = chunk.collect();
        let Some(sharding) = self.sharding().filter(|_| !is_whole) else {
            let chain = coder::with_own_sums(&self.array.codecs());
            return Ok(Layout::Encoded(coder(chain, &chunk)));
        };
        let counts = chunk.iter().zip(&sharding.chunk_shape);
        let counts = counts.filter_map(|(c, i)| NonZeroU64::new(c.get() / i.get()));
        let codecs = &self.raw["codecs"][0]["configuration"]["codecs"];
        let index = Coder {
            chain: coder::chain_of(&sharding.index_codecs)?,
            data_type: zarrs_types::uint64(),
            fill_value: FillValue::from(u64::MAX),
            shape: counts.chain(NonZeroU64::new(2)).collect(),
            swapped: None,
        };
        let plain = self.plain_element_of(codecs);
        let inner = coder(coder::chain_of(&sharding.codecs)?, &sharding.chunk_shape);
        let index = IndexForm::new(index, sharding.index_location)?;
        let form = ShardForm::new(inner, plain, index, self.fill());
        Ok(Layout::Shards(Box::new(form)))
    }

    fn is_second(&self) -> bool {
        self.raw["zarr_format"] == 2
    }

    /// The sharding codec's configuration, if it is the only codec.
    fn sharding(&self) -> Option<ShardingCodecConfigurationV1> {
        let codecs = self.raw["codecs"].as_array()?;
        let [only] = codecs.as_slice() else {
            return None;
        };
        if name_of(only)? != "sharding_indexed" {
            return None;
        }
        match serde_json::from_value(only["configuration"].clone()).ok()? {
            ShardingCodecConfiguration::V1(configuration) => Some(configuration),
            _ => None,
        }
    }

    /// The element in chunks that hold the elements in row-major order and nothing else.
    fn plain_element(&self) -> Option<StoredElement> {
        if !self.is_second() {
            return self.plain_element_of(&self.raw["codecs"]);
        }
        let raw = &self.raw;
        let filtered = raw["filters"]
            .as_array()
            .is_some_and(|filters| !filters.is_empty());
        let plain = raw["compressor"].is_null() && !filtered && raw["order"] == "C";
        plain.then(|| self.element.clone())
    }

    fn plain_element_of(&self, codecs: &Value) -> Option<StoredElement> {
        let element = self.element.element();
        match codecs.as_array()?.as_slice() {
            [only] => byte_order_of(only, element).map(|order| StoredElement::of(element, order)),
            _ => None,
        }
    }
}

/// Puts bytes without a meaning into the place of records in Zarr's metadata: `zarrs` has no
/// records, and its codecs need to know their width alone.
fn bytes_for_zarrs(metadata: &mut Value, element: &StoredElement, fill: &Fill) {
    let width = element.width();
    match metadata["zarr_format"] == 2 {
        true => metadata["dtype"] = format!("|V{width}").into(),
        false => metadata["data_type"] = format!("r{}", width * 8).into(),
    }
    let fill = fill.element(element.element());
    metadata["fill_value"] = STANDARD.encode(element.swapped(&fill)).into();
}

/// The chunks in metadata of the second format.
fn second_chunk(raw: &Value) -> serde_json::Result<Vec<Edges>> {
    let chunk: Vec<NonZeroU64> = serde_json::from_value(raw["chunks"].clone())?;
    Ok(Edges::regular(&extents(&chunk)))
}

/// The chunks in metadata of the third format.
fn third_chunk(raw: &Value) -> std::result::Result<Vec<Edges>, Fault> {
    let shape = serde_json::from_value::<Vec<u64>>(raw["shape"].clone());
    let shape = shape.map_err(|e| Fault::Damaged(format!("its shape: {e}")))?;
    grid::chunks_of(&raw["chunk_grid"], &shape)
}

fn extents(shape: &[NonZeroU64]) -> Vec<u64> {
    shape.iter().map(|n| n.get()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_are_told_of_a_new_array_is_what_its_metadata_say() {
        let record = ElementType::parse("[('x', 'f8'), ('p', [('n', 'u2')])]").unwrap();
        for element in ElementType::all().chain([record.0]) {
            for codec in ["none", "crc32c", "zstd:3"] {
                let disk = Storage::Chunks {
                    chunk: vec![Edges::Regular(2), Edges::Listed(vec![3, 4])],
                    subchunks: None,
                    codec: codec.to_string(),
                };
                let schema = ArraySchema::new("u", &[5, 7], element.clone(), disk);
                let json = array_json(&schema).unwrap();
                let path = Path::new("zarr.json");
                let parsed = Metadata::parse(json.clone(), path).unwrap().chunk_form();
                assert_eq!(ChunkForm::of_new(&schema, &json, path).unwrap(), parsed);
            }
        }
    }
}
