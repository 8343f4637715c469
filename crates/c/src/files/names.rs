//! Names, attributes and space of a volume.

use std::ffi::{c_char, c_int};

use penstock_engine::{Error, Kind, Result};
use penstock_files::job::FileSystem;
use penstock_files::rebalance::{Rebalanced, rebalance};
use penstock_files::{FileChange, FilePath, ObjectKind};
use penstock_layout::exact;

use super::Fs;
use super::volume::servers_of;
use crate::border::{Many, Place, Text, enter, needed, wrong};

/// `penstock_stat`.
#[repr(C)]
#[derive(Default)]
pub struct Stat {
    pub kind: c_int,
    pub owner: u32,
    pub group: u32,
    pub mode: u32,
    pub created: u64,
    pub accessed: u64,
    pub changed: u64,
    pub modified: u64,
    pub bytes: u64,
    pub cells: u64,
    pub bsu_bytes: u64,
    pub base: u64,
    pub checkpoints: u64,
}

/// `penstock_usage`.
#[repr(C)]
pub struct Usage {
    pub bytes: u64,
    pub used: u64,
    pub of_user: u64,
    pub quota: i64,
}

/// Does something with a volume.
fn with(fs: Option<&Fs>, act: impl FnOnce(&FileSystem) -> Result<()>) -> c_int {
    enter(|| act(needed(fs, "the file system")?.volume()?.fs()?))
}

/// Does something with the object at a path of a volume.
fn at(
    fs: Option<&Fs>,
    path: Text<'_>,
    act: impl FnOnce(&FileSystem, FilePath) -> Result<()>,
) -> c_int {
    with(fs, |fs| act(fs, path_of(path)?))
}

/// The path of an object.
pub(super) fn path_of(path: Text<'_>) -> Result<FilePath> {
    FilePath::new(path.needed("path")?)
}

/// The permission bits.
pub(super) fn mode_of(mode: u32) -> Result<u16> {
    match mode {
        0..=0o7777 => Ok(exact(mode)),
        _ => Err(wrong(format!("{mode:#o} are no permission bits"))),
    }
}

/// The number of a server; nothing for -1.
pub(super) fn base_of(base: i64) -> Result<Option<usize>> {
    match base {
        -1 => Ok(None),
        _ => {
            let server = usize::try_from(base);
            server
                .map(Some)
                .map_err(|_| wrong(format!("{base} is no server")))
        }
    }
}

/// The number of a user or group; nothing for -1.
fn who_of(number: i64) -> Result<Option<u32>> {
    match number {
        -1 => Ok(None),
        _ => {
            let who = u32::try_from(number);
            who.map(Some)
                .map_err(|_| wrong(format!("{number} is no user or group")))
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_create(
    fs: Option<&Fs>,
    path: Text<'_>,
    cells: u64,
    bsu_bytes: u64,
    base: i64,
    mode: u32,
) -> c_int {
    at(fs, path, |fs, path| {
        let shape = (cells, bsu_bytes, base_of(base)?);
        fs.create(path, shape, mode_of(mode)?).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_mkdir(fs: Option<&Fs>, path: Text<'_>, mode: u32) -> c_int {
    at(fs, path, |fs, path| {
        fs.make_directory(path, mode_of(mode)?).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_symlink(fs: Option<&Fs>, target: Text<'_>, path: Text<'_>) -> c_int {
    at(fs, path, |fs, path| {
        let target = target.needed("target")?.to_string();
        fs.make_symlink(path, target).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_readlink(
    fs: Option<&Fs>,
    path: Text<'_>,
    mut target: Place<'_, *mut c_char>,
) -> c_int {
    at(fs, path, |fs, path| {
        target.check("the target")?;
        match fs.details(path.clone())?.object.kind {
            ObjectKind::Symlink(found) => target.put_text(&found),
            ObjectKind::File(_) | ObjectKind::Xref => {
                let cause = format!("{path} is no symbolic link");
                Err(Error::new(Kind::Schema, "reading a symbolic link", cause))
            }
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_remove(fs: Option<&Fs>, path: Text<'_>) -> c_int {
    at(fs, path, FileSystem::remove)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_rename(fs: Option<&Fs>, from: Text<'_>, to: Text<'_>) -> c_int {
    at(fs, from, |fs, from| fs.rename(from, path_of(to)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_resize(fs: Option<&Fs>, path: Text<'_>, bytes: u64) -> c_int {
    at(fs, path, |fs, path| {
        fs.change(path, FileChange::Truncate(bytes))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_resize_cells(fs: Option<&Fs>, path: Text<'_>, bytes: u64) -> c_int {
    at(fs, path, |fs, path| {
        fs.change(path, FileChange::Resize(bytes))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_chmod(fs: Option<&Fs>, path: Text<'_>, mode: u32) -> c_int {
    at(fs, path, |fs, path| {
        fs.protect(path, (Some(mode_of(mode)?), None, None))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_chown(
    fs: Option<&Fs>,
    path: Text<'_>,
    user: i64,
    group: i64,
) -> c_int {
    at(fs, path, |fs, path| {
        fs.protect(path, (None, who_of(user)?, who_of(group)?))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_sync(fs: Option<&Fs>) -> c_int {
    with(fs, FileSystem::sync)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_stat(
    fs: Option<&Fs>,
    path: Text<'_>,
    mut stat: Place<'_, Stat>,
) -> c_int {
    at(fs, path, |fs, path| {
        stat.check("the attributes")?;
        let details = fs.details(path)?;
        let object = &details.object;
        let (kind, shape) = match &object.kind {
            ObjectKind::File(shape) => (0, (shape.cells, shape.bsu_bytes, shape.base as u64)),
            ObjectKind::Xref => (1, (0, 0, 0)),
            ObjectKind::Symlink(_) => (2, (0, 0, 0)),
        };
        let (cells, bsu_bytes, base) = shape;
        stat.put(Stat {
            kind,
            owner: object.owner,
            group: object.group,
            mode: object.mode.into(),
            created: object.created,
            accessed: object.accessed,
            changed: details.changed(),
            modified: details.modified(),
            bytes: details.size(),
            cells,
            bsu_bytes,
            base,
            checkpoints: object.checkpoints,
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_cell_bytes(
    fs: Option<&Fs>,
    path: Text<'_>,
    cells: u64,
    mut bytes: Place<'_, u64>,
) -> c_int {
    at(fs, path, |fs, path| {
        let count = usize::try_from(cells);
        let count = count.map_err(|_| wrong(format!("{cells} cells are too many")))?;
        if count > 0 {
            bytes.check("the bytes of cells")?;
        }
        let (_, ends) = fs.stat(path)?;
        for cell in 0..count {
            let end = ends.get(&(cell as u64));
            bytes.put_nth(cell, end.copied().unwrap_or(0));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_list(
    fs: Option<&Fs>,
    path: Text<'_>,
    mut count: Place<'_, usize>,
    mut names: Place<'_, *mut c_char>,
) -> c_int {
    at(fs, path, |fs, path| {
        count.check("the number of names")?;
        names.check("the names")?;
        let entries = fs.list(path)?;
        let mut all = Vec::new();
        for (name, entry) in &entries {
            all.extend_from_slice(name.as_bytes());
            all.extend_from_slice(if entry.is_xref() { b"/\0" } else { b"\0" });
        }
        names.put_bytes(&all)?;
        count.put(entries.len());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_status(
    fs: Option<&Fs>,
    path: Text<'_>,
    mut json: Place<'_, *mut c_char>,
) -> c_int {
    at(fs, path, |fs, path| {
        json.check("the status")?;
        let all = fs.status(path)?.into_iter().map(|one| {
            serde_json::json!({
                "program": one.program,
                "reads": one.reads,
                "writes": one.writes,
                "reckless": one.is_reckless,
            })
        });
        json.put_text(&serde_json::Value::Array(all.collect()).to_string())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_usage(
    fs: Option<&Fs>,
    user: i64,
    mut usage: Place<'_, Usage>,
) -> c_int {
    with(fs, |fs| {
        usage.check("the space")?;
        let space = fs.space(who_of(user)?.unwrap_or(fs.identity().user))?;
        let limit = space.limit_bytes.map(i64::try_from);
        usage.put(Usage {
            bytes: space.bytes,
            used: space.used_bytes,
            of_user: space.of_user_bytes,
            quota: limit.map_or(-1, |limit| limit.unwrap_or(i64::MAX)),
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_quota(fs: Option<&Fs>, user: u32, bytes: i64) -> c_int {
    with(fs, |fs| {
        let limit = match bytes {
            -1 => None,
            _ => {
                let limit = u64::try_from(bytes);
                Some(limit.map_err(|_| wrong(format!("a quota of {bytes} bytes")))?)
            }
        };
        fs.limit(user, limit)
    })
}

/// What a rebalancing has come to, in words.
fn said_of(done: &Rebalanced) -> String {
    let (slots, files) = (done.progress.slots, done.progress.files);
    let mut said = format!("{slots} slots of names and {files} files have moved\n");
    for (path, error) in &done.failures {
        said.push_str(&format!("{path} could not be moved: {error}\n"));
    }
    said
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_fs_rebalance(
    fs: Option<&Fs>,
    count: usize,
    servers: Many<'_, u64>,
    mut text: Place<'_, *mut c_char>,
) -> c_int {
    with(fs, |fs| {
        let named = servers.needed(count, "servers")?;
        let servers: Result<Vec<usize>> = match named {
            [] => Ok((0..fs.servers()).collect()),
            named => named.iter().map(|&server| servers_of(server)).collect(),
        };
        let done = rebalance(fs, &servers?, &mut |_| Ok(()))?;
        text.put_text(&said_of(&done))
    })
}
