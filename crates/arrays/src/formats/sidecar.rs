//! The JSON file that says what a raw file, or a directory of parts, holds.
//!
//! ```json
//! { "penstock": 1, "byte_order": "little", "array": { "name": "u", "shape": [4, 3], ... } }
//! ```
//!
//! A raw file and the schema beside it cannot be renamed in one step. So while the file is being
//! replaced, the schema beside it is that of the new file with, in `former`, that of the old and
//! the old file's number: whoever comes between, or after a crash, sees which of the two stands
//! there.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::spread::{Spread, SpreadArray};
use crate::dtype::{ByteOrder, ElementType};
use crate::fs::files::{damaged, read_if_there};
use crate::json;
use crate::schema::{ArraySchema, Format, Storage};

const VERSION: u64 = 1;
/// A schema, attributes and all, is small; what is larger is something else.
const BYTES_MAX: u64 = 64 << 20;

/// What the file says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sidecar {
    penstock: u64,
    pub(crate) byte_order: ByteOrder,
    pub(crate) array: ArraySchema,
    /// While the file is being replaced: what the old one holds, and its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former: Option<(u64, Box<Sidecar>)>,
    /// Of parts that are not beside it: where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spread: Option<Spread>,
}

impl Sidecar {
    pub(crate) fn new(array: &ArraySchema) -> Self {
        let byte_order = ByteOrder::NATIVE;
        Self {
            penstock: VERSION,
            byte_order,
            array: array.clone(),
            former: None,
            spread: None,
        }
    }

    /// Of parts that are with servers, if they are.
    pub(crate) fn spread_as(self, of: Option<&SpreadArray>) -> Self {
        let spread = of.map(|of| of.spread.clone());
        Self { spread, ..self }
    }

    /// Of a file that is not one of ours, or says itself what it holds: while it stands there,
    /// nothing is said of it.
    pub(crate) fn of_another() -> Self {
        let disk = Storage::RowMajor {
            format: Format::Npy,
        };
        Self::new(&ArraySchema::new("another", &[0], ElementType::U1, disk))
    }

    /// The same while `file`, which `former` describes, still stands in the place of the new one.
    ///
    /// # Errors
    /// When the file cannot be looked at.
    pub(crate) fn replacing(self, former: Self, file: &Path) -> Result<Self> {
        let found = std::fs::metadata(file).map_err(|e| Error::io(&e, "looking at", file))?;
        Ok(Self {
            former: Some((found.ino(), Box::new(former))),
            ..self
        })
    }

    /// What it says of the raw file at `file`, which may be in the midst of being replaced.
    pub(crate) fn of_file(self, file: &Path) -> Self {
        match self.former {
            Some((number, former)) if std::fs::metadata(file).is_ok_and(|f| f.ino() == number) => {
                *former
            }
            _ => Self {
                former: None,
                ..self
            },
        }
    }

    /// Its text.
    pub(crate) fn text(&self) -> Result<Vec<u8>> {
        let value = serde_json::to_value(self);
        let value = value.map_err(|e| Error::new(Kind::Schema, "writing the schema", e))?;
        Ok(json::text(&value))
    }

    /// Reads it, or `None` where there is none, or a JSON file of somebody else.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when it is not JSON or not what this version writes.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        if std::fs::metadata(path).is_ok_and(|meta| meta.len() > BYTES_MAX || !meta.is_file()) {
            return Ok(None);
        }
        let Some(bytes) = read_if_there(path)? else {
            return Ok(None);
        };
        let value: Value =
            json::parse(&bytes).map_err(|e| damaged(path, format!("it is not JSON: {e}")))?;
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
        let mut described = Some(&sidecar);
        while let Some(Self { array, former, .. }) = described {
            let checked = array.disk_schema(1);
            checked.map_err(|e| damaged(path, format!("it describes no array: {}", e.cause)))?;
            described = former.as_ref().map(|(_, former)| &**former);
        }
        Ok(Some(sidecar))
    }
}

/// The file beside a raw file: its whole name, and `.json`.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(".json");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sidecar(extent: u64) -> Sidecar {
        let disk = Storage::RowMajor {
            format: Format::Raw,
        };
        Sidecar::new(&ArraySchema::new("u", &[extent], ElementType::U1, disk))
    }

    #[test]
    fn between_two_renames_it_describes_the_file_that_stands_there() {
        let directory = tempfile::tempdir().unwrap();
        let (file, new) = (directory.path().join("u"), directory.path().join("new"));
        std::fs::write(&file, [0; 3]).unwrap();
        std::fs::write(&new, [0; 5]).unwrap();
        let both = sidecar(5).replacing(sidecar(3), &file).unwrap();
        let path = beside(&file);
        std::fs::write(&path, both.text().unwrap()).unwrap();
        let says = || {
            Sidecar::read(&path)
                .unwrap()
                .unwrap()
                .of_file(&file)
                .array
                .shape
        };
        assert_eq!(says(), [3]);
        std::fs::rename(&new, &file).unwrap();
        assert_eq!(says(), [5]);
    }
}
