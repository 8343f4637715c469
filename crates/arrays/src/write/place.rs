//! The place of an array, to which it comes by one rename, after all of it has been synced.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use penstock_engine::{Error, Kind, Result};
use serde_json::{Map, Value};

use super::checks::{check_file, check_group, check_node, check_parts};
use super::dataset::FilePlace;
use super::part::ChangedDataset;
use crate::formats::sidecar::{self, Sidecar};
use crate::formats::zarr::{self, Node, consolidated};
use crate::fs::files::{self, Lock, try_lock};
use crate::fs::ops;
use crate::fs::temporary::Temporary;

/// The wait for others who change the metadata of a group: they lock it for milliseconds.
const LOCK_TRIES: u32 = 1000;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The sidecar of a raw file, in the temporary.
pub(super) const SIDECAR: &str = "sidecar";

/// The place of an array.
pub(super) enum Place {
    /// An array of a Zarr group, which is made if it is missing.
    InGroup { group: PathBuf, name: String },
    /// A directory: a Zarr node with all of its nodes, or a changed array, which takes all
    /// untouched files from its base.
    Directory {
        path: PathBuf,
        base: Option<PathBuf>,
    },
    /// A row-major file. A raw file has a sidecar; a `.npy` file removes a former sidecar.
    File { path: PathBuf, is_raw: bool },
    /// A row-major file that was changed: its sidecar stays.
    ChangedFile { path: PathBuf },
    /// Datasets of an HDF5 file.
    InFile(Box<FilePlace>),
    /// A dataset that is there, in an HDF5 file, and that is written in part.
    PartInFile(Box<ChangedDataset>),
    /// A directory of parts of the array `name`, with the path and bytes of each file: files that
    /// no server has made are made at the end.
    Parts {
        path: PathBuf,
        name: String,
        files: Vec<(PathBuf, u64)>,
    },
}

impl Place {
    /// The path that is replaced.
    pub(super) fn target(&self) -> PathBuf {
        match self {
            Self::InGroup { group, name } => group.join(name),
            Self::InFile(place) => place.path().to_path_buf(),
            Self::PartInFile(place) => place.path().clone(),
            Self::Directory { path, .. }
            | Self::File { path, .. }
            | Self::ChangedFile { path }
            | Self::Parts { path, .. } => path.clone(),
        }
    }

    /// The path beside which the temporary is, and the array's name if that path is a group.
    pub(super) fn beside(&self) -> (PathBuf, Option<&str>) {
        match self {
            Self::InGroup { group, name } => (group.clone(), Some(name)),
            _ => (self.target(), None),
        }
    }

    /// Makes a temporary for this place.
    ///
    /// # Errors
    /// As [`Temporary::create`].
    pub(super) fn temporary(&self) -> Result<Temporary> {
        let (path, name) = self.beside();
        Temporary::create(&path, name, &self.target())
    }

    /// Makes the files that no server has made. Gives the paths that are yet to be synced.
    pub(super) fn make_rest(&self, temporary: &Temporary) -> Result<Vec<PathBuf>> {
        let data = temporary.data();
        match self {
            Self::Parts { files, .. } => {
                let files = files.iter().map(|(name, bytes)| (data.join(name), *bytes));
                files::make_missing(files)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Puts the temporary's data in this place; for good, if all is synced. Datasets in files of
    /// HDF5 are put there for good in any case: a file would be torn otherwise.
    ///
    /// # Errors
    /// The error of the operating system, or of another file that has appeared at the path.
    pub(super) fn install(&self, temporary: &Temporary, sync: Syncing) -> Result<()> {
        let data = temporary.data();
        match self {
            Self::InGroup { group, name } => install_in_group(temporary, (group, name), sync),
            Self::Directory { path, base } => {
                match base {
                    Some(base) => files::link_tree(base, &data)?,
                    None => check_node(path)?,
                }
                let new = Node::read(&data)?.map(|node| node.json().clone());
                let install = || temporary.install(&data, path);
                replacing_in_groups(path, new, (temporary, sync), install)
            }
            Self::File { path, is_raw } => install_file(temporary, (path, *is_raw), sync),
            Self::InFile(place) => place.install(temporary),
            Self::PartInFile(place) => place.install(temporary),
            Self::ChangedFile { path } => sync.put_in_place(&data, path),
            Self::Parts { path, name, .. } => {
                check_parts(path, name)?;
                temporary.install(&data, path)?;
                sync.parent(path)
            }
        }
    }
}

/// Whether what comes to its place is forced to stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syncing {
    /// Before the next step.
    Each,
    /// Whenever the kernel does it.
    Never,
}

impl Syncing {
    /// The way of a write that is synced, or is not.
    pub(super) fn of(is_synced: bool) -> Self {
        if is_synced { Self::Each } else { Self::Never }
    }

    fn paths(self, paths: &[PathBuf]) -> Result<()> {
        match self {
            Self::Each => files::sync_paths(paths),
            Self::Never => Ok(()),
        }
    }

    fn parent(self, path: &Path) -> Result<()> {
        match self {
            Self::Each => files::sync_parent(path),
            Self::Never => Ok(()),
        }
    }

    fn put_in_place(self, from: &Path, to: &Path) -> Result<()> {
        files::rename(from, to)?;
        self.parent(to)
    }
}

/// Puts an array into a group, which is made if it is missing.
fn install_in_group(
    temporary: &Temporary,
    (group, name): (&Path, &str),
    sync: Syncing,
) -> Result<()> {
    let (data, target) = (temporary.data(), group.join(name));
    let json = Node::read(&data)?.map(|node| node.json().clone());
    let into_group = |json| {
        let install = || temporary.install(&data, &target);
        replacing_in_groups(&target, json, (temporary, sync), install)
    };
    if check_group(group, name)? {
        return into_group(json);
    }
    let new = temporary.beside("group");
    let nodes = json.clone().map(|json| (name.to_string(), json));
    let whole = consolidated::with(zarr::group_json(), nodes.into_iter().collect());
    files::make_directory(&new)?;
    files::write_json(&new.join("zarr.json"), &whole)?;
    files::rename(&data, &new.join(name))?;
    sync.paths(&[new.join("zarr.json"), new.clone()])?;
    // The rename replaces an empty directory, and no other. The groups above see a new group.
    let install = || files::rename(&new, group);
    match replacing_in_groups(group, Some(whole), (temporary, sync), install) {
        // Another writer has made the group meanwhile: the array goes into that one.
        Err(_) if new.exists() && check_group(group, name)? => {
            files::rename(&new.join(name), &data)?;
            into_group(json)
        }
        installed => installed,
    }
}

/// Puts a node at `path` by `install`, and keeps the consolidated metadata of the groups above
/// true: stale metadata are removed before, and new ones are written after.
fn replacing_in_groups(
    path: &Path,
    new: Option<Value>,
    (temporary, sync): (&Temporary, Syncing),
    install: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let Some(new) = new else {
        install()?; // no Zarr
        return sync.parent(path);
    };
    let groups = groups_above(path)?;
    let Some((parent, _)) = groups.first() else {
        install()?;
        return sync.parent(path);
    };
    // Other writers to the group come before or after.
    let _lock = lock_group(parent)?;
    let entry = consolidated::entry(&new);
    let mut stale = Vec::new();
    for (group, key) in &groups {
        let Some(node) = Node::read(group)? else {
            continue;
        };
        let Some(known) = consolidated::of(node.json()) else {
            continue;
        };
        if known.get(key) != Some(&entry) || has_below(known, key) {
            // Stale metadata are removed before the node comes, not after: a group without
            // consolidated metadata is always right, and a group with another node's is not.
            let is_new = !known.contains_key(key);
            if !is_new {
                let bare = consolidated::without(node.json().clone());
                write_group(group, &bare, temporary)?;
            }
            stale.push((group, key, known.clone()));
        }
    }
    install()?;
    sync.parent(path)?;
    for (group, key, mut known) in stale {
        let below = format!("{key}/");
        known.retain(|path, _| !path.starts_with(&below));
        known.insert(key.clone(), entry.clone());
        let mut nodes = Map::new();
        consolidated::scan(path, &below, &|_| false, &mut nodes)?;
        known.extend(nodes);
        known.extend(unknown(group, &known)?);
        let Some(node) = Node::read(group)? else {
            continue;
        };
        let whole = consolidated::with(node.json().clone(), known);
        write_group(group, &whole, temporary)?;
    }
    Ok(())
}

fn has_below(known: &Map<String, Value>, key: &str) -> bool {
    let below = format!("{key}/");
    known.keys().any(|path| path.starts_with(&below))
}

/// The nodes of a group that others have added, and that its consolidated metadata lack.
fn unknown(group: &Path, known: &Map<String, Value>) -> Result<Map<String, Value>> {
    let mut nodes = Map::new();
    consolidated::scan(group, "", &|path| known.contains_key(path), &mut nodes)?;
    Ok(nodes)
}

/// The groups above a node, the nearest first, and the node's path in each.
pub(super) fn groups_above(path: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut groups = Vec::new();
    for group in path.ancestors().skip(1) {
        match Node::read(group)? {
            Some(node) if !node.is_second() && node.kind() == zarr::Kind::Group => {
                let key = path.strip_prefix(group).unwrap_or(path);
                groups.push((group.to_path_buf(), key.to_string_lossy().into_owned()));
            }
            _ => break,
        }
    }
    Ok(groups)
}

/// Replaces the metadata of a group; for good, whatever the write does: other arrays need them.
fn write_group(group: &Path, json: &Value, temporary: &Temporary) -> Result<()> {
    let new = temporary.beside("group.json");
    files::put_json(&new, json, &group.join("zarr.json"))
}

/// Locks the metadata of a group against other Penstock processes, for as long as the file is open.
///
/// # Errors
/// [`Kind::Busy`] when another process holds the lock for long.
pub(crate) fn lock_group(group: &Path) -> Result<File> {
    let directory = File::open(group).map_err(|e| Error::io(&e, "opening", group))?;
    for _ in 0..LOCK_TRIES {
        match try_lock(&directory) {
            Lock::Held => std::thread::sleep(LOCK_PAUSE),
            Lock::Taken | Lock::Unsupported => return Ok(directory),
        }
    }
    let cause = "another process keeps the group's metadata to itself";
    Err(Error::new(Kind::Busy, "writing", cause).at(group))
}

fn install_file(temporary: &Temporary, (path, is_raw): (&Path, bool), sync: Syncing) -> Result<()> {
    check_file(path, is_raw)?;
    let sidecar = sidecar::beside(path);
    let there = Sidecar::read(&sidecar).unwrap_or(None);
    let has_sidecar = there.is_some();
    let new = match is_raw {
        true => Sidecar::read(&temporary.beside(SIDECAR))?,
        false => has_sidecar.then(Sidecar::of_another),
    };
    // The sidecar comes before the file: after a crash, a file that came first would have no
    // sidecar, or the sidecar of the old file.
    if let Some(new) = new {
        let before = match path.exists() {
            // Until the last rename the sidecar has both schemas.
            true => {
                let former = there.map_or_else(Sidecar::of_another, |s| s.of_file(path));
                new.replacing(former, path)?
            }
            false => new,
        };
        let both = temporary.beside("both");
        files::write(&both, &before.text()?)?;
        sync.paths(std::slice::from_ref(&both))?;
        sync.put_in_place(&both, &sidecar)?;
    }
    files::rename(&temporary.data(), path)?;
    if is_raw {
        files::rename(&temporary.beside(SIDECAR), &sidecar)?;
    } else if has_sidecar {
        ops::remove_file(&sidecar)
            .map_err(|e| Error::io(&e, "removing the old schema", &sidecar))?;
    }
    sync.parent(path)
}
