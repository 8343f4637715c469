//! What stands on disk: recognised, described, and ready to be read.
//!
//! | found at the path | is |
//! |---|---|
//! | a directory with `zarr.json` or `.zarray` | a Zarr array, or a group and the array asked for in it |
//! | a directory with `schema.json` of ours | parts |
//! | a file beside whose name ends in `.json` a schema of ours stands | raw |
//! | a file that begins as `.npy` files do | NumPy's |

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use penstock_layout::{DiskSchema, Order, exact};

use super::witness::Witness;
use crate::dtype::{ByteOrder, ElementType};
use crate::formats::parts::part_path;
use crate::formats::sidecar::{self, Sidecar};
use crate::formats::spread::{SPREAD, Spread, SpreadArray, is_template, of_server};
use crate::formats::zarr::{self, Metadata, Node};
use crate::formats::{self, Target, flat, parts};
use crate::fs::files::{self, damaged};
use crate::npy::{self, Header, HeaderError};
use crate::schema::{ArraySchema, Format, Storage, part_bytes, part_mesh};

/// How often to look at a file that is replaced while it is looked at.
const OPEN_TRIES_MAX: usize = 10;

/// A stored array. Only the root opens it; the servers get [`StoredArray::target`].
#[derive(Debug)]
pub struct StoredArray {
    schema: ArraySchema,
    target: Target,
    form: Form,
}

/// How it is cut into blocks.
#[derive(Debug)]
enum Form {
    /// As its metadata say.
    Zarr(Box<Metadata>),
    /// As one object of this order.
    Flat(Order),
    /// As its schema says.
    Parts,
}

/// What is known besides of arrays in a group: of one at a path and of a name there its length in
/// the first dimension, where its own metadata may have stayed behind.
pub(crate) type Lengths<'a> = &'a dyn Fn(&Path, &str) -> Result<Option<u64>>;

impl StoredArray {
    /// Opens what is at `path`: of a group the array `name`, or the only one there is.
    ///
    /// # Errors
    /// [`Kind::Missing`] when nothing is there or no array of that name, [`Kind::Schema`] when
    /// there are several and no name says which, [`Kind::Damaged`] when it cannot be understood,
    /// [`Kind::Unsupported`] when it can and Penstock does not read it.
    pub fn open(path: &Path, name: Option<&str>) -> Result<Self> {
        Self::open_with(path, name, &|_, _| Ok(None))
    }

    /// As [`StoredArray::open`], where arrays of groups may have other lengths than their metadata
    /// say.
    ///
    /// # Errors
    /// As [`StoredArray::open`], and those of `lengths`.
    pub(crate) fn open_with(path: &Path, name: Option<&str>, lengths: Lengths<'_>) -> Result<Self> {
        let path = absolute(path)?;
        if is_template(&path) {
            let mut stored = Self::open_with(&of_server(&path, 0), name, lengths)?;
            stored.target.move_to(&path);
            return Ok(stored);
        }
        let found = std::fs::metadata(&path).map_err(|e| Error::io(&e, "opening", &path))?;
        if found.is_dir() {
            return open_directory(&path, name, lengths);
        }
        // Between a look at a raw file and one at the schema beside it, both may be replaced.
        for _ in 1..OPEN_TRIES_MAX {
            let witness = Witness::of_all([path.clone(), sidecar::beside(&path)]);
            match open_file(&path, name) {
                Err(_) if witness.check().is_err() => {}
                opened => return opened,
            }
        }
        open_file(&path, name)
    }

    /// Whether what is at `path` says itself what it holds: a directory, or a `.npy` file.
    pub fn says_what_it_is(path: &Path) -> bool {
        is_template(path) || path.is_dir() || begins_as_npy(path).unwrap_or(false)
    }

    /// Opens a raw file of which the caller knows what it holds. Without a schema beside it, it is
    /// in the machine's byte order.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the file has not as many bytes as such an array; [`Kind::Schema`]
    /// when it has, and the schema beside it says that it holds something else.
    pub fn open_raw(path: &Path, shape: &[u64], element: ElementType) -> Result<Self> {
        let path = absolute(path)?;
        let schema = ArraySchema::new(&stem(&path), shape, element, raw());
        let stored = Self::flat_file(
            path.clone(),
            schema,
            (0, ByteOrder::NATIVE, Order::RowMajor),
            true,
        )?;
        let sidecar = sidecar::beside(&path);
        let Ok(Some(beside)) = Sidecar::read(&sidecar) else {
            return Ok(stored);
        };
        let beside = beside.of_file(&path);
        let there = &beside.array;
        if there.shape == shape && there.element == element {
            let flat = (0, beside.byte_order, Order::RowMajor);
            return Self::flat_file(path, beside.array, flat, true);
        }
        let bytes = |schema: &ArraySchema| schema.disk_schema(1).map(|disk| disk.bytes()).ok();
        if bytes(there) != bytes(&stored.schema) {
            // It is of another file that stood here.
            return Ok(stored);
        }
        let cause = format!(
            "the schema beside it, {}, says {} of shape {:?}, the call {element} of shape {shape:?}",
            sidecar.display(),
            there.element,
            there.shape
        );
        Err(Error::new(Kind::Schema, "opening", cause).at(&path))
    }

    /// The array as it is stored. Where a codec has no word of ours, it is Zarr's JSON.
    pub fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    /// How it is cut into blocks for reading, of at most `block_bytes_max` where the store leaves
    /// that open.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when what is stored does not fit together.
    pub fn disk_schema(&self, block_bytes_max: u64) -> Result<DiskSchema> {
        match &self.form {
            Form::Zarr(metadata) => metadata.disk_schema(block_bytes_max),
            Form::Parts => self.schema.disk_schema(block_bytes_max),
            Form::Flat(order) => {
                let (shape, width) = (&self.schema.shape, self.schema.element.width());
                DiskSchema::flat(shape, width, *order, block_bytes_max)
                    .map_err(|e| Error::new(Kind::Damaged, "reading", e))
            }
        }
    }

    /// What the servers read from.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// A flat file of this schema, once it is seen to be long enough, or exactly as long.
    fn flat_file(
        path: PathBuf,
        schema: ArraySchema,
        (header_bytes, order, layout): (u64, ByteOrder, Order),
        exactly: bool,
    ) -> Result<Self> {
        let (shape, width) = (&schema.shape, schema.element.width());
        let bytes = DiskSchema::flat(shape, width, layout, 1)
            .map_err(|e| damaged(&path, e))?
            .bytes();
        let expected = header_bytes + bytes;
        let meta = std::fs::metadata(&path).map_err(|e| Error::io(&e, "opening", &path))?;
        let length = meta.len();
        if !meta.is_file() || length < expected || (exactly && length != expected) {
            let element = schema.element;
            let cause =
                format!("it has {length} bytes; {element} of shape {shape:?} takes {expected}");
            return Err(damaged(&path, cause));
        }
        let location = flat::Location {
            file: path,
            header_bytes,
            element: schema.element,
            order,
        };
        Ok(Self {
            schema,
            target: Target::new(formats::Form::Flat(location)),
            form: Form::Flat(layout),
        })
    }
}

fn raw() -> Storage {
    Storage::RowMajor {
        format: Format::Raw,
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).map_err(|e| Error::io(&e, "looking for", path))?;
    match path.to_str() {
        Some(_) => Ok(path),
        None => {
            let cause = "the path is not valid UTF-8";
            Err(Error::new(Kind::Unsupported, "opening", cause).at(&path))
        }
    }
}

/// The name of an array that has none: that of its file, without the ending.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or(path.as_os_str());
    stem.to_string_lossy().into_owned()
}

fn open_file(path: &Path, name: Option<&str>) -> Result<StoredArray> {
    let sidecar_path = sidecar::beside(path);
    let sidecar = Sidecar::read(&sidecar_path).map(|found| found.map(|s| s.of_file(path)));
    if let Ok(Some(sidecar)) = &sidecar {
        let schema = sidecar.array.clone();
        let flat = (0, sidecar.byte_order, Order::RowMajor);
        let is_raw = schema.disk == raw();
        let stored = StoredArray::flat_file(path.to_path_buf(), schema, flat, true);
        // A sidecar that does not fit may be left from a raw file since replaced by a .npy file.
        if is_raw && (stored.is_ok() || !begins_as_npy(path)?) {
            let stored = stored?;
            return match name {
                Some(name) if name != stored.schema.name => {
                    Err(no_such_array(path, name, &[stored.schema.name]))
                }
                _ => Ok(stored),
            };
        }
    }
    if begins_as_npy(path)? {
        return open_npy(path, name);
    }
    sidecar?;
    let cause = format!(
        "it is neither Zarr nor .npy, and no schema is beside it at {}: a raw file can be opened \
         by one who gives its shape and dtype",
        sidecar_path.display()
    );
    Err(Error::new(Kind::Unsupported, "opening", cause).at(path))
}

/// The first bytes of a file, as many as there are.
fn start_of(path: &Path) -> Result<(File, Vec<u8>)> {
    let file = File::open(path).map_err(|e| Error::io(&e, "opening", path))?;
    let mut start = vec![0; 12];
    let length = files::length(&file, path)?.min(start.len() as u64);
    start.truncate(exact::<usize>(length));
    files::read_at(&file, &mut start, 0, path)?;
    Ok((file, start))
}

fn begins_as_npy(path: &Path) -> Result<bool> {
    Ok(start_of(path)?.1.starts_with(npy::MAGIC))
}

fn open_npy(path: &Path, name: Option<&str>) -> Result<StoredArray> {
    let wrong = |e: HeaderError| match e {
        HeaderError::Damaged(cause) => damaged(path, cause),
        HeaderError::Unsupported(cause) => Error::new(Kind::Unsupported, "reading", cause).at(path),
    };
    let (file, start) = start_of(path)?;
    let range = Header::text_range(&start).map_err(wrong)?;
    let mut text = vec![0; range.len()];
    file.read_exact_at(&mut text, range.start as u64)
        .map_err(|_| damaged(path, "the file is cut short within its header"))?;
    let header = Header::parse(&text).map_err(wrong)?;
    let name = name.map_or_else(|| stem(path), str::to_string);
    let disk = Storage::RowMajor {
        format: Format::Npy,
    };
    let schema = ArraySchema::new(&name, &header.shape, header.element, disk);
    let layout = if header.fortran {
        Order::ColumnMajor
    } else {
        Order::RowMajor
    };
    StoredArray::flat_file(
        path.to_path_buf(),
        schema,
        (range.end as u64, header.order, layout),
        false,
    )
}

fn open_directory(path: &Path, name: Option<&str>, lengths: Lengths<'_>) -> Result<StoredArray> {
    if let Some(node) = Node::read(path)? {
        if node.kind() == zarr::Kind::Group {
            return open_in_group(&node, name, lengths);
        }
        let own = path.file_name().unwrap_or_default().to_string_lossy();
        if name.is_some_and(|name| name != own) {
            return Err(no_such_array(
                path,
                name.unwrap_or_default(),
                &[own.into_owned()],
            ));
        }
        let length = path
            .parent()
            .map(|group| lengths(group, &own))
            .transpose()?;
        return open_array(&node, &own, length.flatten());
    }
    if let Some(sidecar) = Sidecar::read(&path.join("schema.json"))? {
        let own = sidecar.array.name.clone();
        return match name {
            Some(name) if name != own => Err(no_such_array(path, name, &[own])),
            _ => open_parts(path, sidecar),
        };
    }
    let cause = "the directory holds neither Zarr's metadata nor a schema of Penstock's";
    Err(Error::new(Kind::Unsupported, "opening", cause).at(path))
}

fn no_such_array(path: &Path, name: &str, there: &[String]) -> Error {
    let there = if there.is_empty() {
        "none".to_string()
    } else {
        there.join(", ")
    };
    let cause = format!("there is no array {name:?}; arrays there: {there}");
    Error::new(Kind::Missing, "opening", cause).at(path)
}

fn open_in_group(group: &Node, name: Option<&str>, lengths: Lengths<'_>) -> Result<StoredArray> {
    let path = group.directory();
    if let Some(name) = name {
        return match Node::read(&path.join(name))? {
            Some(node) if node.kind() == zarr::Kind::Array => {
                open_array(&node, name, lengths(path, name)?)
            }
            _ => Err(no_such_array(path, name, &arrays_in(group)?)),
        };
    }
    let arrays = arrays_in(group)?;
    match arrays.as_slice() {
        [only] => open_in_group(group, Some(only), lengths),
        [] => {
            let cause = "the group holds no array";
            Err(Error::new(Kind::Missing, "opening", cause).at(path))
        }
        several => {
            let cause = format!(
                "the group holds several arrays; name one of {}",
                several.join(", ")
            );
            Err(Error::new(Kind::Schema, "opening", cause).at(path))
        }
    }
}

/// The names of the arrays of a group.
fn arrays_in(group: &Node) -> Result<Vec<String>> {
    let children = group.children()?.into_iter();
    let is_array =
        |node: &Result<Node>| !matches!(node, Ok(node) if node.kind() == zarr::Kind::Group);
    let arrays = children.filter(|(_, node)| is_array(node));
    Ok(arrays.map(|(name, _)| name).collect())
}

/// The array of a node, of this length in the first dimension if its metadata may say another.
fn open_array(node: &Node, name: &str, length: Option<u64>) -> Result<StoredArray> {
    let file = node.file();
    let mut json = node.json().clone();
    if let Some(length) = length {
        json["shape"][0] = length.into();
    }
    let metadata = Metadata::parse(json, file)?;
    let mut schema = metadata.schema(name, node.attributes()?);
    // What does not fit together is found now, by the root, not later by every server.
    metadata.disk_schema(1).map_err(|e| e.at(file))?;
    metadata.check().map_err(|e| e.at(file))?;
    let spread = Spread::of_mark(schema.attributes.remove(SPREAD), file)?;
    let location = zarr::Location {
        spread: spread.map(|spread| SpreadArray::new(name, spread)),
        ..zarr::Location::new(node.directory().to_path_buf(), metadata.chunk_form())
    };
    Ok(StoredArray {
        schema,
        target: Target::new(formats::Form::Zarr(location)),
        form: Form::Zarr(Box::new(metadata)),
    })
}

fn open_parts(path: &Path, sidecar: Sidecar) -> Result<StoredArray> {
    let (schema, spread) = (sidecar.array, sidecar.spread);
    let schema_file = path.join("schema.json");
    let Storage::Parts(dists, mesh) = &schema.disk else {
        return Err(damaged(&schema_file, "it does not describe parts"));
    };
    let (mesh, stem) = (part_mesh(dists, mesh), path.join(&schema.name));
    let bytes = match &spread {
        None => part_bytes(&schema, &mesh)?,
        Some(_) => Vec::new(), // whoever opens this may not reach them
    };
    for (number, bytes) in bytes.into_iter().enumerate() {
        let part = part_path(&stem, number as u64, &mesh);
        let length = std::fs::metadata(&part).map(|meta| meta.len());
        match length {
            Ok(length) if length == bytes => {}
            Err(_) if bytes == 0 => {}
            Ok(length) => {
                let cause = format!("the part has {length} bytes where {bytes} belong");
                return Err(damaged(&part, cause));
            }
            Err(error) => return Err(damaged(&part, format!("a part is missing: {error}"))),
        }
    }
    let (element, order) = (schema.element, sidecar.byte_order);
    let location = parts::Location {
        stem,
        mesh,
        element,
        order,
        base: None,
        spread: spread.map(|spread| SpreadArray::new(&schema.name, spread)),
    };
    Ok(StoredArray {
        schema,
        target: Target::new(formats::Form::Parts(location)),
        form: Form::Parts,
    })
}
