//! A write of an array under way: the root's part before and after the servers write.
//!
//! | stored as | the temporary's `data` is | target |
//! |---|---|---|
//! | chunks | the array | `path/name`, or `path` for an array that is in no group |
//! | row-major | the file | `path` |
//! | parts | the directory of parts | `path` |
//! | chunks in a bucket | missing: see `objects` | `path/name` |
//! | chunks in a repository | missing: see `drafted` | `path/name` |
//!
//! A part of an array is changed in another way: see `change`.

use std::path::{Path, PathBuf};

use penstock_bucket::{is_in_repository, is_url};
use penstock_engine::{Error, Kind, Result};

use super::checks::{check_file, check_group, check_parts, resolve};
use super::dataset::FilePlace;
use super::drafted;
use super::objects::ObjectsPlace;
use super::place::{Place, SIDECAR, Syncing};
use crate::dtype::{ByteOrder, StoredElement};
use crate::formats::parts::part_path;
use crate::formats::sidecar::Sidecar;
use crate::formats::spread::{Spread, SpreadArray, of_server};
use crate::formats::zarr::{self, ChunkForm};
use crate::formats::{Form, Target, flat, parts};
use crate::fs::files::{self, make_directory, make_file};
use crate::fs::temporary::Temporary;
use crate::npy::Header;
use crate::read::StoredArray;
use crate::schema::{ArraySchema, Format, Storage, part_bytes, part_mesh};

/// The names of the chunks of a new array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// `c/0/1`: a directory for each index but the last.
    Nested,
    /// `c.0.1`: all in one directory, if chunks are few. Stable storage then needs a sync of one
    /// directory, and no others are made.
    Flat,
}

/// A write under way. Dropped without [`Pending::commit`], it leaves nothing behind.
pub struct Pending {
    target: Target,
    way: Way,
}

/// The way in which an array comes to its place.
enum Way {
    /// By a rename, from a temporary.
    Files { temporary: Temporary, place: Place },
    /// By a put of its metadata, in a bucket.
    Objects(Box<ObjectsPlace>),
    /// By a commit of the draft of a repository that it is in, as all else that the call writes.
    Draft,
}

/// The leftover of a write whose array is in its place: the lock of its removed temporary. The file
/// system takes a while to release the lock, and nobody need wait for it.
pub struct Leftover {
    _temporary: Option<Temporary>,
}

impl Pending {
    pub(super) fn new(temporary: Temporary, target: Target, place: Place) -> Self {
        let way = Way::Files { temporary, place };
        Self { target, way }
    }

    /// Makes everything but the elements of an array of `schema` at `path`, under a temporary name
    /// on the same file system. Only the root calls this; the servers get [`Pending::target`].
    ///
    /// For chunks, `path` is a Zarr group, made if it is missing, and the array is in it by its
    /// name; for row-major order `path` is the file, for parts the directory.
    ///
    /// # Errors
    /// [`Kind::Schema`] for a schema that does not fit together, or when something else is at
    /// `path`; [`Kind::Missing`] without parent directory; [`Kind::ReadOnly`] and [`Kind::Full`];
    /// [`Kind::Busy`] when another job is writing the same array. Nothing is touched then.
    pub fn create(path: &Path, schema: &ArraySchema, keys: Keys) -> Result<Self> {
        schema.disk_schema(1)?;
        if is_url(path) && schema.disk.is_zarr() {
            return match is_in_repository(path) {
                true => Self::create_in_draft(path, schema),
                false => Self::create_objects(path, schema),
            };
        }
        Self::begin(place_of(path, schema)?, schema, keys, None)
    }

    /// Begins a write of an array in chunks to a draft of a repository.
    fn create_in_draft(group: &Path, schema: &ArraySchema) -> Result<Self> {
        let (array, metadata) = drafted::create(group, schema)?;
        Ok(Self::in_draft(chunks_in(array, schema, &metadata, None)?))
    }

    /// Begins a write of an array in chunks to a bucket.
    fn create_objects(group: &Path, schema: &ArraySchema) -> Result<Self> {
        let metadata = zarr::array_json(schema)?;
        let place = ObjectsPlace::new(group, &schema.name, metadata)?;
        let form = chunks_in(place.url().to_path_buf(), schema, place.metadata(), None)?;
        Ok(Self::of_objects(form, place))
    }

    /// A write to a draft of a repository, which is there when the draft is committed.
    pub(super) fn in_draft(form: Form) -> Self {
        Self {
            target: Target::new(form),
            way: Way::Draft,
        }
    }

    pub(super) fn of_objects(form: Form, place: ObjectsPlace) -> Self {
        Self {
            target: Target::new(form),
            way: Way::Objects(Box::new(place)),
        }
    }

    /// Makes an array that is spread over servers, otherwise as [`Pending::create`]. `template`
    /// stands for one path a server: the metadata are on server 0, and the chunks are dealt out to
    /// `servers` servers.
    ///
    /// # Errors
    /// As [`Pending::create`]; [`Kind::Unsupported`] for row-major files.
    pub fn create_spread(template: &Path, schema: &ArraySchema, servers: usize) -> Result<Self> {
        let template =
            std::path::absolute(template).map_err(|e| Error::io(&e, "looking for", template))?;
        let first = of_server(&template, 0);
        schema.disk_schema(1)?;
        if matches!(schema.disk, Storage::RowMajor { .. } | Storage::Hdf5 { .. }) {
            let cause = "one file cannot be spread over servers: use Chunks, a Distribution, or natural chunking";
            return Err(Error::new(Kind::Unsupported, "writing", cause).at(&template));
        }
        let former = StoredArray::open(&first, Some(&schema.name)).ok();
        let former =
            former.and_then(|stored| Some(stored.target().spread()?.spread.version.clone()));
        let array = SpreadArray {
            keeps: former.into_iter().collect(),
            ..SpreadArray::new(&schema.name, Spread::new(&template, servers))
        };
        let path = resolve(&first)?;
        let place = match &schema.disk {
            Storage::Parts(dists, mesh) => parts_at(path, schema, &part_mesh(dists, mesh), false)?,
            _ => in_group(path, &schema.name)?,
        };
        Self::begin(place, schema, Keys::Nested, Some(array))
    }

    fn begin(
        place: Place,
        schema: &ArraySchema,
        keys: Keys,
        spread: Option<SpreadArray>,
    ) -> Result<Self> {
        let temporary = place.temporary()?;
        let form = match &place {
            Place::InFile(place) => place.lay_out(&temporary, false)?.remove(0),
            _ => lay_out(&temporary, schema, keys, spread, false)?,
        };
        Ok(Self::new(temporary, Target::new(form), place))
    }

    /// The target that servers write.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Puts the array in its place, after every server has synced, if they do. When this returns,
    /// the array is there; if `is_synced`, for good. When it fails before the last rename, the
    /// former array is.
    ///
    /// # Errors
    /// The error of the operating system, or of another file that has appeared at the path.
    pub fn commit(self, is_synced: bool) -> Result<Leftover> {
        let (mut temporary, place) = match self.way {
            Way::Files { temporary, place } => (temporary, place),
            Way::Objects(place) => {
                place.install()?;
                return Ok(Leftover { _temporary: None });
            }
            Way::Draft => return Ok(Leftover { _temporary: None }),
        };
        let mut made = place.make_rest(&temporary)?;
        if is_synced {
            made.extend(laid_out(&temporary, &place));
            files::sync_paths(&made)?;
        }
        place.install(&temporary, Syncing::of(is_synced))?;
        // The array is in its place: old data that remain are no failure of the write.
        let _ = temporary.remove();
        let _temporary = Some(temporary);
        Ok(Leftover { _temporary })
    }

    /// Removes everything that was written.
    ///
    /// # Errors
    /// The error of the operating system. The next write to the same target tries again.
    pub fn abort(self) -> Result<()> {
        match self.way {
            Way::Files { mut temporary, .. } => temporary.remove(),
            Way::Objects(place) => place.abort(),
            Way::Draft => Ok(()),
        }
    }
}

/// The files that the root has made for the servers, and that are yet to be synced.
pub(super) fn laid_out(temporary: &Temporary, place: &Place) -> Vec<PathBuf> {
    if matches!(place, Place::InFile(_) | Place::PartInFile(_)) {
        return Vec::new(); // its place syncs what it makes
    }
    let data = temporary.data();
    let metadata = [
        data.join("zarr.json"),
        data.join("schema.json"),
        temporary.beside(SIDECAR),
    ];
    let there = metadata.into_iter().filter(|path| path.exists());
    std::iter::once(data.clone()).chain(there).collect()
}

/// The place of an array that is written to one place.
pub(super) fn place_of(path: &Path, schema: &ArraySchema) -> Result<Place> {
    match &schema.disk {
        Storage::Natural | Storage::Shares { .. } | Storage::Chunks { .. } => {
            in_group(resolve(path)?, &schema.name)
        }
        Storage::RowMajor { format } => file_at(resolve(path)?, *format),
        Storage::Parts(dists, mesh) => {
            parts_at(resolve(path)?, schema, &part_mesh(dists, mesh), true)
        }
        Storage::Hdf5 { .. } => Ok(Place::InFile(Box::new(FilePlace::new(path, schema)?))),
    }
}

/// The place of an array `name` in the group at `path`.
pub(super) fn in_group(group: PathBuf, name: &str) -> Result<Place> {
    check_group(&group, name)?;
    let name = name.to_string();
    Ok(Place::InGroup { group, name })
}

/// The place of a row-major file.
pub(super) fn file_at(path: PathBuf, format: Format) -> Result<Place> {
    let is_raw = format == Format::Raw;
    check_file(&path, is_raw)?;
    Ok(Place::File { path, is_raw })
}

/// The place of parts. With `all`, missing parts are made at the end; otherwise each server makes
/// its own.
pub(super) fn parts_at(
    path: PathBuf,
    schema: &ArraySchema,
    mesh: &[u64],
    all: bool,
) -> Result<Place> {
    check_parts(&path, &schema.name)?;
    let bytes = match all {
        true => part_bytes(schema, mesh)?,
        false => Vec::new(), // each server makes its own
    };
    let name = |number| part_path(Path::new(&schema.name), number, mesh);
    let files = (0..)
        .zip(bytes)
        .map(|(number, bytes)| (name(number), bytes));
    Ok(Place::Parts {
        path,
        name: schema.name.clone(),
        files: files.collect(),
    })
}

/// Makes everything of an array but its elements in a temporary, unless `is_there`, and gives the
/// form that servers open. The array is no dataset of a file.
pub(super) fn lay_out(
    temporary: &Temporary,
    schema: &ArraySchema,
    keys: Keys,
    spread: Option<SpreadArray>,
    is_there: bool,
) -> Result<Form> {
    let data = temporary.data();
    match &schema.disk {
        Storage::Natural | Storage::Shares { .. } | Storage::Chunks { .. } => {
            let metadata = chunks_json(schema, keys, spread.as_ref())?;
            if !is_there {
                make_directory(&data)?;
                files::write_json(&data.join("zarr.json"), &metadata)?;
            }
            chunks_in(data, schema, &metadata, spread)
        }
        Storage::RowMajor { format } => {
            let header = header_of(schema, *format);
            let header_bytes = header.len() as u64;
            if !is_there {
                make_file(
                    &data,
                    &header,
                    header_bytes + schema.disk_schema(1)?.bytes(),
                )?;
            }
            if !is_there && *format == Format::Raw {
                let text = Sidecar::new(schema).text()?;
                files::write(&temporary.beside(SIDECAR), &text)?;
            }
            Ok(Form::Flat(flat::Location {
                file: data,
                header_bytes,
                element: StoredElement::of(&schema.element, ByteOrder::NATIVE),
            }))
        }
        Storage::Hdf5 { .. } => {
            let cause = "a dataset of a file is laid out by its place";
            Err(Error::new(Kind::Unsupported, "writing", cause).at(&data))
        }
        Storage::Parts(dists, mesh) => {
            if !is_there {
                make_directory(&data)?;
                let sidecar = Sidecar::new(schema).spread_as(spread.as_ref());
                files::write(&data.join("schema.json"), &sidecar.text()?)?;
            }
            Ok(Form::Parts(parts::Location {
                stem: data.join(&schema.name),
                mesh: part_mesh(dists, mesh),
                element: StoredElement::of(&schema.element, ByteOrder::NATIVE),
                base: None,
                spread,
            }))
        }
    }
}

/// The metadata of an array in chunks.
fn chunks_json(
    schema: &ArraySchema,
    keys: Keys,
    spread: Option<&SpreadArray>,
) -> Result<serde_json::Value> {
    let mut metadata = zarr::array_json(schema)?;
    if keys == Keys::Flat {
        metadata["chunk_key_encoding"]["configuration"]["separator"] = ".".into();
    }
    if let Some(of) = spread {
        of.spread.mark(&mut metadata)?;
    }
    Ok(metadata)
}

/// The form of an array in chunks, with these metadata, in its directory.
pub(super) fn chunks_in(
    directory: PathBuf,
    schema: &ArraySchema,
    metadata: &serde_json::Value,
    spread: Option<SpreadArray>,
) -> Result<Form> {
    let form = ChunkForm::of_new(schema, metadata, &directory.join("zarr.json"))?;
    Ok(Form::Zarr(zarr::Location {
        spread,
        ..zarr::Location::new(directory, form)
    }))
}

fn header_of(schema: &ArraySchema, format: Format) -> Vec<u8> {
    match format {
        Format::Raw => Vec::new(),
        Format::Npy => Header {
            shape: schema.shape.clone(),
            element: StoredElement::of(&schema.element, ByteOrder::NATIVE),
            fortran: false,
        }
        .encode(),
    }
}
