//! Array groups on disk: timesteps and checkpoints of arrays that are written together.
//!
//! ```text
//! sim2.zarr/
//!   zarr.json               a Zarr group with consolidated metadata: which timesteps there are
//!   time/                   the coordinate: one float64 a timestep
//!   temperature/            shape (timesteps, ...), chunks (1, ...): a timestep's chunks are c/<index>/...
//!   checkpoints/            a Zarr group
//!     50/                   one checkpoint: a Zarr group of its own, with attributes and consolidated metadata
//!       .penstock/sums.json
//!   .penstock/
//!     lock                  held (flock) by whoever writes
//!     sums/<index>.json     checksums of a timestep
//!     new, old              a checkpoint that is being written, or removed
//!     new-*                 files that are about to take their places
//! ```
//!
//! # A timestep
//! Its chunks are written where they belong, which nobody looks at yet, and synced; then its time and its
//! checksums. Then the group's `zarr.json` is replaced by one in which all arrays are a timestep longer: that
//! one rename makes the timestep, for all arrays at once and for all readers of consolidated metadata. Last
//! come the arrays' own `zarr.json`, for other readers; they were written aside before, so that a disk that
//! becomes full does so before the timestep is there.
//!
//! # A checkpoint
//! It is written to `.penstock/new`, synced, and renamed into `checkpoints`. Only then old ones go.
//!
//! # After a crash
//! Whoever writes next finds what is on disk beyond what `zarr.json` says, and removes it; arrays' own
//! metadata that have stayed behind are brought up to it.

mod catalog;
mod checkpoint;
mod gather;
mod timestep;
mod verify;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use serde_json::{Map, Value};

pub use catalog::{Catalog, Checkpoint};
pub use checkpoint::Moment;
pub use gather::gather;
pub use timestep::{of_timestep, remove_timesteps_from};
pub use verify::{Found, verify};

use self::catalog::{Document, all_checkpoints};
use super::pending::{make_directory, node, sync_parent, write_json};
use super::place::resolve;
use super::spread::{Spread, SpreadArray, is_template, of_server};
use super::temporary::{Lock, Temporary, remove_remains_of, try_lock};
use super::{Stored, change, file, zarr};
use crate::schema::ArraySchema;

/// The version of what is stored.
const VERSION: u64 = 1;
/// Names that arrays of a group cannot have.
const RESERVED: [&str; 2] = ["time", "checkpoints"];
/// What stays in the private directory between saves.
const KEPT: [&str; 2] = ["lock", "sums"];

/// What a group is to be, as it is declared.
#[derive(Debug, Clone)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// What the user says about it.
    pub attributes: Map<String, Value>,
    /// Its arrays, as they are to be stored at one moment, in chunks.
    pub arrays: Vec<ArraySchema>,
    /// Which of them leave their chunks to a group that is there already.
    pub are_natural: Vec<bool>,
}

/// A group, opened to write to it.
pub struct Group {
    path: PathBuf,
    /// The path as it was given, where that is one a server.
    template: Option<PathBuf>,
    document: Document,
    /// Arrays that were declared, by name.
    declared: Vec<String>,
    /// Metadata of the arrays of the checkpoint that is being written.
    begun: Map<String, Value>,
    _lock: File,
}

fn private(path: &Path) -> PathBuf {
    path.join(".penstock")
}

fn checkpoints(path: &Path) -> PathBuf {
    path.join("checkpoints")
}

impl Group {
    /// Opens the group at `path`, or makes it there, and mends what a crash has left. Where the path is one a
    /// server, a new group is spread over `servers`.
    ///
    /// # Errors
    /// [`Kind::Schema`] when something else stands there, or a group of other arrays;
    /// [`Kind::Busy`] when another job is writing to it.
    pub fn open(path: &Path, declared: &Declared, servers: usize) -> Result<Self> {
        check_names(declared)?;
        let absolute = std::path::absolute(path);
        let absolute = absolute.map_err(|e| Error::io(&e, "looking for", path))?;
        let path = resolve(&of_server(&absolute, 0))?;
        let template = is_template(&absolute).then_some(absolute);
        if !path.join("zarr.json").exists() {
            let spread = template.as_deref().map(|place| Spread::new(place, servers));
            create(&path, declared, spread.as_ref())?;
        }
        Document::read(&path)?; // what is no group is left alone
        let lock_path = private(&path).join("lock");
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let opened = change::create(&options, &lock_path);
        let lock = opened.map_err(|e| Error::io(&e, "opening", &lock_path))?;
        hold(&lock, &path, "writing")?;
        let mut group = Self {
            // What it said before it was locked may be old.
            document: Document::read(&path)?,
            path,
            template,
            declared: declared.arrays.iter().map(|a| a.name.clone()).collect(),
            begun: Map::new(),
            _lock: lock,
        };
        group.check_arrays(declared)?;
        group.mend()?;
        Ok(group)
    }

    /// How the timesteps are spread over servers, if they are.
    fn spread(&self) -> Result<Option<Spread>> {
        let first = self.document.names().first();
        first.map_or(Ok(None), |name| self.document.spread(self.place(), name))
    }

    /// The path as it was given.
    fn place(&self) -> &Path {
        self.template.as_deref().unwrap_or(&self.path)
    }

    /// Sees that so many servers can add timesteps.
    ///
    /// # Errors
    /// [`Kind::Schema`] when it is on the disks of more.
    pub fn check_servers(&self, servers: usize) -> Result<()> {
        self.spread()?
            .map_or(Ok(()), |spread| spread.check_servers(servers))
    }

    /// A version of an array, to be written beside those that there are.
    fn beside(&self, name: &str, new: Spread) -> Result<SpreadArray> {
        let there = spreads(self.place(), &self.document, name)?;
        Ok(SpreadArray {
            keeps: there.into_iter().map(|spread| spread.version).collect(),
            ..SpreadArray::new(name, new)
        })
    }

    /// Number of timesteps.
    pub fn timesteps(&self) -> u64 {
        self.document.timesteps()
    }

    /// An array at one moment, as it is stored.
    pub fn array(&self, name: &str) -> Result<ArraySchema> {
        self.document.moment(name)
    }

    fn check_arrays(&self, declared: &Declared) -> Result<()> {
        if self.template.is_some() && self.spread()?.is_none() {
            let cause = "the group there is all in one place: give its path without {server}";
            return Err(self.refused(cause));
        }
        let there = self.document.names();
        if there.len() != declared.arrays.len() {
            let names: Vec<&str> = declared.arrays.iter().map(|a| a.name.as_str()).collect();
            let cause = format!("the group there is of {there:?}, this one of {names:?}");
            return Err(self.refused(&cause));
        }
        for (array, &is_natural) in declared.arrays.iter().zip(&declared.are_natural) {
            let Ok(stored) = self.array(&array.name) else {
                let cause = format!("the group there has no array {:?}", array.name);
                return Err(self.refused(&cause));
            };
            let is_same = (&stored.shape, stored.element) == (&array.shape, array.element)
                && (is_natural || self.document.is_stored_as(array)?);
            if !is_same {
                let cause = format!(
                    "{:?} there is {} of shape {:?}, stored as {:?}, and the call says {} of {:?}, {:?}",
                    array.name,
                    stored.element,
                    stored.shape,
                    stored.disk,
                    array.element,
                    array.shape,
                    array.disk
                );
                return Err(self.refused(&cause));
            }
        }
        Ok(())
    }

    fn refused(&self, cause: &str) -> Error {
        Error::new(Kind::Schema, "writing to a group", cause).at(&self.path)
    }

    /// Brings what is on disk to what `zarr.json` says.
    fn mend(&mut self) -> Result<()> {
        self.remove_leftovers()?;
        if self.timesteps() == 0 {
            // A crash between the renaming of a new group and the removal of what it was made in leaves that,
            // and no other write ever looks there.
            remove_remains_of(&self.path);
        }
        self.write_own_metadata()?;
        self.remove_timesteps_beyond()
    }

    /// Removes what saves that did not come to their end have left in the private directory.
    fn remove_leftovers(&self) -> Result<()> {
        remove_but(&KEPT, &private(&self.path))
    }
}

/// Removes all that is in a directory, but for entries of these names.
fn remove_but(kept: &[&str], directory: &Path) -> Result<()> {
    let looking = |e: std::io::Error| Error::io(&e, "looking into", directory);
    for entry in std::fs::read_dir(directory).map_err(looking)? {
        let entry = entry.map_err(looking)?;
        if !kept.iter().any(|kept| entry.file_name() == *kept) {
            remove_if_there(&entry.path())?;
        }
    }
    Ok(())
}

/// How the timesteps of an array are spread, and each checkpoint of it; nothing where all is in one place.
fn spreads(place: &Path, document: &Document, name: &str) -> Result<Vec<Spread>> {
    let mut all: Vec<Spread> = document.spread(place, name)?.into_iter().collect();
    for checkpoint in all_checkpoints(place)? {
        let stored = Stored::open(&checkpoint.path, Some(name))?;
        all.extend(stored.target().spread().map(|of| of.spread.clone()));
    }
    Ok(all)
}

/// What stands at a path.
#[derive(Debug)]
pub enum Seen {
    /// A group with timesteps and checkpoints.
    Group(Catalog),
    /// The arrays of another group, or one by itself.
    Arrays(Vec<ArraySchema>),
}

/// What stands at `path`.
///
/// # Errors
/// When nothing is there, or it cannot be understood.
pub fn look(path: &Path) -> Result<Seen> {
    match Catalog::read(path) {
        Ok(catalog) => return Ok(Seen::Group(catalog)),
        Err(error) if matches!(error.kind, Kind::Schema | Kind::Missing) => {}
        Err(error) => return Err(error),
    }
    let all = Stored::all(path)?;
    Ok(Seen::Arrays(all))
}

/// The metadata of an array of the group at `path`, if that is one of Penstock's.
///
/// # Errors
/// When it is one and cannot be understood.
pub(super) fn saved_array(path: &Path, name: &str) -> Result<Option<Value>> {
    match Document::read(path) {
        Ok(document) => Ok(Some(document.array(name).clone()).filter(|json| !json.is_null())),
        Err(error) if matches!(error.kind, Kind::Schema | Kind::Missing) => Ok(None),
        Err(error) => Err(error),
    }
}

fn check_names(declared: &Declared) -> Result<()> {
    let wrong = |cause: String| Err(Error::new(Kind::Schema, "describing a group", cause));
    if declared.arrays.is_empty() {
        return wrong("it has no array".to_string());
    }
    let mut seen = BTreeSet::new();
    for array in &declared.arrays {
        let name = array.name.as_str();
        if RESERVED.contains(&name) || name.starts_with('.') {
            return wrong(format!(
                "an array of a group cannot be named {name:?}: the name is taken, or hidden"
            ));
        }
        if !seen.insert(name) {
            return wrong(format!("two arrays are named {name:?}"));
        }
    }
    Ok(())
}

/// Whoever writes to a group holds its lock, and whoever must not be disturbed by that.
///
/// # Errors
/// [`Kind::Busy`].
fn hold(lock: &File, group: &Path, doing: &str) -> Result<()> {
    if matches!(try_lock(lock), Lock::Held) {
        let cause = "another job is writing to the group";
        return Err(Error::new(Kind::Busy, doing, cause).at(group));
    }
    Ok(())
}

/// Makes an empty group.
fn create(path: &Path, declared: &Declared, spread: Option<&Spread>) -> Result<()> {
    let document = Document::new(declared, spread)?;
    make_whole(path, |data| {
        for directory in [
            data.to_path_buf(),
            private(data),
            private(data).join("sums"),
            checkpoints(data),
        ] {
            make_directory(&directory)?;
        }
        write_json(&checkpoints(data).join("zarr.json"), &zarr::group_json())?;
        write_json(&data.join("zarr.json"), document.json())?;
        let mut made = document.write_arrays(data)?;
        made.extend([node(data), node(&checkpoints(data))].concat());
        made.push(private(data));
        file::sync_paths(&made)
    })
}

/// Makes a group, all of it or nothing, where at most an empty directory is. `make` makes, and syncs, what is to be
/// at `path`, elsewhere.
fn make_whole(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if let Ok(mut entries) = std::fs::read_dir(path)
        && entries.next().is_some()
    {
        let cause = "it is a directory, but not a group";
        return Err(Error::new(Kind::Schema, "writing", cause).at(path));
    }
    let mut temporary = Temporary::create(path, None, path)?;
    let data = temporary.data();
    make(&data)?;
    change::rename(&data, path).map_err(|e| Error::io(&e, "renaming into place", path))?;
    sync_parent(path)?;
    // The group is in its place: what stays is removed by the next write.
    let _ = temporary.remove();
    Ok(())
}

/// Removes a file or a directory with all that is in it.
fn remove_if_there(path: &Path) -> Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(found) if found.is_dir() => change::remove_dir_all(path),
        Ok(_) => change::remove_file(path),
    };
    removed.map_err(|e| Error::io(&e, "removing", path))
}
