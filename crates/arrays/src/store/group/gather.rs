//! Makes one group of what each server has.

use std::fs::File;
use std::path::Path;

use penstock_engine::Result;
use serde_json::Value;

use super::catalog::{Document, all_checkpoints};
use super::{
    hold, make_whole, private, remove_but, remove_if_there, remove_timesteps_from, spreads,
};
use crate::store::file;
use crate::store::gather::{Roots, is_whole, link_part};
use crate::store::pending::{make_directory, write_json};
use crate::store::place::resolve;
use crate::store::stored::{SPREAD, read_json, spread_of};
use crate::store::update::link_rest;

/// Makes a whole group at `target` of the one that is spread over `roots`, whose metadata are at `first`. Gives
/// the number of arrays.
///
/// # Errors
/// As [`crate::store::gather`], and [`penstock_engine::Kind::Busy`] while the group is written to.
pub fn gather(first: &Path, roots: &Roots<'_>, target: &Path) -> Result<usize> {
    // What is linked here is not to change meanwhile. A group to which nothing was ever saved has no lock.
    let lock = File::open(private(first).join("lock")).ok();
    lock.as_ref()
        .map_or(Ok(()), |lock| hold(lock, first, "gathering"))?;
    let document = Document::read(first)?;
    for name in document.names() {
        let spreads = spreads(first, &document, name)?;
        match spreads.iter().map(|spread| spread.servers).max() {
            None => return Err(is_whole(first, name)),
            Some(servers) => roots.check(servers, name)?,
        }
    }
    make_whole(&resolve(target)?, |data| {
        make_directory(data)?;
        link_rest(first, data)?;
        // All that is private stays with the source, but for the checksums.
        remove_but(&["sums"], &private(data))?;
        file::sync_path(&private(data))?;
        gather_arrays(data, roots)?;
        for checkpoint in all_checkpoints(data)? {
            gather_arrays(&checkpoint.path, roots)?;
        }
        for name in document.names() {
            // What a crash has left of a timestep that never came to be.
            remove_timesteps_from(document.timesteps(), &data.join(name).join("c"))?;
        }
        Ok(())
    })?;
    Ok(document.names().len())
}

/// Gives the arrays in one directory their chunks, and lets nothing say any more that they are elsewhere.
fn gather_arrays(directory: &Path, roots: &Roots<'_>) -> Result<()> {
    let place = directory.join("zarr.json");
    let mut json = read_json(&place)?.unwrap_or_default();
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
