//! Memory that several processes of a host have mapped.
//!
//! A segment is an anonymous file (memfd). Other processes of the same user on the same host open
//! it through its owner's `/proc/<pid>/fd`. It has no name in any directory, so that a job that is
//! killed leaves nothing behind, and no limit of a `/dev/shm` mount applies.

use std::ffi::c_void;
use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use penstock_engine::{Error, Kind, Result};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use serde::{Deserialize, Serialize};

/// The size of a huge page on most processors.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Nobody changes the length of a segment: touching memory behind the end of a file would end the
/// process.
const LENGTH_SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// Mapped memory may be read and written.
const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A mapping of shared or private memory, page-aligned, zero at first. From [`HUGE_PAGE_BYTES`] on
/// it has huge pages if the kernel gives any: direct I/O hands such memory to a device in one
/// piece, not page by page.
pub struct Mapping {
    addresses: Addresses,
    bytes: usize,
    /// The segment's file, if this process owns it.
    file: Option<OwnedFd>,
}

// SAFETY: a mapping is plain memory with no tie to a thread; the users of the base pointer settle
// who may access which bytes when.
unsafe impl Send for Mapping {}
// SAFETY: as above: `&Mapping` only gives out the base pointer.
unsafe impl Sync for Mapping {}

/// A segment name tells another process where to find a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentName {
    /// The owner's process number.
    pub process: u32,
    /// The owner's descriptor.
    pub descriptor: i32,
    pub bytes: usize,
}

impl Mapping {
    /// Maps memory of this process alone.
    ///
    /// # Errors
    /// When there is no memory left.
    pub fn private(bytes: usize) -> Result<Self> {
        let map = || {
            let addresses = Addresses::reserve(bytes)?;
            let flags = MapFlags::PRIVATE | MapFlags::FIXED;
            // SAFETY: of addresses that were reserved for it.
            unsafe { rustix::mm::mmap_anonymous(addresses.base(), bytes.max(1), ACCESS, flags) }?;
            addresses.advise_huge(bytes, libc::MADV_HUGEPAGE);
            Ok(addresses)
        };
        Ok(Self {
            addresses: map().map_err(|e: Errno| no_memory(bytes, e))?,
            bytes,
            file: None,
        })
    }

    /// Makes a new segment that others can open. Its pages are reserved: using it cannot fail
    /// later.
    ///
    /// # Errors
    /// When there is no memory left.
    pub fn shared(bytes: usize) -> Result<Self> {
        let map = || {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = rustix::fs::memfd_create("penstock", flags)?;
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes.max(1) as u64)?;
            rustix::fs::fcntl_add_seals(&file, LENGTH_SEALS)?;
            let addresses = map_file(&file, bytes)?;
            // A file in memory gets huge pages only where the administrator allows it, or at this
            // request.
            addresses.advise_huge(bytes, libc::MADV_COLLAPSE);
            Ok((addresses, file))
        };
        let (addresses, file) = map().map_err(|e: Errno| no_memory(bytes, e))?;
        Ok(Self {
            addresses,
            bytes,
            file: Some(file),
        })
    }

    /// Maps another process's segment.
    ///
    /// # Errors
    /// When the segment cannot be opened: the processes are of different users or in different
    /// containers.
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
        // Touching memory behind the end of a file would end this process.
        let length = file.metadata().map_err(|e| failed(&e))?.len();
        if length < name.bytes as u64 {
            return Err(failed(&format!("it has {length} bytes of {}", name.bytes)));
        }
        let addresses = map_file(&file, name.bytes);
        Ok(Self {
            addresses: addresses.map_err(|e| failed(&e))?,
            bytes: name.bytes,
            file: None,
        })
    }

    /// Maps a segment of `bytes` bytes that another process has made and sealed, and has sent by a
    /// socket.
    ///
    /// # Errors
    /// [`Kind::Peer`] when the file is shorter, or could become so.
    pub fn sent(file: OwnedFd, bytes: usize) -> Result<Self> {
        let failed = |cause: &dyn std::fmt::Display| {
            let doing = "mapping memory that another process shares";
            Error::new(Kind::Peer, doing, cause)
        };
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|e| failed(&e))?;
        let length = rustix::fs::fstat(&file).map_err(|e| failed(&e))?.st_size;
        if !seals.contains(SealFlags::SHRINK) || u64::try_from(length) != Ok(bytes as u64) {
            return Err(failed(&"the file has another length, or can be changed"));
        }
        Ok(Self {
            addresses: map_file(&file, bytes).map_err(|e| failed(&e))?,
            bytes,
            file: None,
        })
    }

    /// The segment's file, if this process has made it.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    pub fn base(&self) -> *mut u8 {
        self.addresses.base().cast()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The name by which another process finds the segment; `None` for private memory.
    pub fn name(&self) -> Option<SegmentName> {
        let file = self.file.as_ref()?;
        Some(SegmentName {
            process: std::process::id(),
            descriptor: file.as_raw_fd(),
            bytes: self.bytes,
        })
    }
}

/// Reserved addresses of this process, with the mapping there.
struct Addresses {
    start: *mut c_void,
    bytes: usize,
    /// The offset of the first aligned address.
    offset: usize,
}

impl Addresses {
    /// Reserves addresses for this number of bytes, without mapping anything.
    fn reserve(bytes: usize) -> rustix::io::Result<Self> {
        let alignment = if bytes < HUGE_PAGE_BYTES {
            1
        } else {
            HUGE_PAGE_BYTES
        };
        let bytes = bytes.max(1) + alignment - 1;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at addresses of the kernel's choice, to which there is no access.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags)
        }?;
        Ok(Self {
            start,
            bytes,
            offset: start.addr().wrapping_neg() % alignment,
        })
    }

    fn base(&self) -> *mut c_void {
        self.start.wrapping_byte_add(self.offset)
    }

    /// Asks for huge pages. The kernel may decline, an older one above all: the memory then works,
    /// only slower.
    fn advise_huge(&self, bytes: usize, advice: libc::c_int) {
        if bytes >= HUGE_PAGE_BYTES {
            // SAFETY: the call is about these addresses, and does not change what can be read
            // there.
            let _ = unsafe { libc::madvise(self.base(), bytes, advice) };
        }
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: unmaps once what `mmap` gave; all users of the base pointer held the mapping. A
        // failure would leave the memory mapped, which nobody could do anything about.
        let _ = unsafe { rustix::mm::munmap(self.start, self.bytes) };
    }
}

fn map_file(file: &impl AsFd, bytes: usize) -> rustix::io::Result<Addresses> {
    let addresses = Addresses::reserve(bytes)?;
    let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
    // SAFETY: of addresses that were reserved for it. POPULATE spares page faults.
    unsafe { rustix::mm::mmap(addresses.base(), bytes.max(1), ACCESS, flags, file, 0) }?;
    Ok(addresses)
}

fn no_memory(bytes: usize, cause: impl std::fmt::Display) -> Error {
    Error::new(
        Kind::Full,
        format!("reserving {bytes} bytes of memory"),
        cause,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The KiB of huge pages in which a mapping lies.
    fn huge_kib(mapping: &Mapping) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", mapping.base().addr());
        let of_mapping = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let sizes = of_mapping.skip(1).map_while(|line| {
            let (key, rest) = line.split_once(':')?;
            // The first line of the next mapping has its addresses before the colon.
            (!key.contains(' ')).then(|| (key, rest.split_whitespace().next().unwrap_or("0")))
        });
        let huge = sizes.filter(|(key, _)| ["AnonHugePages", "ShmemPmdMapped"].contains(key));
        huge.map(|(_, kib)| kib.parse::<u64>().unwrap()).sum()
    }

    /// Whether the kernel's word on huge pages of private memory is this one.
    fn is_enabled(word: &str) -> bool {
        let says = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        says.is_ok_and(|says| says.contains(&format!("[{word}]")))
    }

    type Make = fn(usize) -> Result<Mapping>;

    /// The KiB of huge pages in which a new mapping lies, if the kernel has any of them for it.
    fn huge_kib_of_new(make: Make, bytes: usize) -> Option<u64> {
        let mapping = make(bytes).unwrap();
        assert!(mapping.base().addr().is_multiple_of(HUGE_PAGE_BYTES));
        // SAFETY: the mapping has this number of bytes, and nobody else has it.
        let all = unsafe { std::slice::from_raw_parts_mut(mapping.base(), bytes) };
        assert!(all.iter().all(|&byte| byte == 0));
        all.fill(1);
        let found = huge_kib(&mapping);
        // SAFETY: it does not change what is in the mapping.
        let can = unsafe { libc::madvise(mapping.base().cast(), bytes, libc::MADV_COLLAPSE) };
        let may = mapping.name().is_some() || !is_enabled("never");
        (can == 0 && may).then_some(found)
    }

    #[test]
    fn large_ones_are_huge_pages_where_there_are_any() {
        let make: [Make; 2] = [Mapping::private, Mapping::shared];
        for (make, bytes) in make.into_iter().flat_map(|make| [(make, 1), (make, 3)]) {
            let bytes = bytes * HUGE_PAGE_BYTES;
            // The kernel may be short of them for a moment.
            match (0..20).filter_map(|_| huge_kib_of_new(make, bytes)).max() {
                Some(most) => assert_eq!(most, bytes as u64 >> 10),
                None => eprintln!("there are no huge pages to be had: not tested"),
            }
        }
    }

    #[test]
    fn small_ones_take_what_they_need() {
        let make: [Make; 2] = [Mapping::private, Mapping::shared];
        for make in make {
            for bytes in [0, 1, 4097, HUGE_PAGE_BYTES - 1] {
                let mapping = make(bytes).unwrap();
                assert_eq!(mapping.bytes(), bytes);
                // SAFETY: the mapping has this number of bytes, and nobody else has it.
                unsafe { std::slice::from_raw_parts_mut(mapping.base(), bytes) }.fill(1);
                // A mapping without a name may be one with its neighbours, and theirs are huge.
                if mapping.name().is_some() || !is_enabled("always") {
                    assert_eq!(huge_kib(&mapping), 0);
                }
            }
        }
    }
}
