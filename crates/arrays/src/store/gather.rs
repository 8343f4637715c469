//! Makes one store of what each server has.

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};

use super::group::{self, Seen};
use super::spread::{Spread, is_template, of_server, parts_of};
use super::stored::Stored;
use super::update::link_rest;
use super::{Pending, change};

/// Makes one store at `target` of those whose parts are in `sources`, one a server in their order, or in all
/// that a path with `{server}` in it names: one array, or a group with its timesteps and checkpoints. Chunks
/// become hard links where they are on the same file system, copies elsewhere; the sources stay. Gives the number
/// of arrays.
///
/// # Errors
/// [`Kind::Missing`] when a part is not there, [`Kind::Schema`] when there are not as many as servers wrote, or
/// when nothing there is spread; as [`Pending::create`].
pub fn gather(sources: &[PathBuf], target: &Path) -> Result<usize> {
    let Some(first) = sources.first() else {
        return Err(Error::new(Kind::Schema, "gathering", "there is no source"));
    };
    let first = of_server(first, 0);
    let roots = Roots(sources);
    let arrays = match group::look(&first)? {
        Seen::Group(_) => return group::gather(&first, &roots, target),
        Seen::Arrays(arrays) => arrays,
    };
    for array in &arrays {
        gather_array(&roots, &first, &array.name, target)?;
    }
    Ok(arrays.len())
}

/// Where the parts of a store are: one directory a server, or a path with `{server}` in it.
pub struct Roots<'a>(&'a [PathBuf]);

impl Roots<'_> {
    /// Sees that there is one for each of so many servers, and no more.
    ///
    /// # Errors
    /// [`Kind::Schema`].
    pub(super) fn check(&self, servers: usize, name: &str) -> Result<()> {
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

    /// What a server has of an array; there must be a root for it.
    ///
    /// # Errors
    /// [`Kind::Missing`] when it is not there.
    pub(super) fn part(&self, server: usize, name: &str, spread: &Spread) -> Result<PathBuf> {
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
    let stored = Stored::open(first, Some(name))?;
    let Some(of) = stored.target().spread() else {
        return Err(is_whole(first, name));
    };
    let servers = of.spread.servers;
    roots.check(servers, name)?;
    let pending = Pending::create(target, stored.schema())?;
    for server in 0..servers {
        let part = roots.part(server, name, &of.spread)?;
        link_part(&part, pending.target().path())?;
    }
    pending.commit().map(drop)
}

/// There is nothing to gather.
pub(super) fn is_whole(store: &Path, array: &str) -> Error {
    let cause = format!("{array:?} is not spread over servers: it is whole where it is");
    Error::new(Kind::Schema, "gathering", cause).at(store)
}

/// Gives an array what a server has of it. The empty files of parts that were made for it go.
pub(super) fn link_part(part: &Path, array: &Path) -> Result<()> {
    let looking = |e: std::io::Error| Error::io(&e, "looking into", part);
    for entry in std::fs::read_dir(part).map_err(looking)? {
        let made = array.join(entry.map_err(looking)?.file_name());
        if made.is_file() {
            change::remove_file(&made).map_err(|e| Error::io(&e, "removing", &made))?;
        }
    }
    link_rest(part, array)
}
