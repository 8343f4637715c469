//! The arrays that a copy moves, and how each is stored at the target.
//!
//! | source | target |
//! |---|---|
//! | a Zarr group | a Zarr group with all of its nodes, or with the chosen arrays |
//! | one array of a group, into an existing group | an array of that group |
//! | a Zarr array that is in no group | a Zarr array, unless the target is an existing group, or a name is given |
//! | any other array: in a group, a file, parts | an array of a Zarr group |
//! | any one array, row-major | a file |
//!
//! The record that Penstock keeps in a group is left out: a copy is a Zarr hierarchy, and
//! checkpoints are groups of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use penstock_layout::Edges;
use serde_json::Value;

use super::options::{Extents, Form, Options};
use crate::codec::Codec;
use crate::formats::spread::of_server;
use crate::formats::zarr::{self, Node, second};
use crate::groups::{self, Contents as Found, Entry};
use crate::write::checks::{is_in_group, resolve};
use crate::write::{Goal, TreeNode};
use crate::{ArraySchema, Format, Storage, StoredArray};

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
    /// The paths of arrays whose chunk files stay as they are.
    pub(super) as_they_are: Vec<String>,
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
        let contents = match &options.raw {
            Some((shape, element)) => {
                let stored = StoredArray::open_raw(source, shape, *element)?;
                Self::of_one(source, stored, options)?
            }
            None => Self::of_source(source, target, options)?,
        };
        contents.check_extents(options)?;
        contents.check_target(source, target, options)?;
        Ok(contents)
    }

    /// The goal of the copy's target.
    pub(super) fn goal(&self) -> Goal<'_> {
        match self.items.first() {
            Some(item) if self.nodes.is_empty() => Goal::Array(&item.schema),
            _ => Goal::Tree(&self.nodes),
        }
    }

    fn of_source(source: &Path, target: &Path, options: &Options) -> Result<Self> {
        let node = Node::read(&of_server(source, 0))?;
        let into_group = is_group(target);
        let is_tree = match &node {
            Some(node) if node.kind() == zarr::Kind::Group => {
                options.arrays.len() != 1 || !into_group
            }
            Some(_) => !into_group && options.name.is_none() && is_in_group(source)?.is_none(),
            None => false,
        };
        if is_tree && matches!(options.form, Form::Zarr { .. }) {
            return Self::of_tree(source, options);
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
        Self::of_one(&place, stored, options)
    }

    /// The contents of one array, which becomes one of a group, or a file.
    fn of_one(place: &Path, stored: StoredArray, options: &Options) -> Result<Self> {
        let mut schema = target_schema(stored.schema(), options)?;
        schema.name = options.name.clone().unwrap_or_else(|| stem(&schema.name));
        let item = Item {
            path: stored.schema().name.clone(),
            place: place.to_path_buf(),
            stored,
            schema,
        };
        Ok(Self {
            items: vec![item],
            nodes: Vec::new(),
            as_they_are: Vec::new(),
        })
    }

    /// The contents of a group, or of a Zarr array that stands alone.
    fn of_tree(source: &Path, options: &Options) -> Result<Self> {
        let mut contents = Self {
            items: Vec::new(),
            nodes: Vec::new(),
            as_they_are: Vec::new(),
        };
        for chosen in choose(source, options)? {
            contents.add(chosen, options)?;
        }
        Ok(contents)
    }

    fn add(&mut self, chosen: ChosenNode, options: &Options) -> Result<()> {
        let ChosenNode { entry, place, path } = chosen;
        match entry.contents {
            Found::Group(attributes) => {
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
                    parts => {
                        let name = parts.map_or(entry.path.as_str(), |(_, name)| name);
                        let group = place.parent().unwrap_or(&place).to_path_buf();
                        (group, Some(name))
                    }
                };
                let stored = groups::open(&group, name)?;
                let mut schema = target_schema(stored.schema(), options)?;
                schema.name = match path.rsplit('/').next() {
                    None | Some("") => stem(&schema.name),
                    Some(name) => name.to_string(),
                };
                self.nodes.push(TreeNode {
                    path,
                    json: zarr::array_json(&schema)?,
                    schema: Some(schema.clone()),
                    chunks_in: None,
                });
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
                let json = foreign_json(&place, &error)?.ok_or(error)?;
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
        let Form::Zarr {
            chunks, subchunks, ..
        } = &options.form
        else {
            return Ok(());
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
        let canonical = |path: PathBuf| std::fs::canonicalize(&path).unwrap_or(path);
        let source = canonical(of_server(source, 0));
        let mut goal = resolve(target)?;
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
        let is_there = std::fs::symlink_metadata(&goal).is_ok() && !is_empty();
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

/// The schema of an array at the target.
fn target_schema(source: &ArraySchema, options: &Options) -> Result<ArraySchema> {
    let refused = |cause: &str| {
        let doing = format!("copying '{}'", source.name);
        Error::new(Kind::Schema, doing, cause)
    };
    let mut schema = source.clone();
    let (chunks, subchunks, codec) = match &options.form {
        Form::RowMajor(format) => {
            if *format == Format::Npy && !schema.attributes.is_empty() {
                if !options.drops_attributes {
                    return Err(refused(
                        "a .npy file has no place for the array's attributes: leave them out by --drop-attributes \
                         (drop_attributes=True), or take another form",
                    ));
                }
                schema.attributes.clear();
            }
            schema.disk = Storage::RowMajor { format: *format };
            schema.fill = crate::Fill::default();
            return Ok(schema);
        }
        Form::Zarr {
            chunks,
            subchunks,
            codec,
        } => (chunks, subchunks, codec),
    };
    let names = source.names_of_dimensions();
    let (chunk, inner, word) = match &source.disk {
        Storage::Chunks {
            chunk,
            subchunks,
            codec,
        } => (Some(chunk.clone()), subchunks.clone(), codec.clone()),
        Storage::Hdf5 {
            chunk: Some(chunk),
            filters,
            ..
        } => {
            // The filters are not Zarr's: what was compressed stays compressed.
            let codec = if filters == "none" { "none" } else { "zstd" };
            (Some(Edges::regular(chunk)), None, codec.to_string())
        }
        _ => (None, None, Codec::default().to_string()),
    };
    let word = codec.clone().unwrap_or(word);
    if word.starts_with('{') {
        return Err(refused(
            "its codec is one that Penstock reads and Zarr's third format has no word for: give another",
        ));
    }
    let whole: Vec<u64> = source.shape.iter().map(|&extent| extent.max(1)).collect();
    let is_said = chunks.as_ref().is_some_and(|chunks| chunks.fits(&names));
    if chunk.is_none() && !is_said && !source.shape.is_empty() {
        return Err(refused(
            "the source has no chunks: say which the copy is to have (--chunks, chunks=), or that it is one row-major file \
             (--row-major, row_major=True)",
        ));
    }
    let chunk = chunk.unwrap_or_else(|| Edges::regular(&whole));
    let chunk = match chunks {
        Some(chunks) => chunks.of(&names, &whole, &chunk),
        None => chunk,
    };
    let divides = |inner: &Vec<u64>| {
        let mut pairs = chunk.iter().zip(inner);
        pairs.all(|(edges, inner)| *inner > 0 && edges.are_multiples_of(*inner))
    };
    let subchunks = match subchunks {
        Some(extents) if extents.fits(&names) => {
            let former = inner.filter(divides);
            let former = former.unwrap_or_else(|| Edges::largest_of(&chunk));
            Some(extents.of(&names, &whole, &former))
        }
        _ => inner.filter(divides),
    };
    schema.disk = Storage::Chunks {
        chunk,
        subchunks,
        codec: word,
    };
    Ok(schema)
}

impl Extents {
    /// Whether these extents are for an array with these dimensions.
    fn fits(&self, names: &[String]) -> bool {
        match self {
            Self::InOrder(extents) => extents.len() == names.len(),
            Self::ByName(extents) => extents.iter().any(|(name, _)| names.contains(name)),
        }
    }

    /// The extents for an array with the dimensions `names`: `whole` are the extents of the array,
    /// and `former` stay where none are given.
    fn of<T: Clone + From<u64>>(&self, names: &[String], whole: &[u64], former: &[T]) -> Vec<T> {
        if !self.fits(names) {
            return former.to_vec();
        }
        let said = |extent: &Option<u64>, d: usize| T::from(extent.unwrap_or(whole[d]));
        let extent = |d: usize| match self {
            Self::InOrder(extents) => said(&extents[d], d),
            Self::ByName(extents) => {
                let named = extents.iter().find(|(name, _)| *name == names[d]);
                named.map_or_else(|| former[d].clone(), |(_, extent)| said(extent, d))
            }
        };
        (0..names.len()).map(extent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ElementType;

    fn source(chunk: &[u64], subchunks: Option<&[u64]>) -> ArraySchema {
        let disk = Storage::Chunks {
            chunk: Edges::regular(chunk),
            subchunks: subchunks.map(<[u64]>::to_vec),
            codec: "zstd:3".to_string(),
        };
        let mut schema = ArraySchema::new("u", &[10, 20, 30], ElementType::F8, disk);
        schema.dimension_names = Some(["time", "lat", "lon"].map(str::to_string).into());
        schema
    }

    fn stored_as(
        schema: &ArraySchema,
        chunks: &str,
        subchunks: &str,
    ) -> (Vec<u64>, Option<Vec<u64>>) {
        let extents = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
        let options = Options {
            form: Form::Zarr {
                chunks: extents(chunks),
                subchunks: extents(subchunks),
                codec: None,
            },
            ..Options::default()
        };
        match target_schema(schema, &options).unwrap().disk {
            Storage::Chunks {
                chunk,
                subchunks,
                codec,
            } if codec == "zstd:3" => (Edges::regular_extents(&chunk).unwrap(), subchunks),
            disk => panic!("{disk}"),
        }
    }

    #[test]
    fn what_is_not_said_is_as_in_the_source() {
        let plain = source(&[1, 10, 10], None);
        for (chunks, expected) in [
            ("", [1, 10, 10]),
            ("5,-1,7", [5, 20, 7]),
            ("time=5", [5, 10, 10]),
            ("lon=-1,time=2", [2, 10, 30]),
            ("7", [1, 10, 10]),
            ("depth=1", [1, 10, 10]),
        ] {
            assert_eq!(
                stored_as(&plain, chunks, ""),
                (expected.to_vec(), None),
                "{chunks}"
            );
        }
    }

    #[test]
    fn listed_chunks_stay_where_nothing_is_said() {
        let mut listed = source(&[1, 10, 10], Some(&[1, 2, 10]));
        let edges = Edges::Listed(vec![4, 6, 10]);
        if let Storage::Chunks { chunk, .. } = &mut listed.disk {
            chunk[1] = edges.clone();
        }
        for (chunks, chunk, subchunks) in [
            ("", [1.into(), edges.clone(), 10.into()], true),
            ("time=5", [5.into(), edges.clone(), 10.into()], true),
            (
                "lat=5",
                Edges::regular(&[1, 5, 10]).try_into().unwrap(),
                false,
            ),
        ] {
            let options = Options {
                form: Form::Zarr {
                    chunks: (!chunks.is_empty()).then(|| chunks.parse().unwrap()),
                    subchunks: None,
                    codec: None,
                },
                ..Options::default()
            };
            let disk = Storage::Chunks {
                chunk: chunk.to_vec(),
                subchunks: subchunks.then(|| vec![1, 2, 10]),
                codec: "zstd:3".to_string(),
            };
            assert_eq!(target_schema(&listed, &options).unwrap().disk, disk);
        }
    }

    #[test]
    fn sub_chunks_stay_where_they_divide_the_chunks() {
        let sharded = source(&[4, 20, 30], Some(&[2, 10, 10]));
        let kept = Some(vec![2, 10, 10]);
        assert_eq!(stored_as(&sharded, "", ""), (vec![4, 20, 30], kept.clone()));
        assert_eq!(stored_as(&sharded, "time=8", ""), (vec![8, 20, 30], kept));
        assert_eq!(stored_as(&sharded, "time=3", ""), (vec![3, 20, 30], None));
        let (_, inner) = stored_as(&sharded, "time=8", "lat=5");
        assert_eq!(inner, Some(vec![2, 5, 10]));
        let (_, inner) = stored_as(&sharded, "time=3", "lat=5");
        assert_eq!(inner, Some(vec![3, 5, 30]));
    }
}
