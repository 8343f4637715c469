//! Flat files as media: one file with or without a header, or one file a part.
//!
//! A block is a run of the file's bytes, so it costs one `pread` or `pwrite`, straight from or
//! into the staging buffer. Bytes are swapped after reading where the file's order is not the
//! machine's; what is written is always in the machine's order. Parts of blocks are runs of bytes too,
//! and ranks may write theirs side by side. Moved directly, the whole pages of a run go around the page
//! cache.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use penstock_engine::{Error, Result};
use penstock_layout::{Block, DiskSchema};
use penstock_machines::Medium;

use super::direct::{DataFile, Way};
use super::file::{self, Open, lock};
use super::pending::make_missing;
use super::{PartFiles, change};
use crate::dtype::{self, ByteOrder, ElementType};

/// Part files kept open: a part is written from one thread, so a few are enough for a few disks.
const OPEN_MAX: usize = 16;
/// Digits of a part's number.
const PART_DIGITS_MIN: usize = 4;

/// One file that holds the whole array.
pub(super) struct FlatFile {
    file: DataFile,
    path: PathBuf,
    header_bytes: u64,
    swap_width: usize,
}

impl FlatFile {
    pub(super) fn open_write(path: &Path, header_bytes: u64, way: Way) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|e| Error::io(&e, "opening for writing", path))?;
        Ok(Self {
            file: DataFile::new(file, way, path)?,
            path: path.to_path_buf(),
            header_bytes,
            swap_width: 1,
        })
    }

    pub(super) fn open_read(
        path: &Path,
        header_bytes: u64,
        stored: (ElementType, ByteOrder),
        way: Way,
    ) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(&e, "opening", path))?;
        Ok(Self {
            file: DataFile::new(file, way, path)?,
            path: path.to_path_buf(),
            header_bytes,
            swap_width: swap_width(stored),
        })
    }
}

/// What must be reversed after reading; 1 is nothing.
pub(super) fn swap_width((element, order): (ElementType, ByteOrder)) -> usize {
    if order == ByteOrder::NATIVE {
        1
    } else {
        element.swap_width()
    }
}

impl Medium for FlatFile {
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
        let offset = self.header_bytes + block.offset + offset;
        self.file.write_at(data, offset, &self.path)
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        let offset = self.header_bytes + block.offset + offset;
        self.file.read_at(data, offset, &self.path)?;
        dtype::swap(data, self.swap_width);
        Ok(())
    }

    fn finish(&self, sync: bool) -> Result<()> {
        if !sync {
            return Ok(());
        }
        change::sync(self.file.file(), &self.path).map_err(|e| Error::io(&e, "syncing", &self.path))
    }
}

impl PartFiles {
    /// The file of an object.
    pub(super) fn path(&self, schema: &DiskSchema, object: u64) -> PathBuf {
        match &self.spread {
            None => object_path(&self.stem, &self.mesh, schema, object),
            Some(of) => {
                let stem = of.home(schema, object).join(&of.name);
                object_path(&stem, &self.mesh, schema, object)
            }
        }
    }

    /// The same in the array that is to be changed.
    fn base_path(&self, schema: &DiskSchema, object: u64) -> Option<PathBuf> {
        let stem = match &self.spread {
            None => self.base.clone()?,
            Some(of) => of.base_home(schema, object)?.join(&of.name),
        };
        Some(object_path(&stem, &self.mesh, schema, object))
    }
}

/// One file for each part of a mesh, of full length from the first access on.
pub(super) struct Parts {
    files: PartFiles,
    /// The server that opened them.
    server: usize,
    schema: DiskSchema,
    writing: bool,
    way: Way,
    open: Open<DataFile>,
    /// Parts that were written and closed again, to be synced.
    closed: Mutex<Vec<u64>>,
}

impl Parts {
    pub(super) fn open_read(
        files: &PartFiles,
        server: (usize, usize),
        schema: &DiskSchema,
        way: Way,
    ) -> Result<Self> {
        if let Some(of) = &files.spread {
            of.check(server, schema)?;
        }
        Ok(Self::new(files, server.0, schema, false, way))
    }

    pub(super) fn open_write(
        files: &PartFiles,
        server: usize,
        schema: &DiskSchema,
        way: Way,
    ) -> Result<Self> {
        if let Some(of) = &files.spread {
            of.make(server)?;
        }
        Ok(Self::new(files, server, schema, true, way))
    }

    fn new(files: &PartFiles, server: usize, schema: &DiskSchema, writing: bool, way: Way) -> Self {
        Self {
            files: files.clone(),
            server,
            schema: schema.clone(),
            writing,
            way,
            open: Open::new(OPEN_MAX),
            closed: Mutex::new(Vec::new()),
        }
    }

    fn path(&self, object: u64) -> PathBuf {
        self.files.path(&self.schema, object)
    }

    /// A part's file at its full length: several ranks may make it at a time. It begins as the part of the array
    /// that is changed.
    fn create(&self, object: u64, path: &Path) -> Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let opening = |e| Error::io(&e, "opening for writing", path);
        if let Some(old) = self.files.base_path(&self.schema, object) {
            if file::open_if_there(path)?.is_none() {
                file::clone(&old, path)?;
            }
            return options.open(path).map_err(opening);
        }
        let file = change::create(options.create(true), path).map_err(opening)?;
        if file::length(&file, path)? == 0 {
            change::set_len(&file, self.schema.object_bytes(object))
                .map_err(|e| Error::io(&e, "setting the length of", path))?;
        }
        Ok(file)
    }

    fn with<T>(&self, object: u64, act: impl FnOnce(&DataFile, &Path) -> Result<T>) -> Result<T> {
        let path = self.path(object);
        let open = || {
            let file = match self.writing {
                true => self.create(object, &path)?,
                false => File::open(&path).map_err(|e| Error::io(&e, "opening", &path))?,
            };
            DataFile::new(file, self.way, &path)
        };
        let (file, given_up) = self.open.get(object, open)?;
        for (object, file) in given_up.into_iter().filter(|_| self.writing) {
            file::start_writeback(file.file(), 0, 0, &self.path(object))?;
            lock(&self.closed).push(object);
        }
        act(&file, &path)
    }
}

impl Medium for Parts {
    fn make(&self, objects: &[u64]) -> Result<bool> {
        if !self.way.makes_first() {
            return Ok(false);
        }
        let mut objects = objects.iter();
        objects.try_for_each(|&object| self.with(object, |_, _| Ok(())))?;
        Ok(true)
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
        self.with(block.object, |file, path| {
            file.write_at(data, block.offset + offset, path)
        })
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        self.with(block.object, |file, path| {
            file.read_at(data, block.offset + offset, path)
        })?;
        dtype::swap(data, swap_width((self.files.element, self.files.order)));
        Ok(())
    }

    fn finish(&self, sync: bool) -> Result<()> {
        let mut written = std::mem::take(&mut *lock(&self.closed));
        let open = self.open.drain();
        if !self.writing {
            return Ok(());
        }
        written.extend(open.into_iter().map(|(object, _)| object));
        let mut paths = Vec::new();
        if let Some(of) = &self.files.spread {
            of.link_rest(self.server)?;
            if of.base.is_none() {
                let own = self.schema.objects_of(self.server, of.spread.servers);
                let own = own.map(|object| (self.path(object), self.schema.object_bytes(object)));
                paths = make_missing(own)?;
                paths.push(of.of_server(self.server));
            }
        }
        if !sync {
            return Ok(());
        }
        // Those that were opened again are there several times.
        written.sort_unstable();
        written.dedup();
        paths.extend(written.into_iter().map(|object| self.path(object)));
        file::sync_paths(&paths)
    }
}

/// The file of an object. Objects count through the grid, part files through the mesh, which is
/// larger where BLOCK leaves the last parts empty.
fn object_path(stem: &Path, mesh: &[u64], schema: &DiskSchema, object: u64) -> PathBuf {
    let place = schema.grid_index(object);
    let number = place
        .iter()
        .zip(mesh)
        .fold(0, |number, (i, extent)| number * extent + i);
    part_path(stem, number, mesh)
}

/// The name of a part file, as `u.0003`: with as many digits as sort the parts of `mesh`.
pub(super) fn part_path(stem: &Path, number: u64, mesh: &[u64]) -> PathBuf {
    let last = mesh.iter().product::<u64>().saturating_sub(1);
    let digits = last.to_string().len().max(PART_DIGITS_MIN);
    let mut name = stem.as_os_str().to_os_string();
    name.push(format!(".{number:0digits$}"));
    PathBuf::from(name)
}
