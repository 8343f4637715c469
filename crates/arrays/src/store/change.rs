//! Every change that a store makes to the file system, and a crash between any two of them.
//!
//! For tests, a process can be told to [`crash_after`] so many changes. The next one is then done by half
//! (of a write the first half of its bytes, of a removed directory its first entry), and it and all that
//! follow fail, removals of temporaries included: what is on disk is what a killed process leaves. With
//! [`lose_unsynced`] it is what a power failure leaves: files that were written and not synced lose their
//! second half, and files and directories that were made are gone if the directory that they are in was not
//! synced since.
//!
//! What this model leaves out: renamings and removals that were not synced are kept, and kept in order.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, RenameFlags};

static IS_WATCHED: AtomicBool = AtomicBool::new(false);
static CHANGES: AtomicU64 = AtomicU64::new(0);
static CHANGES_MAX: AtomicU64 = AtomicU64::new(u64::MAX);
static UNSYNCED: Mutex<Unsynced> = Mutex::new(Unsynced::new());

/// What a power failure takes.
struct Unsynced {
    /// Files: half of their contents.
    written: BTreeSet<PathBuf>,
    /// Files and directories: all of them.
    made: BTreeSet<PathBuf>,
}

impl Unsynced {
    const fn new() -> Self {
        Self {
            written: BTreeSet::new(),
            made: BTreeSet::new(),
        }
    }

    /// A file or directory has been synced.
    fn synced(&mut self, path: &Path) {
        self.written.remove(path);
        self.made.retain(|made| made.parent() != Some(path));
    }

    /// What was at `from` is at `to` for good, and with it what was below.
    fn moved(&mut self, from: &Path, to: &Path) {
        self.made.remove(from);
        for paths in [&mut self.written, &mut self.made] {
            let moved =
                std::mem::take(paths)
                    .into_iter()
                    .map(|path| match path.strip_prefix(from) {
                        Ok(rest) if rest.as_os_str().is_empty() => to.to_path_buf(),
                        Ok(rest) => to.join(rest),
                        Err(_) => path,
                    });
            *paths = moved.collect();
        }
    }

    /// What is at `path`, and below, is of no interest any more.
    fn forget(&mut self, path: &Path) {
        for paths in [&mut self.written, &mut self.made] {
            paths.retain(|other| !other.starts_with(path));
        }
    }
}

fn unsynced() -> MutexGuard<'static, Unsynced> {
    UNSYNCED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For tests: from now on changes are counted, and that after the first so many is the last, and half.
/// It concerns the whole process.
pub fn crash_after(changes: u64) {
    *unsynced() = Unsynced::new();
    CHANGES.store(0, Ordering::SeqCst);
    CHANGES_MAX.store(changes, Ordering::SeqCst);
    IS_WATCHED.store(true, Ordering::SeqCst);
}

/// For tests: the process is as before [`crash_after`]. Gives the number of changes since, those that
/// failed included.
pub fn no_crash() -> u64 {
    IS_WATCHED.store(false, Ordering::SeqCst);
    CHANGES.load(Ordering::SeqCst)
}

/// For tests, after a crash: every file that was written since [`crash_after`] and not synced is cut to
/// half its length, and what was made in a directory that was not synced since is gone. Gives their number.
///
/// # Errors
/// What the operating system says.
pub fn lose_unsynced() -> io::Result<usize> {
    let Unsynced { written, made } = std::mem::replace(&mut *unsynced(), Unsynced::new());
    let mut lost = 0;
    for path in written {
        if let Ok(file) = OpenOptions::new().write(true).open(path) {
            file.set_len(file.metadata()?.len() / 2)?;
            lost += 1;
        }
    }
    for path in made {
        let Ok(metadata) = std::fs::symlink_metadata(&path) else {
            continue; // it went with what it was in, or was removed
        };
        match metadata.is_dir() {
            true => std::fs::remove_dir_all(&path)?,
            false => std::fs::remove_file(&path)?,
        }
        lost += 1;
    }
    Ok(lost)
}

/// What becomes of a change.
enum Fate {
    Whole,
    /// The crash is in the middle of it.
    Half,
}

/// Counts a change.
fn fate() -> io::Result<Fate> {
    if !IS_WATCHED.load(Ordering::Relaxed) {
        return Ok(Fate::Whole);
    }
    let before = CHANGES.fetch_add(1, Ordering::SeqCst);
    match before.cmp(&CHANGES_MAX.load(Ordering::SeqCst)) {
        std::cmp::Ordering::Less => Ok(Fate::Whole),
        std::cmp::Ordering::Equal => Ok(Fate::Half),
        std::cmp::Ordering::Greater => Err(crash()),
    }
}

fn crash() -> io::Error {
    io::Error::other("the process has crashed, as it was told to")
}

/// A change that is done or not.
fn whole(change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match fate()? {
        Fate::Whole => change(),
        Fate::Half => Err(crash()),
    }
}

/// Remembers what is on stable storage and what is not.
fn watch(note: impl FnOnce(&mut Unsynced)) {
    if IS_WATCHED.load(Ordering::Relaxed) {
        note(&mut unsynced());
    }
}

/// Remembers what `make` makes at `path`, unless that was there.
fn making<T>(path: &Path, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let is_new = IS_WATCHED.load(Ordering::Relaxed) && std::fs::symlink_metadata(path).is_err();
    let made = make()?;
    if is_new {
        watch(|unsynced| {
            unsynced.made.insert(path.to_path_buf());
        });
    }
    Ok(made)
}

pub(super) fn create_dir(path: &Path) -> io::Result<()> {
    whole(|| making(path, || std::fs::create_dir(path)))
}

/// Makes a directory, and those above it that are missing. Gives those that it has made itself: others may do the
/// same meanwhile.
pub(super) fn create_dir_all(path: &Path) -> io::Result<Vec<PathBuf>> {
    let missing: Vec<_> = path
        .ancestors()
        .take_while(|above| !above.is_dir())
        .collect();
    let mut made = Vec::new();
    for directory in missing.into_iter().rev() {
        match create_dir(directory) {
            Ok(()) => made.push(directory.to_path_buf()),
            Err(_) if directory.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(made)
}

/// Opens a file that may have to be made.
pub(super) fn create(options: &OpenOptions, path: &Path) -> io::Result<File> {
    match fate()? {
        Fate::Whole => making(path, || options.open(path)),
        Fate::Half => Err(crash()),
    }
}

/// Makes a file that was not there.
pub(super) fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    create(&options, path)
}

pub(super) fn set_len(file: &File, bytes: u64) -> io::Result<()> {
    whole(|| file.set_len(bytes))
}

pub(super) fn write_all_at(file: &File, data: &[u8], offset: u64, path: &Path) -> io::Result<()> {
    let fate = fate()?;
    watch(|unsynced| {
        unsynced.written.insert(path.to_path_buf());
    });
    match fate {
        Fate::Whole => file.write_all_at(data, offset),
        Fate::Half => {
            file.write_all_at(&data[..data.len() / 2], offset)?;
            Err(crash())
        }
    }
}

/// Copies the contents of one file to another, which is empty. Blocks are shared where the file system
/// can do that.
pub(super) fn copy(from: &File, to: &File, path: &Path) -> io::Result<()> {
    whole(|| {
        watch(|unsynced| {
            unsynced.written.insert(path.to_path_buf());
        });
        if rustix::fs::ioctl_ficlone(to, from).is_ok() {
            return Ok(());
        }
        // The standard library copies within the kernel.
        io::copy(&mut { from }, &mut { to }).map(drop)
    })
}

pub(super) fn sync(file: &File, path: &Path) -> io::Result<()> {
    whole(|| {
        file.sync_all()?;
        watch(|unsynced| unsynced.synced(path));
        Ok(())
    })
}

pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    whole(|| {
        std::fs::rename(from, to)?;
        watch(|unsynced| {
            unsynced.forget(to);
            unsynced.moved(from, to);
        });
        Ok(())
    })
}

/// Two files or directories take each other's place.
pub(super) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    whole(|| {
        rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?;
        watch(|unsynced| {
            // What goes the other way was there before, and whoever exchanges is done with it.
            unsynced.forget(other);
            unsynced.moved(one, other);
        });
        Ok(())
    })
}

pub(super) fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    whole(|| making(to, || std::fs::hard_link(from, to)))
}

pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    whole(|| std::fs::remove_file(path))
}

pub(super) fn remove_dir(path: &Path) -> io::Result<()> {
    whole(|| std::fs::remove_dir(path))
}

pub(super) fn remove_dir_all(path: &Path) -> io::Result<()> {
    match fate()? {
        Fate::Whole => std::fs::remove_dir_all(path),
        Fate::Half => {
            if let Some(first) = std::fs::read_dir(path)?.next() {
                let first = first?;
                match first.file_type()?.is_dir() {
                    true => std::fs::remove_dir_all(first.path())?,
                    false => std::fs::remove_file(first.path())?,
                }
            }
            Err(crash())
        }
    }
}
