//! Groups in one file of HDF5 or NetCDF-4: timesteps along a dimension that grows without limit.
//!
//! ```text
//! run.nc                    the attribute penstock of the root is the record
//!   time(time)              the coordinate: one float64 a timestep
//!   temperature(time, ...)  chunks (time_chunk, ...)
//!   particles(row, ...)     rows of all timesteps
//!   row_start(time)         the first row of each timestep
//!   row_count(time)         the number of rows of each timestep
//!   latitude(latitude)      static: a coordinate
//! run.nc.checkpoints/
//!   50.nc                   a checkpoint: a file of its own
//! ```
//!
//! # A timestep
//! Servers write new chunks behind the end of the file, where nobody looks, and sync them. Rows of
//! a chunk that is stored as it is go where they belong, beyond the length that readers know. Then
//! one change of the metadata, made by a journal, has all of the timestep: longer arrays, their
//! chunks, its time and numbers of rows, and the record. A crash leaves the former file, or the
//! timestep.
//!
//! # A checkpoint
//! A checkpoint is a new file, which is renamed into its place. Only then old ones are removed.
//!
//! # Room
//! Chunks that were replaced, or dropped by a restart, leave room in the file that is not used
//! again: `penstock copy` makes a file without it.

mod additions;
mod checkpoint;
mod growing;
mod timestep;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use penstock_hdf5::{FileForm, Hdf5File};

use super::declared::{ArrayDeclaration, Declaration};
use super::found::{Catalog, Checkpoint, Shapes};
use super::group::Group;
use super::metadata::take_time;
use crate::formats::hdf5::journal::Journal;
use crate::formats::hdf5::mark::{GroupMark, Mark, checkpoints_of, dataset_of};
use crate::formats::hdf5::{attributes, describe, filters};
use crate::formats::record::{ATTRIBUTE, Growth, Record};
use crate::fs::files::{self, damaged, put_in_place};
use crate::fs::temporary::Temporary;
use crate::schema::{ArraySchema, Storage};
use crate::write::checks::{check_not_in_checkpoints, resolve};
use crate::write::{FilePlace, LockedFile, recover};

use additions::Additions;
use growing::GrowingArray;

/// A group in a file.
pub(super) struct GroupInFile {
    path: PathBuf,
    form: FileForm,
    mark: GroupMark,
    file: LockedFile,
    temporary: Temporary,
    /// The arrays of the timestep that is being written.
    growing: Vec<GrowingArray>,
    /// The checkpoint that is being written.
    begun: Option<(FilePlace, Temporary)>,
}

impl Group for GroupInFile {
    fn id(&self) -> &str {
        &self.mark.group.id
    }

    fn moment(&self, name: &str) -> Result<ArraySchema> {
        moment(self.file.opened(), &self.path, &self.mark, name)
    }
}

impl GroupInFile {
    /// Opens the group in the file at `path`, which is made if it is missing.
    ///
    /// # Errors
    /// As [`super::open_to_save`].
    pub(super) fn open(
        path: &Path,
        declared: &Declaration,
        is_netcdf: bool,
        is_first: bool,
    ) -> Result<Self> {
        let path = resolve(path)?;
        if let Some(name) = declared.bounded.first() {
            let doing = format!("keeping bounds of the array {name:?}");
            let cause = "a group in a file of HDF5 has no place for them: save to a Zarr store";
            return Err(Error::new(Kind::Unsupported, doing, cause).at(&path));
        }
        let form = FileForm::of(is_netcdf);
        check_not_in_checkpoints(&path)?;
        recover(&path)?;
        let temporary = Temporary::create(&path, None, &path)?;
        let file = match LockedFile::open(&path)? {
            Some(file) => file,
            None => {
                let former = GroupMark::of(declared);
                let additions = Additions::new(None, &former, declared, is_first, form);
                create(&path, &additions.map_err(|e| e.at(&path))?, &temporary)?;
                let made = LockedFile::open(&path)?;
                made.ok_or_else(|| damaged(&path, "it is gone"))?
            }
        };
        if file.opened().is_netcdf() != is_netcdf {
            let word = |is_netcdf| if is_netcdf { "NetCDF-4" } else { "HDF5" };
            let (there, asked) = (word(!is_netcdf), word(is_netcdf));
            let cause = format!("the file there is of {there}, and the call says {asked}");
            return Err(Error::new(Kind::Schema, "writing to a group", cause).at(&path));
        }
        let mark = match Mark::read(file.opened(), &path)? {
            Some(Mark::Group(mark)) => mark,
            None => GroupMark::of(declared),
            Some(Mark::Checkpoint(_)) => {
                let cause = "it is a checkpoint: give another path";
                return Err(Error::new(Kind::Schema, "writing to a group", cause).at(&path));
            }
        };
        let mut group = Self {
            path,
            form,
            mark,
            file,
            temporary,
            growing: Vec::new(),
            begun: None,
        };
        group.check_arrays(declared)?;
        group.check_lengths()?;
        let opened = Some(group.file.opened());
        let additions = Additions::new(opened, &group.mark, declared, is_first, form);
        let additions = additions.map_err(|e| e.at(&group.path))?;
        if !additions.is_empty() {
            group.file.make_room(group.file.end())?;
            group.change(additions.mark.clone(), |file| additions.make(file))?;
        }
        Ok(group)
    }

    fn refused(&self, cause: &str) -> Error {
        Error::new(Kind::Schema, "writing to a group", cause).at(&self.path)
    }

    /// Checks that the stored arrays are declared, and stored as declared.
    fn check_arrays(&self, declared: &Declaration) -> Result<()> {
        let moment = |name: &str| self.moment(name);
        let is_stored_as = |stored: &ArraySchema, array: &ArrayDeclaration| {
            let asked = dataset_of(&array.schema);
            let is_there = !array.says_codec || self.mark.dataset(&stored.name) == asked;
            Ok(is_there && is_stored_as(stored, array))
        };
        declared.check_stored(&self.path, &self.mark.group, &moment, &is_stored_as)
    }

    /// Refuses a group whose arrays another program has changed.
    fn check_lengths(&self) -> Result<()> {
        let record = &self.mark.group;
        let is_new = record.arrays.is_empty();
        for name in record.names().into_iter().filter(|_| !is_new) {
            let dataset = self.mark.dataset(&name);
            let found = self.file.opened().outline(&dataset)?;
            let there = found.and_then(|found| found.shape.first().copied());
            let known = record.length(&name);
            if there != known {
                let there = there.map_or("gone".to_string(), |there| format!("{there} long"));
                let cause = format!(
                    "{dataset} is {there}, and Penstock has made {} of it: another program has \
                     changed it",
                    known.unwrap_or(0)
                );
                return Err(self.refused(&cause));
            }
        }
        Ok(())
    }

    /// Makes a change of the metadata, with the mark, whole or not at all.
    fn change(
        &mut self,
        mark: GroupMark,
        change: impl FnOnce(&mut Hdf5File) -> Result<()>,
    ) -> Result<()> {
        let changes = || {
            let mut open = self.file.change()?;
            change(&mut open)?;
            mark.write(&mut open)?;
            open.finish()
        };
        self.file.install(changes, &self.temporary)?;
        self.now(mark)
    }

    /// Goes on after a change.
    fn now(&mut self, mark: GroupMark) -> Result<()> {
        self.mark = mark;
        self.file.go_on()
    }
}

impl GroupMark {
    /// The mark of a group that has no arrays yet.
    fn of(declared: &Declaration) -> Self {
        let none = Declaration {
            arrays: Vec::new(),
            ..declared.clone()
        };
        Self {
            datasets: BTreeMap::new(),
            group: Record::of(&none),
        }
    }
}

/// Makes a file with all that is declared, by a rename.
fn create(path: &Path, all: &Additions<'_>, temporary: &Temporary) -> Result<()> {
    let mut new = Hdf5File::create(path, all.form, 0)?;
    all.make(&mut new)?;
    all.mark.write(&mut new)?;
    let changes = new.finish()?;
    let data = temporary.data();
    files::make_file(&data, &[], 0)?;
    let file = File::options().read(true).write(true).open(&data);
    let file = file.map_err(|e| Error::io(&e, "opening for writing", &data))?;
    Journal::new(changes, &file, 0, &data)?.make(&file, &data)?;
    put_in_place(&data, path)
}

/// Whether a stored array has the declared chunks and filters, as far as some are declared.
fn is_stored_as(stored: &ArraySchema, array: &ArrayDeclaration) -> bool {
    let (
        Storage::Hdf5 {
            chunk: there,
            filters: stored_filters,
            ..
        },
        Storage::Hdf5 {
            chunk,
            filters: asked,
            ..
        },
    ) = (&stored.disk, &array.schema.disk)
    else {
        return false;
    };
    let parsed = |words: &str| filters::parse(words, &stored.element).ok();
    let is_filtered_so = || parsed(stored_filters) == parsed(asked);
    (array.is_natural || there == chunk) && (!array.says_codec || is_filtered_so())
}

/// The schema of an array of a group at one moment.
fn moment(opened: &Hdf5File, path: &Path, mark: &GroupMark, name: &str) -> Result<ArraySchema> {
    let (mut schema, _) = describe::outline(opened, path, &mark.dataset(name))?;
    schema.name = name.to_string();
    match mark.group.arrays.get(name) {
        Some(Growth::Rows(_)) => {}
        _ => take_time(&mut schema, mark.group.time_chunk).map_err(|e| e.at(path))?,
    }
    Ok(schema)
}

/// Reads the catalog of the group in the file at `path`; `None` if there is none.
///
/// # Errors
/// [`Kind::Damaged`] when the group cannot be understood.
pub(super) fn catalog(path: &Path) -> Result<Option<Catalog>> {
    if !describe::is_hdf5_file(path) {
        return Ok(None);
    }
    let opened = describe::open(path)?;
    let Some(Mark::Group(mark)) = Mark::read(&opened, path)? else {
        return Ok(None);
    };
    let mut attributes = attributes::to_json(opened.attributes("")?, opened.is_netcdf());
    attributes.remove(ATTRIBUTE);
    let arrays = mark.group.arrays.keys();
    let arrays = arrays.map(|name| moment(&opened, path, &mark, name));
    let arrays = arrays.collect::<Result<_>>()?;
    let record = mark.group;
    Ok(Some(Catalog {
        attributes,
        timesteps: record.timesteps,
        time_chunk: record.time_chunk,
        arrays,
        rows: record.rows.into_iter().collect(),
        checkpoints: checkpoints(path)?,
        name: record.group,
    }))
}

/// All checkpoints of the group in the file at `path`, the newest last.
///
/// # Errors
/// The error of the operating system.
pub(super) fn checkpoints(path: &Path) -> Result<Vec<Checkpoint>> {
    let directory = checkpoints_of(path);
    let mut all = Vec::new();
    if !directory.is_dir() {
        return Ok(all); // none has been saved
    }
    for entry in files::entries(&directory)? {
        let place = entry.path();
        if !describe::is_hdf5_file(&place) {
            continue; // what others have put there, or a checkpoint that has just been removed
        }
        let opened = describe::open(&place)?;
        let Some(Mark::Checkpoint(mark)) = Mark::read(&opened, &place)? else {
            continue;
        };
        let Ok(checkpoint) = serde_json::from_value::<Checkpoint>(mark.checkpoint) else {
            continue;
        };
        let mut attributes = attributes::to_json(opened.attributes("")?, opened.is_netcdf());
        attributes.remove(ATTRIBUTE);
        all.push(Checkpoint {
            attributes,
            path: place,
            ..checkpoint
        });
    }
    all.sort_by_key(|checkpoint| checkpoint.number);
    Ok(all)
}

/// The shapes of the arrays of a checkpoint in the file at `path`, by name; `None` if it is no such
/// file.
///
/// # Errors
/// [`Kind::Damaged`] when it cannot be understood.
pub(super) fn shapes_in(path: &Path) -> Result<Option<Shapes>> {
    if !describe::is_hdf5_file(path) {
        return Ok(None);
    }
    let opened = describe::open(path)?;
    let datasets = match Mark::read(&opened, path)? {
        Some(Mark::Checkpoint(mark)) => mark.datasets,
        _ => BTreeMap::new(),
    };
    let shapes = datasets.into_iter().map(|(name, dataset)| {
        let found = opened.outline(&dataset)?;
        Ok((name, found.map(|found| found.shape).unwrap_or_default()))
    });
    shapes.collect::<Result<_>>().map(Some)
}
