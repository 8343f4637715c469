//! Where the chunks of a Zarr array are, or those of rows of one.

use std::fs::File;
use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Block, DiskSchema, Split};
use serde::{Deserialize, Serialize};
use zarrs::array::ChunkKeyEncoding;

use super::metadata::{ChunkForm, Layout};
use crate::formats::spread::SpreadArray;
use crate::fs::files;

/// Where in the directory of chunks each server writes those that are to take the place of others;
/// its number follows.
const ASIDE: &str = ".penstock-new-";

/// Where a Zarr array is, and what a server must know of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Location {
    /// The array's own directory.
    pub(crate) directory: PathBuf,
    /// What its metadata say of the chunks.
    pub(crate) form: ChunkForm,
    /// Of rows of the array ([`DiskSchema::window`]): the place of their first chunk in the first
    /// dimension.
    pub(crate) first_chunk: u64,
    /// Whether the array grows by what is written: chunks that are there keep what they hold
    /// besides.
    pub(crate) grows: bool,
    /// The directory of the array that is to be changed; it is left as it is.
    pub(crate) base: Option<PathBuf>,
    /// Where chunks are, if they are not in the directory.
    pub(crate) spread: Option<SpreadArray>,
}

impl Location {
    /// Of an array whose chunks are all in its directory.
    pub(crate) fn new(directory: PathBuf, form: ChunkForm) -> Self {
        Self {
            directory,
            form,
            first_chunk: 0,
            grows: false,
            base: None,
            spread: None,
        }
    }

    /// What reading and writing have in common: how elements lie in the chunks, and where those
    /// are.
    pub(super) fn open(&self, server: usize, schema: &DiskSchema) -> Result<(Layout, Chunks)> {
        let is_whole = *schema.split_of() == Split::Whole;
        let (layout, keys) = self.form.open(&self.directory, is_whole)?;
        let chunks = Chunks {
            location: self.clone(),
            server,
            keys,
            schema: schema.clone(),
        };
        Ok((layout, chunks))
    }

    /// Refuses forms of other makers that are read, but not written.
    ///
    /// # Errors
    /// [`Kind::Unsupported`].
    pub(crate) fn check_writable(&self) -> Result<()> {
        let (layout, _) = self.form.open(&self.directory, false)?;
        let cause = match layout {
            Layout::Plain(plain) if plain.swap_width != 1 => {
                "its elements are in the other byte order: copy the array first"
            }
            Layout::Shards(form) if !form.ends_with_index() => {
                "its shards begin with their index: copy the array first"
            }
            _ => return Ok(()),
        };
        Err(Error::new(Kind::Unsupported, "writing", cause).at(&self.directory))
    }

    /// The file of a block, and at which byte of it the block lies, where it lies there as it is.
    pub(crate) fn place_of(
        &self,
        schema: &DiskSchema,
        block: &Block,
    ) -> Result<(PathBuf, Option<u64>)> {
        let (layout, chunks) = self.open(0, schema)?;
        let offset = schema.offset_in_chunk(block.object) + block.offset;
        let offset = matches!(layout, Layout::Plain(_)).then_some(offset);
        Ok((chunks.path(block.object), offset))
    }

    /// The file of its metadata.
    pub(crate) fn metadata_file(&self) -> PathBuf {
        let names = ["zarr.json", ".zarray"];
        let mut files = names.iter().map(|name| self.directory.join(name));
        files.find(|file| file.exists()).unwrap_or_default()
    }

    /// Removes what writes that did not come to their end have left beside the chunks, in the
    /// directory in which those are.
    pub(crate) fn remove_aside(directory: &Path) -> Result<()> {
        for entry in files::entries(directory)? {
            if entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(ASIDE.as_bytes())
            {
                files::remove_if_there(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// The chunks of an array, as one server has them open.
pub(super) struct Chunks {
    pub(super) location: Location,
    /// The server that opened them.
    pub(super) server: usize,
    keys: ChunkKeyEncoding,
    pub(super) schema: DiskSchema,
}

impl Chunks {
    /// The file of a chunk.
    pub(super) fn path(&self, object: u64) -> PathBuf {
        self.home(object).join(self.key(object))
    }

    /// Where a chunk is written that is to take the place of what is there.
    pub(super) fn path_aside(&self, object: u64) -> PathBuf {
        let name = self.key(object).replace('/', ".");
        let directory = format!("{ASIDE}{}", self.server);
        self.home(object).join(directory).join(name)
    }

    /// The directory in which a chunk is, under its key.
    pub(super) fn home(&self, object: u64) -> PathBuf {
        match &self.location.spread {
            None => self.location.directory.clone(),
            Some(of) => of.home(&self.schema, object),
        }
    }

    /// The file of a chunk as it stands in the array that is to be changed.
    pub(super) fn base_path(&self, object: u64) -> Option<PathBuf> {
        let base = match &self.location.spread {
            None => self.location.base.clone()?,
            Some(of) => of.base_home(&self.schema, object)?,
        };
        Some(base.join(self.key(object)))
    }

    /// The same, open, if it is there.
    pub(super) fn open_base(&self, object: u64) -> Result<Option<(File, PathBuf)>> {
        let Some(path) = self.base_path(object) else {
            return Ok(None);
        };
        let file = files::open_if_there(&path)?;
        Ok(file.map(|file| (file, path)))
    }

    /// The bytes of a chunk, decoded.
    pub(super) fn bytes(&self, object: u64) -> u64 {
        self.schema.chunk_bytes(object)
    }

    /// Where a block begins in its chunk, decoded.
    pub(super) fn offset(&self, block: &Block) -> u64 {
        self.schema.offset_in_chunk(block.object) + block.offset
    }

    fn key(&self, object: u64) -> String {
        let mut index = self.schema.grid_index(object);
        if let Some(first) = index.first_mut() {
            *first += self.location.first_chunk;
        }
        self.keys.encode(&index).as_str().to_string()
    }
}

/// Removes the chunks of an array from one of the first dimension on, which are in directories (or
/// files) of their number in `home/c`.
///
/// # Errors
/// What the operating system says.
pub(crate) fn remove_chunks_from(first: u64, home: &Path) -> Result<()> {
    let directory = home.join("c");
    if !directory.is_dir() {
        return Ok(()); // no chunk has ever been written
    }
    let mut gone = Vec::new();
    for entry in files::entries(&directory)? {
        let number = entry.file_name().to_string_lossy().parse::<u64>();
        if number.is_ok_and(|number| number >= first) {
            gone.push(entry.path());
        }
    }
    gone.iter()
        .try_for_each(|path| files::remove_if_there(path))
}
