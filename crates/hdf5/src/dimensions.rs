//! Dimensions of NetCDF-4: scales that datasets share.
//!
//! A dimension is a one-dimensional dataset that is a scale (HDF5's specification of dimension
//! scales; NetCDF's of its use of HDF5). If it has a variable, the scale is the variable; otherwise
//! it is a dataset without elements, and its attribute `NAME` says so. A dataset finds its
//! dimensions in its own group and in the groups above.

use hdf5_metno::{Dataset as OpenDataset, Group};
use penstock_engine::{Error, Kind, Result};

use crate::attributes::{self, Attribute, TextForm};
use crate::dataset::NO_VARIABLE;
use crate::elements::datatype_of;
use crate::file::{Hdf5File, NewDataset};
use crate::library::{self, Creation, Outcome};

/// The attribute with the number of a dimension.
const NUMBER: &str = "_Netcdf4Dimid";

impl Hdf5File {
    /// Checks that the dimensions of a new dataset have the lengths that they have in the file.
    pub(crate) fn check_dimensions(&self, path: &str, new: &NewDataset) -> Result<()> {
        let (above, own) = path.rsplit_once('/').unwrap_or(("", path));
        let named = new.dimensions.iter().zip(&new.shape);
        for (number, (name, &length)) in named.enumerate() {
            let is_twice = new.dimensions[..number].iter().zip(&new.shape);
            let same = is_twice.filter(|(other, _)| *other == name);
            let mut known: Vec<u64> = same.map(|(_, &length)| length).collect();
            if let Some(scale) = self.scale_above(above, name)
                && (name != own || new.shape.len() > 1)
            {
                known.extend(scale.shape().first().map(|&length| length as u64));
            }
            if let Some(&other) = known.iter().find(|&&other| other != length) {
                let cause = format!(
                    "the dimension {name:?} of {path} has {length} elements here and {other} in the file"
                );
                return Err(Error::new(Kind::Schema, "writing", cause).at(self.path()));
            }
        }
        Ok(())
    }

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

    /// Gives a new dataset its dimensions; those that are missing are made in its group.
    pub(crate) fn attach_dimensions(
        &self,
        above: &str,
        name: &str,
        opened: &OpenDataset,
        new: &NewDataset,
    ) -> Outcome<()> {
        if let [own] = new.dimensions.as_slice()
            && own == name
        {
            // A variable of its own dimension.
            library::make_scale(opened, name)?;
            return self.number(opened);
        }
        let group = match above {
            "" => self.library_file().group("/")?,
            above => self.library_file().group(above)?,
        };
        for (number, dimension) in (0..).zip(&new.dimensions) {
            let scale = match self.scale_above(above, dimension) {
                Some(scale) => scale,
                None => {
                    let extent = new.shape.get(number as usize).copied().unwrap_or(0);
                    let grows = new.grows.get(number as usize).copied().unwrap_or(false);
                    self.make_bare(&group, dimension, extent, grows)?
                }
            };
            library::attach_scale(opened, &scale, number)?;
        }
        Ok(())
    }

    /// Makes a dimension without variable.
    fn make_bare(
        &self,
        group: &Group,
        name: &str,
        extent: u64,
        grows: bool,
    ) -> Outcome<OpenDataset> {
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
        let scale = library::create_dataset(group, name, &creation)?;
        library::make_scale(&scale, &format!("{NO_VARIABLE}{extent:10}"))?;
        self.number(&scale)?;
        Ok(scale)
    }

    /// Gives a scale the next number of a dimension.
    fn number(&self, scale: &OpenDataset) -> Outcome<()> {
        let mut next = 0;
        for path in self.datasets().map_err(|e| e.to_string())? {
            let other = self.library_file().dataset(&path)?;
            if let Ok(number) = other.attr(NUMBER) {
                next = next.max(number.read_scalar::<i64>()? + 1);
            }
        }
        attributes::write(scale, NUMBER, &Attribute::integer(next), TextForm::Fixed)
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
