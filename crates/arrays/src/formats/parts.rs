//! One file for each part of a distribution as a medium.
//!
//! A part holds a block of the array, row-major, without padding. Objects count through the grid of
//! parts that hold elements, files through the mesh, which is larger if BLOCK leaves the last parts
//! empty.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use penstock_engine::{Error, Result};
use penstock_layout::{Block, DiskSchema};
use penstock_machines::Medium;
use serde::{Deserialize, Serialize};

use super::spread::SpreadArray;
use crate::dtype::{self, ByteOrder, ElementType};
use crate::fs::direct::{AccessMode, DataFile};
use crate::fs::files::{self, Open, lock, make_missing};
use crate::fs::ops;

/// The most part files that are kept open: one thread writes a part, so a few are enough for a few
/// disks.
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
    pub(crate) element: ElementType,
    pub(crate) order: ByteOrder,
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
        Ok(Arc::new(Parts::new(self, server.0, schema, false, way)))
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
        Ok(Arc::new(Parts::new(self, server, schema, true, way)))
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

/// One file for each part of a mesh, which has its full length from the first access on.
struct Parts {
    files: Location,
    /// The server that opened the parts.
    server: usize,
    schema: DiskSchema,
    writing: bool,
    way: AccessMode,
    open: Open<DataFile>,
    /// The parts that were written and closed again, and are yet to be synced.
    closed: Mutex<Vec<u64>>,
}

impl Parts {
    fn new(
        files: &Location,
        server: usize,
        schema: &DiskSchema,
        writing: bool,
        way: AccessMode,
    ) -> Self {
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
            files::start_writeback(file.file(), 0, 0, &self.path(object))?;
            lock(&self.closed).push(object);
        }
        act(&file, &path)
    }
}

impl Medium for Parts {
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
        let Location { element, order, .. } = self.files;
        dtype::swap(data, element.swap_width_from(order));
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
        // A part that was opened several times is several times in the list.
        written.sort_unstable();
        written.dedup();
        paths.extend(written.into_iter().map(|object| self.path(object)));
        files::sync_paths(&paths)
    }

    fn sums(&self) -> Vec<(u64, u32)> {
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
