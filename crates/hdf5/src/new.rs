//! Datasets that are made, with the dimensions that they share.

use std::collections::BTreeSet;

use hdf5_metno::{Dataset as OpenDataset, Group};
use penstock_engine::{Error, Kind, Result};

use crate::attributes::{self, Attribute};
use crate::contents::Dimension;
use crate::dataset::{Chunk, ChunkEntry};
use crate::elements::datatype_of;
use crate::file::{FileForm, Hdf5File, said};
use crate::library::{self, Creation, Filter, Outcome};

/// What follows the name of a dataset until it takes its place.
const ASIDE: &str = ".penstock-new";

/// A dataset that is made.
#[derive(Debug, Clone)]
pub struct NewDataset {
    /// The element type as NumPy writes it, such as `<f8`.
    pub element: String,
    /// The extents.
    pub shape: Vec<u64>,
    /// The dimensions that may grow without limit; of a dataset in chunks.
    pub grows: Vec<bool>,
    /// The extents of a chunk; `None` for one run of elements.
    pub chunk: Option<Vec<u64>>,
    /// The filters of chunks.
    pub filters: Vec<Filter>,
    /// The bytes of one element where nothing was written; empty for zeros.
    pub fill: Vec<u8>,
    /// The names of the dimensions.
    pub dimensions: Vec<String>,
    /// The attributes.
    pub attributes: Vec<(String, Attribute)>,
    /// Where the elements are.
    pub places: Places,
}

/// Where the elements of a new dataset are.
#[derive(Debug, Clone)]
pub enum Places {
    /// One behind the other from this byte on, or one chunk behind the other.
    From(u64),
    /// The chunks that are there.
    Each(Vec<Chunk>),
}

/// A dataset that is to have dimensions of these names.
struct Variable<'a> {
    path: &'a str,
    opened: OpenDataset,
    dimensions: &'a [String],
}

impl<'a> Variable<'a> {
    fn new(path: &'a str, opened: OpenDataset, dimensions: &'a [String]) -> Self {
        Self {
            path,
            opened,
            dimensions,
        }
    }

    /// Whether the dataset is the variable of a dimension of its own.
    fn is_scale(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or(self.path);
        matches!(self.dimensions, [own] if own == name)
    }
}

impl Hdf5File {
    /// Adds a dataset at `path`, with the groups above it, in the place of a dataset that is there.
    ///
    /// # Errors
    /// As [`Hdf5File::put_all`].
    pub fn put(&mut self, path: &str, new: NewDataset, form: FileForm) -> Result<()> {
        self.put_all(&[(path.to_string(), new)], &[], &[], form)
    }

    /// Adds datasets at their paths, with the groups above them, each in the place of a dataset
    /// that is there. Of NetCDF-4, `dimensions` come first, in their order; those that have no
    /// variable among the datasets are made, too. The datasets in `others` are there already, and
    /// get the dimensions of these names.
    ///
    /// # Errors
    /// [`Kind::Schema`] when something else is there, and when dimensions of one name have two
    /// lengths; [`Kind::Unsupported`] for what the form of the file does not have; [`Kind::Io`]
    /// when the library fails. The file is of no use then.
    pub fn put_all(
        &mut self,
        all: &[(String, NewDataset)],
        others: &[(String, Vec<String>)],
        dimensions: &[Dimension],
        form: FileForm,
    ) -> Result<()> {
        let mut variables = Vec::new();
        for (path, new) in all {
            let opened = self.put_one(path, new, form)?;
            variables.push(Variable::new(path, opened, &new.dimensions));
        }
        for (path, names) in others {
            let opened = self.library_file().dataset(path);
            let opened = opened.map_err(|e| self.cannot_write(path, &e))?;
            variables.push(Variable::new(path, opened, names));
        }
        if form == FileForm::NetCdf {
            return self.share_dimensions(&variables, dimensions);
        }
        for variable in &variables {
            for (number, name) in (0..).zip(variable.dimensions) {
                let labelled = library::set_label(&variable.opened, number, name);
                labelled.map_err(|e| self.cannot_write(variable.path, &e))?;
            }
        }
        Ok(())
    }

    /// The error of the library while it was writing to `path`.
    pub(crate) fn cannot_write(&self, path: &str, error: &hdf5_metno::Error) -> Error {
        let doing = format!("writing {path} to");
        Error::new(Kind::Io, doing, said(error)).at(self.path())
    }

    /// Adds a dataset without its dimensions.
    fn put_one(&self, path: &str, new: &NewDataset, form: FileForm) -> Result<OpenDataset> {
        if self.exists(path) && self.library_file().dataset(path).is_err() {
            let cause = format!("{path} is there, and is no dataset: give another name");
            return Err(Error::new(Kind::Schema, "writing", cause).at(self.path()));
        }
        let put = || self.try_to_put(path, new, form);
        put().map_err(|e| self.cannot_write(path, &e))
    }

    fn try_to_put(&self, path: &str, new: &NewDataset, form: FileForm) -> Outcome<OpenDataset> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let group = self.group_at(above, form)?;
        let aside = format!("{name}{ASIDE}");
        let opened = self.make(&group, &aside, new, form)?;
        for (name, attribute) in &new.attributes {
            attributes::write(&opened, name, attribute, form.texts())?;
        }
        let users = match group.link_exists(name) {
            true => self.users_of_scale(&format!("{above}/{name}"))?,
            false => Vec::new(),
        };
        if group.link_exists(name) {
            self.detach_all(&group.dataset(name)?)?;
            group.unlink(name)?;
        }
        group.relink(&aside, name)?;
        for (dataset, dimension) in users {
            library::attach_scale(&dataset, &opened, dimension)?;
        }
        Ok(opened)
    }

    /// Gives datasets their dimensions; those that are missing are made in their groups.
    fn share_dimensions(&self, variables: &[Variable<'_>], dimensions: &[Dimension]) -> Result<()> {
        let mut next = self
            .next_number()
            .map_err(|e| self.failed("looking into", e))?;
        let mut scales = BTreeSet::new();
        for dimension in dimensions {
            let path = dimension.path.as_str();
            let mut own = variables.iter().filter(|variable| variable.is_scale());
            match own.find(|variable| variable.path == path) {
                Some(own) => self.make_variable(path, &own.opened, next)?,
                None => drop(self.make_bare(path, dimension.extent, dimension.grows, next)?),
            }
            scales.insert(path);
            next += 1;
        }
        for variable in variables {
            if variable.is_scale() && scales.insert(variable.path) {
                self.make_variable(variable.path, &variable.opened, next)?;
                next += 1;
            }
        }
        for variable in variables.iter().filter(|variable| !variable.is_scale()) {
            let place = (variable.path, &variable.opened);
            let space = variable.opened.space();
            let space = space.map_err(|e| self.cannot_write(variable.path, &e))?;
            let extents = space.shape().into_iter().zip(space.maxdims());
            for (number, (name, (length, most))) in
                (0..).zip(variable.dimensions.iter().zip(extents))
            {
                let dimension = (name.as_str(), length as u64, most.is_none());
                next += i64::from(self.attach_dimension(place, number, dimension, next)?);
            }
        }
        Ok(())
    }

    /// Enters chunks into the index of the dataset at `path`, each in the place of the chunk that
    /// is stored, if one is: its bytes belong to nobody then.
    ///
    /// # Errors
    /// [`Kind::Io`] when the library fails. The file is of no use then.
    pub fn enter(&mut self, path: &str, chunks: &[ChunkEntry]) -> Result<()> {
        let enter = || -> Outcome<()> {
            let dataset = self.library_file().dataset(path)?;
            let mut chunks = chunks.iter();
            chunks.try_for_each(|(new, former)| self.replace_chunk(&dataset, former.as_ref(), new))
        };
        enter().map_err(|e| self.cannot_write(path, &e))
    }

    fn replace_chunk(
        &self,
        dataset: &OpenDataset,
        former: Option<&Chunk>,
        new: &Chunk,
    ) -> Outcome<()> {
        let mut there = former.map(|chunk| (chunk.place, chunk.bytes));
        let mut lengths = vec![new.bytes];
        if there.is_some_and(|(_, bytes)| bytes == new.bytes) {
            // The library would overwrite a chunk of the same length where it is.
            lengths.insert(0, if new.bytes > 1 { new.bytes - 1 } else { 2 });
        }
        for bytes in lengths {
            let nothing = vec![0; usize::try_from(bytes).map_err(|e| e.to_string())?];
            let mut image = self.image();
            image.place_at([new.place].into());
            image.forget(there.map(|(place, bytes)| place + bytes));
            drop(image);
            let entered = library::enter_chunk(dataset, &new.start, &nothing);
            let mut image = self.image();
            let left = image.place_no_more();
            image.forget(None);
            drop(image);
            entered?;
            if left > 0 {
                return Err("the library has put elements where their bytes are not".into());
            }
            there = Some((new.place, bytes));
        }
        Ok(())
    }

    /// Makes a dataset, and says where its elements are.
    fn make(
        &self,
        group: &Group,
        name: &str,
        new: &NewDataset,
        form: FileForm,
    ) -> Outcome<OpenDataset> {
        let creation = Creation {
            element: &datatype_of(&new.element)?,
            shape: &new.shape,
            grows: &new.grows,
            chunk: new.chunk.as_deref(),
            filters: &new.filters,
            fill: &new.fill,
            is_placed: matches!(new.places, Places::From(_)),
            keeps_order: form == FileForm::NetCdf,
        };
        match &new.places {
            Places::From(start) => {
                let width = creation.element.size() as u64;
                let extents = new.chunk.as_ref().unwrap_or(&new.shape);
                let bytes = extents.iter().product::<u64>() * width;
                let chunks: u64 = match &new.chunk {
                    _ if bytes == 0 => 0,
                    None => 1,
                    Some(chunk) => {
                        let counts = new.shape.iter().zip(chunk);
                        counts.map(|(n, c)| n.div_ceil((*c).max(1))).product()
                    }
                };
                let places = (0..chunks).map(|number| start + number * bytes);
                self.image().place_at(places.collect());
                let made = library::create_dataset(group, name, &creation);
                let left = self.image().place_no_more();
                // Chunks of an array that does not grow get their room at once.
                let at_once = match new.grows.contains(&true) {
                    true => 0,
                    false => chunks.saturating_sub(1),
                };
                placed(made?, left as u64, at_once)
            }
            Places::Each(chunks) => {
                let made = library::create_dataset(group, name, &creation)?;
                let places = chunks.iter().map(|chunk| chunk.place);
                self.image().place_at(places.collect());
                let bytes = |chunk: &Chunk| usize::try_from(chunk.bytes).unwrap_or(usize::MAX);
                let nothing = vec![0; chunks.iter().map(bytes).max().unwrap_or(0)];
                let enter = |chunk: &Chunk| {
                    library::enter_chunk(&made, &chunk.start, &nothing[..bytes(chunk)])
                };
                let entered = chunks.iter().try_for_each(enter);
                let left = self.image().place_no_more();
                entered?;
                placed(made, left as u64, 0)
            }
        }
    }
}

/// A dataset, if `left` places are left, as they should: an old file may have room elsewhere that
/// the library takes first.
fn placed(made: OpenDataset, left: u64, should_be: u64) -> Outcome<OpenDataset> {
    match left == should_be {
        true => Ok(made),
        false => Err("the library has put elements where their bytes are not".into()),
    }
}
