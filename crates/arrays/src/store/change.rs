//! Every change that a store makes to the file system, and a crash between any two of them.
//!
//! For tests, a process can be told to [`crash_after`] so many changes. The next one is then done by half
//! (of a write the first half of its bytes, of a removed directory its first entry), and it and all that
//! follow fail, removals of temporaries included: what is on disk is what a killed process leaves. With
//! [`lose_unsynced`] it is what a power failure leaves: files that were written and not synced lose their
//! second half.
//!
//! What this model leaves out: directory entries that were not synced are kept, and kept in order.

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
static UNSYNCED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn unsynced() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    UNSYNCED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For tests: from now on changes are counted, and that after the first so many is the last, and half.
/// It concerns the whole process.
pub fn crash_after(changes: u64) {
    unsynced().clear();
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
/// half its length. Gives their number.
///
/// # Errors
/// What the operating system says.
pub fn lose_unsynced() -> io::Result<usize> {
    let mut lost = 0;
    for path in std::mem::take(&mut *unsynced()) {
        if let Ok(file) = OpenOptions::new().write(true).open(path) {
            file.set_len(file.metadata()?.len() / 2)?;
            lost += 1;
        }
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

/// Remembers that the contents of a file, or of the files below a directory, are or are not on stable
/// storage.
fn watch(note: impl FnOnce(&mut BTreeSet<PathBuf>)) {
    if IS_WATCHED.load(Ordering::Relaxed) {
        note(&mut unsynced());
    }
}

pub(super) fn create_dir(path: &Path) -> io::Result<()> {
    whole(|| std::fs::create_dir(path))
}

pub(super) fn create_dir_all(path: &Path) -> io::Result<()> {
    whole(|| std::fs::create_dir_all(path))
}

/// Opens a file that may have to be made.
pub(super) fn create(options: &OpenOptions, path: &Path) -> io::Result<File> {
    match fate()? {
        Fate::Whole => options.open(path),
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
        unsynced.insert(path.to_path_buf());
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
            unsynced.insert(path.to_path_buf());
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
        watch(|unsynced| {
            unsynced.remove(path);
        });
        Ok(())
    })
}

pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    whole(|| {
        std::fs::rename(from, to)?;
        watch(|unsynced| moved(unsynced, from, to));
        Ok(())
    })
}

/// Two files or directories take each other's place.
pub(super) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    whole(|| {
        rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?;
        watch(|unsynced| {
            // What goes the other way was there before, and whoever exchanges is done with it.
            unsynced.retain(|path| !path.starts_with(other));
            moved(unsynced, one, other);
        });
        Ok(())
    })
}

fn moved(unsynced: &mut BTreeSet<PathBuf>, from: &Path, to: &Path) {
    let paths = std::mem::take(unsynced);
    unsynced.extend(paths.into_iter().map(|path| match path.strip_prefix(from) {
        Ok(rest) if rest.as_os_str().is_empty() => to.to_path_buf(),
        Ok(rest) => to.join(rest),
        Err(_) => path,
    }));
}

pub(super) fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    whole(|| std::fs::hard_link(from, to))
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
