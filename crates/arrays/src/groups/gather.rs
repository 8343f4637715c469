//! Makes one store of the parts on all servers.

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use serde_json::{Map, Value};

use super::catalog::{Contents, all_checkpoints, list, open, spreads};
use super::metadata::Metadata;
use super::{hold, make_whole};
use crate::formats::record::{self, Record};
use crate::formats::spread::{SPREAD, Spread, is_template, of_server, parts_of};
use crate::formats::zarr::{Node, remove_chunks_from};
use crate::fs::files::{self, link_tree, make_directory, remove_if_there};
use crate::fs::ops;
use crate::write::checks::resolve;
use crate::write::{Keys, Pending};

/// Makes one store at `target` from the parts of a spread store: one array, or a group with its
/// timesteps and checkpoints. `sources` are one directory a server, in the order of servers, or one
/// path with `{server}` in it. Chunks become hard links on the same file system, and copies
/// elsewhere; the sources stay. Gives the number of arrays.
///
/// # Errors
/// [`Kind::Missing`] when a part is missing, [`Kind::Schema`] when the number of parts is not the
/// number of servers that wrote, or when the store is not spread; as [`Pending::create`];
/// [`Kind::Busy`] while a group is written to.
pub fn gather(sources: &[PathBuf], target: &Path) -> Result<usize> {
    let Some(first) = sources.first() else {
        return Err(Error::new(Kind::Schema, "gathering", "there is no source"));
    };
    let first = of_server(first, 0);
    let roots = Roots(sources);
    if let Some(record) = Record::read(&first)? {
        return gather_group(&first, &record, &roots, target);
    }
    let mut gathered = 0;
    for entry in list(&first)? {
        match entry.contents {
            Contents::Array(schema) => {
                gather_array(&roots, &first, &schema.name, target)?;
                gathered += 1;
            }
            Contents::Unreadable(error) => return Err(error),
            Contents::Group(_) => {}
        }
    }
    Ok(gathered)
}

/// The directories of the parts of a store: one a server, or a path with `{server}` in it.
struct Roots<'a>(&'a [PathBuf]);

impl Roots<'_> {
    /// Checks that there is one directory for each of `servers` servers, and no more.
    fn check(&self, servers: usize, name: &str) -> Result<()> {
        match self.0 {
            [template] if is_template(template) => Ok(()),
            all if all.len() == servers => Ok(()),
            all => {
                let given = all.len();
                let cause =
                    format!("{servers} servers wrote {name:?}, and {given} parts are given");
                let error = Error::new(Kind::Schema, "gathering", cause);
                Err(all.iter().take(1).fold(error, |e, first| e.at(first)))
            }
        }
    }

    /// The part of an array on a server; `check` has seen that there is a directory for it.
    fn part(&self, server: usize, name: &str, spread: &Spread) -> Result<PathBuf> {
        let root = match self.0 {
            [template] if is_template(template) => of_server(template, server),
            all => all[server].clone(),
        };
        let part = parts_of(&root).join(name).join(&spread.version);
        if !part.is_dir() {
            let cause = "the part of a server is not there";
            return Err(Error::new(Kind::Missing, "gathering", cause).at(&part));
        }
        Ok(part)
    }
}

fn gather_array(roots: &Roots<'_>, first: &Path, name: &str, target: &Path) -> Result<()> {
    let stored = open(first, Some(name))?;
    let Some(of) = stored.target().spread() else {
        return Err(is_whole(first, name));
    };
    let servers = of.spread.servers;
    roots.check(servers, name)?;
    let pending = Pending::create(target, stored.schema(), Keys::Nested)?;
    for server in 0..servers {
        let part = roots.part(server, name, &of.spread)?;
        link_part(&part, pending.target().path())?;
    }
    pending.commit(true).map(drop)
}

/// The error for an array that is not spread.
fn is_whole(store: &Path, array: &str) -> Error {
    let cause = format!("{array:?} is not spread over servers: it is whole where it is");
    Error::new(Kind::Schema, "gathering", cause).at(store)
}

/// Links a server's part of an array into the array. Empty files that were made for the parts are
/// removed.
fn link_part(part: &Path, array: &Path) -> Result<()> {
    for entry in files::entries(part)? {
        let made = array.join(entry.file_name());
        if made.is_file() {
            ops::remove_file(&made).map_err(|e| Error::io(&e, "removing", &made))?;
        }
    }
    link_tree(part, array)
}

/// Makes one group of the group that is spread over `roots`, whose metadata are at `first`.
fn gather_group(first: &Path, record: &Record, roots: &Roots<'_>, target: &Path) -> Result<usize> {
    // The linked files must not change meanwhile.
    let _lock = hold(first, "gathering")?;
    let metadata = Metadata::read(first, record)?;
    for name in record.arrays.keys() {
        let spreads = spreads(first, &metadata, name)?;
        match spreads.iter().map(|spread| spread.servers).max() {
            None => return Err(is_whole(first, name)),
            Some(servers) => roots.check(servers, name)?,
        }
    }
    make_whole(&resolve(target)?, |data| {
        make_directory(data)?;
        link_tree(first, data)?;
        // The lock and the staged files stay with the source.
        let own = record::directory(data);
        match own.is_dir() {
            true => files::remove_but(&["zarr.json", "group.json", "sums", "bounds"], &own)?,
            false => files::remove_but(&["sums"], &record::former_directory(data))?,
        }
        gather_arrays(data, record.arrays.keys(), roots)?;
        for checkpoint in all_checkpoints(data)? {
            gather_arrays(&checkpoint.path, record.arrays.keys(), roots)?;
        }
        for name in record.names() {
            let rows = metadata.schema(&name)?.disk.chunk_rows().unwrap_or(1);
            let length = record.length(&name).unwrap_or(0);
            let array = data.join(&name);
            // A crash may have left chunks of a timestep that was never committed.
            remove_chunks_from(length.div_ceil(rows), &array)?;
            // A later timestep may be written into the last chunk, in the source, too.
            let last = array.join("c").join((length / rows).to_string());
            if !length.is_multiple_of(rows) && last.exists() {
                unshare(&last)?;
            }
        }
        for below in [
            record::directory(data).join("sums"),
            record::bounds_directory(data),
        ] {
            if below.is_dir() {
                unshare(&below)?;
            }
        }
        Ok(())
    })?;
    Ok(record.arrays.len())
}

/// Turns hard links into files of their own.
fn unshare(path: &Path) -> Result<()> {
    if path.is_dir() {
        files::entries(path)?
            .iter()
            .try_for_each(|entry| unshare(&entry.path()))?;
        return files::sync_path(path);
    }
    // No array has such a name.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.new"));
    files::clone(path, &new)?;
    files::sync_path(&new)?;
    files::rename(&new, path)
}

/// Links their chunks to the arrays in one directory, and removes the marks that say that they are
/// spread.
fn gather_arrays<'a>(
    directory: &Path,
    names: impl Iterator<Item = &'a String>,
    roots: &Roots<'_>,
) -> Result<()> {
    for name in names {
        let own = directory.join(name);
        let Some(node) = Node::read(&own)? else {
            continue; // the array was added later
        };
        let mut json = node.json().clone();
        let Some(spread) = without_mark(&mut json, &own)? else {
            continue;
        };
        for server in 0..spread.servers {
            link_part(&roots.part(server, name, &spread)?, &own)?;
        }
        replace(&own.join("zarr.json"), &json)?;
        files::sync_path(&own)?;
    }
    let place = directory.join("zarr.json");
    let mut json = files::read_json(&place)?.unwrap_or_default();
    for of_node in of_nodes(&mut json) {
        without_mark(of_node, directory)?;
    }
    replace(&place, &json)?;
    files::sync_path(directory)
}

/// The metadata of the nodes of a group in its consolidated metadata.
fn of_nodes(group: &mut Value) -> impl Iterator<Item = &mut Value> {
    let nodes = group["consolidated_metadata"]["metadata"].as_object_mut();
    nodes.into_iter().flat_map(Map::values_mut)
}

/// Removes the mark of a spread from an array's metadata.
fn without_mark(json: &mut Value, place: &Path) -> Result<Option<Spread>> {
    let attributes = json["attributes"].as_object_mut();
    let mark = attributes.and_then(|attributes| attributes.remove(SPREAD));
    Spread::of_mark(mark, place)
}

/// Replaces a file: the former is a hard link to the file in the source.
fn replace(place: &Path, json: &Value) -> Result<()> {
    remove_if_there(place)?;
    files::write_json(place, json)?;
    files::sync_path(place)
}
