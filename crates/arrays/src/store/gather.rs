//! Makes one store of what each server has.

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};

use super::spread::{is_template, of_server, parts_of};
use super::stored::{SPREAD, Stored};
use super::update::link_rest;
use super::{Files, Pending};

/// Makes one array at `target` of those whose parts are in `sources`, one a server in their order, or in all
/// that a path with `{server}` in it names. Chunks become hard links where they are on the same file system,
/// copies elsewhere; the sources stay. Gives the number of arrays.
///
/// # Errors
/// [`Kind::Missing`] when a part is not there, [`Kind::Schema`] when there are not as many as servers wrote, or
/// when nothing there is spread; as [`Pending::create`].
pub fn gather(sources: &[PathBuf], target: &Path) -> Result<usize> {
    let Some(first) = sources.first() else {
        return Err(Error::new(Kind::Schema, "gathering", "there is no source"));
    };
    let first = of_server(first, 0);
    let arrays = Stored::all(&first)?;
    for array in &arrays {
        gather_array(sources, &first, &array.name, target)?;
    }
    Ok(arrays.len())
}

fn gather_array(sources: &[PathBuf], first: &Path, name: &str, target: &Path) -> Result<()> {
    let wrong = |cause: String| Err(Error::new(Kind::Schema, "gathering", cause).at(first));
    let stored = Stored::open(first, Some(name))?;
    let Files::Zarr(files) = &stored.target().files else {
        return wrong(format!("{name:?} is no Zarr array"));
    };
    let Some(of) = &files.spread else {
        return wrong(format!(
            "{name:?} is not spread over servers: it is whole where it is"
        ));
    };
    let servers = of.spread.servers;
    let roots: Vec<PathBuf> = match sources {
        [template] if is_template(template) => (0..servers)
            .map(|server| of_server(template, server))
            .collect(),
        all => all.to_vec(),
    };
    if roots.len() != servers {
        let given = roots.len();
        return wrong(format!(
            "{servers} servers wrote {name:?}, and {given} parts are given"
        ));
    }
    let mut schema = stored.schema().clone();
    schema.attributes.remove(SPREAD);
    let pending = Pending::create(target, &schema)?;
    let Files::Zarr(made) = &pending.target().files else {
        unreachable!("an array in chunks is made of one in chunks")
    };
    for root in &roots {
        let part = parts_of(root).join(name).join(&of.spread.version);
        if !part.is_dir() {
            let cause = "the part of a server is not there";
            return Err(Error::new(Kind::Missing, "gathering", cause).at(&part));
        }
        link_rest(&part, &made.directory)?;
    }
    pending.commit()
}
