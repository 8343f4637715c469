//! The files: how an array is written whole or not at all, opened, and read.
//!
//! | module | what it does |
//! |---|---|
//! | `pending` | an array being written: what the root does before and after the servers |
//! | `place` | what stands where an array is to go, and whether it may |
//! | `update` | a part of an array being changed |
//! | `resume` | a write that goes on where a killed process has stopped |
//! | `temporary` | the temporary beside the target: its lock, its remains, its renaming |
//! | `stored` | what stands on disk, recognised and described |
//! | `zarr` | chunks, encoded chunks and shards as a medium; Zarr's metadata |
//! | `gather` | one store made of the parts that servers have |
//! | [`spread`] | a store of which each server has a part |
//! | [`sums`] | checksums of whole objects |
//! | `witness` | notices that what is read was replaced meanwhile |
//! | `flat` | raw and `.npy` files and part files as a medium |
//! | [`group`] | timesteps and checkpoints of array groups |
//! | `direct` | files of elements, moved around the page cache where that is asked for |
//! | `file` | open files kept in hand; errors with paths |
//! | [`change`] | every change to the file system, and a crash between any two |
//!
//! # What is promised
//! - A reader never sees half an array: it comes to its place by one rename, after every byte of
//!   it was synced.
//! - A write that fails or is killed leaves what was there before exactly as it was. What it left
//!   lying about under the temporary name, the next write to the same target removes.
//! - Of two jobs that write the same target at once, the second gets [`penstock_engine::Kind::Busy`].
//! - Whatever stands in the files read, the worst that happens is
//!   [`penstock_engine::Kind::Damaged`], with the file's path.
//!
//! # What is assumed of the file system
//! `rename` is atomic; `fsync` means it; `flock` keeps other processes out (where it is not
//! supported, Busy is not noticed and remains are not removed).
//!
//! # Around the page cache
//! [`Target::with_direct`] applies to the elements of flat files (raw and `.npy`), of part files and
//! of Zarr chunks without codec. Of each block, or part of one, the whole pages go around the page
//! cache, at one device access a call; its edges, headers and metadata go through it, and so does
//! everything that is encoded, shards included. Blocks of a megabyte or more are what it is good for;
//! small ones each wait for the device. What a medium has taken is on stable storage after
//! [`Medium::finish`] with `sync`, as without it.

pub mod change;
mod direct;
mod file;
mod flat;
mod gather;
pub mod group;
mod pending;
mod place;
mod resume;
mod sidecar;
pub mod spread;
mod stored;
pub mod sums;
mod temporary;
mod update;
mod witness;
mod zarr;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_engine::{Error, Result};
use penstock_layout::{Block, DiskSchema};
use penstock_machines::Medium;
use serde::{Deserialize, Serialize};

pub use gather::gather;
pub use pending::{Committed, Keys, Pending};
pub use resume::Resumed;
pub use stored::Stored;
pub use witness::Witness;

use self::direct::Way;
use self::spread::SpreadArray;
use self::sums::{Checking, Summing};
use self::zarr::ChunkForm;
use crate::dtype::{ByteOrder, ElementType};

/// Where the data of one array are, and in which form: all that a server must know to open them.
///
/// It travels from the root to every server in the collective request, so its paths are absolute
/// and it holds what the root has read, that the servers need not read it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    files: Files,
    way: Way,
    sums: Wanted,
    /// Which of how many servers opens it.
    server: (usize, usize),
}

/// What is to be done about checksums.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Wanted {
    /// Nothing.
    #[default]
    None,
    /// To make them of what is written.
    Made,
    /// To compare what is read with these, one an object.
    Compared(Vec<Option<u32>>),
}

/// The files of an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Files {
    /// A Zarr array.
    Zarr(ZarrFiles),
    /// One file.
    Flat {
        /// The file.
        file: PathBuf,
        /// Bytes before the first element.
        header_bytes: u64,
        /// What one element is.
        element: ElementType,
        /// The byte order of the elements.
        order: ByteOrder,
    },
    /// One file a part.
    Parts(PartFiles),
}

/// The files of parts of a distribution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PartFiles {
    /// The part files, without the number and the point before it.
    stem: PathBuf,
    /// Parts a dimension.
    mesh: Vec<u64>,
    /// What one element is.
    element: ElementType,
    /// The byte order of the elements.
    order: ByteOrder,
    /// Where the parts stand that are to be changed, as `stem`; they are left as they are.
    base: Option<PathBuf>,
    /// Where parts are, if they are not beside each other.
    spread: Option<SpreadArray>,
}

/// The files of a Zarr array, or of one index of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ZarrFiles {
    /// The array's own directory.
    directory: PathBuf,
    /// What its metadata say of the chunks.
    form: ChunkForm,
    /// Of the first dimensions the chunk that is meant, where only that is moved: the blocks are those of
    /// the dimensions that follow.
    lead: Vec<u64>,
    /// The directory of the array that is to be changed; it is left as it is.
    base: Option<PathBuf>,
    /// Where chunks are, if they are not in the directory.
    spread: Option<SpreadArray>,
    /// Whether all that is in the directory is made by this call: nobody has left anything there that was not synced.
    #[serde(default)]
    is_new: bool,
}

impl ZarrFiles {
    /// Of an array whose chunks are all in its directory.
    fn new(directory: PathBuf, form: ChunkForm) -> Self {
        Self {
            directory,
            form,
            lead: Vec::new(),
            base: None,
            spread: None,
            is_new: false,
        }
    }
}

impl Target {
    fn of(files: Files) -> Self {
        Self {
            files,
            way: Way::default(),
            sums: Wanted::None,
            server: (0, 1),
        }
    }

    /// The same, as one of so many servers opens it.
    #[must_use]
    pub fn for_server(self, server: usize, servers: usize) -> Self {
        Self {
            server: (server, servers),
            ..self
        }
    }

    fn spread(&self) -> Option<&SpreadArray> {
        match &self.files {
            Files::Zarr(files) => files.spread.as_ref(),
            Files::Parts(files) => files.spread.as_ref(),
            Files::Flat { .. } => None,
        }
    }

    fn spread_mut(&mut self) -> Option<&mut SpreadArray> {
        match &mut self.files {
            Files::Zarr(files) => files.spread.as_mut(),
            Files::Parts(files) => files.spread.as_mut(),
            Files::Flat { .. } => None,
        }
    }

    /// Says that the array, which was found at `path`, one a server, has its chunks there too.
    fn move_to(&mut self, path: &Path) {
        let is_itself = self.path() == spread::of_server(path, 0);
        let store = match &self.files {
            Files::Zarr(_) if is_itself => path.parent().unwrap_or(path),
            _ => path,
        };
        if let Some(of) = self.spread_mut() {
            of.spread.move_to(store);
        }
    }

    /// How many servers have a part of it by themselves; `None` where all reach all of it.
    pub fn spread_over(&self) -> Option<usize> {
        self.spread().map(|of| of.spread.servers)
    }

    /// Sees that so many servers can write to it.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Schema`] when it is on the disks of more.
    pub fn check_servers(&self, servers: usize) -> Result<()> {
        self.spread()
            .map_or(Ok(()), |of| of.spread.check_servers(servers))
    }

    /// The same, of which checksums are made as it is written: [`Medium::sums`] gives them.
    #[must_use]
    pub fn with_sums(self) -> Self {
        let sums = Wanted::Made;
        Self { sums, ..self }
    }

    /// The same, to be compared as it is read with these checksums, one an object.
    #[must_use]
    pub fn checked_by(self, known: Vec<Option<u32>>) -> Self {
        let sums = Wanted::Compared(known);
        Self { sums, ..self }
    }

    /// The same, to be moved around the page cache (`O_DIRECT`) or not, as every server opens it.
    /// Opening it, or the first access to a chunk or part, is then [`penstock_engine::Kind::Unsupported`]
    /// where the file system has no direct I/O; nothing is moved in the ordinary way instead.
    #[must_use]
    pub fn with_direct(self, direct: bool) -> Self {
        let way = Way { direct, ..self.way };
        Self { way, ..self }
    }

    /// The same, to be synced when it has been written, or not: if it is, it begins to be written back at once.
    #[must_use]
    pub fn with_sync(self, sync: bool) -> Self {
        let way = Way { sync, ..self.way };
        Self { way, ..self }
    }

    /// Opens the (temporary) data for writing, in the blocks of `schema`, which must be that of
    /// the array schema with which the target was made.
    ///
    /// # Errors
    /// When the files are not there, may not be written, or cannot be moved as asked.
    pub fn open_write(&self, schema: &DiskSchema) -> Result<Arc<dyn Medium>> {
        let way = self.way;
        let medium: Arc<dyn Medium> = match &self.files {
            Files::Zarr(files) => zarr::open_write(files, self.server, schema, way)?,
            Files::Flat {
                file, header_bytes, ..
            } => Arc::new(flat::FlatFile::open_write(file, *header_bytes, way)?),
            Files::Parts(files) => {
                Arc::new(flat::Parts::open_write(files, self.server.0, schema, way)?)
            }
        };
        Ok(match self.sums {
            Wanted::Made => Arc::new(Summing::new(medium, schema)),
            Wanted::None | Wanted::Compared(_) => medium,
        })
    }

    /// Opens the data for reading, in the blocks of `schema`: that of [`Stored::disk_schema`].
    ///
    /// # Errors
    /// When the files are not there, may not be read, are not what they should be, or cannot be
    /// moved as asked.
    pub fn open_read(&self, schema: &DiskSchema) -> Result<Arc<dyn Medium>> {
        let way = self.way;
        let medium: Arc<dyn Medium> = match &self.files {
            Files::Zarr(files) => zarr::open_read(files, self.server, schema, way)?,
            Files::Flat {
                file,
                header_bytes,
                element,
                order,
            } => Arc::new(flat::FlatFile::open_read(
                file,
                *header_bytes,
                (*element, *order),
                way,
            )?),
            Files::Parts(files) => {
                Arc::new(flat::Parts::open_read(files, self.server, schema, way)?)
            }
        };
        Ok(match &self.sums {
            Wanted::Compared(known) => {
                let sums = Wanted::None;
                let files = Self {
                    sums,
                    ..self.clone()
                };
                Arc::new(Checking::new(medium, schema, known.clone(), files))
            }
            Wanted::None | Wanted::Made => medium,
        })
    }

    /// A word that changes when the array is replaced, or its metadata are: when its first file was written,
    /// and how long it is.
    ///
    /// # Errors
    /// When it is not there.
    pub fn stamp(&self) -> Result<String> {
        let path = match &self.files {
            Files::Zarr(files) => {
                let names = ["zarr.json", ".zarray"];
                let mut files = names.iter().map(|name| files.directory.join(name));
                files.find(|file| file.exists()).unwrap_or_default()
            }
            Files::Flat { file, .. } => file.clone(),
            Files::Parts(_) => self.path().join("schema.json"),
        };
        let meta = std::fs::metadata(&path).map_err(|e| Error::io(&e, "looking at", &path))?;
        let written = meta.modified().ok();
        Ok(format!("{} {written:?} {}", path.display(), meta.len()))
    }

    /// The file or directory that holds all of it.
    pub(crate) fn path(&self) -> &Path {
        match &self.files {
            Files::Zarr(files) => &files.directory,
            Files::Flat { file, .. } => file,
            Files::Parts(PartFiles { stem, .. }) => stem.parent().unwrap_or(stem),
        }
    }

    /// The file of a block, and at which byte of it the block lies, where it lies there as it is.
    pub(crate) fn place_of(
        &self,
        schema: &DiskSchema,
        block: &Block,
    ) -> Result<(PathBuf, Option<u64>)> {
        match &self.files {
            Files::Zarr(files) => zarr::place_of(files, schema, block),
            Files::Flat {
                file, header_bytes, ..
            } => Ok((file.clone(), Some(header_bytes + block.offset))),
            Files::Parts(files) => Ok((files.path(schema, block.object), Some(block.offset))),
        }
    }
}
