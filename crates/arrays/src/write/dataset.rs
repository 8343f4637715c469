//! Datasets of an HDF5 or NetCDF-4 file: their elements come first, and then the metadata that lead
//! to them.
//!
//! | the file | elements go | and then |
//! |---|---|---|
//! | is new | to a new file in the temporary | metadata behind them, and a rename |
//! | is there | behind its end, where nobody looks | metadata, by a journal |

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use penstock_hdf5::{
    Attribute, Changes, Chunk, Dimension, FileForm, Filter, Hdf5File, Member, NewDataset, Places,
};
use penstock_layout::{Assignment, DiskSchema};
use serde::Serialize;
use serde_json::{Map, Value};

use super::checks::{check_file, check_not_in_checkpoints, resolve};
use super::locked::{LockedFile, recover};
use crate::dtype::{ByteOrder, ElementType, StoredElement};
use crate::formats::hdf5::journal::Journal;
use crate::formats::hdf5::mark::check_not_saved;
use crate::formats::hdf5::{attributes, describe, filters, name};
use crate::formats::room::Notes;
use crate::formats::{Form, placed};
use crate::fs::files::{self, put_in_place};
use crate::fs::ops;
use crate::fs::temporary::Temporary;
use crate::schema::{ArraySchema, Storage};

/// Elements begin at a multiple of this: on pages of their own.
pub(crate) const ALIGNMENT: u64 = 4096;

/// What a copy makes in an HDF5 file.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct FileGoal {
    pub(crate) is_netcdf: bool,
    /// Whether the file that is there stays, and gets all this in addition.
    pub(crate) is_added: bool,
    /// The HDF5 file from which attributes, scales and objects come as they are.
    pub(crate) source: Option<PathBuf>,
    /// Groups, each before what is in it.
    pub(crate) groups: Vec<FileGroup>,
    pub(crate) arrays: Vec<FileArray>,
    /// The dimensions of NetCDF-4 that are known, in their order: path, length, whether it grows.
    pub(crate) dimensions: Vec<(String, u64, bool)>,
    /// Objects of the source that stay as they are.
    pub(crate) objects: Vec<FileObject>,
}

/// An object of the source that stays as it is.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FileObject {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) is_dataset: bool,
    pub(crate) is_link: bool,
}

/// A group that a copy makes.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FileGroup {
    pub(crate) path: String,
    pub(crate) attributes: Map<String, Value>,
    /// The group of the source from which attributes come as they are.
    pub(crate) from: Option<String>,
}

/// A dataset that servers write.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FileArray {
    pub(crate) path: String,
    pub(crate) schema: ArraySchema,
    /// The dimensions that may grow without limit.
    pub(crate) grows: Vec<bool>,
    /// The dataset of the source from which attributes and scales come as they are.
    pub(crate) from: Option<String>,
}

/// The place of datasets in a file.
pub(crate) struct FilePlace {
    file: PathBuf,
    form: FileForm,
    goal: FileGoal,
    arrays: Vec<NewArray>,
    /// The file, if it is there and stays.
    former: Option<LockedFile>,
    /// Whether another process may go on where this one is killed.
    may_go_on: bool,
}

/// A dataset that servers write.
struct NewArray {
    disk: DiskSchema,
    filters: Vec<Filter>,
    attributes: Vec<(String, Attribute)>,
    /// The first byte of the elements, if the places of all follow from it.
    start: Option<u64>,
}

impl FilePlace {
    /// The place of `schema` at `path`: a file, or a file and a dataset.
    ///
    /// # Errors
    /// [`Kind::Schema`] when something else is there, or the path and the disk schema name two
    /// datasets; [`Kind::Unsupported`] for attributes and filters that such a file does not have;
    /// [`Kind::Busy`] when another program has the file open.
    pub(super) fn new(path: &Path, schema: &ArraySchema) -> Result<Self> {
        let Storage::Hdf5 {
            dataset, is_netcdf, ..
        } = &schema.disk
        else {
            unreachable!("a dataset of an array that is stored otherwise");
        };
        let (path, dataset) = place_of(path, dataset, &schema.name)?;
        let goal = FileGoal {
            is_netcdf: *is_netcdf,
            is_added: true,
            arrays: vec![FileArray {
                path: dataset,
                schema: schema.clone(),
                grows: vec![false; schema.shape.len()],
                from: None,
            }],
            ..FileGoal::default()
        };
        Self::of_goal(&path, goal, false)
    }

    /// The place of all that a copy makes in the file at `path`.
    ///
    /// # Errors
    /// As [`FilePlace::new`].
    pub(super) fn of_copy(path: &Path, goal: &FileGoal) -> Result<Self> {
        Self::of_goal(path, goal.clone(), true)
    }

    fn of_goal(path: &Path, goal: FileGoal, is_copy: bool) -> Result<Self> {
        let file = resolve(path)?;
        check_not_in_checkpoints(&file)?;
        recover(&file)?;
        let former = match goal.is_added {
            true => LockedFile::open(&file)?,
            false => {
                check_file(&file, false)?;
                None
            }
        };
        if let Some(former) = &former {
            let mut arrays = goal.arrays.iter();
            arrays.try_for_each(|array| check_not_saved(former.opened(), &file, &array.path))?;
        }
        Self::at(file, goal, former, is_copy)
    }

    /// The place of all of `goal` in a new file at `path`, which nobody else names.
    ///
    /// # Errors
    /// As [`FilePlace::new`].
    pub(crate) fn of_new(path: PathBuf, goal: FileGoal) -> Result<Self> {
        Self::at(path, goal, None, false)
    }

    fn at(
        file: PathBuf,
        goal: FileGoal,
        former: Option<LockedFile>,
        is_copy: bool,
    ) -> Result<Self> {
        let form = FileForm::of(goal.is_netcdf);
        let mut end = former.as_ref().map_or(0, LockedFile::end).max(1);
        let mut arrays = Vec::new();
        for array in &goal.arrays {
            let array = NewArray::new(&array.schema, form, &mut end)?;
            arrays.push(array);
        }
        let place = Self {
            may_go_on: is_copy && former.is_none(),
            file,
            form,
            goal,
            arrays,
            former,
        };
        place.try_out()?;
        Ok(place)
    }

    /// Makes the metadata once without writing them, to find what the file refuses.
    fn try_out(&self) -> Result<()> {
        let places = self.arrays.iter().map(|array| match array.start {
            Some(start) => Places::From(start),
            None => Places::Each(Vec::new()),
        });
        self.metadata(places.collect(), self.end()?).map(drop)
    }

    /// The end of the elements whose places are known.
    fn end(&self) -> Result<u64> {
        let former = self.former.as_ref().map_or(0, LockedFile::end);
        let ends = self.arrays.iter().map(|array| array.end(&self.file));
        let mut end = former.max(1).next_multiple_of(ALIGNMENT);
        for of_array in ends {
            end = end.max(of_array?);
        }
        Ok(end)
    }

    pub(super) fn path(&self) -> &Path {
        &self.file
    }

    /// Whether a copy to here may go on where a killed process has stopped.
    pub(super) fn may_go_on(&self) -> bool {
        self.may_go_on
    }

    /// Makes room for the elements in the file, or in a new one in the temporary, and gives the
    /// forms that servers open, one an array. If all that `is_there`, room that nobody uses is cut.
    pub(crate) fn lay_out(&self, temporary: &Temporary, is_there: bool) -> Result<Vec<Form>> {
        let (path, mut end) = (self.data(temporary), self.end()?);
        match &self.former {
            Some(former) => former.make_room(end)?,
            None if is_there => {
                for number in 0..self.arrays.len() {
                    let notes = self.notes(temporary, number).read()?;
                    let ends = notes.values().map(|place| place.at + place.bytes);
                    end = end.max(ends.max().unwrap_or(0));
                }
                let file = File::options().write(true).open(&path);
                let file = file.map_err(|e| Error::io(&e, "opening for writing", &path))?;
                ops::set_len(&file, end, &path)
                    .map_err(|e| Error::io(&e, "making room in", &path))?;
            }
            None => files::make_file(&path, &[], end)?,
        }
        let arrays = self.arrays.iter().zip(&self.goal.arrays).enumerate();
        let form = |(number, (array, of)): (usize, (&NewArray, &FileArray))| {
            let schema = &of.schema;
            Form::Placed(placed::Location {
                file: path.clone(),
                element: StoredElement::of(&schema.element, ByteOrder::NATIVE),
                fill: schema.fill.clone(),
                codecs: filters::codecs(&array.filters, &schema.element).unwrap_or_default(),
                places: match array.start {
                    Some(start) => placed::Places::Run(start),
                    None => placed::Places::New(self.notes(temporary, number), Vec::new()),
                },
            })
        };
        Ok(arrays.map(form).collect())
    }

    fn notes(&self, temporary: &Temporary, number: usize) -> Notes {
        Notes {
            directory: temporary.path().to_path_buf(),
            number,
            are_lasting: self.may_go_on,
        }
    }

    /// The file to which servers write.
    fn data(&self, temporary: &Temporary) -> PathBuf {
        match self.former {
            Some(_) => self.file.clone(),
            None => temporary.data(),
        }
    }

    /// Makes the metadata that lead to the elements.
    pub(crate) fn install(&self, temporary: &Temporary) -> Result<()> {
        let data = self.data(temporary);
        let file = File::options().read(true).write(true).open(&data);
        let file = file.map_err(|e| Error::io(&e, "opening for writing", &data))?;
        let end = files::length(&file, &data)?;
        let arrays = self.arrays.iter().enumerate();
        let places = arrays.map(|(number, array)| match array.start {
            Some(start) => Ok(Places::From(start)),
            None => {
                let notes = self.notes(temporary, number).read()?.into_iter();
                let chunk = |(object, place)| chunk_at(&array.disk, object, place);
                Ok(Places::Each(notes.map(chunk).collect()))
            }
        });
        let places = places.collect::<Result<Vec<_>>>()?;
        match &self.former {
            Some(former) => former.install(|| self.metadata(places, end), temporary),
            None => {
                let changes = self.metadata(places, end)?;
                Journal::new(changes, &file, 0, &data)?.make(&file, &data)?;
                if !self.goal.is_added {
                    check_file(&self.file, false)?;
                }
                put_in_place(&data, &self.file)
            }
        }
    }

    /// The metadata with the new datasets, at these places. Elements end at `end`.
    fn metadata(&self, places: Vec<Places>, end: u64) -> Result<Changes> {
        let mut file = match &self.former {
            None => Hdf5File::create(&self.file, self.form, end)?,
            Some(former) => former.change_over(&Changes::default(), end)?,
        };
        for group in &self.goal.groups {
            let attributes = attributes::of_json(&group.attributes, self.form)?;
            file.make_group(&group.path, self.form)?;
            for (name, attribute) in &attributes {
                file.set_attribute(&group.path, name, attribute, self.form)?;
            }
        }
        let arrays = self.arrays.iter().zip(&self.goal.arrays).zip(places);
        let new = arrays.map(|((new, array), places)| {
            let dataset = new.dataset(array, places, self.form);
            (array.path.clone(), dataset)
        });
        let dimensions = self.goal.dimensions.iter();
        let dimensions = dimensions.map(|(path, extent, grows)| Dimension {
            path: path.clone(),
            extent: *extent,
            grows: *grows,
        });
        let dimensions: Vec<Dimension> = dimensions.collect();
        let new: Vec<_> = new.collect();
        let Some(source) = &self.goal.source else {
            file.put_all(&new, &[], &dimensions, self.form)?;
            return file.finish();
        };
        let source = describe::open(source)?;
        let others = self.take_objects(&source, &mut file)?;
        file.put_all(&new, &others, &dimensions, self.form)?;
        self.take_from(&source, &mut file)?;
        file.finish()
    }

    /// Takes objects from another file. Gives the datasets among them, with the names of their
    /// dimensions if the file shares these.
    fn take_objects(
        &self,
        source: &Hdf5File,
        file: &mut Hdf5File,
    ) -> Result<Vec<(String, Vec<String>)>> {
        let mut datasets = Vec::new();
        for FileObject {
            from, to, is_link, ..
        } in &self.goal.objects
        {
            let member = match is_link {
                true => Member::Link,
                false => Member::Dataset,
            };
            file.take_object(to, source, (from, member), self.form)?;
        }
        for object in self.goal.objects.iter().filter(|object| object.is_dataset) {
            file.take_attributes(&object.to, source, &object.from, self.form)?;
            let found = source.dataset(&object.from)?;
            let names = found.map(|found| found.dimensions).unwrap_or_default();
            let name = object.to.rsplit('/').next().unwrap_or_default();
            let names = names.into_iter().enumerate();
            let names = names.map(|(d, known)| known.unwrap_or_else(|| format!("{name}_{d}")));
            let names = match self.form {
                FileForm::NetCdf => names.collect(),
                FileForm::Hdf5 => Vec::new(), // as the source has them
            };
            datasets.push((object.to.clone(), names));
        }
        Ok(datasets)
    }

    /// Takes attributes and scales from another file as they are.
    fn take_from(&self, source: &Hdf5File, file: &mut Hdf5File) -> Result<()> {
        let FileGoal {
            groups,
            arrays,
            objects,
            ..
        } = &self.goal;
        let groups = groups.iter().map(|group| (&group.path, &group.from));
        let arrays = arrays.iter().map(|array| (&array.path, &array.from));
        for (to, from) in groups.clone().chain(arrays.clone()) {
            if let Some(from) = from {
                file.take_attributes(to, source, from, self.form)?;
            }
        }
        if self.form == FileForm::Hdf5 {
            let objects = objects.iter().filter(|object| object.is_dataset);
            let objects = objects.map(|object| (object.from.clone(), object.to.clone()));
            let arrays = arrays.filter_map(|(to, from)| Some((from.clone()?, to.clone())));
            let copies: BTreeMap<String, String> = objects.chain(arrays).collect();
            file.take_scales(source, &copies)?;
        }
        Ok(())
    }
}

impl FileArray {
    /// The dataset without elements.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for attributes and filters that such a file does not have.
    pub(crate) fn without_elements(&self, form: FileForm) -> Result<NewDataset> {
        let new = NewArray::new(&self.schema, form, &mut 1)?;
        Ok(new.dataset(self, Places::Each(Vec::new()), form))
    }
}

impl NewArray {
    /// A new array. If its places are known, its elements are behind `end`, which then moves on.
    fn new(schema: &ArraySchema, form: FileForm, end: &mut u64) -> Result<Self> {
        let Storage::Hdf5 { filters: words, .. } = &schema.disk else {
            unreachable!("a dataset of an array that is stored otherwise");
        };
        let named = |error: Error| Error {
            doing: format!("{} '{}'", error.doing, schema.name),
            ..error
        };
        if form == FileForm::NetCdf && schema.element == ElementType::F2 {
            let cause =
                "NetCDF has no floating-point numbers of two bytes, and its programs fail on them";
            return Err(named(Error::new(Kind::Unsupported, "writing", cause)));
        }
        let filters = filters::parse(words, &schema.element)?;
        filters::check_writable(&filters).map_err(named)?;
        let mut new = Self {
            disk: schema.disk_schema(1)?,
            attributes: attributes::of_array(&schema.attributes, &schema.element, form)
                .map_err(named)?,
            filters,
            start: None,
        };
        if new.filters.is_empty() {
            new.start = Some(end.next_multiple_of(ALIGNMENT));
            *end = new.end(Path::new(""))?;
        }
        Ok(new)
    }

    /// The end of the elements, if their places are known.
    fn end(&self, path: &Path) -> Result<u64> {
        let Some(start) = self.start else {
            return Ok(0);
        };
        let end = start.checked_add(bytes_of(&self.disk));
        end.ok_or_else(|| files::too_long(path))
    }

    /// The dataset, whose elements are at `places`.
    fn dataset(&self, array: &FileArray, places: Places, form: FileForm) -> NewDataset {
        let schema = &array.schema;
        let dimensions = match form {
            // NetCDF has no dimension without a name.
            FileForm::NetCdf => schema.names_of_dimensions(),
            FileForm::Hdf5 if array.from.is_some() => Vec::new(), // as the source has them
            FileForm::Hdf5 => schema.dimension_names.clone().unwrap_or_default(),
        };
        NewDataset {
            element: schema.element.numpy(),
            shape: schema.shape.clone(),
            grows: array.grows.clone(),
            // One run of elements is one object, too.
            chunk: match self.disk.assignment() {
                Assignment::Objects => Some(self.disk.chunk().to_vec()),
                Assignment::Blocks => None,
            },
            filters: self.filters.clone(),
            fill: schema.fill.bytes().to_vec(),
            dimensions,
            attributes: self.attributes.clone(),
            places,
        }
    }
}

/// The chunk that is an object of the disk schema.
pub(crate) fn chunk_at(
    disk: &DiskSchema,
    object: u64,
    place: crate::formats::room::Place,
) -> Chunk {
    let index = disk.grid_index(object).into_iter();
    Chunk {
        start: index.zip(disk.chunk()).map(|(i, n)| i * n).collect(),
        place: place.at,
        bytes: place.bytes,
        skipped: place.skipped,
    }
}

/// The file and the dataset of an array: the path may name both.
fn place_of(path: &Path, dataset: &str, array: &str) -> Result<(PathBuf, String)> {
    let known = name::tidy(dataset);
    let (file, named) = match name::split(path) {
        Some((file, named)) => (file, named),
        None => (path.to_path_buf(), String::new()),
    };
    let dataset = match (named.is_empty(), known.is_empty()) {
        (true, true) => format!("/{array}"),
        (true, false) => known,
        (false, true) => named,
        (false, false) if named == known => named,
        (false, false) => {
            let cause = format!("the path names the dataset {named}, and the disk schema {known}");
            return Err(Error::new(Kind::Schema, "writing", cause).at(path));
        }
    };
    Ok((file, dataset))
}

/// The bytes of all objects, with their padding.
fn bytes_of(disk: &DiskSchema) -> u64 {
    match disk.objects() {
        0 => 0,
        objects => objects.saturating_mul(disk.object_bytes(0)),
    }
}
