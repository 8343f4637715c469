//! Timesteps: written in place, and made visible by renaming.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crc32c::crc32c;
use penstock_engine::{Error, Result};
use penstock_layout::DiskSchema;

use super::metadata::{Metadata, TIMES};
use super::{Timesteps, ZarrGroup};
use crate::formats::record::{self, Growth, Record, TIME};
use crate::formats::spread::{SpreadArray, of_server};
use crate::formats::sums::{self, SUM_BYTES, Sums};
use crate::formats::zarr::{Location, remove_chunks_from};
use crate::formats::{Form, Target};
use crate::fs::files::{self, damaged, open_if_there, remove_if_there};
use crate::fs::ops;
use crate::write::lock_group;

/// The rows of one timestep of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) timestep: u64,
    pub(super) start: u64,
    pub(super) count: u64,
}

impl Timesteps for ZarrGroup {
    fn check_servers(&self, servers: usize) -> Result<()> {
        self.spread()?
            .map_or(Ok(()), |spread| spread.check_servers(servers))
    }

    fn time_chunk(&self) -> u64 {
        self.record.time_chunk
    }

    fn timesteps(&self) -> u64 {
        self.record.timesteps
    }

    fn begin_timestep(
        &mut self,
        arrays: &[(String, u64)],
        block_bytes: u64,
    ) -> Result<Vec<(DiskSchema, Target)>> {
        let arrays = arrays.iter().map(|(name, rows)| {
            let rows = self.next_rows(name, *rows);
            let (disk, mut location) =
                rows_of(self.place(), &self.metadata, name, rows, block_bytes)?;
            location.grows = true;
            if let Some(of) = &mut location.spread {
                *of = self.beside(name, of.spread.clone())?;
            }
            Ok((disk, Target::new(Form::Zarr(location)).with_sums()))
        });
        arrays.collect()
    }

    fn last_time(&self) -> Result<Option<f64>> {
        match self.timesteps().checked_sub(1) {
            None => Ok(None),
            Some(last) => time_of(&self.path, last).map(Some),
        }
    }

    fn commit_timestep(&mut self, time: f64, arrays: &[(String, u64, Sums)]) -> Result<()> {
        let index = self.timesteps();
        let mut next = self.record.clone();
        next.timesteps += 1;
        let mut made = self.write_number(TIME, index, time.to_ne_bytes())?;
        for (name, count, sums) in arrays {
            let rows = self.next_rows(name, *count);
            made.push(self.write_sums(name, rows, sums)?);
            if let Some(Growth::Rows(dimension)) = self.record.arrays.get(name)
                && let Some(length) = next.rows.get_mut(dimension)
                && *length == rows.start
            {
                *length += count;
                let [start_array, count_array] = record::row_arrays(dimension);
                made.extend(self.write_number(&start_array, index, rows.start.to_ne_bytes())?);
                made.extend(self.write_number(&count_array, index, count.to_ne_bytes())?);
            }
        }
        self.publish(next, made)
    }

    fn abandon_timestep(&mut self) -> Result<()> {
        if let Some(record) = Record::read(&self.path)? {
            self.record = record;
        }
        self.remove_leftovers()?;
        self.remove_rows_beyond()
    }

    fn drop_timesteps(&mut self, first: u64) -> Result<()> {
        let there = self.timesteps();
        if first >= there {
            return Ok(());
        }
        let mut next = self.record.clone();
        for (dimension, rows) in &mut next.rows {
            let [start_array, _] = record::row_arrays(dimension);
            *rows = u64::from_ne_bytes(number_of(&self.path, &start_array, first)?);
        }
        next.timesteps = first;
        next.dropped_from = Some(there);
        self.publish(next, Vec::new())?;
        self.remove_rows_beyond()
    }
}

impl ZarrGroup {
    fn next_rows(&self, name: &str, count: u64) -> Rows {
        Rows {
            timestep: self.record.timesteps,
            start: self.record.length(name).unwrap_or(0),
            count,
        }
    }

    /// Makes another record visible, after the files in `before` have been synced. All files that
    /// take space are written first: on a full disk this fails, and nothing is visible.
    pub(super) fn publish(&mut self, next: Record, before: Vec<PathBuf>) -> Result<()> {
        let _lock = lock_group(&self.path)?;
        self.metadata.look_again(&self.path, &[], &[])?;
        let record = [self.stage("record", record::file(&self.path), &next.json())?];
        let whole = self.metadata.whole(&next);
        let group = [self.stage("group", self.path.join("zarr.json"), &whole)?];
        let own = self.stage_own(&next)?;
        sync(record.iter().chain(&group).chain(&own), before)?;
        install(&record)?;
        install(&group)?;
        files::sync_paths(&[record::directory(&self.path), self.path.clone()])?;
        self.record = next;
        install(&own)
    }

    /// Brings the metadata of the group, and of each array, to the record, if they are not there
    /// yet.
    pub(super) fn write_metadata(&mut self) -> Result<()> {
        let _lock = lock_group(&self.path)?;
        self.metadata.look_again(&self.path, &[], &[])?;
        let place = self.path.join("zarr.json");
        let whole = self.metadata.whole(&self.record);
        let mut staged = Vec::new();
        if files::read_json(&place)?.is_none_or(|there| there != whole) {
            staged.push(self.stage("group", place, &whole)?);
        }
        staged.extend(self.stage_own(&self.record)?);
        if staged.is_empty() {
            return Ok(());
        }
        sync(&staged, Vec::new())?;
        install(&staged)?;
        files::sync_path(&self.path)
    }

    /// Writes aside a file that is to take the place of another. The file is yet to be synced.
    pub(super) fn stage(
        &self,
        name: &str,
        place: PathBuf,
        json: &serde_json::Value,
    ) -> Result<StagedFile> {
        let from = record::directory(&self.path).join(format!("new-{name}"));
        remove_if_there(&from)?;
        files::write_json(&from, json)?;
        Ok(StagedFile { from, place })
    }

    /// Writes aside the metadata of each array whose file is out of date.
    fn stage_own(&self, record: &Record) -> Result<Vec<StagedFile>> {
        let own = self.metadata.own_files(&self.path, record)?;
        let staged = own.into_iter().enumerate();
        staged
            .map(|(number, (place, json))| self.stage(&format!("own-{number}"), place, &json))
            .collect()
    }

    /// Removes chunks beyond the record's rows. The chunks of an abandoned timestep follow directly
    /// on the chunks of stored rows.
    pub(super) fn remove_rows_beyond(&self) -> Result<()> {
        for name in self.record.names() {
            let schema = self.metadata.schema(&name)?;
            let Some(rows_a_chunk) = schema.disk.chunk_rows() else {
                continue;
            };
            let first = self
                .record
                .length(&name)
                .unwrap_or(0)
                .div_ceil(rows_a_chunk);
            let directory = self.path.join(&name);
            let next = directory.join("c").join(first.to_string());
            if self.record.dropped_from.is_none() && !next.exists() {
                continue;
            }
            // The sync makes the array's shorter metadata last, also after a power failure.
            files::sync_path(&directory)?;
            remove_chunks_from(first, &directory)?;
        }
        Ok(())
    }

    /// Writes the number of a timestep, and its checksum, into an array of one number a timestep.
    /// Gives the paths that are yet to be synced.
    fn write_number(&self, array: &str, index: u64, number: [u8; 8]) -> Result<Vec<PathBuf>> {
        let path = number_path(&self.path, array, index);
        if let Some(parent) = path.parent()
            && !parent.exists()
        {
            files::make_directory(parent)?;
            files::sync_path(&self.path.join(array))?;
        }
        let file = open_to_write(&path, TIMES * 8)?;
        files::write_at(&file, &number, index % TIMES * 8, &path)?;
        let rows = Rows {
            timestep: index,
            start: index,
            count: 1,
        };
        let sums = self.write_sums(array, rows, &vec![Some(crc32c(&number))])?;
        Ok(vec![path, sums])
    }

    /// Writes the checksums of a timestep of an array. Gives the path that is yet to be synced.
    fn write_sums(&self, name: &str, rows: Rows, sums: &Sums) -> Result<PathBuf> {
        let path = record::sums_file(&self.path, name);
        let offset = sums_offset(&self.metadata, &self.record, name, rows)?;
        let file = open_to_write(&path, 0)?;
        files::write_at(&file, &sums::encode(sums), offset, &path)?;
        Ok(path)
    }
}

/// Opens a file to write. A new file begins with `bytes` zeros, and its directory is synced.
fn open_to_write(path: &Path, bytes: u64) -> Result<std::fs::File> {
    let is_new = !path.exists();
    let mut options = std::fs::OpenOptions::new();
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

/// A file that was written aside, and the place to which it is to be renamed.
pub(super) struct StagedFile {
    from: PathBuf,
    place: PathBuf,
}

pub(super) fn sync<'a>(
    staged: impl IntoIterator<Item = &'a StagedFile>,
    mut others: Vec<PathBuf>,
) -> Result<()> {
    others.extend(staged.into_iter().map(|staged| staged.from.clone()));
    others.sort();
    others.dedup();
    files::sync_paths(&others)
}

/// Renames staged files into place. Each file is the old or the new one at any moment, also after a
/// crash.
pub(super) fn install(staged: &[StagedFile]) -> Result<()> {
    staged
        .iter()
        .try_for_each(|StagedFile { from, place }| files::rename(from, place))
}

/// The disk schema of rows of an array of the group at `path`, which may contain `{server}`, and
/// their location.
pub(super) fn rows_of(
    path: &Path,
    metadata: &Metadata,
    name: &str,
    rows: Rows,
    block_bytes: u64,
) -> Result<(DiskSchema, Location)> {
    let mut schema = metadata.schema(name)?;
    let end = rows.start + rows.count;
    schema.shape[0] = end;
    let disk = schema.disk_schema(block_bytes)?;
    let rows_a_chunk = schema.disk.chunk_rows().ok_or_else(|| {
        let cause = "its chunks have different numbers of rows, so it does not grow";
        damaged(&of_server(path, 0).join(name), cause)
    })?;
    let spread = metadata.spread(path, name)?;
    let form = metadata.chunk_form(name)?;
    let location = Location {
        first_chunk: rows.start / rows_a_chunk,
        spread: spread.map(|spread| SpreadArray::new(name, spread)),
        ..Location::new(of_server(path, 0).join(name), form)
    };
    Ok((disk.window(rows.start..end), location))
}

/// The offset of a timestep's checksums in the file of an array's checksums. A timestep has one for
/// each chunk, or part of a chunk, that it has.
///
/// ```text
/// timestep        0       1       2        a chunk that two timesteps share has a checksum in
/// chunks          0 1     1 2     3        each: timestep t's begin at place (first chunk + t)
/// place           0 1     2 3     5
/// ```
pub(super) fn sums_offset(
    metadata: &Metadata,
    record: &Record,
    name: &str,
    rows: Rows,
) -> Result<u64> {
    let schema = metadata.schema(name)?;
    let disk = schema.disk_schema(1)?;
    let others: u64 = disk.grid().iter().skip(1).product();
    let place = match record.arrays.get(name) {
        Some(Growth::Rows(_)) => rows.start / disk.chunk()[0] + rows.timestep,
        _ => rows.timestep,
    };
    Ok(place * others * SUM_BYTES)
}

/// The rows of a timestep of an array.
///
/// # Errors
/// When the rows are not known.
pub(super) fn rows_at(path: &Path, record: &Record, name: &str, index: u64) -> Result<Rows> {
    let (start, count) = match record.arrays.get(name) {
        Some(Growth::Rows(dimension)) => {
            let [start_array, count_array] = record::row_arrays(dimension);
            let start = u64::from_ne_bytes(number_of(path, &start_array, index)?);
            (
                start,
                u64::from_ne_bytes(number_of(path, &count_array, index)?),
            )
        }
        _ => (index, 1),
    };
    Ok(Rows {
        timestep: index,
        start,
        count,
    })
}

fn number_path(group: &Path, array: &str, index: u64) -> PathBuf {
    let chunk = (index / TIMES).to_string();
    group.join(array).join("c").join(chunk)
}

/// The number of a timestep, in an array of one number a timestep.
fn number_of(group: &Path, array: &str, index: u64) -> Result<[u8; 8]> {
    let path = number_path(group, array, index);
    let mut bytes = [0; 8];
    let missing = || damaged(&path, format!("what {array} says of a timestep is missing"));
    let opened = open_if_there(&path)?.ok_or_else(missing)?;
    opened
        .read_exact_at(&mut bytes, index % TIMES * 8)
        .map_err(|e| damaged(&path, e))?;
    Ok(bytes)
}

/// The time of a timestep.
pub(super) fn time_of(group: &Path, index: u64) -> Result<f64> {
    number_of(group, TIME, index).map(f64::from_ne_bytes)
}
