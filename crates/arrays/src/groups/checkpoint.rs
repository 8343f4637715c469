//! Checkpoints: written aside, and renamed into place.

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Result};
use serde_json::{Map, Value, json};

use super::catalog::{Checkpoint, all_checkpoints, checkpoint_sums_file};
use super::timestep::{install, sync};
use super::{Checkpoints, Timesteps, ZarrGroup, checkpoints};
use crate::formats::record::{self, ATTRIBUTE, CHECKPOINTS, VERSION};
use crate::formats::spread::Spread;
use crate::formats::sums::{self, Sums};
use crate::formats::zarr::{self, ChunkForm, Location, consolidated};
use crate::formats::{Form, Target};
use crate::fs::files::{self, make_directory, remove_if_there};
use crate::fs::ops;
use crate::schema::ArraySchema;
use crate::write::lock_group;

/// The depth of a checkpoint in its group: the directory of checkpoints is between the two.
const CHECKPOINT_DEPTH: usize = 2;

/// The moment of a save.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    pub step: u64,
    pub time: Option<f64>,
    /// The attributes of the moment.
    pub attributes: Map<String, Value>,
}

impl Checkpoints for ZarrGroup {
    fn begin_checkpoint(&mut self, arrays: &[ArraySchema], servers: usize) -> Result<Vec<Target>> {
        let spread = self.spread()?.map(|timesteps| Spread {
            depth: CHECKPOINT_DEPTH,
            ..Spread::new(Path::new(&timesteps.template), servers)
        });
        let new = self.new_checkpoint();
        remove_if_there(&new)?;
        make_directory(&new)?;
        self.begun = Map::new();
        let mut targets = Vec::with_capacity(arrays.len());
        for array in arrays {
            let directory = new.join(&array.name);
            make_directory(&directory)?;
            let mut json = zarr::array_json(array)?;
            if let Some(spread) = &spread {
                spread.mark(&mut json)?;
            }
            let place = directory.join("zarr.json");
            files::write_json(&place, &json)?;
            let form = ChunkForm::of_new(array, &json, &place)?;
            self.begun.insert(array.name.clone(), json);
            let spread = spread.clone().map(|new| self.beside(&array.name, new));
            let location = Location {
                spread: spread.transpose()?,
                ..Location::new(directory, form)
            };
            targets.push(Target::new(Form::Zarr(location)).with_sums());
        }
        Ok(targets)
    }

    fn commit_checkpoint(
        &mut self,
        moment: &Moment,
        sums: &[(String, Sums)],
        keep: usize,
    ) -> Result<()> {
        let new = self.new_checkpoint();
        let there = all_checkpoints(&self.path)?;
        let about = Checkpoint {
            version: VERSION,
            group: self.record.group.clone(),
            number: there.last().map_or(1, |newest| newest.number + 1),
            step: moment.step,
            time: moment.time,
            timesteps: self.timesteps(),
            attributes: Map::new(),
            path: PathBuf::new(),
        };
        let arrays = std::mem::take(&mut self.begun);
        let mut made = vec![new.clone(), new.join("zarr.json")];
        for (name, sums) in sums {
            let place = checkpoint_sums_file(&new, name);
            files::write(&place, &sums::encode(sums))?;
            let directory = new.join(name);
            made.extend([place, directory.join("zarr.json"), directory]);
        }
        let mut json = zarr::group_json();
        json["attributes"] = Value::Object(moment.attributes.clone());
        json["attributes"][ATTRIBUTE] = json!(about);
        let json = consolidated::with(json, arrays.clone());
        files::write_json(&new.join("zarr.json"), &json)?;
        let name = self.free_name(moment.step)?;
        let gone = &there[..(there.len() + 1)
            .saturating_sub(keep.max(1))
            .min(there.len())];
        let below = format!("{CHECKPOINTS}/{name}");
        let mut nodes = vec![(below.clone(), consolidated::entry(&json))];
        nodes.extend(
            arrays
                .into_iter()
                .map(|(array, json)| (format!("{below}/{array}"), json)),
        );

        let _lock = lock_group(&self.path)?;
        self.metadata
            .look_again(&self.path, &nodes, &names_of(gone))?;
        let whole = self.metadata.whole(&self.record);
        let group = [self.stage("group", self.path.join("zarr.json"), &whole)?];
        sync(&group, made)?;
        let directory = checkpoints(&self.path);
        files::rename(&new, &directory.join(name))?;
        install(&group)?;
        files::sync_paths(&[directory, self.path.clone()])?;
        self.remove_checkpoints(gone.iter())
    }

    fn abandon_checkpoint(&mut self) -> Result<()> {
        remove_if_there(&self.new_checkpoint())
    }

    fn drop_checkpoints(&mut self, number: u64) -> Result<()> {
        let there = all_checkpoints(&self.path)?;
        let after: Vec<Checkpoint> = there.into_iter().filter(|c| c.number > number).collect();
        if after.is_empty() {
            return Ok(());
        }
        let _lock = lock_group(&self.path)?;
        self.metadata
            .look_again(&self.path, &[], &names_of(&after))?;
        let whole = self.metadata.whole(&self.record);
        let group = [self.stage("group", self.path.join("zarr.json"), &whole)?];
        sync(&group, Vec::new())?;
        install(&group)?;
        files::sync_path(&self.path)?;
        self.remove_checkpoints(after.iter().rev())
    }
}

impl ZarrGroup {
    fn new_checkpoint(&self) -> PathBuf {
        record::directory(&self.path).join("new")
    }

    /// A name that no checkpoint has. A run from which the program has restarted may have saved the
    /// same step.
    fn free_name(&self, step: u64) -> Result<String> {
        let directory = checkpoints(&self.path);
        let names = std::iter::once(step.to_string()).chain((2..).map(|n| format!("{step}-{n}")));
        let mut free = names.filter(|name| !directory.join(name).exists());
        free.next().ok_or_else(|| {
            let cause = "there is no free name for it";
            Error::new(penstock_engine::Kind::Full, "saving a checkpoint", cause)
        })
    }

    /// Renames each checkpoint out of the way before it is removed: one removed in part would not
    /// be complete.
    fn remove_checkpoints<'a>(&self, gone: impl Iterator<Item = &'a Checkpoint>) -> Result<()> {
        let old = record::directory(&self.path).join("old");
        for checkpoint in gone {
            remove_if_there(&old)?;
            ops::rename(&checkpoint.path, &old)
                .map_err(|e| Error::io(&e, "removing", &checkpoint.path))?;
            files::sync_path(&checkpoints(&self.path))?;
            remove_if_there(&old)?;
        }
        Ok(())
    }
}

fn names_of(checkpoints: &[Checkpoint]) -> Vec<String> {
    let names = checkpoints
        .iter()
        .map(|checkpoint| checkpoint.path.file_name());
    let names = names
        .flatten()
        .map(|name| name.to_string_lossy().into_owned());
    names.collect()
}
