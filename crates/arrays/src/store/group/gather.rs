//! Makes one group of what each server has.

use std::fs::File;
use std::path::Path;

use penstock_engine::{Error, Result};
use serde_json::Value;

use super::catalog::{Document, all_checkpoints};
use super::{check_nothing_there, hold, private, remove_if_there, remove_timesteps_from};
use crate::store::file::{damaged, read_if_there};
use crate::store::gather::{Roots, is_whole, link_part};
use crate::store::pending::{make_directory, resolve, sync_parent, write_json};
use crate::store::stored::{SPREAD, spread_of};
use crate::store::temporary::Temporary;
use crate::store::update::link_rest;
use crate::store::{change, file};

/// Makes a whole group at `target` of the one that is spread over `roots`, whose metadata are at `first`. Gives
/// the number of arrays.
///
/// # Errors
/// As [`crate::store::gather`], and [`penstock_engine::Kind::Busy`] while the group is written to.
pub fn gather(first: &Path, roots: &Roots<'_>, target: &Path) -> Result<usize> {
    // What is linked here is not to change meanwhile. A group to which nothing was ever saved has no lock.
    let lock = File::open(private(first).join("lock")).ok();
    lock.as_ref().map_or(Ok(()), |lock| hold(lock, first))?;
    let document = Document::read(first)?;
    for name in document.names() {
        if document.spread(name)?.is_none() {
            return Err(is_whole(first, name));
        }
    }
    let target = resolve(target)?;
    check_nothing_there(&target)?;
    let mut temporary = Temporary::create(&target, None, &target)?;
    let data = temporary.data();
    make_directory(&data)?;
    link_rest(first, &data)?;
    // All that is private stays with the source, but for the checksums.
    let private = private(&data);
    let looking = |e: std::io::Error| Error::io(&e, "looking into", &private);
    for entry in std::fs::read_dir(&private).map_err(looking)? {
        let entry = entry.map_err(looking)?;
        if entry.file_name() != "sums" {
            remove_if_there(&entry.path())?;
        }
    }
    file::sync_path(&private)?;
    gather_arrays(&data, roots)?;
    for checkpoint in all_checkpoints(&data)? {
        gather_arrays(&checkpoint.path, roots)?;
    }
    for name in document.names() {
        // What a crash has left of a timestep that never came to be.
        remove_timesteps_from(document.timesteps(), &data.join(name).join("c"))?;
    }
    change::rename(&data, &target).map_err(|e| Error::io(&e, "renaming into place", &target))?;
    sync_parent(&target)?;
    // The group is in its place: what stays is removed by the next write.
    let _ = temporary.remove();
    Ok(document.names().len())
}

/// Gives the arrays in one directory their chunks, and lets nothing say any more that they are elsewhere.
fn gather_arrays(directory: &Path, roots: &Roots<'_>) -> Result<()> {
    let place = directory.join("zarr.json");
    let text = read_if_there(&place)?.unwrap_or_default();
    let mut json: Value = serde_json::from_slice(&text).map_err(|e| damaged(&place, e))?;
    let arrays = json["consolidated_metadata"]["metadata"].as_object_mut();
    for (name, array) in arrays.into_iter().flatten() {
        let attributes = array["attributes"].as_object_mut();
        let mark = attributes.and_then(|attributes| attributes.remove(SPREAD));
        let Some(spread) = spread_of(mark, &place)? else {
            continue; // the times are whole
        };
        let own = directory.join(name);
        for server in 0..spread.servers {
            link_part(&roots.part(server, name, &spread)?, &own)?;
        }
        replace(&own.join("zarr.json"), array)?;
        file::sync_path(&own)?;
    }
    replace(&place, &json)?;
    file::sync_path(directory)
}

/// Writes a file anew: the one there is a link to that of the source.
fn replace(place: &Path, json: &Value) -> Result<()> {
    remove_if_there(place)?;
    write_json(place, json)?;
    file::sync_path(place)
}
