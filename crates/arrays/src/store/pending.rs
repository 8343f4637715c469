//! An array being written: what the root does before the servers write and after they have.
//!
//! | stored as | the temporary's `data` is | it replaces |
//! |---|---|---|
//! | chunks, new group | the group with the array in it | `path` |
//! | chunks, old group | the array | `path/name` |
//! | row-major | the file | `path` |
//! | parts | the directory of parts | `path` |
//!
//! A part of an array is changed in a way of its own: see `update`.

use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::change;
use super::file::{self, read_if_there};
use super::flat::part_path;
use super::place::{check_chunks, check_file, check_group, check_parts, resolve};
use super::sidecar::{self, Sidecar};
use super::spread::{Spread, SpreadArray, of_server};
use super::temporary::Temporary;
use super::update::link_rest;
use super::zarr::ChunkForm;
use super::{Files, PartFiles, Stored, Target, ZarrFiles, zarr};
use crate::dtype::ByteOrder;
use crate::npy::Header;
use crate::schema::{ArraySchema, Disk, Format, part_mesh};

/// The sidecar of a raw file, in the temporary.
const SIDECAR: &str = "sidecar";

/// How the chunks of a new array are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// `c/0/1`: a directory for each index but the last.
    Nested,
    /// `c.0.1`: all in one directory, where there are few. To bring them to stable storage is then to sync
    /// that one, and to make them is to make no other.
    Flat,
}

/// A write in progress. Dropped without [`Pending::commit`], it leaves nothing behind.
pub struct Pending {
    pub(super) temporary: Temporary,
    pub(super) target: Target,
    pub(super) install: Install,
    /// Metadata that no server needs, and that are yet to be written.
    pub(super) metadata: Vec<(PathBuf, Vec<u8>)>,
    /// What came of [`Pending::furnish`], once it has been tried: the files that no server has made.
    pub(super) furnished: Option<Result<Vec<PathBuf>>>,
    /// What came of [`Pending::settle`], once it has been tried.
    pub(super) settled: Option<Result<()>>,
}

/// What is left of a write whose array is in its place: the lock of its temporary, which has gone. The file
/// system takes a while to let go of it, for which nobody need wait.
pub struct Committed {
    _temporary: Temporary,
}

/// What takes whose place at the end.
#[derive(Serialize, Deserialize)]
pub(super) enum Install {
    /// The whole group takes the place of nothing.
    Group { group: PathBuf, name: String },
    /// The array takes its place in the group.
    Array { group: PathBuf, name: String },
    /// The file takes its place, and the sidecar its own; a sidecar no longer true goes.
    File { path: PathBuf, raw: bool },
    /// The directory of parts takes its place, with all of these files of so many bytes: those that no server has
    /// made are made first.
    Parts {
        path: PathBuf,
        name: String,
        files: Vec<(PathBuf, u64)>,
    },
    /// The changed file takes the place of the old.
    Replace { path: PathBuf },
    /// The changed directory, with what it lacks of the old, takes the place of the old.
    Directory { path: PathBuf },
}

impl Pending {
    pub(super) fn new(temporary: Temporary, target: Target, install: Install) -> Self {
        Self {
            temporary,
            target,
            install,
            metadata: Vec::new(),
            furnished: None,
            settled: None,
        }
    }

    /// Makes everything but the elements of an array of `schema` at `path`, under a temporary name
    /// on the same file system. Only the root calls this; the servers get [`Pending::target`].
    ///
    /// For chunks, `path` is a Zarr group, made if it is not there, and the array is in it by its
    /// name; for row-major order it is the file, for parts the directory.
    ///
    /// # Errors
    /// [`Kind::Schema`] for a schema that does not fit together, or when something else stands at
    /// `path`; [`Kind::Missing`] without parent directory; [`Kind::ReadOnly`] and [`Kind::Full`];
    /// [`Kind::Busy`] when another job is writing the same. Nothing is touched then.
    pub fn create(path: &Path, schema: &ArraySchema) -> Result<Self> {
        let mut pending = Self::begin(path, schema, Keys::Nested)?;
        pending.make_metadata()?;
        Ok(pending)
    }

    /// Makes as much as servers need, and leaves the rest to [`Pending::settle`].
    ///
    /// # Errors
    /// As [`Pending::create`].
    pub fn begin(path: &Path, schema: &ArraySchema, keys: Keys) -> Result<Self> {
        schema.disk_schema(1)?;
        let path = resolve(path)?;
        match &schema.disk {
            Disk::Natural | Disk::Chunks { .. } => Self::begin_chunks(path, schema, keys, None),
            Disk::RowMajor { format } => Self::create_flat(path, schema, *format),
            Disk::Parts(..) => Self::begin_parts(path, schema, None),
        }
    }

    /// As [`Pending::begin`], where `template` says one path a server: the metadata are server 0's, the
    /// chunks are dealt out to `servers` of them.
    ///
    /// # Errors
    /// As [`Pending::create`]; [`Kind::Unsupported`] for what is one file.
    pub fn begin_spread(template: &Path, schema: &ArraySchema, servers: usize) -> Result<Self> {
        let template =
            std::path::absolute(template).map_err(|e| Error::io(&e, "looking for", template))?;
        let first = of_server(&template, 0);
        schema.disk_schema(1)?;
        if matches!(schema.disk, Disk::RowMajor { .. }) {
            let cause = "one file cannot be spread over servers: use Chunks, a Distribution, or natural chunking";
            return Err(Error::new(Kind::Unsupported, "writing", cause).at(&template));
        }
        let former = Stored::open(&first, Some(&schema.name)).ok();
        let former =
            former.and_then(|stored| Some(stored.target().spread()?.spread.version.clone()));
        let array = SpreadArray {
            keeps: former.into_iter().collect(),
            ..SpreadArray::new(&schema.name, Spread::new(&template, servers))
        };
        let path = resolve(&first)?;
        match &schema.disk {
            Disk::Parts(..) => Self::begin_parts(path, schema, Some(array)),
            _ => Self::begin_chunks(path, schema, Keys::Nested, Some(array)),
        }
    }

    fn begin_chunks(
        path: PathBuf,
        schema: &ArraySchema,
        keys: Keys,
        spread: Option<SpreadArray>,
    ) -> Result<Self> {
        let name = schema.name.clone();
        let mut metadata = zarr::array_json(schema)?;
        if keys == Keys::Flat {
            metadata["chunk_key_encoding"]["configuration"]["separator"] = ".".into();
        }
        if let Some(of) = &spread {
            of.spread.mark(&mut metadata)?;
        }
        let there = check_chunks(&path, &name)?;
        let (target, install) = if there {
            (
                path.join(&name),
                Install::Array {
                    group: path.clone(),
                    name: name.clone(),
                },
            )
        } else {
            (
                path.clone(),
                Install::Group {
                    group: path.clone(),
                    name: name.clone(),
                },
            )
        };
        let temporary = Temporary::create(&path, Some(&name), &target)?;
        let mut directory = temporary.data();
        let mut unwritten = Vec::new();
        make_directory(&directory)?;
        if !there {
            let file = directory.join("zarr.json");
            let text = json_text(&file, &zarr::group_json())?;
            unwritten.push((file, text));
            directory.push(&name);
            make_directory(&directory)?;
        }
        let file = directory.join("zarr.json");
        let form = ChunkForm::of_new(schema, &metadata, &file)?;
        let text = json_text(&file, &metadata)?;
        unwritten.push((file, text));
        let files = ZarrFiles {
            is_new: spread.is_none(),
            spread,
            ..ZarrFiles::new(directory, form)
        };
        Ok(Self {
            metadata: unwritten,
            ..Self::new(temporary, Target::of(Files::Zarr(files)), install)
        })
    }

    /// Makes what servers do not need.
    fn make_metadata(&mut self) -> Result<()> {
        let mut metadata = std::mem::take(&mut self.metadata).into_iter();
        metadata.try_for_each(|(path, text)| file::write(&path, &text))
    }

    /// Makes all that servers have not made, of which they have made all that they will. Done once; what came of it
    /// is said again.
    ///
    /// # Errors
    /// As [`Pending::create`].
    pub fn furnish(&mut self) -> Result<()> {
        if self.furnished.is_none() {
            let made = self.make_metadata().and_then(|()| self.make_rest());
            self.furnished = Some(made);
        }
        self.rest().map(drop)
    }

    /// Brings what servers have not made to stable storage, after [`Pending::furnish`], as well as the directories in
    /// which they have made files. They may still be syncing those. Done once; what came of it is said again.
    ///
    /// # Errors
    /// As [`Pending::create`].
    pub fn settle(&mut self) -> Result<()> {
        if self.settled.is_none() {
            let settled = self.furnish().and_then(|()| self.sync_made());
            self.settled = Some(settled);
        }
        self.settled.clone().unwrap_or(Ok(()))
    }

    /// The files that no server has made.
    fn rest(&self) -> Result<&[PathBuf]> {
        match &self.furnished {
            Some(Ok(rest)) => Ok(rest),
            Some(Err(error)) => Err(error.clone()),
            None => Ok(&[]),
        }
    }

    fn create_flat(path: PathBuf, schema: &ArraySchema, format: Format) -> Result<Self> {
        let raw = format == Format::Raw;
        check_file(&path, raw)?;
        let temporary = Temporary::create(&path, None, &path)?;
        let (element, order) = (schema.element, ByteOrder::NATIVE);
        let header = match format {
            Format::Raw => Vec::new(),
            Format::Npy => Header {
                shape: schema.shape.clone(),
                element,
                order,
                fortran: false,
            }
            .encode(),
        };
        let file = temporary.data();
        let header_bytes = header.len() as u64;
        make_file(
            &file,
            &header,
            header_bytes + schema.disk_schema(1)?.bytes(),
        )?;
        if raw {
            file::write(&temporary.beside(SIDECAR), &Sidecar::new(schema).text()?)?;
        }
        let files = Files::Flat {
            file,
            header_bytes,
            element,
            order,
        };
        Ok(Self::new(
            temporary,
            Target::of(files),
            Install::File { path, raw },
        ))
    }

    fn begin_parts(
        path: PathBuf,
        schema: &ArraySchema,
        spread: Option<SpreadArray>,
    ) -> Result<Self> {
        let Disk::Parts(dists, mesh) = &schema.disk else {
            unreachable!("the caller looked")
        };
        check_parts(&path, &schema.name)?;
        let temporary = Temporary::create(&path, None, &path)?;
        let directory = temporary.data();
        make_directory(&directory)?;
        let sidecar = Sidecar::new(schema).spread_as(spread.as_ref());
        let unwritten = (directory.join("schema.json"), sidecar.text()?);
        let (mesh, stem) = (part_mesh(dists, mesh), directory.join(&schema.name));
        let part = |(number, bytes)| (part_path(&stem, number as u64, &mesh), bytes);
        let all = match spread {
            None => part_bytes(schema, &mesh)?,
            Some(_) => Vec::new(), // each server makes its own
        };
        let install = Install::Parts {
            path,
            name: schema.name.clone(),
            files: all.into_iter().enumerate().map(part).collect(),
        };
        let files = PartFiles {
            stem,
            mesh,
            element: schema.element,
            order: ByteOrder::NATIVE,
            base: None,
            spread,
        };
        Ok(Self {
            metadata: vec![unwritten],
            ..Self::new(temporary, Target::of(Files::Parts(files)), install)
        })
    }

    /// What the servers write to.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Puts the array in its place, after every server has synced. When this returns, it is there
    /// for good; when it fails before the last rename, what was there before is.
    ///
    /// # Errors
    /// What the operating system says, or when something else has come to stand at the path.
    pub fn commit(mut self) -> Result<Committed> {
        self.settle()?;
        let data = self.temporary.data();
        match &self.install {
            Install::Group { group, name } => {
                if check_group(group, name)? {
                    // Another array made the group in the meantime.
                    self.install_array(&data.join(name), group, name)?;
                } else {
                    drop_consolidated(group.parent(), &self.temporary)?;
                    // Over an empty directory, if there is one; whatever is not empty stays.
                    change::rename(&data, group)
                        .map_err(|e| Error::io(&e, "renaming into place", group))?;
                    sync_parent(group)?;
                }
            }
            Install::Array { group, name } => self.install_array(&data, group, name)?,
            Install::File { path, raw } => self.install_file(&data, path, *raw)?,
            Install::Parts { path, name, .. } => {
                check_parts(path, name)?;
                self.temporary.install(&data, path)?;
                sync_parent(path)?;
            }
            Install::Replace { path } => {
                change::rename(&data, path)
                    .map_err(|e| Error::io(&e, "renaming into place", path))?;
                sync_parent(path)?;
            }
            Install::Directory { path } => {
                if let Some(base) = self.target.base() {
                    link_rest(base, &data)?;
                }
                self.temporary.install(&data, path)?;
                sync_parent(path)?;
            }
        }
        // The array is in its place: that old data could not be removed is no failure of the write.
        let _ = self.temporary.remove();
        Ok(Committed {
            _temporary: self.temporary,
        })
    }

    /// Removes everything that was written.
    ///
    /// # Errors
    /// What the operating system says. The next write to the same target tries again.
    pub fn abort(mut self) -> Result<()> {
        self.temporary.remove()
    }

    /// Makes the parts that no server has made.
    fn make_rest(&self) -> Result<Vec<PathBuf>> {
        match &self.install {
            Install::Parts { files, .. } => make_missing(files.iter().cloned()),
            _ => Ok(Vec::new()),
        }
    }

    /// Syncs what is made besides what servers make, and the directories in which they have made files.
    pub(super) fn sync_made(&self) -> Result<()> {
        let data = self.temporary.data();
        let mut made = vec![data.clone()];
        match &self.install {
            Install::Group { name, .. } => made = [node(&data), node(&data.join(name))].concat(),
            Install::Array { .. } => made = node(&data).to_vec(),
            Install::File { raw: true, .. } => made.push(self.temporary.beside(SIDECAR)),
            Install::Parts { .. } => made.push(data.join("schema.json")),
            Install::File { raw: false, .. }
            | Install::Replace { .. }
            | Install::Directory { .. } => {}
        }
        made.extend_from_slice(self.rest()?);
        file::sync_paths(&made)
    }

    fn install_array(&self, data: &Path, group: &Path, name: &str) -> Result<()> {
        if !check_group(group, name)? {
            let cause = "the group it was to be written to is gone";
            return Err(Error::new(Kind::Missing, "renaming into place", cause).at(group));
        }
        // Before the array, not after: a group without them is always right, and one with those of
        // another array is not.
        drop_consolidated(Some(group), &self.temporary)?;
        let target = group.join(name);
        self.temporary.install(data, &target)?;
        sync_parent(&target)
    }

    fn install_file(&self, data: &Path, path: &Path, raw: bool) -> Result<()> {
        check_file(path, raw)?;
        let into_place = |from: &Path, to: &Path| {
            change::rename(from, to).map_err(|e| Error::io(&e, "renaming into place", to))
        };
        let sidecar = sidecar::beside(path);
        let there = Sidecar::read(&sidecar).unwrap_or(None);
        let has_sidecar = there.is_some();
        let new = match raw {
            true => Sidecar::read(&self.temporary.beside(SIDECAR))?,
            false => has_sidecar.then(Sidecar::of_another),
        };
        // Before the file, not after: a file that came first would, after a crash, be one of which nobody
        // knows what it holds, or be taken for what the old one held.
        if let Some(new) = new {
            let before = match path.exists() {
                // Until the last rename both schemas are there.
                true => {
                    let former = there.map_or_else(Sidecar::of_another, |s| s.of_file(path));
                    new.replacing(former, path)?
                }
                false => new,
            };
            let both = self.temporary.beside("both");
            file::write_synced(&both, &before.text()?)?;
            into_place(&both, &sidecar)?;
            sync_parent(path)?;
        }
        into_place(data, path)?;
        if raw {
            into_place(&self.temporary.beside(SIDECAR), &sidecar)?;
        } else if has_sidecar {
            change::remove_file(&sidecar)
                .map_err(|e| Error::io(&e, "removing the old schema", &sidecar))?;
        }
        sync_parent(path)
    }
}

/// The lengths of all parts, those that hold nothing among them.
pub(super) fn part_bytes(schema: &ArraySchema, mesh: &[u64]) -> Result<Vec<u64>> {
    let disk = schema.disk_schema(1)?;
    let parts: u64 = mesh.iter().product();
    let length = |number: u64| {
        let mut rest = number;
        let mut bytes = schema.element.width();
        for d in (0..mesh.len()).rev() {
            let start = (rest % mesh[d]).saturating_mul(disk.chunk()[d]);
            rest /= mesh[d];
            bytes *= schema.shape[d].saturating_sub(start).min(disk.chunk()[d]);
        }
        bytes
    };
    Ok((0..parts).map(length).collect())
}

pub(super) fn make_directory(path: &Path) -> Result<()> {
    change::create_dir(path).map_err(|e| Error::io(&e, "making the directory", path))
}

/// Makes those of the files, of so many zeros, that are not there. Gives them, which are yet to be synced.
pub(super) fn make_missing(
    files: impl IntoIterator<Item = (PathBuf, u64)>,
) -> Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    for (path, bytes) in files.into_iter().filter(|(path, _)| !path.exists()) {
        make_file(&path, &[], bytes)?;
        made.push(path);
    }
    Ok(made)
}

/// A file of `bytes` bytes, of which the first are `header` and the others a hole. It is yet to be synced.
fn make_file(path: &Path, header: &[u8], bytes: u64) -> Result<()> {
    let make = || {
        let file = change::create_new(path)?;
        change::set_len(&file, bytes)?;
        change::write_all_at(&file, header, 0, path)
    };
    make().map_err(|e| Error::io(&e, "making", path))
}

/// Writes metadata, which are yet to be synced.
pub(super) fn write_json(path: &Path, json: &Value) -> Result<()> {
    file::write(path, &json_text(path, json)?)
}

/// Metadata as they are written to `path`.
fn json_text(path: &Path, json: &Value) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(json)
        .map_err(|e| Error::new(Kind::Schema, "writing the metadata", e).at(path))?;
    text.push(b'\n');
    Ok(text)
}

/// The directory of a group or an array, and its metadata: what is to be synced of it.
pub(super) fn node(directory: &Path) -> [PathBuf; 2] {
    [directory.to_path_buf(), directory.join("zarr.json")]
}

pub(super) fn sync_parent(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), file::sync_path)
}

/// Takes consolidated metadata, which will no longer be true, out of a group and those it is in.
fn drop_consolidated(group: Option<&Path>, temporary: &Temporary) -> Result<()> {
    for group in group.iter().flat_map(|group| group.ancestors()) {
        let file = group.join("zarr.json");
        let json = read_if_there(&file).unwrap_or(None);
        let json = json.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        let Some(Value::Object(mut json)) = json else {
            return Ok(());
        };
        if json.remove("consolidated_metadata").is_some() {
            let new = temporary.beside("group");
            write_json(&new, &Value::Object(json))?;
            file::sync_path(&new)?;
            change::rename(&new, &file).map_err(|e| Error::io(&e, "renaming into place", &file))?;
            file::sync_path(group)?;
        }
    }
    Ok(())
}
