//! Recognises a stored array, describes it and opens it to be read.
//!
//! | found at the path | form |
//! |---|---|
//! | a directory, or a place in a bucket, with `zarr.json` or `.zarray` | a Zarr array, or a group and the array of the given name in it |
//! | a directory with Penstock's `schema.json` | parts |
//! | a file with a sidecar: a schema of Penstock in the file of the same name and `.json` | raw |
//! | a file with the first bytes of `.npy` files | NumPy's |
//! | a file or directory with references | the Zarr arrays there |

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use penstock_bucket::is_url;
use penstock_engine::{Error, Kind, Result};
use penstock_layout::{DiskSchema, Order, exact};

use super::witness::Witness;
use crate::dtype::{ByteOrder, ElementType, StoredElement};
use crate::formats::hdf5;
use crate::formats::parts::part_path;
use crate::formats::sidecar::{self, Sidecar};
use crate::formats::spread::{SPREAD, Spread, SpreadArray, is_template, of_server};
use crate::formats::zarr::{self, Metadata, Node};
use crate::formats::{self, Target, flat, parts};
use crate::fs::files::{self, damaged};
use crate::npy::{self, Header, HeaderError};
use crate::schema::{ArraySchema, Format, Storage, part_bytes, part_mesh};

/// The most tries to open a file that is replaced at the same time.
const OPEN_TRIES_MAX: usize = 10;

/// The bytes of a block of an object in a bucket: a request waits long for its first byte.
const OBJECT_BYTES_MIN: u64 = 8 << 20;

/// A stored array. Only the root opens it; the servers get [`StoredArray::target`].
#[derive(Debug)]
pub struct StoredArray {
    schema: ArraySchema,
    target: Target,
    form: Form,
}

/// The source of an array's disk schema.
#[derive(Debug)]
enum Form {
    /// The metadata of a Zarr array.
    Zarr(Box<Metadata>),
    /// One object in this order.
    Flat(Order),
    /// The schema of the array says it.
    Schema,
}

/// The lengths of arrays in groups: for a group's path and an array's name, the extent of the first
/// dimension, if the array's own metadata may have stayed behind.
pub(crate) type Lengths<'a> = &'a dyn Fn(&Path, &str) -> Result<Option<u64>>;

impl StoredArray {
    /// Opens the array at `path`: of a group the array `name`, or its only array.
    ///
    /// # Errors
    /// [`Kind::Missing`] when there is nothing, or no array of that name, [`Kind::Schema`] when
    /// there are several arrays and no name, [`Kind::Damaged`] when the array cannot be understood,
    /// [`Kind::Unsupported`] when Penstock does not read its form.
    pub fn open(path: &Path, name: Option<&str>) -> Result<Self> {
        Self::open_with(path, name, &|_, _| Ok(None))
    }

    /// Opens an array as [`StoredArray::open`] does, where `lengths` may overrule the length in an
    /// array's metadata.
    ///
    /// # Errors
    /// As [`StoredArray::open`], and the errors of `lengths`.
    pub(crate) fn open_with(path: &Path, name: Option<&str>, lengths: Lengths<'_>) -> Result<Self> {
        if is_url(path) {
            return open_directory(path, name, lengths);
        }
        let path = absolute(path)?;
        if let Some((file, dataset)) = hdf5::name::split(&path) {
            if !hdf5::describe::is_hdf5_file(&file)
                && let Some(node) = Node::find(&path)?
            {
                return open_node(&node, name, lengths);
            }
            return open_dataset(&file, &dataset, name);
        }
        if is_template(&path) {
            let mut stored = Self::open_with(&of_server(&path, 0), name, lengths)?;
            stored.target.move_to(&path);
            return Ok(stored);
        }
        let found = match std::fs::metadata(&path) {
            Ok(found) => found,
            Err(error) => {
                // The path of an array in references is none of the file system.
                let node = Node::find(&path)?;
                let node = node.ok_or_else(|| Error::io(&error, "opening", &path))?;
                return open_node(&node, name, lengths);
            }
        };
        if found.is_dir() {
            return open_directory(&path, name, lengths);
        }
        // A raw file and its sidecar may both be replaced while they are opened.
        for _ in 1..OPEN_TRIES_MAX {
            let witness = Witness::of_all([path.clone(), sidecar::beside(&path)]);
            match open_file(&path, name) {
                Err(_) if witness.check().is_err() => {}
                opened => return opened,
            }
        }
        open_file(&path, name)
    }

    /// Opens the dataset of an HDF5 file; the path may name it, too.
    ///
    /// # Errors
    /// As [`StoredArray::open`].
    pub fn open_dataset(path: &Path, dataset: &str) -> Result<Self> {
        let path = absolute(path)?;
        let (file, _) = hdf5::name::split(&path).unwrap_or((path, String::new()));
        open_dataset(&file, &hdf5::name::tidy(dataset), None)
    }

    /// Whether `path` describes itself: a directory, or a `.npy` file.
    pub fn says_what_it_is(path: &Path) -> bool {
        is_template(path)
            || is_url(path)
            || path.is_dir()
            || hdf5::name::split(path).is_some()
            || begins_as_npy(path).unwrap_or(false)
            || hdf5::describe::is_hdf5_file(path)
            || !matches!(Node::find(path), Ok(None))
    }

    /// Opens a raw file whose shape and element type the caller knows. Without a sidecar, the file
    /// is in the machine's byte order.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the file has another length than such an array; [`Kind::Schema`] when
    /// the length fits, but the sidecar has another shape or element type.
    pub fn open_raw(path: &Path, shape: &[u64], element: &ElementType) -> Result<Self> {
        let path = absolute(path)?;
        let schema = ArraySchema::new(&stem(&path), shape, element.clone(), raw());
        let stored = Self::flat_file(
            path.clone(),
            schema,
            (
                0,
                StoredElement::of(element, ByteOrder::NATIVE),
                Order::RowMajor,
            ),
            true,
        )?;
        let sidecar = sidecar::beside(&path);
        let Ok(Some(beside)) = Sidecar::read(&sidecar) else {
            return Ok(stored);
        };
        let beside = beside.of_file(&path);
        let there = &beside.array;
        if there.shape == shape && there.element == *element {
            let flat = (0, beside.element(), Order::RowMajor);
            return Self::flat_file(path, beside.array, flat, true);
        }
        let bytes = |schema: &ArraySchema| schema.disk_schema(1).map(|disk| disk.bytes()).ok();
        if bytes(there) != bytes(&stored.schema) {
            // The sidecar is of another file that was here before.
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

    /// The schema of the stored array. A codec without a word of Penstock is Zarr's JSON.
    pub fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    /// The disk schema for reading, with blocks of at most `block_bytes_max` bytes where the store
    /// leaves a choice.
    ///
    /// # Errors
    /// [`Kind::Damaged`] when the stored metadata do not fit together.
    pub fn disk_schema(&self, block_bytes_max: u64) -> Result<DiskSchema> {
        let block_bytes_max = match self.target.is_in_bucket() {
            true => block_bytes_max.max(OBJECT_BYTES_MIN),
            false => block_bytes_max,
        };
        match &self.form {
            Form::Zarr(metadata) => metadata.disk_schema(block_bytes_max),
            Form::Schema => self.schema.disk_schema(block_bytes_max),
            Form::Flat(order) => {
                let (shape, width) = (&self.schema.shape, self.schema.element.width());
                DiskSchema::flat(shape, width, *order, block_bytes_max)
                    .map_err(|e| Error::new(Kind::Damaged, "reading", e))
            }
        }
    }

    /// The target that servers read.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// A flat file of this schema, once its length is checked: at least, or `exactly`, the bytes of
    /// the array.
    fn flat_file(
        path: PathBuf,
        schema: ArraySchema,
        (header_bytes, element, layout): (u64, StoredElement, Order),
        exactly: bool,
    ) -> Result<Self> {
        let (shape, width) = (&schema.shape, element.width());
        let bytes = DiskSchema::flat(shape, width, layout, 1)
            .map_err(|e| damaged(&path, e))?
            .bytes();
        let expected = header_bytes.saturating_add(bytes);
        let meta = std::fs::metadata(&path).map_err(|e| Error::io(&e, "opening", &path))?;
        let length = meta.len();
        if !meta.is_file() || length < expected || (exactly && length != expected) {
            let element = &schema.element;
            let cause =
                format!("it has {length} bytes; {element} of shape {shape:?} takes {expected}");
            return Err(damaged(&path, cause));
        }
        let location = flat::Location {
            file: path,
            header_bytes,
            element,
        };
        Ok(Self {
            schema,
            target: Target::new(formats::Form::Flat(location)),
            form: Form::Flat(layout),
        })
    }
}

/// Opens a dataset of an HDF5 file: the one of that path, whatever it is called, or the one of that
/// name below the path, or else the only one there.
fn open_dataset(file: &Path, path: &str, name: Option<&str>) -> Result<StoredArray> {
    // The metadata may change while they are read.
    for _ in 1..OPEN_TRIES_MAX {
        let witness = Witness::of_all([file.to_path_buf()]);
        let opened = try_to_open_dataset(file, path, name);
        if witness.check().is_ok() {
            return opened;
        }
    }
    try_to_open_dataset(file, path, name)
}

fn try_to_open_dataset(file: &Path, path: &str, name: Option<&str>) -> Result<StoredArray> {
    let opened = hdf5::describe::open(file)?;
    let is_dataset = !path.is_empty() && opened.dataset(path)?.is_some();
    let dataset = match (is_dataset, name) {
        (true, _) => path.to_string(),
        (false, Some(name)) => format!("{path}{}", hdf5::name::tidy(name)),
        (false, None) => {
            let below = format!("{path}/");
            let mut arrays = hdf5::describe::arrays_of(&opened)?;
            arrays.retain(|array| array.starts_with(&below));
            only_of(file, arrays)?
        }
    };
    let (schema, form) = hdf5::describe::describe(&opened, file, &dataset)?;
    // The root finds metadata that do not fit together here, before every server would.
    schema.disk_schema(1).map_err(|e| e.at(file))?;
    Ok(StoredArray {
        schema,
        target: Target::new(form),
        form: Form::Schema,
    })
}

/// The only array of several.
fn only_of(path: &Path, mut arrays: Vec<String>) -> Result<String> {
    match (arrays.pop(), arrays.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => {
            let cause = "it holds no array";
            Err(Error::new(Kind::Missing, "opening", cause).at(path))
        }
        (Some(last), false) => {
            arrays.push(last);
            let cause = format!("it holds several arrays; name one of {}", arrays.join(", "));
            Err(Error::new(Kind::Schema, "opening", cause).at(path))
        }
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

/// The name of an array without one: its file's name, without the ending.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or(path.as_os_str());
    stem.to_string_lossy().into_owned()
}

fn open_file(path: &Path, name: Option<&str>) -> Result<StoredArray> {
    let sidecar_path = sidecar::beside(path);
    let sidecar = Sidecar::read(&sidecar_path).map(|found| found.map(|s| s.of_file(path)));
    if let Ok(Some(sidecar)) = &sidecar {
        let schema = sidecar.array.clone();
        let flat = (0, sidecar.element(), Order::RowMajor);
        let is_raw = schema.disk == raw();
        let stored = StoredArray::flat_file(path.to_path_buf(), schema, flat, true);
        // A sidecar that does not fit may be left from a raw file since replaced by another.
        if is_raw
            && (stored.is_ok() || !(begins_as_npy(path)? || hdf5::describe::is_hdf5_file(path)))
        {
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
    if hdf5::describe::is_hdf5_file(path) {
        return open_dataset(path, "", name);
    }
    if let Some(node) = Node::find(path)? {
        return open_node(&node, name, &|_, _| Ok(None));
    }
    sidecar?;
    let cause = format!(
        "it is neither Zarr nor .npy, and no schema is beside it at {}: a raw file can be opened \
         by one who gives its shape and dtype",
        sidecar_path.display()
    );
    Err(Error::new(Kind::Unsupported, "opening", cause).at(path))
}

/// The first 12 bytes of a file, or all if it has fewer.
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
    let schema = ArraySchema::new(&name, &header.shape, header.element.element().clone(), disk);
    let layout = if header.fortran {
        Order::ColumnMajor
    } else {
        Order::RowMajor
    };
    StoredArray::flat_file(
        path.to_path_buf(),
        schema,
        (range.end as u64, header.element, layout),
        false,
    )
}

fn open_directory(path: &Path, name: Option<&str>, lengths: Lengths<'_>) -> Result<StoredArray> {
    if let Some(node) = Node::find(path)? {
        return open_node(&node, name, lengths);
    }
    if let Some(sidecar) = Sidecar::read(&path.join("schema.json"))? {
        let own = sidecar.array.name.clone();
        return match name {
            Some(name) if name != own => Err(no_such_array(path, name, &[own])),
            _ => open_parts(path, sidecar),
        };
    }
    if is_url(path) {
        let cause = "no Zarr array or group is there";
        return Err(Error::new(Kind::Missing, "opening", cause).at(path));
    }
    let cause = "the directory holds neither Zarr's metadata nor a schema of Penstock's";
    Err(Error::new(Kind::Unsupported, "opening", cause).at(path))
}

/// Opens the array that a node is, or has.
fn open_node(node: &Node, name: Option<&str>, lengths: Lengths<'_>) -> Result<StoredArray> {
    if node.kind() == zarr::Kind::Group {
        return open_in_group(node, name, lengths);
    }
    let path = node.directory();
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
    open_array(node, &own, length.flatten())
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
        return match group.child(name)? {
            Some(node) if node.kind() == zarr::Kind::Array => {
                open_array(&node, name, lengths(path, name)?)
            }
            _ => Err(no_such_array(path, name, &arrays_in(group)?)),
        };
    }
    let only = only_of(path, arrays_in(group)?)?;
    open_in_group(group, Some(&only), lengths)
}

/// The names of the arrays of a group.
fn arrays_in(group: &Node) -> Result<Vec<String>> {
    let children = group.children()?.into_iter();
    let is_array =
        |node: &Result<Node>| !matches!(node, Ok(node) if node.kind() == zarr::Kind::Group);
    let arrays = children.filter(|(_, node)| is_array(node));
    Ok(arrays.map(|(name, _)| name).collect())
}

/// Opens the array of a node. `length`, if given, overrules the extent of the first dimension in
/// its metadata.
fn open_array(node: &Node, name: &str, length: Option<u64>) -> Result<StoredArray> {
    let file = node.file();
    let mut json = node.json().clone();
    if let (Some(length), Some(first)) = (length, json.pointer_mut("/shape/0")) {
        *first = length.into();
    }
    let metadata = Metadata::parse(json, file)?;
    let mut schema = metadata.schema(name, node.attributes()?);
    // The root finds metadata that do not fit together here, before every server would.
    let disk = metadata.disk_schema(1).map_err(|e| e.at(file))?;
    metadata.check().map_err(|e| e.at(file))?;
    let location = zarr::Location::new(node.directory().to_path_buf(), metadata.chunk_form());
    if let Some((set, path)) = node.references() {
        let referred = zarr::Referred::new(set, path, location, &disk)?;
        return Ok(StoredArray {
            schema,
            target: Target::new(formats::Form::Referred(referred)),
            form: Form::Zarr(Box::new(metadata)),
        });
    }
    let spread = Spread::of_mark(schema.attributes.remove(SPREAD), file)?;
    let location = zarr::Location {
        spread: spread.map(|spread| SpreadArray::new(name, spread)),
        ..location
    };
    Ok(StoredArray {
        schema,
        target: Target::new(formats::Form::Zarr(location)),
        form: Form::Zarr(Box::new(metadata)),
    })
}

fn open_parts(path: &Path, sidecar: Sidecar) -> Result<StoredArray> {
    let element = sidecar.element();
    let (schema, spread) = (sidecar.array, sidecar.spread);
    let schema_file = path.join("schema.json");
    let Storage::Parts(dists, mesh) = &schema.disk else {
        return Err(damaged(&schema_file, "it does not describe parts"));
    };
    let (mesh, stem) = (part_mesh(dists, mesh), path.join(&schema.name));
    let bytes = match &spread {
        None => part_bytes(&schema, &mesh)?,
        Some(_) => Vec::new(), // this node may not reach the disks of others
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
    let location = parts::Location {
        stem,
        mesh,
        element,
        base: None,
        spread: spread.map(|spread| SpreadArray::new(&schema.name, spread)),
    };
    Ok(StoredArray {
        schema,
        target: Target::new(formats::Form::Parts(location)),
        form: Form::Schema,
    })
}
