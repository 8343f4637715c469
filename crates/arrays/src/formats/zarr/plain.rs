//! Moves chunks without codec: as fast as a flat file, and around the page cache if a user chooses
//! so.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_engine::{Digest, Error, Kind, Result};
use penstock_layout::{Block, exact};
use penstock_machines::Medium;
use penstock_machines::memory::buffer::fill;

use super::chunks::Chunks;
use super::metadata::Plain;
use super::written::ChunkFiles;
use crate::dtype::StoredElement;
use crate::fs::direct::{AccessMode, DataFile};
use crate::fs::files::{self, ClosedObjects, Open};
use crate::fs::ops;

/// The most chunk files that are kept open: each server's worker is at one.
const OPEN_MAX: usize = 16;

/// Writes blocks of chunks.
pub(super) struct Writer {
    chunks: Chunks,
    layout: Plain,
    way: AccessMode,
    open: Open<DataFile>,
    written: ChunkFiles,
}

impl Writer {
    pub(super) fn new(chunks: Chunks, layout: Plain, way: AccessMode) -> Self {
        Self {
            chunks,
            layout,
            way,
            open: Open::new(OPEN_MAX),
            written: ChunkFiles::default(),
        }
    }

    /// Opens or makes a chunk's file at its full length, so that unwritten padding reads as zeros,
    /// or as the fill value. A new file begins as the chunk of the array that is changed.
    fn create(&self, object: u64, path: &Path) -> Result<DataFile> {
        let bytes = self.chunks.bytes(object);
        let base = self.chunks.open_base(object)?;
        if base.is_none() && self.layout.fill.iter().any(|&byte| byte != 0) {
            let filled = || {
                let mut filled = vec![0; exact::<usize>(bytes)];
                fill(&mut filled, &self.layout.fill);
                self.layout.element.swap(&mut filled);
                filled
            };
            self.written.create_filled(&self.chunks, object, filled)?;
        }
        let file = self.written.create(&self.chunks, object)?;
        let is_new = files::length(&file, path)? == 0;
        match base.filter(|_| is_new) {
            Some((base, base_path)) => {
                check_length(&base, bytes, &base_path)?;
                ops::copy(&base, &file, path).map_err(|e| Error::io(&e, "copying to", path))?;
            }
            None if !is_new && self.chunks.location.grows => check_length(&file, bytes, path)?,
            None => ops::set_len(&file, bytes, path)
                .map_err(|e| Error::io(&e, "setting the length of", path))?,
        }
        DataFile::new(file, self.way, path)
    }

    /// Opens or makes a chunk's file for a block that is the whole chunk.
    fn create_bare(&self, object: u64, path: &Path) -> Result<DataFile> {
        let file = self.written.create(&self.chunks, object)?;
        DataFile::new(file, self.way, path)
    }

    fn is_whole(&self, block: &Block) -> bool {
        block.bytes == self.chunks.bytes(block.object)
    }

    fn close(&self, files: ClosedObjects<DataFile>) -> Result<()> {
        for (object, file) in files {
            // The file has no other owner: files in use are not closed.
            if let Some(file) = Arc::into_inner(file) {
                self.written
                    .closed(object, &self.chunks.path(object), file.into_file())?;
            }
        }
        Ok(())
    }
}

impl Medium for Writer {
    fn position(&self, _: &Block) -> Option<u64> {
        None // new chunks have none yet
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        if !self.is_whole(block) {
            return self.write_part(block, 0, data);
        }
        let path = self.chunks.path(block.object);
        let file = match self.open.take(block.object) {
            Some(file) => file,
            None => self.create_bare(block.object, &path)?,
        };
        let data = self.layout.element.swapped(data);
        file.write_at(&data, 0, &path)?;
        self.written.closed(block.object, &path, file.into_file())
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.read_part(block, 0, data)
    }

    fn moves_parts(&self) -> bool {
        true
    }

    fn write_part(&self, block: &Block, offset: u64, data: &[u8]) -> Result<()> {
        let path = self.chunks.path(block.object);
        let (file, given_up) = self
            .open
            .get(block.object, || self.create(block.object, &path))?;
        let data = self.layout.element.swapped(data);
        file.write_at(&data, self.chunks.offset(block) + offset, &path)?;
        self.close(given_up)
    }

    /// Reads a chunk that this call has written, at its full length, or else the chunk of the array
    /// that is changed.
    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        let path = self.chunks.path(block.object);
        let found = match files::open_if_there(&path)? {
            Some(file) => Some((file, path)),
            None => self.chunks.open_base(block.object)?,
        };
        match found {
            None => fill(data, &self.layout.fill),
            Some((file, path)) => {
                let file = DataFile::new(file, self.way, &path)?;
                file.read_at(data, self.chunks.offset(block) + offset, &path)?;
                self.layout.element.swap(data);
            }
        }
        Ok(())
    }

    fn finish(&self, sync: bool) -> Result<()> {
        self.close(self.open.drain())?;
        self.written.finish(&self.chunks, sync)
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Reads and changes blocks of chunks that are there. New chunks are made aside, at full length,
/// and come to their places when the medium is finished.
pub(super) struct Updater {
    chunks: Chunks,
    layout: Plain,
    way: AccessMode,
    open: Open<OpenChunk>,
    written: ChunkFiles,
}

/// The open file of a chunk.
struct OpenChunk {
    file: DataFile,
    /// Whether the file has another name: then it is read, and not changed.
    is_shared: bool,
}

impl Updater {
    pub(super) fn new(chunks: Chunks, layout: Plain, way: AccessMode) -> Self {
        Self {
            chunks,
            layout,
            way,
            open: Open::new(OPEN_MAX),
            written: ChunkFiles::default(),
        }
    }

    /// Opens a chunk's file to be changed, or makes one aside: of a missing chunk, and of one whose
    /// file is another array's, too (a hard link), and would change there.
    fn open_own(&self, object: u64) -> Result<Arc<OpenChunk>> {
        let shared = self.open.peek(object).filter(|chunk| chunk.is_shared);
        if shared.is_some() {
            drop((shared, self.open.take(object)));
        }
        let open = || {
            let (path, bytes) = (self.path(object), self.chunks.bytes(object));
            let Some(found) = self.open_found(object)? else {
                let made = self.make(object, |file, path| self.fill_new(file, bytes, path))?;
                return self.of_own(made, &path);
            };
            if !found.is_shared {
                return Ok(found);
            }
            let made = self.make(object, |file, path| {
                let copied = ops::copy(found.file.file(), file, path);
                copied.map_err(|e| Error::io(&e, "copying to", path))
            })?;
            self.of_own(made, &path)
        };
        self.open.get(object, open).map(|(chunk, _)| chunk)
    }

    /// Opens a chunk's file as it is; `None` if the chunk is not stored.
    fn open_found(&self, object: u64) -> Result<Option<OpenChunk>> {
        let path = self.path(object);
        let Some(file) = open_to_change(&path)? else {
            return Ok(None);
        };
        check_length(&file, self.chunks.bytes(object), &path)?;
        let is_shared = files::metadata(&file, &path)?.nlink() > 1;
        let file = DataFile::new(file, self.way, &path)?;
        Ok(Some(OpenChunk { file, is_shared }))
    }

    fn of_own(&self, file: File, path: &Path) -> Result<OpenChunk> {
        Ok(OpenChunk {
            file: DataFile::new(file, self.way, path)?,
            is_shared: false,
        })
    }

    /// The file that holds a chunk now.
    fn path(&self, object: u64) -> PathBuf {
        self.written.path(&self.chunks, object)
    }

    /// Makes a chunk's file aside, with what `contents` puts into it.
    fn make(&self, object: u64, contents: impl FnOnce(&File, &Path) -> Result<()>) -> Result<File> {
        let path = self.chunks.path_aside(object);
        let file = self.written.create_aside(&self.chunks, object, &path)?;
        contents(&file, &path)?;
        self.written.is_now_aside(object);
        Ok(file)
    }

    fn fill_new(&self, file: &File, bytes: u64, path: &Path) -> Result<()> {
        if self.layout.fill.iter().all(|&byte| byte == 0) {
            let set = ops::set_len(file, bytes, path);
            return set.map_err(|e| Error::io(&e, "setting the length of", path));
        }
        let mut filled = files::zeros(bytes)?;
        fill(&mut filled, &self.layout.fill);
        self.layout.element.swap(&mut filled);
        files::write_at(file, &filled, 0, path)
    }
}

/// Opens a file for reading and writing; `None` if it is missing.
fn open_to_change(path: &Path) -> Result<Option<File>> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(&error, "opening for writing", path)),
    }
}

impl Medium for Updater {
    /// The position of a block of a chunk that is open.
    fn position(&self, block: &Block) -> Option<u64> {
        let chunk = self.open.peek(block.object)?;
        chunk.file.position(self.chunks.offset(block))
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, data: &[u8]) -> Result<()> {
        self.write_part(block, 0, data)
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.read_part(block, 0, data)
    }

    fn moves_parts(&self) -> bool {
        true
    }

    fn write_part(&self, block: &Block, offset: u64, data: &[u8]) -> Result<()> {
        let chunk = self.open_own(block.object)?;
        let data = self.layout.element.swapped(data);
        let offset = self.chunks.offset(block) + offset;
        chunk
            .file
            .write_at(&data, offset, &self.path(block.object))?;
        self.written.changed(block.object);
        Ok(())
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        let chunk = match self.open.peek(block.object) {
            Some(chunk) => chunk,
            None => match self.open_found(block.object)? {
                Some(found) => self.open.get(block.object, || Ok(found))?.0,
                None => {
                    fill(data, &self.layout.fill);
                    return Ok(());
                }
            },
        };
        let offset = self.chunks.offset(block) + offset;
        chunk.file.read_at(data, offset, &self.path(block.object))?;
        self.layout.element.swap(data);
        Ok(())
    }

    fn finish(&self, sync: bool) -> Result<()> {
        self.written.finish(&self.chunks, sync)
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Checks the length of a chunk: without codec it is fixed.
fn check_length(file: &File, bytes: u64, path: &Path) -> Result<()> {
    check_bytes(files::length(file, path)?, bytes, path)
}

/// Checks that a chunk without codec has the bytes that belong there.
pub(super) fn check_bytes(there: u64, bytes: u64, path: &Path) -> Result<()> {
    if there == bytes {
        return Ok(());
    }
    let cause = format!("the chunk has {there} bytes where {bytes} belong");
    Err(files::damaged(path, cause))
}

/// The error of a write to an array that is open for reading.
pub(crate) fn read_only(path: &Path) -> Error {
    Error::new(Kind::ReadOnly, "writing", "the array is open for reading").at(path)
}

/// Reads blocks of chunks.
pub(super) struct Reader {
    chunks: Chunks,
    element: StoredElement,
    fill: Vec<u8>,
    way: AccessMode,
    /// The open files; `None` for a missing one.
    open: Open<Option<DataFile>>,
}

impl Reader {
    pub(super) fn new(
        chunks: Chunks,
        element: StoredElement,
        fill: Vec<u8>,
        way: AccessMode,
    ) -> Self {
        Self {
            chunks,
            element,
            fill,
            way,
            open: Open::new(OPEN_MAX),
        }
    }

    /// Opens a chunk's file, and checks its length once.
    fn open(&self, object: u64, path: &Path) -> Result<Arc<Option<DataFile>>> {
        let open = || {
            let Some(file) = files::open_if_there(path)? else {
                return Ok(None);
            };
            check_length(&file, self.chunks.bytes(object), path)?;
            DataFile::new(file, self.way, path).map(Some)
        };
        self.open.get(object, open).map(|(file, _)| file)
    }
}

impl Medium for Reader {
    /// The position of a block of a chunk that is open.
    fn position(&self, block: &Block) -> Option<u64> {
        let file = self.open.peek(block.object)?;
        file.as_ref().as_ref()?.position(self.chunks.offset(block))
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn write(&self, block: &Block, _: &[u8]) -> Result<()> {
        Err(read_only(&self.chunks.path(block.object)))
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        self.read_part(block, 0, data)
    }

    fn moves_parts(&self) -> bool {
        true
    }

    fn write_part(&self, block: &Block, _: u64, _: &[u8]) -> Result<()> {
        Err(read_only(&self.chunks.path(block.object)))
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        let path = self.chunks.path(block.object);
        match &*self.open(block.object, &path)? {
            None => fill(data, &self.fill),
            Some(file) => {
                file.read_at(data, self.chunks.offset(block) + offset, &path)?;
                self.element.swap(data);
            }
        }
        Ok(())
    }

    fn finish(&self, _sync: bool) -> Result<()> {
        Ok(())
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}
