//! Files: what is in one, and what is added to one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

use hdf5_metno::plist::{FileAccess, FileCreate};
use hdf5_metno::{File as OpenFile, Group, OpenMode, from_id, h5check, sync};
use hdf5_metno_sys::h5f::{
    H5F_ACC_RDONLY, H5F_ACC_RDWR, H5F_ACC_TRUNC, H5F_libver_t, H5Fcreate, H5Fopen,
};
use hdf5_metno_sys::h5p::{
    H5P_CLS_FILE_ACCESS, H5P_CLS_FILE_CREATE, H5P_DEFAULT, H5Pcreate, H5Pset_attr_creation_order,
    H5Pset_libver_bounds, H5Pset_link_creation_order,
};
use penstock_engine::{Error, Kind, Result};

use crate::attributes::{self, Attribute, TextForm};
use crate::driver::{self, Image, SharedImage, lock};
use crate::library::{self, CREATION_ORDER, Outcome, text};

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
    /// NetCDF-4, or otherwise HDF5.
    pub fn of(is_netcdf: bool) -> Self {
        match is_netcdf {
            true => Self::NetCdf,
            false => Self::Hdf5,
        }
    }

    /// How its programs store texts.
    pub(crate) fn texts(self) -> TextForm {
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

    /// Opens a file to look at it, by the driver that the library has for files: it finds other
    /// files through it, where the datasets of this one are virtual.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the library cannot open it.
    pub fn open_with_sources(path: &Path) -> Result<Self> {
        let open = || -> Outcome<OpenFile> {
            let name = text(&path.to_string_lossy())?;
            sync::sync(|| {
                // SAFETY: the name ends with a zero, and the new file has no other owner.
                unsafe {
                    from_id(h5check(H5Fopen(
                        name.as_ptr(),
                        H5F_ACC_RDONLY,
                        H5P_DEFAULT,
                    ))?)
                }
            })
        };
        let open = open().map_err(|e| Error::new(Kind::Damaged, "opening", said(&e)).at(path))?;
        Ok(Self {
            open,
            image: SharedImage::default(),
            path: path.to_path_buf(),
        })
    }

    /// Opens a file to change its metadata: see [`Hdf5File::finish`]. The file itself stays as it
    /// is. Its elements end before `end`, those that are new included.
    ///
    /// # Errors
    /// As [`Hdf5File::open`].
    pub fn change(file: File, path: &Path, end: u64) -> Result<Self> {
        Self::change_over(file, path, end, &Changes::default())
    }

    /// As [`Hdf5File::change`], with `over` as if it were written. The library does not know what
    /// room these changes have given up.
    ///
    /// # Errors
    /// As [`Hdf5File::open`].
    pub fn change_over(file: File, path: &Path, end: u64, over: &Changes) -> Result<Self> {
        let image = image_of(file, over).map_err(|e| Error::io(&e, "reading", path))?;
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

    pub(crate) fn failed(&self, doing: &str, error: hdf5_metno::Error) -> Error {
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

    /// The image of the file.
    pub(crate) fn image(&self) -> MutexGuard<'_, Image> {
        lock(&self.image)
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

    /// Makes the group at `path`, unless it is there.
    ///
    /// # Errors
    /// [`Kind::Io`] when the library fails.
    pub fn make_group(&mut self, path: &str, form: FileForm) -> Result<()> {
        let made = self.group_at(path, form);
        made.map(drop).map_err(|e| self.cannot_write(path, &e))
    }

    /// Gives the group or dataset at `path` an attribute, in the place of another of that name. If
    /// there is neither, a group is made.
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
            if !self.exists(path) {
                self.group_at(path, form)?;
            }
            let object = self.object(path)?;
            if object.attr_names()?.iter().any(|known| known == name) {
                object.delete_attr(name)?;
            }
            attributes::write(&object, name, attribute, form.texts())
        };
        set().map_err(|e| {
            let doing = format!("writing the attribute {name:?} to");
            Error::new(Kind::Io, doing, said(&e)).at(&self.path)
        })
    }

    /// The group at `path`, which is made if it is missing.
    pub(crate) fn group_at(&self, path: &str, form: FileForm) -> Outcome<Group> {
        let mut group = self.open.group("/")?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            group = match group.link_exists(name) {
                true => group.group(name)?,
                false => library::make_group(&group, name, form == FileForm::NetCdf)?,
            };
        }
        Ok(group)
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

/// The text of an error of the library.
pub(crate) fn said(error: &hdf5_metno::Error) -> String {
    error.to_string()
}
