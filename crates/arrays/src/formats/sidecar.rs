//! The JSON file that describes a raw file, or a directory of parts.
//!
//! ```json
//! { "penstock": 1, "byte_order": "little", "array": { "name": "u", "shape": [4, 3], ... } }
//! ```
//!
//! A raw file and its sidecar cannot be renamed in one step. So while the file is being replaced,
//! the sidecar has the schema of the new file and, in `former`, the schema and the inode number of
//! the old: a reader between the two renames, or after a crash, sees which of the two files is
//! there.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::spread::{Spread, SpreadArray};
use crate::dtype::{ByteOrder, ElementType, StoredElement};
use crate::fs::files::{damaged, read_if_there};
use crate::json;
use crate::schema::{ArraySchema, Format, Storage};

const VERSION: u64 = 1;
/// The most bytes of a sidecar: a larger file is something else.
const BYTES_MAX: u64 = 64 << 20;

/// The contents of a sidecar.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sidecar {
    penstock: u64,
    pub(crate) byte_order: ByteOrder,
    pub(crate) array: ArraySchema,
    /// The inode number of the old file, and its sidecar, while the file is being replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former: Option<(u64, Box<Sidecar>)>,
    /// The spread of parts over servers, if they are not beside the sidecar.
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

    /// Notes the spread of parts, if they are spread.
    pub(crate) fn spread_as(self, of: Option<&SpreadArray>) -> Self {
        let spread = of.map(|of| of.spread.clone());
        Self { spread, ..self }
    }

    /// A sidecar for a file that is not Penstock's, or that describes itself: it says nothing about
    /// such a file.
    pub(crate) fn of_another() -> Self {
        let disk = Storage::RowMajor {
            format: Format::Npy,
        };
        Self::new(&ArraySchema::new("another", &[0], ElementType::U1, disk))
    }

    /// Notes that `file`, which `former` describes, is still in the place of the new file.
    ///
    /// # Errors
    /// When `file` cannot be found.
    pub(crate) fn replacing(self, former: Self, file: &Path) -> Result<Self> {
        let found = std::fs::metadata(file).map_err(|e| Error::io(&e, "looking at", file))?;
        Ok(Self {
            former: Some((found.ino(), Box::new(former))),
            ..self
        })
    }

    /// The sidecar of the raw file at `file`, which may be in the midst of being replaced.
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

    /// An element as the file has it.
    pub(crate) fn element(&self) -> StoredElement {
        StoredElement::of(&self.array.element, self.byte_order)
    }

    /// The text of the sidecar.
    pub(crate) fn text(&self) -> Result<Vec<u8>> {
        let value = serde_json::to_value(self);
        let value = value.map_err(|e| Error::new(Kind::Schema, "writing the schema", e))?;
        Ok(json::text(&value))
    }

    /// Reads a sidecar; `None` if there is none, or a JSON file of another program.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the file is not JSON or not a sidecar of this version.
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
        // Readers compute with the described schema, so it is checked here.
        let mut described = Some(&sidecar);
        while let Some(Self { array, former, .. }) = described {
            let checked = array.disk_schema(1);
            checked.map_err(|e| damaged(path, format!("it describes no array: {}", e.cause)))?;
            described = former.as_ref().map(|(_, former)| &**former);
        }
        Ok(Some(sidecar))
    }
}

/// The path of a raw file's sidecar: the file's whole name, and `.json`.
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
