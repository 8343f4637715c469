//! Every change that a store makes to the file system, and a crash between any two of them.
//!
//! For tests, a process can be told to [`crash_after`] so many changes. The next one is then done
//! by half (of a write the first half of its bytes, of a removed directory its first entry), and it
//! and all that follow fail, removals of temporaries included: what is on disk is what a killed
//! process leaves. With [`lose_unsynced`] it is what a power failure leaves: of what was written to
//! a file and not synced the second half is lost, as is half of what the file grew by, and files
//! and directories that were made are gone if the directory that they are in was not synced since.
//!
//! What this model leaves out: renamings and removals that were not synced are kept, and kept in
//! order; bytes that were synced stay when others of their sector are written.

use penstock_layout::exact;
use std::collections::{BTreeMap, BTreeSet};
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
static UNSYNCED: Mutex<Losses> = Mutex::new(Losses::new());

/// What a power failure takes.
struct Losses {
    /// Files: what was written to them.
    written: BTreeMap<PathBuf, UnsyncedFile>,
    /// Files and directories: all of them.
    made: BTreeSet<PathBuf>,
}

/// What of a file has been written and not synced.
#[derive(Default)]
struct UnsyncedFile {
    /// Its length before.
    former_bytes: u64,
    /// Where it was written, and how many bytes.
    pieces: Vec<(u64, u64)>,
}

impl UnsyncedFile {
    /// Loses half of each piece, and half of what the file was longer. What was there and synced
    /// stays: disks write whole sectors.
    fn lose(&self, file: &File) -> io::Result<()> {
        let bytes = file.metadata()?.len();
        for &(offset, length) in &self.pieces {
            let (lost, end) = (offset + length / 2, (offset + length).min(bytes));
            if lost < end {
                file.write_all_at(&vec![0xA5; exact::<usize>(end - lost)], lost)?;
            }
        }
        match bytes.checked_sub(self.former_bytes) {
            Some(more) => file.set_len(self.former_bytes + more / 2),
            None => Ok(()),
        }
    }
}

impl Losses {
    const fn new() -> Self {
        Self {
            written: BTreeMap::new(),
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
        let new = |path: PathBuf| match path.strip_prefix(from) {
            Ok(rest) if rest.as_os_str().is_empty() => to.to_path_buf(),
            Ok(rest) => to.join(rest),
            Err(_) => path,
        };
        let made = std::mem::take(&mut self.made).into_iter();
        self.made = made.map(new).collect();
        let written = std::mem::take(&mut self.written).into_iter();
        self.written = written.map(|(path, what)| (new(path), what)).collect();
    }

    /// A file is about to be changed.
    fn writing(&mut self, file: &File, path: &Path, piece: Option<(u64, u64)>) {
        let bytes = || file.metadata().map_or(0, |metadata| metadata.len());
        let written = self.written.entry(path.to_path_buf());
        let written = written.or_insert_with(|| UnsyncedFile {
            former_bytes: bytes(),
            pieces: Vec::new(),
        });
        written.pieces.extend(piece);
    }

    /// What is at `path`, and below, is of no interest any more.
    fn forget(&mut self, path: &Path) {
        self.made.retain(|other| !other.starts_with(path));
        self.written.retain(|other, _| !other.starts_with(path));
    }
}

fn unsynced() -> MutexGuard<'static, Losses> {
    UNSYNCED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For tests: from now on changes are counted, and that after the first so many is the last, and
/// half. It concerns the whole process.
pub fn crash_after(changes: u64) {
    *unsynced() = Losses::new();
    CHANGES.store(0, Ordering::SeqCst);
    CHANGES_MAX.store(changes, Ordering::SeqCst);
    IS_WATCHED.store(true, Ordering::SeqCst);
}

/// For tests: the process is as before [`crash_after`]. Gives the number of changes since, those
/// that failed included.
pub fn no_crash() -> u64 {
    IS_WATCHED.store(false, Ordering::SeqCst);
    CHANGES.load(Ordering::SeqCst)
}

/// For tests, after a crash: what was written since [`crash_after`] to a file and not synced is
/// lost by half, and what was made in a directory that was not synced since is gone. Gives their
/// number.
///
/// # Errors
/// What the operating system says.
pub fn lose_unsynced() -> io::Result<usize> {
    let Losses { written, made } = std::mem::replace(&mut *unsynced(), Losses::new());
    let mut lost = 0;
    for (path, written) in written {
        if let Ok(file) = OpenOptions::new().write(true).open(path) {
            written.lose(&file)?;
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
fn watch(note: impl FnOnce(&mut Losses)) {
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

pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    whole(|| making(path, || std::fs::create_dir(path)))
}

/// Makes a directory, and those above it that are missing. Gives those that it has made itself:
/// others may do the same meanwhile.
pub(crate) fn create_dir_all(path: &Path) -> io::Result<Vec<PathBuf>> {
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
pub(crate) fn create(options: &OpenOptions, path: &Path) -> io::Result<File> {
    match fate()? {
        Fate::Whole => making(path, || options.open(path)),
        Fate::Half => Err(crash()),
    }
}

/// Makes a file that was not there.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    create(&options, path)
}

pub(crate) fn set_len(file: &File, bytes: u64, path: &Path) -> io::Result<()> {
    whole(|| {
        watch(|unsynced| unsynced.writing(file, path, None));
        file.set_len(bytes)
    })
}

pub(crate) fn write_all_at(file: &File, data: &[u8], offset: u64, path: &Path) -> io::Result<()> {
    let fate = fate()?;
    watch(|unsynced| unsynced.writing(file, path, Some((offset, data.len() as u64))));
    match fate {
        Fate::Whole => file.write_all_at(data, offset),
        Fate::Half => {
            file.write_all_at(&data[..data.len() / 2], offset)?;
            Err(crash())
        }
    }
}

/// Copies the contents of one file to another, which is empty. Blocks are shared where the file
/// system can do that.
pub(crate) fn copy(from: &File, to: &File, path: &Path) -> io::Result<()> {
    whole(|| {
        watch(|unsynced| unsynced.writing(to, path, None));
        if rustix::fs::ioctl_ficlone(to, from).is_ok() {
            return Ok(());
        }
        // The standard library copies within the kernel.
        io::copy(&mut { from }, &mut { to }).map(drop)
    })
}

pub(crate) fn sync(file: &File, path: &Path) -> io::Result<()> {
    whole(|| {
        file.sync_all()?;
        watch(|unsynced| unsynced.synced(path));
        Ok(())
    })
}

pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
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
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
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

pub(crate) fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    whole(|| making(to, || std::fs::hard_link(from, to)))
}

pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    whole(|| std::fs::remove_file(path))
}

pub(crate) fn remove_dir(path: &Path) -> io::Result<()> {
    whole(|| std::fs::remove_dir(path))
}

pub(crate) fn remove_dir_all(path: &Path) -> io::Result<()> {
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
