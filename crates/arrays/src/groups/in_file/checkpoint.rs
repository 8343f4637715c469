//! Checkpoints of a group in a file: files beside it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use penstock_engine::Result;
use penstock_hdf5::FileForm;
use serde_json::{Map, Value, json};

use super::super::found::Checkpoint;
use super::super::group::{Checkpoints, Moment, SavedArray};
use super::{GroupInFile, checkpoints};
use crate::formats::Target;
use crate::formats::hdf5::mark::{CheckpointMark, checkpoints_of, dataset_of};
use crate::formats::record::ATTRIBUTE;
use crate::fs::files::{self, make_directory, remove_if_there};
use crate::fs::temporary::Temporary;
use crate::schema::ArraySchema;
use crate::write::{FileArray, FileGoal, FileGroup, FilePlace};

impl Checkpoints for GroupInFile {
    fn begin_checkpoint(
        &mut self,
        moment: &Moment,
        arrays: &[ArraySchema],
        _: usize,
    ) -> Result<Vec<Target>> {
        let directory = checkpoints_of(&self.path);
        if !directory.is_dir() {
            make_directory(&directory)?;
            files::sync_parent(&directory)?;
        }
        let datasets = arrays
            .iter()
            .map(|array| (array.name.clone(), dataset_of(array)));
        let datasets = datasets.collect::<BTreeMap<_, _>>();
        let arrays = arrays.iter().map(|schema| FileArray {
            path: dataset_of(schema),
            grows: vec![false; schema.shape.len()],
            schema: schema.clone(),
            from: None,
        });
        let root = FileGroup {
            path: String::new(),
            attributes: self.attributes_of(moment, datasets)?,
            from: None,
        };
        let goal = FileGoal {
            is_netcdf: self.form == FileForm::NetCdf,
            groups: vec![root],
            arrays: arrays.collect(),
            ..FileGoal::default()
        };
        // Of one name for all, so that the next removes what a killed one has left.
        let new = self.checkpoint("new");
        let temporary = Temporary::create(&new, None, &new)?;
        let is_taken = |name: &str| std::fs::symlink_metadata(self.checkpoint(name)).is_ok();
        let name = Checkpoint::free_name(moment.step, is_taken)?;
        let place = FilePlace::of_new(self.checkpoint(&name), goal)?;
        let forms = place.lay_out(&temporary, false)?;
        self.begun = Some((place, temporary));
        Ok(forms.into_iter().map(Target::new).collect())
    }

    fn commit_checkpoint(&mut self, _: &Moment, _: &[SavedArray], keep: usize) -> Result<()> {
        let Some((place, mut temporary)) = self.begun.take() else {
            return Err(self.refused("no checkpoint has been begun"));
        };
        let there = checkpoints(&self.path)?;
        place.install(&temporary)?;
        let _ = temporary.remove(); // the checkpoint is in its place
        remove(Checkpoint::outdated(&there, keep).iter())
    }

    fn abandon_checkpoint(&mut self) -> Result<()> {
        match self.begun.take() {
            Some((_, mut temporary)) => temporary.remove(),
            None => Ok(()),
        }
    }

    fn drop_checkpoints(&mut self, number: u64) -> Result<()> {
        let there = checkpoints(&self.path)?;
        let newer = there.iter().filter(|checkpoint| checkpoint.number > number);
        remove(newer.rev())
    }
}

impl GroupInFile {
    /// The attributes of the root of a checkpoint.
    fn attributes_of(
        &self,
        moment: &Moment,
        datasets: BTreeMap<String, String>,
    ) -> Result<Map<String, Value>> {
        let there = checkpoints(&self.path)?;
        let mark = CheckpointMark {
            datasets,
            checkpoint: json!(Checkpoint::next(&there, &self.mark.group, moment)),
        };
        let mut attributes = moment.attributes.clone();
        attributes.insert(ATTRIBUTE.to_string(), json!(mark).to_string().into());
        Ok(attributes)
    }

    /// The path of a checkpoint with this name.
    fn checkpoint(&self, name: &str) -> PathBuf {
        let mut path = checkpoints_of(&self.path).join(name);
        if let Some(ending) = self.path.extension() {
            let mut name = path.into_os_string();
            name.push(".");
            name.push(ending);
            path = name.into();
        }
        path
    }
}

/// Removes checkpoints one after the other.
fn remove<'a>(gone: impl Iterator<Item = &'a Checkpoint>) -> Result<()> {
    for checkpoint in gone {
        remove_if_there(&checkpoint.path)?;
        files::sync_parent(&checkpoint.path)?;
    }
    Ok(())
}
