//! Reads everything again and compares it with its checksums: those of a group, and what the codec keeps of
//! any other array.

use std::path::Path;

use penstock_engine::{Error, Result};
use penstock_layout::DiskSchema;

use super::catalog::{Document, all_checkpoints, sums_of};
use super::timestep::{of_timestep, sums_path, time_of, timestep_files};
use super::{Seen, look};
use crate::session::BLOCK_BYTES;
use crate::store::spread::of_server;
use crate::store::sums::{self, Sums};
use crate::store::{Stored, Target};
use crate::{ArraySchema, Progress};

/// What a verification found.
#[derive(Debug, Default)]
pub struct Found {
    /// Timesteps that were looked at.
    pub timesteps: u64,
    /// Checkpoints that were looked at.
    pub checkpoints: u64,
    /// Chunks that were read.
    pub chunks: u64,
    /// Chunks among them that have a checksum of Penstock's.
    pub compared: u64,
    /// Their bytes, decoded.
    pub bytes: u64,
    /// What is wrong.
    pub damages: Vec<Error>,
}

/// Reads every chunk of what is at `path`: a group with timesteps and checkpoints, one checkpoint, or arrays
/// of any other form. What has checksums is compared with them. `tell` hears of the bytes that are read
/// (decoded), and first of how many there are.
///
/// # Errors
/// When nothing there can be understood. What is wrong with the contents is in what was found.
pub fn verify(path: &Path, tell: &mut dyn FnMut(Progress)) -> Result<Found> {
    let path = std::path::absolute(path).map_err(|e| Error::io(&e, "looking for", path))?;
    match look(&path)? {
        Seen::Group(_) => verify_group(&path, tell),
        Seen::Arrays(arrays) => verify_arrays(&path, &arrays, tell),
    }
}

fn verify_arrays(
    path: &Path,
    arrays: &[ArraySchema],
    tell: &mut dyn FnMut(Progress),
) -> Result<Found> {
    tell(Progress::All(arrays.iter().map(ArraySchema::bytes).sum()));
    let mut found = Found::default();
    let sums = sums_of(path);
    let known = match sums.exists() {
        true => Some(sums::read(&sums)?),
        false => None,
    };
    for array in arrays {
        let checked = Stored::open(path, Some(&array.name)).and_then(|stored| {
            let disk = stored.disk_schema(BLOCK_BYTES)?;
            let known = known.as_ref().map(|known| sums_in(known, &array.name));
            found.check_array(known, stored.target(), &disk, tell)
        });
        if let Err(error) = checked {
            found.damages.push(error);
        }
    }
    Ok(found)
}

fn sums_in<'a>(known: &'a Sums, name: &str) -> &'a [Option<u32>] {
    known.get(name).map_or(&[], Vec::as_slice)
}

fn verify_group(path: &Path, tell: &mut dyn FnMut(Progress)) -> Result<Found> {
    let path = path.to_path_buf();
    let first = of_server(&path, 0);
    let document = Document::read(&first)?;
    let checkpoints = all_checkpoints(&path)?;
    let arrays = document.names().iter().map(|name| {
        let disk = document.moment(name)?.disk_schema(BLOCK_BYTES)?;
        Ok((name.as_str(), disk))
    });
    let arrays = arrays.collect::<Result<Vec<_>>>()?;
    let moment: u64 = arrays.iter().map(|(_, disk)| disk.bytes()).sum();
    let moments = document.timesteps() + checkpoints.len() as u64;
    tell(Progress::All(moment * moments));
    let mut found = Found::default();
    for index in 0..document.timesteps() {
        if let Err(error) = time_of(&first, index) {
            found.damages.push(error);
        }
        let files = |name: &str, disk: &DiskSchema| {
            let target = timestep_files(&path, &document, name, index)?;
            Ok((target, of_timestep(disk.clone(), index)))
        };
        found.check(&sums_path(&first, index), &arrays, &files, tell);
        found.timesteps += 1;
    }
    for checkpoint in &checkpoints {
        let files = |name: &str, _: &DiskSchema| {
            let stored = Stored::open(&checkpoint.path, Some(name))?;
            let disk = stored.disk_schema(BLOCK_BYTES)?;
            Ok((stored.target().clone(), disk))
        };
        found.check(&checkpoint.sums(), &arrays, &files, tell);
        found.checkpoints += 1;
    }
    Ok(found)
}

/// The files of an array at one moment.
type FilesOf<'a> = dyn Fn(&str, &DiskSchema) -> Result<(Target, DiskSchema)> + 'a;

impl Found {
    /// Compares all arrays of one moment.
    fn check(
        &mut self,
        sums: &Path,
        arrays: &[(&str, DiskSchema)],
        files: &FilesOf<'_>,
        tell: &mut dyn FnMut(Progress),
    ) {
        let known = match sums::read(sums) {
            Ok(known) => known,
            Err(error) => return self.damages.push(error),
        };
        for (name, disk) in arrays {
            let known = sums_in(&known, name);
            let checked = files(name, disk)
                .and_then(|(target, disk)| self.check_array(Some(known), &target, &disk, tell));
            if let Err(error) = checked {
                self.damages.push(error);
            }
        }
    }

    /// Reads all chunks of an array, and compares those of which a sum is known. Without `known` none has
    /// one.
    fn check_array(
        &mut self,
        known: Option<&[Option<u32>]>,
        target: &Target,
        disk: &DiskSchema,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let medium = target.open_read(disk)?;
        let mut buffer = Vec::new();
        for object in 0..disk.objects() {
            let sum = sums::of_object(&*medium, disk, object, &mut buffer);
            let bytes = disk.object_region(object).elements() * disk.width();
            tell(Progress::More(bytes));
            self.chunks += 1;
            self.bytes += bytes;
            self.compared += u64::from(known.is_some());
            let expected = known.and_then(|known| known.get(object as usize).copied().flatten());
            let place = || disk.object_blocks(object).next();
            let path = place().and_then(|block| target.place_of(disk, &block).ok());
            let cause = match (sum, expected) {
                (Err(error), _) => {
                    self.damages.push(error);
                    continue;
                }
                (Ok(_), None) if known.is_none() => continue,
                (Ok(sum), Some(expected)) if sum == expected => continue,
                (Ok(_), None) if path.as_ref().is_some_and(|(path, _)| !path.exists()) => continue,
                (Ok(sum), Some(expected)) => {
                    format!("its checksum is {sum:08x}, and {expected:08x} when it was written")
                }
                (Ok(_), None) => "it has no checksum".to_string(),
            };
            let error = Error::new(penstock_engine::Kind::Damaged, "verifying", cause);
            self.damages.push(match path {
                Some((path, _)) => error.at(&path),
                None => error,
            });
        }
        Ok(())
    }
}
