//! Reads all objects again and compares them with their checksums: a group's own, and the checksums
//! that codecs keep in other arrays.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use penstock_bucket::is_url;
use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Block, DiskSchema, Split, exact};
use penstock_machines::Medium;

use super::bounds::bounds_of;
use super::catalog::{Contents, Entry, checkpoint_sums, list, open};
use super::found::Catalog;
use super::metadata::Metadata;
use super::objects::{read_sums, timestep_sums_object};
use super::timestep::{Rows, digests_place, rows_at, rows_of, time_of};
use super::{former, in_file};
use crate::Progress;
use crate::codec::Codec;
use crate::formats::hdf5::{self, describe::is_hdf5_file};
use crate::formats::record::{self, CHECKPOINTS, Growth, Record, VERSION};
use crate::formats::spread::of_server;
use crate::formats::sums::{self, Parts, SUM_BYTES, Sums};
use crate::formats::{Form, Target, whole_in_bucket};
use crate::fs::files::{self, damaged, open_if_there};
use crate::read::StoredArray;
use crate::schema::Storage;

/// The most bytes of a block that is read at once, where the store leaves a choice.
const BLOCK_BYTES: u64 = 1 << 20;

/// The result of a verification.
#[derive(Debug, Default)]
pub struct Verification {
    /// The timesteps that were read.
    pub timesteps: u64,
    /// The checkpoints that were read.
    pub checkpoints: u64,
    /// The arrays that were read, but for the arrays of timesteps and checkpoints.
    pub arrays: u64,
    /// The chunks that were read, counted again in each timestep.
    pub chunks: u64,
    /// The chunks that were compared with a checksum, of Penstock or of their codec.
    pub compared: u64,
    /// The chunks without a checksum that are missing, and read as the fill value. Nothing says
    /// whether they should be there.
    pub absent: u64,
    /// The decoded bytes of the chunks.
    pub bytes: u64,
    /// The nodes that Penstock cannot read, each with the reason.
    pub unread: Vec<(String, Error)>,
    /// The damages that were found.
    pub damages: Vec<Error>,
}

impl Verification {
    /// Whether no chunk had a checksum to compare with.
    pub fn is_unfounded(&self) -> bool {
        self.compared == 0 && self.damages.is_empty()
    }

    /// The result in words: the damages, and the chunks that were not compared.
    pub fn verdict(&self) -> String {
        let count = |count: u64, one: &str, many: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {many}")),
        };
        let unsummed = self.chunks.saturating_sub(self.compared + self.absent);
        let left = [
            count(
                unsummed,
                "chunk without a checksum",
                "chunks without a checksum",
            ),
            count(
                self.absent,
                "chunk that is not there",
                "chunks that are not there",
            ),
            count(
                self.unread.len() as u64,
                "array that is not supported",
                "arrays that are not supported",
            ),
        ];
        let left: Vec<String> = left.into_iter().flatten().collect();
        let verdict = match self.damages.len() {
            0 if self.is_unfounded() => "there was nothing to compare with".to_string(),
            0 if left.is_empty() => "all is well".to_string(),
            0 => "what was compared is well".to_string(),
            1 => "1 is damaged".to_string(),
            count => format!("{count} are damaged"),
        };
        match left.is_empty() {
            true => verdict,
            false => format!("{verdict}; not compared: {}", left.join(", ")),
        }
    }
}

/// Reads every chunk at `path`: of a group with timesteps and checkpoints, of any other Zarr
/// hierarchy, or of an array of any other form. Chunks with checksums are compared. `tell` hears
/// first of the number of decoded bytes, then of the bytes that are read; it may end the
/// verification by an error of [`Kind::Peer`].
///
/// # Errors
/// When nothing is at `path`. Damaged contents are in the result.
pub fn verify(path: &Path, tell: &mut dyn FnMut(Progress) -> Result<()>) -> Result<Verification> {
    let path = files::absolute(path)?;
    let mut verified = Verification::default();
    let saved = match Record::read(&of_server(&path, 0)) {
        Ok(record) => record,
        Err(error) => {
            verified.damages.push(error);
            None
        }
    };
    let entries = list(&path)?;
    let all = entries.iter().map(|entry| match &entry.contents {
        Contents::Array(schema) => schema.bytes(),
        _ => 0,
    });
    tell(Progress::All(all.sum()))?;
    if let Some(record) = &saved {
        verified.check_saved(&path, record, tell)?;
    }
    let is_saved = |entry: &str| {
        saved.as_ref().is_some_and(|record| {
            let is_own = match record.penstock {
                VERSION => record.length(entry).is_some(),
                _ => record.arrays.contains_key(entry),
            };
            is_own
                || entry
                    .strip_prefix(CHECKPOINTS)
                    .is_some_and(|rest| rest.starts_with('/'))
        })
    };
    verified.check_nodes(&path, entries, is_saved, tell)?;
    if !is_url(&path)
        && let Some(catalog) = in_file::catalog(&path)?
    {
        verified.timesteps = catalog.timesteps;
        for checkpoint in catalog.checkpoints {
            verified.checkpoints += 1;
            let entries = list(&checkpoint.path)?;
            verified.check_nodes(&checkpoint.path, entries, |_| false, tell)?;
        }
    }
    Ok(verified)
}

/// The path of the group or file that holds a node, and the node's name there; no name for the node
/// at `path` itself, and for a dataset, which its path names.
fn place_of(path: &Path, entry: &str) -> (PathBuf, Option<String>) {
    if !entry.is_empty() && (is_hdf5_file(path) || hdf5::name::split(path).is_some()) {
        let colon = if is_hdf5_file(path) { ":" } else { "" };
        let dataset = format!("{}{colon}/{entry}", path.display());
        return (dataset.into(), None);
    }
    match entry.rsplit_once('/') {
        None if entry.is_empty() => (path.to_path_buf(), None),
        None => (path.to_path_buf(), Some(entry.to_string())),
        Some((above, name)) => (path.join(above), Some(name.to_string())),
    }
}

/// Whether decoding compares a chunk with a checksum.
fn codec_has_checksum(disk: &Storage) -> bool {
    let codec = match disk {
        Storage::Chunks { codec, .. } => codec,
        Storage::Hdf5 { filters, .. } => {
            return filters.split('+').any(|word| word == "fletcher32");
        }
        _ => return false,
    };
    match codec.parse() {
        Ok(Codec::Word { crc32c, .. }) => crc32c,
        Ok(Codec::Chain(chain)) => chain.iter().any(|codec| {
            let name = codec.as_str().or_else(|| codec["name"].as_str());
            matches!(name, Some("crc32c" | "adler32" | "fletcher32" | "gzip"))
                || codec["configuration"]["checksum"] == true
        }),
        Err(_) => false,
    }
}

/// The rows of an array that are read at once: their chunks are compared one by one.
struct Part<'a> {
    target: &'a Target,
    disk: &'a DiskSchema,
}

impl Verification {
    /// Notes a damage. Gives an error back if it comes from `tell`, which wants to stop.
    fn note(&mut self, checked: Result<()>) -> Result<()> {
        match checked {
            Err(error) if error.kind == Kind::Peer => return Err(error),
            Err(error) => self.damages.push(error),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Reads the arrays that are listed at `path`, but for those that are saved with a group.
    fn check_nodes(
        &mut self,
        path: &Path,
        entries: Vec<Entry>,
        is_saved: impl Fn(&str) -> bool,
        tell: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<()> {
        for entry in entries {
            match entry.contents {
                Contents::Group(_) => {}
                _ if is_saved(&entry.path) => {}
                Contents::Array(schema) => {
                    self.arrays += 1;
                    let (place, name) = place_of(path, &entry.path);
                    let checked = self.check_by_codec(&place, name.as_deref(), &schema.disk, tell);
                    self.note(checked)?;
                }
                Contents::Unreadable(error) if error.kind == Kind::Unsupported => {
                    self.unread.push((entry.path, error));
                }
                Contents::Unreadable(error) => self.damages.push(error),
            }
        }
        Ok(())
    }

    /// Compares all timesteps and checkpoints of a group.
    fn check_saved(
        &mut self,
        path: &Path,
        record: &Record,
        tell: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<()> {
        let first = of_server(path, 0);
        let metadata = match Metadata::read(&first, record) {
            Ok(metadata) => metadata,
            Err(error) => {
                self.damages.push(error);
                return Ok(());
            }
        };
        for index in 0..record.timesteps {
            self.note(time_of(&first, index).map(drop))?;
        }
        self.timesteps = record.timesteps;
        let names = match record.penstock {
            VERSION => record.names(),
            _ => record.arrays.keys().cloned().collect(),
        };
        for name in &names {
            let checked = self.check_timesteps(path, &metadata, record, name, tell);
            self.note(checked)?;
            if record.bounded.contains(name) {
                self.note(open(path, Some(name)).and_then(|stored| check_bounds(&stored)))?;
            }
        }
        let catalog = Catalog::read(path);
        let checkpoints = match catalog {
            Ok(catalog) => catalog.map_or(Vec::new(), |catalog| catalog.checkpoints),
            Err(error) => {
                self.damages.push(error);
                Vec::new()
            }
        };
        for checkpoint in checkpoints {
            self.checkpoints += 1;
            for name in record.arrays.keys() {
                let checked = self.check_checkpoint(&checkpoint.path, name, tell);
                self.note(checked)?;
            }
        }
        Ok(())
    }

    fn check_checkpoint(
        &mut self,
        checkpoint: &Path,
        name: &str,
        tell: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<()> {
        let stored = match open(checkpoint, Some(name)) {
            // The array was added to the group later.
            Err(error) if error.kind == Kind::Missing => return Ok(()),
            opened => opened?,
        };
        let disk = whole_in_bucket(checkpoint, stored.disk_schema(BLOCK_BYTES)?)?;
        let known = checkpoint_sums(checkpoint, name, disk.objects())?;
        self.note(check_bounds(&stored))?;
        let part = Part {
            target: stored.target(),
            disk: &disk,
        };
        self.check_part(&part, &[known.as_ref()], tell)
    }

    /// Compares all timesteps of an array. If encoded chunks hold several timesteps, the timesteps
    /// of a chunk are read together.
    fn check_timesteps(
        &mut self,
        path: &Path,
        metadata: &Metadata,
        record: &Record,
        name: &str,
        tell: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<()> {
        let first = of_server(path, 0);
        let mut index = 0;
        while index < record.timesteps {
            let rows = rows_at(&first, record, name, index)?;
            let (disk, _) = rows_of(path, metadata, name, rows, BLOCK_BYTES)?;
            let is_ragged = matches!(record.arrays.get(name), Some(Growth::Rows(_)));
            let is_one_by_one = is_ragged || *disk.split_of() != Split::Whole;
            let together = match is_one_by_one {
                true => 1,
                false => {
                    (disk.chunk()[0] - rows.start % disk.chunk()[0]).min(record.timesteps - index)
                }
            };
            let all = Rows {
                count: rows.count * together,
                ..rows
            };
            let (disk, location) = rows_of(path, metadata, name, all, BLOCK_BYTES)?;
            let mut known = Vec::new();
            for step in index..index + together {
                let rows = Rows {
                    timestep: step,
                    start: rows.start + step - index,
                    count: rows.count,
                };
                known.push(timestep_sums(&first, metadata, record, name, rows, &disk)?);
            }
            let steps: Vec<_> = known.iter().map(Option::as_ref).collect();
            let target = Target::new(Form::Zarr(location));
            let part = Part {
                target: &target,
                disk: &disk,
            };
            self.check_part(&part, &steps, tell)?;
            index += together;
        }
        Ok(())
    }

    /// Reads the chunks of a part. Each chunk holds one timestep for each entry of `steps`, which
    /// has the timestep's known checksums.
    fn check_part(
        &mut self,
        part: &Part<'_>,
        steps: &[Option<&Sums>],
        tell: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<()> {
        let medium = part.target.open_read(part.disk)?;
        for object in 0..part.disk.objects() {
            let place = part.disk.object_blocks(object).next();
            let place = place.and_then(|block| part.target.place_of(part.disk, &block).ok());
            let path = place.map(|(path, _)| path);
            let is_there = path.as_deref().is_none_or(files::is_there);
            let found = of_object(&*medium, part, object, steps.len());
            tell(Progress::More(
                part.disk.object_region(object).elements() * part.disk.width(),
            ))?;
            self.bytes += part.disk.object_region(object).elements() * part.disk.width();
            self.chunks += steps.len() as u64;
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    self.damages.push(error);
                    continue;
                }
            };
            for (sum, known) in found.into_iter().zip(steps) {
                let Some(known) = known else {
                    self.absent += u64::from(!is_there);
                    continue;
                };
                self.compared += 1;
                let cause = match known.get(exact::<usize>(object)).copied().flatten() {
                    Some(_) if !is_there => "the chunk is missing".to_string(),
                    Some(expected) if sum == expected => continue,
                    Some(expected) => {
                        format!("its checksum is {sum:08x}, and {expected:08x} when it was written")
                    }
                    None if !is_there => continue,
                    // Another timestep of the chunk may have been written.
                    None if steps.len() > 1 || part.disk.rows_before() > 0 => continue,
                    None => "it has no checksum".to_string(),
                };
                let error = Error::new(Kind::Damaged, "verifying", cause);
                self.damages.push(match &path {
                    Some(path) => error.at(path),
                    None => error,
                });
            }
        }
        Ok(())
    }

    /// Reads all chunks of an array without checksums of Penstock.
    fn check_by_codec(
        &mut self,
        place: &Path,
        name: Option<&str>,
        disk: &Storage,
        tell: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<()> {
        let stored = open(place, name)?;
        let schema = stored.disk_schema(BLOCK_BYTES)?;
        let part = Part {
            target: stored.target(),
            disk: &schema,
        };
        let (chunks, absent) = (self.chunks, self.absent);
        self.check_part(&part, &[None], tell)?;
        if codec_has_checksum(disk) {
            self.compared += (self.chunks - chunks) - (self.absent - absent);
        }
        Ok(())
    }
}

/// Checks that the bounds of an array, if some are kept, can be understood. They have a checksum of
/// their own, and were found in the elements whose checksums are compared.
fn check_bounds(stored: &StoredArray) -> Result<()> {
    bounds_of(stored, &stored.disk_schema(BLOCK_BYTES)?).map(drop)
}

/// The checksums of a timestep of an array; `None` if it has none: another program has added the
/// timestep.
fn timestep_sums(
    group: &Path,
    metadata: &Metadata,
    record: &Record,
    name: &str,
    rows: Rows,
    disk: &DiskSchema,
) -> Result<Option<Sums>> {
    let count = match disk.grid().split_first() {
        Some((chunks, others)) if rows.count > 1 => chunks * others.iter().product::<u64>(),
        Some((_, others)) => others.iter().product(),
        None => 1,
    };
    let count = if rows.count == 0 { 0 } else { count };
    if record.penstock != VERSION {
        return former::timestep_sums(group, name, rows.timestep, count).map(Some);
    }
    // A group may have been copied from a bucket to a directory.
    let path = record::sums_file(group, name);
    let offset = digests_place(metadata, record, name, rows)? * SUM_BYTES;
    let in_file = match is_url(group) {
        true => None,
        false => sums_in_file(&path, offset, count)?,
    };
    match in_file {
        Some(known) => Ok(Some(known)),
        None => read_sums(&timestep_sums_object(group, rows.timestep), name, count),
    }
}

/// The checksums at an offset of a file; `None` if there are none.
fn sums_in_file(path: &Path, offset: u64, count: u64) -> Result<Option<Sums>> {
    let mut bytes = files::zeros(count.saturating_mul(SUM_BYTES))?;
    let Some(file) = open_if_there(path)? else {
        return Ok(None);
    };
    let length = file.metadata().map_or(0, |meta| meta.len());
    if offset >= length && count > 0 {
        return Ok(None);
    }
    file.read_exact_at(&mut bytes, offset)
        .map_err(|e| damaged(path, format!("checksums are missing: {e}")))?;
    let known = sums::decode(&bytes, path)?;
    let is_known = bytes.is_empty() || bytes.iter().any(|&byte| byte != 0);
    Ok(is_known.then_some(known))
}

/// The checksums of the `steps` timesteps that an object holds, read block by block.
fn of_object(medium: &dyn Medium, part: &Part<'_>, object: u64, steps: usize) -> Result<Vec<u32>> {
    let (schema, element) = (part.disk, part.target.fill());
    let step_bytes = match steps {
        1 => u64::MAX,
        _ => schema.chunk_extents(object).iter().skip(1).product::<u64>() * schema.width(),
    };
    let mut parts: Vec<Parts> = (0..steps).map(|_| Parts::default()).collect();
    let mut buffer = Vec::new();
    for block in schema.object_blocks(object) {
        if buffer.len() as u64 != block.bytes {
            buffer = files::zeros(block.bytes)?;
        }
        medium.read(&block, &mut buffer)?;
        add(&mut parts, &block, &buffer, step_bytes);
    }
    let bytes = schema.object_bytes(object).min(step_bytes);
    Ok(parts
        .iter()
        .map(|parts| parts.sum(bytes, &element))
        .collect())
}

/// Adds the bytes of a block to the checksums of their timesteps, each of `step_bytes`.
fn add(parts: &mut [Parts], block: &Block, data: &[u8], step_bytes: u64) {
    if let [parts] = parts {
        return parts.add(block.offset, data, block.region.elements());
    }
    let (mut at, end) = (block.offset, block.offset + data.len() as u64);
    while at < end {
        let step = exact::<usize>(at / step_bytes);
        let until = end.min((step as u64 + 1) * step_bytes);
        let data = &data[exact::<usize>(at - block.offset)..exact::<usize>(until - block.offset)];
        parts[step].add(at % step_bytes, data, 0);
        at = until;
    }
}
