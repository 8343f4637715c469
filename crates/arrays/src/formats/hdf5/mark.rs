//! The attribute by which Penstock knows its own files: of a group with timesteps, or of one of its
//! checkpoints.
//!
//! ```text
//! run.nc                       attribute penstock of the root
//!   time(time)                 {"datasets": {"u": "/fields/u"},
//!   fields/u(time, y, x)        "group": {"timesteps": 3, ...}}
//! run.nc.checkpoints/
//!   50.nc                      attribute penstock of the root
//!     fields/u(y, x)           {"datasets": {"u": "/fields/u"},
//!                               "checkpoint": {"step": 50, ...}}
//! ```

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use penstock_hdf5::{Attribute, FileForm, Hdf5File, Values};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{describe, name};
use crate::formats::record::{ATTRIBUTE, Record, TIME};
use crate::fs::files::damaged;
use crate::schema::{ArraySchema, Storage};

/// What the directory of a group's checkpoints has behind the name of the group's file.
const CHECKPOINTS: &str = ".checkpoints";

/// What Penstock notes in a file of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mark {
    /// The datasets of the arrays, by the arrays' names.
    pub(crate) datasets: BTreeMap<String, String>,
    /// The record of a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<Record>,
    /// What a checkpoint is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint: Option<Value>,
}

impl Mark {
    /// Reads the mark of an open file; `None` if it has none.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when it cannot be understood; [`Kind::Unsupported`] when a later version
    /// has written it.
    pub(crate) fn read(file: &Hdf5File, path: &Path) -> Result<Option<Self>> {
        let attributes = file.attributes("")?.into_iter();
        let mut own = attributes.filter(|(name, _)| name == ATTRIBUTE);
        let Some((_, attribute)) = own.next() else {
            return Ok(None);
        };
        let wrong = |what: &str| damaged(path, format!("the attribute {ATTRIBUTE:?} {what}"));
        let text = match attribute {
            Some(Attribute {
                values: Values::Texts(texts),
                ..
            }) => texts.into_iter().next(),
            _ => None,
        };
        let text = text.ok_or_else(|| wrong("is no text"))?;
        let mark: Self = serde_json::from_str(&text).map_err(|e| wrong(&e.to_string()))?;
        if let Some(record) = &mark.group {
            record.check(path)?;
            if !record.arrays.keys().eq(mark.datasets.keys()) {
                return Err(wrong("does not fit together"));
            }
        }
        Ok(Some(mark))
    }

    /// Reads the record of the group in the file at `path`, with the datasets of its arrays; `None`
    /// if it is no file with a group.
    ///
    /// # Errors
    /// As [`Mark::read`].
    pub(crate) fn read_at(path: &Path) -> Result<Option<Self>> {
        match describe::is_hdf5_file(path) {
            true => Self::read(&describe::open(path)?, path),
            false => Ok(None),
        }
    }

    /// The mark as an attribute of the root.
    pub(crate) fn attribute(&self) -> Attribute {
        Attribute::text(&serde_json::json!(self).to_string())
    }

    /// Writes the mark to an open file.
    ///
    /// # Errors
    /// [`Kind::Io`] when the library fails.
    pub(crate) fn write(&self, file: &mut Hdf5File) -> Result<()> {
        // A text of fixed length leaves nothing behind when another takes its place.
        file.set_attribute("", ATTRIBUTE, &self.attribute(), FileForm::NetCdf)
    }

    /// The paths of all datasets that a save writes.
    pub(crate) fn saved(&self) -> impl Iterator<Item = String> {
        let names = self.group.iter().flat_map(Record::names);
        names.map(|name| self.dataset(&name))
    }

    /// The dataset of an array, or of the numbers of timesteps.
    pub(crate) fn dataset(&self, name: &str) -> String {
        let known = self.datasets.get(name);
        known.cloned().unwrap_or_else(|| format!("/{name}"))
    }
}

/// Checks that a write of a dataset alone changes nothing that Penstock saves as a whole.
///
/// # Errors
/// [`Kind::Schema`].
pub(crate) fn check_not_saved(file: &Hdf5File, path: &Path, dataset: &str) -> Result<()> {
    let Some(mark) = Mark::read(file, path)? else {
        return Ok(());
    };
    let cause = if mark.checkpoint.is_some() {
        "it is a checkpoint: give another path".to_string()
    } else if mark.saved().any(|saved| saved == dataset) {
        format!("{dataset} is saved with its group: save to it by timestep")
    } else {
        return Ok(());
    };
    Err(Error::new(Kind::Schema, "writing", cause).at(path))
}

/// The directory of the checkpoints of the group in a file.
pub(crate) fn checkpoints_of(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    name.push(CHECKPOINTS);
    file.with_file_name(name)
}

/// The file of the group that has its checkpoints in a directory; `None` for any other directory.
pub(crate) fn group_of_checkpoints(directory: &Path) -> Option<PathBuf> {
    let name = directory.file_name().and_then(OsStr::to_str)?;
    let file = name
        .strip_suffix(CHECKPOINTS)
        .filter(|file| !file.is_empty())?;
    Some(directory.with_file_name(file))
}

/// The dataset with the times of a group's timesteps.
pub(crate) fn time() -> String {
    format!("/{TIME}")
}

/// The path of an array's dataset.
pub(crate) fn dataset_of(schema: &ArraySchema) -> String {
    match &schema.disk {
        Storage::Hdf5 { dataset, .. } if !dataset.is_empty() => name::tidy(dataset),
        _ => format!("/{}", schema.name),
    }
}
