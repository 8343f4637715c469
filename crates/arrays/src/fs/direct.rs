//! Moves data files around the page cache: all that a user chooses so, or cold reads alone.
//!
//! ```text
//!  pages      |         |         |         |         |
//!  a piece       [------|=========|=========|-----]
//!                 edge    the whole pages    edge
//!  written       cache   around    around    cache
//!  read       [...around, with the pages of both edges...]
//! ```
//!
//! The whole pages of a written piece go by a second descriptor, opened with `O_DIRECT`; its edges,
//! less than a page each, go through the page cache as usual. A piece that is read comes with all
//! pages that it touches, in one access, unless it has no whole page. Memory that is not aligned as
//! the device wants it (the elements of a `.npy` file, which lie behind a header of 128 bytes) is
//! copied through [`BOUNCE_BYTES`] of each thread: that costs less than the work of the page cache
//! beside its copy. This memory is a huge page, as staging buffers are: a device takes it in one
//! piece, where small pages are hundreds.
//!
//! # Which reads go around by themselves
//! With [`DirectIo::ColdReads`], reads of a file that is open for reading alone: where
//! [`cold::is_cold`] says so of the range, and the file system can. Whatever stands in the way, the
//! read goes through the page cache.
//!
//! # Why both ways agree
//! A page here is the largest of a page of memory, a block of the file system and the alignment of
//! direct I/O, so no cached page reaches over its ends. Pieces that are moved at the same time do
//! not overlap. So no other piece touches a page that is written directly, and a page at an edge is
//! only ever written through the cache. The kernel keeps successive moves in order: before direct
//! I/O it writes back the pages concerned, and before a direct write it forgets them. So a direct
//! read of a page at an edge, too, finds what was written before, though a neighbour may be writing
//! other bytes of the page. The kernel must not read ahead either, lest the pages beside an edge
//! come into the cache while they are written: a file that is written directly is declared as one
//! of random access.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use penstock_engine::{Kind, Result};
use penstock_layout::exact;
use penstock_machines::disk::direct::{Direct, moved, refused, unsupported};
use penstock_machines::disk::extents::{self, Extents};
use penstock_machines::memory::segment::{HUGE_PAGE_BYTES, Mapping};
use rustix::fs::{Advice, OFlags};
use serde::{Deserialize, Serialize};

use super::cold::{self, FileSystem};
use super::files;

/// The memory of a thread through which it copies pieces that are not aligned.
const BOUNCE_BYTES: usize = HUGE_PAGE_BYTES;
/// The least bytes that are written back at once: the next small piece may be on the same pages.
const WRITEBACK_BYTES_MIN: usize = 256 << 10;
/// The least bytes of a read that goes around the page cache by itself: fewer wait longer for the
/// device than for their bytes, and neighbours may be read next.
const COLD_BYTES_MIN: usize = 256 << 10;
/// The most bytes of one call: Linux moves less than 2 GiB by one.
const CALL_BYTES_MAX: usize = 1 << 30;

thread_local! {
    static BOUNCE: RefCell<Option<Mapping>> = const { RefCell::new(None) };
}

/// The elements that go around the page cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DirectIo {
    /// None.
    #[default]
    Never,
    /// Large reads of what the page cache does not have, where the file system can.
    ColdReads,
    /// All, in whole pages; a file system that cannot is refused.
    Always,
}

impl From<bool> for DirectIo {
    fn from(is_direct: bool) -> Self {
        match is_direct {
            true => Self::Always,
            false => Self::Never,
        }
    }
}

/// The way in which elements are read from a file and written to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccessMode {
    /// Which of them go around the page cache.
    pub(crate) direct: DirectIo,
    /// Whether the file will be synced: then writeback begins at once, so that the disk works while
    /// the next block comes.
    pub(crate) sync: bool,
    /// Whether each file that is moved around the page cache is to know where its bytes lie on the
    /// device. The server that opens the file decides that, so it does not travel.
    #[serde(skip)]
    pub(crate) tells_positions: bool,
}

/// An open file of elements.
pub(crate) struct DataFile {
    file: File,
    around: Around,
    is_synced: bool,
    /// Where the file's bytes lie on the device, if that is to be known.
    extents: Extents,
    /// The kind of file system: asked at the first large move.
    file_system: OnceLock<FileSystem>,
}

/// The second descriptor, by [`DirectIo`].
enum Around {
    Never,
    /// Opened at the first cold read; `None` where that cannot be.
    ColdReads(OnceLock<Option<Direct>>),
    Always(Direct),
}

impl DataFile {
    /// Wraps an open file, which is opened once more if all moves are to be direct.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] when they are, and the file system has no direct I/O.
    pub(crate) fn new(file: File, way: AccessMode, path: &Path) -> Result<Self> {
        let around = match way.direct {
            DirectIo::Never => Around::Never,
            DirectIo::ColdReads => Around::ColdReads(OnceLock::new()),
            DirectIo::Always => Around::Always(open_for_all(&file, path)?),
        };
        // The page cache reads ahead by offset, and the kernel sorts what the cache writes: an
        // order by position would only disturb both.
        let is_direct = way.direct == DirectIo::Always;
        let tells_positions = way.tells_positions && (is_direct || extents::is_raw(&file));
        let extents = match tells_positions {
            true => Extents::of(&file),
            false => Extents::default(),
        };
        Ok(Self {
            file,
            around,
            extents,
            is_synced: way.sync,
            file_system: OnceLock::new(),
        })
    }

    /// The position on the device of the byte at `offset`, if it is known.
    pub(crate) fn position(&self, offset: u64) -> Option<u64> {
        self.extents.position(offset)
    }

    /// Whether all known positions ascend with the offsets.
    pub(crate) fn is_in_order(&self) -> bool {
        self.extents.are_in_order()
    }

    /// The file as it was opened.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The file as it was opened, without its second descriptor.
    pub(crate) fn into_file(self) -> File {
        self.file
    }

    /// Writes all of `data` at `offset`.
    pub(crate) fn write_at(&self, data: &[u8], offset: u64, path: &Path) -> Result<()> {
        let Around::Always(direct) = &self.around else {
            let is_large = data.len() >= WRITEBACK_BYTES_MIN;
            if !(self.is_synced && is_large && self.file_system() != FileSystem::Memory) {
                return files::write_at(&self.file, data, offset, path);
            }
            files::take_space(&self.file, offset, data.len(), path)?;
            files::write_at(&self.file, data, offset, path)?;
            return files::start_writeback(&self.file, offset, data.len(), path);
        };
        let middle = whole_pages(offset, data.len(), direct.page_bytes);
        let (head, rest) = data.split_at(middle.start);
        let (pages, tail) = rest.split_at(middle.len());
        files::write_at(&self.file, head, offset, path)?;
        self.write_pages(direct, pages, offset + middle.start as u64, path)?;
        files::write_at(&self.file, tail, offset + middle.end as u64, path)
    }

    /// Fills all of `data` from `offset`. A file that ends before that is damaged.
    pub(crate) fn read_at(&self, data: &mut [u8], offset: u64, path: &Path) -> Result<()> {
        let Some(direct) = self.direct_for(offset, data.len(), path) else {
            return files::read_at(&self.file, data, offset, path);
        };
        let is_straight = offset.is_multiple_of(direct.page_bytes) && direct.takes(data);
        let whole = match is_straight {
            true => whole_pages(offset, data.len(), direct.page_bytes).end,
            false => 0,
        };
        let (pages, rest) = data.split_at_mut(whole);
        let read = self.read_pages(direct, pages, offset, path);
        let read = read.and_then(|()| self.read_copied(direct, rest, offset + whole as u64, path));
        match (read, &self.around) {
            // The file system has it only for some files or ranges.
            (Err(error), Around::ColdReads(_)) if error.kind == Kind::Unsupported => {
                files::read_at(&self.file, data, offset, path)
            }
            (read, _) => read,
        }
    }

    /// The descriptor for a read of this range, if the read is to go around the page cache.
    fn direct_for(&self, offset: u64, bytes: usize, path: &Path) -> Option<&Direct> {
        let opened = match &self.around {
            Around::Never => return None,
            // Less than a page is likely to have neighbours that are read, too.
            Around::Always(direct) => {
                let pages = whole_pages(offset, bytes, direct.page_bytes);
                return (!pages.is_empty()).then_some(direct);
            }
            Around::ColdReads(opened) => opened,
        };
        if bytes < COLD_BYTES_MIN
            || matches!(opened.get(), Some(None))
            || self.file_system() != FileSystem::LocalDisk
            || !cold::is_cold(&self.file, offset, bytes)
        {
            return None;
        }
        let open = || open_for_cold_reads(&self.file, path);
        opened.get_or_init(open).as_ref()
    }

    fn file_system(&self) -> FileSystem {
        *self.file_system.get_or_init(|| FileSystem::of(&self.file))
    }

    fn write_pages(&self, direct: &Direct, pages: &[u8], offset: u64, path: &Path) -> Result<()> {
        let straight = direct.takes(pages);
        let pieces = pages.chunks(if straight {
            CALL_BYTES_MAX
        } else {
            BOUNCE_BYTES
        });
        let mut offset = offset;
        for piece in pieces {
            let write = |aligned: &[u8]| direct.file.write_at(aligned, offset);
            let written = if straight {
                moved(|| write(piece))
            } else {
                with_bounce(|bounce| {
                    let bounce = &mut bounce[..piece.len()];
                    bounce.copy_from_slice(piece);
                    moved(|| write(bounce))
                })
            };
            let end = offset + piece.len() as u64;
            let written =
                written.map_err(|e| refused(&e, "writing", path).in_bytes(offset..end))?;
            // Direct I/O may be cut short, as on a full disk: the ordinary way gives the error, or
            // succeeds.
            files::write_at(&self.file, &piece[written..], offset + written as u64, path)?;
            offset = end;
        }
        Ok(())
    }

    /// Reads whole pages into memory that the device takes as it is.
    fn read_pages(
        &self,
        direct: &Direct,
        pages: &mut [u8],
        offset: u64,
        path: &Path,
    ) -> Result<()> {
        let mut offset = offset;
        for piece in pages.chunks_mut(CALL_BYTES_MAX) {
            let read = moved(|| direct.file.read_at(piece, offset));
            self.end_read(read, piece, offset, path)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Reads all pages that a piece touches into this thread's aligned memory, and copies the piece
    /// out.
    fn read_copied(
        &self,
        direct: &Direct,
        data: &mut [u8],
        offset: u64,
        path: &Path,
    ) -> Result<()> {
        let (mut rest, mut offset) = (data, offset);
        while !rest.is_empty() {
            let before = exact::<usize>(offset % direct.page_bytes);
            let bytes = rest.len().min(BOUNCE_BYTES - before);
            let pages = (before + bytes).next_multiple_of(exact(direct.page_bytes));
            let (piece, others) = rest.split_at_mut(bytes);
            let read = with_bounce(|bounce| {
                let start = offset - before as u64;
                let read = moved(|| direct.file.read_at(&mut bounce[..pages], start))?;
                let found = read.saturating_sub(before).min(bytes);
                piece[..found].copy_from_slice(&bounce[before..before + found]);
                Ok(found)
            });
            self.end_read(read, piece, offset, path)?;
            (rest, offset) = (others, offset + bytes as u64);
        }
        Ok(())
    }

    /// Ends a direct read, which may be cut short, as at the end of the file: the ordinary way
    /// gives the error.
    fn end_read(
        &self,
        read: io::Result<usize>,
        piece: &mut [u8],
        offset: u64,
        path: &Path,
    ) -> Result<()> {
        let end = offset + piece.len() as u64;
        let read = read.map_err(|e| refused(&e, "reading", path).in_bytes(offset..end))?;
        files::read_at(&self.file, &mut piece[read..], offset + read as u64, path)
    }
}

/// Opens a file whose moves are all direct.
fn open_for_all(file: &File, path: &Path) -> Result<Direct> {
    if FileSystem::of(file) == FileSystem::Memory {
        return Err(unsupported(path, "the file is in memory"));
    }
    let direct = Direct::open(file, path)?;
    let advised = rustix::fs::fadvise(file, 0, None, Advice::Random);
    advised.map_err(|e| refused(&e.into(), "declaring random access to", path))?;
    Ok(direct)
}

/// Opens a file whose cold reads are direct; `None` where that cannot be. Of a file that is also
/// written, the cache has what was written.
fn open_for_cold_reads(file: &File, path: &Path) -> Option<Direct> {
    let flags = rustix::fs::fcntl_getfl(file).ok()?;
    let is_read_only = flags & OFlags::ACCMODE == OFlags::RDONLY;
    let open = || Direct::open(file, path).ok();
    is_read_only.then(open).flatten()
}

/// The whole pages among `bytes` bytes at `offset`. If there are none, the range is empty and at
/// the start.
fn whole_pages(offset: u64, bytes: usize, page_bytes: u64) -> Range<usize> {
    let end = offset + bytes as u64;
    let first = offset.next_multiple_of(page_bytes);
    let last = end - end % page_bytes;
    if first < last {
        exact::<usize>(first - offset)..exact::<usize>(last - offset)
    } else {
        0..0
    }
}

/// Calls `act` with this thread's aligned memory.
fn with_bounce<T>(act: impl FnOnce(&mut [u8]) -> io::Result<T>) -> io::Result<T> {
    BOUNCE.with_borrow_mut(|memory| {
        let memory = match memory {
            Some(memory) => memory,
            none => none.insert(Mapping::private(BOUNCE_BYTES).map_err(io::Error::other)?),
        };
        // SAFETY: the mapping has that many bytes, is this thread's alone, and is borrowed for as
        // long as `act` runs.
        act(unsafe { std::slice::from_raw_parts_mut(memory.base(), BOUNCE_BYTES) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_of_a_piece() {
        for (offset, bytes, pages) in [
            (0, 0, 0..0),
            (0, 4095, 0..0),
            (0, 4096, 0..4096),
            (0, 4097, 0..4096),
            (1, 4096, 0..0),
            (1, 8190, 0..0),
            (1, 8191, 4095..8191),
            (128, 1 << 20, 3968..(1 << 20) - 128),
            (8192, 8192, 0..8192),
            ((1 << 40) - 1, 4098, 1..4097),
        ] {
            assert_eq!(whole_pages(offset, bytes, 4096), pages, "{offset} {bytes}");
        }
    }

    #[test]
    fn whole_pages_are_those_of_which_every_byte_is_in_the_piece() {
        for (offset, bytes) in (0..12).flat_map(|o| (0..20).map(move |b| (o, b))) {
            let end = offset + bytes;
            let naive: Vec<u64> = (0..32)
                .filter(|byte| offset <= byte / 4 * 4 && byte / 4 * 4 + 4 <= end)
                .collect();
            let found = whole_pages(offset, bytes as usize, 4);
            let found: Vec<u64> = found.map(|at| offset + at as u64).collect();
            assert_eq!(found, naive, "{offset} {bytes}");
        }
    }

    #[test]
    fn the_bounce_memory_is_aligned() {
        for byte in [1, 2] {
            with_bounce(|memory| {
                assert!(memory.as_ptr().addr().is_multiple_of(BOUNCE_BYTES));
                assert_eq!(memory.len(), BOUNCE_BYTES);
                assert_eq!(memory[BOUNCE_BYTES - 1], byte - 1);
                memory.fill(byte);
                Ok(())
            })
            .unwrap();
        }
    }
}
