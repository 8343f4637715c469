//! Datasets that servers read through the HDF5 library: elements within the metadata (compact),
//! filters that only the library has, numbers of a form that NumPy has not, and datasets whose
//! elements are in other files (virtual).
//!
//! Each server opens the file, and reads block by block. The library lets one thread of a process
//! in at a time, so servers of one process decode one after the other.

use std::path::PathBuf;
use std::sync::Arc;

use penstock_engine::{Digest, Error, Kind, Result};
use penstock_hdf5::{Elements, Hdf5File};
use penstock_layout::Block;
use penstock_machines::Medium;
use penstock_machines::disk::medium::no_parts;
use penstock_machines::memory::buffer::fill;
use serde::{Deserialize, Serialize};

use crate::dtype::ElementType;
use crate::fill::Fill;

/// A dataset, and what is read of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Location {
    pub(crate) file: PathBuf,
    pub(crate) dataset: String,
    pub(crate) element: ElementType,
    pub(crate) fill: Fill,
    /// Whether the elements are in datasets of other files.
    pub(crate) is_virtual: bool,
}

impl Location {
    /// Opens the elements of the file for reading.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the library cannot open the dataset.
    pub(crate) fn open_read(&self, file: Hdf5File) -> Result<Arc<dyn Medium>> {
        let elements = file.elements(&self.dataset, &self.element.numpy())?;
        let location = self.clone();
        Ok(Arc::new(Reader { elements, location }))
    }

    /// The error for a change of a part.
    pub(crate) fn refused(&self) -> Error {
        let cause = format!(
            "{} is read through the HDF5 library, and is not written in part: write all of it anew",
            self.dataset
        );
        Error::new(Kind::Unsupported, "writing", cause).at(&self.file)
    }
}

/// Reads blocks through the library.
struct Reader {
    elements: Elements,
    location: Location,
}

impl Medium for Reader {
    fn position(&self, _: &Block) -> Option<u64> {
        None // only the library knows
    }

    fn is_in_order(&self) -> bool {
        false
    }

    fn write(&self, _: &Block, _: &[u8]) -> Result<()> {
        Err(self.location.refused())
    }

    fn read(&self, block: &Block, data: &mut [u8]) -> Result<()> {
        // The library may leave out chunks that are not stored, and padding.
        fill(data, self.location.fill.bytes());
        let region = (block.region.start.as_slice(), block.region.shape.as_slice());
        self.elements.read(region, &block.extents, data)
    }

    fn moves_parts(&self) -> bool {
        false
    }

    fn write_part(&self, _: &Block, _: u64, _: &[u8]) -> Result<()> {
        Err(no_parts("writing"))
    }

    fn read_part(&self, _: &Block, _: u64, _: &mut [u8]) -> Result<()> {
        Err(no_parts("reading"))
    }

    fn finish(&self, _: bool) -> Result<()> {
        Ok(())
    }

    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    fn changes(&self) -> Vec<u8> {
        Vec::new()
    }
}
