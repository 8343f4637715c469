//! The requests of the kernel: what each becomes. Nothing is decided here.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use penstock_layout::exact;

use crate::attributes::Wish;
use crate::extended::name_of;
use crate::names::New;
use crate::state::{Mount, REQUEST_BYTES_MAX};

/// The unit in which `df` counts.
const DF_BYTES: u32 = 4096;

/// Numbers of objects are never used twice.
const GENERATION: Generation = Generation(0);

/// The face of a mount towards the kernel.
pub(crate) struct Face(pub(crate) Mount);

macro_rules! answer {
    ($reply:ident, $done:expr, |$value:pat_param| $then:expr) => {
        match $done {
            Ok($value) => $then,
            Err(error) => $reply.error(error),
        }
    };
}

impl Filesystem for Face {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            // Pages go when the time of the last change or the size is another one.
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            // Files that several programs use are not cached, and can be mapped all the same.
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            // Without it the kernel asks for an extended attribute before each write.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ];
        for flag in wanted {
            let _ = config.add_capabilities(flag); // an older kernel goes without
        }
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_readahead(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(32);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.0.look_up(parent.0, name);
        answer!(reply, found, |attributes| {
            reply.entry(&self.0.cached, &attributes, GENERATION);
        });
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.0.tree.forget(number.0, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.0.attributes(number.0);
        answer!(reply, found, |attributes| reply
            .attr(&self.0.cached, &attributes));
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wish = Wish {
            mode,
            user,
            group,
            size,
            accessed,
            modified,
            is_open: handle.is_some(),
        };
        let changed = self.0.change(request, number.0, &wish);
        answer!(reply, changed, |attributes| reply
            .attr(&self.0.cached, &attributes));
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let target = self.0.target(number.0);
        answer!(reply, target, |target| reply.data(target.as_bytes()));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        if mode & libc::S_IFMT != libc::S_IFREG {
            return reply.error(Errno::EPERM); // a volume has no devices, pipes and sockets
        }
        let made = self.0.make(request, (parent.0, name), &New::File, mode);
        let noted = made.and_then(|made| self.0.note(&made, None));
        answer!(reply, noted, |attributes| {
            reply.entry(&self.0.cached, &attributes, GENERATION);
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let made = self
            .0
            .make(request, (parent.0, name), &New::Directory, mode);
        let noted = made.and_then(|made| self.0.note(&made, None));
        answer!(reply, noted, |attributes| {
            reply.entry(&self.0.cached, &attributes, GENERATION);
        });
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let new = New::Symlink(target);
        let made = self.0.make(request, (parent.0, name), &new, 0o777);
        let noted = made.and_then(|made| self.0.note(&made, None));
        answer!(reply, noted, |attributes| {
            reply.entry(&self.0.cached, &attributes, GENERATION);
        });
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM); // an object has one path
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.0.remove(request, parent.0, name), |()| reply
            .ok());
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.0.remove(request, parent.0, name), |()| reply
            .ok());
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent.0, name), (new_parent.0, new_name));
        answer!(reply, self.0.rename(request, from, to, flags), |()| reply
            .ok());
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.0.make(request, (parent.0, name), &New::File, mode);
        // Somebody else may have made it meanwhile, which is as good unless it must be new.
        let (noted, is_new) = match made {
            Err(Errno::EEXIST) if flags & libc::O_EXCL == 0 => {
                (self.0.look_up(parent.0, name), false)
            }
            made => (made.and_then(|made| self.0.note(&made, None)), true),
        };
        let opened = noted.and_then(|attributes| {
            let (number, flags) = (attributes.ino.0, OpenFlags(flags));
            let opened = match is_new {
                true => self.0.open_new(number, flags),
                false => self.0.open(request, number, flags),
            };
            let forget = |_: &Errno| self.0.tree.forget(number, 1);
            opened
                .inspect_err(forget)
                .map(|opened| (attributes, opened))
        });
        answer!(reply, opened, |(attributes, (handle, caching))| {
            reply.created(
                &self.0.cached,
                &attributes,
                GENERATION,
                FileHandle(handle),
                caching,
            );
        });
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.0.open(request, number.0, flags);
        answer!(reply, opened, |(handle, caching)| {
            reply.opened(FileHandle(handle), caching);
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.0.read(handle.0, (offset, size), |read| {
            answer!(reply, read, |data| reply.data(data));
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let takes_privileges = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let written = self.0.write(handle.0, offset, data, takes_privileges);
        answer!(reply, written, |bytes| reply.written(bytes));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS); // the kernel asks no more
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.close(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.0.sync(handle.0), |()| reply.ok());
    }

    fn opendir(&self, request: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.0.open_directory(request, number.0);
        answer!(reply, opened, |handle| {
            reply.opened(FileHandle(handle), FopenFlags::empty());
        });
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.0.list(number.0, handle.0, offset, &mut reply);
        answer!(reply, listed, |()| reply.ok());
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.0.close_directory(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok(); // names are on stable storage when they are made
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let name_bytes = exact::<u32>(penstock_files::names::NAME_BYTES_MAX);
        answer!(reply, self.0.space(), |(bytes, free)| {
            let [all, free] = [bytes, free].map(|bytes| bytes / u64::from(DF_BYTES));
            reply.statfs(all, free, free, 0, 0, DF_BYTES, name_bytes, DF_BYTES);
        });
    }

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let set = name_of(name).and_then(|name| {
            let attribute = (name, Some(value));
            self.0.set_extended(request, number.0, attribute, flags)
        });
        answer!(reply, set, |()| reply.ok());
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let found = name_of(name).and_then(|name| self.0.extended(number.0, name));
        answer!(reply, found, |value| give(reply, &value, size));
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let found = self.0.extended_names(number.0);
        answer!(reply, found, |names| give(reply, &names, size));
    }

    fn removexattr(&self, request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let set =
            name_of(name).and_then(|name| self.0.set_extended(request, number.0, (name, None), 0));
        answer!(reply, set, |()| reply.ok());
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP); // places of blocks cannot be had ahead, nor given back
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        reply.error(Errno::ENOSYS); // the kernel takes a file as one piece of data
    }
}

/// Gives a value, or its length to one who asks for that.
fn give(reply: ReplyXattr, value: &[u8], room: u32) {
    match (u32::try_from(value.len()), room) {
        (Ok(bytes), 0) => reply.size(bytes),
        (Ok(bytes), room) if bytes <= room => reply.data(value),
        _ => reply.error(Errno::ERANGE),
    }
}
