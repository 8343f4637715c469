//! The target of a copy in a bucket: one array, or a tree of groups and arrays. A killed copy is
//! begun again, once its lease is dead: what it has put is removed first.

use std::path::{Path, PathBuf};

use penstock_engine::Result;

use super::goal::ZarrGoal;
use super::objects::ObjectsPlace;
use super::objects_tree::{ObjectsNode, ObjectsTree};
use super::pending::chunks_in;
use crate::formats::Target;
use crate::formats::zarr;
use crate::fs::files;
use crate::schema::ArraySchema;

/// The name of the group with the stores that a copy needs in between.
pub(super) const BETWEEN: &str = ".penstock-between";

/// The target of a copy under way in a bucket.
pub(crate) struct ObjectsTarget {
    place: Way,
    between: Between,
    /// The targets of servers, one an array.
    pub(super) targets: Vec<Target>,
}

/// The place of the stores in between; they go when this is dropped.
struct Between(PathBuf);

impl Drop for Between {
    fn drop(&mut self) {
        let _ = files::remove_if_there(&self.0); // or the next copy does it
    }
}

/// The place of what is copied.
enum Way {
    Array(Box<ObjectsPlace>),
    Tree(Box<ObjectsTree>),
}

impl ObjectsTarget {
    /// Begins a copy to the URL of a bucket.
    ///
    /// # Errors
    /// As of a write to a bucket.
    pub(super) fn new(path: &Path, goal: ZarrGoal<'_>) -> Result<Self> {
        let (place, url, targets) = match goal {
            ZarrGoal::Array(schema) => {
                let metadata = zarr::array_json(schema)?;
                let place = ObjectsPlace::new(path, &schema.name, metadata)?;
                let url = place.url().to_path_buf();
                let form = chunks_in(url.clone(), schema, place.metadata(), None)?;
                (Way::Array(Box::new(place)), url, vec![Target::new(form)])
            }
            ZarrGoal::Tree(nodes) => {
                let coming = nodes.iter().map(|node| ObjectsNode {
                    path: node.path.clone(),
                    json: node.json.clone(),
                    chunks_in: node.chunks_in.clone(),
                });
                let tree = ObjectsTree::new(path, coming.collect())?;
                let mut targets = Vec::new();
                for node in nodes {
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
            between: Between(between),
            targets,
        })
    }

    /// Makes the Zarr array `schema` in between, and gives its URL and target.
    pub(super) fn store_beside(&self, schema: &ArraySchema) -> Result<(PathBuf, Target)> {
        store_at(self.between.0.join(&schema.name), schema)
    }

    /// Removes a store in between.
    pub(super) fn remove_beside(&self, name: &str) -> Result<()> {
        files::remove_if_there(&self.between.0.join(name))
    }

    /// Puts the whole target in its place.
    pub(super) fn commit(self) -> Result<()> {
        match self.place {
            Way::Array(place) => place.install(),
            Way::Tree(tree) => tree.install(),
        }
    }
}

/// Makes the Zarr array `schema` at a URL, as a store in between, and gives its URL and target.
pub(super) fn store_at(url: PathBuf, schema: &ArraySchema) -> Result<(PathBuf, Target)> {
    let metadata = zarr::array_json(schema)?;
    files::write_json(&url.join("zarr.json"), &metadata)?;
    let form = chunks_in(url.clone(), schema, &metadata, None)?;
    Ok((url, Target::new(form)))
}
