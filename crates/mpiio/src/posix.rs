//! Moves bytes between memory and a file by calls of the operating system: what a rank does alone.
//!
//! Only bytes of the access are written. Where many runs of memory lie one behind the other in the
//! file, they are written in one call; where many runs of the file lie close to each other, they
//! are read in one call, and scattered.

use std::io::{IoSlice, IoSliceMut};
use std::iter::Peekable;
use std::os::fd::{AsFd, BorrowedFd};

use penstock_layout::{List, exact};
use rustix::io::{Errno, pread, preadv, pwrite, pwritev};

/// Runs of memory that are written or read in one call, at most.
const VECTORS_MAX: usize = 1024;
/// Runs of memory from this average on are moved without a staging buffer.
const VECTOR_BYTES_MIN: u64 = 2048;
/// The bytes of the staging buffer.
const STAGED_BYTES_MAX: u64 = 1 << 20;
/// A gap between two runs that is read rather than skipped.
const GAP_BYTES_MAX: u64 = 4096;
/// The most bytes of one call: the kernel takes no more.
const CALL_BYTES_MAX: usize = 0x7fff_f000;

type Result<T> = std::result::Result<T, Errno>;

/// Writes all bytes at an offset.
pub fn write_at(file: BorrowedFd<'_>, offset: u64, bytes: &[u8]) -> Result<()> {
    let (mut rest, mut at) = (bytes, offset);
    while !rest.is_empty() {
        match pwrite(file, &rest[..rest.len().min(CALL_BYTES_MAX)], at) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                rest = &rest[written..];
                at += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads bytes at an offset, up to the end of the file, and gives how many there were.
pub fn read_at(file: BorrowedFd<'_>, offset: u64, bytes: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        let end = bytes.len().min(done + CALL_BYTES_MAX);
        match pread(file, &mut bytes[done..end], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// A run of the file, and the run of memory whose bytes it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    pub file: u64,
    pub memory: u64,
    pub bytes: u64,
}

/// The runs of two lists of equally many bytes, side by side.
struct Pairs<F: Iterator, M: Iterator> {
    file: F,
    memory: M,
    of_file: (u64, u64),
    of_memory: (u64, u64),
}

impl<F: Iterator<Item = (u64, u64)>, M: Iterator<Item = (u64, u64)>> Iterator for Pairs<F, M> {
    type Item = Pair;

    fn next(&mut self) -> Option<Pair> {
        if self.of_file.1 == 0 {
            self.of_file = self.file.next()?;
        }
        if self.of_memory.1 == 0 {
            self.of_memory = self.memory.next()?;
        }
        let bytes = self.of_file.1.min(self.of_memory.1);
        let pair = Pair {
            file: self.of_file.0,
            memory: self.of_memory.0,
            bytes,
        };
        for (place, rest) in [&mut self.of_file, &mut self.of_memory] {
            *place += bytes;
            *rest -= bytes;
        }
        Some(pair)
    }
}

/// The runs that two lists of equally many bytes have in common, in their order.
pub fn pairs(file: &List, memory: &List) -> impl Iterator<Item = Pair> {
    Pairs {
        file: file.iter(),
        memory: memory.iter(),
        of_file: (0, 0),
        of_memory: (0, 0),
    }
}

/// Writes the bytes of a list of memory, counted from `base` on, to those of a list of the file.
///
/// # Safety
/// The memory from `base` on must have the bytes of the list, and nobody may change them meanwhile.
pub unsafe fn write_lists(
    file: BorrowedFd<'_>,
    places: &List,
    base: *const u8,
    memory: &List,
) -> Result<()> {
    let mut pairs = pairs(places, memory).peekable();
    let (mut stretch, mut staged) = (Vec::new(), Vec::new());
    while let Some(first) = pairs.next() {
        stretch.clear();
        stretch.push(first);
        let bytes = extend(&mut stretch, &mut pairs, 0);
        // SAFETY: the caller's promise.
        let runs = stretch.iter().map(|pair| unsafe {
            std::slice::from_raw_parts(
                base.add(exact::<usize>(pair.memory)),
                exact::<usize>(pair.bytes),
            )
        });
        if bytes / stretch.len() as u64 >= VECTOR_BYTES_MIN {
            let mut runs: Vec<_> = runs.map(IoSlice::new).collect();
            write_vectors(file, first.file, &mut runs)?;
        } else {
            staged.clear();
            runs.for_each(|run| staged.extend_from_slice(run));
            write_at(file, first.file, &staged)?;
        }
    }
    Ok(())
}

/// Adds to a stretch the pairs that follow in the file without a gap of more than `gap_max` bytes.
/// Gives the bytes of the file from the first to the last.
fn extend(
    stretch: &mut Vec<Pair>,
    pairs: &mut Peekable<impl Iterator<Item = Pair>>,
    gap_max: u64,
) -> u64 {
    let first = stretch[0];
    let mut bytes = first.bytes;
    while stretch.len() < VECTORS_MAX
        && let Some(next) = pairs.next_if(|next| {
            let end = first.file + bytes;
            let fits = next.file.saturating_sub(first.file) + next.bytes <= STAGED_BYTES_MAX;
            next.file >= end && next.file - end <= gap_max && fits
        })
    {
        bytes = next.file + next.bytes - first.file;
        stretch.push(next);
    }
    bytes
}

fn write_vectors(file: BorrowedFd<'_>, offset: u64, runs: &mut [IoSlice<'_>]) -> Result<()> {
    let (mut rest, mut at) = (runs, offset);
    while !rest.is_empty() {
        match pwritev(file, rest, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                IoSlice::advance_slices(&mut rest, written);
                at += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads the bytes of a list of the file into those of a list of memory, counted from `base` on.
/// Gives how many there were before the end of the file. The places in the file must ascend.
///
/// # Safety
/// The memory from `base` on must have room for the bytes of the list, and nobody else may use it
/// meanwhile.
pub unsafe fn read_lists(
    file: BorrowedFd<'_>,
    places: &List,
    base: *mut u8,
    memory: &List,
) -> Result<u64> {
    let mut pairs = pairs(places, memory).peekable();
    let (mut stretch, mut staged, mut done) = (Vec::new(), Vec::new(), 0);
    while let Some(first) = pairs.next() {
        stretch.clear();
        stretch.push(first);
        let bytes = extend(&mut stretch, &mut pairs, GAP_BYTES_MAX);
        let own: u64 = stretch.iter().map(|pair| pair.bytes).sum();
        let read = if own == bytes && bytes / stretch.len() as u64 >= VECTOR_BYTES_MIN {
            // SAFETY: the caller's promise; a memory that is read into has no byte twice.
            let runs = stretch.iter().map(|pair| unsafe {
                std::slice::from_raw_parts_mut(
                    base.add(exact::<usize>(pair.memory)),
                    exact::<usize>(pair.bytes),
                )
            });
            let mut runs: Vec<_> = runs.map(IoSliceMut::new).collect();
            read_vectors(file, first.file, &mut runs)?
        } else {
            staged.resize(exact::<usize>(bytes), 0);
            read_at(file, first.file, &mut staged)? as u64
        };
        for pair in &stretch {
            let place = pair.file - first.file;
            let came = exact::<usize>(pair.bytes.min(read.saturating_sub(place)));
            if staged.len() as u64 == bytes {
                let from = &staged[exact::<usize>(place)..][..came];
                // SAFETY: the caller's promise.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        from.as_ptr(),
                        base.add(exact::<usize>(pair.memory)),
                        came,
                    );
                }
            }
            done += came as u64;
        }
        staged.clear();
        if read < bytes {
            break; // the end of the file
        }
    }
    Ok(done)
}

fn read_vectors(file: BorrowedFd<'_>, offset: u64, runs: &mut [IoSliceMut<'_>]) -> Result<u64> {
    let (mut rest, mut done) = (runs, 0);
    while !rest.is_empty() {
        match preadv(file, rest, offset + done) {
            Ok(0) => break,
            Ok(read) => {
                IoSliceMut::advance_slices(&mut rest, read);
                done += read as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// The bytes of a file.
pub fn size(file: impl AsFd) -> Result<u64> {
    Ok(rustix::fs::fstat(file)?.st_size as u64)
}
