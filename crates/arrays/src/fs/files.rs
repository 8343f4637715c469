//! Files and directories as stores use them: errors of the operating system get a path.

use std::fs::{DirEntry, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use penstock_bucket::{Place, is_url};
use penstock_engine::{Error, Kind, Result};
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;

use serde_json::Value;

use super::ops;
use crate::json;

/// The most syncs of a thread that are under way at once.
const SYNCS_MAX: usize = 4;

/// Locks a mutex, also after a panic of another holder: the guarded values here are valid at any
/// time.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes all of `data` at `offset`.
pub(crate) fn write_at(file: &File, data: &[u8], offset: u64, path: &Path) -> Result<()> {
    ops::write_all_at(file, data, offset, path)
        .map_err(|e| Error::io(&e, "writing", path).in_bytes(offset..offset + data.len() as u64))
}

/// The error of a file that would be longer than files can be.
pub(crate) fn too_long(path: &Path) -> Error {
    Error::new(Kind::Full, "writing", "a file has at most 2^63 bytes").at(path)
}

/// Memory of `bytes` bytes, all zero: as many as metadata say, which may be more than there are.
///
/// # Errors
/// When there is no memory for it.
pub(crate) fn zeros(bytes: u64) -> Result<Vec<u8>> {
    let mut zeros = Vec::new();
    let size = usize::try_from(bytes).unwrap_or(usize::MAX);
    let taken = zeros.try_reserve_exact(size);
    let no_memory = |e| Error::new(Kind::Io, format!("taking {bytes} bytes of memory"), e);
    taken.map_err(no_memory)?;
    zeros.resize(size, 0);
    Ok(zeros)
}

/// Fills all of `data` from `offset`. A file that ends before that is damaged.
pub(crate) fn read_at(file: &File, data: &mut [u8], offset: u64, path: &Path) -> Result<()> {
    file.read_exact_at(data, offset).map_err(|e| {
        let error = Error::io(&e, "reading", path).in_bytes(offset..offset + data.len() as u64);
        match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                let bytes = file.metadata().map(|meta| meta.len()).unwrap_or(0);
                let cause = format!("the file is cut short: it has {bytes} bytes");
                Error { cause, ..error }
            }
            _ => error,
        }
    })
}

/// Fills all of `data` from `offset` of a file, or of an object in a bucket, on. Gives whether it
/// is there.
///
/// # Errors
/// [`Kind::Damaged`] when it ends before that.
pub(crate) fn read_part_if_there(path: &Path, data: &mut [u8], offset: u64) -> Result<bool> {
    if let Some(place) = Place::of(path)? {
        return place.read_part(data, offset);
    }
    let Some(file) = open_if_there(path)? else {
        return Ok(false);
    };
    read_at(&file, data, offset, path)?;
    Ok(true)
}

/// Opens a file for reading; `None` if it is missing.
pub(crate) fn open_if_there(path: &Path) -> Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(Error::io(&error, "opening", path)),
    }
}

/// Reads all of a file, or of an object in a bucket; `None` if it is missing.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>> {
    if let Some(place) = Place::of(path)? {
        return Ok(place.read()?.map(|(bytes, _)| bytes.into()));
    }
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(Error::io(&error, "reading", path)),
    }
}

/// The path from the root of the file system, or the URL as it is.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    match is_url(path) {
        true => Ok(path.to_path_buf()),
        false => std::path::absolute(path).map_err(|e| Error::io(&e, "looking for", path)),
    }
}

/// Whether a file, or an object in a bucket, is there. An object counts as there if the service
/// does not answer: its reader will hear the reason.
pub(crate) fn is_there(path: &Path) -> bool {
    match Place::of(path) {
        Ok(Some(place)) => !matches!(place.about(), Ok(None)),
        _ => path.exists(),
    }
}

/// The names of all directories in a directory, or in a place of a bucket, in order.
pub(crate) fn directories_in(directory: &Path) -> Result<Vec<String>> {
    if let Some(place) = Place::of(directory)? {
        return place.directories();
    }
    let entries = entries(directory)?.into_iter();
    let directories = entries.filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = directories
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

/// The paths of all files below a directory, or of all objects below a place of a bucket, that
/// `wanted` takes, relative to it.
pub(crate) fn keys_below(directory: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<Vec<String>> {
    if let Some(place) = Place::of(directory)? {
        return place.keys_below(wanted);
    }
    let mut keys = Vec::new();
    let mut above = vec![String::new()];
    while let Some(prefix) = above.pop() {
        for entry in entries(&directory.join(&prefix))? {
            let key = format!("{prefix}{}", entry.file_name().to_string_lossy());
            match entry.path().is_dir() {
                true => above.push(format!("{key}/")),
                false if wanted(&key) => keys.push(key),
                false => {}
            }
        }
    }
    Ok(keys)
}

/// The entries of a directory.
pub(crate) fn entries(directory: &Path) -> Result<Vec<DirEntry>> {
    let looking = |e: io::Error| Error::io(&e, "looking into", directory);
    let entries = std::fs::read_dir(directory).map_err(looking)?;
    entries.collect::<io::Result<_>>().map_err(looking)
}

/// Whether a directory is empty.
pub(crate) fn is_empty(directory: &Path) -> Result<bool> {
    entries(directory).map(|entries| entries.is_empty())
}

/// Reads a JSON file; `None` if it is missing.
///
/// # Errors
/// [`Kind::Damaged`] when the file is not a JSON object.
pub(crate) fn read_json(path: &Path) -> Result<Option<Value>> {
    let Some(bytes) = read_if_there(path)? else {
        return Ok(None);
    };
    let json = json::parse(&bytes).map_err(|e| damaged(path, format!("it is not JSON: {e}")))?;
    match json.is_object() {
        true => Ok(Some(json)),
        false => Err(damaged(path, "it is not a JSON object")),
    }
}

/// Whether an error says that there is no such file, or cannot be.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// What the file system says of an open file.
pub(crate) fn metadata(file: &File, path: &Path) -> Result<Metadata> {
    file.metadata()
        .map_err(|e| Error::io(&e, "looking at", path))
}

/// The length of an open file.
pub(crate) fn length(file: &File, path: &Path) -> Result<u64> {
    Ok(metadata(file, path)?.len())
}

/// Writes a small file, and begins its writeback. The file is on stable storage once [`sync_paths`]
/// has synced it. In a bucket this puts an object, which is on stable storage at once.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(place) = Place::of(path)? {
        return place.write(bytes.to_vec());
    }
    let write = || {
        let file = ops::create_new(path)?;
        ops::write_all_at(&file, bytes, 0, path)?;
        Ok(file)
    };
    let file = write().map_err(|e| Error::io(&e, "writing", path))?;
    start_writeback(&file, 0, 0, path)
}

/// Writes a JSON file, which is yet to be synced.
pub(crate) fn write_json(path: &Path, json: &Value) -> Result<()> {
    write(path, &json::text(json))
}

/// Writes a JSON file aside, at `new`, and puts it in its place: the former one or all of the new
/// one is there, also after a power failure.
pub(crate) fn put_json(new: &Path, json: &Value, place: &Path) -> Result<()> {
    remove_if_there(new)?;
    write_json(new, json)?;
    sync_path(new)?;
    put_in_place(new, place)
}

/// Makes a directory, which is yet to be synced. A bucket has none.
pub(crate) fn make_directory(path: &Path) -> Result<()> {
    if is_url(path) {
        return Ok(());
    }
    ops::create_dir(path).map_err(|e| Error::io(&e, "making the directory", path))
}

/// Makes a file of `bytes` bytes, the first of them `header` and the others a hole. It is yet to be
/// synced.
pub(crate) fn make_file(path: &Path, header: &[u8], bytes: u64) -> Result<()> {
    let make = || {
        let file = ops::create_new(path)?;
        ops::set_len(&file, bytes, path)?;
        ops::write_all_at(&file, header, 0, path)
    };
    make().map_err(|e| Error::io(&e, "making", path))
}

/// Makes the missing ones among files of these lengths, with all zeros. Gives the new files, which
/// are yet to be synced.
pub(crate) fn make_missing(
    files: impl IntoIterator<Item = (PathBuf, u64)>,
) -> Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    for (path, bytes) in files.into_iter().filter(|(path, _)| !path.exists()) {
        make_file(&path, &[], bytes)?;
        made.push(path);
    }
    Ok(made)
}

/// Renames a file or directory to its place. The directory above is yet to be synced.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    ops::rename(from, to).map_err(|e| Error::io(&e, "renaming into place", to))
}

/// Renames a file or directory to its place, and syncs the directory above.
pub(crate) fn put_in_place(from: &Path, to: &Path) -> Result<()> {
    rename(from, to)?;
    sync_parent(to)
}

/// Removes a file, or a directory with all of its entries; in a bucket an object, and all below it.
pub(crate) fn remove_if_there(path: &Path) -> Result<()> {
    if let Some(place) = Place::of(path)? {
        return place.remove_tree();
    }
    let removed = match std::fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(found) if found.is_dir() => ops::remove_dir_all(path),
        Ok(_) => ops::remove_file(path),
    };
    removed.map_err(|e| Error::io(&e, "removing", path))
}

/// Removes all entries of a directory but those with the names in `kept`.
pub(crate) fn remove_but(kept: &[&str], directory: &Path) -> Result<()> {
    for entry in entries(directory)? {
        if !kept.iter().any(|kept| entry.file_name() == *kept) {
            remove_if_there(&entry.path())?;
        }
    }
    Ok(())
}

/// Links into the directory `to` all files of `from` that it lacks, or copies them where the file
/// system has no hard links, and syncs the directories.
pub(crate) fn link_tree(from: &Path, to: &Path) -> Result<()> {
    for entry in entries(from)? {
        let (old, new) = (entry.path(), to.join(entry.file_name()));
        let is_there = new.exists();
        if entry.file_type().is_ok_and(|found| found.is_dir()) {
            if !is_there {
                make_directory(&new)?;
            }
            link_tree(&old, &new)?;
        } else if !is_there && ops::hard_link(&old, &new).is_err() {
            clone(&old, &new)?;
            sync_path(&new)?;
        }
    }
    sync_path(to)
}

/// The result of an attempt to lock.
pub(crate) enum Lock {
    /// This process has the lock.
    Taken,
    /// Another process has the lock.
    Held,
    /// The file system has no locks.
    Unsupported,
}

/// Tries to lock a file against other processes, for as long as it is open.
pub(crate) fn try_lock(file: &File) -> Lock {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Lock::Taken,
        Err(Errno::WOULDBLOCK) => Lock::Held,
        Err(_) => Lock::Unsupported,
    }
}

/// Writes a small file and syncs it.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, bytes)?;
    sync_path(path)
}

/// Copies a file to a new path. Blocks are shared if the file system can do that.
pub(crate) fn clone(from: &Path, to: &Path) -> Result<()> {
    let source = File::open(from).map_err(|e| Error::io(&e, "opening", from))?;
    let clone = || {
        let target = ops::create_new(to)?;
        target.set_permissions(source.metadata()?.permissions())?;
        ops::copy(&source, &target, to)
    };
    clone().map_err(|e| Error::io(&e, "copying to", to))
}

/// Syncs a file or directory by its name. What is in a bucket is on stable storage already.
pub(crate) fn sync_path(path: &Path) -> Result<()> {
    if is_url(path) {
        return Ok(());
    }
    let sync = || ops::sync(&File::open(path)?, path);
    sync().map_err(|e| Error::io(&e, "syncing", path))
}

/// Syncs the directory above a path.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), sync_path)
}

/// Syncs files and directories by their names, several at a time: a file system's journal takes all
/// waiting syncs into one commit, so that many syncs cost little more than one. The syncs are
/// waited for, the threads are not: on busy processors a thread may come when nothing is left to
/// do.
pub(crate) fn sync_paths(paths: &[PathBuf]) -> Result<()> {
    if let [path] = paths {
        return sync_path(path);
    }
    let (answer, answers) = mpsc::channel();
    let todo = Arc::new((paths.to_vec(), AtomicUsize::new(0)));
    let sync_some = move || {
        let (paths, next) = &*todo;
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            let _ = answer.send(sync_path(path)); // the caller waits for it, or has panicked
        }
    };
    for _ in 1..paths.len().min(SYNCS_MAX) {
        // A thread that cannot start is not needed: the others do its part.
        let _ = std::thread::Builder::new().spawn(sync_some.clone());
    }
    sync_some();
    drop(sync_some); // and with it its end of the channel
    let died = |_| Error::new(Kind::Io, "syncing", "a thread ended before it had synced");
    let waited = paths.iter().map(|_| answers.recv().map_err(died)?);
    waited.fold(Ok(()), Result::and)
}

/// Allocates disk space for `bytes` bytes that are about to be written. One allocation is cheaper
/// than one for each page, as the page cache makes them, and a full disk gives an error before
/// anything is written.
pub(crate) fn take_space(file: &File, offset: u64, bytes: usize, path: &Path) -> Result<()> {
    let flags = FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, offset, bytes as u64) {
        // Without fallocate, the file system allocates as it writes. A signal may also have
        // interrupted the call.
        Ok(())
        | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM | Errno::INTR) => Ok(()),
        Err(error) => Err(Error::io(&error.into(), "taking space for", path)
            .in_bytes(offset..offset + bytes as u64)),
    }
}

/// Asks the kernel to begin the writeback of `bytes` bytes of the file, 0 for all from `offset` on,
/// without waiting: a later sync then has little left to do.
pub(crate) fn start_writeback(file: &File, offset: u64, bytes: usize, path: &Path) -> Result<()> {
    let (offset, bytes) = (offset as i64, bytes as i64);
    // SAFETY: the descriptor is open for the length of the call, which takes no memory.
    let answer = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, bytes, libc::SYNC_FILE_RANGE_WRITE)
    };
    if answer == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // The kernel or the file system lacks the call: fsync will do all of the work.
        Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE | libc::EOPNOTSUPP | libc::EPERM) => Ok(()),
        _ => Err(Error::io(&error, "writing back", path)),
    }
}

/// The error for contents that do not belong in a file.
pub(crate) fn damaged(path: &Path, cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Damaged, "reading", cause).at(path)
}

/// The objects that were closed, with their numbers.
pub(crate) type ClosedObjects<T> = Vec<(u64, Arc<T>)>;

/// A few open objects. The least recently used is closed first, but never one in use.
pub(crate) struct Open<T> {
    /// The open objects, the most recently used last.
    entries: Mutex<Vec<(u64, Arc<T>)>>,
    capacity: usize,
}

impl<T> Open<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            entries: Mutex::new(Vec::new()),
            capacity,
        }
    }

    /// Gives the open file of `object`, opens it if need be, and gives the objects that were closed
    /// for it. No two threads ask for one object at the same time, so no object is opened twice.
    pub(crate) fn get(
        &self,
        object: u64,
        open: impl FnOnce() -> Result<T>,
    ) -> Result<(Arc<T>, ClosedObjects<T>)> {
        {
            let mut entries = lock(&self.entries);
            if let Some(at) = entries.iter().rposition(|entry| entry.0 == object) {
                let entry = entries.remove(at);
                let found = Arc::clone(&entry.1);
                entries.push(entry);
                return Ok((found, Vec::new()));
            }
        }
        let opened = Arc::new(open()?);
        let mut entries = lock(&self.entries);
        entries.push((object, Arc::clone(&opened)));
        let mut given_up = Vec::new();
        while entries.len() > self.capacity {
            let idle = entries
                .iter()
                .position(|entry| Arc::strong_count(&entry.1) == 1);
            match idle {
                Some(at) => given_up.push(entries.remove(at)),
                None => break,
            }
        }
        Ok((opened, given_up))
    }

    /// The open file of `object`, if there is one.
    pub(crate) fn peek(&self, object: u64) -> Option<Arc<T>> {
        let entries = lock(&self.entries);
        let found = entries.iter().find(|entry| entry.0 == object);
        found.map(|entry| Arc::clone(&entry.1))
    }

    /// Takes out an open object that is not in use.
    pub(crate) fn take(&self, object: u64) -> Option<T> {
        let mut entries = lock(&self.entries);
        let at = entries.iter().position(|entry| entry.0 == object)?;
        Arc::into_inner(entries.remove(at).1)
    }

    /// Takes out all open objects.
    pub(crate) fn drain(&self) -> ClosedObjects<T> {
        std::mem::take(&mut *lock(&self.entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_is_given_up_unless_in_use() {
        let open = Open::new(2);
        let (first, gone) = open.get(1, || Ok(10)).unwrap();
        assert!(gone.is_empty());
        open.get(2, || Ok(20)).unwrap();
        // 1 is the older but in use: 2 goes.
        let (_, gone) = open.get(3, || Ok(30)).unwrap();
        assert_eq!(gone.iter().map(|entry| entry.0).collect::<Vec<_>>(), [2]);
        drop(first);
        open.get(1, || unreachable!()).unwrap();
        let (_, gone) = open.get(4, || Ok(40)).unwrap();
        assert_eq!(gone.iter().map(|entry| entry.0).collect::<Vec<_>>(), [3]);
        assert_eq!(open.drain().len(), 2);
    }

    #[test]
    fn of_many_syncs_one_that_fails_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = |n: usize| directory.path().join(n.to_string());
        for count in [0, 1, SYNCS_MAX, 3 * SYNCS_MAX] {
            let paths: Vec<_> = (0..count).map(path).collect();
            for path in &paths {
                std::fs::write(path, "synced").unwrap();
            }
            sync_paths(&paths).unwrap();
            for missing in &paths {
                std::fs::remove_file(missing).unwrap();
                let error = sync_paths(&paths).unwrap_err();
                let missing_path = missing.display().to_string();
                assert_eq!(
                    (error.kind, error.path),
                    (Kind::Missing, Some(missing_path))
                );
                std::fs::write(missing, "again").unwrap();
            }
        }
    }

    #[test]
    fn space_that_is_taken_is_not_yet_content() {
        use std::os::unix::fs::MetadataExt;

        const BYTES: usize = 1 << 20;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let file = ops::create_new(&path).unwrap();
        take_space(&file, 4096, BYTES, &path).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), 0);
        if metadata.blocks() == 0 {
            eprintln!("the file system takes space as it writes: not tested");
        } else {
            assert!(metadata.blocks() * 512 >= BYTES as u64);
        }
        let too_much = take_space(&file, 0, 1 << 60, &path);
        assert!(too_much.is_err() || file.metadata().unwrap().blocks() == 0);
    }

    #[test]
    fn bytes_that_are_not_there_are_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        write_synced(&path, b"abc").unwrap();
        let error = read_at(&File::open(&path).unwrap(), &mut [0; 4], 1, &path).unwrap_err();
        assert_eq!((error.kind, error.bytes), (Kind::Damaged, Some(1..5)));
        assert!(error.cause.contains("3 bytes"));
        assert!(open_if_there(&path.join("below")).unwrap().is_none());
    }
}
