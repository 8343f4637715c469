//! Elements that the library reads: of datasets whose elements nobody else finds or understands.

use hdf5_metno::{Dataset as OpenDataset, Datatype};
use penstock_engine::{Error, Kind, Result};

use crate::elements::datatype_of;
use crate::file::{Hdf5File, said};
use crate::library;

/// The elements of a dataset, for as long as its file is open.
pub struct Elements {
    opened: OpenDataset,
    /// The type in memory.
    element: Datatype,
    path: String,
    file: Hdf5File,
}

impl Hdf5File {
    /// Opens the dataset at `path`, to read elements as numbers of NumPy's type `element`, such as
    /// `<f8`.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the library cannot open it.
    pub fn elements(self, path: &str, element: &str) -> Result<Elements> {
        let open = || Ok((self.library_file().dataset(path)?, datatype_of(element)?));
        let (opened, element) =
            open().map_err(|e| self.failed(&format!("opening {path} of"), e))?;
        Ok(Elements {
            opened,
            element,
            path: path.to_string(),
            file: self,
        })
    }
}

impl Elements {
    /// Reads the elements of the box of `shape` at `start` to the beginning of a row-major box of
    /// `extents`, and leaves the rest of that as it is.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the library cannot read or decode them; [`Kind::Busy`] when another
    /// program has put a dataset of other dimensions in the place of the one that was described.
    ///
    /// # Panics
    /// When `data` does not have the bytes of the box of `extents`, or the other does not fit it.
    pub fn read(
        &self,
        (start, shape): (&[u64], &[u64]),
        extents: &[u64],
        data: &mut [u8],
    ) -> Result<()> {
        let bytes = extents.iter().product::<u64>() * self.element.size() as u64;
        let fits = shape
            .iter()
            .zip(extents)
            .all(|(inner, outer)| inner <= outer);
        assert!(
            data.len() as u64 == bytes && fits && [start.len(), shape.len()] == [extents.len(); 2],
            "a box of {shape:?} does not fit {extents:?}, of {} bytes",
            data.len()
        );
        let failed = |kind, cause| {
            let doing = format!("reading elements of {} of", self.path);
            Error::new(kind, doing, cause).at(self.file.path())
        };
        if self.opened.ndim() != extents.len() {
            let cause = "another program has changed it meanwhile".to_string();
            return Err(failed(Kind::Busy, cause));
        }
        let read = library::read_box(&self.opened, &self.element, (start, shape), extents, data);
        read.map_err(|e| failed(Kind::Damaged, said(&e)))
    }
}
