//! The bounds of the elements of a saved array's chunks, as its saves have kept them.
//!
//! A chunk that several timesteps share has bounds of each; together they are the chunk's. The
//! bounds of a chunk are not known if those of one timestep are missing.

use std::path::Path;

use penstock_bucket::is_url;
use penstock_engine::{Bounds, Result};
use penstock_layout::{DiskSchema, exact};

use super::objects::{checkpoint_sums_object, read_bounds, timestep_sums_object};
use super::timestep::{Rows, digests_place_in, rows_at};
use crate::formats::Form;
use crate::formats::bounds::{self, AllBounds, BOUNDS_BYTES};
use crate::formats::record::{self, Record, VERSION};
use crate::fs::files::{damaged, read_if_there};
use crate::read::StoredArray;
use crate::write::checks::is_in_group;

/// The bounds of the objects of an array, whose disk schema is this; `None` if none are kept.
///
/// # Errors
/// [`penstock_engine::Kind::Damaged`] when what is kept makes no sense.
pub(crate) fn bounds_of(stored: &StoredArray, disk: &DiskSchema) -> Result<Option<AllBounds>> {
    let Form::Zarr(location) = stored.target().form() else {
        return Ok(None);
    };
    let Some((group, name)) = is_in_group(&location.directory)? else {
        return Ok(None);
    };
    match Record::read(&group)? {
        Some(record) if record.penstock == VERSION && record.bounded.contains(&name) => {
            of_timesteps(&group, &record, &name, disk).map(Some)
        }
        Some(_) => Ok(None),
        None => of_checkpoint(&group, &name, disk.objects()),
    }
}

fn of_checkpoint(checkpoint: &Path, name: &str, objects: u64) -> Result<Option<AllBounds>> {
    let file = record::checkpoint_bounds_file(checkpoint, name);
    // A checkpoint may have been copied from a bucket to a directory, or back.
    let known = match read_if_there(&file)? {
        Some(bytes) => Some(bounds::decode(&bytes, &file)?),
        None => read_bounds(&checkpoint_sums_object(checkpoint), name)?,
    };
    match known {
        Some(known) if known.len() as u64 != objects => {
            let cause = format!("bounds of {} chunks, and there are {objects}", known.len());
            Err(damaged(&file, cause))
        }
        known => Ok(known),
    }
}

fn of_timesteps(group: &Path, record: &Record, name: &str, disk: &DiskSchema) -> Result<AllBounds> {
    let file = record::bounds_file(group, name);
    let bytes = match is_url(group) {
        true => None,
        false => read_if_there(&file)?,
    };
    let mut all: AllBounds = vec![Some(Bounds::NONE); exact::<usize>(disk.objects())];
    for timestep in 0..record.timesteps {
        let rows = rows_at(group, record, name, timestep)?;
        if rows.count == 0 {
            continue;
        }
        let objects = objects_of(disk, rows);
        // A group may have been copied from a bucket to a directory.
        let known = match &bytes {
            Some(bytes) => {
                // What lies beyond the timesteps of the record may be torn.
                let place = digests_place_in(disk, record.arrays.get(name), rows);
                let start = exact::<usize>(place * BOUNDS_BYTES).min(bytes.len());
                let end = start + objects.len() * exact::<usize>(BOUNDS_BYTES);
                Some(bounds::decode(&bytes[start..end.min(bytes.len())], &file)?)
            }
            None => read_bounds(&timestep_sums_object(group, timestep), name)?,
        };
        for (nth, object) in objects.enumerate() {
            let own = known.as_ref().and_then(|known| *known.get(nth)?);
            if let Some(of_object) = all.get_mut(object) {
                *of_object = of_object.zip(own).map(|(former, own)| former.and(own));
            }
        }
    }
    // No timestep has the objects that nothing was said about.
    let is_said = |bounds: &Bounds| *bounds != Bounds::NONE;
    Ok(all
        .into_iter()
        .map(|bounds| bounds.filter(is_said))
        .collect())
}

/// The numbers of the objects that rows of an array are in.
fn objects_of(disk: &DiskSchema, rows: Rows) -> std::ops::Range<usize> {
    let others: u64 = disk.grid().iter().skip(1).product();
    let extent = disk.chunk()[0];
    let (first, end) = (
        rows.start / extent,
        (rows.start + rows.count).div_ceil(extent),
    );
    exact::<usize>(first * others)..exact::<usize>(end * others)
}
