//! A part of a dataset of an HDF5 file that is written.
//!
//! | chunks | a part is written | a crash leaves |
//! |---|---|---|
//! | elements as they are, stored | where they are | any of the old and new bytes, as of POSIX writes |
//! | encoded, or not stored yet | behind the end of the file; then the index of chunks changes | the old or the new array |
//!
//! The room of encoded chunks that were replaced stays in the file, as that of replaced datasets.

use std::path::PathBuf;

use penstock_engine::{Error, Kind, Result};
use penstock_layout::DiskSchema;

use super::checks::{check_not_in_checkpoints, resolve};
use super::dataset::{ALIGNMENT, chunk_at};
use super::locked::{LockedFile, recover};
use crate::formats::Form;
use crate::formats::hdf5::describe;
use crate::formats::hdf5::mark::check_not_saved;
use crate::formats::placed::{Location, Places};
use crate::formats::room::Notes;
use crate::fs::temporary::Temporary;
use crate::read::StoredArray;
use crate::schema::Storage;

/// A dataset that is written in part.
pub(super) struct ChangedDataset {
    file: PathBuf,
    dataset: String,
    disk: DiskSchema,
    location: Location,
    former: LockedFile,
}

impl ChangedDataset {
    /// Locks the file of `stored`, a dataset.
    ///
    /// # Errors
    /// [`Kind::Busy`] when another program has the file open, or has changed the dataset since it
    /// was opened; [`Kind::Unsupported`] for one run of elements that is not stored.
    pub(super) fn new(stored: &StoredArray) -> Result<Self> {
        let Storage::Hdf5 { dataset, .. } = &stored.schema().disk else {
            unreachable!("a dataset of an array that is stored otherwise");
        };
        let file = resolve(stored.target().path())?;
        check_not_in_checkpoints(&file)?;
        recover(&file)?;
        let Some(former) = LockedFile::open(&file)? else {
            let cause = "it has been removed";
            return Err(Error::new(Kind::Missing, "writing a part of", cause).at(&file));
        };
        check_not_saved(former.opened(), &file, dataset)?;
        let (schema, form) = describe::describe(former.opened(), &file, dataset)?;
        if schema != *stored.schema() {
            let cause = format!("another program has changed {dataset} meanwhile");
            return Err(Error::new(Kind::Busy, "writing a part of", cause).at(&file));
        }
        let location = match form {
            Form::Placed(location) => location,
            Form::Library(location) => return Err(location.refused()),
            _ => unreachable!("a dataset is in its file"),
        };
        let is_run = matches!(schema.disk, Storage::Hdf5 { chunk: None, .. });
        if is_run && !matches!(location.places, Places::Run(_)) && schema.bytes() > 0 {
            let cause = format!("nothing of {dataset} is stored: write all of it first");
            return Err(Error::new(Kind::Unsupported, "writing a part of", cause).at(&file));
        }
        Ok(Self {
            disk: schema.disk_schema(1)?,
            dataset: dataset.clone(),
            file,
            location,
            former,
        })
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &PathBuf {
        &self.file
    }

    /// The form that servers open.
    pub(super) fn lay_out(&self, temporary: &Temporary) -> Result<Form> {
        let mut location = self.location.clone();
        if let Places::Known(places) = &location.places
            && !(location.codecs.is_empty() && places.iter().all(Option::is_some))
        {
            self.former
                .make_room(self.former.end().next_multiple_of(ALIGNMENT))?;
            location.places = Places::New(notes(temporary), places.clone());
        }
        Ok(Form::Placed(location))
    }

    /// Enters the chunks that servers have written into the index of the dataset.
    pub(super) fn install(&self, temporary: &Temporary) -> Result<()> {
        let written = notes(temporary).read()?;
        if written.is_empty() {
            return Ok(());
        }
        let chunk = |object, place| chunk_at(&self.disk, object, place);
        let chunks = written.into_iter().map(|(object, place)| {
            let former = self.location.place_of_chunk(object);
            let former = former.map(|former| chunk(object, former));
            (chunk(object, place), former)
        });
        let chunks: Vec<_> = chunks.collect();
        let changes = || {
            let mut file = self.former.change()?;
            file.enter(&self.dataset, &chunks)?;
            file.finish()
        };
        self.former.install(changes, temporary)
    }
}

fn notes(temporary: &Temporary) -> Notes {
    Notes {
        directory: temporary.path().to_path_buf(),
        number: 0,
        are_lasting: false,
    }
}
