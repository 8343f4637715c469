//! The JSON file that says what a raw file, or a directory of parts, holds.
//!
//! ```json
//! { "penstock": 1, "byte_order": "little", "array": { "name": "u", "shape": [4, 3], ... } }
//! ```

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::file::{damaged, read_if_there};
use crate::dtype::ByteOrder;
use crate::schema::ArraySchema;

const VERSION: u64 = 1;
/// A schema, attributes and all, is small; what is larger is something else.
const BYTES_MAX: u64 = 64 << 20;

/// What the file says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sidecar {
    penstock: u64,
    pub(super) byte_order: ByteOrder,
    pub(super) array: ArraySchema,
}

impl Sidecar {
    pub(super) fn new(array: &ArraySchema) -> Self {
        Self { penstock: VERSION, byte_order: ByteOrder::NATIVE, array: array.clone() }
    }

    /// Its text.
    pub(super) fn text(&self) -> Result<Vec<u8>> {
        serde_json::to_vec_pretty(self)
            .map_err(|e| Error::new(Kind::Schema, "writing the schema", e))
    }

    /// Reads it, or `None` where there is none, or a JSON file of somebody else.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when it is not JSON or not what this version writes.
    pub(super) fn read(path: &Path) -> Result<Option<Self>> {
        if std::fs::metadata(path).is_ok_and(|meta| meta.len() > BYTES_MAX || !meta.is_file()) {
            return Ok(None);
        }
        let Some(bytes) = read_if_there(path)? else {
            return Ok(None);
        };
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|e| damaged(path, format!("it is not JSON: {e}")))?;
        match value.get("penstock") {
            None => return Ok(None),
            Some(version) if *version == VERSION => {}
            Some(version) => {
                let cause = format!("version {version} of the schema, where this reads {VERSION}");
                return Err(Error::new(Kind::Unsupported, "reading", cause).at(path));
            }
        }
        let sidecar: Self = serde_json::from_value(value)
            .map_err(|e| damaged(path, format!("it is not the schema of an array: {e}")))?;
        // What it describes is used to count with.
        let checked = sidecar.array.disk_schema(1);
        checked.map_err(|e| damaged(path, format!("it describes no array: {}", e.cause)))?;
        Ok(Some(sidecar))
    }
}

/// The file beside a raw file: its whole name, and `.json`.
pub(super) fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(".json");
    PathBuf::from(name)
}
