//! The target of a copy in a bucket or repository: one array, or a tree of groups and arrays. A
//! killed copy is begun again. In a bucket, its lease must be dead, and what it has put is removed
//! first; of a draft nobody knows.

use std::path::{Path, PathBuf};

use penstock_bucket::{Draft, is_url};
use penstock_engine::{Error, Kind, Result};

use super::checks::not_in_buckets;
use super::drafted;
use super::goal::Goal;
use super::objects::ObjectsPlace;
use super::objects_tree::{ObjectsNode, ObjectsTree};
use super::pending::chunks_in;
use crate::formats::Target;
use crate::formats::zarr;
use crate::fs::files;
use crate::schema::ArraySchema;

/// The name below the target of the stores that a copy needs in between.
const BETWEEN: &str = ".penstock-between";

/// The target of a copy under way in a bucket or repository.
pub(crate) struct ObjectsTarget {
    place: Way,
    between: Between,
    /// The targets of servers, one an array.
    pub(super) targets: Vec<Target>,
}

/// The place of the stores in between; they go when this is dropped.
enum Between {
    InBucket(PathBuf),
    /// In a draft that is never committed, begun when the first is needed.
    Aside {
        target: PathBuf,
        begun: Option<(Draft, PathBuf)>,
    },
}

impl Between {
    /// The place of a store that is to come.
    fn place(&mut self, name: &str) -> Result<PathBuf> {
        match self {
            Self::InBucket(url) => Ok(url.join(name)),
            Self::Aside { target, begun } => {
                if begun.is_none() {
                    *begun = Draft::aside(target)?;
                }
                let group = begun.as_ref().map(|(_, path)| path.join(BETWEEN));
                let group = group.unwrap_or_default();
                drafted::make_groups(&group)?;
                Ok(group.join(name))
            }
        }
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        if let Self::InBucket(url) = self {
            let _ = files::remove_if_there(url); // or the next copy does it
        }
    }
}

/// The place of what is copied.
enum Way {
    Array(Box<ObjectsPlace>),
    Tree(Box<ObjectsTree>),
    Draft(Draft),
}

impl ObjectsTarget {
    /// Begins a copy to a URL; `None` for another path.
    ///
    /// # Errors
    /// As of a write to a bucket; [`Kind::Unsupported`] for files.
    pub(super) fn begin(path: &Path, goal: &Goal<'_>) -> Result<Option<Self>> {
        if !is_url(path) {
            return Ok(None);
        }
        match goal {
            Goal::File(_) => {
                let cause = "an HDF5 file is written to a file system: copy to a directory, or to \
                    a Zarr group";
                return Err(Error::new(Kind::Unsupported, "copying", cause).at(path));
            }
            Goal::Array(schema) if !schema.disk.is_zarr() => return Err(not_in_buckets(path)),
            _ => {}
        }
        let begun = match Draft::begin(path)? {
            Some((draft, path)) => Self::in_draft(draft, path, goal),
            None => Self::in_bucket(path, goal),
        };
        begun.map(Some)
    }

    fn in_draft(draft: Draft, path: PathBuf, goal: &Goal<'_>) -> Result<Self> {
        let arrays = match goal {
            Goal::File(_) => Vec::new(),
            Goal::Array(schema) => {
                let (array, metadata) = drafted::create(&path, schema)?;
                vec![(*schema, array, metadata)]
            }
            Goal::Tree(nodes) => drafted::create_tree(&path, nodes)?,
        };
        let form = |(schema, array, metadata)| chunks_in(array, schema, &metadata, None);
        let targets = arrays.into_iter().map(|array| form(array).map(Target::new));
        let targets = targets.collect::<Result<_>>()?;
        Ok(Self {
            place: Way::Draft(draft),
            between: Between::Aside {
                target: path,
                begun: None,
            },
            targets,
        })
    }

    fn in_bucket(path: &Path, goal: &Goal<'_>) -> Result<Self> {
        let (place, url, targets) = match goal {
            Goal::File(_) => return Err(not_in_buckets(path)),
            Goal::Array(schema) => {
                let metadata = zarr::array_json(schema)?;
                let place = ObjectsPlace::new(path, &schema.name, metadata)?;
                let url = place.url().to_path_buf();
                let form = chunks_in(url.clone(), schema, place.metadata(), None)?;
                (Way::Array(Box::new(place)), url, vec![Target::new(form)])
            }
            Goal::Tree(nodes) => {
                let coming = nodes.iter().map(|node| ObjectsNode {
                    path: node.path.clone(),
                    json: node.json.clone(),
                    chunks_in: node.chunks_in.clone(),
                });
                let tree = ObjectsTree::new(path, coming.collect())?;
                let mut targets = Vec::new();
                for node in nodes.iter() {
                    let (Some(schema), Some(json)) = (&node.schema, tree.metadata(&node.path))
                    else {
                        continue;
                    };
                    let form = chunks_in(tree.url(&node.path), schema, json, None)?;
                    targets.push(Target::new(form));
                }
                (Way::Tree(Box::new(tree)), path.to_path_buf(), targets)
            }
        };
        let between = url.join(BETWEEN);
        files::remove_if_there(&between)?;
        Ok(Self {
            place,
            between: Between::InBucket(between),
            targets,
        })
    }

    /// Makes the Zarr array `schema` in between, and gives its URL and target.
    pub(super) fn store_beside(&mut self, schema: &ArraySchema) -> Result<(PathBuf, Target)> {
        let url = self.between.place(&schema.name)?;
        let metadata = zarr::array_json(schema)?;
        files::write_json(&url.join("zarr.json"), &metadata)?;
        let form = chunks_in(url.clone(), schema, &metadata, None)?;
        Ok((url, Target::new(form)))
    }

    /// Removes a store in between.
    pub(super) fn remove_beside(&self, name: &str) -> Result<()> {
        match &self.between {
            Between::InBucket(url) => files::remove_if_there(&url.join(name)),
            Between::Aside { .. } => Ok(()), // it goes with its draft
        }
    }

    /// Merges what servers have put into their forks of a draft.
    pub(super) fn merge(&self, is_between: bool, changes: &[Vec<u8>]) -> Result<()> {
        match (&self.place, &self.between) {
            (Way::Draft(draft), _) if !is_between => draft.merge(changes),
            (_, Between::Aside { begun, .. }) => {
                let aside = begun.as_ref().map(|(draft, _)| draft.merge(changes));
                aside.unwrap_or(Ok(()))
            }
            _ => Ok(()),
        }
    }

    /// Puts the whole target in its place. A commit says `words`.
    pub(super) fn commit(self, words: &str) -> Result<()> {
        match self.place {
            Way::Array(place) => place.install(),
            Way::Tree(tree) => tree.install(),
            Way::Draft(draft) => draft.commit(words).map(drop),
        }
    }
}
