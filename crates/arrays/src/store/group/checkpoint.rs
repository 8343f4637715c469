//! Checkpoints: written aside, and renamed into place.

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Result};
use serde_json::{Map, json};

use super::catalog::{Checkpoint, all_checkpoints, dimension_names, group_json, sums_of};
use super::{Group, VERSION, checkpoints, private, remove_if_there};
use crate::schema::ArraySchema;
use crate::store::pending::{make_directory, node, write_json};
use crate::store::spread::Spread;
use crate::store::sums::Sums;
use crate::store::{Files, Target, ZarrFiles, change, file, zarr};

/// A checkpoint is in the directory of checkpoints, which is in the group.
const CHECKPOINT_DEPTH: usize = 2;

/// What a program says of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// Its step.
    pub step: u64,
    /// Its time.
    pub time: Option<f64>,
}

impl Group {
    fn new_checkpoint(&self) -> PathBuf {
        private(&self.path).join("new")
    }

    /// Makes everything of a checkpoint but the elements. Servers write to the targets, one an array; of a group
    /// that is spread, `servers` of them have each a part of it.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn begin_checkpoint(
        &mut self,
        arrays: &[ArraySchema],
        servers: usize,
    ) -> Result<Vec<Target>> {
        let spread = match self.spread()? {
            None => None,
            Some(timesteps) => Some(Spread {
                depth: CHECKPOINT_DEPTH,
                ..Spread::new(Path::new(&timesteps.template), servers)
            }),
        };
        let new = self.new_checkpoint();
        remove_if_there(&new)?;
        make_directory(&new)?;
        make_directory(&private(&new))?;
        self.begun = Map::new();
        let mut targets = Vec::with_capacity(arrays.len());
        for array in arrays {
            let directory = new.join(&array.name);
            make_directory(&directory)?;
            let mut json = array_json(array)?;
            if let Some(spread) = &spread {
                spread.mark(&mut json)?;
            }
            let place = directory.join("zarr.json");
            write_json(&place, &json)?;
            let form = zarr::Metadata::parse(json.clone(), &place)?.chunk_form();
            self.begun.insert(array.name.clone(), json);
            let spread = spread.clone().map(|new| self.beside(&array.name, new));
            let files = ZarrFiles {
                is_new: spread.is_none(),
                spread: spread.transpose()?,
                ..ZarrFiles::new(directory, form)
            };
            targets.push(Target::of(Files::Zarr(files)).with_sums());
        }
        Ok(targets)
    }

    /// Takes the checkpoint, which servers have written and synced, into the group, and removes old ones
    /// until `keep` are left.
    ///
    /// # Errors
    /// What the operating system says. All former checkpoints are then there.
    pub fn commit_checkpoint(&mut self, moment: &Moment, sums: &Sums, keep: usize) -> Result<()> {
        let new = self.new_checkpoint();
        let there = all_checkpoints(&self.path)?;
        let about = Checkpoint {
            version: VERSION,
            group: self.document.group_name().to_string(),
            number: there.last().map_or(1, |newest| newest.number + 1),
            step: moment.step,
            time: moment.time,
            timesteps: self.timesteps(),
            path: PathBuf::new(),
        };
        let metadata = std::mem::take(&mut self.begun);
        let mut made = node(&new).to_vec();
        made.extend([private(&new), sums_of(&new)]);
        made.extend(metadata.keys().flat_map(|name| node(&new.join(name))));
        let attributes = Map::from_iter([("penstock".to_string(), json!(about))]);
        write_json(&new.join("zarr.json"), &group_json(attributes, metadata))?;
        let text = serde_json::to_vec(sums).unwrap_or_default();
        file::write(&sums_of(&new), &text)?;
        file::sync_paths(&made)?;
        let directory = checkpoints(&self.path);
        // The same step may have been saved before, in a life from which the program has restarted.
        let names = std::iter::once(moment.step.to_string())
            .chain((2..).map(|n| format!("{}-{n}", moment.step)));
        let mut places = names.map(|name| directory.join(name));
        let Some(place) = places.find(|place| !place.exists()) else {
            unreachable!("there are more names than checkpoints")
        };
        change::rename(&new, &place).map_err(|e| Error::io(&e, "renaming into place", &place))?;
        file::sync_path(&directory)?;
        self.remove_checkpoints_but(keep)
    }

    /// Removes what has been written of a checkpoint that will not be.
    ///
    /// # Errors
    /// What the operating system says. The next write tries again.
    pub fn abandon_checkpoint(&mut self) -> Result<()> {
        remove_if_there(&self.new_checkpoint())
    }

    /// Takes all checkpoints after that of a number out of the group, the newest first: at any moment those
    /// that are left are all up to one of them.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn drop_checkpoints(&mut self, number: u64) -> Result<()> {
        let there = all_checkpoints(&self.path)?;
        let after = there.iter().filter(|checkpoint| checkpoint.number > number);
        self.remove_checkpoints(after.rev())
    }

    /// Removes the oldest checkpoints.
    fn remove_checkpoints_but(&self, keep: usize) -> Result<()> {
        let there = all_checkpoints(&self.path)?;
        self.remove_checkpoints(there[..there.len().saturating_sub(keep.max(1))].iter())
    }

    /// One that is removed in part would not be complete, so each goes out of the way first.
    fn remove_checkpoints<'a>(&self, gone: impl Iterator<Item = &'a Checkpoint>) -> Result<()> {
        let old = private(&self.path).join("old");
        for checkpoint in gone {
            remove_if_there(&old)?;
            change::rename(&checkpoint.path, &old)
                .map_err(|e| Error::io(&e, "removing", &checkpoint.path))?;
            file::sync_path(&checkpoints(&self.path))?;
            remove_if_there(&old)?;
        }
        Ok(())
    }
}

/// The metadata of an array of a checkpoint.
fn array_json(array: &ArraySchema) -> Result<serde_json::Value> {
    zarr::array_json(&ArraySchema {
        dimension_names: Some(dimension_names(array)),
        ..array.clone()
    })
}
