//! Array groups on disk: timesteps and checkpoints of arrays that are written together.
//!
//! | module | what it holds |
//! |---|---|
//! | [`catalog`](Catalog) | reads what a group holds; opens arrays that may be saved |
//! | `bounds` | the bounds of the elements of a saved array's chunks |
//! | `metadata` | the metadata of a group that is written to: of its arrays, and of all nodes that others have added |
//! | `timestep` | timesteps: written in place, made visible by two renames, or puts |
//! | `checkpoint` | checkpoints: written where nobody looks, made visible by one rename, or put |
//! | `store` | the store of a group as its saves see it, and the store that is a directory |
//! | `objects` | the store that is a place in a bucket |
//! | `declared` | the declaration of a group |
//! | `in_file` | groups in one file of HDF5 or NetCDF-4 |
//! | `coordinate` | static variables whose values every rank knows |
//! | [`group`](Group) | a group as its saves see it |
//! | [`found`](Catalog) | what is found in a group |
//! | `former` | groups of the first version, and groups that have lost their record |
//! | [`verify`] | reads all objects again and compares them with their checksums |
//! | [`gather`] | makes one store of the parts on all servers |
//!
//! ```text
//! sim2.zarr/
//!   zarr.json               a Zarr group with consolidated metadata
//!   time/                   the coordinate: one float64 a timestep
//!   temperature/            shape (timesteps, ...), chunks (time_chunk, ...)
//!   particles/              shape (rows of all timesteps, ...)
//!   particle_start/         the first row of each timestep
//!   particle_count/         the number of rows of each timestep
//!   latitude/               static: a coordinate
//!   checkpoints/            a Zarr group
//!     50/                   one checkpoint: a group of its own, with consolidated metadata
//!       temperature/.sums   its checksums, beside the array's metadata
//!       temperature/.bounds the bounds of its elements, if a program has asked for them
//!   .penstock/record/       see `formats::record`
//! ```
//!
//! # A timestep
//! Servers write the rows of a timestep where they belong, beyond the length that readers know, and
//! sync them; the director does so with the timestep's time, its counts of rows and its checksums.
//! Then a record that counts one timestep more replaces the record: that rename makes the timestep.
//! At once the group's `zarr.json` follows, in which all arrays are longer: one rename shows the
//! timestep of all arrays to readers of consolidated metadata. Last come the arrays' own
//! `zarr.json`, for other readers. All of these files were written aside before, so that a disk
//! becomes full before the timestep is there, if at all.
//!
//! # A checkpoint
//! A checkpoint is written to `.penstock/record/new`, synced, and renamed into `checkpoints`. Only
//! then old checkpoints are removed.
//!
//! # In a bucket
//! There a put under a condition does what a rename does here; see `objects`.
//!
//! # After a crash
//! The next save removes all rows and files beyond the record, and brings metadata that have stayed
//! behind up to the record. Nodes that other tools have added stay.

mod bounds;
mod catalog;
mod checkpoint;
mod coordinate;
mod declared;
mod former;
mod found;
mod gather;
mod group;
mod in_file;
mod metadata;
mod objects;
mod store;
mod timestep;
mod verify;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use penstock_bucket::{is_in_repository, is_url};
use penstock_engine::{Error, Kind, Result};
use serde_json::{Map, Value};

pub(crate) use bounds::bounds_of;
pub use catalog::{Contents, Entry, describe, list, open, open_schema};
pub(crate) use catalog::{checkpoint_sums, shapes_of};
pub use coordinate::{Coordinate, Values};
pub use declared::{ArrayDeclaration, Declaration};
pub use former::repair;
pub use found::{Catalog, Checkpoint};
pub use gather::gather;
pub use group::{Checkpoints, Group, Moment, SavedArray, Timesteps};
pub use verify::{Verification, verify};

use self::in_file::GroupInFile;
use self::metadata::Metadata;
use self::objects::Objects;
use self::store::{Change, Commit, Directory, GroupStore};
use crate::formats::hdf5::{self, describe::is_hdf5_file};
use crate::formats::record::{self, Growth, Record, VERSION};
use crate::formats::spread::{Spread, SpreadArray, is_template, of_server};
use crate::formats::zarr::{self, Node};
use crate::fs::files::{self, Lock, make_directory, try_lock};
use crate::fs::ops;
use crate::fs::temporary::{Temporary, nonce, remove_remains_of};
use crate::schema::{ArraySchema, Storage};
use crate::write::checks::{check_not_in_checkpoints, resolve};
use crate::write::make_groups;

/// Opens the group at `path` to save to it, or makes it there, and mends the remains of a crash. If
/// the path contains `{server}`, a new group is spread over `servers`. `is_first` says that this
/// session has not saved to the group yet: then coordinates are compared with the stored ones.
///
/// # Errors
/// [`Kind::Schema`] when something else is at `path`, or a group of other arrays; [`Kind::Busy`]
/// when another job is writing to the group.
pub fn open_to_save(
    path: &Path,
    declared: &Declaration,
    servers: usize,
    is_first: bool,
) -> Result<Box<dyn Group>> {
    declared.check()?;
    Ok(match declared.arrays[0].schema.disk {
        Storage::Hdf5 { is_netcdf, .. } => {
            Box::new(GroupInFile::open(path, declared, is_netcdf, is_first)?)
        }
        _ if is_url(path) => Box::new(ZarrGroup::open_in_bucket(path, declared, is_first)?),
        _ => Box::new(ZarrGroup::open(path, declared, servers, is_first)?),
    })
}

/// The kind of the file to which the group at `path` is saved, whose arrays are to be stored as
/// `disks` say: whether it is of NetCDF-4, or otherwise of HDF5; `None` for a group that is no
/// file.
///
/// # Errors
/// [`Kind::Schema`] for arrays that cannot be in one group.
pub fn kind_of_file<'a>(
    path: &Path,
    disks: impl Iterator<Item = &'a Storage>,
) -> Result<Option<bool>> {
    let mut kinds = BTreeSet::new();
    let mut others = None;
    for disk in disks {
        match disk {
            Storage::Hdf5 { is_netcdf, .. } => drop(kinds.insert(*is_netcdf)),
            Storage::Natural => {}
            _ => others = Some(disk),
        }
    }
    if kinds.is_empty() && others.is_none() && !is_url(path) && is_hdf5_file(path) {
        kinds.insert(hdf5::describe::open(path)?.is_netcdf());
    }
    let wrong = |cause: String| {
        let error = Error::new(Kind::Schema, "describing a group", cause);
        Err(error.at(path))
    };
    match (kinds.len(), others) {
        (0, _) => Ok(None),
        (1, None) => Ok(kinds.pop_first()),
        (1, Some(other)) => wrong(format!(
            "some of its arrays are to be in a file, and one is to be stored as {other}"
        )),
        _ => wrong("a file is of NetCDF-4 or of HDF5, and its arrays say both".to_string()),
    }
}

/// A group in a directory or a bucket: a Zarr store.
struct ZarrGroup {
    path: PathBuf,
    /// The path as the user gave it, if it contains `{server}`.
    template: Option<PathBuf>,
    record: Record,
    metadata: Metadata,
    /// The checkpoint that is being written.
    begun: Option<BegunCheckpoint>,
    store: Box<dyn GroupStore>,
}

/// A checkpoint that is being written.
struct BegunCheckpoint {
    name: String,
    place: PathBuf,
    /// The metadata of its arrays.
    metadata: Map<String, Value>,
}

impl Group for ZarrGroup {
    fn id(&self) -> &str {
        &self.record.id
    }

    fn moment(&self, name: &str) -> Result<ArraySchema> {
        self.metadata.moment(&self.record, name)
    }
}

impl ZarrGroup {
    fn open(path: &Path, declared: &Declaration, servers: usize, is_first: bool) -> Result<Self> {
        let absolute = files::absolute(path)?;
        let path = resolve(&of_server(&absolute, 0))?;
        let template = is_template(&absolute).then_some(absolute);
        let spread = template.as_deref().map(|place| Spread::new(place, servers));
        if !path.join("zarr.json").exists() {
            create(&path, declared, spread.as_ref())?;
        }
        former::check_adoptable(&path, declared)?;
        if !record::directory(&path).is_dir() {
            files::sync_paths(&record::make_directory(&path)?)?;
        }
        let lock = hold(&path, "writing")?;
        let store = Box::new(Directory::new(&path, Some(lock)));
        Self::hold(path, template, store, declared, is_first)
    }

    fn open_in_bucket(path: &Path, declared: &Declaration, is_first: bool) -> Result<Self> {
        if is_template(path) {
            let cause = "a group in a bucket is in one place: give a path without {server}";
            return Err(Error::new(Kind::Unsupported, "writing to a group", cause).at(path));
        }
        let store = Box::new(Objects::lease(path)?);
        check_not_in_checkpoints(path)?;
        if let Some(above) = path.parent().filter(|_| is_in_repository(path)) {
            make_groups(above)?;
        }
        if Node::read(path)?.is_none() {
            let mut json = zarr::group_json();
            json["attributes"] = Value::Object(declared.attributes.clone());
            files::write_json(&path.join("zarr.json"), &json)?;
        }
        former::check_adoptable(path, declared)?;
        Self::hold(path.to_path_buf(), None, store, declared, is_first)
    }

    /// Opens a group from which other writers are kept away.
    fn hold(
        path: PathBuf,
        template: Option<PathBuf>,
        mut store: Box<dyn GroupStore>,
        declared: &Declaration,
        is_first: bool,
    ) -> Result<Self> {
        let record = match former::bring_up(&path)? {
            Some(record) => record,
            None => lay_out(&path, declared, None, &mut *store)?,
        };
        let metadata = Metadata::read(&path, &record)?;
        let mut group = Self {
            metadata,
            record,
            path,
            template,
            begun: None,
            store,
        };
        group.check_arrays(declared)?;
        group.check_length(declared)?;
        group.mend()?;
        group.add_arrays(declared)?;
        group.add_coordinates(declared, is_first)?;
        group.metadata.declare(declared);
        Ok(group)
    }

    /// The spread of the timesteps over servers, if they are spread.
    fn spread(&self) -> Result<Option<Spread>> {
        let first = self.record.arrays.keys().next();
        first.map_or(Ok(None), |name| self.metadata.spread(self.place(), name))
    }

    /// The path as the user gave it.
    fn place(&self) -> &Path {
        self.template.as_deref().unwrap_or(&self.path)
    }

    /// A new version of a spread array, which keeps all versions that are stored.
    fn beside(&self, name: &str, new: Spread) -> Result<SpreadArray> {
        let there = catalog::spreads(self.place(), &self.metadata, name)?;
        Ok(SpreadArray {
            keeps: there.into_iter().map(|spread| spread.version).collect(),
            ..SpreadArray::new(name, new)
        })
    }

    /// Checks that the stored arrays are declared, and stored as declared.
    fn check_arrays(&self, declared: &Declaration) -> Result<()> {
        if self.template.is_some() && self.spread()?.is_none() {
            let cause = "the group there is all in one place: give its path without {server}";
            return Err(self.refused(cause));
        }
        let moment = |name: &str| self.moment(name);
        let is_stored_as = |_: &ArraySchema, array: &ArrayDeclaration| {
            self.metadata.is_stored_as(&self.record, array)
        };
        declared.check_stored(&self.path, &self.record, &moment, &is_stored_as)
    }

    /// Refuses a group to which another program has added timesteps.
    fn check_length(&self, declared: &Declaration) -> Result<()> {
        if self.record.dropped_from.is_some() {
            return Ok(());
        }
        for array in &declared.arrays {
            let name = &array.schema.name;
            let known = self.record.length(name).unwrap_or(0);
            if let Some(there) = self
                .metadata
                .own_length(name)
                .filter(|there| *there > known)
            {
                let cause = format!(
                    "{name:?} is {there} long, and Penstock has made {known} of that: another program has added the \
                     rest; `penstock repair` takes that in"
                );
                return Err(self.refused(&cause));
            }
        }
        Ok(())
    }

    fn refused(&self, cause: &str) -> Error {
        Error::new(Kind::Schema, "writing to a group", cause).at(&self.path)
    }

    /// Brings the files of the group to the state that the record counts.
    fn mend(&mut self) -> Result<()> {
        self.store.remove_leftovers(&self.record.names())?;
        if self.timesteps() == 0 && !is_url(&self.path) {
            // A crash after a new group was renamed into place, and before its temporary was
            // removed, leaves the temporary, and no other write looks there.
            remove_remains_of(&self.path);
        }
        // The metadata lose rows before the chunks of these rows are removed.
        self.write_metadata(Vec::new())?;
        self.remove_rows_beyond()
    }

    /// Makes declared arrays that are missing: they have no elements in former timesteps. Notes the
    /// arrays that are declared to have bounds: those of former timesteps are not known.
    fn add_arrays(&mut self, declared: &Declaration) -> Result<()> {
        let is_new =
            |array: &&ArrayDeclaration| !self.record.arrays.contains_key(&array.schema.name);
        let new: Vec<&ArrayDeclaration> = declared.arrays.iter().filter(is_new).collect();
        if new.is_empty() && declared.bounded.is_subset(&self.record.bounded) {
            return Ok(());
        }
        let mut next = self.record.clone();
        next.bounded.extend(declared.bounded.iter().cloned());
        let spread = match self.spread()? {
            Some(there) => Some(Spread::new(self.place(), there.servers)),
            None => None,
        };
        for array in &new {
            next.add(array);
        }
        let made = self
            .metadata
            .add(&self.path, &next, &new, spread.as_ref())?;
        files::sync_paths(&made)?;
        self.publish(next, Vec::new())
    }

    /// Makes declared coordinates that are missing, and compares the others.
    fn add_coordinates(&mut self, declared: &Declaration, is_first: bool) -> Result<()> {
        let mut made = Vec::new();
        for coordinate in &declared.coordinates {
            match self.metadata.has(&coordinate.name) {
                false => made.extend(coordinate.write(&self.path)?),
                true if is_first => coordinate.compare(&self.path)?,
                true => {}
            }
        }
        if made.is_empty() {
            return Ok(());
        }
        made.push(self.path.clone());
        self.write_metadata(made)
    }
}

impl Record {
    /// The record of a new group.
    fn of(declared: &Declaration) -> Self {
        let mut record = Self {
            penstock: VERSION,
            group: declared.name.clone(),
            id: nonce(),
            timesteps: 0,
            dropped_from: None,
            time_chunk: declared.time_chunk.unwrap_or(1),
            arrays: std::collections::BTreeMap::new(),
            rows: std::collections::BTreeMap::new(),
            bounded: declared.bounded.clone(),
        };
        declared.arrays.iter().for_each(|array| record.add(array));
        record
    }

    /// The record with one timestep more, in which the arrays have so many rows.
    fn grown<'a>(&self, arrays: impl Iterator<Item = (&'a str, u64)>) -> Self {
        let mut next = self.clone();
        next.timesteps += 1;
        for (name, count) in arrays {
            if let Some(Growth::Rows(dimension)) = self.arrays.get(name) {
                let start = self.rows.get(dimension).copied().unwrap_or(0);
                next.rows.insert(dimension.clone(), start + count);
            }
        }
        next
    }

    fn add(&mut self, array: &ArrayDeclaration) {
        let growth = array.growth();
        if let Growth::Rows(dimension) = &growth {
            self.rows.entry(dimension.clone()).or_insert(0);
        }
        self.arrays.insert(array.schema.name.clone(), growth);
    }
}

/// Locks a group, whose record has a directory, against other writers.
///
/// # Errors
/// [`Kind::Busy`].
fn hold(group: &Path, doing: &str) -> Result<File> {
    hold_by(group, &record::directory(group), doing)
}

fn hold_by(group: &Path, directory: &Path, doing: &str) -> Result<File> {
    let place = directory.join("lock");
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let opened = ops::create(&options, &place);
    let lock = opened.map_err(|e| Error::io(&e, "opening", &place))?;
    if matches!(try_lock(&lock), Lock::Held) {
        let cause = "another job is writing to the group";
        return Err(Error::new(Kind::Busy, doing, cause).at(group));
    }
    Ok(lock)
}

/// Makes an empty group.
fn create(path: &Path, declared: &Declaration, spread: Option<&Spread>) -> Result<()> {
    make_whole(path, |data| {
        make_directory(data)?;
        let mut json = zarr::group_json();
        json["attributes"] = Value::Object(declared.attributes.clone());
        files::write_json(&data.join("zarr.json"), &json)?;
        lay_out(data, declared, spread, &mut Directory::new(data, None)).map(drop)
    })
}

/// Makes a group of Penstock of a Zarr group: all nodes there stay. The record comes last.
fn lay_out(
    path: &Path,
    declared: &Declaration,
    spread: Option<&Spread>,
    store: &mut dyn GroupStore,
) -> Result<Record> {
    let record = Record::of(declared);
    let mut made = record::make_directory(path)?;
    let checkpoints = record::checkpoints(path);
    if Node::read(&checkpoints)?.is_none() {
        make_directory(&checkpoints)?;
        files::write_json(&checkpoints.join("zarr.json"), &zarr::group_json())?;
        made.extend([checkpoints.join("zarr.json"), checkpoints]);
    }
    let mut metadata = Metadata::default();
    let arrays: Vec<&ArrayDeclaration> = declared.arrays.iter().collect();
    made.extend(metadata.add(path, &record, &arrays, spread)?);
    for coordinate in &declared.coordinates {
        if Node::read(&path.join(&coordinate.name))?.is_none() {
            made.extend(coordinate.write(path)?);
        }
    }
    metadata.declare(declared);
    store.hold_metadata()?;
    metadata.look_again(path, &[], &[])?;
    let change = Change {
        commit: Commit::Nothing,
        group: metadata.whole(&record),
        own: metadata.own_files(path, &record),
    };
    made.extend([path.join("zarr.json"), path.to_path_buf()]);
    store.stage(&change, made)?;
    if !store.show(&change)? {
        let cause = "another program changes the group's metadata";
        return Err(Error::new(Kind::Busy, "writing to a group", cause).at(path));
    }
    store.follow(&change)?;
    let change = Change {
        commit: Commit::Record(record.json()),
        group: None,
        own: Vec::new(),
    };
    store.stage(&change, Vec::new())?;
    store.show(&change)?;
    Ok(record)
}

/// Makes a group as a whole or not at all, if `path` is missing or an empty directory. `make` makes
/// and syncs the group in a temporary.
fn make_whole(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if path.is_dir() && !files::is_empty(path)? {
        let cause = "it is a directory, but not a group";
        return Err(Error::new(Kind::Schema, "writing", cause).at(path));
    }
    let mut temporary = Temporary::create(path, None, path)?;
    let data = temporary.data();
    make(&data)?;
    files::put_in_place(&data, path)?;
    // The group is in its place: the next write removes a temporary that stays.
    let _ = temporary.remove();
    Ok(())
}
