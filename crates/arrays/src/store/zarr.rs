//! Zarr arrays as media.
//!
//! | stored | written by | read by |
//! |---|---|---|
//! | plain chunks | one `pwrite` a block, straight from the staging buffer | one `pread` a block |
//! | encoded chunks | the codec chain, then one file | the file, then the codec chain |
//! | shards | each sub-chunk encoded and appended, the index at the end | the index once, then one `pread` a sub-chunk |
//!
//! What is never written stays missing and reads as the fill value, which is zero in what Penstock
//! writes. An array that is changed in part is written anew beside the old, which only the chunks that are
//! changed need be; those of the old that are changed in part are copied first. Codecs and metadata
//! are those of the crate `zarrs`.

mod coder;
mod encoded;
mod metadata;
mod plain;
mod shards;
mod written;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Block, DiskSchema};
use penstock_machines::Medium;
use zarrs::array::ChunkKeyEncoding;

pub(super) use metadata::{ChunkForm, Metadata, array_json, group_json};

use self::metadata::{Layout, Plain};
use super::direct::Way;
use super::{ZarrFiles, file, group};

/// Where the chunks of an array are.
struct Chunks {
    files: ZarrFiles,
    /// The server that opened them.
    server: usize,
    keys: ChunkKeyEncoding,
    schema: DiskSchema,
}

impl Chunks {
    /// The file of a chunk.
    fn path(&self, object: u64) -> PathBuf {
        self.home(object).join(self.key(object))
    }

    /// The directory in which a chunk is, under its key.
    fn home(&self, object: u64) -> PathBuf {
        match &self.files.spread {
            None => self.files.directory.clone(),
            Some(of) => of.home(&self.schema, object),
        }
    }

    /// The file of a chunk as it stands in the array that is to be changed.
    fn base_path(&self, object: u64) -> Option<PathBuf> {
        let base = match &self.files.spread {
            None => self.files.base.clone()?,
            Some(of) => of.base_home(&self.schema, object)?,
        };
        Some(base.join(self.key(object)))
    }

    /// The same, open, if it is there.
    fn open_base(&self, object: u64) -> Result<Option<(File, PathBuf)>> {
        let Some(path) = self.base_path(object) else {
            return Ok(None);
        };
        let file = file::open_if_there(&path)?;
        Ok(file.map(|file| (file, path)))
    }

    fn key(&self, object: u64) -> String {
        let mut index = self.files.lead.clone();
        index.extend(self.schema.grid_index(object));
        self.keys.encode(&index).as_str().to_string()
    }
}

/// What reading and writing have in common: how elements lie in the chunks, and where those are.
fn open(files: &ZarrFiles, server: usize, schema: &DiskSchema) -> Result<(Layout, Chunks)> {
    let (layout, keys) = files.form.open(&files.directory)?;
    let chunks = Chunks {
        files: files.clone(),
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
pub(super) fn check_writable(files: &ZarrFiles) -> Result<()> {
    let (layout, _) = files.form.open(&files.directory)?;
    let cause = match layout {
        Layout::Plain(plain) if plain.swap_width != 1 => {
            "its elements are in the other byte order: copy the array first"
        }
        Layout::Shards(form) if !form.ends_with_index() => {
            "its shards begin with their index: copy the array first"
        }
        _ => return Ok(()),
    };
    Err(Error::new(Kind::Unsupported, "writing", cause).at(&files.directory))
}

/// Opens an array for writing its chunks: one that [`check_writable`] allows.
pub(super) fn open_write(
    files: &ZarrFiles,
    (server, _): (usize, usize),
    schema: &DiskSchema,
    way: Way,
) -> Result<Arc<dyn Medium>> {
    if let Some(of) = &files.spread {
        let home = of.make(server)?;
        if let Some(&first) = files.lead.first() {
            group::remove_timesteps_from(first, &home.join("c"))?;
        }
    }
    let (layout, chunks) = open(files, server, schema)?;
    Ok(match layout {
        Layout::Plain(Plain { fill, .. }) => Arc::new(plain::Writer::new(chunks, fill, way)),
        Layout::Encoded(coder) => Arc::new(encoded::Writer::new(chunks, coder)),
        Layout::Shards(form) => Arc::new(shards::Writer::new(chunks, form)),
    })
}

/// Opens an array for reading its chunks.
pub(super) fn open_read(
    files: &ZarrFiles,
    server: (usize, usize),
    schema: &DiskSchema,
    way: Way,
) -> Result<Arc<dyn Medium>> {
    if let Some(of) = &files.spread {
        of.check(server, schema)?;
    }
    let (layout, chunks) = open(files, server.0, schema)?;
    Ok(match layout {
        Layout::Plain(Plain { swap_width, fill }) => {
            Arc::new(plain::Reader::new(chunks, swap_width, fill, way))
        }
        Layout::Encoded(coder) => Arc::new(encoded::Reader::new(chunks, coder)),
        Layout::Shards(form) => Arc::new(shards::Reader::new(chunks, form)),
    })
}

/// The file of a block, and at which byte of it the block lies, where it lies there as it is.
pub(super) fn place_of(
    files: &ZarrFiles,
    schema: &DiskSchema,
    block: &Block,
) -> Result<(PathBuf, Option<u64>)> {
    let (layout, chunks) = open(files, 0, schema)?;
    let offset = matches!(layout, Layout::Plain(_)).then_some(block.offset);
    Ok((chunks.path(block.object), offset))
}

/// Fills `data` with one element's bytes over and over.
fn fill(data: &mut [u8], element: &[u8]) {
    match element {
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => data.fill(*first),
        _ => data
            .chunks_exact_mut(element.len())
            .for_each(|one| one.copy_from_slice(element)),
    }
}
