//! Checkpoints: written where nobody looks, and made visible by one rename, or one put.

use std::path::Path;

use penstock_bucket::is_url;
use penstock_engine::{Error, Kind, Result};
use serde_json::{Map, Value, json};

use super::catalog::all_checkpoints;
use super::found::Checkpoint;
use super::group::{Checkpoints, Moment, SavedArray};
use super::store::Commit;
use super::timestep::Nodes;
use super::{BegunCheckpoint, ZarrGroup};
use crate::formats::record::{ATTRIBUTE, CHECKPOINTS, checkpoints};
use crate::formats::spread::Spread;
use crate::formats::zarr::{self, ChunkForm, Location, consolidated};
use crate::formats::{Form, Target};
use crate::fs::files::{self, make_directory, remove_if_there};
use crate::schema::ArraySchema;

/// The depth of a checkpoint in its group: the directory of checkpoints is between the two.
const CHECKPOINT_DEPTH: usize = 2;

impl Checkpoints for ZarrGroup {
    fn begin_checkpoint(
        &mut self,
        moment: &Moment,
        arrays: &[ArraySchema],
        servers: usize,
    ) -> Result<Vec<Target>> {
        let spread = self.spread()?.map(|timesteps| Spread {
            depth: CHECKPOINT_DEPTH,
            ..Spread::new(Path::new(&timesteps.template), servers)
        });
        let taken = files::directories_in(&checkpoints(&self.path))?;
        let name = Checkpoint::free_name(moment.step, |name| taken.iter().any(|t| t == name))?;
        let new = self.store.new_checkpoint(&name);
        remove_if_there(&new)?;
        make_directory(&new)?;
        let mut metadata = Map::new();
        let mut targets = Vec::with_capacity(arrays.len());
        for array in arrays {
            let directory = new.join(&array.name);
            make_directory(&directory)?;
            let mut json = zarr::array_json(array)?;
            if let Some(spread) = &spread {
                spread.mark(&mut json)?;
            }
            let form = ChunkForm::of_new(array, &json, &directory.join("zarr.json"))?;
            self.store
                .announce(&[(directory.join("zarr.json"), json.clone())])?;
            metadata.insert(array.name.clone(), json);
            let spread = spread.clone().map(|new| self.beside(&array.name, new));
            let location = Location {
                spread: spread.transpose()?,
                grows: is_url(&directory), // a chunk is put if none is there
                ..Location::new(directory, form)
            };
            let target = Target::new(Form::Zarr(location));
            targets.push(self.with_digests(&array.name, target)?);
        }
        self.begun = Some(BegunCheckpoint {
            name,
            place: new,
            metadata,
        });
        Ok(targets)
    }

    fn commit_checkpoint(
        &mut self,
        moment: &Moment,
        saved: &[SavedArray],
        keep: usize,
    ) -> Result<()> {
        let Some(begun) = self.begun.take() else {
            let cause = "no checkpoint was begun";
            return Err(Error::new(Kind::Io, "saving a checkpoint", cause).at(&self.path));
        };
        let (new, arrays) = (begun.place, begun.metadata);
        let there = all_checkpoints(&self.path)?;
        let about = Checkpoint::next(&there, &self.record, moment);
        let mut made = self.store.write_checkpoint_digests(&new, saved)?;
        for (name, json) in &arrays {
            let directory = new.join(name);
            let place = directory.join("zarr.json");
            files::write_json(&place, json)?;
            made.extend([place, directory]);
        }
        let mut json = zarr::group_json();
        json["attributes"] = Value::Object(moment.attributes.clone());
        json["attributes"][ATTRIBUTE] = json!(about);
        let json = consolidated::with(json, arrays.clone());
        let gone = Checkpoint::outdated(&there, keep);
        let below = format!("{CHECKPOINTS}/{}", begun.name);
        let mut added = vec![(below.clone(), consolidated::entry(&json))];
        let of_arrays = arrays.into_iter();
        added.extend(of_arrays.map(|(array, json)| (format!("{below}/{array}"), json)));
        let nodes = Nodes {
            added,
            gone: names_of(gone),
        };
        let commit = Commit::Checkpoint {
            new,
            place: checkpoints(&self.path).join(begun.name),
            metadata: json,
        };
        self.show(commit, self.record.clone(), made, &nodes)?;
        self.remove_checkpoints(gone.iter())
    }

    fn abandon_checkpoint(&mut self) -> Result<()> {
        self.store.remove_leftovers(&self.record.names())
    }

    fn drop_checkpoints(&mut self, number: u64) -> Result<()> {
        let there = all_checkpoints(&self.path)?;
        let after: Vec<Checkpoint> = there.into_iter().filter(|c| c.number > number).collect();
        if after.is_empty() {
            return Ok(());
        }
        let nodes = Nodes {
            added: Vec::new(),
            gone: names_of(&after),
        };
        self.show(Commit::Nothing, self.record.clone(), Vec::new(), &nodes)?;
        self.remove_checkpoints(after.iter().rev())
    }
}

impl ZarrGroup {
    fn remove_checkpoints<'a>(
        &mut self,
        mut gone: impl Iterator<Item = &'a Checkpoint>,
    ) -> Result<()> {
        gone.try_for_each(|checkpoint| self.store.remove_checkpoint(&checkpoint.path))
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
