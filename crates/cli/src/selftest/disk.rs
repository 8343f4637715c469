//! Checks of the file system: what Penstock needs of one, and direct I/O.

use std::fs::{File, TryLockError};

use penstock_arrays::DirectIo;
use penstock_arrays::calls::settings::SessionOptions;
use penstock_engine::Kind;
use penstock_machines::disk::direct::Direct;

use super::outcome::Outcome;
use super::site::{Site, failed};
use super::space::{free_bytes, sized};
use super::{arrays, mounts};
use crate::failure::Failure;

/// Tries what Penstock asks of a file system. Renames and syncs must work; the rest may be missing.
pub(super) fn file_system(site: &Site) -> Result<Outcome, Failure> {
    let directory = site.directory();
    let kind = mounts::of(directory).map(|mount| mount.kind);
    let kind = kind.unwrap_or_else(|| "of an unknown kind".to_string());
    let space = match free_bytes(site, directory) {
        Some(bytes) => format!("{kind}, {} free", sized(bytes)),
        None => kind,
    };
    site.note("renaming a file over another");
    rename(site)?;
    site.note("syncing a directory");
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| failed("syncing the directory", directory, &error))?;
    site.note("making a hard link");
    let has_links = links(site)?;
    site.note("locking a file");
    let has_locks = locks(site)?;
    let works = format!("{space}; renames replace, directories are synced");
    let copied = "no hard links, so that `penstock gather` copies";
    let unnoticed = "no locks (flock), so that nobody notices a second writer of the same array, \
                     and volumes may be refused: have it mounted with them";
    Ok(match (has_links, has_locks) {
        (true, true) => Outcome::Works(format!("{works}, there are hard links and locks")),
        (false, true) => Outcome::Works(format!("{works}, there are locks; {copied}")),
        (true, false) => Outcome::Lacks(format!("{works}, there are hard links; {unnoticed}")),
        (false, false) => Outcome::Lacks(format!("{works}; {copied}; {unnoticed}")),
    })
}

/// Whether a file that takes another's name replaces it.
fn rename(site: &Site) -> Result<(), Failure> {
    let (old, new) = (site.path("old"), site.path("new"));
    for (path, word) in [(&old, "old"), (&new, "new")] {
        std::fs::write(path, word).map_err(|error| failed("writing", path, &error))?;
    }
    std::fs::rename(&new, &old).map_err(|error| failed("renaming", &new, &error))?;
    let found = std::fs::read(&old).map_err(|error| failed("reading", &old, &error))?;
    match found == b"new" && !new.exists() {
        true => Ok(()),
        false => Err(Failure::failed(
            "a file was renamed over another, and has not replaced it",
        )),
    }
}

/// Whether a file can have two names.
fn links(site: &Site) -> Result<bool, Failure> {
    let (one, other) = (site.path("one"), site.path("other"));
    std::fs::write(&one, "one").map_err(|error| failed("writing", &one, &error))?;
    Ok(std::fs::hard_link(&one, &other).is_ok())
}

/// Whether a file that is locked cannot be locked again.
fn locks(site: &Site) -> Result<bool, Failure> {
    let path = site.path("lock");
    let open = || File::create(&path).map_err(|error| failed("making", &path, &error));
    let (holder, other) = (open()?, open()?);
    if holder.try_lock().is_err() {
        return Ok(false);
    }
    Ok(matches!(other.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Writes an array around the page cache, and reads it so.
pub(super) fn direct(site: &Site) -> Result<Outcome, Failure> {
    let path = site.path("direct");
    let file = File::create(&path).map_err(|error| failed("making", &path, &error))?;
    site.note("opening a file around the page cache");
    let page_bytes = match Direct::open(&file, &path) {
        Ok(direct) => direct.page_bytes,
        Err(error) if error.kind == Kind::Unsupported => return Ok(Outcome::Lacks(no_direct())),
        Err(error) => return Err(error.into()),
    };
    let options = SessionOptions {
        direct: DirectIo::Always,
        ..SessionOptions::default()
    };
    let bytes = match arrays::write_and_compare(site, "direct.npy", arrays::npy(), &options) {
        Ok(bytes) => bytes,
        // Some file systems open a file so, and refuse to move anything.
        Err(error) if error.kind == Kind::Unsupported => return Ok(Outcome::Lacks(no_direct())),
        Err(error) => return Err(error.into()),
    };
    Ok(Outcome::Works(format!(
        "{} written and read around the page cache in pages of {page_bytes} bytes, compared",
        sized(bytes)
    )))
}

fn no_direct() -> String {
    "the file system has none: leave `direct` out there; all goes through the page cache"
        .to_string()
}
