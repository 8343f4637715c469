//! All changes that a store makes to the file system, and a crash between any two of them.
//!
//! For tests, [`crash_after`] tells a process to crash after a number of changes. The next change
//! is then half done (a write writes the first half of its bytes, a removal of a directory removes
//! its first entry), and it and all later changes fail, removals of temporaries included: the disk
//! is as a killed process leaves it. [`lose_unsynced`] makes it as a power failure leaves it:
//! unsynced writes lose the second half of their bytes, files lose half of their growth, and new
//! files and directories are gone if the directory above was not synced since.
//!
//! The model leaves this out: renamings and removals that were not synced are kept, and kept in
//! order; synced bytes stay when others of their sector are written.

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
/// The power failures of tests.
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// The files and directories that a power failure would take.
struct Losses {
    /// The unsynced writes to files.
    written: BTreeMap<PathBuf, UnsyncedFile>,
    /// The new files and directories whose directories are not yet synced.
    made: BTreeSet<PathBuf>,
}

/// The unsynced writes to a file.
#[derive(Default)]
struct UnsyncedFile {
    /// The length of the file before these writes.
    former_bytes: u64,
    /// The offset and length of each write.
    pieces: Vec<(u64, u64)>,
}

impl UnsyncedFile {
    /// Loses half of each piece, and half of the file's growth. Synced bytes stay: disks write
    /// whole sectors.
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

    /// Notes that a file or directory has been synced.
    fn synced(&mut self, path: &Path) {
        self.written.remove(path);
        self.made.retain(|made| made.parent() != Some(path));
    }

    /// Notes that `from` is now at `to` for good, with all entries below.
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

    /// Notes that a file is about to be changed.
    fn writing(&mut self, file: &File, path: &Path, piece: Option<(u64, u64)>) {
        let bytes = || file.metadata().map_or(0, |metadata| metadata.len());
        let written = self.written.entry(path.to_path_buf());
        let written = written.or_insert_with(|| UnsyncedFile {
            former_bytes: bytes(),
            pieces: Vec::new(),
        });
        written.pieces.extend(piece);
    }

    /// Forgets the path and all entries below.
    fn forget(&mut self, path: &Path) {
        self.made.retain(|other| !other.starts_with(path));
        self.written.retain(|other, _| !other.starts_with(path));
    }
}

fn unsynced() -> MutexGuard<'static, Losses> {
    UNSYNCED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For tests: counts changes from now on, and crashes in the middle of the change after the first
/// `changes`. All of the process is concerned.
pub fn crash_after(changes: u64) {
    *unsynced() = Losses::new();
    CHANGES.store(0, Ordering::SeqCst);
    CHANGES_MAX.store(changes, Ordering::SeqCst);
    IS_WATCHED.store(true, Ordering::SeqCst);
}

/// For tests: ends the effect of [`crash_after`]. Gives the number of changes since, failed ones
/// included.
pub fn no_crash() -> u64 {
    IS_WATCHED.store(false, Ordering::SeqCst);
    CHANGES.load(Ordering::SeqCst)
}

/// For tests, after a crash: halves all writes since [`crash_after`] that were not synced, and
/// removes all new entries of directories that were not synced since. Gives the number of losses.
///
/// # Errors
/// The error of the operating system.
pub fn lose_unsynced() -> io::Result<usize> {
    FAILURES.fetch_add(1, Ordering::SeqCst);
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

/// A number that is another one after the machine has started anew, as after a power failure.
pub(crate) fn boot() -> u64 {
    let named = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u64::from(crc32c::crc32c(&named)) << 32 | FAILURES.load(Ordering::SeqCst)
}

/// The name of this host.
pub(crate) fn host() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

/// The fate of a change.
enum Fate {
    Whole,
    /// The crash is in the middle of the change.
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

/// Makes a change that cannot be half done.
fn whole(change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match fate()? {
        Fate::Whole => change(),
        Fate::Half => Err(crash()),
    }
}

/// Notes a change of unsynced data, if a test watches.
fn watch(note: impl FnOnce(&mut Losses)) {
    if IS_WATCHED.load(Ordering::Relaxed) {
        note(&mut unsynced());
    }
}

/// Notes the path that `make` makes, if it is new.
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

/// Makes a directory, and all missing ones above it. Gives the directories that it has made itself:
/// others may make some at the same time.
pub(crate) fn create_dir_all(path: &Path) -> io::Result<Vec<PathBuf>> {
    let missing: Vec<_> = path
        .ancestors()
        .take_while(|above| !above.is_dir())
        .collect();
    create_dirs(missing)
}

/// Makes directories, the last first, which others may make at the same time. Gives those that it
/// has made itself.
fn create_dirs(missing: Vec<&Path>) -> io::Result<Vec<PathBuf>> {
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

/// Like [`create_dir_all`], but makes only directories below `home`, which must exist.
pub(crate) fn create_dirs_below(home: &Path, path: &Path) -> io::Result<Vec<PathBuf>> {
    let below = path.ancestors().take_while(|above| *above != home);
    let missing: Vec<_> = below.take_while(|above| !above.is_dir()).collect();
    create_dirs(missing)
}

/// Opens a file, which may have to be made.
pub(crate) fn create(options: &OpenOptions, path: &Path) -> io::Result<File> {
    match fate()? {
        Fate::Whole => making(path, || options.open(path)),
        Fate::Half => Err(crash()),
    }
}

/// Makes a new file.
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

/// Copies the contents of a file to an empty file. Blocks are shared if the file system can do
/// that.
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

/// Exchanges two files or directories.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    whole(|| {
        rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?;
        watch(|unsynced| {
            // The other path was on disk before, and its former contents are not needed any more.
            unsynced.forget(other);
            unsynced.moved(one, other);
        });
        Ok(())
    })
}

pub(crate) fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    whole(|| making(to, || std::fs::hard_link(from, to)))
}

/// Renames a file, unless the new name is taken: then the file is removed, and what has the name
/// stays as it is. Of several that do so at the same time, one gets the name.
pub(crate) fn rename_if_free(from: &Path, to: &Path) -> io::Result<()> {
    whole(|| {
        match std::fs::hard_link(from, to) {
            Ok(()) => watch(|unsynced| unsynced.moved(from, to)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        watch(|unsynced| unsynced.forget(from));
        std::fs::remove_file(from)
    })
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
