//! The store of a group, as its saves see it: a directory, or a place in a bucket.

use std::fs::File;
use std::path::{Path, PathBuf};

use penstock_engine::{Error, Result};
use serde_json::Value;

use super::group::SavedArray;
use super::metadata::{TIMES, number_path};
use crate::formats::bounds::{self, AllBounds, BOUNDS_BYTES};
use crate::formats::record;
use crate::formats::sums::{self, SUM_BYTES, Sums};
use crate::formats::zarr::{Location, remove_chunks_from};
use crate::fs::files::{self, make_directory, remove_if_there};
use crate::fs::ops;
use crate::write::lock_group;

/// The files that stay in the directory of a record between saves.
const KEPT: [&str; 5] = ["zarr.json", "group.json", "lock", "sums", "bounds"];

/// What makes a change of a group: before, the group is as it was.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Commit {
    /// Nothing: only metadata follow what is there already.
    Nothing,
    /// Another record.
    Record(Value),
    /// A checkpoint, with its metadata, comes to its place.
    Checkpoint {
        new: PathBuf,
        place: PathBuf,
        metadata: Value,
    },
}

/// A change of a group.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    pub(super) commit: Commit,
    /// The group's metadata, if they change.
    pub(super) group: Option<Value>,
    /// The files of arrays' own metadata that change.
    pub(super) own: Vec<(PathBuf, Value)>,
}

impl Change {
    /// Whether all is as it should be.
    pub(super) fn is_empty(&self) -> bool {
        self.commit == Commit::Nothing && self.group.is_none() && self.own.is_empty()
    }
}

/// The chunks beyond the stored ones that may be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remains {
    /// Those of an abandoned timestep that adds one row: directly behind the stored ones.
    Row,
    /// Those of an abandoned timestep that adds several rows.
    Rows,
    /// Those of many timesteps, which were dropped.
    Timesteps,
}

/// The store of a group that is open to be saved to; nobody else saves to it meanwhile.
pub(super) trait GroupStore: Send {
    /// Keeps others from changing the group's metadata unseen, from now until a change is shown.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Busy`].
    fn hold_metadata(&mut self) -> Result<()>;

    /// Says which metadata arrays will have before their chunks are written: a repository takes
    /// chunks only of arrays that it knows, within their extents.
    ///
    /// # Errors
    /// When the store fails.
    fn announce(&mut self, own: &[(PathBuf, Value)]) -> Result<()>;

    /// Makes a change ready: all that takes space is stored, and what was stored before, `made`
    /// among it, is on stable storage.
    ///
    /// # Errors
    /// When the store fails, or is full.
    fn stage(&mut self, change: &Change, made: Vec<PathBuf>) -> Result<()>;

    /// Shows what was staged, but for the arrays' own metadata. Gives whether the group's metadata
    /// are those of the change; else others have changed them meanwhile, and what is committed is
    /// yet to be shown in them.
    ///
    /// # Errors
    /// When the store fails; [`penstock_engine::Kind::Busy`] when somebody else has saved to the
    /// group.
    fn show(&mut self, change: &Change) -> Result<bool>;

    /// Shows the arrays' own metadata.
    ///
    /// # Errors
    /// When the store fails.
    fn follow(&mut self, change: &Change) -> Result<()>;

    /// Writes the number of a timestep into an array of one number a timestep. Gives what is yet to
    /// be synced.
    ///
    /// # Errors
    /// When the store fails.
    fn write_number(&mut self, array: &str, index: u64, number: [u8; 8]) -> Result<Vec<PathBuf>>;

    /// Writes the checksums of a timestep of an array, which have this place among all of the
    /// array's. Gives what is yet to be synced.
    ///
    /// # Errors
    /// When the store fails.
    fn write_sums(&mut self, name: &str, place: u64, sums: &Sums) -> Result<Vec<PathBuf>>;

    /// Writes the bounds of a timestep of an array, as [`GroupStore::write_sums`] does.
    ///
    /// # Errors
    /// When the store fails.
    fn write_bounds(&mut self, name: &str, place: u64, bounds: &AllBounds) -> Result<Vec<PathBuf>>;

    /// Removes what unfinished saves have left beside the record, the chunks of these arrays, and
    /// the checkpoints.
    ///
    /// # Errors
    /// When the store fails.
    fn remove_leftovers(&mut self, arrays: &[String]) -> Result<()>;

    /// Removes an array's chunks from `first` of the first dimension on, as far as there may be
    /// any.
    ///
    /// # Errors
    /// When the store fails.
    fn remove_chunks(&mut self, array: &str, first: u64, remains: Remains) -> Result<()>;

    /// The place in which a checkpoint of this name is written.
    fn new_checkpoint(&self, name: &str) -> PathBuf;

    /// Writes the checksums and the bounds of a checkpoint's arrays. Gives what is yet to be
    /// synced.
    ///
    /// # Errors
    /// When the store fails.
    fn write_checkpoint_digests(
        &mut self,
        new: &Path,
        arrays: &[SavedArray],
    ) -> Result<Vec<PathBuf>>;

    /// Removes a checkpoint: it is there whole, or not at all, at any moment.
    ///
    /// # Errors
    /// When the store fails.
    fn remove_checkpoint(&mut self, checkpoint: &Path) -> Result<()>;
}

/// A group in a directory. Files are written aside, and renamed to their places.
pub(super) struct Directory {
    path: PathBuf,
    /// Held by the process that saves; none while a new group is made.
    _lock: Option<File>,
    /// Held while the group's metadata change.
    metadata_lock: Option<File>,
    staged: StagedChange,
}

/// The files of a change that were written aside.
#[derive(Default)]
struct StagedChange {
    record: Vec<StagedFile>,
    group: Vec<StagedFile>,
    own: Vec<StagedFile>,
}

/// A file that was written aside, and the place to which it is to be renamed.
struct StagedFile {
    from: PathBuf,
    place: PathBuf,
}

impl Directory {
    pub(super) fn new(path: &Path, lock: Option<File>) -> Self {
        Self {
            path: path.to_path_buf(),
            _lock: lock,
            metadata_lock: None,
            staged: StagedChange::default(),
        }
    }

    /// Writes aside a file that is to take the place of another. The file is yet to be synced.
    fn stage_file(&self, name: &str, place: PathBuf, json: &Value) -> Result<StagedFile> {
        let from = record::directory(&self.path).join(format!("new-{name}"));
        remove_if_there(&from)?;
        files::write_json(&from, json)?;
        Ok(StagedFile { from, place })
    }
}

impl GroupStore for Directory {
    fn hold_metadata(&mut self) -> Result<()> {
        self.metadata_lock = None;
        self.metadata_lock = Some(lock_group(&self.path)?);
        Ok(())
    }

    fn announce(&mut self, _: &[(PathBuf, Value)]) -> Result<()> {
        Ok(())
    }

    fn stage(&mut self, change: &Change, mut made: Vec<PathBuf>) -> Result<()> {
        let mut staged = StagedChange::default();
        match &change.commit {
            Commit::Nothing => {}
            Commit::Record(json) => {
                let place = record::file(&self.path);
                staged.record.push(self.stage_file("record", place, json)?);
            }
            Commit::Checkpoint { new, metadata, .. } => {
                let place = new.join("zarr.json");
                files::write_json(&place, metadata)?;
                made.extend([place, new.clone()]);
            }
        }
        if let Some(group) = &change.group {
            let place = self.path.join("zarr.json");
            staged.group.push(self.stage_file("group", place, group)?);
        }
        for (number, (place, json)) in change.own.iter().enumerate() {
            let name = format!("own-{number}");
            staged
                .own
                .push(self.stage_file(&name, place.clone(), json)?);
        }
        let all = staged.record.iter().chain(&staged.group).chain(&staged.own);
        made.extend(all.map(|file| file.from.clone()));
        made.sort();
        made.dedup();
        self.staged = staged;
        files::sync_paths(&made)
    }

    fn show(&mut self, change: &Change) -> Result<bool> {
        install(&self.staged.record)?;
        let mut changed = vec![self.path.clone()];
        match &change.commit {
            Commit::Nothing => {}
            Commit::Record(_) => changed.push(record::directory(&self.path)),
            Commit::Checkpoint { new, place, .. } => {
                files::rename(new, place)?;
                changed.push(record::checkpoints(&self.path));
            }
        }
        install(&self.staged.group)?;
        files::sync_paths(&changed)?;
        Ok(true)
    }

    fn follow(&mut self, _: &Change) -> Result<()> {
        let own = std::mem::take(&mut self.staged).own;
        self.metadata_lock = None;
        install(&own)
    }

    fn write_number(&mut self, array: &str, index: u64, number: [u8; 8]) -> Result<Vec<PathBuf>> {
        let path = number_path(&self.path, array, index);
        if let Some(parent) = path.parent()
            && !parent.exists()
        {
            files::make_directory(parent)?;
            files::sync_path(&self.path.join(array))?;
        }
        let file = open_to_write(&path, TIMES * 8)?;
        files::write_at(&file, &number, index % TIMES * 8, &path)?;
        Ok(vec![path])
    }

    fn write_sums(&mut self, name: &str, place: u64, sums: &Sums) -> Result<Vec<PathBuf>> {
        let path = record::sums_file(&self.path, name);
        write_part(path, &sums::encode(sums), place * SUM_BYTES)
    }

    fn write_bounds(&mut self, name: &str, place: u64, bounds: &AllBounds) -> Result<Vec<PathBuf>> {
        let directory = record::bounds_directory(&self.path);
        if !directory.is_dir() {
            make_directory(&directory)?;
            files::sync_parent(&directory)?;
        }
        let path = record::bounds_file(&self.path, name);
        write_part(path, &bounds::encode(bounds), place * BOUNDS_BYTES)
    }

    fn remove_leftovers(&mut self, arrays: &[String]) -> Result<()> {
        files::remove_but(&KEPT, &record::directory(&self.path))?;
        let mut arrays = arrays.iter();
        arrays.try_for_each(|name| Location::remove_aside(&self.path.join(name)))
    }

    fn remove_chunks(&mut self, array: &str, first: u64, remains: Remains) -> Result<()> {
        let directory = self.path.join(array);
        let next = directory.join("c").join(first.to_string());
        if remains != Remains::Timesteps && !next.exists() {
            return Ok(());
        }
        // The sync makes the array's shorter metadata last, also after a power failure.
        files::sync_path(&directory)?;
        remove_chunks_from(first, &directory)
    }

    fn new_checkpoint(&self, _: &str) -> PathBuf {
        record::directory(&self.path).join("new")
    }

    fn write_checkpoint_digests(
        &mut self,
        new: &Path,
        arrays: &[SavedArray],
    ) -> Result<Vec<PathBuf>> {
        let mut made = Vec::with_capacity(arrays.len());
        for array in arrays {
            let place = record::checkpoint_sums_file(new, &array.name);
            files::write(&place, &sums::encode(&array.sums))?;
            made.push(place);
            if let Some(bounds) = &array.bounds {
                let place = record::checkpoint_bounds_file(new, &array.name);
                files::write(&place, &bounds::encode(bounds))?;
                made.push(place);
            }
        }
        Ok(made)
    }

    /// Renames the checkpoint out of the way before it is removed: one removed in part would not be
    /// complete.
    fn remove_checkpoint(&mut self, checkpoint: &Path) -> Result<()> {
        let old = record::directory(&self.path).join("old");
        remove_if_there(&old)?;
        ops::rename(checkpoint, &old).map_err(|e| Error::io(&e, "removing", checkpoint))?;
        files::sync_path(&record::checkpoints(&self.path))?;
        remove_if_there(&old)
    }
}

/// Renames staged files into place. Each file is the old or the new one at any moment, also after a
/// crash.
fn install(staged: &[StagedFile]) -> Result<()> {
    staged
        .iter()
        .try_for_each(|StagedFile { from, place }| files::rename(from, place))
}

/// Writes bytes at an offset of a file, which is made if it is not there. Gives the path, which is
/// yet to be synced.
fn write_part(path: PathBuf, bytes: &[u8], offset: u64) -> Result<Vec<PathBuf>> {
    let file = open_to_write(&path, 0)?;
    files::write_at(&file, bytes, offset, &path)?;
    Ok(vec![path])
}

/// Opens a file to write. A new file begins with `bytes` zeros, and its directory is synced.
fn open_to_write(path: &Path, bytes: u64) -> Result<File> {
    let is_new = !path.exists();
    let mut options = File::options();
    options.read(true).write(true).create(true);
    let file = ops::create(&options, path).map_err(|e| Error::io(&e, "opening", path))?;
    if files::length(&file, path)? < bytes {
        ops::set_len(&file, bytes, path)
            .map_err(|e| Error::io(&e, "setting the length of", path))?;
    }
    if is_new {
        files::sync_parent(path)?;
    }
    Ok(file)
}
