//! Changes a part of an array: a new array is made beside the old one, servers write only the
//! touched objects to it, and in the end it takes the old array's place in one step. So a reader
//! sees all of the change or nothing, also after a crash.
//!
//! | stored as | cost of a change beside its own bytes |
//! |---|---|
//! | chunks | a copy of each chunk that is changed in part; a hard link for each other chunk |
//! | row-major | a copy of the file |
//! | parts | a copy of each part that is changed; a hard link for each other part |
//! | chunks in a bucket | a get of each chunk that is changed in part; a copy within the service of each other chunk |
//!
//! In a repository, servers get, change and put chunks of the draft itself.
//!
//! A dataset of an HDF5 file is changed in the file: see `part`.
//!
//! If chunks or parts are spread over servers, each server makes the copies and links of its own,
//! and only the metadata take the place of the old ones.
//!
//! The file system makes the copies, and shares blocks where it can (`FICLONE`).

use std::path::Path;

use penstock_bucket::{is_in_repository, is_url};
use penstock_engine::{Error, Kind, Result};
use serde_json::Value;

use super::checks::{
    check_not_in_checkpoints, check_not_saved, is_in_group, resolve, same_file_system,
};
use super::objects::ObjectsPlace;
use super::part::ChangedDataset;
use super::pending::Pending;
use super::place::Place;
use crate::ArraySchema;
use crate::dtype::StoredElement;
use crate::formats::references::only_read;
use crate::formats::sidecar::Sidecar;
use crate::formats::spread::{SpreadArray, of_server};
use crate::formats::{Form, Target, flat, parts, zarr};
use crate::fs::files::{self, make_directory};
use crate::fs::temporary::Temporary;
use crate::read::StoredArray;

impl Pending {
    /// Prepares a change of a part of `stored`, which was opened at `path`. Servers find the stored
    /// objects in [`Pending::target`] until they have written them. Only the root calls this.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for forms that Penstock reads, but does not write; as
    /// [`Pending::create`] otherwise. Nothing is touched then.
    pub fn change(path: &Path, stored: &StoredArray) -> Result<Self> {
        match stored.target().form() {
            Form::Zarr(location) if is_in_repository(&location.directory) => {
                change_in_draft(location)
            }
            Form::Zarr(location) if is_url(&location.directory) => change_objects(location),
            Form::Zarr(location) => change_chunks(location),
            Form::Flat(location) => change_file(path, location),
            Form::Parts(location) => change_parts(&of_server(path, 0), stored.schema(), location),
            Form::Placed(_) => change_dataset(stored),
            Form::Library(location) => Err(location.refused()),
            Form::Referred(location) => Err(only_read(location.path())),
        }
    }
}

fn change_dataset(stored: &StoredArray) -> Result<Pending> {
    let changed = ChangedDataset::new(stored)?;
    let place = Place::PartInFile(Box::new(changed));
    let temporary = place.temporary()?;
    let Place::PartInFile(changed) = &place else {
        unreachable!("it is one");
    };
    let target = Target::new(changed.lay_out(&temporary)?);
    Ok(Pending::new(temporary, target, place))
}

fn change_file(path: &Path, location: &flat::Location) -> Result<Pending> {
    check_order(&location.element, &location.file)?;
    let place = Place::ChangedFile {
        path: resolve(path)?,
    };
    let temporary = place.temporary()?;
    let changed = temporary.data();
    files::clone(&place.target(), &changed)?;
    let location = flat::Location {
        file: changed,
        ..location.clone()
    };
    Ok(Pending::new(
        temporary,
        Target::new(Form::Flat(location)),
        place,
    ))
}

fn change_parts(path: &Path, schema: &ArraySchema, location: &parts::Location) -> Result<Pending> {
    check_order(&location.element, &location.stem)?;
    let path = resolve(path)?;
    let temporary = Temporary::create(&path, None, &path)?;
    let directory = temporary.data();
    make_directory(&directory)?;
    let spread = location.spread.as_ref().map(SpreadArray::changed);
    if spread.is_some() {
        let sidecar = Sidecar::new(schema).spread_as(spread.as_ref());
        files::write(&directory.join("schema.json"), &sidecar.text()?)?;
    }
    let location = parts::Location {
        stem: directory.join(location.stem.file_name().unwrap_or_default()),
        base: spread.is_none().then(|| location.stem.clone()),
        spread,
        ..location.clone()
    };
    let target = Target::new(Form::Parts(location));
    let base = Some(path.clone());
    Ok(Pending::new(
        temporary,
        target,
        Place::Directory { path, base },
    ))
}

fn change_in_draft(location: &zarr::Location) -> Result<Pending> {
    let array = &location.directory;
    metadata_of(array)?;
    location.check_writable()?;
    check_not_in_checkpoints(array)?;
    if let (Some(group), Some(name)) = (array.parent(), array.file_name()) {
        check_not_saved(group, &name.to_string_lossy())?;
    }
    let (directory, form) = (array.clone(), location.form.clone());
    let location = zarr::Location::new(directory, form);
    Ok(Pending::in_draft(Form::Zarr(location)))
}

fn change_objects(location: &zarr::Location) -> Result<Pending> {
    let path = &location.directory;
    let metadata = metadata_of(path)?;
    location.check_writable()?;
    let place = ObjectsPlace::of_change(path, metadata)?;
    let location = zarr::Location {
        base: Some(path.clone()),
        base_keys: place.base_keys().map(|keys| keys.to_string()),
        ..zarr::Location::new(path.clone(), location.form.with_keys(place.metadata()))
    };
    Ok(Pending::of_objects(Form::Zarr(location), place))
}

/// The metadata of the array in a directory, or at a place in a bucket, to which Penstock writes.
///
/// # Errors
/// [`Kind::Unsupported`] for the second format.
pub(super) fn metadata_of(path: &Path) -> Result<Value> {
    let node = zarr::Node::read(path)?.filter(|node| !node.is_second());
    node.map(|node| node.json().clone()).ok_or_else(|| {
        let cause =
            "it is of Zarr format 2, to which Penstock does not write: copy the array first";
        Error::new(Kind::Unsupported, "writing", cause).at(path)
    })
}

fn change_chunks(location: &zarr::Location) -> Result<Pending> {
    let path = resolve(&location.directory)?;
    let mut metadata = metadata_of(&path)?;
    // The root finds here what no server could write.
    location.check_writable()?;
    // The temporary is beside the group, as for a new array in it, or beside an array that stands
    // alone.
    let temporary = match is_in_group(&path)? {
        Some((group, name)) => {
            check_not_saved(&group, &name)?;
            same_file_system(&group)?;
            Temporary::create(&group, Some(&name), &path)?
        }
        None => Temporary::create(&path, None, &path)?,
    };
    if location.spread.is_none() {
        // An update that was killed has left them: none is under way while this has the temporary.
        zarr::Location::remove_aside(&path)?;
    }
    let directory = temporary.data();
    make_directory(&directory)?;
    let spread = location.spread.as_ref().map(SpreadArray::changed);
    if let Some(of) = &spread {
        of.spread.mark(&mut metadata)?;
        files::write_json(&directory.join("zarr.json"), &metadata)?;
    }
    let location = zarr::Location {
        base: spread.is_none().then(|| path.clone()),
        spread,
        ..zarr::Location::new(directory, location.form.clone())
    };
    let target = Target::new(Form::Zarr(location));
    let base = Some(path.clone());
    Ok(Pending::new(
        temporary,
        target,
        Place::Directory { path, base },
    ))
}

fn check_order(element: &StoredElement, path: &Path) -> Result<()> {
    if element.is_as_in_memory() {
        return Ok(());
    }
    let cause = match element.has_padding() {
        true => "its records have padding: copy the array first",
        false => "its elements are in the other byte order: copy the array first",
    };
    Err(Error::new(Kind::Unsupported, "writing", cause).at(path))
}
