//! Where the bytes of a file are: in a file of the operating system, or in a parallel file of a
//! volume whose servers stand.
//!
//! | file name | where |
//! |---|---|
//! | `/path`, `path`, `ufs:/path` | the operating system's |
//! | `penstock://host:7433,host2:7433/path` | the volume whose servers have these addresses |
//! | `unix:///run/penstock.sock:/path` | the volume whose server has this socket |
//!
//! A parallel file is used in its canonical order: its BSUs go round-robin over its cells.

use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures::channel::oneshot;
use penstock_engine::Operation;
use penstock_files::job::{self, FileSystem, Memory as JobMemory, OpenFile, OpenView};

use penstock_files::{FileChange, FilePath, Mode as Usage, Selection, Version};
use penstock_layout::{List, SubfileOrder, View, exact};
use penstock_machines::DeviceId;
use penstock_net::Call;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::ask::error_of;
use crate::context::{Context, lock};
use crate::failure::{Class, Failure, Result, wrong};
use crate::medium::Open;
use crate::mode::Mode;
use crate::posix;

/// What a file name says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// A path of the operating system.
    Path(PathBuf),
    /// A path in a volume whose servers stand: their URL, and the path.
    Volume(String, String),
}

/// The names of file systems that ROMIO knows before a colon.
const FILE_SYSTEMS: [&str; 6] = ["ufs", "nfs", "xfs", "lustre", "gpfs", "file"];

impl Name {
    /// Reads a file name.
    ///
    /// # Errors
    /// [`Class::BadFile`] when there is none, or no path in a volume.
    pub fn read(name: &str) -> Result<Self> {
        const PENSTOCK: &str = "penstock://";
        const UNIX: &str = "unix://";
        let in_volume = |scheme: &str, rest: &str, place: Option<usize>| match place {
            Some(place) => {
                let (servers, path) = rest.split_at(place);
                let url = format!("{scheme}{servers}");
                Ok(Self::Volume(url, path.trim_start_matches(':').to_string()))
            }
            None => {
                let cause = format!("{name} names no file in the volume");
                Err(wrong(Class::BadFile, cause))
            }
        };
        if let Some(rest) = name.strip_prefix(PENSTOCK) {
            return in_volume(PENSTOCK, rest, rest.find('/'));
        }
        if let Some(rest) = name.strip_prefix(UNIX) {
            return in_volume(UNIX, rest, rest.find(":/"));
        }
        let path = match name.split_once(':') {
            Some((before, path)) if FILE_SYSTEMS.contains(&before) => path,
            _ => name,
        };
        match path.is_empty() {
            true => Err(wrong(Class::BadFile, "the file name is empty")),
            false => Ok(Self::Path(path.into())),
        }
    }

    /// Deletes the file.
    ///
    /// # Errors
    /// What the operating system or the servers answer.
    pub fn delete(&self) -> Result<()> {
        match self {
            Self::Path(path) => {
                let deleted = rustix::fs::unlink(path);
                deleted.map_err(|error| Failure::os(error, "deleting", path))
            }
            Self::Volume(url, path) => {
                let fs = job::standing::connect(&call(url)?, None)?;
                let removed = fs.remove(FilePath::new(path)?);
                fs.close()?;
                Ok(removed?)
            }
        }
    }
}

fn call(url: &str) -> Result<Call> {
    let call = Call::of_url(url, None)?;
    call.ok_or_else(|| wrong(Class::BadFile, format_args!("{url} is no URL of servers")))
}

/// A file that this process has open.
pub enum Storage {
    File(Arc<Open>),
    Volume(Box<VolumeFile>),
}

/// A parallel file of a volume whose servers stand. The ranks of the file are a program of their
/// own for the servers.
pub struct VolumeFile {
    fs: FileSystem,
    file: OpenFile,
    /// The file in its canonical order.
    whole: OpenView,
    name: String,
    path: FilePath,
    /// Tells the end of the last collective access that was begun.
    last: Mutex<Option<oneshot::Receiver<()>>>,
}

impl Storage {
    /// Opens a file. `first` says whether this process makes it, if it is to be made. `fs` is the
    /// program that the ranks are, for a file of a volume.
    ///
    /// # Errors
    /// What the operating system or the servers answer.
    pub fn open(name: &Name, mode: Mode, first: bool, fs: Option<FileSystem>) -> Result<Self> {
        match (name, fs) {
            (Name::Path(path), _) => Ok(Self::File(Arc::new(open_path(path, mode, first)?))),
            (Name::Volume(url, path), Some(fs)) => {
                let name = format!("{url}{path}");
                let volume = VolumeFile::open(fs, name, path, mode, first)?;
                Ok(Self::Volume(Box::new(volume)))
            }
            (Name::Volume(..), None) => Err(wrong(Class::Other, "there is no connection")),
        }
    }

    /// The file of the operating system, if it is one.
    pub fn file(&self) -> Option<&Arc<Open>> {
        match self {
            Self::File(open) => Some(open),
            Self::Volume(_) => None,
        }
    }

    /// The parallel file, if it is one.
    pub fn volume(&self) -> Option<&VolumeFile> {
        match self {
            Self::File(_) => None,
            Self::Volume(volume) => Some(volume),
        }
    }

    /// The name of the file, for people.
    pub fn name(&self) -> String {
        match self {
            Self::File(open) => open.path.display().to_string(),
            Self::Volume(volume) => volume.name.clone(),
        }
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// What the operating system or the servers answer.
    pub fn size(&self) -> Result<u64> {
        match self {
            Self::File(open) => told(open, posix::size(&open.descriptor), "looking at"),
            Self::Volume(volume) => volume.size(),
        }
    }

    /// Sets the bytes of the file.
    ///
    /// # Errors
    /// As [`Storage::size`].
    pub fn set_size(&self, bytes: u64) -> Result<()> {
        match self {
            Self::File(open) => told(
                open,
                rustix::fs::ftruncate(&open.descriptor, bytes),
                "resizing",
            ),
            Self::Volume(volume) => {
                let change = FileChange::Truncate(bytes);
                Ok(volume.fs.change(volume.path.clone(), change)?)
            }
        }
    }

    /// Reserves space for so many bytes: the file has as many then, or more.
    ///
    /// # Errors
    /// As [`Storage::size`].
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        match self {
            Self::File(open) => {
                let none = FallocateFlags::empty();
                let reserved = rustix::fs::fallocate(&open.descriptor, none, 0, bytes);
                told(open, reserved, "reserving space for")
            }
            Self::Volume(volume) => match volume.size()? < bytes {
                true => self.set_size(bytes),
                false => Ok(()),
            },
        }
    }

    /// Puts what was written on stable storage.
    ///
    /// # Errors
    /// As [`Storage::size`].
    pub fn sync(&self) -> Result<()> {
        match self {
            Self::File(open) => told(open, rustix::fs::fsync(&open.descriptor), "syncing"),
            Self::Volume(volume) => Ok(volume.file.sync()?),
        }
    }

    /// Deletes the file, which is still open here.
    ///
    /// # Errors
    /// As [`Storage::size`].
    pub fn delete(&self) -> Result<()> {
        match self {
            Self::File(open) => told(open, rustix::fs::unlink(&open.path), "deleting"),
            Self::Volume(volume) => Ok(volume.fs.remove(volume.path.clone())?),
        }
    }

    /// Ends the use of the file, together with the other ranks.
    ///
    /// # Errors
    /// As [`Storage::size`].
    pub fn close(&self) -> Result<()> {
        match self {
            Self::File(_) => Ok(()),
            Self::Volume(volume) => {
                volume.file.clone().detach()?;
                Ok(volume.fs.close()?)
            }
        }
    }

    /// Moves a run of memory to or from a run of the file, and gives the bytes that there were.
    ///
    /// # Errors
    /// As [`Storage::size`].
    ///
    /// # Safety
    /// The memory must be the program's for this access, and nobody else may use it meanwhile.
    pub unsafe fn move_run(
        &self,
        operation: Operation,
        place: u64,
        (run, bytes): (*mut u8, u64),
    ) -> Result<u64> {
        match self {
            Self::File(open) => {
                let (file, length) = (open.descriptor.as_fd(), exact::<usize>(bytes));
                let moved = match operation {
                    Operation::Write => {
                        // SAFETY: the caller's promise.
                        let run = unsafe { std::slice::from_raw_parts(run, length) };
                        posix::write_at(file, place, run).map(|()| bytes)
                    }
                    Operation::Read => {
                        // SAFETY: the caller's promise.
                        let run = unsafe { std::slice::from_raw_parts_mut(run, length) };
                        posix::read_at(file, place, run).map(|read| read as u64)
                    }
                };
                told(open, moved, doing(operation))
            }
            Self::Volume(volume) => {
                let wanted = Selection::from((place, bytes));
                // SAFETY: the caller's promise.
                unsafe { volume.select(operation, wanted, (run, bytes)) }
            }
        }
    }

    /// Moves the bytes of a list of memory, of `bytes` bytes from `base` on, to or from those of a
    /// list of the file. Gives how many there were.
    ///
    /// # Errors
    /// As [`Storage::size`].
    ///
    /// # Safety
    /// As [`Storage::move_run`].
    pub unsafe fn move_lists(
        &self,
        operation: Operation,
        places: List,
        (base, bytes): (*mut u8, u64),
        memory: List,
    ) -> Result<u64> {
        match self {
            Self::File(open) => {
                let file = open.descriptor.as_fd();
                // SAFETY: the caller's promise.
                let moved = unsafe {
                    match operation {
                        Operation::Write => {
                            let written = posix::write_lists(file, &places, base, &memory);
                            written.map(|()| places.elements())
                        }
                        Operation::Read => posix::read_lists(file, &places, base, &memory),
                    }
                };
                told(open, moved, doing(operation))
            }
            Self::Volume(volume) => {
                let mut moved = 0;
                for (places, memory) in ascending(places, memory)? {
                    let wanted = Selection::Lists {
                        places: Arc::new(places),
                        memory: Arc::new(memory),
                    };
                    // SAFETY: the caller's promise.
                    moved += unsafe { volume.select(operation, wanted, (base, bytes))? };
                }
                Ok(moved)
            }
        }
    }
}

/// Cuts two lists of equally many bytes, so that the first ascends in each part: servers are told
/// of no byte twice in one request.
fn ascending(places: List, memory: List) -> Result<Vec<(List, List)>> {
    let (mut end, mut ascends) = (0, true);
    for (start, length) in places.iter() {
        ascends &= start >= end;
        end = start + length;
    }
    if ascends {
        return Ok(vec![(places, memory)]);
    }
    let mut parts: Vec<(List, List)> = Vec::new();
    let mut end = u64::MAX;
    for pair in posix::pairs(&places, &memory) {
        if pair.file < end {
            parts.push(Default::default());
        }
        end = pair.file + pair.bytes;
        if let Some((places, memory)) = parts.last_mut() {
            let added = places.add(pair.file, pair.bytes, &[]);
            let added = added.and_then(|()| memory.add(pair.memory, pair.bytes, &[]));
            added.map_err(|error| wrong(Class::Arg, error))?;
        }
    }
    Ok(parts)
}

/// The place of a collective access of a volume behind those that were begun before.
pub struct VolumeTurn {
    before: Option<oneshot::Receiver<()>>,
    _ends: oneshot::Sender<()>,
}

impl VolumeTurn {
    /// Waits until the accesses before have ended.
    pub async fn come(&mut self) {
        if let Some(before) = self.before.take() {
            let _ = before.await; // it is dropped at the end
        }
    }
}

impl VolumeFile {
    fn open(fs: FileSystem, name: String, path: &str, mode: Mode, first: bool) -> Result<Self> {
        let path = FilePath::new(path)?;
        if first && mode.create {
            let made = fs.create(path.clone(), fs.shape(None, None, None), 0o666 & !umask());
            match made {
                Err(error) if error.kind == penstock_engine::Kind::Exists && !mode.excl => {}
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
        }
        let usage = Usage {
            reads: mode.reads,
            writes: mode.writes,
            is_reckless: true,
        };
        let file = fs.attach(path.clone(), usage)?;
        let (view, order) = (View::striped(), SubfileOrder::Row);
        let whole = file.open(view, 0, order, Version::Active, None)?;
        Ok(Self {
            fs,
            file,
            whole,
            name,
            path,
            last: Mutex::default(),
        })
    }

    fn size(&self) -> Result<u64> {
        let attachment = self.file.attachment();
        let object = attachment.object.clone();
        let cells = self.fs.cell_bytes(object, Version::Active)?;
        Ok(attachment.shape.size(cells))
    }

    /// Takes the place behind the collective accesses that were begun before.
    pub fn turn(&self) -> VolumeTurn {
        let (ends, end) = oneshot::channel();
        VolumeTurn {
            before: lock(&self.last).replace(end),
            _ends: ends,
        }
    }

    /// Moves bytes of the file. Bytes that were never written are zeros: the caller asks for none
    /// behind the end of the file.
    ///
    /// # Safety
    /// As [`Storage::move_run`].
    unsafe fn select(
        &self,
        operation: Operation,
        wanted: Selection,
        (base, bytes): (*mut u8, u64),
    ) -> Result<u64> {
        let all = wanted.bytes();
        // SAFETY: the caller's promise.
        let memory = || unsafe { JobMemory::new(base, bytes, None) };
        let moved = self.whole.select(operation, wanted.clone(), memory())?;
        if moved.bytes < all && operation == Operation::Read {
            // SAFETY: the caller's promise.
            unsafe { clear(&wanted, (base, bytes)) };
            self.whole.select(operation, wanted, memory())?;
        }
        Ok(all)
    }

    /// Moves bytes of the file together with all ranks; `part` may be the reason why this rank has
    /// none. Ends when that has ended, and lets this thread do something else meanwhile.
    ///
    /// # Errors
    /// The same on all ranks.
    ///
    /// # Safety
    /// As [`Storage::move_run`], until the future has ended.
    pub async unsafe fn select_all(
        self: &VolumeFile,
        operation: Operation,
        part: Result<(Selection, (usize, u64))>,
    ) -> Result<()> {
        let (file, whole) = (self.file.clone(), self.whole.clone());
        let (ended, end) = oneshot::channel();
        let act = move || {
            let own = part.as_ref().map_err(error_of);
            let own = own.map(|(wanted, (base, bytes))| {
                // SAFETY: the caller's promise.
                let memory = unsafe { JobMemory::new(*base as *mut u8, *bytes, None) };
                (whole.clone(), wanted.clone(), memory)
            });
            let moved = file.access_all(operation, own);
            let done = moved.map_err(Failure::from).and_then(|moved| match &part {
                Ok((wanted, (base, bytes)))
                    if operation == Operation::Read && moved.bytes < wanted.bytes() =>
                {
                    // SAFETY: the caller's promise.
                    unsafe {
                        let base = *base as *mut u8;
                        clear(wanted, (base, *bytes));
                        let memory = JobMemory::new(base, *bytes, None);
                        whole.select(operation, wanted.clone(), memory)?;
                    }
                    Ok(())
                }
                _ => Ok(()),
            });
            let _ = ended.send(done); // it is awaited below
        };
        // It waits for other ranks, which may make accesses of several files in another order: so
        // it has a thread of its own.
        let thread = std::thread::Builder::new().name("penstock-volume".to_string());
        thread.spawn(act).map_err(|error| {
            Failure::new(Class::Other, format_args!("starting a thread: {error}"))
        })?;
        let gone = || Failure::new(Class::Other, "a collective access of a volume was given up");
        end.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// Makes the bytes of memory zeros that a read wants.
///
/// # Safety
/// As [`Storage::move_run`].
unsafe fn clear(wanted: &Selection, (base, bytes): (*mut u8, u64)) {
    let zero = |range: Range<u64>| {
        let (start, length) = (
            exact::<usize>(range.start),
            exact::<usize>(range.end - range.start),
        );
        // SAFETY: the caller's promise: the list is of this memory.
        unsafe { std::ptr::write_bytes(base.add(start), 0, length) };
    };
    match wanted {
        Selection::Range { .. } => zero(0..bytes),
        Selection::Lists { memory, .. } => {
            memory
                .iter()
                .for_each(|(start, length)| zero(start..start + length));
        }
    }
}

/// The program that the ranks of a context are for the servers of a volume.
///
/// # Errors
/// When a rank cannot reach the servers.
///
/// # Collective
/// Over the ranks of the context.
pub fn connect(context: &Context, url: &str) -> Result<FileSystem> {
    let asked = call(url).map_err(|failure| error_of(&failure));
    match context.size {
        1 => Ok(job::standing::connect(&asked?, None)?),
        _ => {
            let api = context.mpi.api()?;
            Ok(job::standing::connect_all(
                (api, context.comm),
                asked,
                None,
            )?)
        }
    }
}

fn doing(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "reading",
        Operation::Write => "writing",
    }
}

/// Names the file in an answer of the operating system.
fn told<T>(open: &Open, answer: std::result::Result<T, Errno>, doing: &str) -> Result<T> {
    answer.map_err(|error| Failure::os(error, doing, &open.path))
}

/// The permissions that new files do not get.
fn umask() -> u16 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = line.and_then(|mask| u16::from_str_radix(mask.trim(), 8).ok());
    mask.unwrap_or(0o022)
}

/// Opens a file of the operating system, and makes it if it is to be made and this process is the
/// `first`.
fn open_path(path: &Path, mode: Mode, first: bool) -> Result<Open> {
    let mut options = std::fs::OpenOptions::new();
    options.read(mode.reads).write(mode.writes);
    options.custom_flags(libc::O_CLOEXEC);
    if first && mode.create {
        match mode.excl {
            true => options.create_new(true),
            false => options.create(true),
        };
        options.mode(0o666);
    }
    let failed = |error: std::io::Error| {
        let error = error
            .raw_os_error()
            .map_or(Errno::IO, Errno::from_raw_os_error);
        Failure::os(error, "opening", path)
    };
    let opened = options.open(path).map_err(failed)?;
    let is_directory = opened.metadata().map_err(failed)?.is_dir();
    if is_directory {
        return Err(Failure::os(Errno::ISDIR, "opening", path));
    }
    let device = DeviceId::of(path);
    let device = device.ok_or_else(|| wrong(Class::NoSuchFile, "the file is gone"))?;
    Ok(Open {
        descriptor: opened.into(),
        path: path.into(),
        device,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_cut_where_they_go_back() {
        let places = List::runs(&[0, 10, 5, 6, 6], &[4, 2, 1, 3, 1]).unwrap();
        let memory = List::runs(&[100], &[11]).unwrap();
        let parts = ascending(places, memory).unwrap();
        let runs = |list: &List| list.iter().collect::<Vec<_>>();
        let parts: Vec<_> = parts
            .iter()
            .map(|(file, own)| (runs(file), runs(own)))
            .collect();
        let expected = [
            (vec![(0, 4), (10, 2)], vec![(100, 6)]),
            (vec![(5, 4)], vec![(106, 4)]),
            (vec![(6, 1)], vec![(110, 1)]),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn names_of_files() {
        let path = |path: &str| Name::Path(path.into());
        let volume = |url: &str, path: &str| Name::Volume(url.to_string(), path.to_string());
        let cases = [
            ("a/b", path("a/b")),
            ("/a:b", path("/a:b")),
            ("ufs:/a", path("/a")),
            (
                "penstock://h:1,i:2/a/b",
                volume("penstock://h:1,i:2", "/a/b"),
            ),
            ("unix:///run/p.sock:/a", volume("unix:///run/p.sock", "/a")),
        ];
        for (name, expected) in cases {
            assert_eq!(Name::read(name).unwrap(), expected);
        }
        for none in ["", "ufs:", "penstock://h:1", "unix:///run/p.sock"] {
            assert_eq!(
                Name::read(none).unwrap_err().class,
                Class::BadFile,
                "{none}"
            );
        }
    }
}
