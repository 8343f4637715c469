//! Timesteps: written in place, and made visible by renaming.

use std::path::{Path, PathBuf};

use crc32c::crc32c;
use penstock_engine::{Error, Kind, Result};
use penstock_layout::DiskSchema;
use serde_json::Value;

use super::ZarrGroup;
use super::group::{SavedArray, Timesteps};
use super::metadata::{Metadata, TIMES, number_path};
use super::store::{Change, Commit, Remains};
use crate::formats::record::{self, Growth, Record, TIME};
use crate::formats::spread::{SpreadArray, of_server};
use crate::formats::sums::Sums;
use crate::formats::zarr::Location;
use crate::formats::{Form, Target, whole_in_bucket};
use crate::fs::files::{self, damaged};

/// The most tries to change the metadata of a group that others change, too.
const TRIES_MAX: u32 = 100;

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
        let next = self
            .record
            .grown(arrays.iter().map(|(name, rows)| (name.as_str(), *rows)));
        self.store
            .announce(&self.metadata.own_files(&self.path, &next))?;
        let arrays = arrays.iter().map(|(name, rows)| {
            let rows = self.next_rows(name, *rows);
            let (disk, mut location) =
                rows_of(self.place(), &self.metadata, name, rows, block_bytes)?;
            location.grows = true;
            if let Some(of) = &mut location.spread {
                *of = self.beside(name, of.spread.clone())?;
            }
            Ok((
                disk,
                self.with_digests(name, Target::new(Form::Zarr(location)))?,
            ))
        });
        arrays.collect()
    }

    fn last_time(&self) -> Result<Option<f64>> {
        match self.timesteps().checked_sub(1) {
            None => Ok(None),
            Some(last) => time_of(&self.path, last).map(Some),
        }
    }

    fn commit_timestep(&mut self, time: f64, arrays: &[SavedArray]) -> Result<()> {
        let index = self.timesteps();
        let rows = arrays.iter();
        let rows = rows.map(|array| (array.name.as_str(), array.rows));
        let next = self.record.grown(rows);
        let mut made = self.write_number(TIME, index, time.to_ne_bytes())?;
        for array in arrays {
            let name = &array.name;
            let rows = self.next_rows(name, array.rows);
            made.extend(self.write_sums(name, rows, &array.sums)?);
            if let Some(bounds) = &array.bounds {
                let place = digests_place(&self.metadata, &self.record, name, rows)?;
                made.extend(self.store.write_bounds(name, place, bounds)?);
            }
        }
        for (dimension, end) in &next.rows {
            let start = self.record.rows.get(dimension).copied().unwrap_or(0);
            let [start_array, count_array] = record::row_arrays(dimension);
            made.extend(self.write_number(&start_array, index, start.to_ne_bytes())?);
            made.extend(self.write_number(&count_array, index, (end - start).to_ne_bytes())?);
        }
        self.publish(next, made)
    }

    fn abandon_timestep(&mut self) -> Result<()> {
        if let Some(record) = Record::read(&self.path)? {
            self.record = record;
        }
        self.store.remove_leftovers(&self.record.names())?;
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
    /// A target of an array whose servers are to make digests of what they write.
    pub(super) fn with_digests(&self, name: &str, target: Target) -> Result<Target> {
        if !self.record.bounded.contains(name) {
            return Ok(target.with_sums());
        }
        let element = self.metadata.schema(name)?.element;
        Ok(target.with_bounds(&element))
    }

    fn next_rows(&self, name: &str, count: u64) -> Rows {
        Rows {
            timestep: self.record.timesteps,
            start: self.record.length(name).unwrap_or(0),
            count,
        }
    }

    /// Makes another record visible, after the files in `made` have been synced. All files that
    /// take space are written first: on a full disk this fails, and nothing is visible.
    pub(super) fn publish(&mut self, next: Record, made: Vec<PathBuf>) -> Result<()> {
        let commit = Commit::Record(next.json());
        self.show(commit, next, made, &Nodes::default())
    }

    /// Brings the metadata of the group, and of each array, to the record, if they are not there
    /// yet.
    pub(super) fn write_metadata(&mut self, made: Vec<PathBuf>) -> Result<()> {
        self.show(
            Commit::Nothing,
            self.record.clone(),
            made,
            &Nodes::default(),
        )
    }

    /// Commits a change, and shows it in the metadata. Others may change these at the same time:
    /// then they are looked at again.
    pub(super) fn show(
        &mut self,
        mut commit: Commit,
        record: Record,
        mut made: Vec<PathBuf>,
        nodes: &Nodes,
    ) -> Result<()> {
        for _ in 0..TRIES_MAX {
            self.store.hold_metadata()?;
            self.metadata
                .look_again(&self.path, &nodes.added, &nodes.gone)?;
            let change = Change {
                commit,
                group: self.metadata.whole(&record),
                own: self.metadata.own_files(&self.path, &record),
            };
            let made = std::mem::take(&mut made);
            let is_shown = change.is_empty() && made.is_empty();
            if !is_shown {
                self.store.stage(&change, made)?;
            }
            if is_shown || self.store.show(&change)? {
                self.record = record;
                self.store.follow(&change)?;
                self.metadata.is_stored(&self.record);
                return Ok(());
            }
            commit = Commit::Nothing;
        }
        let cause = "other programs change the group's metadata all the time";
        Err(Error::new(Kind::Busy, "writing to a group", cause).at(&self.path))
    }

    /// Removes chunks beyond the record's rows. The chunks of an abandoned timestep follow directly
    /// on the chunks of stored rows.
    pub(super) fn remove_rows_beyond(&mut self) -> Result<()> {
        for name in self.record.names() {
            let schema = self.metadata.schema(&name)?;
            let Some(rows_a_chunk) = schema.disk.chunk_rows() else {
                continue;
            };
            let length = self.record.length(&name).unwrap_or(0);
            let remains = match self.record.arrays.get(&name) {
                _ if self.record.dropped_from.is_some() => Remains::Timesteps,
                Some(Growth::Rows(_)) => Remains::Rows,
                _ => Remains::Row,
            };
            let first = length.div_ceil(rows_a_chunk);
            self.store.remove_chunks(&name, first, remains)?;
        }
        Ok(())
    }

    /// Writes the number of a timestep, and its checksum, into an array of one number a timestep.
    /// Gives the paths that are yet to be synced.
    fn write_number(&mut self, array: &str, index: u64, number: [u8; 8]) -> Result<Vec<PathBuf>> {
        let mut made = self.store.write_number(array, index, number)?;
        let rows = Rows {
            timestep: index,
            start: index,
            count: 1,
        };
        made.extend(self.write_sums(array, rows, &vec![Some(crc32c(&number))])?);
        Ok(made)
    }

    /// Writes the checksums of a timestep of an array. Gives the paths that are yet to be synced.
    fn write_sums(&mut self, name: &str, rows: Rows, sums: &Sums) -> Result<Vec<PathBuf>> {
        let place = digests_place(&self.metadata, &self.record, name, rows)?;
        self.store.write_sums(name, place, sums)
    }
}

/// The checkpoints that will have come and gone when a change is shown.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// The nodes of a new checkpoint, by their paths in the group.
    pub(super) added: Vec<(String, Value)>,
    /// The names of checkpoints.
    pub(super) gone: Vec<String>,
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
    let disk = whole_in_bucket(&location.directory, disk.window(rows.start..end))?;
    Ok((disk, location))
}

/// The place of a timestep's checksums among those of an array, and of its bounds among the bounds.
/// A timestep has one for each chunk, or part of a chunk, that it has.
///
/// ```text
/// timestep        0       1       2        a chunk that two timesteps share has a checksum in
/// chunks          0 1     1 2     3        each: timestep t's begin at place (first chunk + t)
/// place           0 1     2 3     5
/// ```
pub(super) fn digests_place(
    metadata: &Metadata,
    record: &Record,
    name: &str,
    rows: Rows,
) -> Result<u64> {
    let disk = metadata.schema(name)?.disk_schema(1)?;
    Ok(digests_place_in(&disk, record.arrays.get(name), rows))
}

/// [`digests_place`], in an array of this disk schema and growth.
pub(super) fn digests_place_in(disk: &DiskSchema, growth: Option<&Growth>, rows: Rows) -> u64 {
    let others: u64 = disk.grid().iter().skip(1).product();
    let place = match growth {
        Some(Growth::Rows(_)) => rows.start / disk.chunk()[0] + rows.timestep,
        _ => rows.timestep,
    };
    place * others
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

/// The number of a timestep, in an array of one number a timestep.
fn number_of(group: &Path, array: &str, index: u64) -> Result<[u8; 8]> {
    let path = number_path(group, array, index);
    let mut bytes = [0; 8];
    let missing = || damaged(&path, format!("what {array} says of a timestep is missing"));
    match files::read_part_if_there(&path, &mut bytes, index % TIMES * 8)? {
        true => Ok(bytes),
        false => Err(missing()),
    }
}

/// The time of a timestep.
pub(super) fn time_of(group: &Path, index: u64) -> Result<f64> {
    number_of(group, TIME, index).map(f64::from_ne_bytes)
}
