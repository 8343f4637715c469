//! Memory that several processes of a host have mapped.
//!
//! A segment is an anonymous file (memfd). Others of the same user on the same host open it through
//! its owner's `/proc/<pid>/fd`. Nothing has a name in any directory, so that nothing is left behind
//! by a job that is killed, and no limit of a `/dev/shm` mount applies.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::NonNull;

use penstock_engine::{Error, Kind, Result};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use serde::{Deserialize, Serialize};

/// A mapping of shared or private memory, page-aligned, zero at first.
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// The segment's file, where this process owns it.
    file: Option<OwnedFd>,
}

// SAFETY: a mapping is plain memory with no tie to a thread; who may access which bytes when is
// settled by those who use the base pointer.
unsafe impl Send for Mapping {}
// SAFETY: as above: `&Mapping` only gives out the base pointer.
unsafe impl Sync for Mapping {}

/// How another process finds a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentName {
    /// The owner's process number.
    pub process: u32,
    /// The owner's descriptor.
    pub descriptor: i32,
    /// Size.
    pub bytes: usize,
}

impl Mapping {
    /// Memory of this process alone.
    ///
    /// # Errors
    /// When there is none left.
    pub fn private(bytes: usize) -> Result<Self> {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes.max(1),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        Self::of(base.map_err(|e| no_memory(bytes, e))?, bytes, None)
    }

    /// A new segment that others can open. Its pages are reserved: using it cannot fail later.
    ///
    /// # Errors
    /// When there is no memory left.
    pub fn shared(bytes: usize) -> Result<Self> {
        let reserve = || {
            let file = rustix::fs::memfd_create("penstock", MemfdFlags::CLOEXEC)?;
            rustix::fs::fallocate(
                file.as_fd(),
                rustix::fs::FallocateFlags::empty(),
                0,
                bytes.max(1) as u64,
            )?;
            Ok(file)
        };
        let file: OwnedFd = reserve().map_err(|e: rustix::io::Errno| no_memory(bytes, e))?;
        let base = map_file(&file, bytes).map_err(|e| no_memory(bytes, e))?;
        Self::of(base, bytes, Some(file))
    }

    /// Another process's segment.
    ///
    /// # Errors
    /// When it cannot be opened: the processes are of different users or in different containers.
    pub fn open(name: &SegmentName) -> Result<Self> {
        let path = PathBuf::from(format!("/proc/{}/fd/{}", name.process, name.descriptor));
        let failed = |cause: &dyn std::fmt::Display| {
            let advice = "ranks of one host must share a user and a PID namespace; \
                          otherwise open the session with transport=\"messages\"";
            Error::new(
                Kind::Peer,
                "mapping shared memory of another rank",
                format!("{cause}; {advice}"),
            )
            .at(&path)
        };
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(|e| failed(&e))?;
        let base = map_file(&file, name.bytes).map_err(|e| failed(&e))?;
        Self::of(base, name.bytes, None)
    }

    fn of(base: *mut std::ffi::c_void, bytes: usize, file: Option<OwnedFd>) -> Result<Self> {
        match NonNull::new(base.cast()) {
            Some(base) => Ok(Self { base, bytes, file }),
            None => Err(no_memory(bytes, "mapped at address zero")),
        }
    }

    /// The first byte.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How another process finds it; `None` for private memory.
    pub fn name(&self) -> Option<SegmentName> {
        let file = self.file.as_ref()?;
        Some(SegmentName {
            process: std::process::id(),
            descriptor: file.as_raw_fd(),
            bytes: self.bytes,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps what `mmap` gave, once; whoever used the base pointer held this mapping.
        // A failure would leave the memory mapped, which nobody could do anything about.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes.max(1)) };
    }
}

fn map_file(file: &impl AsFd, bytes: usize) -> rustix::io::Result<*mut std::ffi::c_void> {
    // SAFETY: a new mapping at an address of the kernel's choice. POPULATE spares page faults.
    unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            bytes.max(1),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::POPULATE,
            file,
            0,
        )
    }
}

fn no_memory(bytes: usize, cause: impl std::fmt::Display) -> Error {
    Error::new(
        Kind::Full,
        format!("reserving {bytes} bytes of memory"),
        cause,
    )
}
