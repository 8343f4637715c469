//! A second descriptor of a file, around the page cache (`O_DIRECT`).
//!
//! A direct move takes whole pages: offsets, lengths and the address in memory are multiples of
//! what the file asks for. Who moves anything else goes through the page cache; the kernel keeps
//! successive moves of both ways in order, since no cached page reaches over the ends of a page
//! here.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use penstock_engine::{Error, Kind, Result};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

/// The largest file system block that can be one of the page cache. Network file systems give the
/// length of their messages here, which says nothing about pages.
const FILE_BLOCK_BYTES_MAX: u64 = 64 << 10;
/// The alignment of memory where the kernel (before 6.1) or the file system gives none.
const MEMORY_ALIGNMENT: usize = 4096;
/// The largest page of memory that Linux has, for a kernel that does not say.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// What fails where there is no direct I/O.
const OPENING: &str = "opening around the page cache";

/// A second descriptor of a file, around the page cache.
pub struct Direct {
    /// The descriptor, with the access of the first one.
    pub file: File,
    /// The divisor of all offsets in the file and of all lengths: the largest of a page of memory,
    /// a block of the file system and the alignment of direct I/O.
    pub page_bytes: u64,
    /// The divisor of all addresses.
    pub memory_alignment: usize,
}

impl Direct {
    /// Opens an open file, which has this path, once more.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] when the file system has no direct I/O for it.
    pub fn open(file: &File, path: &Path) -> Result<Self> {
        let failed = |e: rustix::io::Errno| refused(&e.into(), OPENING, path);
        let empty = AtFlags::EMPTY_PATH;
        let stat = rustix::fs::statx(
            file,
            "",
            empty,
            StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN,
        );
        let stat = stat.map_err(failed)?;
        let says = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
        if says && stat.stx_dio_offset_align == 0 {
            return Err(unsupported(
                path,
                "the file system has no direct I/O for it",
            ));
        }
        // The file is opened by its descriptor: another file may be at the path by now.
        let same = format!("/proc/self/fd/{}", file.as_raw_fd());
        let access = rustix::fs::fcntl_getfl(file).map_err(failed)? & OFlags::ACCMODE;
        let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
        let direct = rustix::fs::open(same, flags, Mode::empty()).map_err(failed)?;
        let block = u64::from(stat.stx_blksize);
        let asked = [block, u64::from(stat.stx_dio_offset_align)];
        let asked = asked
            .into_iter()
            .filter(|n| n.is_power_of_two() && *n <= FILE_BLOCK_BYTES_MAX);
        let page_bytes = asked.fold(memory_page_bytes(), u64::max);
        let memory_alignment = match stat.stx_dio_mem_align as usize {
            bytes if says && bytes.is_power_of_two() => bytes,
            _ => MEMORY_ALIGNMENT,
        };
        Ok(Self {
            file: direct.into(),
            page_bytes,
            memory_alignment,
        })
    }

    /// Whether memory is aligned as the device wants it.
    pub fn takes(&self, data: &[u8]) -> bool {
        data.as_ptr().addr().is_multiple_of(self.memory_alignment)
    }
}

/// The number of bytes that a call has moved. A call that a signal interrupted is made again.
///
/// # Errors
/// Those of the call.
pub fn moved(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

/// Turns the operating system's answer to direct I/O into an error.
pub fn refused(error: &io::Error, doing: &str, path: &Path) -> Error {
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::EOPNOTSUPP) => Error {
            doing: doing.to_string(),
            ..unsupported(path, error)
        },
        _ => Error::io(error, doing, path),
    }
}

/// The error for a file that cannot be moved around the page cache.
pub fn unsupported(path: &Path, cause: impl std::fmt::Display) -> Error {
    let cause = format!("{cause}: leave `direct` away for this file system");
    Error::new(Kind::Unsupported, OPENING, cause).at(path)
}

/// The bytes of a page of memory.
pub fn memory_page_bytes() -> u64 {
    // SAFETY: the call takes no memory and has no preconditions.
    let answer = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(answer).unwrap_or(PAGE_BYTES_MAX)
}
