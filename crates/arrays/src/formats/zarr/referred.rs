//! Chunks that [`References`] lead to, wherever they are.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Block, DiskSchema, exact};
use penstock_machines::Medium;
use serde::{Deserialize, Serialize};

use super::chunks::{self, Chunks};
use super::metadata::Layout;
use super::objects::{self, Stored};
use super::plain::check_bytes;
use crate::formats::references::{Reference, References, Sources};
use crate::fs::direct::{AccessMode, DirectIo};

/// The places of an array's chunks, as references give them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Location {
    /// The array's own path, below the set of references, and the form of its chunks.
    array: chunks::Location,
    /// The set of references.
    pub(crate) home: PathBuf,
    /// The files that references lead to, by their numbers.
    files: Vec<PathBuf>,
    /// The references of the chunks that are stored, in the order of the chunks' numbers.
    references: Vec<(u64, Reference)>,
}

impl Location {
    /// The location of the array at `path` in a set of references.
    ///
    /// # Errors
    /// As [`References::chunks`].
    pub(crate) fn new(
        set: &References,
        path: &str,
        array: chunks::Location,
        schema: &DiskSchema,
    ) -> Result<Self> {
        let (_, own) = array.open(0, schema)?;
        let number_of = |key: &str| own.number_of(key);
        let chunks = set.chunks(path, schema.objects(), number_of)?;
        let (files, references) = &*chunks;
        Ok(Self {
            array,
            home: set.home().to_path_buf(),
            files: files.clone(),
            references: references.clone(),
        })
    }

    /// The path of the array.
    pub(crate) fn path(&self) -> &Path {
        &self.array.directory
    }

    /// The path of what servers read: the first file of chunks, or the references themselves.
    pub(crate) fn data_path(&self) -> &Path {
        self.files.first().unwrap_or(&self.home)
    }

    /// What a chunk that is not stored holds, the bytes of one element; none for zeros.
    pub(crate) fn fill(&self) -> Vec<u8> {
        self.array.form.fill()
    }

    /// The file of a block, and the block's offset in it if the file holds the elements as they
    /// are.
    pub(crate) fn place_of(
        &self,
        schema: &DiskSchema,
        block: &Block,
    ) -> Result<(PathBuf, Option<u64>)> {
        let (layout, chunks) = self.array.open(0, schema)?;
        let offset = match (layout, self.reference_of(block.object)) {
            (Layout::Plain(_), Some(Reference::Part { at, .. })) => Some(*at),
            (Layout::Plain(_), Some(Reference::File(_))) => Some(0),
            _ => None,
        };
        let offset = offset.and_then(|at| at.checked_add(chunks.offset(block)));
        Ok((self.file_of(&chunks, block.object), offset))
    }

    /// The file in which a chunk is; of a chunk that is not stored, the path that it would have.
    fn file_of(&self, chunks: &Chunks, object: u64) -> PathBuf {
        let file = match self.reference_of(object) {
            Some(Reference::File(file) | Reference::Part { file, .. }) => {
                self.files.get(exact::<usize>(u64::from(*file)))
            }
            Some(Reference::Inline(_)) => None,
            None => return chunks.path(object),
        };
        file.unwrap_or(&self.home).clone()
    }

    fn reference_of(&self, object: u64) -> Option<&Reference> {
        let found = self
            .references
            .binary_search_by_key(&object, |(object, _)| *object);
        found.ok().map(|at| &self.references[at].1)
    }

    /// Opens the chunks for reading.
    pub(crate) fn open_read(
        &self,
        schema: &DiskSchema,
        way: AccessMode,
    ) -> Result<Arc<dyn Medium>> {
        if way.direct == DirectIo::Always {
            let cause = "references lead to files that are read through the page cache: leave out \
                direct=True";
            return Err(Error::new(Kind::Unsupported, "opening", cause).at(self.path()));
        }
        let (layout, chunks) = self.array.open(0, schema)?;
        let referred = Referred {
            is_plain: matches!(layout, Layout::Plain(_)),
            sources: Sources::new(self.files.clone()),
            location: self.clone(),
            chunks,
        };
        Ok(Arc::new(objects::Reader::new(referred, layout)))
    }
}

/// The chunks of an array, as one server has them open.
struct Referred {
    location: Location,
    chunks: Chunks,
    sources: Sources,
    /// Whether chunks hold elements as they are: their lengths are known.
    is_plain: bool,
}

impl Referred {
    /// Does something with a chunk's reference; `None` if there is none. An error names the chunk.
    fn with<'a, T>(
        &'a self,
        object: u64,
        read: impl FnOnce(&'a Reference) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(reference) = self.location.reference_of(object) else {
            return Ok(None);
        };
        let read = self
            .check_length(object, reference)
            .and_then(|()| read(reference));
        let failed = |error: Error| {
            let doing = format!("reading chunk {}", self.chunks.path(object).display());
            let path = error
                .path
                .or_else(|| Some(self.path(object).display().to_string()));
            Error {
                doing,
                path,
                ..error
            }
        };
        read.map(Some).map_err(failed)
    }

    fn check_length(&self, object: u64, reference: &Reference) -> Result<()> {
        if !self.is_plain {
            return Ok(());
        }
        let bytes = self.sources.length(reference)?;
        check_bytes(bytes, self.chunks.bytes(object), &self.path(object))
    }
}

impl Stored for Referred {
    fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    fn path(&self, object: u64) -> PathBuf {
        self.location.file_of(&self.chunks, object)
    }

    fn whole(&self, object: u64) -> Result<Option<impl AsRef<[u8]>>> {
        self.with(object, |reference| -> Result<Cow<'_, [u8]>> {
            self.sources.whole(reference)
        })
    }

    fn part(&self, object: u64, data: &mut [u8], offset: u64) -> Result<bool> {
        let read = self.with(object, |reference| {
            self.sources.part(reference, data, offset)
        });
        Ok(read?.is_some())
    }

    fn length(&self, object: u64) -> Result<Option<u64>> {
        self.with(object, |reference| self.sources.length(reference))
    }
}
