//! Copies from and to HDF5 and NetCDF-4 files: what a source has, and what the target gets.

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use penstock_hdf5::{FileForm, Hdf5File, Member};
use serde_json::{Map, Value};

use super::options::{Form, Options};
use crate::formats::hdf5::{attributes, describe, filters, name};
use crate::read::StoredArray;
use crate::write::{FileArray, FileGoal, FileGroup, FileObject};
use crate::{ArraySchema, Storage};

/// A source that is an HDF5 file, or a group or dataset of one.
pub(super) struct SourceFile {
    opened: Hdf5File,
    pub(super) file: PathBuf,
    /// The path of the group or dataset; empty for the root.
    pub(super) above: String,
    is_netcdf: bool,
}

/// What is neither a group nor an array that Penstock understands.
pub(super) struct Odd {
    /// The path below the source.
    pub(super) path: String,
    what: String,
    member: Member,
}

impl SourceFile {
    /// The file of a source; `None` if the source is something else.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the library cannot read it.
    pub(super) fn open(source: &Path) -> Result<Option<Self>> {
        let (file, above) =
            name::split(source).unwrap_or_else(|| (source.to_path_buf(), String::new()));
        if !describe::is_hdf5_file(&file) {
            return Ok(None);
        }
        let opened = describe::open(&file)?;
        // The oldest files of NetCDF-4 do not say what they are.
        let has_dimension = || -> Result<bool> {
            let members = opened.members("")?;
            Ok(members
                .iter()
                .any(|(_, member)| *member == Member::Dimension))
        };
        Ok(Some(Self {
            is_netcdf: opened.is_netcdf() || has_dimension()?,
            opened,
            file,
            above,
        }))
    }

    /// Whether the source is a group, and no dataset.
    pub(super) fn is_group(&self) -> bool {
        self.above.is_empty() || self.opened.members(&self.above).is_ok()
    }

    /// The path that a node of the source has in the file.
    pub(super) fn within(&self, path: &str) -> String {
        format!("{}{}", self.above, name::tidy(path))
    }

    /// The path that leads to a node of the source.
    pub(super) fn place(&self, path: &str) -> PathBuf {
        place_in(&self.file, &self.within(path))
    }

    /// Links and element types, which are no nodes.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the library cannot read the file.
    pub(super) fn odd(&self) -> Result<Vec<Odd>> {
        let members = self.opened.members(&self.above)?.into_iter();
        let odd = members.filter_map(|(path, member)| {
            let what = match member {
                Member::Link => "a link",
                Member::Type => "an element type by itself",
                Member::Group | Member::Dataset | Member::Dimension => return None,
            };
            Some(Odd {
                path: path[self.above.len()..].trim_start_matches('/').to_string(),
                what: what.to_string(),
                member,
            })
        });
        Ok(odd.collect())
    }

    /// The names of a node's attributes that a target has no place for.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the library cannot read them.
    pub(super) fn unfit_attributes(
        &self,
        path: &str,
        goal: Option<&FileGoal>,
    ) -> Result<Vec<String>> {
        let path = self.within(path);
        match goal {
            Some(goal) => self
                .opened
                .unfit_attributes(&path, FileForm::of(goal.is_netcdf)),
            None => {
                let all = self.opened.attributes(&path)?.into_iter();
                let unread = all.filter(|(_, attribute)| attribute.is_none());
                Ok(unread.map(|(name, _)| name).collect())
            }
        }
    }

    /// The dimensions of a dataset that may grow without limit.
    fn grows(&self, path: &str) -> Result<Vec<bool>> {
        let found = self.opened.dataset(&self.within(path))?;
        Ok(found.map(|found| found.grows).unwrap_or_default())
    }
}

impl Odd {
    /// An array that Penstock does not understand.
    pub(super) fn unread(path: &str, error: &Error) -> Self {
        Self {
            path: path.to_string(),
            what: error.cause.clone(),
            member: Member::Dataset,
        }
    }

    /// An array whose form only the library can write.
    pub(super) fn of_a_form_to_keep(path: &str) -> Self {
        Self {
            path: path.to_string(),
            what: "servers do not write its form".to_string(),
            member: Member::Dataset,
        }
    }

    /// Whether it is a dataset, which has attributes.
    pub(super) fn is_dataset(&self) -> bool {
        self.member == Member::Dataset
    }

    /// The error for what a copy cannot take.
    pub(super) fn refused(&self, source: &Path, cause: &str) -> Error {
        let doing = format!("copying '{}'", self.path);
        let cause = format!(
            "{}: {cause}; --skip-unsupported (skip_unsupported=True) leaves it out",
            self.what
        );
        Error::new(Kind::Unsupported, doing, cause).at(source)
    }
}

/// Whether a dataset stays as it is in another HDF5 file: servers do not write its form, and nobody
/// asks for chunks or filters of another.
pub(super) fn keeps_as_it_is(stored: &StoredArray, options: &Options) -> bool {
    let (
        Form::Hdf5 {
            chunks, filters, ..
        },
        schema,
    ) = (&options.form, stored.schema())
    else {
        return false;
    };
    let Storage::Hdf5 { filters: words, .. } = &schema.disk else {
        return false;
    };
    let names = schema.names_of_dimensions();
    let is_said = chunks.as_ref().is_some_and(|chunks| chunks.fits(&names)) || filters.is_some();
    let is_written = || {
        let known = filters::parse(words, &schema.element);
        known.and_then(|filters| filters::check_writable(&filters))
    };
    !is_said && (stored.target().is_read_by_library() || is_written().is_err())
}

/// The path of a dataset or group in a file.
pub(super) fn place_in(file: &Path, path: &str) -> PathBuf {
    match path {
        "" => file.to_path_buf(),
        path => PathBuf::from(format!("{}:{path}", file.display())),
    }
}

/// What a copy makes in a file, while it is found.
pub(super) struct InFile {
    pub(super) goal: FileGoal,
    /// The file of the target.
    pub(super) file: PathBuf,
    /// The path in the file that the target names; empty for none.
    above: String,
    /// The bytes of objects that stay as they are, which go through memory.
    bytes: u64,
}

impl InFile {
    /// What a copy to `target` makes there, without anything yet; `None` if the copy is not to be a
    /// file of HDF5.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the library cannot read a file that is there.
    pub(super) fn new(
        target: &Path,
        source: Option<&SourceFile>,
        options: &Options,
    ) -> Result<Option<Self>> {
        let Form::Hdf5 { is_netcdf, .. } = &options.form else {
            return Ok(None);
        };
        let (file, above) =
            name::split(target).unwrap_or_else(|| (target.to_path_buf(), String::new()));
        let is_added = !above.is_empty() && describe::is_hdf5_file(&file);
        let there = match is_added {
            true => Some(describe::open(&file)?),
            false => None,
        };
        let is_netcdf = *is_netcdf
            || source.is_some_and(|source| source.is_netcdf)
            || there.is_some_and(|there| there.is_netcdf());
        let goal = FileGoal {
            is_netcdf,
            is_added,
            source: source.map(|source| source.file.clone()),
            ..FileGoal::default()
        };
        Ok(Some(Self {
            goal,
            file,
            above,
            bytes: 0,
        }))
    }

    /// Whether the target names a dataset or group in the file.
    pub(super) fn names_dataset(&self) -> bool {
        !self.above.is_empty()
    }

    /// Whether something is in the file where the copy would go, which may be replaced if it is a
    /// dataset.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for a group that is to be replaced.
    pub(super) fn is_taken(&self, overwrites: bool) -> Result<bool> {
        let opened = describe::open(&self.file)?;
        if !opened.exists(&self.above) {
            return Ok(false);
        }
        if overwrites && opened.dataset(&self.above)?.is_none() {
            let cause = format!(
                "{} is a group, and is not replaced: give another",
                self.above
            );
            return Err(Error::new(Kind::Unsupported, "copying", cause).at(&self.file));
        }
        Ok(true)
    }

    /// The path of a node in the target.
    fn within(&self, path: &str) -> String {
        format!("{}{}", self.above, name::tidy(path))
    }

    /// Adds a group. `from` is its path in the source, if that is of HDF5.
    pub(super) fn add_group(
        &mut self,
        path: &str,
        mut attributes: Map<String, Value>,
        from: Option<String>,
        options: &Options,
    ) {
        if from.is_some() {
            attributes.clear(); // they come as they are
        } else if options.drops_attributes {
            attributes::drop_unfit(&mut attributes, FileForm::of(self.goal.is_netcdf));
        }
        self.goal.groups.push(FileGroup {
            path: self.within(path),
            attributes,
            from,
        });
    }

    /// Adds an array at `path`, or where the target's own path says. Gives its schema there.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the source cannot be read.
    pub(super) fn add_array(
        &mut self,
        path: Option<&str>,
        mut schema: ArraySchema,
        from: Option<(&SourceFile, &str)>,
        options: &Options,
    ) -> Result<ArraySchema> {
        let path = match path {
            Some(path) => self.within(path),
            None if self.above.is_empty() => name::tidy(&schema.name),
            None => self.above.clone(),
        };
        let mut grows = vec![false; schema.shape.len()];
        if let Some((source, path)) = from {
            schema.attributes.clear();
            if matches!(schema.disk, Storage::Hdf5 { chunk: Some(_), .. }) {
                grows = source.grows(path)?;
            }
        } else if options.drops_attributes {
            attributes::drop_unfit(&mut schema.attributes, FileForm::of(self.goal.is_netcdf));
        }
        if let Storage::Hdf5 {
            dataset,
            chunk,
            is_netcdf,
            ..
        } = &mut schema.disk
        {
            dataset.clone_from(&path);
            *is_netcdf = self.goal.is_netcdf;
            let extents = schema.shape.iter().zip(&grows);
            for (chunk, (&n, grows)) in chunk.iter_mut().flatten().zip(extents) {
                *chunk = if *grows { *chunk } else { n.max(1).min(*chunk) };
            }
        }
        schema.name = path.rsplit('/').next().unwrap_or(&path).to_string();
        self.goal.arrays.push(FileArray {
            path,
            schema: schema.clone(),
            grows,
            from: from.map(|(source, path)| source.within(path)),
        });
        Ok(schema)
    }

    /// Adds an object that stays as it is.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] when the memory is too little for it.
    pub(super) fn add_object(
        &mut self,
        odd: &Odd,
        source: &SourceFile,
        options: &Options,
    ) -> Result<()> {
        let from = source.within(&odd.path);
        if odd.is_dataset() {
            self.bytes += source.opened.stored_bytes(&from)?;
            if self.bytes > options.memory_bytes / 2 {
                let cause = "it would go through the library, and all of it through memory, for \
                    which the copy has too little";
                return Err(odd.refused(&source.file, cause));
            }
        }
        self.goal.objects.push(FileObject {
            from,
            to: self.within(&odd.path),
            is_dataset: odd.is_dataset(),
            is_link: odd.member == Member::Link,
        });
        Ok(())
    }

    /// Adds the dimensions of a source that is copied as a whole, and of NetCDF-4.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the source cannot be read.
    pub(super) fn add_dimensions(&mut self, source: &SourceFile) -> Result<()> {
        if !source.is_netcdf {
            return Ok(());
        }
        for dimension in source.opened.dimensions(&source.above)? {
            let path = self.within(&dimension.path[source.above.len()..]);
            let known = (path, dimension.extent, dimension.grows);
            self.goal.dimensions.push(known);
        }
        Ok(())
    }
}
