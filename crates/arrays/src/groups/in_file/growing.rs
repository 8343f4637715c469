//! An array of a timestep that is being written to a file.

use penstock_engine::Result;
use penstock_hdf5::{Chunk, Hdf5File};
use penstock_layout::DiskSchema;

use crate::formats::placed::Location;
use crate::formats::room::{Notes, Place};
use crate::write::chunk_at;

/// An array of a timestep that is being written.
pub(super) struct GrowingArray {
    pub(super) dataset: String,
    /// The extents afterwards.
    pub(super) shape: Vec<u64>,
    /// The rows of the timestep, as an array.
    pub(super) window: DiskSchema,
    /// The first row of the chunk in which the window begins.
    pub(super) first: u64,
    pub(super) location: Location,
    pub(super) notes: Notes,
}

impl GrowingArray {
    /// The chunk that is an object of the window.
    fn chunk(&self, object: u64, place: Place) -> Chunk {
        let mut chunk = chunk_at(&self.window, object, place);
        chunk.start[0] += self.first;
        chunk
    }

    /// Makes the dataset longer, and enters the chunks that servers have written.
    pub(super) fn enter(&self, file: &mut Hdf5File) -> Result<()> {
        file.resize(&self.dataset, &self.shape)?;
        let written = self.notes.read()?.into_iter().map(|(object, place)| {
            let former = self.location.place_of_chunk(object);
            let former = former.map(|former| self.chunk(object, former));
            (self.chunk(object, place), former)
        });
        file.enter(&self.dataset, &written.collect::<Vec<_>>())
    }
}
