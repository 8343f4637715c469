//! Static variables of a group: small arrays whose values every rank knows, such as latitudes and
//! names of stations.
//!
//! A coordinate is a Zarr array of one chunk with a checksum, written by the rank that directs.
//! Numbers are stored as in any other array; strings are of Zarr's type `string`, through the codec
//! `vlen-utf8`.

use std::path::{Path, PathBuf};

use crc32c::crc32c;
use penstock_bucket::is_in_repository;
use penstock_engine::{Error, Kind, Result};
use penstock_layout::Edges;
use penstock_layout::exact;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::dtype::ElementType;
use crate::formats::zarr::{self, Node};
use crate::fs::files::{self, make_directory};
use crate::json::as_text;
use crate::schema::{ArraySchema, Storage};

/// A static variable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Coordinate {
    pub name: String,
    /// The names of the dimensions.
    pub dimensions: Vec<String>,
    pub shape: Vec<u64>,
    /// The values, row-major.
    pub values: Values,
    /// The attributes of the coordinate.
    #[serde(with = "as_text")]
    pub attributes: Map<String, Value>,
}

/// The values of a coordinate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Values {
    /// Elements, in the machine's byte order.
    Elements(ElementType, Vec<u8>),
    Strings(Vec<String>),
}

impl Coordinate {
    /// Checks that the values fill the shape, and that all dimensions have names.
    ///
    /// # Errors
    /// [`Kind::Schema`].
    pub fn check(&self) -> Result<()> {
        let wrong = |cause: String| {
            let doing = format!("describing the coordinate {:?}", self.name);
            Err(Error::new(Kind::Schema, doing, cause))
        };
        if self.dimensions.len() != self.shape.len() {
            let (names, dims) = (self.dimensions.len(), self.shape.len());
            return wrong(format!("{names} dimension names for {dims} dimensions"));
        }
        let elements = self
            .shape
            .iter()
            .try_fold(1u64, |all, &n| all.checked_mul(n));
        let given = match &self.values {
            Values::Elements(element, bytes) => bytes.len() as u64 / element.width(),
            Values::Strings(strings) => strings.len() as u64,
        };
        match elements == Some(given) {
            true => Ok(()),
            false => wrong(format!("{given} values for the shape {:?}", self.shape)),
        }
    }

    fn json(&self) -> Result<Value> {
        // An empty array has a chunk of one element, which is not written.
        let chunk: Vec<u64> = self.shape.iter().map(|&n| n.max(1)).collect();
        let element = match &self.values {
            Values::Elements(element, _) => element.clone(),
            Values::Strings(_) => ElementType::U1,
        };
        let disk = Storage::Chunks {
            chunk: Edges::regular(&chunk),
            subchunks: None,
            codec: "crc32c".to_string(),
        };
        let schema = ArraySchema {
            dimension_names: Some(self.dimensions.clone()),
            attributes: self.attributes.clone(),
            ..ArraySchema::new(&self.name, &self.shape, element, disk)
        };
        schema.disk_schema(1)?;
        let mut json = zarr::array_json(&schema)?;
        if let Values::Strings(_) = &self.values {
            json["data_type"] = "string".into();
            json["fill_value"] = "".into();
            json["codecs"] =
                json!([{ "name": "vlen-utf8", "configuration": {} }, { "name": "crc32c" }]);
        }
        Ok(json)
    }

    /// The bytes of the chunk.
    fn chunk(&self) -> Vec<u8> {
        match &self.values {
            Values::Elements(_, bytes) => with_sum(bytes.clone()),
            Values::Strings(strings) => text_chunk(strings),
        }
    }

    /// The path of the chunk's file in the array's directory.
    fn key(&self) -> PathBuf {
        let zeros = self.shape.iter().map(|_| "0");
        std::iter::once("c").chain(zeros).collect()
    }

    /// Writes the coordinate into a group. Gives the paths that are yet to be synced.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn write(&self, group: &Path) -> Result<Vec<PathBuf>> {
        let directory = group.join(&self.name);
        make_directory(&directory)?;
        let mut made = vec![directory.clone()];
        let place = directory.join("zarr.json");
        if is_in_repository(&place) {
            files::write_json(&place, &self.json()?)?; // it takes no chunk of an unknown array
        }
        if !self.shape.contains(&0) {
            let chunk = directory.join(self.key());
            let below = chunk.ancestors().skip(1);
            let below = below.take_while(|above| *above != directory);
            let new: Vec<&Path> = below.filter(|above| !above.exists()).collect();
            for new in new.into_iter().rev() {
                make_directory(new)?;
                made.push(new.to_path_buf());
            }
            files::write(&chunk, &self.chunk())?;
            made.push(chunk);
        }
        // The metadata come last: an array without metadata does not exist.
        files::write_json(&place, &self.json()?)?;
        made.push(place);
        Ok(made)
    }

    /// Compares the coordinate with the stored one.
    ///
    /// # Errors
    /// [`Kind::Schema`] when the stored coordinate is another.
    pub(super) fn compare(&self, group: &Path) -> Result<()> {
        let directory = group.join(&self.name);
        let differs = |what: &str| {
            let cause = format!("the {what} there are not those of the call");
            let doing = format!("declaring the coordinate {:?}", self.name);
            Err(Error::new(Kind::Schema, doing, cause).at(&directory))
        };
        let own = self.json()?;
        let there = Node::read(&directory)?.map(|node| node.json().clone());
        let there = there.unwrap_or_default();
        if there["shape"] != own["shape"] || there["data_type"] != own["data_type"] {
            return differs("shape and type");
        }
        // Another tool may have stored the coordinate in another way: then its values are not
        // compared.
        let is_plain = ["codecs", "chunk_grid", "chunk_key_encoding"]
            .iter()
            .all(|key| there[key] == own[key]);
        if !is_plain {
            return Ok(());
        }
        let chunk = files::read_if_there(&directory.join(self.key()))?;
        match chunk.is_none_or(|chunk| chunk == self.chunk()) {
            true => Ok(()),
            false => differs("values"),
        }
    }
}

/// A chunk of texts, through the codecs `vlen-utf8` and `crc32c`.
pub(super) fn text_chunk(texts: &[String]) -> Vec<u8> {
    let mut bytes = exact::<u32>(texts.len()).to_le_bytes().to_vec();
    for text in texts {
        bytes.extend(exact::<u32>(text.len()).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    with_sum(bytes)
}

/// The text of a chunk that has one; `None` if the chunk is not of this form.
pub(super) fn text_of_chunk(bytes: &[u8]) -> Option<&str> {
    let (bytes, sum) = bytes.split_last_chunk::<4>()?;
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    let (length, text) = rest.split_first_chunk::<4>()?;
    let is_one = u32::from_le_bytes(*count) == 1 && *sum == crc32c(bytes).to_le_bytes();
    let is_whole = usize::try_from(u32::from_le_bytes(*length)) == Ok(text.len());
    (is_one && is_whole).then(|| std::str::from_utf8(text).ok())?
}

/// Bytes with their checksum, as the codec `crc32c` has it.
fn with_sum(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend(crc32c(&bytes).to_le_bytes());
    bytes
}
