//! What a dataset is, as an array's schema, and where its elements are.

use std::fs::File;
use std::path::Path;

use penstock_engine::{Error, Kind, Result};
use penstock_hdf5::{Chunk, Dataset, Element, Hdf5File, Member, Storage as Stored, is_hdf5};
use penstock_layout::DiskSchema;

use super::journal::Journal;
use super::{attributes, filters, library};
use crate::dtype::{ElementType, StoredElement};
use crate::fill::Fill;
use crate::formats::Form;
use crate::formats::placed::{self, Places};
use crate::formats::room::Place;
use crate::fs::files::damaged;
use crate::schema::{ArraySchema, Storage};

/// Whether a path is a file of HDF5.
pub(crate) fn is_hdf5_file(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| is_hdf5(&file))
}

/// Opens a file to look at it, as it is or as a killed process would have left it.
///
/// # Errors
/// [`Kind::Damaged`] when the library cannot read it.
pub(crate) fn open(path: &Path) -> Result<Hdf5File> {
    let left = Journal::left(path)?;
    let file = File::open(path).map_err(|e| Error::io(&e, "opening", path))?;
    let over = left.map(|journal| journal.changes()).unwrap_or_default();
    Hdf5File::open(file, path, &over)
}

/// The schema of a dataset, and the form that servers read.
///
/// # Errors
/// [`Kind::Missing`] when there is no such dataset; [`Kind::Unsupported`] for element types,
/// filters and storage that servers do not read; [`Kind::Damaged`] when its metadata do not fit
/// together.
pub(crate) fn describe(file: &Hdf5File, path: &Path, dataset: &str) -> Result<(ArraySchema, Form)> {
    let found = file.dataset(dataset)?;
    described(found, file, path, dataset)
}

/// As [`describe`], as if no chunk were stored: there may be many.
///
/// # Errors
/// As [`describe`].
pub(crate) fn outline(file: &Hdf5File, path: &Path, dataset: &str) -> Result<(ArraySchema, Form)> {
    let found = file.outline(dataset)?;
    described(found, file, path, dataset)
}

fn described(
    found: Option<Dataset>,
    file: &Hdf5File,
    path: &Path,
    dataset: &str,
) -> Result<(ArraySchema, Form)> {
    let Some(mut found) = found else {
        let mut there = arrays_of(file)?;
        there.truncate(20);
        let cause = format!(
            "there is no dataset {dataset}; datasets there: {}",
            there.join(", ")
        );
        return Err(Error::new(Kind::Missing, "opening", cause).at(path));
    };
    if found.storage == Stored::Virtual
        && let Some(there) = Hdf5File::open_with_sources(path)?.outline(dataset)?
    {
        found.shape = there.shape; // which may follow from those of its sources
    }
    let refused = |cause: String| Error::new(Kind::Unsupported, "opening", cause).at(path);
    let (word, is_stored) = match &found.element {
        Element::Stored(word) => (word, true),
        Element::Converted(word) => (word, false),
        Element::Other(words) => {
            let cause = format!("the elements of {dataset} are {words}, a type that is not read");
            return Err(refused(cause));
        }
    };
    let unread = |_| refused(format!("the elements of {dataset} are of the type {word}"));
    let stored = StoredElement::parse(word).map_err(unread)?;
    let element = stored.element().clone();
    let fill = fill_of(&found, &stored).map_err(|e| e.at(path))?;
    let Some(filters) = filters::words(&found.filters) else {
        let names = filters::names_of_unknown(&found.filters).join(", ");
        let cause = format!("{dataset} has a filter that is not read: {names}");
        return Err(refused(cause));
    };
    let (chunk, places) = lie_of(&found, &element, (path, dataset))?;
    let codecs = filters::codecs(&found.filters, &element);
    let file_path = path.to_path_buf();
    let form = match (places, codecs) {
        (Some(places), Some(codecs)) if is_stored && !stored.has_padding() => {
            Form::Placed(placed::Location {
                file: file_path,
                element: stored,
                fill: fill.clone(),
                codecs,
                places,
            })
        }
        _ if filters::are_in_library(&found.filters) => Form::Library(library::Location {
            file: file_path,
            dataset: dataset.to_string(),
            element: element.clone(),
            fill: fill.clone(),
            is_virtual: found.storage == Stored::Virtual,
        }),
        _ => {
            let cause = format!("nobody has all filters of {dataset}, {filters}, and its type");
            return Err(refused(cause));
        }
    };
    let name = dataset.rsplit('/').next().unwrap_or(dataset);
    let disk = Storage::Hdf5 {
        dataset: dataset.to_string(),
        chunk,
        filters,
        is_netcdf: file.is_netcdf(),
    };
    let schema = ArraySchema {
        dimension_names: found.dimensions.into_iter().collect(),
        attributes: attributes::to_json(found.attributes, file.is_netcdf()),
        fill,
        ..ArraySchema::new(name, &found.shape, element, disk)
    };
    Ok((schema, form))
}

/// The extents of a dataset's chunks, and the places of its elements; no places where only the
/// library finds them.
fn lie_of(
    found: &Dataset,
    element: &ElementType,
    (path, dataset): (&Path, &str),
) -> Result<(Option<Vec<u64>>, Option<Places>)> {
    let refused = |cause| Err(Error::new(Kind::Unsupported, "opening", cause).at(path));
    match &found.storage {
        Stored::Contiguous(Some(start)) => Ok((None, Some(Places::Run(*start)))),
        Stored::Contiguous(None) => Ok((None, Some(Places::Known(Vec::new())))),
        Stored::Chunked { chunk, chunks } => {
            let grid = DiskSchema::chunked(&found.shape, element.width(), chunk);
            let grid = grid.map_err(|e| damaged(path, e))?;
            let known = Places::Known(places_of(&grid, chunks, path)?);
            Ok((Some(chunk.clone()), Some(known)))
        }
        Stored::Compact | Stored::Virtual => Ok((None, None)),
        Stored::External(files) => refused(format!(
            "the elements of {dataset} are in other files, {}: `h5repack` makes one file of them",
            files.join(", ")
        )),
        Stored::Other => refused(format!("{dataset} has no elements of its own")),
    }
}

/// The datasets of a file, without those that only stand for a dimension.
///
/// # Errors
/// [`Kind::Damaged`] when the library cannot read it.
pub(crate) fn arrays_of(file: &Hdf5File) -> Result<Vec<String>> {
    let members = file.members("")?.into_iter();
    let arrays = members.filter(|(_, member)| *member == Member::Dataset);
    Ok(arrays.map(|(path, _)| path).collect())
}

fn fill_of(found: &Dataset, stored: &StoredElement) -> Result<Fill> {
    if found.fill.is_empty() {
        return Ok(Fill::default());
    }
    Fill::of_stored(stored, &found.fill)
}

/// The places of chunks, by object.
pub(crate) fn places_of(
    grid: &DiskSchema,
    chunks: &[Chunk],
    path: &Path,
) -> Result<Vec<Option<Place>>> {
    let counts = grid.grid();
    let objects = usize::try_from(grid.objects()).map_err(|e| damaged(path, e))?;
    let mut places = Vec::new();
    places
        .try_reserve_exact(objects)
        .map_err(|e| damaged(path, e))?;
    places.resize(objects, None);
    for chunk in chunks {
        let mut object = 0;
        for ((start, extent), count) in chunk.start.iter().zip(grid.chunk()).zip(&counts) {
            let index = start / extent;
            if index >= *count || start % extent != 0 {
                return Err(damaged(
                    path,
                    format!("a chunk begins at {:?}", chunk.start),
                ));
            }
            object = object * count + index;
        }
        let place = Place {
            at: chunk.place,
            bytes: chunk.bytes,
            skipped: chunk.skipped,
        };
        let place_of = usize::try_from(object)
            .ok()
            .and_then(|object| places.get_mut(object));
        *place_of.ok_or_else(|| damaged(path, "a chunk is out of the dataset"))? = Some(place);
    }
    Ok(places)
}
