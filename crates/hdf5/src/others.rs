//! What comes from another file as it is: attributes, scales, and objects that only the library
//! understands.

use std::collections::BTreeMap;

use hdf5_metno::{Dataset as OpenDataset, Location};
use penstock_engine::{Error, Kind, Result};

use crate::attributes;
use crate::contents::Member;
use crate::dataset::is_of_dimensions;
use crate::dimensions;
use crate::file::{FileForm, Hdf5File, said};
use crate::library::{self, AttributeKind, Outcome};

impl Hdf5File {
    /// The attributes of the object at `path` that a file of this form cannot have: references to
    /// objects, and in NetCDF-4 all but numbers and texts, and lists of these.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when they cannot be read.
    pub fn unfit_attributes(&self, path: &str, form: FileForm) -> Result<Vec<String>> {
        let look = || -> Outcome<Vec<String>> {
            let mut unfit = Vec::new();
            let object = self.object(path)?;
            for name in self.others_of(path)? {
                if !is_fit(library::kind_of_attribute(&object, &name)?, form) {
                    unfit.push(name);
                }
            }
            Ok(unfit)
        };
        look().map_err(|e| self.failed(&format!("reading the attributes of {path} of"), e))
    }

    /// Gives the object at `to` the attributes that the object at `from` of another file has, in
    /// their types, but for those that describe dimensions, and those that this form of file cannot
    /// have.
    ///
    /// # Errors
    /// [`Kind::Io`] when the library fails.
    pub fn take_attributes(
        &mut self,
        to: &str,
        other: &Self,
        from: &str,
        form: FileForm,
    ) -> Result<()> {
        let take = || -> Outcome<()> {
            let (source, target) = (other.object(from)?, self.object(to)?);
            for name in other.others_of(from)? {
                if is_fit(library::kind_of_attribute(&source, &name)?, form) {
                    library::copy_attribute(&source, &target, &name)?;
                }
            }
            Ok(())
        };
        take().map_err(|e| self.cannot_write(to, &e))
    }

    /// Attaches the scales of another file's datasets to their copies in this file, with the names
    /// and labels that they have there. `copies` are the datasets' paths there and here. A scale
    /// that has no copy becomes a label, if its dimension has none.
    ///
    /// # Errors
    /// [`Kind::Io`] when the library fails.
    pub fn take_scales(&mut self, other: &Self, copies: &BTreeMap<String, String>) -> Result<()> {
        for (from, to) in copies {
            let take = || -> Outcome<()> {
                let source = other.library_file().dataset(from)?;
                if library::is_scale(&source)? {
                    let name = library::scale_name(&source).unwrap_or_default();
                    library::make_scale(&self.library_file().dataset(to)?, &name)?;
                }
                Ok(())
            };
            take().map_err(|e| self.cannot_write(to, &e))?;
        }
        for (from, to) in copies {
            let take = || -> Outcome<()> {
                let source = other.library_file().dataset(from)?;
                self.attach_as(&source, &self.library_file().dataset(to)?, copies)
            };
            take().map_err(|e| self.cannot_write(to, &e))?;
        }
        Ok(())
    }

    fn attach_as(
        &self,
        source: &OpenDataset,
        target: &OpenDataset,
        copies: &BTreeMap<String, String>,
    ) -> Outcome<()> {
        for dimension in (0..).take(source.ndim()) {
            let mut label = library::label_of(source, dimension);
            for scale in library::scales_of(source, dimension)? {
                match copies.get(&scale) {
                    Some(copy) => {
                        let copy = self.library_file().dataset(copy)?;
                        library::attach_scale(target, &copy, dimension)?;
                    }
                    None => {
                        let name = || scale.rsplit('/').next().map(str::to_string);
                        label = label.or_else(name);
                    }
                }
            }
            if let Some(label) = label {
                library::set_label(target, dimension, &label)?;
            }
        }
        Ok(())
    }

    /// Copies the dataset, element type or link at `from` of another file to `to` as it is, without
    /// attributes. Its bytes go through memory.
    ///
    /// # Errors
    /// [`Kind::Schema`] when something is at `to`; [`Kind::Io`] when the library fails.
    pub fn take_object(
        &mut self,
        to: &str,
        other: &Self,
        (from, member): (&str, Member),
        form: FileForm,
    ) -> Result<()> {
        if self.exists(to) {
            let cause = format!("{to} is there already");
            return Err(Error::new(Kind::Schema, "writing", cause).at(self.path()));
        }
        let take = || -> Outcome<()> {
            let (above, name) = to.rsplit_once('/').unwrap_or(("", to));
            let group = self.group_at(above, form)?;
            let (above, own) = from.rsplit_once('/').unwrap_or(("", from));
            let source = other.group(above)?;
            match member {
                Member::Link => library::copy_link((&source, own), (&group, name)),
                _ => library::copy_object((&source, own), (&group, name)),
            }
        };
        take().map_err(|e| self.cannot_write(to, &e))
    }

    /// The bytes that the elements of the dataset at `path` take, with those of variable length.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when its metadata cannot be read.
    pub fn stored_bytes(&self, path: &str) -> Result<u64> {
        let look = || library::stored_bytes(&self.library_file().dataset(path)?);
        look().map_err(|e| Error::new(Kind::Damaged, "reading", said(&e)).at(self.path()))
    }

    /// The names of the attributes of an object but for those of dimensions.
    fn others_of(&self, path: &str) -> Outcome<Vec<String>> {
        let is_group = self.group(path).is_ok();
        let mut names = attributes::names_of(&self.object(path)?)?;
        names.retain(|name| !dimensions::is_own(name) && (is_group || !is_of_dimensions(name)));
        Ok(names)
    }

    pub(crate) fn object(&self, path: &str) -> Outcome<Location> {
        match self.group(path) {
            Ok(group) => Ok((*group).clone()),
            Err(_) => Ok((**self.library_file().dataset(path)?).clone()),
        }
    }
}

/// Whether a file of this form can have an attribute of this kind.
fn is_fit(kind: AttributeKind, form: FileForm) -> bool {
    match kind {
        AttributeKind::Simple => true,
        AttributeKind::Reference => false,
        AttributeKind::Other => form == FileForm::Hdf5,
    }
}
