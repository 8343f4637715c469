//! The target of a copy in a repository: one draft, from the first call of the copy to the commit.
//! Nobody knows the draft of a killed copy, so that copy is begun again.

use std::path::{Path, PathBuf};

use penstock_bucket::Draft;
use penstock_engine::Result;

use super::copy_objects::{BETWEEN, store_at};
use super::drafted;
use super::goal::ZarrGoal;
use super::pending::chunks_in;
use crate::formats::Target;
use crate::schema::ArraySchema;

/// The target of a copy under way in a repository.
pub(crate) struct DraftedTarget {
    draft: Draft,
    /// A draft for the stores in between, which is never committed, and the path of their group.
    between: Option<(Draft, PathBuf)>,
    /// The targets of servers, one an array.
    pub(super) targets: Vec<Target>,
}

impl DraftedTarget {
    /// Begins a copy to a path in a draft.
    ///
    /// # Errors
    /// As of a write to a repository.
    pub(super) fn new(draft: Draft, path: &Path, goal: ZarrGoal<'_>) -> Result<Self> {
        let arrays = match goal {
            ZarrGoal::Array(schema) => {
                let (array, metadata) = drafted::create(path, schema)?;
                vec![(schema, array, metadata)]
            }
            ZarrGoal::Tree(nodes) => drafted::create_tree(path, nodes)?,
        };
        let form = |(schema, array, metadata)| chunks_in(array, schema, &metadata, None);
        let targets = arrays.into_iter().map(|array| form(array).map(Target::new));
        Ok(Self {
            draft,
            between: None,
            targets: targets.collect::<Result<_>>()?,
        })
    }

    /// Makes the Zarr array `schema` in between, and gives its URL and target.
    pub(super) fn store_beside(&mut self, schema: &ArraySchema) -> Result<(PathBuf, Target)> {
        let (_, group) = match &mut self.between {
            Some(between) => between,
            none => {
                let (draft, root) = self.draft.aside()?;
                let group = root.join(BETWEEN);
                drafted::make_groups(&group)?;
                none.insert((draft, group))
            }
        };
        store_at(group.join(&schema.name), schema)
    }

    /// Merges what servers have put into forks: of the draft for stores in between, or of the
    /// target's.
    pub(super) fn merge(&self, is_between: bool, changes: &[Vec<u8>]) -> Result<()> {
        match &self.between {
            Some((between, _)) if is_between => between.merge(changes),
            _ => self.draft.merge(changes),
        }
    }

    /// Commits the whole target. The commit says `words`.
    pub(super) fn commit(self, words: &str) -> Result<()> {
        self.draft.commit(words).map(drop)
    }
}
