//! The files of the chunks of a Zarr array, or of rows of one.

use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};

use penstock_bucket::Fork;
use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Block, DiskSchema, Split};
use serde::{Deserialize, Serialize};
use zarrs::array::ChunkKeyEncoding;

use super::coder::Coder;
use super::metadata::{ChunkForm, Layout, key_encoding};
use crate::formats::spread::SpreadArray;
use crate::fs::files::{self, damaged};
use crate::fs::temporary;

/// The directory beside the chunks in which a server writes chunks that are to replace others; the
/// server's number follows.
const ASIDE: &str = ".penstock-new-";

/// The place of a Zarr array, and the form of its chunks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Location {
    /// The array's own directory.
    pub(crate) directory: PathBuf,
    /// The form of the chunks, from the array's metadata.
    pub(crate) form: ChunkForm,
    /// The first chunk, in the first dimension, of the rows of the array that are moved
    /// ([`DiskSchema::window`]).
    pub(crate) first_chunk: u64,
    /// Whether a write adds to the array: existing chunks keep their other rows.
    pub(crate) grows: bool,
    /// The directory of the array that is changed; it stays as it is.
    pub(crate) base: Option<PathBuf>,
    /// The names of the chunks of that array, if they are others: the JSON text of Zarr.
    pub(crate) base_keys: Option<String>,
    /// The spread of the chunks over servers, if they are not in the directory.
    pub(crate) spread: Option<SpreadArray>,
    /// The state of a repository in which the array is, for servers of other processes.
    pub(crate) fork: Option<Fork>,
}

impl Location {
    /// The location of an array whose chunks are all in its directory.
    pub(crate) fn new(directory: PathBuf, form: ChunkForm) -> Self {
        Self {
            directory,
            form,
            first_chunk: 0,
            grows: false,
            base: None,
            base_keys: None,
            spread: None,
            fork: None,
        }
    }

    /// The layout of elements in the chunks, and the chunks themselves, for reading and for
    /// writing.
    pub(super) fn open(&self, server: usize, schema: &DiskSchema) -> Result<(Layout, Chunks)> {
        let is_whole = *schema.split_of() == Split::Whole;
        let (layout, keys) = self.form.open(&self.directory, is_whole)?;
        let base_keys = self.base_keys.as_ref().map(|keys| {
            let words = serde_json::from_str(keys);
            let words = words.map_err(|e| damaged(&self.directory, e))?;
            key_encoding(&words, &self.directory)
        });
        let chunks = Chunks {
            location: self.clone(),
            server,
            base_keys: base_keys.transpose()?.unwrap_or_else(|| keys.clone()),
            keys,
            schema: schema.clone(),
        };
        Ok((layout, chunks))
    }

    /// Refuses forms that Penstock reads, but does not write.
    ///
    /// # Errors
    /// [`Kind::Unsupported`].
    pub(crate) fn check_writable(&self) -> Result<()> {
        let (layout, _) = self.form.open(&self.directory, false)?;
        let cause = match layout {
            Layout::Plain(plain) if !plain.element.is_as_in_memory() => {
                "its elements are in the other byte order: copy the array first"
            }
            Layout::Shards(form) if !form.ends_with_index() => {
                "its shards begin with their index: copy the array first"
            }
            _ => return Ok(()),
        };
        Err(Error::new(Kind::Unsupported, "writing", cause).at(&self.directory))
    }

    /// The file of a block, and the block's offset in it if the file holds the elements as they
    /// are.
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

    /// The file of the array's metadata.
    pub(crate) fn metadata_file(&self) -> PathBuf {
        let names = ["zarr.json", ".zarray"];
        let mut files = names.iter().map(|name| self.directory.join(name));
        files.find(|file| file.exists()).unwrap_or_default()
    }

    /// Refuses forms that are not changed in place: Zarr's second format, to which Penstock does
    /// not write.
    ///
    /// # Errors
    /// [`Kind::Unsupported`].
    pub(crate) fn check_updatable(&self) -> Result<()> {
        if self.metadata_file().ends_with("zarr.json") || self.spread.is_some() {
            return Ok(()); // the metadata of spread chunks may be out of reach
        }
        let cause =
            "it is of Zarr format 2, to which Penstock does not write: copy the array first";
        Err(Error::new(Kind::Unsupported, "writing", cause).at(&self.directory))
    }

    /// Removes the chunks that unfinished changes have left aside in `directory`, as far as they
    /// are `server`'s of `servers`. What servers have left that are not there now is dealt out to
    /// those that are, so that no server removes what another one writes.
    pub(crate) fn remove_aside_of(
        directory: &Path,
        (server, servers): (usize, usize),
    ) -> Result<()> {
        if !directory.is_dir() {
            return Ok(());
        }
        for entry in files::entries(directory)? {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(number) = name.strip_prefix(ASIDE) else {
                continue;
            };
            if number.parse::<usize>().unwrap_or(0) % servers.max(1) == server {
                files::remove_if_there(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes the chunks that unfinished writes have left aside in `directory`.
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
    /// The server that opened the chunks.
    pub(super) server: usize,
    keys: ChunkKeyEncoding,
    base_keys: ChunkKeyEncoding,
    pub(super) schema: DiskSchema,
}

impl Chunks {
    /// The file of a chunk.
    pub(super) fn path(&self, object: u64) -> PathBuf {
        self.home(object).join(self.key(object))
    }

    /// The file of a chunk that is written aside, and is to replace the chunk.
    pub(super) fn path_aside(&self, object: u64) -> PathBuf {
        let name = self.key(object).replace('/', ".");
        let directory = format!("{ASIDE}{}", self.server);
        self.home(object).join(directory).join(name)
    }

    /// A file that is to become a chunk, with a name that nobody else uses.
    pub(super) fn path_of_new(&self, object: u64) -> PathBuf {
        let name = format!("{ASIDE}{}", temporary::nonce());
        self.home(object).join(name)
    }

    /// The directory in which a chunk is, under its key.
    pub(super) fn home(&self, object: u64) -> PathBuf {
        match &self.location.spread {
            None => self.location.directory.clone(),
            Some(of) => of.home(&self.schema, object),
        }
    }

    /// The file of a chunk in the array that is changed.
    pub(super) fn base_path(&self, object: u64) -> Option<PathBuf> {
        let base = match &self.location.spread {
            None => self.location.base.clone()?,
            Some(of) => of.base_home(&self.schema, object)?,
        };
        Some(base.join(self.key_by(&self.base_keys, object)))
    }

    /// Opens the file of a chunk in the array that is changed, if it exists.
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

    /// The coder of a whole chunk.
    pub(super) fn coder<'a>(&self, coder: &'a Coder, object: u64) -> Cow<'a, Coder> {
        coder.of_extents(&self.schema.chunk_extents(object))
    }

    /// The offset of a block in its decoded chunk.
    pub(super) fn offset(&self, block: &Block) -> u64 {
        self.schema.offset_in_chunk(block.object) + block.offset
    }

    /// The key of a chunk.
    pub(super) fn key(&self, object: u64) -> String {
        self.key_by(&self.keys, object)
    }

    /// The number of the chunk of a key; `None` if it is the key of no chunk.
    pub(super) fn number_of(&self, key: &str) -> Option<u64> {
        let numbers = key.strip_prefix('c').unwrap_or(key);
        let numbers = numbers
            .split(['/', '.'])
            .filter(|number| !number.is_empty());
        let index: Vec<u64> = numbers
            .map(|number| number.parse().ok())
            .collect::<Option<_>>()?;
        let counts = self.schema.grid();
        let index = match counts.len() {
            0 => Vec::new(), // the key of one element may be a number
            _ => index,
        };
        let is_inside =
            index.len() == counts.len() && index.iter().zip(&counts).all(|(i, n)| i < n);
        let is_own = is_inside && self.keys.encode(&index).as_str() == key;
        is_own.then(|| {
            index
                .iter()
                .zip(&counts)
                .fold(0, |object, (i, n)| object * n + i)
        })
    }

    /// The key that a chunk has in the array that is changed, if one is.
    pub(super) fn base_key(&self, object: u64) -> Option<String> {
        let base = self.location.base.as_ref();
        base.map(|_| self.key_by(&self.base_keys, object))
    }

    fn key_by(&self, keys: &ChunkKeyEncoding, object: u64) -> String {
        let mut index = self.schema.grid_index(object);
        if let Some(first) = index.first_mut() {
            *first += self.location.first_chunk;
        }
        keys.encode(&index).as_str().to_string()
    }
}

/// Removes the chunks of an array from `first` of the first dimension on: the entries of these
/// numbers in `home/c`.
///
/// # Errors
/// The error of the operating system.
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
