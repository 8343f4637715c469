//! The target: all that a server needs to open an array.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_bucket::{Place, bucket_of, is_in_repository, is_url, own_process};
use penstock_engine::{Error, Kind, Result};
use penstock_hdf5::Hdf5File;
use penstock_layout::{Assignment, Block, DiskSchema, Split};
use penstock_machines::{DeviceId, Medium};
use serde::{Deserialize, Serialize};

use super::references::{self, only_read};
use super::sparse::Sparse;
use super::spread::{self, SpreadArray};
use super::sums::{CheckMedium, DigestMedium};
use super::update::UpdateMedium;
use super::{flat, hdf5, parts, placed, zarr};
use crate::dtype::ElementType;
use crate::fs::direct::{AccessMode, DirectIo};

/// The place and form of the data of one array: all that a server needs to open them.
///
/// The root sends the target to every server in the collective request, so its paths are absolute,
/// and it holds the metadata that the root has read, so that servers need not read them again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    form: Form,
    way: AccessMode,
    checksums: Checksums,
    /// The fill value's bytes, if blocks of the fill value are left out.
    leaves_out: Option<Vec<u8>>,
    /// The server that opens the target, and the number of servers.
    server: (usize, usize),
    /// The process that alone reaches the target, if it is in that process's memory.
    process: Option<u64>,
}

/// The use of checksums.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Checksums {
    #[default]
    None,
    /// Makes the digests of written objects, with the bounds of elements of a type.
    Make(Option<ElementType>),
    /// Compares read objects with these sums, one an object.
    Compare(Vec<Option<u32>>),
}

/// The form of an array, and where its files are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Form {
    /// A Zarr array, or rows of one.
    Zarr(zarr::Location),
    /// One row-major file.
    Flat(flat::Location),
    /// One file for each part.
    Parts(parts::Location),
    /// Chunks, or one run of elements, within a file of several arrays.
    Placed(placed::Location),
    /// A dataset that the HDF5 library reads.
    Library(hdf5::library::Location),
    /// A Zarr array whose chunks are in files of others.
    Referred(zarr::Referred),
}

/// The disk schema for a write to `path`: into a bucket a chunk goes whole.
///
/// # Errors
/// [`Kind::Schema`] for a schema that does not fit together.
pub(crate) fn whole_in_bucket(path: &Path, disk: DiskSchema) -> Result<DiskSchema> {
    if !is_url(path) || disk.assignment() != Assignment::Objects {
        return Ok(disk);
    }
    let refused = |e| Error::new(Kind::Schema, "laying out an array", e).at(path);
    disk.split(Split::Whole).map_err(refused)
}

impl Target {
    pub(crate) fn new(form: Form) -> Self {
        let target = Self {
            form,
            way: AccessMode::default(),
            checksums: Checksums::None,
            leaves_out: None,
            server: (0, 1),
            process: None,
        };
        let place = Place::of(target.data_path()).ok().flatten();
        let is_own = place.is_some_and(|place| !place.is_shared());
        Self {
            process: is_own.then(own_process),
            ..target
        }
    }

    /// Whether the elements are in a bucket.
    pub(crate) fn is_in_bucket(&self) -> bool {
        is_url(self.data_path())
    }

    /// The file, directory or bucket of the elements.
    fn data_path(&self) -> &Path {
        match &self.form {
            Form::Referred(location) => location.data_path(),
            _ => self.path(),
        }
    }

    pub(crate) fn form(&self) -> &Form {
        &self.form
    }

    /// Whether servers read the array through the HDF5 library.
    pub(crate) fn is_read_by_library(&self) -> bool {
        matches!(self.form, Form::Library(_))
    }

    /// Sets the server that opens the target, and the number of servers.
    #[must_use]
    pub fn for_server(self, server: usize, servers: usize) -> Self {
        Self {
            server: (server, servers),
            ..self
        }
    }

    /// Makes checksums as the array is written: [`Medium::digests`] gives them.
    #[must_use]
    pub fn with_sums(self) -> Self {
        let checksums = Checksums::Make(None);
        Self { checksums, ..self }
    }

    /// Makes checksums as the array is written, and finds the bounds of its elements, which have
    /// this type.
    #[must_use]
    pub(crate) fn with_bounds(self, element: &ElementType) -> Self {
        let checksums = Checksums::Make(Some(element.clone()));
        Self { checksums, ..self }
    }

    /// Compares the array, as it is read, with these checksums, one an object.
    #[must_use]
    pub fn checked_by(self, known: Vec<Option<u32>>) -> Self {
        let checksums = Checksums::Compare(known);
        Self { checksums, ..self }
    }

    /// Leaves out blocks that hold nothing but this element, the fill value of the array. Each
    /// element may then be written only once.
    #[must_use]
    pub fn leaving_out(self, fill: Vec<u8>) -> Self {
        let leaves_out = Some(fill);
        Self { leaves_out, ..self }
    }

    /// Chooses which blocks are moved around the page cache (`O_DIRECT`), on every server: none, as
    /// at first, cold reads, or all. If it is to be all and the file system has no direct I/O,
    /// opening, or the first access to a chunk or part, fails with
    /// [`penstock_engine::Kind::Unsupported`]; blocks are never moved in the ordinary way instead.
    ///
    /// Direct I/O applies to the elements of flat files, of part files and of Zarr chunks without
    /// codec. The whole pages of a block, or part of one, go around the page cache, at one device
    /// access a call, and of a read so do the edges. The edges of a write, headers and metadata go
    /// through the cache, and so does everything that is encoded, shards included.
    #[must_use]
    pub fn with_direct(self, direct: impl Into<DirectIo>) -> Self {
        let direct = direct.into();
        let way = AccessMode { direct, ..self.way };
        Self { way, ..self }
    }

    /// Chooses whether the data are synced when they have been written: if so, writeback begins at
    /// once.
    #[must_use]
    pub fn with_sync(self, sync: bool) -> Self {
        let way = AccessMode { sync, ..self.way };
        Self { way, ..self }
    }

    /// Chooses whether the media that are opened look up where their blocks lie on the device
    /// ([`Medium::position`]): in each file of elements that is there, as it is opened, if it is
    /// moved around the page cache ([`Target::with_direct`]) or is a raw device.
    #[must_use]
    pub fn telling_positions(self, tells_positions: bool) -> Self {
        let way = AccessMode {
            tells_positions,
            ..self.way
        };
        Self { way, ..self }
    }

    /// The device on which the target's server has its part.
    ///
    /// # Errors
    /// [`Kind::Missing`] when the path leads nowhere.
    pub fn device(&self) -> Result<DeviceId> {
        if self.is_in_bucket() {
            return self.service();
        }
        let path = match self.spread() {
            Some(of) => of.of_server(self.server.0),
            None => self.data_path().to_path_buf(),
        };
        let missing = || {
            Error::new(
                Kind::Missing,
                "looking for the device of",
                "nothing is there",
            )
        };
        DeviceId::of(&path).ok_or_else(|| missing().at(&path))
    }

    /// The target with what servers of other processes need to open it.
    ///
    /// # Errors
    /// The error of a repository.
    pub(crate) fn lent(mut self) -> Result<Self> {
        if let Form::Zarr(location) = &mut self.form
            && is_in_repository(&location.directory)
        {
            location.fork = Place::at(&location.directory)?.fork()?;
        }
        Ok(self)
    }

    /// Refuses a target with what opens a state of a repository: servers that stand take no such
    /// thing from anybody.
    ///
    /// # Errors
    /// [`Kind::Unsupported`].
    pub(crate) fn check_not_lent(&self) -> Result<()> {
        match &self.form {
            Form::Zarr(zarr::Location { fork: Some(_), .. }) => {
                let cause = "servers that stand have no repositories";
                Err(Error::new(Kind::Unsupported, "opening", cause).at(self.path()))
            }
            _ => Ok(()),
        }
    }

    /// The service that has the target's bucket.
    fn service(&self) -> Result<DeviceId> {
        let path = self.data_path();
        let refused = |cause| Err(Error::new(Kind::Unsupported, "opening", cause).at(path));
        if self.process.is_some_and(|own| own != own_process()) {
            return refused("it is in the memory of one process, and the job has several");
        }
        if self.way.direct == DirectIo::Always {
            return refused("a bucket has no page cache to go around: leave out direct=True");
        }
        Ok(DeviceId::of_service(bucket_of(path).unwrap_or_default()))
    }

    /// Opens the (temporary) data for writing, in the blocks of `schema`, which must be the disk
    /// schema of the array with which the target was made.
    ///
    /// # Errors
    /// When the files are missing, may not be written, or cannot be moved as chosen.
    pub fn open_write(&self, schema: &DiskSchema) -> Result<Arc<dyn Medium>> {
        let medium = match &self.form {
            Form::Zarr(location) => location.open_write(self.server.0, schema, self.way)?,
            Form::Flat(location) => location.open_write(self.way)?,
            Form::Parts(location) => location.open_write(self.server.0, schema, self.way)?,
            Form::Placed(location) => location.open_write(schema, self.way)?,
            Form::Library(location) => return Err(location.refused()),
            Form::Referred(location) => return Err(only_read(location.path())),
        };
        let medium = match &self.leaves_out {
            Some(fill) => Arc::new(Sparse::new(medium, fill.clone())),
            None => medium,
        };
        Ok(match &self.checksums {
            Checksums::Make(bounded) => {
                let bounded = bounded.as_ref().and_then(ElementType::number);
                let medium = DigestMedium::new(medium, schema, self.fill(), bounded);
                Arc::new(medium)
            }
            Checksums::None | Checksums::Compare(_) => medium,
        })
    }

    /// Opens the data for reading, in the blocks of `schema`, which is
    /// [`crate::StoredArray::disk_schema`].
    ///
    /// # Errors
    /// When the files are missing, may not be read, are damaged, or cannot be moved as chosen.
    pub fn open_read(&self, schema: &DiskSchema) -> Result<Arc<dyn Medium>> {
        let medium = match &self.form {
            Form::Zarr(location) => location.open_read(self.server, schema, self.way)?,
            Form::Flat(location) => location.open_read(self.way)?,
            Form::Parts(location) => location.open_read(self.server, schema, self.way)?,
            Form::Placed(location) => location.open_read(schema, self.way)?,
            Form::Library(location) => {
                let file = match location.is_virtual {
                    true => Hdf5File::open_with_sources(&location.file)?,
                    false => hdf5::describe::open(&location.file)?,
                };
                location.open_read(file)?
            }
            Form::Referred(location) => location.open_read(schema, self.way)?,
        };
        let Checksums::Compare(known) = &self.checksums else {
            return Ok(medium);
        };
        let (target, blocks) = (self.clone(), schema.clone());
        let place = move |block: &Block| target.place_of(&blocks, block).ok().map(|(path, _)| path);
        let known = known.clone();
        Ok(Arc::new(CheckMedium::new(
            medium,
            schema,
            self.fill(),
            known,
            Box::new(place),
        )))
    }

    /// Opens the stored data to be read and changed in place, in the blocks of `schema`, which is
    /// [`crate::StoredArray::disk_schema`]. `StoredArray::updatable` has allowed that on rank 0.
    ///
    /// The medium gives back what it has taken. It may be finished many times: each finish puts
    /// all that was written before it into the store, and on stable storage if `sync`. Each block
    /// that is written is then the old or the new one at any moment, also after a crash; but blocks
    /// of flat files, of parts and of chunks without codec are overwritten where they are, and may
    /// be torn by a crash, as with POSIX writes. After a write or a finish that has failed, all
    /// that follows fails until the target is opened again.
    ///
    /// Servers that have the array open each change their own blocks only: those that
    /// [`DiskSchema::blocks`] deals out to them. No block is left out, and no sums are made.
    ///
    /// # Errors
    /// When the files are missing, may not be written, or cannot be moved as chosen;
    /// [`penstock_engine::Kind::Unsupported`] for Zarr format 2, and for parts whose files are
    /// those of another array, too; [`penstock_engine::Kind::Schema`] when the chunks are spread
    /// over another number of servers.
    pub fn open_update(&self, schema: &DiskSchema) -> Result<Arc<dyn Medium>> {
        let medium = match &self.form {
            Form::Zarr(location) => location.open_update(self.server, schema, self.way)?,
            Form::Flat(location) => location.open_write(self.way)?,
            Form::Parts(location) => location.open_update(self.server, schema, self.way)?,
            Form::Placed(location) => location.open_write(schema, self.way)?,
            Form::Library(location) => return Err(location.refused()),
            Form::Referred(location) => return Err(only_read(location.path())),
        };
        Ok(Arc::new(UpdateMedium::new(medium)))
    }

    /// What an object holds where nothing is written, the bytes of one element; none for zeros.
    pub(crate) fn fill(&self) -> Vec<u8> {
        match &self.form {
            Form::Zarr(location) => location.form.fill(),
            Form::Placed(location) => location.fill.bytes().to_vec(),
            Form::Library(location) => location.fill.bytes().to_vec(),
            Form::Referred(location) => location.fill(),
            Form::Flat(_) | Form::Parts(_) => Vec::new(),
        }
    }

    /// The file or directory of the array.
    pub(crate) fn path(&self) -> &Path {
        match &self.form {
            Form::Zarr(location) => &location.directory,
            Form::Flat(location) => &location.file,
            Form::Parts(location) => location.directory(),
            Form::Placed(location) => &location.file,
            Form::Library(location) => &location.file,
            Form::Referred(location) => location.path(),
        }
    }

    /// The file of a block, and the block's offset in it if the file holds the elements as they
    /// are.
    pub(crate) fn place_of(
        &self,
        schema: &DiskSchema,
        block: &Block,
    ) -> Result<(PathBuf, Option<u64>)> {
        match &self.form {
            Form::Zarr(location) => location.place_of(schema, block),
            Form::Flat(location) => Ok(location.place_of(block)),
            Form::Parts(location) => Ok(location.place_of(schema, block)),
            Form::Placed(location) => Ok(location.place_of(schema, block)),
            Form::Library(location) => Ok((location.file.clone(), None)),
            Form::Referred(location) => location.place_of(schema, block),
        }
    }

    /// A text that changes when the array or its metadata are replaced: when its first file was
    /// written, and how long the file is.
    ///
    /// # Errors
    /// When that file is missing, or the error of the service that has it.
    pub fn stamp(&self) -> Result<String> {
        if let Form::Referred(location) = &self.form {
            return references::stamp(&location.home);
        }
        if let Some(place) = Place::of(&self.path().join("zarr.json"))? {
            return Ok(format!("{} {:?}", self.path().display(), place.about()?));
        }
        let path = match &self.form {
            Form::Zarr(location) => location.metadata_file(),
            Form::Flat(location) => location.file.clone(),
            Form::Parts(location) => location.schema_file(),
            Form::Placed(location) => location.file.clone(),
            Form::Library(location) => location.file.clone(),
            Form::Referred(location) => location.home.clone(),
        };
        let meta = std::fs::metadata(&path).map_err(|e| Error::io(&e, "looking at", &path))?;
        let written = meta.modified().ok();
        Ok(format!("{} {written:?} {}", path.display(), meta.len()))
    }

    /// The spread of the array over servers, if it is spread.
    pub(crate) fn spread(&self) -> Option<&SpreadArray> {
        match &self.form {
            Form::Zarr(location) => location.spread.as_ref(),
            Form::Parts(location) => location.spread.as_ref(),
            Form::Flat(_) | Form::Placed(_) | Form::Library(_) | Form::Referred(_) => None,
        }
    }

    fn spread_mut(&mut self) -> Option<&mut SpreadArray> {
        match &mut self.form {
            Form::Zarr(location) => location.spread.as_mut(),
            Form::Parts(location) => location.spread.as_mut(),
            Form::Flat(_) | Form::Placed(_) | Form::Library(_) | Form::Referred(_) => None,
        }
    }

    /// Moves the spread of the array, which was found at `path` with `{server}` in it.
    pub(crate) fn move_to(&mut self, path: &Path) {
        let is_itself = self.path() == spread::of_server(path, 0);
        let store = match &self.form {
            Form::Zarr(_) if is_itself => path.parent().unwrap_or(path),
            _ => path,
        };
        if let Some(of) = self.spread_mut() {
            of.spread.move_to(store);
        }
    }

    /// The number of servers that each have a part of the array; `None` if the array is in one
    /// place.
    pub fn spread_over(&self) -> Option<usize> {
        self.spread().map(|of| of.spread.servers)
    }

    /// Checks that `servers` servers can write to the array.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Schema`] when the array is on the disks of more servers.
    pub fn check_servers(&self, servers: usize) -> Result<()> {
        self.spread()
            .map_or(Ok(()), |of| of.spread.check_servers(servers))
    }
}
