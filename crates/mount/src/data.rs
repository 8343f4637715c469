//! Open files: reading, writing, syncing.

use std::cell::RefCell;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use fuser::{Errno, FopenFlags, OpenAccMode, OpenFlags, Request};
use penstock_engine::{Kind, Operation, Result};
use penstock_files::job::{Memory, OpenFile};
use penstock_files::{Details, FilePath, Mode, Moved, Version};
use penstock_layout::view::CELL_BYTES_MAX;
use penstock_layout::{SubfileOrder, exact};

use crate::errno::{self, Answer, gone};
use crate::open::OpenData;
use crate::state::{Mount, REQUEST_BYTES_MAX};
use crate::tree::number_of;
use crate::users;
use crate::views::{ViewName, size_of};

/// The flag with which the kernel opens a file that is to be executed.
const IS_EXECUTED: i32 = 0x20;

/// The time that a write to a full volume gives removed files to go.
const CLOSING: Duration = Duration::from_secs(10);

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

thread_local! {
    /// The bytes of a read, which each event loop uses again.
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The use of a file that is opened with these flags.
fn mode_of(flags: OpenFlags) -> Mode {
    let (reads, writes) = match flags.acc_mode() {
        OpenAccMode::O_RDONLY => (true, false),
        OpenAccMode::O_WRONLY => (false, true),
        OpenAccMode::O_RDWR => (true, true),
    };
    Mode {
        reads,
        writes,
        is_reckless: false,
    }
}

impl Mount {
    /// Opens a file for a user. Gives its handle, and how the kernel may cache it.
    pub(crate) fn open(
        &self,
        request: &Request,
        number: u64,
        flags: OpenFlags,
    ) -> Answer<(u64, FopenFlags)> {
        let mode = mode_of(flags);
        // Who may execute a file need not be able to read it.
        let who = match flags.0 & IS_EXECUTED {
            0 => users::identity(request),
            _ => self.fs.identity().clone(),
        };
        let fs = self.fs.as_user(who);
        self.attach(number, |node| fs.attach(node.clone(), mode))
    }

    /// Opens a file that its user has just made, with whatever mode.
    pub(crate) fn open_new(&self, number: u64, flags: OpenFlags) -> Answer<(u64, FopenFlags)> {
        let mode = mode_of(flags);
        self.attach(number, |node| self.fs.attach(node.clone(), mode))
    }

    fn attach(
        &self,
        number: u64,
        attach: impl Fn(&FilePath) -> Result<OpenFile>,
    ) -> Answer<(u64, FopenFlags)> {
        self.tree.open(number)?;
        let opened = self.attach_open(number, attach);
        if opened.is_err() {
            self.close_node(number);
        }
        opened
    }

    fn attach_open(
        &self,
        number: u64,
        attach: impl Fn(&FilePath) -> Result<OpenFile>,
    ) -> Answer<(u64, FopenFlags)> {
        let (node, file) = self.at(number, |node| {
            let file = attach(&node.path)?;
            match number_of(file.attachment().object.id) == number_of(node.id) {
                true => Ok((node.clone(), file)),
                false => {
                    file.detach()?;
                    Err(gone(&node.path)) // another file has come in its place
                }
            }
        })?;
        let attached = file.attachment().clone();
        let name = node.view.unwrap_or_else(ViewName::whole);
        let subfile = name.subfile(&attached.shape).ok_or(Errno::EINVAL)?;
        let order = SubfileOrder::Block;
        let view = file.open(name.view, name.subfile, order, Version::Active, None);
        let view = view.map_err(|error| errno::of(&error))?;
        let is_shared = attached.is_shared;
        let details = self.fs.details_of(attached.object);
        let details = details.map_err(|error| errno::of(&error))?;
        let handle = self.new_handle();
        let open = OpenData {
            number,
            file,
            view,
            subfile,
        };
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        files.insert(handle, Arc::new(open));
        drop(files);
        Ok((handle, self.caching(number, &details, is_shared)))
    }

    /// How the kernel may cache a file that is opened. What other programs have open, one of them
    /// to write, it does not cache; what nobody has changed since it was opened last, it keeps.
    fn caching(&self, number: u64, details: &Details, is_shared: bool) -> FopenFlags {
        let version = (details.modified(), details.size());
        let is_same = self.tree.see(number, version);
        match (is_shared, is_same) {
            (true, _) => FopenFlags::FOPEN_DIRECT_IO,
            (false, true) => FopenFlags::FOPEN_KEEP_CACHE,
            (false, false) => FopenFlags::empty(),
        }
    }

    fn open_data(&self, handle: u64) -> Answer<Arc<OpenData>> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.get(&handle).cloned().ok_or(Errno::EBADF)
    }

    /// Reads, and hands over what was read: less than was asked for at the end of the file alone.
    pub(crate) fn read(
        &self,
        handle: u64,
        (offset, bytes): (u64, u32),
        take: impl FnOnce(Answer<&[u8]>),
    ) {
        let open = match self.open_data(handle) {
            Ok(open) => open,
            Err(error) => return take(Err(error)),
        };
        let wanted = u64::from(bytes.min(REQUEST_BYTES_MAX));
        let wanted = wanted.min(CELL_BYTES_MAX.saturating_sub(offset));
        BYTES.with_borrow_mut(|buffer| {
            let wanted = exact::<usize>(wanted);
            buffer.resize(wanted.max(buffer.len()), 0);
            let read = self.read_whole(&open, offset, &mut buffer[..wanted]);
            take(read.map(|read| &buffer[..read]));
        });
    }

    /// Fills a buffer from an offset on. Gives the number of bytes before the end of the file.
    fn read_whole(&self, open: &OpenData, offset: u64, data: &mut [u8]) -> Answer<usize> {
        let all = data.len() as u64;
        if access(open, Operation::Read, offset, data)?.bytes == all {
            return Ok(data.len());
        }
        // There is a hole, or the end. What is before the end at this time is read again: it may
        // have been written since.
        let end = self.size(open)?.saturating_sub(offset).min(all);
        let data = &mut data[..exact::<usize>(end)];
        data.fill(0);
        if end > 0 {
            access(open, Operation::Read, offset, data)?;
        }
        Ok(data.len())
    }

    /// The size of an open file, or of an open view.
    fn size(&self, open: &OpenData) -> Answer<u64> {
        let object = open.file.attachment().object.clone();
        let cells = self.fs.cell_bytes(object, Version::Active);
        let cells = cells.map_err(|error| errno::of_access(&error))?;
        Ok(size_of(&open.subfile, cells))
    }

    /// Writes.
    pub(crate) fn write(
        &self,
        handle: u64,
        offset: u64,
        data: &[u8],
        takes_privileges: bool,
    ) -> Answer<u32> {
        let open = self.open_data(handle)?;
        if offset.saturating_add(data.len() as u64) > CELL_BYTES_MAX {
            return Err(Errno::EFBIG);
        }
        if takes_privileges {
            self.take_privileges(open.number)?;
        }
        let moved = self.with_space(|| {
            // SAFETY: a write only reads the memory, and has ended when this returns.
            let memory = unsafe { Memory::new(data.as_ptr().cast_mut(), data.len() as u64, None) };
            open.view.access(Operation::Write, offset, memory)
        });
        moved.map_err(|error| errno::of_access(&error))?;
        Ok(exact::<u32>(data.len() as u64))
    }

    /// Tries something again where the volume is full, as long as removed files may be about to
    /// go: the kernel tells of their last close after the program has gone on.
    fn with_space<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        let begin = Instant::now();
        loop {
            // Counted before the attempt: what goes during it lets it be made once more.
            let removed = self.tree.nameless();
            match attempt() {
                Err(error)
                    if error.kind == Kind::Full && removed > 0 && begin.elapsed() < CLOSING =>
                {
                    std::thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    /// Puts the data of an open file on stable storage.
    pub(crate) fn sync(&self, handle: u64) -> Answer<()> {
        let open = self.open_data(handle)?;
        let synced = open.file.sync();
        synced.map_err(|error| errno::of_access(&error))
    }

    /// Closes a file.
    pub(crate) fn close(&self, handle: u64) {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let open = files.remove(&handle);
        drop(files);
        if let Some(open) = open {
            // A server that does not answer has no attachments to end.
            let _ = open.file.clone().detach();
            self.close_node(open.number);
        }
    }

    /// Notes that an inode is open once less. A file that has lost its name goes with the last.
    fn close_node(&self, number: u64) {
        if let Some(path) = self.tree.close(number) {
            self.remove_closed(path);
        }
    }

    /// Removes an object that has lost its name, and is closed.
    pub(crate) fn remove_closed(&self, path: FilePath) {
        match self.fs.remove(path) {
            Err(error) if error.kind != Kind::Missing => {
                eprintln!("penstock mount: a removed file stays: {error}");
            }
            _ => {}
        }
        self.tree.gone();
    }
}

/// Moves bytes between an open file and memory.
fn access(open: &OpenData, operation: Operation, offset: u64, data: &mut [u8]) -> Answer<Moved> {
    // SAFETY: the access has ended when this returns, and nobody else has the bytes until then.
    let memory = unsafe { Memory::new(data.as_mut_ptr(), data.len() as u64, None) };
    let moved = open.view.access(operation, offset, memory);
    moved.map_err(|error| errno::of_access(&error))
}
