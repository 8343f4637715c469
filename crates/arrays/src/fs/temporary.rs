//! The temporary beside a target: it holds all files of a write until they are renamed into place.
//!
//! ```text
//! parent/
//!   run.zarr                          the target, untouched until the end
//!   .run.zarr~u.penstock/
//!     lock                            held (flock) by the root for as long as it lives
//!     data                            the file or directory that will replace the target
//!     old                             the target's old content, while it is being replaced
//! ```
//!
//! The name of a temporary follows from its target's, so that all writers of a target meet at it,
//! however many other files there are. The lock tells a write under way from the remains of a
//! killed one: the kernel releases the lock with the process. Makers of temporaries exclude each
//! other by a lock on the parent directory, for as long as it takes to make one. If nothing tells
//! whether the maker of a temporary lives, the temporary stays, and the next has a random name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use penstock_engine::{Error, Kind, Result};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::files::{self, Lock, sync_parent, try_lock};
use super::ops;

const SUFFIX: &str = ".penstock";
/// The lock file in a temporary.
const LOCK: &str = "lock";
/// The old content in a temporary.
const OLD: &str = "old";
/// The most tries to lock a directory in which others make temporaries.
const PARENT_LOCK_TRIES: u32 = 250;
/// The pause between two tries: the first, and the longest. The lock is mostly held for a tenth of
/// a millisecond.
const PARENT_LOCK_PAUSES: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(20)];

/// A directory with a lock in it, which is removed with all of its entries when dropped.
pub(crate) struct Temporary {
    path: PathBuf,
    /// Whether the directory stays when this is dropped: another process will go on with it, or it
    /// has been removed, and the name may be in use again.
    stays: bool,
    /// The lock; `None` if the file system has no locks.
    _lock: Option<File>,
}

/// The contents of a lock file, for processes that find it.
#[derive(Serialize, Deserialize)]
struct Owner {
    /// The path that `data` will replace.
    target: PathBuf,
    process: u32,
    host: String,
}

impl Temporary {
    /// Makes the temporary of a write that is to replace `target`. It is beside `path` and named
    /// after it, and after the array if `path` is a group. The remains of a killed write to the
    /// same target are removed first.
    ///
    /// # Errors
    /// [`Kind::Busy`] when a living process has this temporary; else the error of the operating
    /// system.
    pub(crate) fn create(path: &Path, array: Option<&str>, target: &Path) -> Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::new(Kind::Schema, "writing", "the path names no file").at(path));
        };
        let mut stem = stem(name, array);
        let failed = |e: std::io::Error| {
            let error = Error::io(&e, "making a temporary in", parent);
            let cause = format!("{e} (it is needed to write {})", path.display());
            Error { cause, ..error }
        };
        let _parent_lock = lock_parent(parent)?;
        let mut own = named(parent, &stem);
        match ops::create_dir(&own) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                // Before the group existed, the target of the same write was the group.
                if !remove_remains(&own, &[target, path])? {
                    stem.push(format!("~{}", nonce()));
                    own = named(parent, &stem);
                }
                ops::create_dir(&own).map_err(failed)?;
            }
            made => made.map_err(failed)?,
        }
        let owner = Owner {
            target: target.to_path_buf(),
            process: std::process::id(),
            host: ops::host(),
        };
        let text = serde_json::to_vec(&owner).unwrap_or_default();
        let lock_path = own.join(LOCK);
        // The lock file is not synced: it is mostly removed soon. After a power failure it may be
        // empty, or gone; the temporary then counts as a dead writer's.
        let write = || {
            let lock = ops::create_new(&lock_path)?;
            ops::write_all_at(&lock, &text, 0, &lock_path)?;
            Ok(lock)
        };
        let lock = write().map_err(|e| {
            let _ = remove_under_lock(&own); // what stays is removed by the next write
            Error::io(&e, "writing", &lock_path)
        })?;
        Ok(Self {
            path: own,
            stays: false,
            _lock: matches!(try_lock(&lock), Lock::Taken).then_some(lock),
        })
    }

    /// Adopts a temporary of `path`, or of an array of the group there, that a dead process has
    /// left, if `is_right` takes it.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn adopt(path: &Path, is_right: &dyn Fn(&Path) -> bool) -> Result<Option<Self>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(None);
        };
        let start = stem(name, None);
        let _parent_lock = lock_parent(parent)?;
        for entry in files::entries(parent)? {
            let (path, name) = (entry.path(), entry.file_name());
            let is_like_it = name.as_bytes().starts_with(start.as_bytes())
                && name.as_bytes().ends_with(SUFFIX.as_bytes());
            if !is_like_it || !is_right(&path) {
                continue;
            }
            if let Ok(lock) = open_lock(&path.join(LOCK))
                && matches!(try_lock(&lock), Lock::Taken)
            {
                return Ok(Some(Self {
                    path,
                    stays: true,
                    _lock: Some(lock),
                }));
            }
        }
        Ok(None)
    }

    /// The path of the temporary of writes to the file or directory at `path`.
    pub(crate) fn path_of(path: &Path) -> Option<PathBuf> {
        let (parent, name) = (path.parent()?, path.file_name()?);
        Some(named(parent, &stem(name, None)))
    }

    /// Keeps the temporary when it is dropped, so that another process can go on with it.
    pub(crate) fn keep(&mut self) {
        self.stays = true;
    }

    /// Syncs the directory: after a power failure it is still there, with all of its synced
    /// entries.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn sync(&self) -> Result<()> {
        files::sync_path(&self.path)?;
        sync_parent(&self.path)
    }

    /// The path of the temporary itself.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the file or directory that will replace the target.
    pub(crate) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// The path of another file in the temporary.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Puts the directory `source` of this temporary in the place of `target`, which may exist. The
    /// former contents are removed with the temporary.
    pub(crate) fn install(&self, source: &Path, target: &Path) -> Result<()> {
        let failed = |e: std::io::Error| Error::io(&e, "renaming into place", target);
        if std::fs::symlink_metadata(target).is_err() {
            return files::rename(source, target);
        }
        match ops::exchange(source, target).map_err(|e| (Errno::from_io_error(&e), e)) {
            Ok(()) => return Ok(()),
            Err((Some(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP), _)) => {}
            Err((_, error)) => return Err(failed(error)),
        }
        self.install_in_two_steps(source, target)
    }

    /// Replaces the target on file systems that cannot exchange. A process killed between the two
    /// renames leaves the old content in `old`, from where the next write puts it back.
    fn install_in_two_steps(&self, source: &Path, target: &Path) -> Result<()> {
        let failed = |e: std::io::Error| Error::io(&e, "renaming into place", target);
        let old = self.path.join(OLD);
        ops::rename(target, &old).map_err(failed)?;
        ops::rename(source, target).map_err(|e| {
            // If this fails too, the next write to the target tries again.
            let _ = ops::rename(&old, target);
            failed(e)
        })
    }

    /// Removes the temporary. The next write removes all files that stay.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn remove(&mut self) -> Result<()> {
        self.stays = true;
        remove(&self.path).map_err(|e| Error::io(&e, "removing", &self.path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        // A failure cannot be reported here; the next write removes all files that stay.
        let _ = remove(&self.path);
    }
}

/// The most times that a directory is removed in which files appear, and the time in between.
const REMOVALS_MAX: u32 = 1000;
const REMOVAL_WAIT: Duration = Duration::from_millis(1);

/// 16 random hexadecimal digits.
pub(crate) fn nonce() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// Removes a temporary, the lock last: it exists as long as any other entry. A writer that waits
/// for the name then waits until the name is free.
fn remove(path: &Path) -> std::io::Result<()> {
    empty(path)?;
    // Without the parent's lock, another writer may take the name in between, and meet an error.
    let _parent_lock = path.parent().and_then(|parent| lock_parent(parent).ok());
    remove_under_lock(path)
}

/// Removes a temporary whose parent is locked.
fn remove_under_lock(path: &Path) -> std::io::Result<()> {
    while_others_add(|| {
        empty(path)?;
        remove_emptied(path)
    })
}

/// Repeats a removal into which others put files meanwhile: the disks of a call that was given up
/// end the writes that they have begun.
fn while_others_add(remove: impl Fn() -> std::io::Result<()>) -> std::io::Result<()> {
    for _ in 0..REMOVALS_MAX {
        match remove() {
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {
                std::thread::sleep(REMOVAL_WAIT);
            }
            removed => return removed,
        }
    }
    remove()
}

/// Removes all entries of a temporary but for the lock.
fn empty(path: &Path) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name() == LOCK {
            continue;
        }
        if entry.file_type()?.is_dir() {
            while_others_add(|| ops::remove_dir_all(&entry.path()))?;
        } else {
            ops::remove_file(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes the lock and the directory, if they exist.
fn remove_emptied(path: &Path) -> std::io::Result<()> {
    let unless_absent = |removed: std::io::Result<()>| match removed {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    unless_absent(ops::remove_file(&path.join(LOCK)))?;
    unless_absent(ops::remove_dir(path))
}

/// Removes the remains of a killed write to `target`, as far as possible.
pub(crate) fn remove_remains_of(target: &Path) {
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        return;
    };
    if let Ok(_parent_lock) = lock_parent(parent) {
        let _ = remove_remains(&named(parent, &stem(name, None)), &[target]);
    }
}

/// Removes a temporary if its maker is dead, and refuses if its maker lives. Gives false if nothing
/// tells. The caller has locked the parent. The temporary may be of any of `targets`; the first is
/// the caller's.
fn remove_remains(path: &Path, targets: &[&Path]) -> Result<bool> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
        Ok(found) if found.is_dir() => {}
        _ => return Ok(false),
    }
    let lock_path = path.join(LOCK);
    let lock = match open_lock(&lock_path) {
        Ok(lock) => Some(lock),
        // The maker was killed before it had a lock, or after it released the lock, or a power
        // failure has taken the lock file.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(_) => return Ok(false),
    };
    let owner = std::fs::read(&lock_path).ok();
    let owner: Option<Owner> = owner.and_then(|text| serde_json::from_slice(&text).ok());
    let said = owner.as_ref().map(|owner| &*owner.target);
    let target = said.filter(|target| targets.contains(target));
    let target = target.unwrap_or(targets[0]); // the directory may have been moved since
    match lock.as_ref().map_or(Lock::Taken, try_lock) {
        Lock::Unsupported => Ok(false),
        Lock::Held => {
            let who = owner
                .as_ref()
                .map(|o| format!(" (process {} on {})", o.process, o.host));
            let cause = format!(
                "another job is writing it{}; its temporary is {}",
                who.unwrap_or_default(),
                path.display()
            );
            Err(Error::new(Kind::Busy, "writing", cause).at(target))
        }
        Lock::Taken => {
            let old = path.join(OLD);
            if old.exists() && std::fs::symlink_metadata(target).is_err() {
                ops::rename(&old, target).map_err(|e| Error::io(&e, "putting back", target))?;
            }
            remove_under_lock(path).map_err(|e| Error::io(&e, "removing the remains", path))?;
            Ok(true)
        }
    }
}

/// The name of the temporary of a file, or of an array of a group, without the suffix.
fn stem(name: &OsStr, array: Option<&str>) -> OsString {
    let mut stem = OsString::from(".");
    stem.push(plain(name));
    stem.push("~");
    stem.push(plain(OsStr::new(array.unwrap_or_default())));
    stem
}

/// A name as a part of another name, in which `~` separates parts.
fn plain(name: &OsStr) -> OsString {
    let byte = |byte: &u8| match byte {
        b'%' => b"%25".to_vec(),
        b'~' => b"%7E".to_vec(),
        other => vec![*other],
    };
    OsString::from_vec(name.as_bytes().iter().flat_map(byte).collect())
}

/// The path of the temporary with this stem.
fn named(parent: &Path, stem: &OsStr) -> PathBuf {
    let mut name = stem.to_os_string();
    name.push(SUFFIX);
    parent.join(name)
}

/// Opens a lock file for writing, too: some file systems lock only such files.
fn open_lock(path: &Path) -> std::io::Result<File> {
    File::options().read(true).write(true).open(path)
}

/// Keeps other makers of temporaries out of the directory. Without the lock (no locks on
/// directories, or another process keeps it) two writers that begin at the same instant may both go
/// on.
fn lock_parent(parent: &Path) -> Result<File> {
    let directory = File::open(parent).map_err(|e| Error::io(&e, "opening", parent))?;
    let [mut pause, pause_max] = PARENT_LOCK_PAUSES;
    for _ in 0..PARENT_LOCK_TRIES {
        match try_lock(&directory) {
            Lock::Held => std::thread::sleep(pause),
            Lock::Taken | Lock::Unsupported => break,
        }
        pause = pause_max.min(2 * pause);
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_while_others_put_files_into_it() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("u");
        for _ in 0..20 {
            let temporary = Temporary::create(&target, None, &target).unwrap();
            let data = temporary.data();
            std::fs::create_dir(&data).unwrap();
            let (begun, begins) = std::sync::mpsc::channel();
            let writer = std::thread::spawn(move || {
                for number in 0..200 {
                    if std::fs::write(data.join(number.to_string()), "x").is_err() {
                        return;
                    }
                    let _ = begun.send(()); // nobody looks after the first
                }
            });
            begins.recv().unwrap();
            drop(temporary);
            writer.join().unwrap();
            assert!(files::is_empty(place.path()).unwrap());
        }
    }

    #[test]
    fn each_target_has_a_temporary_of_its_own() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str, array: Option<&str>| {
            let path = place.path().join(path);
            Temporary::create(&path, array, &path)
        };
        let writes = [
            ("a", None),
            ("a", Some("b")),
            ("a~b", None),
            ("a~", Some("b")),
            ("a", Some("~b")),
            ("a%7E", Some("b")),
            ("a", Some("b~c")),
            ("a~b", Some("c")),
        ];
        let made: Vec<_> = writes
            .iter()
            .map(|(path, array)| at(path, *array).unwrap())
            .collect();
        for (path, array) in writes {
            assert_eq!(at(path, array).err().unwrap().kind, Kind::Busy);
        }
        drop(made);
        assert!(std::fs::read_dir(place.path()).unwrap().next().is_none());
    }

    #[test]
    fn of_many_that_make_and_remove_one_all_succeed_or_are_busy() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("t");
        let make_often = || {
            let made = || Temporary::create(&target, None, &target).map(drop);
            (0..200).map(|_| made()).collect::<Vec<_>>()
        };
        let made: Vec<_> = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(make_often));
            let joined = threads.map(|thread| thread.join().unwrap());
            joined.into_iter().flatten().collect()
        });
        assert!(made.iter().any(Result::is_ok));
        let errors = made.iter().flat_map(|made| made.as_ref().err());
        assert!(
            errors.clone().all(|error| error.kind == Kind::Busy),
            "{:?}",
            errors.last()
        );
        assert!(std::fs::read_dir(place.path()).unwrap().next().is_none());
    }

    #[test]
    fn what_has_been_removed_is_not_removed_again() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("t");
        let mut first = Temporary::create(&target, None, &target).unwrap();
        first.remove().unwrap();
        let second = Temporary::create(&target, None, &target).unwrap();
        assert_eq!(first.path, second.path);
        std::fs::write(second.data(), "of the second").unwrap();
        drop(first);
        assert!(second.data().exists());
    }

    #[test]
    fn one_whose_lock_cannot_be_made_waits_for_nobody() {
        const PATH_BYTES_MAX: usize = 4095;
        let place = tempfile::tempdir().unwrap();
        let mut parent = place.path().to_path_buf();
        // The temporary's path is as long as a path may be, so that its lock's is too long.
        let longest = PATH_BYTES_MAX - "/.t~.penstock".len();
        while parent.as_os_str().len() < longest {
            let left = longest - parent.as_os_str().len() - 1;
            let bytes = if left > 200 { 100 } else { left };
            parent.push("d".repeat(bytes));
        }
        std::fs::create_dir_all(&parent).unwrap();
        let (target, begun) = (parent.join("t"), std::time::Instant::now());
        let made = Temporary::create(&target, None, &target);
        assert!(made.is_err());
        let [_, pause_max] = PARENT_LOCK_PAUSES;
        assert!(begun.elapsed() < PARENT_LOCK_TRIES / 2 * pause_max);
    }

    #[test]
    fn what_is_no_temporary_is_left_and_another_name_taken() {
        let place = tempfile::tempdir().unwrap();
        let (target, own) = (place.path().join("t"), place.path().join(".t~.penstock"));
        let elsewhere = place.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("kept"), "").unwrap();
        let make_file = || std::fs::write(&own, "kept");
        let make_link = || std::os::unix::fs::symlink(&elsewhere, &own);
        for make in [&make_file as &dyn Fn() -> std::io::Result<()>, &make_link] {
            make().unwrap();
            let temporary = Temporary::create(&target, None, &target).unwrap();
            assert_ne!(temporary.path, own);
            drop(temporary);
            std::fs::remove_file(&own).unwrap();
        }
        assert!(elsewhere.join("kept").exists());
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
        // Without a source, the old content comes back.
        std::fs::write(target.join("newer"), "").unwrap();
        let again = Temporary::create(&target, None, &target);
        assert_eq!(again.err().unwrap().kind, Kind::Busy);
        drop(temporary);
        let again = Temporary::create(&target, None, &target).unwrap();
        again
            .install_in_two_steps(&again.data(), &target)
            .unwrap_err();
        assert!(target.join("newer").exists());
        // The process was killed between the two renames.
        std::fs::rename(&target, again.beside("old")).unwrap();
        std::mem::forget(again._lock.as_ref().unwrap().try_clone().unwrap());
        let lock = again._lock.as_ref().unwrap();
        rustix::fs::flock(lock, rustix::fs::FlockOperation::Unlock).unwrap();
        let next = Temporary::create(&target, None, &target).unwrap();
        assert!(target.join("newer").exists());
        drop((again, next));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
