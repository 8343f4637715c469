//! One file for each part of a distribution as a medium.
//!
//! A part holds a block of the array, row-major, without padding. Objects count through the grid of
//! parts that hold elements, files through the mesh, which is larger if BLOCK leaves the last parts
//! empty.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use penstock_engine::{Digest, Error, Kind, Result};
use penstock_layout::{Block, DiskSchema};
use penstock_machines::Medium;
use serde::{Deserialize, Serialize};

use super::spread::SpreadArray;
use crate::dtype::StoredElement;
use crate::fs::direct::{AccessMode, DataFile};
use crate::fs::files::{self, Open, lock, make_missing};
use crate::fs::ops;

/// The most part files that are kept open: one thread writes a part, so a few are enough for a few
/// servers.
const OPEN_MAX: usize = 16;
/// The least digits of a part's number.
const PART_DIGITS_MIN: usize = 4;

/// The place of part files, and the form of their elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Location {
    /// The path of the part files, without the number and the point before it.
    pub(crate) stem: PathBuf,
    /// The number of parts in each dimension.
    pub(crate) mesh: Vec<u64>,
    pub(crate) element: StoredElement,
    /// The `stem` of the array that is changed; its parts stay as they are.
    pub(crate) base: Option<PathBuf>,
    /// The spread of the parts over servers, if they are not in one directory.
    pub(crate) spread: Option<SpreadArray>,
}

impl Location {
    pub(crate) fn open_read(
        &self,
        server: (usize, usize),
        schema: &DiskSchema,
        way: AccessMode,
    ) -> Result<Arc<dyn Medium>> {
        if let Some(of) = &self.spread {
            of.check(server, schema)?;
        }
        Ok(Arc::new(Parts::new(
            self,
            server.0,
            schema,
            (Access::Read, way),
        )))
    }

    pub(crate) fn open_write(
        &self,
        server: usize,
        schema: &DiskSchema,
        way: AccessMode,
    ) -> Result<Arc<dyn Medium>> {
        if let Some(of) = &self.spread {
            of.make(server)?;
        }
        Ok(Arc::new(Parts::new(
            self,
            server,
            schema,
            (Access::Write, way),
        )))
    }

    /// Opens the parts to be read and changed in place.
    pub(crate) fn open_update(
        &self,
        server: (usize, usize),
        schema: &DiskSchema,
        way: AccessMode,
    ) -> Result<Arc<dyn Medium>> {
        if let Some(of) = &self.spread {
            of.take_up(server, schema)?;
        }
        Ok(Arc::new(Parts::new(
            self,
            server.0,
            schema,
            (Access::Update, way),
        )))
    }

    /// The directory of the parts.
    pub(crate) fn directory(&self) -> &Path {
        self.stem.parent().unwrap_or(&self.stem)
    }

    /// The sidecar of the parts.
    pub(crate) fn schema_file(&self) -> PathBuf {
        self.directory().join("schema.json")
    }

    /// The file of a block, and the block's offset in it.
    pub(crate) fn place_of(&self, schema: &DiskSchema, block: &Block) -> (PathBuf, Option<u64>) {
        (self.path(schema, block.object), Some(block.offset))
    }

    /// The file of an object.
    fn path(&self, schema: &DiskSchema, object: u64) -> PathBuf {
        match &self.spread {
            None => object_path(&self.stem, &self.mesh, schema, object),
            Some(of) => {
                let stem = of.home(schema, object).join(&of.name);
                object_path(&stem, &self.mesh, schema, object)
            }
        }
    }

    /// The file of an object in the array that is changed.
    fn base_path(&self, schema: &DiskSchema, object: u64) -> Option<PathBuf> {
        let stem = match &self.spread {
            None => self.base.clone()?,
            Some(of) => of.base_home(schema, object)?.join(&of.name),
        };
        Some(object_path(&stem, &self.mesh, schema, object))
    }
}

/// What is done with part files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Files are read.
    Read,
    /// Files are made and written.
    Write,
    /// Files that are there are read and changed in place.
    Update,
}

/// One file for each part of a mesh, which has its full length from the first access on.
struct Parts {
    files: Location,
    /// The server that opened the parts.
    server: usize,
    schema: DiskSchema,
    access: Access,
    way: AccessMode,
    open: Open<DataFile>,
    /// The parts that were written and closed again, and are yet to be synced.
    closed: Mutex<BTreeSet<u64>>,
}

impl Parts {
    fn new(
        files: &Location,
        server: usize,
        schema: &DiskSchema,
        (access, way): (Access, AccessMode),
    ) -> Self {
        Self {
            files: files.clone(),
            server,
            schema: schema.clone(),
            access,
            way,
            open: Open::new(OPEN_MAX),
            closed: Mutex::default(),
        }
    }

    fn path(&self, object: u64) -> PathBuf {
        self.files.path(&self.schema, object)
    }

    /// Opens or makes a part's file at its full length: several ranks may make it at once. A new
    /// file begins as the part of the array that is changed.
    fn create(&self, object: u64, path: &Path) -> Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let opening = |e| Error::io(&e, "opening for writing", path);
        if let Some(old) = self.files.base_path(&self.schema, object) {
            if files::open_if_there(path)?.is_none() {
                files::clone(&old, path)?;
            }
            return options.open(path).map_err(opening);
        }
        let file = ops::create(options.create(true), path).map_err(opening)?;
        if files::length(&file, path)? == 0 {
            ops::set_len(&file, self.schema.object_bytes(object), path)
                .map_err(|e| Error::io(&e, "setting the length of", path))?;
        }
        Ok(file)
    }

    /// Opens a part's file to be changed in place.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] when the file has a second name, under which it would change too.
    fn take_up(&self, object: u64, path: &Path) -> Result<File> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|e| Error::io(&e, "opening for writing", path))?;
        let (found, bytes) = (
            files::metadata(&file, path)?,
            self.schema.object_bytes(object),
        );
        if found.len() != bytes {
            let cause = format!("the part has {} bytes where {bytes} belong", found.len());
            return Err(files::damaged(path, cause));
        }
        if found.nlink() > 1 {
            let cause =
                "its file is that of another array, too (a hard link): copy the array first";
            return Err(Error::new(Kind::Unsupported, "changing in place", cause).at(path));
        }
        Ok(file)
    }

    /// Makes the files that no write has made, and links those of the array that is changed. Gives
    /// the paths that are yet to be synced.
    fn make_rest(&self) -> Result<Vec<PathBuf>> {
        let Some(of) = &self.files.spread else {
            return Ok(Vec::new());
        };
        of.link_rest(self.server)?;
        if of.base.is_some() {
            return Ok(Vec::new());
        }
        let own = self.schema.objects_of(self.server, of.spread.servers);
        let own = own.map(|object| (self.path(object), self.schema.object_bytes(object)));
        let mut made = make_missing(own)?;
        made.push(of.of_server(self.server));
        Ok(made)
    }

    fn with<T>(&self, object: u64, act: impl FnOnce(&DataFile, &Path) -> Result<T>) -> Result<T> {
        let path = self.path(object);
        let open = || {
            let file = match self.access {
                Access::Write => self.create(object, &path)?,
                Access::Update => self.take_up(object, &path)?,
                Access::Read => File::open(&path).map_err(|e| Error::io(&e, "opening", &path))?,
            };
            DataFile::new(file, self.way, &path)
        };
        let (file, given_up) = self.open.get(object, open)?;
        let is_written = self.access != Access::Read;
        for (object, file) in given_up.into_iter().filter(|_| is_written) {
            files::start_writeback(file.file(), 0, 0, &self.path(object))?;
            lock(&self.closed).insert(object);
        }
        act(&file, &path)
    }
}

impl Medium for Parts {
    /// The position of a block of a part that is open.
    fn position(&self, block: &Block) -> Option<u64> {
        self.open.peek(block.object)?.position(block.offset)
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
        let data = self.files.element.swapped(data);
        self.with(block.object, |file, path| {
            file.write_at(&data, block.offset + offset, path)
        })
    }

    fn read_part(&self, block: &Block, offset: u64, data: &mut [u8]) -> Result<()> {
        self.with(block.object, |file, path| {
            file.read_at(data, block.offset + offset, path)
        })?;
        self.files.element.swap(data);
        Ok(())
    }

    fn finish(&self, sync: bool) -> Result<()> {
        let open = self.open.drain();
        if self.access == Access::Read {
            return Ok(());
        }
        lock(&self.closed).extend(open.into_iter().map(|(object, _)| object));
        let mut paths = match self.access {
            Access::Write => self.make_rest()?,
            Access::Read | Access::Update => Vec::new(),
        };
        if !sync {
            return Ok(()); // a later call may sync them
        }
        let written = std::mem::take(&mut *lock(&self.closed));
        paths.extend(written.into_iter().map(|object| self.path(object)));
        files::sync_paths(&paths)
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// The file of an object. Objects count through the grid, part files through the mesh, which is
/// larger if BLOCK leaves the last parts empty.
fn object_path(stem: &Path, mesh: &[u64], schema: &DiskSchema, object: u64) -> PathBuf {
    let place = schema.grid_index(object);
    let number = place
        .iter()
        .zip(mesh)
        .fold(0, |number, (i, extent)| number * extent + i);
    part_path(stem, number, mesh)
}

/// The name of a part file, as `u.0003`: with enough digits to sort the parts of `mesh`.
pub(crate) fn part_path(stem: &Path, number: u64, mesh: &[u64]) -> PathBuf {
    let last = mesh.iter().product::<u64>().saturating_sub(1);
    let digits = last.to_string().len().max(PART_DIGITS_MIN);
    let mut name = stem.as_os_str().to_os_string();
    name.push(format!(".{number:0digits$}"));
    PathBuf::from(name)
}
