//! Dimensions of NetCDF-4: scales that datasets share.
//!
//! A dimension is a one-dimensional dataset that is a scale (HDF5's specification of dimension
//! scales; NetCDF's of its use of HDF5). If it has a variable, the scale is the variable; otherwise
//! it is a dataset without elements, and its attribute `NAME` says so. A dataset finds its
//! dimensions in its own group and in the groups above.

use hdf5_metno::Dataset as OpenDataset;
use penstock_engine::{Error, Kind, Result};

use crate::attributes::{self, Attribute, TextForm};
use crate::dataset::NO_VARIABLE;
use crate::elements::datatype_of;
use crate::file::{FileForm, Hdf5File};
use crate::library::{self, Creation, Outcome};

/// The attribute with the number of a dimension.
const NUMBER: &str = "_Netcdf4Dimid";

/// Gives a scale its number.
fn number(scale: &OpenDataset, number: i64) -> Outcome<()> {
    attributes::write(scale, NUMBER, &Attribute::integer(number), TextForm::Fixed)
}

/// Whether an attribute of a group belongs to NetCDF.
pub(crate) fn is_own(name: &str) -> bool {
    matches!(name, "_NCProperties" | "_nc3_strict")
}

/// The number of the dimension that a dataset is, if it has one.
pub(crate) fn number_of(scale: &OpenDataset) -> Outcome<Option<i64>> {
    match scale.attr(NUMBER) {
        Ok(number) => number.read_scalar::<i64>().map(Some),
        Err(_) => Ok(None),
    }
}

impl Hdf5File {
    /// The scale of a dimension in the group at `path` or one above.
    fn scale_above(&self, path: &str, name: &str) -> Option<OpenDataset> {
        let mut group = path;
        loop {
            let at = format!("{group}/{name}");
            if self.exists(&at)
                && let Ok(found) = self.library_file().dataset(&at)
                && library::is_scale(&found).unwrap_or(false)
            {
                return Some(found);
            }
            group = group.rsplit_once('/')?.0;
        }
    }

    /// Gives the new dataset at `path` one of its dimensions, of this length, which is made in its
    /// group if it is missing. Gives whether it was.
    pub(crate) fn attach_dimension(
        &self,
        (path, opened): (&str, &OpenDataset),
        number: u32,
        dimension: (&str, u64, bool),
        next: i64,
    ) -> Result<bool> {
        let (above, _) = path.rsplit_once('/').unwrap_or(("", path));
        let (name, length, grows) = dimension;
        let known = self.scale_above(above, name);
        let is_missing = known.is_none();
        let scale = match known {
            Some(scale) => scale,
            None => self.make_bare(&format!("{above}/{name}"), length, grows, next)?,
        };
        let there = scale.shape().first().map_or(length, |&there| there as u64);
        let may_differ = || {
            let most = scale.space().map(|space| space.maxdims());
            most.is_ok_and(|most| most.first().is_some_and(Option::is_none))
        };
        if there != length && !may_differ() {
            let cause = format!(
                "the dimension {name:?} of {path} has {length} elements here and {there} in the file"
            );
            return Err(Error::new(Kind::Schema, "writing", cause).at(self.path()));
        }
        let attached = library::attach_scale(opened, &scale, number);
        attached.map_err(|e| self.cannot_write(path, &e))?;
        Ok(is_missing)
    }

    /// Makes a dataset the variable of its dimension.
    pub(crate) fn make_variable(&self, path: &str, opened: &OpenDataset, next: i64) -> Result<()> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let make = || {
            library::make_scale(opened, name)?;
            number(opened, next)
        };
        make().map_err(|e| self.cannot_write(path, &e))
    }

    /// Makes a dimension without variable.
    pub(crate) fn make_bare(
        &self,
        path: &str,
        extent: u64,
        grows: bool,
        next: i64,
    ) -> Result<OpenDataset> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        if self.exists(path) {
            let cause = format!(
                "{path} has the name of a dimension, and is not the dimension's one-dimensional variable"
            );
            return Err(Error::new(Kind::Unsupported, "writing", cause).at(self.path()));
        }
        let make = || {
            let creation = Creation {
                element: &datatype_of(">f4")?,
                shape: &[extent],
                grows: &[grows],
                chunk: grows.then_some(&[1024]),
                filters: &[],
                fill: &[],
                is_placed: false,
                keeps_order: true,
            };
            let group = self.group_at(above, FileForm::NetCdf)?;
            let scale = library::create_dataset(&group, name, &creation)?;
            library::make_scale(&scale, &format!("{NO_VARIABLE}{extent:10}"))?;
            number(&scale, next)?;
            Ok(scale)
        };
        make().map_err(|e| self.cannot_write(path, &e))
    }

    /// The number that the next dimension gets.
    pub(crate) fn next_number(&self) -> Outcome<i64> {
        let mut next = 0;
        for path in self.datasets().map_err(|e| e.to_string())? {
            let number = number_of(&self.library_file().dataset(&path)?)?;
            next = next.max(number.map_or(0, |number| number + 1));
        }
        Ok(next)
    }

    /// Detaches the scales of a dataset that is to be removed: they would refer to nothing.
    pub(crate) fn detach_all(&self, dataset: &OpenDataset) -> Outcome<()> {
        for dimension in (0..).take(dataset.ndim()) {
            while let Some(path) = library::scale_of(dataset, dimension)? {
                self.detach(dataset, &self.library_file().dataset(&path)?, dimension)?;
            }
        }
        Ok(())
    }

    /// Detaches a scale. If the scale refers to datasets that are gone, the library fails at the
    /// end, when the dataset is detached already.
    fn detach(&self, dataset: &OpenDataset, scale: &OpenDataset, dimension: u32) -> Outcome<()> {
        let before = library::scale_of(dataset, dimension)?;
        match library::detach_scale(dataset, scale, dimension) {
            Err(error) if library::scale_of(dataset, dimension)? == before => Err(error),
            _ => Ok(()),
        }
    }

    /// The datasets whose dimensions are those of the scale at `path`, which is to be replaced.
    pub(crate) fn users_of_scale(&self, path: &str) -> Outcome<Vec<(OpenDataset, u32)>> {
        let scale = self.library_file().dataset(path)?;
        if !library::is_scale(&scale)? {
            return Ok(Vec::new());
        }
        let mut users = Vec::new();
        for other in self.datasets().map_err(|e| e.to_string())? {
            let dataset = self.library_file().dataset(&other)?;
            for dimension in (0..).take(dataset.ndim()) {
                if library::scale_of(&dataset, dimension)?.as_deref() == Some(path) {
                    self.detach(&dataset, &scale, dimension)?;
                    users.push((dataset.clone(), dimension));
                }
            }
        }
        Ok(users)
    }
}
