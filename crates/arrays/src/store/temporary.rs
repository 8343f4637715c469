//! The temporary beside a target: everything a write makes, until it is renamed into place.
//!
//! ```text
//! parent/
//!   run.zarr                          the target, untouched until the end
//!   .run.zarr~u~9c1f03d2a47be865.penstock/
//!     lock                            held (flock) by the root for as long as it lives
//!     data                            what will take the target's place: a file or a directory
//!     old                             the target's old content, while it is being replaced
//! ```
//!
//! The lock tells a write in progress from the remains of a killed one: the kernel gives it up with
//! the process. Makers of temporaries keep out of each other's way by a lock on the parent
//! directory, for as long as it takes to look around and make one.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use penstock_engine::{Error, Kind, Result};
use rustix::fs::{FlockOperation, RawDir};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::pending::sync_parent;
use super::{change, file};

const SUFFIX: &str = ".penstock";
/// How long to wait for others who look around in the same directory.
const PARENT_LOCK_TRIES: u32 = 250;
const PARENT_LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Of a directory's entries, that are read at once.
const ENTRIES_BYTES: usize = 32 << 10;

/// A directory with a lock in it, removed with all it holds when dropped.
pub(super) struct Temporary {
    path: PathBuf,
    /// Whether it stays when dropped: another process will go on with it.
    stays: bool,
    /// `None` where the file system has no locks.
    lock: Option<File>,
}

/// What stands in a lock file: for those who find it.
#[derive(Serialize, Deserialize)]
struct Owner {
    /// What `data` will replace.
    target: PathBuf,
    process: u32,
    host: String,
}

/// What an attempt to lock says.
pub(super) enum Lock {
    Taken,
    Held,
    Unsupported,
}

impl Temporary {
    /// Makes the temporary for what is to replace `target`: of the name of `path`, beside it, and
    /// for an array of a group with the array's name. Remains of killed writes to the same target
    /// are removed first.
    ///
    /// # Errors
    /// [`Kind::Busy`] when another process has such a temporary and lives; else what the operating
    /// system says.
    pub(super) fn create(path: &Path, array: Option<&str>, target: &Path) -> Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::new(Kind::Schema, "writing", "the path names no file").at(path));
        };
        let array = array.map(|array| format!("{array}~")).unwrap_or_default();
        let prefix = format!(".{}~{array}", name.to_string_lossy());
        let _parent_lock = lock_parent(parent)?;
        // Before the group was there, the target of the same write was the group.
        remove_remains(parent, &prefix, &[target, path])?;
        let own = parent.join(format!("{prefix}{}{SUFFIX}", nonce()));
        change::create_dir(&own).map_err(|e| {
            let error = Error::io(&e, "making a temporary in", parent);
            let cause = format!("{e} (it is needed to write {})", path.display());
            Error { cause, ..error }
        })?;
        let mut temporary = Self {
            path: own,
            stays: false,
            lock: None,
        };
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let owner = Owner {
            target: target.to_path_buf(),
            process: std::process::id(),
            host,
        };
        let text = serde_json::to_vec(&owner).unwrap_or_default();
        let lock_path = temporary.lock_path();
        // It is not brought to stable storage, nor does that begin: it mostly goes first. After a power failure it
        // may be empty, or gone; the temporary is then taken for that of a dead writer of the target.
        let write = || {
            let lock = change::create_new(&lock_path)?;
            change::write_all_at(&lock, &text, 0, &lock_path)?;
            Ok(lock)
        };
        let lock = write().map_err(|e| Error::io(&e, "writing", &lock_path))?;
        if matches!(try_lock(&lock), Lock::Taken) {
            temporary.lock = Some(lock);
        }
        Ok(temporary)
    }

    /// Takes over a temporary of `path` that a dead process has left, or for the array of a group there, if
    /// it is the right one.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn adopt(path: &Path, is_right: &dyn Fn(&Path) -> bool) -> Result<Option<Self>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(None);
        };
        let prefix = format!(".{}~", name.to_string_lossy());
        let _parent_lock = lock_parent(parent)?;
        let is_like_it =
            |name: &[u8]| name.starts_with(prefix.as_bytes()) && name.ends_with(SUFFIX.as_bytes());
        for path in entries(parent, is_like_it)? {
            if !is_right(&path) {
                continue;
            }
            if let Ok(lock) = open_lock(&path.join("lock"))
                && matches!(try_lock(&lock), Lock::Taken)
            {
                return Ok(Some(Self {
                    path,
                    stays: true,
                    lock: Some(lock),
                }));
            }
        }
        Ok(None)
    }

    /// From now on it stays when dropped, for another process to go on with.
    pub(super) fn keep(&mut self) {
        self.stays = true;
    }

    /// Sees that a power failure leaves it there, and what is in it if that has been synced.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn sync(&self) -> Result<()> {
        file::sync_path(&self.path)?;
        sync_parent(&self.path)
    }

    /// What will take the target's place.
    pub(super) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// Another file in it.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn lock_path(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Puts the directory `source` of this temporary in the place of `target`, which may exist.
    /// What it held goes when the temporary goes.
    pub(super) fn install(&self, source: &Path, target: &Path) -> Result<()> {
        let failed = |e: std::io::Error| Error::io(&e, "renaming into place", target);
        if std::fs::symlink_metadata(target).is_err() {
            return change::rename(source, target).map_err(failed);
        }
        match change::exchange(source, target).map_err(|e| (Errno::from_io_error(&e), e)) {
            Ok(()) => return Ok(()),
            Err((Some(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP), _)) => {}
            Err((_, error)) => return Err(failed(error)),
        }
        self.install_in_two_steps(source, target)
    }

    /// For file systems that cannot exchange. A process killed between the two renames leaves the
    /// old content in `old`, from where the next write puts it back.
    fn install_in_two_steps(&self, source: &Path, target: &Path) -> Result<()> {
        let failed = |e: std::io::Error| Error::io(&e, "renaming into place", target);
        let old = self.path.join("old");
        change::rename(target, &old).map_err(failed)?;
        change::rename(source, target).map_err(|e| {
            // Should this fail too, the next write to the target tries again.
            let _ = change::rename(&old, target);
            failed(e)
        })
    }

    /// Removes it.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn remove(&mut self) -> Result<()> {
        remove(&self.path).map_err(|e| Error::io(&e, "removing", &self.path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        // Nobody is left to hear of a failure; what stays is removed by the next write.
        let _ = remove(&self.path);
    }
}

/// 16 hexadecimal digits that nobody else draws.
pub(super) fn nonce() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// Removes a temporary, the lock last: as long as anything is there, so is the lock.
fn remove(path: &Path) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name() == "lock" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            change::remove_dir_all(&entry.path())?;
        } else {
            change::remove_file(&entry.path())?;
        }
    }
    match change::remove_file(&path.join("lock")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    change::remove_dir(path)
}

/// Removes the remains of killed writes to `target`, as far as that can be done.
pub(super) fn remove_remains_of(target: &Path) {
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        return;
    };
    if let Ok(_parent_lock) = lock_parent(parent) {
        let _ = remove_remains(parent, &format!(".{}~", name.to_string_lossy()), &[target]);
    }
}

/// Looks for temporaries of one of the targets, of which the first is meant, removes those whose makers are
/// dead, and refuses when one lives.
fn remove_remains(parent: &Path, prefix: &str, targets: &[&Path]) -> Result<()> {
    for path in entries(parent, |name| is_temporary(name, prefix))? {
        let lock_path = path.join("lock");
        let lock = match open_lock(&lock_path) {
            Ok(lock) => Some(lock),
            // Its maker was killed before it had a lock, or after it gave it up, or a power failure has taken it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(_) => continue,
        };
        let owner = std::fs::read(&lock_path).ok();
        let owner: Option<Owner> = owner.and_then(|text| serde_json::from_slice(&text).ok());
        let target = owner.as_ref().map_or(targets[0], |owner| &owner.target);
        if !targets.contains(&target) {
            continue;
        }
        match lock.as_ref().map_or(Lock::Taken, try_lock) {
            Lock::Unsupported => {}
            Lock::Held => {
                let who = owner
                    .as_ref()
                    .map(|o| format!(" (process {} on {})", o.process, o.host));
                let cause = format!(
                    "another job is writing it{}; its temporary is {}",
                    who.unwrap_or_default(),
                    path.display()
                );
                return Err(Error::new(Kind::Busy, "writing", cause).at(target));
            }
            Lock::Taken => {
                let old = path.join("old");
                if old.exists() && std::fs::symlink_metadata(target).is_err() {
                    change::rename(&old, target)
                        .map_err(|e| Error::io(&e, "putting back", target))?;
                }
                remove(&path).map_err(|e| Error::io(&e, "removing the remains", &path))?;
            }
        }
    }
    Ok(())
}

/// Those of a directory whose names are wanted. There may be thousands of others, and a write waits for this: nothing is
/// made of their names.
fn entries(directory: &Path, is_wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<PathBuf>> {
    let looking = |e: std::io::Error| Error::io(&e, "looking into", directory);
    let opened = File::open(directory).map_err(looking)?;
    let mut buffer = [MaybeUninit::uninit(); ENTRIES_BYTES];
    let mut all = RawDir::new(opened, &mut buffer);
    let mut wanted = Vec::new();
    while let Some(entry) = all.next() {
        let entry = entry.map_err(|e| looking(e.into()))?;
        let name = entry.file_name().to_bytes();
        if is_wanted(name) {
            wanted.push(directory.join(OsStr::from_bytes(name)));
        }
    }
    Ok(wanted)
}

/// Whether a file's name is the prefix, 16 hexadecimal digits and the suffix.
fn is_temporary(name: &[u8], prefix: &str) -> bool {
    let nonce = name
        .strip_prefix(prefix.as_bytes())
        .and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
    nonce.is_some_and(|nonce| nonce.len() == 16 && nonce.iter().all(u8::is_ascii_hexdigit))
}

/// Some file systems lock only what is open for writing.
fn open_lock(path: &Path) -> std::io::Result<File> {
    File::options().read(true).write(true).open(path)
}

pub(super) fn try_lock(file: &File) -> Lock {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Lock::Taken,
        Err(Errno::WOULDBLOCK) => Lock::Held,
        Err(_) => Lock::Unsupported,
    }
}

/// Keeps others from looking around in the directory at the same time. Without it (no locks on
/// directories, or somebody keeps it for himself) two that begin at the same instant may both go on.
fn lock_parent(parent: &Path) -> Result<File> {
    let directory = File::open(parent).map_err(|e| Error::io(&e, "opening", parent))?;
    for _ in 0..PARENT_LOCK_TRIES {
        match try_lock(&directory) {
            Lock::Held => std::thread::sleep(PARENT_LOCK_PAUSE),
            Lock::Taken | Lock::Unsupported => break,
        }
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_target_are_told_from_others() {
        let prefix = ".run~u~";
        assert!(is_temporary(b".run~u~0123456789abcdef.penstock", prefix));
        for other in [
            ".run~0123456789abcdef.penstock",
            ".run~u~v~0123456789abcdef.penstock",
            ".run~u~0123456789abcde.penstock",
            ".run~u~0123456789abcdeg.penstock",
            ".run~u~0123456789abcdef",
        ] {
            assert!(!is_temporary(other.as_bytes(), prefix), "{other}");
        }
    }

    #[test]
    fn replacing_in_two_steps_keeps_the_old_until_the_end() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("t");
        std::fs::create_dir(&target).unwrap();
        std::fs::write(target.join("old"), "").unwrap();
        let temporary = Temporary::create(&target, None, &target).unwrap();
        std::fs::create_dir(temporary.data()).unwrap();
        temporary
            .install_in_two_steps(&temporary.data(), &target)
            .unwrap();
        assert!(std::fs::read_dir(&target).unwrap().next().is_none());
        // Nothing to put in its place: the old comes back.
        std::fs::write(target.join("newer"), "").unwrap();
        let again = Temporary::create(&target, None, &target);
        assert_eq!(again.err().unwrap().kind, Kind::Busy);
        drop(temporary);
        let again = Temporary::create(&target, None, &target).unwrap();
        again
            .install_in_two_steps(&again.data(), &target)
            .unwrap_err();
        assert!(target.join("newer").exists());
        // Killed between the two renames.
        std::fs::rename(&target, again.beside("old")).unwrap();
        std::mem::forget(again.lock.as_ref().unwrap().try_clone().unwrap());
        let lock = again.lock.as_ref().unwrap();
        rustix::fs::flock(lock, FlockOperation::Unlock).unwrap();
        let next = Temporary::create(&target, None, &target).unwrap();
        assert!(target.join("newer").exists());
        drop((again, next));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
