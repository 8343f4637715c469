//! Asks the kernel what the page cache has of a file.
//!
//! A read of what the cache does not have costs more than the disk: memory is found for every page,
//! the kernel reads ahead by its own measure, and the data are copied once more. `cachestat`, a
//! system call of Linux 6.5, counts the pages of a range that are in the cache, in some
//! microseconds a MiB. An older kernel lacks the call, and a newer one refuses it for files that
//! the process may not write: then no range is cold.
//!
//! The answer is a moment old when it comes. It decides how fast a read is, never what is read.

use std::fs::File;
use std::os::fd::AsRawFd;

use penstock_machines::disk::direct::memory_page_bytes;

/// The kinds of file systems that are moved in different ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileSystem {
    /// The page cache alone holds the file. Newer kernels open such a file directly, and go through
    /// the cache all the same.
    Memory,
    /// Blocks of a local disk. The page cache has copies of some; the file says which.
    LocalDisk,
    /// Another one. A network file system is at its best when the kernel reads ahead; a layer above
    /// others (overlayfs) and one with a cache of its own (ZFS) have no pages to be counted.
    Other,
}

impl FileSystem {
    pub(super) fn of(file: &File) -> Self {
        match rustix::fs::fstatfs(file).map(|found| found.f_type) {
            Ok(libc::TMPFS_MAGIC) => Self::Memory,
            Ok(libc::EXT4_SUPER_MAGIC | libc::XFS_SUPER_MAGIC) => Self::LocalDisk,
            Ok(_) | Err(_) => Self::Other,
        }
    }
}

/// The number of the system call, the same on all processors but MIPS, whose numbers begin at 4000.
const CACHESTAT: libc::c_long = 451;

/// The argument of `cachestat`.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    bytes: u64,
}

/// The answer of `cachestat`, in pages.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    in_writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether the disk has to be asked for most of a range: the page cache has less than half, and
/// none that is yet to be written, for which a direct read would wait.
pub(super) fn is_cold(file: &File, offset: u64, bytes: usize) -> bool {
    let bytes = bytes as u64;
    let range = CachestatRange { offset, bytes };
    let mut found = Cachestat::default();
    // SAFETY: the descriptor is open for the length of the call, which reads the range, fills the
    // answer, and keeps neither; both have the kernel's layout.
    let answer = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut found,
            0_u32,
        )
    };
    let pages = bytes / memory_page_bytes();
    answer == 0 && found.dirty == 0 && found.in_writeback == 0 && 2 * found.cached < pages
}
