//! Zarr arrays as media.
//!
//! | stored | written by | read by |
//! |---|---|---|
//! | plain chunks | one `pwrite` a block, straight from the staging buffer | one `pread` a block |
//! | encoded chunks | the codec chain, then one file | the file, then the codec chain |
//! | shards | each sub-chunk encoded and appended, the index at the end | the index once, then one `pread` a sub-chunk |
//!
//! What is never written stays missing and reads as the fill value, which is zero in what Penstock
//! writes. Codecs and metadata are those of the crate `zarrs`.

mod coder;
mod encoded;
mod metadata;
mod plain;
mod shards;
mod written;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_engine::Result;
use penstock_layout::{Block, DiskSchema};
use penstock_machines::Medium;
use zarrs::array::ChunkKeyEncoding;

pub(super) use metadata::{Metadata, array_json, group_json};

use self::metadata::Layout;

/// Where the chunks of an array are.
struct Chunks {
    directory: PathBuf,
    keys: ChunkKeyEncoding,
    schema: DiskSchema,
}

impl Chunks {
    /// The file of a chunk.
    fn path(&self, object: u64) -> PathBuf {
        let index = self.schema.grid_index(object);
        self.directory.join(self.keys.encode(&index).as_str())
    }
}

/// What reading and writing have in common: the parsed metadata and where the chunks are.
fn open(directory: &Path, metadata: &str, schema: &DiskSchema) -> Result<(Layout, Chunks)> {
    let metadata = Metadata::parse_text(metadata, directory)?;
    let chunks = Chunks {
        directory: directory.to_path_buf(),
        keys: metadata.chunk_keys(),
        schema: schema.clone(),
    };
    Ok((metadata.layout()?, chunks))
}

/// Opens an array for writing its chunks.
pub(super) fn open_write(
    directory: &Path,
    metadata: &str,
    schema: &DiskSchema,
    direct: bool,
) -> Result<Arc<dyn Medium>> {
    let (layout, chunks) = open(directory, metadata, schema)?;
    Ok(match layout {
        Layout::Plain { .. } => Arc::new(plain::Writer::new(chunks, direct)),
        Layout::Encoded(coder) => Arc::new(encoded::Writer::new(chunks, coder)),
        Layout::Shards(form) => Arc::new(shards::Writer::new(chunks, form)),
    })
}

/// Opens an array for reading its chunks.
pub(super) fn open_read(
    directory: &Path,
    metadata: &str,
    schema: &DiskSchema,
    direct: bool,
) -> Result<Arc<dyn Medium>> {
    let (layout, chunks) = open(directory, metadata, schema)?;
    Ok(match layout {
        Layout::Plain { swap_width, fill } => {
            Arc::new(plain::Reader::new(chunks, swap_width, fill, direct))
        }
        Layout::Encoded(coder) => Arc::new(encoded::Reader::new(chunks, coder)),
        Layout::Shards(form) => Arc::new(shards::Reader::new(chunks, form)),
    })
}

/// The file of a block, and at which byte of it the block lies, where it lies there as it is.
pub(super) fn place_of(
    directory: &Path,
    metadata: &str,
    schema: &DiskSchema,
    block: &Block,
) -> Result<(PathBuf, Option<u64>)> {
    let (layout, chunks) = open(directory, metadata, schema)?;
    let offset = matches!(layout, Layout::Plain { .. }).then_some(block.offset);
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
