//! A part of an array being changed: beside the array a new one is made, of which only what is touched is
//! written, and in the end it takes the array's place in one step. So a reader sees all of the change or
//! nothing, and so does whoever comes after a crash.
//!
//! | stored as | what a change costs beside what is written |
//! |---|---|
//! | chunks | a copy of each chunk that is changed in part; a hard link for each other chunk |
//! | row-major | a copy of the file |
//! | parts | a copy of each part that is changed; a hard link for each other part |
//!
//! Where chunks or parts are spread over servers, each server does that for its own, and only the metadata take
//! the place of the old ones.
//!
//! Copies are made by the file system, which shares blocks where it can (`FICLONE`).

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};

use super::pending::{Install, Pending, make_directory, write_json};
use super::place::{check_not_saved, is_in_group, resolve, same_file_system};
use super::sidecar::Sidecar;
use super::spread::{SpreadArray, of_server};
use super::stored::read_json;
use super::temporary::Temporary;
use super::{Files, PartFiles, Stored, Target, ZarrFiles, change, file, zarr};
use crate::ArraySchema;
use crate::dtype::ByteOrder;

impl Pending {
    /// Makes what is needed to change a part of `stored`, which was opened at `path`. Servers find in
    /// [`Pending::target`] what is stored until they have written it. Only the root calls this.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for forms of other makers that are read, but not written; as
    /// [`Pending::create`] otherwise. Nothing is touched then.
    pub fn change(path: &Path, stored: &Stored) -> Result<Self> {
        match &stored.target().files {
            Files::Zarr(files) => change_chunks(files),
            Files::Flat {
                file,
                header_bytes,
                element,
                order,
            } => {
                check_order(*order, element.width(), file)?;
                let path = resolve(path)?;
                let temporary = Temporary::create(&path, None, &path)?;
                let changed = temporary.data();
                file::clone(&path, &changed)?;
                let files = Files::Flat {
                    file: changed,
                    header_bytes: *header_bytes,
                    element: *element,
                    order: *order,
                };
                Ok(Self::new(
                    temporary,
                    Target::of(files),
                    Install::Replace { path },
                ))
            }
            Files::Parts(files) => change_parts(&of_server(path, 0), stored.schema(), files),
        }
    }
}

fn change_parts(path: &Path, schema: &ArraySchema, files: &PartFiles) -> Result<Pending> {
    check_order(files.order, files.element.width(), &files.stem)?;
    let path = resolve(path)?;
    let temporary = Temporary::create(&path, None, &path)?;
    let directory = temporary.data();
    make_directory(&directory)?;
    let spread = files.spread.as_ref().map(SpreadArray::changed);
    if spread.is_some() {
        let sidecar = Sidecar::new(schema).spread_as(spread.as_ref());
        file::write_synced(&directory.join("schema.json"), &sidecar.text()?)?;
    }
    let files = PartFiles {
        stem: directory.join(files.stem.file_name().unwrap_or_default()),
        base: spread.is_none().then(|| files.stem.clone()),
        spread,
        ..files.clone()
    };
    let install = Install::Directory { path };
    Ok(Pending::new(
        temporary,
        Target::of(Files::Parts(files)),
        install,
    ))
}

fn change_chunks(files: &ZarrFiles) -> Result<Pending> {
    let path = resolve(&files.directory)?;
    let Some(mut metadata) = read_json(&path.join("zarr.json"))? else {
        let cause =
            "it is of Zarr format 2, to which Penstock does not write: copy the array first";
        return Err(Error::new(Kind::Unsupported, "writing", cause).at(&path));
    };
    // What a server could not write is found now.
    zarr::check_writable(files)?;
    // Beside the group, as for a new array in it, or beside an array that stands alone.
    let temporary = match is_in_group(&path)? {
        Some((group, name)) => {
            check_not_saved(&group)?;
            same_file_system(&group)?;
            Temporary::create(&group, Some(&name), &path)?
        }
        None => Temporary::create(&path, None, &path)?,
    };
    let directory = temporary.data();
    make_directory(&directory)?;
    let spread = files.spread.as_ref().map(SpreadArray::changed);
    if let Some(of) = &spread {
        of.spread.mark(&mut metadata)?;
        let place = directory.join("zarr.json");
        write_json(&place, &metadata)?;
        file::sync_path(&place)?;
    }
    let files = ZarrFiles {
        base: spread.is_none().then(|| path.clone()),
        spread,
        ..ZarrFiles::new(directory, files.form.clone())
    };
    let install = Install::Directory { path };
    Ok(Pending::new(
        temporary,
        Target::of(Files::Zarr(files)),
        install,
    ))
}

fn check_order(order: ByteOrder, width: u64, path: &Path) -> Result<()> {
    if order == ByteOrder::NATIVE || width == 1 {
        return Ok(());
    }
    let cause = "its elements are in the other byte order: copy the array first";
    Err(Error::new(Kind::Unsupported, "writing", cause).at(path))
}

/// Gives `changed` all files of `base` that it lacks, as hard links where the file system has them, and
/// syncs the directories.
pub(super) fn link_rest(base: &Path, changed: &Path) -> Result<()> {
    let looking = |e: std::io::Error| Error::io(&e, "looking into", base);
    for entry in std::fs::read_dir(base).map_err(looking)? {
        let entry = entry.map_err(looking)?;
        let (old, new): (PathBuf, PathBuf) = (entry.path(), changed.join(entry.file_name()));
        let is_there = new.exists();
        if entry.file_type().map_err(looking)?.is_dir() {
            if !is_there {
                make_directory(&new)?;
            }
            link_rest(&old, &new)?;
        } else if !is_there && change::hard_link(&old, &new).is_err() {
            file::clone(&old, &new)?;
            file::sync_path(&new)?;
        }
    }
    file::sync_path(changed)
}

impl Target {
    /// Where the array stands that is being changed.
    pub(super) fn base(&self) -> Option<&Path> {
        match &self.files {
            Files::Zarr(files) => files.base.as_deref(),
            Files::Parts(files) => files.base.as_deref().and_then(Path::parent),
            Files::Flat { .. } => None,
        }
    }
}
