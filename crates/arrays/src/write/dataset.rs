//! A dataset of an HDF5 or NetCDF-4 file: its elements come first, and then the metadata that lead
//! to them.
//!
//! | the file | elements go | and then |
//! |---|---|---|
//! | is new | to a new file in the temporary | metadata behind them, and a rename |
//! | is there | behind its end, where nobody looks | metadata, by a [`Journal`] |
//!
//! A file that is there is locked as the HDF5 library locks it: other writers are kept out all the
//! time, and readers while the metadata change.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use penstock_engine::{Error, Kind, Result};
use penstock_hdf5::{Attribute, Chunk, FileForm, Filter, Hdf5File, NewDataset, Places, is_hdf5};
use penstock_layout::{Assignment, DiskSchema};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::checks::{check_not_in_checkpoints, in_the_way, resolve, writable};
use crate::dtype::ByteOrder;
use crate::formats::hdf5::journal::{JOURNAL, Journal};
use crate::formats::hdf5::{attributes, describe, filters, name};
use crate::formats::{Form, placed};
use crate::fs::files::{self, put_in_place};
use crate::fs::ops;
use crate::fs::temporary::Temporary;
use crate::schema::{ArraySchema, Storage};

/// Elements begin at a multiple of this: on pages of their own.
const ALIGNMENT: u64 = 4096;
/// The wait for readers to close a file, before its metadata change.
const LOCK_TRIES: u32 = 1000;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The place of a dataset.
pub(super) struct DatasetPlace {
    file: PathBuf,
    dataset: String,
    form: FileForm,
    schema: ArraySchema,
    disk: DiskSchema,
    filters: Vec<Filter>,
    attributes: Vec<(String, Attribute)>,
    /// The file, if it is there.
    former: Option<Former>,
}

/// A file that is there, and locked.
struct Former {
    file: File,
    path: PathBuf,
    /// Its length before anything is added.
    bytes: u64,
    /// The end of what is in use.
    end: u64,
    /// Whether new metadata lead to what was added.
    is_changed: AtomicBool,
}

impl Drop for Former {
    fn drop(&mut self) {
        if !self.is_changed.load(Ordering::Relaxed) {
            // A failure leaves bytes behind the end, which the next write removes.
            let _ = ops::set_len(&self.file, self.bytes, &self.path);
        }
    }
}

impl DatasetPlace {
    /// The place of `schema` at `path`: a file, or a file and a dataset.
    ///
    /// # Errors
    /// [`Kind::Schema`] when something else is there, or the path and the disk schema name two
    /// datasets; [`Kind::Unsupported`] for attributes and filters that such a file does not have;
    /// [`Kind::Busy`] when another program has the file open.
    pub(super) fn new(path: &Path, schema: &ArraySchema) -> Result<Self> {
        let Storage::Hdf5 {
            dataset,
            filters: words,
            is_netcdf,
            ..
        } = &schema.disk
        else {
            unreachable!("a dataset of an array that is stored otherwise");
        };
        let filters = filters::parse(words, schema.element)?;
        filters::check_writable(&filters)?;
        let attributes = attributes::of_json(&schema.attributes)?;
        let (path, dataset) = place_of(path, dataset, &schema.name)?;
        let file = resolve(&path)?;
        check_not_in_checkpoints(&file)?;
        recover(&file)?;
        let form = match is_netcdf {
            true => FileForm::NetCdf,
            false => FileForm::Hdf5,
        };
        let former = Former::open(&file)?;
        let place = Self {
            file,
            dataset,
            form,
            schema: schema.clone(),
            disk: schema.disk_schema(1)?,
            filters,
            attributes,
            former,
        };
        place.try_out()?;
        Ok(place)
    }

    /// Makes the metadata once without writing them, to find what the file refuses.
    fn try_out(&self) -> Result<()> {
        let places = match self.is_placed() {
            true => Places::From(self.start()),
            false => Places::Each(Vec::new()),
        };
        self.metadata(places, self.start()).map(drop)
    }

    /// Whether the places of all elements follow from the first.
    fn is_placed(&self) -> bool {
        self.filters.is_empty()
    }

    /// The first byte of the elements.
    fn start(&self) -> u64 {
        let end = self.former.as_ref().map_or(0, |former| former.end);
        end.max(1).next_multiple_of(ALIGNMENT)
    }

    pub(super) fn path(&self) -> &Path {
        &self.file
    }

    /// Makes room for the elements in the file, or in a new one in the temporary, and gives the
    /// form that servers open.
    pub(super) fn lay_out(&self, temporary: &Temporary) -> Result<Form> {
        let (start, path) = (self.start(), self.data(temporary));
        let end = match self.is_placed() {
            true => start
                .checked_add(bytes_of(&self.disk))
                .ok_or_else(|| files::too_long(&path))?,
            false => start,
        };
        match &self.former {
            None => files::make_file(&path, &[], end)?,
            Some(former) => {
                let failed = |e: std::io::Error| Error::io(&e, "making room in", &path);
                // First without what a killed write has left: room reads as zeros.
                ops::set_len(&former.file, former.end, &path).map_err(failed)?;
                ops::set_len(&former.file, end, &path).map_err(failed)?;
            }
        }
        let element = self.schema.element;
        Ok(Form::Placed(placed::Location {
            file: path,
            element,
            order: ByteOrder::NATIVE,
            fill: self.schema.fill.clone(),
            codecs: filters::codecs(&self.filters, element).unwrap_or_default(),
            places: match self.is_placed() {
                true => placed::Places::Run(start),
                false => placed::Places::New(temporary.path().to_path_buf()),
            },
        }))
    }

    /// The file to which servers write.
    fn data(&self, temporary: &Temporary) -> PathBuf {
        match self.former {
            Some(_) => self.file.clone(),
            None => temporary.data(),
        }
    }

    /// Makes the metadata that lead to the elements.
    pub(super) fn install(&self, temporary: &Temporary) -> Result<()> {
        let data = self.data(temporary);
        let file = File::options().read(true).write(true).open(&data);
        let file = file.map_err(|e| Error::io(&e, "opening for writing", &data))?;
        let end = files::length(&file, &data)?;
        let places = match self.is_placed() {
            true => Places::From(self.start()),
            false => Places::Each(self.chunks(temporary)?),
        };
        let Some(former) = &self.former else {
            let changes = self.metadata(places, end)?;
            Journal::new(changes, &file, 0, &data)?.make(&file, &data)?;
            return put_in_place(&data, &self.file);
        };
        former.lock_alone(&self.file)?;
        let changes = self.metadata(places, end)?;
        let journal = Journal::new(changes, &file, former.bytes.min(former.end), &data)?;
        journal.keep(temporary)?;
        former.is_changed.store(true, Ordering::Relaxed);
        journal.make(&file, &data)
    }

    /// The metadata with the new dataset, whose elements end at `end`.
    fn metadata(&self, places: Places, end: u64) -> Result<penstock_hdf5::Changes> {
        let schema = &self.schema;
        let names = match self.form {
            // NetCDF has no dimension without a name.
            FileForm::NetCdf => schema.names_of_dimensions(),
            FileForm::Hdf5 => schema.dimension_names.clone().unwrap_or_default(),
        };
        let new = NewDataset {
            element: schema.element.numpy(),
            shape: schema.shape.clone(),
            grows: vec![false; schema.shape.len()],
            // One run of elements is one object, too.
            chunk: match self.disk.assignment() {
                Assignment::Objects => Some(self.disk.chunk().to_vec()),
                Assignment::Blocks => None,
            },
            filters: self.filters.clone(),
            fill: schema.fill.bytes().to_vec(),
            dimensions: names,
            attributes: self.attributes.clone(),
            places,
        };
        let mut file = match &self.former {
            None => Hdf5File::create(&self.file, self.form, end)?,
            Some(former) => {
                let copy = former.file.try_clone();
                let copy = copy.map_err(|e| Error::io(&e, "opening", &self.file))?;
                Hdf5File::change(copy, &self.file, end)?
            }
        };
        file.put(&self.dataset, &new, self.form)?;
        file.finish()
    }

    /// The chunks that servers have written.
    fn chunks(&self, temporary: &Temporary) -> Result<Vec<Chunk>> {
        let disk = &self.disk;
        let notes = placed::read_notes(temporary.path())?;
        let chunks = notes.into_iter().map(|(object, place)| {
            let index = disk.grid_index(object).into_iter();
            Chunk {
                start: index.zip(disk.chunk()).map(|(i, n)| i * n).collect(),
                place: place.at,
                bytes: place.bytes,
                skipped: place.skipped,
            }
        });
        Ok(chunks.collect())
    }
}

/// The file and the dataset of an array: the path may name both.
fn place_of(path: &Path, dataset: &str, array: &str) -> Result<(PathBuf, String)> {
    let known = name::tidy(dataset);
    let (file, named) = match name::split(path) {
        Some((file, named)) => (file, named),
        None => (path.to_path_buf(), String::new()),
    };
    let dataset = match (named.is_empty(), known.is_empty()) {
        (true, true) => format!("/{array}"),
        (true, false) => known,
        (false, true) => named,
        (false, false) if named == known => named,
        (false, false) => {
            let cause = format!("the path names the dataset {named}, and the disk schema {known}");
            return Err(Error::new(Kind::Schema, "writing", cause).at(path));
        }
    };
    Ok((file, dataset))
}

/// The bytes of all objects, with their padding.
fn bytes_of(disk: &DiskSchema) -> u64 {
    match disk.objects() {
        0 => 0,
        objects => objects.saturating_mul(disk.object_bytes(0)),
    }
}

/// Makes the changes of metadata that a killed process has left.
fn recover(path: &Path) -> Result<()> {
    let has_journal = |temporary: &Path| temporary.join(JOURNAL).exists();
    let Some(mut temporary) = Temporary::adopt(path, &has_journal)? else {
        return Ok(());
    };
    if let Some(journal) = Journal::left(path)? {
        let file = File::options().read(true).write(true).open(path);
        let file = file.map_err(|e| Error::io(&e, "opening for writing", path))?;
        journal.make(&file, path)?;
    }
    temporary.remove()
}

impl Former {
    /// Opens and locks a file that is there; `None` if there is none.
    fn open(path: &Path) -> Result<Option<Self>> {
        if std::fs::symlink_metadata(path).is_err() {
            return Ok(None);
        }
        let file = File::options().read(true).write(true).open(path);
        let file = file.map_err(|e| Error::io(&e, "opening for writing", path))?;
        if !files::metadata(&file, path)?.is_file() || !is_hdf5(&file) {
            return Err(in_the_way(path, "it is there, and no HDF5 file"));
        }
        writable(path)?;
        // Nobody else changes the file from here on. Readers may come until its metadata change.
        lock_once(&file, FlockOperation::NonBlockingLockExclusive, path)?;
        lock_once(&file, FlockOperation::NonBlockingLockShared, path)?;
        Ok(Some(Self {
            bytes: files::length(&file, path)?,
            end: describe::open(path)?.end(),
            is_changed: AtomicBool::new(false),
            path: path.to_path_buf(),
            file,
        }))
    }

    /// Keeps readers out, too, until the file is closed.
    fn lock_alone(&self, path: &Path) -> Result<()> {
        for _ in 1..LOCK_TRIES {
            match lock_once(&self.file, FlockOperation::NonBlockingLockExclusive, path) {
                Err(error) if error.kind == Kind::Busy => std::thread::sleep(LOCK_PAUSE),
                locked => return locked,
            }
        }
        lock_once(&self.file, FlockOperation::NonBlockingLockExclusive, path)
    }
}

fn lock_once(file: &File, operation: FlockOperation, path: &Path) -> Result<()> {
    match rustix::fs::flock(file, operation) {
        Err(Errno::WOULDBLOCK) => {
            let cause = "another program has it open: close it there first";
            Err(Error::new(Kind::Busy, "writing", cause).at(path))
        }
        _ => Ok(()), // also on file systems without locks, as the HDF5 library does
    }
}
