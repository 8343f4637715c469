//! The arrays that a copy moves, and how each is stored at the target.
//!
//! | source | target |
//! |---|---|
//! | a Zarr group | a Zarr group with all of its nodes, or with the chosen arrays |
//! | one array of a group, into an existing group | an array of that group |
//! | a Zarr array that is in no group | a Zarr array, unless the target is an existing group, or a name is given |
//! | any other array: in a group, a file, parts | an array of a Zarr group |
//! | any one array, row-major | a file |
//! | any of these | an HDF5 or NetCDF-4 file, or a group or dataset of one |
//!
//! An HDF5 file, or a group of one, is a source as a Zarr group is, and so are references.
//!
//! The record that Penstock keeps in a group is left out: a copy is a Zarr hierarchy, and
//! checkpoints are groups of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use penstock_bucket::is_url;
use penstock_engine::{Error, Kind, Result};
use serde_json::Value;

use super::hdf5::{InFile, Odd, SourceFile, keeps_as_it_is, place_in};
use super::options::{Extents, Form, Options};
use super::schemas::target_schema;
use crate::formats::hdf5::name;
use crate::formats::spread::of_server;
use crate::formats::zarr::{self, Node, second};
use crate::groups::{self, Contents as Found, Entry};
use crate::write::checks::{is_in_group, resolve};
use crate::write::{Goal, TreeNode};
use crate::{ArraySchema, Storage, StoredArray};

/// An array whose elements are moved.
pub(super) struct Item {
    /// The path in the source, or the name.
    pub(super) path: String,
    /// The place that is read: the array's group, directory or file.
    pub(super) place: PathBuf,
    /// The stored source array.
    pub(super) stored: StoredArray,
    /// The schema at the target.
    pub(super) schema: ArraySchema,
}

/// The arrays and nodes that a copy makes.
pub(super) struct Contents {
    pub(super) items: Vec<Item>,
    /// The nodes of the tree that is made; none for an array that goes into a group, or a file.
    pub(super) nodes: Vec<TreeNode>,
    /// The groups and datasets of an HDF5 file, if the target is one.
    in_file: Option<InFile>,
    /// The paths of arrays and other objects that stay as they are.
    pub(super) as_they_are: Vec<String>,
    /// The paths of what is left out.
    pub(super) skipped: Vec<String>,
}

/// A node of the source that is copied.
struct ChosenNode {
    entry: Entry,
    /// The directory or file of the node.
    place: PathBuf,
    /// The path in the target.
    path: String,
}

impl Contents {
    /// Finds the arrays to copy from `source`, and checks that `target` is free.
    ///
    /// # Errors
    /// [`Kind::Missing`] when a named array does not exist; [`Kind::Schema`] when the options do
    /// not fit the source, or when the target exists; [`Kind::Unsupported`] for an array that
    /// cannot be copied.
    pub(super) fn find(source: &Path, target: &Path, options: &Options) -> Result<Self> {
        let of_hdf5 = SourceFile::open(&of_server(source, 0))?;
        let mut contents = Self {
            in_file: InFile::new(target, of_hdf5.as_ref(), options)?,
            items: Vec::new(),
            nodes: Vec::new(),
            as_they_are: Vec::new(),
            skipped: Vec::new(),
        };
        match &options.raw {
            Some((shape, element)) => {
                let stored = StoredArray::open_raw(source, shape, element)?;
                contents.add_one(source, stored, None, options)?;
            }
            None => contents.add_source(source, target, of_hdf5.as_ref(), options)?,
        }
        contents.check_extents(options)?;
        contents.check_target(source, target, options)?;
        Ok(contents)
    }

    /// The goal of the copy's target.
    pub(super) fn goal(&self) -> Goal<'_> {
        match (&self.in_file, self.items.first()) {
            (Some(in_file), _) => Goal::File(&in_file.goal),
            (None, Some(item)) if self.nodes.is_empty() => Goal::Array(&item.schema),
            _ => Goal::Tree(&self.nodes),
        }
    }

    /// The path of the target: of a dataset its file.
    pub(super) fn target<'a>(&'a self, target: &'a Path) -> &'a Path {
        self.in_file
            .as_ref()
            .map_or(target, |in_file| &in_file.file)
    }

    /// What is made, for the journal of the copy.
    pub(super) fn words(&self) -> Result<Vec<String>> {
        let mut words: Vec<String> = self
            .nodes
            .iter()
            .map(|node| format!("{} {}", node.path, node.json))
            .collect();
        if let Some(in_file) = &self.in_file {
            let goal = serde_json::to_string(&in_file.goal);
            words.push(goal.map_err(|e| Error::new(Kind::Io, "describing a copy", e))?);
        }
        Ok(words)
    }

    fn add_source(
        &mut self,
        source: &Path,
        target: &Path,
        of_hdf5: Option<&SourceFile>,
        options: &Options,
    ) -> Result<()> {
        let node = Node::find(&of_server(source, 0))?;
        let into_group = is_group(target);
        let is_tree = match (&node, of_hdf5) {
            (None, Some(file)) => file.is_group() && (options.arrays.len() != 1 || !into_group),
            (Some(node), _) if node.kind() == zarr::Kind::Group => {
                options.arrays.len() != 1 || !into_group
            }
            (Some(_), _) => !into_group && options.name.is_none() && is_in_group(source)?.is_none(),
            (None, None) => false,
        };
        // One array that is named goes to the path that the target names.
        let is_one = self.in_file.as_ref().is_some_and(|file| {
            file.names_dataset() && (options.arrays.len() == 1 || is_array(node.as_ref()))
        });
        if is_tree && !is_one && !matches!(options.form, Form::RowMajor(_)) {
            return self.add_tree(source, of_hdf5, options);
        }
        if let ([path], Some(file)) = (options.arrays.as_slice(), of_hdf5) {
            let place = file.place(path);
            let stored = groups::open(&place, None)?;
            return self.add_one(&place, stored, of_hdf5, options);
        }
        let (place, name) = match options.arrays.as_slice() {
            [] => (source.to_path_buf(), None),
            [path] => match path.rsplit_once('/') {
                Some((group, name)) => (source.join(group), Some(name)),
                None => (source.to_path_buf(), Some(path.as_str())),
            },
            several => {
                let cause = format!("a file has one array, and {} were named", several.len());
                return Err(refused(target, &cause));
            }
        };
        let stored = groups::open(&place, name)?;
        self.add_one(&place, stored, of_hdf5, options)
    }

    /// Adds one array, which becomes one of a group, or a file.
    fn add_one(
        &mut self,
        place: &Path,
        stored: StoredArray,
        of_hdf5: Option<&SourceFile>,
        options: &Options,
    ) -> Result<()> {
        if let (Some(in_file), Some(name)) = (&self.in_file, &options.name)
            && in_file.names_dataset()
        {
            let cause = format!("the target names a dataset, and the name {name:?} another");
            return Err(refused(&in_file.file, &cause));
        }
        let mut schema = target_schema(stored.schema(), options)?;
        schema.name = options.name.clone().unwrap_or_else(|| stem(&schema.name));
        let mut place = place.to_path_buf();
        let mut from = None;
        if let (Some(file), Storage::Hdf5 { dataset, .. }) = (of_hdf5, &stored.schema().disk) {
            place = place_in(&file.file, dataset);
            let path = dataset[file.above.len()..].to_string();
            self.check_attributes(file, &path, options)?;
            from = Some((file, path));
        }
        if let Some(in_file) = &mut self.in_file {
            let from = from.as_ref().map(|(file, path)| (*file, path.as_str()));
            schema = in_file.add_array(None, schema, from, options)?;
        }
        self.items.push(Item {
            path: stored.schema().name.clone(),
            place,
            stored,
            schema,
        });
        Ok(())
    }

    /// Refuses attributes of a node of an HDF5 file that the target has no place for.
    fn check_attributes(&self, file: &SourceFile, path: &str, options: &Options) -> Result<()> {
        let goal = self.in_file.as_ref().map(|in_file| &in_file.goal);
        if options.drops_attributes {
            return Ok(());
        }
        match file.unfit_attributes(path, goal)?.first() {
            None => Ok(()),
            Some(name) => {
                let doing = format!("copying the attribute {name:?} of '{path}'");
                let cause = "the target has no type for it: leave such attributes out by --drop-attributes \
                    (drop_attributes=True)";
                Err(Error::new(Kind::Unsupported, doing, cause).at(&file.file))
            }
        }
    }

    /// Adds a group, or a Zarr array that stands alone.
    fn add_tree(
        &mut self,
        source: &Path,
        of_hdf5: Option<&SourceFile>,
        options: &Options,
    ) -> Result<()> {
        if options.arrays.is_empty()
            && let Some(file) = of_hdf5
        {
            if let Some(in_file) = &mut self.in_file {
                in_file.add_dimensions(file)?;
            }
            for odd in file.odd()? {
                self.add_odd(source, &odd, of_hdf5, options)?;
            }
        }
        for mut chosen in choose(source, options)? {
            if let Some(file) = of_hdf5 {
                chosen.place = file.place(&chosen.entry.path);
                if !matches!(chosen.entry.contents, Found::Unreadable(_)) {
                    self.check_attributes(file, &chosen.entry.path, options)?;
                }
            }
            self.add(source, chosen, of_hdf5, options)?;
        }
        Ok(())
    }

    /// Adds what Penstock does not understand as it is, or leaves it out.
    fn add_odd(
        &mut self,
        source: &Path,
        odd: &Odd,
        of_hdf5: Option<&SourceFile>,
        options: &Options,
    ) -> Result<()> {
        let added = match (self.in_file.is_some(), of_hdf5) {
            (true, Some(file)) => self.add_object(odd, file, options),
            _ => Err(odd.refused(source, "the target has no place for it")),
        };
        match added {
            Ok(()) => self.as_they_are.push(odd.path.clone()),
            Err(_) if options.skips_unsupported => self.skipped.push(odd.path.clone()),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn add_object(&mut self, odd: &Odd, file: &SourceFile, options: &Options) -> Result<()> {
        if odd.is_dataset() {
            self.check_attributes(file, &odd.path, options)?;
        }
        match &mut self.in_file {
            Some(in_file) => in_file.add_object(odd, file, options),
            None => Ok(()),
        }
    }

    fn add(
        &mut self,
        source: &Path,
        chosen: ChosenNode,
        of_hdf5: Option<&SourceFile>,
        options: &Options,
    ) -> Result<()> {
        let ChosenNode { entry, place, path } = chosen;
        match entry.contents {
            Found::Group(attributes) => {
                if let Some(in_file) = &mut self.in_file {
                    let from = of_hdf5.map(|file| file.within(&entry.path));
                    in_file.add_group(&path, attributes, from, options);
                    return Ok(());
                }
                let mut json = zarr::group_json();
                json["attributes"] = attributes.into();
                self.nodes.push(TreeNode {
                    path,
                    json,
                    schema: None,
                    chunks_in: None,
                });
            }
            Found::Array(_) => {
                // A group may know how long its arrays are, so the array is opened through its
                // group.
                let (group, name) = match entry.path.rsplit_once('/') {
                    None if entry.path.is_empty() => (place, None),
                    _ if of_hdf5.is_some() => (place, None),
                    parts => {
                        let name = parts.map_or(entry.path.as_str(), |(_, name)| name);
                        let group = place.parent().unwrap_or(&place).to_path_buf();
                        (group, Some(name))
                    }
                };
                let stored = groups::open(&group, name)?;
                if keeps_as_it_is(&stored, options) {
                    let odd = Odd::of_a_form_to_keep(&entry.path);
                    return self.add_odd(source, &odd, of_hdf5, options);
                }
                let mut schema = target_schema(stored.schema(), options)?;
                schema.name = match path.rsplit('/').next() {
                    None | Some("") => stem(&schema.name),
                    Some(name) => name.to_string(),
                };
                if let Some(in_file) = &mut self.in_file {
                    let path = match path.is_empty() {
                        true => schema.name.clone(),
                        false => path,
                    };
                    let from = of_hdf5.map(|file| (file, entry.path.as_str()));
                    schema = in_file.add_array(Some(&path), schema, from, options)?;
                } else {
                    self.nodes.push(TreeNode {
                        path,
                        json: zarr::array_json(&schema)?,
                        schema: Some(schema.clone()),
                        chunks_in: None,
                    });
                }
                let path = match entry.path.is_empty() {
                    true => schema.name.clone(),
                    false => entry.path,
                };
                self.items.push(Item {
                    path,
                    place: group,
                    stored,
                    schema,
                });
            }
            Found::Unreadable(error) => {
                let json = match &self.in_file {
                    Some(_) => None,
                    None => foreign_json(&place, &error)?,
                };
                let Some(json) = json else {
                    if error.kind != Kind::Unsupported {
                        return Err(error);
                    }
                    let odd = Odd::unread(&entry.path, &error);
                    return self.add_odd(source, &odd, of_hdf5, options);
                };
                self.as_they_are.push(entry.path);
                self.nodes.push(TreeNode {
                    path,
                    json,
                    schema: None,
                    chunks_in: Some(place),
                });
            }
        }
        Ok(())
    }

    /// Refuses extents that fit no array of the source.
    fn check_extents(&self, options: &Options) -> Result<()> {
        let (chunks, subchunks) = match &options.form {
            Form::Zarr {
                chunks, subchunks, ..
            } => (chunks, subchunks),
            Form::Hdf5 { chunks, .. } => (chunks, &None),
            Form::RowMajor(_) => return Ok(()),
        };
        let all: Vec<Vec<String>> = self
            .items
            .iter()
            .map(|item| item.stored.schema().names_of_dimensions())
            .collect();
        let wrong = |cause: String| Err(Error::new(Kind::Schema, "choosing chunks", cause));
        for extents in [chunks, subchunks].into_iter().flatten() {
            match extents {
                Extents::InOrder(extents) => {
                    let dims = extents.len();
                    if !all.iter().any(|names| names.len() == dims) {
                        let there: BTreeSet<String> =
                            all.iter().map(|names| names.len().to_string()).collect();
                        let there: Vec<String> = there.into_iter().collect();
                        return wrong(format!(
                            "{dims} extents, and the source's arrays have {} dimensions",
                            there.join(", ")
                        ));
                    }
                }
                Extents::ByName(extents) => {
                    let there: BTreeSet<&str> = all.iter().flatten().map(String::as_str).collect();
                    let unknown = extents
                        .iter()
                        .find(|(name, _)| !there.contains(name.as_str()));
                    if let Some((name, _)) = unknown {
                        let there: Vec<&str> = there.into_iter().collect();
                        return wrong(format!(
                            "no dimension is named {name:?}: there are {}",
                            there.join(", ")
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Refuses a target that lies in the source or contains it, and a target that exists.
    fn check_target(&self, source: &Path, target: &Path, options: &Options) -> Result<()> {
        let canonical = |path: PathBuf| match is_url(&path) {
            true => path,
            false => std::fs::canonicalize(&path).unwrap_or(path),
        };
        let source = of_server(source, 0);
        let source = name::split(&source).map_or(source, |(file, _)| file);
        let source = canonical(source);
        let in_bucket = is_url(target);
        let mut goal = match in_bucket {
            true => target.to_path_buf(),
            false => resolve(self.target(target))?,
        };
        if let Goal::Array(ArraySchema {
            name,
            disk: Storage::Chunks { .. },
            ..
        }) = self.goal()
        {
            goal = canonical(goal.join(name));
        }
        if goal.starts_with(&source) {
            return Err(refused(
                &goal,
                "it is within the source: give another target",
            ));
        }
        if source.starts_with(&goal) {
            return Err(refused(
                &goal,
                "the source is within it: give another target",
            ));
        }
        let is_empty =
            || std::fs::read_dir(&goal).is_ok_and(|mut entries| entries.next().is_none());
        let is_there = match &self.in_file {
            Some(in_file) if in_file.goal.is_added => in_file.is_taken(options.overwrites)?,
            _ if in_bucket => Node::read(&goal)?.is_some(),
            _ => std::fs::symlink_metadata(&goal).is_ok() && !is_empty(),
        };
        if is_there && !options.overwrites {
            return Err(refused(
                &goal,
                "it is there already: --overwrite (overwrite=True) replaces it",
            ));
        }
        Ok(())
    }
}

/// The name of an array that stands alone: the name of its directory, without the ending.
fn stem(name: &str) -> String {
    name.strip_suffix(".zarr").unwrap_or(name).to_string()
}

fn refused(path: &Path, cause: &str) -> Error {
    Error::new(Kind::Schema, "copying", cause).at(path)
}

fn is_array(node: Option<&Node>) -> bool {
    node.is_some_and(|node| node.kind() == zarr::Kind::Array)
}

fn is_group(path: &Path) -> bool {
    let node = Node::read(path);
    matches!(node, Ok(Some(node)) if node.kind() == zarr::Kind::Group)
}

/// The nodes of a tree that are copied, groups before their members.
fn choose(source: &Path, options: &Options) -> Result<Vec<ChosenNode>> {
    let entries = groups::list(source)?;
    let wanted = &options.arrays;
    for path in wanted {
        let is_array = |entry: &Entry| !matches!(entry.contents, Found::Group(_));
        if !entries
            .iter()
            .any(|entry| entry.path == *path && is_array(entry))
        {
            let arrays = entries.iter().filter(|entry| is_array(entry));
            let there: Vec<&str> = arrays.map(|entry| entry.path.as_str()).collect();
            let cause = format!(
                "there is no array {path:?}; arrays there: {}",
                there.join(", ")
            );
            return Err(Error::new(Kind::Missing, "copying", cause).at(source));
        }
    }
    let is_wanted = |entry: &Entry| {
        let above = match entry.path.as_str() {
            "" => String::new(),
            path => format!("{path}/"),
        };
        let is_above = matches!(entry.contents, Found::Group(_))
            && wanted.iter().any(|path| path.starts_with(&above));
        wanted.is_empty() || is_above || wanted.contains(&entry.path)
    };
    if let Some(name) = &options.name
        && wanted.len() != 1
    {
        let cause = format!("the name {name:?} is for one array: say which");
        return Err(refused(source, &cause));
    }
    let chosen = entries.into_iter().filter(is_wanted).map(|entry| {
        let path = match (&options.name, entry.path.rsplit_once('/')) {
            (Some(name), _) if !wanted.contains(&entry.path) || name.is_empty() => {
                entry.path.clone()
            }
            (Some(name), Some((group, _))) => format!("{group}/{name}"),
            (Some(name), None) => name.clone(),
            (None, _) => entry.path.clone(),
        };
        let place = match entry.path.as_str() {
            "" => source.to_path_buf(),
            path => source.join(path),
        };
        ChosenNode { entry, place, path }
    });
    Ok(chosen.collect())
}

/// The metadata of an array that Penstock does not understand, for chunk files that stay as they
/// are; `None` if a copy must understand the array.
fn foreign_json(place: &Path, error: &Error) -> Result<Option<Value>> {
    if error.kind != Kind::Unsupported {
        return Ok(None);
    }
    let Some(node) = Node::read(place)? else {
        return Ok(None);
    };
    Ok(match node.is_second() {
        true => second::array_json(node.json(), node.attributes()?),
        false => Some(node.json().clone()),
    })
}
