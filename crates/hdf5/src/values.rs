//! Small datasets, whose elements pass through the library: coordinates, and numbers of timesteps.

use std::str::FromStr;

use hdf5_metno::types::{TypeDescriptor, VarLenUnicode};
use hdf5_metno::{Dataset as OpenDataset, Extents};
use penstock_engine::Result;

use crate::attributes::{self, Attribute};
use crate::dataset::{Chunk, chunks_of, is_bare};
use crate::file::{FileForm, Hdf5File};
use crate::library::{self, Outcome};

/// All elements of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllElements {
    /// Numbers, as they are stored.
    Numbers(Vec<u8>),
    /// Texts.
    Texts(Vec<String>),
}

impl Hdf5File {
    /// All elements of the dataset at `path`; `None` if they are neither numbers nor texts.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Damaged`] when they cannot be read.
    pub fn all_elements(&self, path: &str) -> Result<Option<AllElements>> {
        let read = || -> Outcome<Option<AllElements>> {
            let opened = self.library_file().dataset(path)?;
            let shape: Vec<u64> = opened.shape().iter().map(|&n| n as u64).collect();
            match opened.dtype()?.to_descriptor() {
                Ok(TypeDescriptor::VarLenUnicode) => {
                    let read: Vec<VarLenUnicode> = opened.read_raw()?;
                    let texts = read.iter().map(|text| text.as_str().to_string());
                    Ok(Some(AllElements::Texts(texts.collect())))
                }
                Ok(
                    TypeDescriptor::Boolean
                    | TypeDescriptor::Integer(_)
                    | TypeDescriptor::Unsigned(_)
                    | TypeDescriptor::Float(_)
                    | TypeDescriptor::Compound(_),
                ) => {
                    let start = vec![0; shape.len()];
                    let numbers = read_stored(&opened, &start, &shape)?;
                    Ok(Some(AllElements::Numbers(numbers)))
                }
                _ => Ok(None),
            }
        };
        read().map_err(|e| self.failed(&format!("reading {path} of"), e))
    }

    /// The number with this index of the dataset at `path`, which has one dimension, as it is
    /// stored.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Damaged`] when there is none.
    pub fn number(&self, path: &str, index: u64) -> Result<Vec<u8>> {
        let read = || read_stored(&self.library_file().dataset(path)?, &[index], &[1]);
        read().map_err(|e| self.failed(&format!("reading {path} of"), e))
    }

    /// Sets the elements of the dataset at `path` that begin at `start` and have these extents.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Io`] when the library fails.
    pub fn set_elements(
        &mut self,
        path: &str,
        start: &[u64],
        shape: &[u64],
        elements: &[u8],
    ) -> Result<()> {
        let set = || {
            let opened = self.library_file().dataset(path)?;
            library::write_box(&opened, &opened.dtype()?, (start, shape), elements)
        };
        set().map_err(|e| self.cannot_write(path, &e))
    }

    /// Adds a dataset of texts at `path`, without dimensions: [`Hdf5File::put_all`] gives it these.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Io`] when the library fails.
    pub fn put_texts(
        &mut self,
        path: &str,
        shape: &[usize],
        texts: &[String],
        attributes: &[(String, Attribute)],
        form: FileForm,
    ) -> Result<()> {
        let put = || -> Outcome<()> {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            let text = |text: &String| -> Outcome<VarLenUnicode> {
                Ok(VarLenUnicode::from_str(text).map_err(|e| e.to_string())?)
            };
            let texts = texts.iter().map(text).collect::<Outcome<Vec<_>>>()?;
            let extents = match shape {
                [] => Extents::Scalar,
                shape => Extents::from(shape),
            };
            let new = self
                .group_at(above, form)?
                .new_dataset::<VarLenUnicode>()
                .shape(extents);
            let new = new.create(name)?;
            new.write_raw(texts.as_slice())?;
            let mut attributes = attributes.iter();
            attributes.try_for_each(|(name, attribute)| {
                attributes::write(&new, name, attribute, form.texts())
            })
        };
        put().map_err(|e| self.cannot_write(path, &e))
    }

    /// Gives the dataset at `path` other extents, and those of its dimensions that have no variable
    /// with it. Chunks that are then out of it are gone.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Io`] when the library fails.
    pub fn resize(&mut self, path: &str, shape: &[u64]) -> Result<()> {
        let resize = || -> Outcome<()> {
            let opened = self.library_file().dataset(path)?;
            library::resize(&opened, shape)?;
            for (number, &length) in (0..).zip(shape) {
                let Some(scale) = library::scale_of(&opened, number)? else {
                    continue;
                };
                let scale = self.library_file().dataset(&scale)?;
                let there = scale.shape().first().map(|&n| n as u64);
                if there != Some(length) && is_bare(&scale)? {
                    library::resize(&scale, &[length])?;
                }
            }
            Ok(())
        };
        resize().map_err(|e| self.cannot_write(path, &e))
    }

    /// The chunks of the dataset at `path` that are stored in rows `rows` of its first dimension.
    ///
    /// # Errors
    /// [`penstock_engine::Kind::Damaged`] when its metadata cannot be read.
    pub fn chunks_in(&self, path: &str, rows: std::ops::Range<u64>) -> Result<Vec<Chunk>> {
        let look = || -> Outcome<Vec<Chunk>> {
            let mut chunks = chunks_of(&self.library_file().dataset(path)?)?;
            let first = |chunk: &Chunk| chunk.start.first().copied().unwrap_or(0);
            chunks.retain(|chunk| rows.contains(&first(chunk)));
            Ok(chunks)
        };
        look().map_err(|e| self.failed(&format!("reading {path} of"), e))
    }
}

/// Reads a box of elements as they are stored.
fn read_stored(opened: &OpenDataset, start: &[u64], shape: &[u64]) -> Outcome<Vec<u8>> {
    let element = opened.dtype()?;
    let elements = usize::try_from(shape.iter().product::<u64>()).map_err(|e| e.to_string())?;
    let bytes = elements.checked_mul(element.size());
    let mut data = vec![0; bytes.ok_or("it is larger than the memory")?];
    library::read_box(opened, &element, (start, shape), shape, &mut data)?;
    Ok(data)
}
