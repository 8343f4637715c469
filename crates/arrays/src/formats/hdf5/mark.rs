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
use crate::formats::record::{ATTRIBUTE, Record};
use crate::fs::files::damaged;
use crate::schema::{ArraySchema, Storage};

/// What the directory of a group's checkpoints has behind the name of the group's file.
const CHECKPOINTS: &str = ".checkpoints";

/// What Penstock notes in a file of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Mark {
    Group(GroupMark),
    Checkpoint(CheckpointMark),
}

/// The mark of a file with a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupMark {
    /// The datasets of the arrays, by the arrays' names.
    pub(crate) datasets: BTreeMap<String, String>,
    /// The record.
    pub(crate) group: Record,
}

/// The mark of a file that is a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckpointMark {
    /// The datasets of the arrays, by the arrays' names.
    pub(crate) datasets: BTreeMap<String, String>,
    /// What the checkpoint is.
    pub(crate) checkpoint: Value,
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
        if let Self::Group(GroupMark { datasets, group }) = &mark {
            group.check(path)?;
            if !group.arrays.keys().eq(datasets.keys()) {
                return Err(wrong("does not fit together"));
            }
        }
        Ok(Some(mark))
    }

    /// Whether the file at `path` has a group.
    ///
    /// # Errors
    /// As [`Mark::read`].
    pub(crate) fn is_of_group(path: &Path) -> Result<bool> {
        let is_there = describe::is_hdf5_file(path);
        Ok(is_there
            && matches!(
                Self::read(&describe::open(path)?, path)?,
                Some(Self::Group(_))
            ))
    }
}

impl GroupMark {
    /// Writes the mark to an open file.
    ///
    /// # Errors
    /// [`Kind::Io`] when the library fails.
    pub(crate) fn write(&self, file: &mut Hdf5File) -> Result<()> {
        let text = Attribute::text(&serde_json::json!(self).to_string());
        // A text of fixed length leaves nothing behind when another takes its place.
        file.set_attribute("", ATTRIBUTE, &text, FileForm::NetCdf)
    }

    /// The mark with another record.
    pub(crate) fn with(&self, group: Record) -> Self {
        let datasets = self.datasets.clone();
        Self { datasets, group }
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
    let cause = match Mark::read(file, path)? {
        Some(Mark::Checkpoint(_)) => "it is a checkpoint: give another path".to_string(),
        Some(Mark::Group(mark)) => {
            let mut names = mark.group.names().into_iter();
            if !names.any(|name| mark.dataset(&name) == dataset) {
                return Ok(());
            }
            format!("{dataset} is saved with its group: save to it by timestep")
        }
        None => return Ok(()),
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

/// The path of an array's dataset.
pub(crate) fn dataset_of(schema: &ArraySchema) -> String {
    match &schema.disk {
        Storage::Hdf5 { dataset, .. } if !dataset.is_empty() => name::tidy(dataset),
        _ => format!("/{}", schema.name),
    }
}
