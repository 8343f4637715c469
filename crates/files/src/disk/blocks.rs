//! Block files and raw devices, as the worker of their device sees them.
//!
//! A block lies at its offset. What was never written is zero: the file may be sparse, and may end
//! before it.
//!
//! Blocks go through the page cache, unless the opener is direct ([`BlockOpener::direct`]): then
//! those that are whole pages go around it, if the memory is aligned. A direct read finds what was
//! written through the cache, and the other way round, since no page belongs to two blocks that are
//! moved in different ways.
//!
//! After a finish that has failed, what was written before may be lost, and the kernel forgets
//! that: all later writes and finishes fail, until the file is opened again. Reads go on; the
//! checksums of the volume tell what is good.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use penstock_engine::{Access, Digest, Error, Kind, Opening, Result};
use penstock_layout::Block;
use penstock_machines::disk::direct::{Direct, moved, refused};
use penstock_machines::disk::extents::{Extents, is_raw};
use penstock_machines::{BlockSieve, DeviceId, Medium, Opener, no_sieve};
use rustix::fs::Advice;

/// Opens the disks of servers. An opening's target is the path of a block file or a raw device.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlockOpener {
    is_direct: bool,
}

impl BlockOpener {
    /// Makes an opener whose blocks go through the page cache.
    pub fn cached() -> Self {
        Self { is_direct: false }
    }

    /// Makes an opener whose blocks go around the page cache, where they are whole pages in memory
    /// that is aligned.
    pub fn direct() -> Self {
        Self { is_direct: true }
    }
}

fn path_of(opening: &Opening) -> PathBuf {
    OsString::from_vec(opening.target.clone()).into()
}

impl Opener for BlockOpener {
    fn device(&self, opening: &Opening) -> Result<DeviceId> {
        let path = path_of(opening);
        let none = || {
            Error::new(
                Kind::Missing,
                "looking for the device of",
                "nothing is there",
            )
        };
        DeviceId::of(&path).ok_or_else(|| none().at(&path))
    }

    /// Opens a disk.
    ///
    /// # Errors
    /// [`Kind::Missing`]; [`Kind::Unsupported`] when blocks are to go around the page cache and the
    /// file system cannot do that.
    fn open(&self, opening: &Opening, tells_positions: bool) -> Result<Arc<dyn Medium>> {
        let path = path_of(opening);
        let is_changed = opening.access != Access::Read;
        let opened = File::options().read(true).write(is_changed).open(&path);
        let file = opened.map_err(|error| Error::io(&error, "opening a disk", &path))?;
        let direct = match self.is_direct {
            true => {
                // The kernel must not read ahead what another block's direct write is changing.
                let advised = rustix::fs::fadvise(&file, 0, None, Advice::Random);
                advised.map_err(|e| Error::io(&e.into(), "opening a disk", &path))?;
                Some(Direct::open(&file, &path)?)
            }
            false => None,
        };
        // The kernel sorts what the page cache writes, by itself.
        let tells_positions = tells_positions && (self.is_direct || is_raw(&file));
        Ok(Arc::new(BlockMedium {
            extents: match tells_positions {
                true => Extents::of(&file),
                false => Extents::default(),
            },
            file,
            path,
            direct,
            failed: OnceLock::new(),
        }))
    }

    fn sieve(&self, _words: &[u8], _opening: &Opening) -> Result<Box<dyn BlockSieve>> {
        Err(no_sieve())
    }
}

/// An open block file or raw device.
struct BlockMedium {
    file: File,
    path: PathBuf,
    direct: Option<Direct>,
    extents: Extents,
    /// The error of the finish that has failed.
    failed: OnceLock<Error>,
}

impl BlockMedium {
    /// The descriptor for bytes that are moved around the page cache.
    fn direct_for(&self, offset: u64, data: &[u8]) -> Option<&File> {
        let direct = self.direct.as_ref()?;
        let is_whole = |number: u64| number.is_multiple_of(direct.page_bytes);
        let is_straight = is_whole(offset) && is_whole(data.len() as u64) && direct.takes(data);
        is_straight.then_some(&direct.file)
    }

    fn check(&self) -> Result<()> {
        self.failed.get().cloned().map_or(Ok(()), Err)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.check()?;
        let end = offset + data.len() as u64;
        let fail = |error: &io::Error| refused(error, "writing", &self.path).in_bytes(offset..end);
        let direct = match self.direct_for(offset, data) {
            Some(file) => moved(|| file.write_at(data, offset)).map_err(|error| fail(&error))?,
            None => 0,
        };
        // A direct write may be cut short, as on a full disk: the ordinary way gives the error, or
        // succeeds.
        let rest = &data[direct..];
        let written = self.file.write_all_at(rest, offset + direct as u64);
        written.map_err(|error| Error::io(&error, "writing", &self.path).in_bytes(offset..end))
    }

    fn read_at(&self, data: &mut [u8], offset: u64) -> Result<()> {
        let end = offset + data.len() as u64;
        let mut done = match self.direct_for(offset, data) {
            Some(file) => {
                let read = moved(|| file.read_at(data, offset));
                read.map_err(|error| refused(&error, "reading", &self.path).in_bytes(offset..end))?
            }
            None => 0,
        };
        while done < data.len() {
            let rest = &mut data[done..];
            let read = moved(|| self.file.read_at(rest, offset + done as u64));
            match read {
                Ok(0) => {
                    rest.fill(0); // the file ends here
                    break;
                }
                Ok(bytes) => done += bytes,
                Err(error) => {
                    let error = Error::io(&error, "reading", &self.path);
                    return Err(error.in_bytes(offset..end));
                }
            }
        }
        Ok(())
    }
}

impl Medium for BlockMedium {
    fn position(&self, block: &Block) -> Option<u64> {
        self.extents.position(block.offset)
    }

    fn is_in_order(&self) -> bool {
        self.extents.are_in_order()
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        self.write_at(data, block.offset)
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.read_at(data, block.offset)
    }

    fn moves_parts(&self) -> bool {
        true
    }

    fn write_part(&self, block: &Block, offset: u64, data: &[u8]) -> Result<()> {
        self.write_at(data, block.offset + offset)
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        self.read_at(data, block.offset + offset)
    }

    fn finish(&self, sync: bool) -> Result<()> {
        self.check()?;
        if !sync {
            return Ok(());
        }
        self.file.sync_data().map_err(|error| {
            let error = Error::io(&error, "syncing", &self.path);
            self.failed.get_or_init(|| error).clone()
        })
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}
