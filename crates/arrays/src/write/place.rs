//! Where an array goes, and how it comes there: by one rename, after all of it has been synced.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use penstock_engine::{Error, Kind, Result};
use serde_json::{Map, Value};

use super::checks::{check_file, check_group, check_node, check_parts};
use crate::formats::sidecar::{self, Sidecar};
use crate::formats::zarr::{self, Node, consolidated};
use crate::fs::files::{self, Lock, put_in_place, sync_parent, try_lock};
use crate::fs::ops;
use crate::fs::temporary::Temporary;

/// How long to wait for others who change the metadata of a group: they hold them for milliseconds.
const LOCK_TRIES: u32 = 1000;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The sidecar of a raw file, in the temporary.
pub(super) const SIDECAR: &str = "sidecar";

/// Where an array goes.
pub(super) enum Place {
    /// An array of a Zarr group, which is made if it is not there.
    InGroup { group: PathBuf, name: String },
    /// A directory: a Zarr node with all that is in it, or an array that was changed, which gets
    /// what it lacks from its base.
    Directory {
        path: PathBuf,
        base: Option<PathBuf>,
    },
    /// A row-major file; a raw one has a sidecar, and one that is not true goes.
    File { path: PathBuf, is_raw: bool },
    /// A row-major file that was changed: its sidecar stays.
    ChangedFile { path: PathBuf },
    /// A directory of parts of the array `name`, with all of these files of so many bytes: those
    /// that no server has made are made at the end.
    Parts {
        path: PathBuf,
        name: String,
        files: Vec<(PathBuf, u64)>,
    },
}

impl Place {
    /// What is replaced.
    pub(super) fn target(&self) -> PathBuf {
        match self {
            Self::InGroup { group, name } => group.join(name),
            Self::Directory { path, .. }
            | Self::File { path, .. }
            | Self::ChangedFile { path }
            | Self::Parts { path, .. } => path.clone(),
        }
    }

    /// The path beside which the temporary is, and the array's name if that is a group.
    pub(super) fn beside(&self) -> (PathBuf, Option<&str>) {
        match self {
            Self::InGroup { group, name } => (group.clone(), Some(name)),
            _ => (self.target(), None),
        }
    }

    /// A temporary for what goes there.
    ///
    /// # Errors
    /// As [`Temporary::create`].
    pub(super) fn temporary(&self) -> Result<Temporary> {
        let (path, name) = self.beside();
        Temporary::create(&path, name, &self.target())
    }

    /// Makes what is to be there and no server has made. Gives what is yet to be synced.
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

    /// Brings it there.
    ///
    /// # Errors
    /// What the operating system says, or when something else has come to stand there.
    pub(super) fn install(&self, temporary: &Temporary) -> Result<()> {
        let data = temporary.data();
        match self {
            Self::InGroup { group, name } => install_in_group(temporary, group, name),
            Self::Directory { path, base } => {
                match base {
                    Some(base) => files::link_tree(base, &data)?,
                    None => check_node(path)?,
                }
                let new = Node::read(&data)?.map(|node| node.json().clone());
                replacing_in_groups(path, new, temporary, || temporary.install(&data, path))
            }
            Self::File { path, is_raw } => install_file(temporary, path, *is_raw),
            Self::ChangedFile { path } => put_in_place(&data, path),
            Self::Parts { path, name, .. } => {
                check_parts(path, name)?;
                temporary.install(&data, path)?;
                sync_parent(path)
            }
        }
    }
}

/// Puts an array into a group, which is made if it is not there.
fn install_in_group(temporary: &Temporary, group: &Path, name: &str) -> Result<()> {
    let (data, target) = (temporary.data(), group.join(name));
    let json = Node::read(&data)?.map(|node| node.json().clone());
    if check_group(group, name)? {
        return replacing_in_groups(&target, json, temporary, || {
            temporary.install(&data, &target)
        });
    }
    let new = temporary.beside("group");
    let nodes = json.map(|json| (name.to_string(), json));
    let whole = consolidated::with(zarr::group_json(), nodes.into_iter().collect());
    files::make_directory(&new)?;
    files::write_json(&new.join("zarr.json"), &whole)?;
    files::rename(&data, &new.join(name))?;
    files::sync_paths(&[new.join("zarr.json"), new.clone()])?;
    // Over an empty directory, if there is one; whatever is not empty stays. In groups above it is
    // new.
    replacing_in_groups(group, Some(whole), temporary, || files::rename(&new, group))
}

/// Lets `install` bring a node to `path`, and keeps the consolidated metadata of groups above true:
/// those that will not be go before, and come back after.
fn replacing_in_groups(
    path: &Path,
    new: Option<Value>,
    temporary: &Temporary,
    install: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let Some(new) = new else {
        install()?; // no Zarr
        return sync_parent(path);
    };
    let groups = groups_above(path)?;
    let Some((parent, _)) = groups.first() else {
        install()?;
        return sync_parent(path);
    };
    // Who else writes to the group does so before or after.
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
            // Before the node, not after: a group without them is always right, and one with those
            // of another is not.
            let is_new = !known.contains_key(key);
            if !is_new {
                let bare = consolidated::without(node.json().clone());
                write_group(group, &bare, temporary)?;
            }
            stale.push((group, key, known.clone()));
        }
    }
    install()?;
    sync_parent(path)?;
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

/// The nodes of a group that others have added without telling its consolidated metadata.
fn unknown(group: &Path, known: &Map<String, Value>) -> Result<Map<String, Value>> {
    let mut nodes = Map::new();
    consolidated::scan(group, "", &|path| known.contains_key(path), &mut nodes)?;
    Ok(nodes)
}

/// The groups in which a node is, the nearest first, and its path in each.
fn groups_above(path: &Path) -> Result<Vec<(PathBuf, String)>> {
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

/// Replaces the metadata of a group.
fn write_group(group: &Path, json: &Value, temporary: &Temporary) -> Result<()> {
    let new = temporary.beside("group.json");
    files::remove_if_there(&new)?;
    files::write_json(&new, json)?;
    files::sync_path(&new)?;
    put_in_place(&new, &group.join("zarr.json"))
}

/// Keeps others of Penstock's from changing the metadata of a group, for as long as it is held.
///
/// # Errors
/// [`Kind::Busy`] when another process holds it for long.
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

fn install_file(temporary: &Temporary, path: &Path, is_raw: bool) -> Result<()> {
    check_file(path, is_raw)?;
    let sidecar = sidecar::beside(path);
    let there = Sidecar::read(&sidecar).unwrap_or(None);
    let has_sidecar = there.is_some();
    let new = match is_raw {
        true => Sidecar::read(&temporary.beside(SIDECAR))?,
        false => has_sidecar.then(Sidecar::of_another),
    };
    // Before the file, not after: a file that came first would, after a crash, be one of which
    // nobody knows what it holds, or be taken for what the old one held.
    if let Some(new) = new {
        let before = match path.exists() {
            // Until the last rename both schemas are there.
            true => {
                let former = there.map_or_else(Sidecar::of_another, |s| s.of_file(path));
                new.replacing(former, path)?
            }
            false => new,
        };
        let both = temporary.beside("both");
        files::write_synced(&both, &before.text()?)?;
        put_in_place(&both, &sidecar)?;
    }
    files::rename(&temporary.data(), path)?;
    if is_raw {
        files::rename(&temporary.beside(SIDECAR), &sidecar)?;
    } else if has_sidecar {
        ops::remove_file(&sidecar)
            .map_err(|e| Error::io(&e, "removing the old schema", &sidecar))?;
    }
    sync_parent(path)
}
