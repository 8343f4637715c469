//! Elements that the library reads: of datasets whose elements nobody else finds or understands.

use hdf5_metno::{Dataset as OpenDataset, Dataspace, Datatype, from_id, h5check, sync};
use hdf5_metno_sys::h5d::H5Dread;
use hdf5_metno_sys::h5p::H5P_DEFAULT;
use hdf5_metno_sys::h5s::{
    H5S_class_t, H5S_seloper_t, H5Scopy, H5Screate, H5Screate_simple, H5Sselect_hyperslab,
};
use penstock_engine::{Error, Kind, Result};

use crate::elements::datatype_of;
use crate::file::{Hdf5File, said};
use crate::library::Outcome;

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
        let read = self.read_box(start, shape, extents, data);
        read.map_err(|e| failed(Kind::Damaged, said(&e)))
    }

    fn read_box(
        &self,
        start: &[u64],
        shape: &[u64],
        extents: &[u64],
        data: &mut [u8],
    ) -> Outcome<()> {
        let stored = self.opened.space()?;
        sync::sync(|| {
            // SAFETY: all identifiers are open, the slices have a number for each dimension, and
            // the buffer has room for the box of `extents`, in which the selected one lies.
            unsafe {
                let from: Dataspace = from_id(h5check(H5Scopy(stored.id()))?)?;
                let to = match i32::try_from(extents.len()).map_err(|e| e.to_string())? {
                    0 => H5Screate(H5S_class_t::H5S_SCALAR),
                    dimensions => H5Screate_simple(dimensions, extents.as_ptr(), std::ptr::null()),
                };
                let to: Dataspace = from_id(h5check(to)?)?;
                if !extents.is_empty() {
                    let zeros = vec![0; extents.len()];
                    for (space, start) in [(&from, start), (&to, zeros.as_slice())] {
                        let (start, shape) = (start.as_ptr(), shape.as_ptr());
                        let (set, every) = (H5S_seloper_t::H5S_SELECT_SET, std::ptr::null());
                        let id = space.id();
                        h5check(H5Sselect_hyperslab(id, set, start, every, shape, every))?;
                    }
                }
                let (to, from, data) = (to.id(), from.id(), data.as_mut_ptr().cast());
                let (dataset, element) = (self.opened.id(), self.element.id());
                h5check(H5Dread(dataset, element, to, from, H5P_DEFAULT, data)).map(drop)
            }
        })
    }
}
