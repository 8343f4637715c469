//! Files: what is in one, and what is added to one.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hdf5_metno::plist::{FileAccess, FileCreate};
use hdf5_metno::{
    Dataset as OpenDataset, File as OpenFile, Group, LinkType, OpenMode, from_id, h5check, sync,
};
use hdf5_metno_sys::h5f::{
    H5F_ACC_RDONLY, H5F_ACC_RDWR, H5F_ACC_TRUNC, H5F_libver_t, H5Fcreate, H5Fopen,
};
use hdf5_metno_sys::h5p::{
    H5P_CLS_FILE_ACCESS, H5P_CLS_FILE_CREATE, H5Pcreate, H5Pset_attr_creation_order,
    H5Pset_libver_bounds, H5Pset_link_creation_order,
};
use penstock_engine::{Error, Kind, Result};

use crate::attributes::{self, Attribute, TextForm};
use crate::dataset::{Chunk, Dataset, describe, is_bare};
use crate::driver::{self, Image, SharedImage, lock};
use crate::elements::datatype_of;
use crate::library::{self, CREATION_ORDER, Creation, Filter, Outcome, text};

/// The first bytes of a superblock.
const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";
/// The attribute of the root by which a NetCDF-4 file says who made it.
const MAKER: &str = "_NCProperties";

/// Whether a file is of HDF5: a superblock is at its start, or behind a user block.
pub fn is_hdf5(file: &File) -> bool {
    let mut at = 0;
    let mut start = [0; SIGNATURE.len()];
    while file.read_exact_at(&mut start, at).is_ok() {
        if start == SIGNATURE {
            return true;
        }
        at = if at == 0 { 512 } else { at * 2 };
    }
    false
}

/// The form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileForm {
    /// Any HDF5 file.
    Hdf5,
    /// A NetCDF-4 file: dimensions are scales, and attributes are those of its programs.
    NetCdf,
}

impl FileForm {
    /// How its programs store texts.
    fn texts(self) -> TextForm {
        match self {
            Self::Hdf5 => TextForm::Any,
            Self::NetCdf => TextForm::Fixed,
        }
    }
}

/// A file that the library has open, on an image of it.
pub struct Hdf5File {
    open: OpenFile,
    image: SharedImage,
    path: PathBuf,
}

/// A dataset that is made.
pub struct NewDataset {
    /// The element type as NumPy writes it, such as `<f8`.
    pub element: String,
    /// The extents.
    pub shape: Vec<u64>,
    /// The dimensions that may grow without limit; of a dataset in chunks.
    pub grows: Vec<bool>,
    /// The extents of a chunk; `None` for one run of elements.
    pub chunk: Option<Vec<u64>>,
    /// The filters of chunks.
    pub filters: Vec<Filter>,
    /// The bytes of one element where nothing was written; empty for zeros.
    pub fill: Vec<u8>,
    /// The names of the dimensions.
    pub dimensions: Vec<String>,
    /// The attributes.
    pub attributes: Vec<(String, Attribute)>,
    /// Where the elements are.
    pub places: Places,
}

/// Where the elements of a new dataset are.
pub enum Places {
    /// One behind the other from this byte on, or one chunk behind the other.
    From(u64),
    /// The chunks that are there.
    Each(Vec<Chunk>),
}

/// What has changed in a file, for its owner to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Runs of bytes of metadata, each with its place, in the order of their places.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// The length of the file.
    pub bytes: u64,
}

impl Hdf5File {
    /// Opens a file to look at it, with `over` as if it were written. `path` is for errors only.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the library cannot read its metadata.
    pub fn open(file: File, path: &Path, over: &Changes) -> Result<Self> {
        let image = image_of(file, over).map_err(|e| Error::io(&e, "reading", path))?;
        Self::open_as(image, path, OpenMode::Read, FileForm::Hdf5)
    }

    /// Opens a file to change its metadata: see [`Hdf5File::finish`]. The file itself stays as it
    /// is. Its elements end before `end`, those that are new included.
    ///
    /// # Errors
    /// As [`Hdf5File::open`].
    pub fn change(file: File, path: &Path, end: u64) -> Result<Self> {
        let image = Image::new(Some(file)).map_err(|e| Error::io(&e, "reading", path))?;
        let opened = Self::open_as(image, path, OpenMode::ReadWrite, FileForm::Hdf5)?;
        lock(&opened.image).begin_at(end);
        Ok(opened)
    }

    /// Makes the metadata of a new file, whose elements end before `end`.
    ///
    /// # Errors
    /// [`Kind::Io`] when the library fails.
    pub fn create(path: &Path, form: FileForm, end: u64) -> Result<Self> {
        let created = Self::open_as(Image::default(), path, OpenMode::Create, form)?;
        lock(&created.image).begin_at(end);
        if form == FileForm::NetCdf {
            let maker = concat!("version=2,penstock=", env!("CARGO_PKG_VERSION"));
            let root = || {
                attributes::write(
                    &created.open,
                    MAKER,
                    &Attribute::text(maker),
                    TextForm::Fixed,
                )
            };
            root().map_err(|e| created.failed("making", e))?;
        }
        Ok(created)
    }

    fn open_as(image: Image, path: &Path, mode: OpenMode, form: FileForm) -> Result<Self> {
        let image = SharedImage::new(image.into());
        let open = || open_file(&image, path, mode, form == FileForm::NetCdf);
        let open = open().map_err(|e| {
            let kind = if mode == OpenMode::Create {
                Kind::Io
            } else {
                Kind::Damaged
            };
            Error::new(kind, "opening", said(&e)).at(path)
        })?;
        Ok(Self {
            open,
            image: image.clone(),
            path: path.to_path_buf(),
        })
    }

    fn failed(&self, doing: &str, error: hdf5_metno::Error) -> Error {
        Error::new(Kind::Damaged, doing, said(&error)).at(&self.path)
    }

    /// The end of the addresses in use: what is behind belongs to nobody.
    pub fn end(&self) -> u64 {
        lock(&self.image).end()
    }

    /// Whether the file says that it is of NetCDF.
    pub fn is_netcdf(&self) -> bool {
        let names = self.open.attr_names().unwrap_or_default();
        names.iter().any(|name| name == MAKER)
    }

    /// The paths of all datasets, `/` before each name.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when a group cannot be read.
    pub fn datasets(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut groups = VecDeque::from([(String::new(), None::<Group>)]);
        let mut visited = 0;
        while let Some((path, group)) = groups.pop_front() {
            visited += 1;
            if visited > GROUPS_MAX {
                let cause = format!("it has more than {GROUPS_MAX} groups");
                return Err(Error::new(Kind::Unsupported, "looking into", cause).at(&self.path));
            }
            let group = group.as_ref().unwrap_or(&self.open);
            let members = library::members_of(group).map_err(|e| self.failed("looking into", e))?;
            for (name, link) in members {
                let below = format!("{path}/{name}");
                if link != LinkType::Hard {
                    continue; // it is at another place, too, or in another file
                }
                if let Ok(group) = group.group(&name) {
                    groups.push_back((below, Some(group)));
                } else if group.dataset(&name).is_ok() {
                    found.push(below);
                }
            }
        }
        Ok(found)
    }

    /// Describes the dataset at `path`; `None` if there is none.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when its metadata cannot be read.
    pub fn dataset(&self, path: &str) -> Result<Option<Dataset>> {
        if !self.exists(path) {
            return Ok(None);
        }
        let failed = |e| self.failed(&format!("reading {path} of"), e);
        match self.open.dataset(path) {
            Ok(opened) => describe(&opened).map(Some).map_err(failed),
            Err(_) if self.open.group(path).is_ok() => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Whether a dataset stands for a dimension without variable.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when its attributes cannot be read.
    pub fn is_bare_dimension(&self, path: &str) -> Result<bool> {
        let look = || -> Outcome<bool> { is_bare(&self.open.dataset(path)?) };
        look().map_err(|e| self.failed(&format!("reading {path} of"), e))
    }

    /// The path of the file, for errors.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file as the library has it open.
    pub(crate) fn library_file(&self) -> &OpenFile {
        &self.open
    }

    /// Ends the changes, and gives what is to be written.
    ///
    /// # Errors
    /// [`Kind::Io`] when the library cannot make its metadata.
    pub fn finish(self) -> Result<Changes> {
        let Self { open, image, path } = self;
        open.close()
            .map_err(|e| Error::new(Kind::Io, "making the metadata of", said(&e)).at(&path))?;
        let image = lock(&image);
        let writes = image.changes();
        Ok(Changes {
            writes: writes.map_err(|e| Error::io(&e, "reading the metadata of", &path))?,
            bytes: image.end(),
        })
    }

    /// Gives the group at `path` an attribute, in the place of another of that name.
    ///
    /// # Errors
    /// [`Kind::Io`] when the library fails.
    pub fn set_attribute(
        &mut self,
        path: &str,
        name: &str,
        attribute: &Attribute,
        form: FileForm,
    ) -> Result<()> {
        let set = || -> Outcome<()> {
            let group = self.group_at(path, form)?;
            if group.attr_names()?.iter().any(|known| known == name) {
                group.delete_attr(name)?;
            }
            attributes::write(&group, name, attribute, form.texts())
        };
        set().map_err(|e| {
            let doing = format!("writing the attribute {name:?} to");
            Error::new(Kind::Io, doing, said(&e)).at(&self.path)
        })
    }

    /// The attributes of the group at `path`; `None` for one of a type that is not read.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when they cannot be read.
    pub fn attributes(&self, path: &str) -> Result<Vec<(String, Option<Attribute>)>> {
        let read = || -> Outcome<_> {
            let group = self.open.group(if path.is_empty() { "/" } else { path })?;
            attributes::attributes_of(&group, |name| name == MAKER)
        };
        read().map_err(|e| self.failed(&format!("reading the attributes of {path} of"), e))
    }

    /// Whether there is an object at each step of a path.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let mut so_far = String::new();
        path.split('/').filter(|name| !name.is_empty()).all(|name| {
            so_far.push('/');
            so_far.push_str(name);
            self.open.link_exists(&so_far)
        })
    }

    /// Adds a dataset at `path`, with the groups above it, in the place of a dataset that is there.
    ///
    /// # Errors
    /// [`Kind::Schema`] when something else is there, and when dimensions of one name have two
    /// lengths; [`Kind::Unsupported`] for what the form of the file does not have; [`Kind::Io`]
    /// when the library fails.
    pub fn put(&mut self, path: &str, new: &NewDataset, form: FileForm) -> Result<()> {
        if self.exists(path) && self.open.dataset(path).is_err() {
            let cause = format!("{path} is there, and is no dataset: give another name");
            return Err(Error::new(Kind::Schema, "writing", cause).at(&self.path));
        }
        if form == FileForm::NetCdf {
            self.check_dimensions(path, new)?;
        }
        self.try_to_put(path, new, form).map_err(|e| {
            let doing = format!("writing {path} to");
            Error::new(Kind::Io, doing, said(&e)).at(&self.path)
        })
    }

    fn try_to_put(&self, path: &str, new: &NewDataset, form: FileForm) -> Outcome<()> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let group = self.group_at(above, form)?;
        let aside = format!("{name}{ASIDE}");
        let opened = self.make(&group, &aside, new, form)?;
        for (name, attribute) in &new.attributes {
            attributes::write(&opened, name, attribute, form.texts())?;
        }
        let users = match group.link_exists(name) {
            true => self.users_of_scale(&format!("{above}/{name}"))?,
            false => Vec::new(),
        };
        if group.link_exists(name) {
            self.detach_all(&group.dataset(name)?)?;
            group.unlink(name)?;
        }
        group.relink(&aside, name)?;
        for (dataset, dimension) in users {
            library::attach_scale(&dataset, &opened, dimension)?;
        }
        match form {
            FileForm::NetCdf => self.attach_dimensions(above, name, &opened, new),
            FileForm::Hdf5 => {
                let named = (0..).zip(&new.dimensions);
                named
                    .into_iter()
                    .try_for_each(|(d, name)| library::set_label(&opened, d, name))
            }
        }
    }

    /// The group at `path`, which is made if it is missing.
    fn group_at(&self, path: &str, form: FileForm) -> Outcome<Group> {
        let mut group = self.open.group("/")?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            group = match group.link_exists(name) {
                true => group.group(name)?,
                false => library::make_group(&group, name, form == FileForm::NetCdf)?,
            };
        }
        Ok(group)
    }

    /// Makes a dataset, and says where its elements are.
    fn make(
        &self,
        group: &Group,
        name: &str,
        new: &NewDataset,
        form: FileForm,
    ) -> Outcome<OpenDataset> {
        let creation = Creation {
            element: &datatype_of(&new.element)?,
            shape: &new.shape,
            grows: &new.grows,
            chunk: new.chunk.as_deref(),
            filters: &new.filters,
            fill: &new.fill,
            is_placed: matches!(new.places, Places::From(_)),
            keeps_order: form == FileForm::NetCdf,
        };
        match &new.places {
            Places::From(start) => {
                let width = creation.element.size() as u64;
                let extents = new.chunk.as_ref().unwrap_or(&new.shape);
                let bytes = extents.iter().product::<u64>() * width;
                let chunks = match &new.chunk {
                    None => 1,
                    Some(chunk) => {
                        let counts = new.shape.iter().zip(chunk);
                        counts.map(|(n, c)| n.div_ceil((*c).max(1))).product()
                    }
                };
                let places = (0..chunks).map(|number| start + number * bytes);
                lock(&self.image).place_at(places.collect());
                let made = library::create_dataset(group, name, &creation);
                lock(&self.image).place_no_more();
                made
            }
            Places::Each(chunks) => {
                let made = library::create_dataset(group, name, &creation)?;
                let places = chunks.iter().map(|chunk| chunk.place);
                lock(&self.image).place_at(places.collect());
                let bytes = |chunk: &Chunk| usize::try_from(chunk.bytes).unwrap_or(usize::MAX);
                let nothing = vec![0; chunks.iter().map(bytes).max().unwrap_or(0)];
                let enter = |chunk: &Chunk| {
                    library::enter_chunk(&made, &chunk.start, &nothing[..bytes(chunk)])
                };
                let entered = chunks.iter().try_for_each(enter);
                let left = lock(&self.image).place_no_more();
                entered?;
                match left {
                    0 => Ok(made),
                    left => Err(format!("{left} chunks are not where their bytes are").into()),
                }
            }
        }
    }
}

/// Opens or makes a file on an image of it, in the format that HDF5 has written since 1.10.
fn open_file(
    image: &SharedImage,
    path: &Path,
    mode: OpenMode,
    keeps_order: bool,
) -> Outcome<OpenFile> {
    let name = text(&path.to_string_lossy())?;
    sync::sync(|| {
        // SAFETY: the lists are open, and the name ends with a zero.
        unsafe {
            let access: FileAccess = from_id(h5check(H5Pcreate(*H5P_CLS_FILE_ACCESS))?)?;
            let format = H5F_libver_t::H5F_LIBVER_V110;
            h5check(H5Pset_libver_bounds(access.id(), format, format))?;
            driver::open_with(access.id(), image)?;
            let (name, access) = (name.as_ptr(), access.id());
            let opened = match mode {
                OpenMode::Read => H5Fopen(name, H5F_ACC_RDONLY, access),
                OpenMode::ReadWrite => H5Fopen(name, H5F_ACC_RDWR, access),
                _ => {
                    let list: FileCreate = from_id(h5check(H5Pcreate(*H5P_CLS_FILE_CREATE))?)?;
                    if keeps_order {
                        h5check(H5Pset_link_creation_order(list.id(), CREATION_ORDER))?;
                        h5check(H5Pset_attr_creation_order(list.id(), CREATION_ORDER))?;
                    }
                    H5Fcreate(name, H5F_ACC_TRUNC, list.id(), access)
                }
            };
            from_id(h5check(opened)?)
        }
    })
}

/// The image of a file with changes over it.
fn image_of(file: File, over: &Changes) -> std::io::Result<Image> {
    let mut image = Image::new(Some(file))?;
    for (at, data) in &over.writes {
        image.write(*at, data)?;
    }
    Ok(image)
}

/// The most groups of a file: hard links may make a circle of them.
const GROUPS_MAX: usize = 1 << 16;
/// What follows the name of a dataset until it takes its place.
const ASIDE: &str = ".penstock-new";

/// The text of an error of the library.
fn said(error: &hdf5_metno::Error) -> String {
    error.to_string()
}
