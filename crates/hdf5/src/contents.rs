//! What is in a file: groups and datasets, and what else has a name there.

use std::collections::VecDeque;

use hdf5_metno::{Dataset as OpenDataset, Group, LinkType};
use penstock_engine::{Error, Kind, Result};

use crate::attributes::{Attribute, attributes_of};
use crate::dataset::{Dataset, describe, is_bare, is_of_dimensions, outline};
use crate::dimensions;
use crate::file::Hdf5File;
use crate::library::{self, Outcome};

/// The most groups of a file: hard links may make a circle of them.
const GROUPS_MAX: usize = 1 << 16;

/// What has a name in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Member {
    /// A group.
    Group,
    /// A dataset.
    Dataset,
    /// A dataset that only stands for a dimension.
    Dimension,
    /// An element type by itself.
    Type,
    /// A link to a path, in this file or another.
    Link,
}

/// A dimension of a NetCDF-4 file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dimension {
    /// Its path: that of its variable, if it has one.
    pub path: String,
    /// The length.
    pub extent: u64,
    /// Whether it may grow without limit.
    pub grows: bool,
}

impl Hdf5File {
    /// All that has a name below the group at `above`, which is empty for the root: the paths, with
    /// `/` before each name, and groups before what is in them. In a group that remembers it,
    /// members are in the order in which they were made, and otherwise in the order of their names.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when a group cannot be read.
    pub fn members(&self, above: &str) -> Result<Vec<(String, Member)>> {
        let failed = |e| self.failed("looking into", e);
        let mut found = Vec::new();
        let first = self.group(above).map_err(failed)?;
        let mut groups = VecDeque::from([(above.to_string(), first)]);
        let mut visited = 0;
        while let Some((path, group)) = groups.pop_front() {
            visited += 1;
            if visited > GROUPS_MAX {
                let cause = format!("it has more than {GROUPS_MAX} groups");
                return Err(Error::new(Kind::Unsupported, "looking into", cause).at(self.path()));
            }
            for (name, link) in library::members_of(&group).map_err(failed)? {
                let below = format!("{path}/{name}");
                let member = match link {
                    LinkType::Hard => member_of(&group, &name).map_err(failed)?,
                    _ => Member::Link,
                };
                if member == Member::Group {
                    groups.push_back((below.clone(), group.group(&name).map_err(failed)?));
                }
                found.push((below, member));
            }
        }
        Ok(found)
    }

    /// The paths of all datasets, `/` before each name.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when a group cannot be read.
    pub fn datasets(&self) -> Result<Vec<String>> {
        let is_dataset = |member| matches!(member, Member::Dataset | Member::Dimension);
        let members = self.members("")?.into_iter();
        let datasets = members.filter(|(_, member)| is_dataset(*member));
        Ok(datasets.map(|(path, _)| path).collect())
    }

    /// Describes the dataset at `path`; `None` if there is none.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when its metadata cannot be read.
    pub fn dataset(&self, path: &str) -> Result<Option<Dataset>> {
        self.described(path, describe)
    }

    /// Describes the dataset at `path` without its chunks, which may be many.
    ///
    /// # Errors
    /// As [`Hdf5File::dataset`].
    pub fn outline(&self, path: &str) -> Result<Option<Dataset>> {
        self.described(path, outline)
    }

    fn described(
        &self,
        path: &str,
        describe: fn(&OpenDataset) -> Outcome<Dataset>,
    ) -> Result<Option<Dataset>> {
        if !self.exists(path) {
            return Ok(None);
        }
        let failed = |e| self.failed(&format!("reading {path} of"), e);
        match self.library_file().dataset(path) {
            Ok(opened) => describe(&opened).map(Some).map_err(failed),
            Err(_) if self.library_file().group(path).is_ok() => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// The attributes of the group or dataset at `path` but for those of dimensions; `None` for one
    /// of a type that is not read.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when they cannot be read.
    pub fn attributes(&self, path: &str) -> Result<Vec<(String, Option<Attribute>)>> {
        let read = || -> Outcome<_> {
            let is_group = self.group(path).is_ok();
            let is_own =
                |name: &str| dimensions::is_own(name) || !is_group && is_of_dimensions(name);
            attributes_of(&self.object(path)?, is_own)
        };
        read().map_err(|e| self.failed(&format!("reading the attributes of {path} of"), e))
    }

    /// The dimensions of a NetCDF-4 file at and below the group at `above`, in their order.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when one cannot be read.
    pub fn dimensions(&self, above: &str) -> Result<Vec<Dimension>> {
        let mut all = Vec::new();
        for (path, member) in self.members(above)? {
            if !matches!(member, Member::Dataset | Member::Dimension) {
                continue;
            }
            let look = || dimension_of(&self.library_file().dataset(&path)?, &path);
            all.extend(look().map_err(|e| self.failed(&format!("reading {path} of"), e))?);
        }
        all.sort_by_key(|(number, _)| *number);
        Ok(all.into_iter().map(|(_, dimension)| dimension).collect())
    }

    /// Whether there is an object at each step of a path.
    pub fn exists(&self, path: &str) -> bool {
        let mut so_far = String::new();
        path.split('/').filter(|name| !name.is_empty()).all(|name| {
            so_far.push('/');
            so_far.push_str(name);
            self.library_file().link_exists(&so_far)
        })
    }

    /// The group at a path, which is empty for the root.
    pub(crate) fn group(&self, path: &str) -> Outcome<Group> {
        let path = if path.is_empty() { "/" } else { path };
        self.library_file().group(path)
    }
}

fn member_of(group: &Group, name: &str) -> Outcome<Member> {
    if group.group(name).is_ok() {
        return Ok(Member::Group);
    }
    match group.dataset(name) {
        Ok(dataset) if is_bare(&dataset)? => Ok(Member::Dimension),
        Ok(_) => Ok(Member::Dataset),
        Err(_) => Ok(Member::Type),
    }
}

/// The dimension that a dataset is, with its number.
fn dimension_of(opened: &OpenDataset, path: &str) -> Outcome<Option<(i64, Dimension)>> {
    if !library::is_scale(opened)? {
        return Ok(None);
    }
    let space = opened.space()?;
    let dimension = Dimension {
        path: path.to_string(),
        extent: space.shape().first().map_or(0, |&length| length as u64),
        grows: space.maxdims().first().is_some_and(Option::is_none),
    };
    let number = dimensions::number_of(opened)?.unwrap_or(i64::MAX);
    Ok(Some((number, dimension)))
}
