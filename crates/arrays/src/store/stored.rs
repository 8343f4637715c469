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
use penstock_layout::{DiskSchema, Order};
use serde_json::{Map, Value};

use super::file::{self, damaged, read_if_there};
use super::flat::part_path;
use super::group;
use super::sidecar::{self, Sidecar};
use super::spread::{Spread, SpreadArray, is_template, of_server};
use super::witness::Witness;
use super::zarr::Metadata;
use super::{Files, PartFiles, Target, ZarrFiles};
use crate::dtype::{ByteOrder, ElementType};
use crate::npy::{self, Header, HeaderError};
use crate::schema::{ArraySchema, Disk, Format, part_mesh};

/// The attribute that says how an array's chunks are spread over servers.
pub(super) const SPREAD: &str = "penstock_spread";
/// How often to look at a file that is replaced while it is looked at.
const OPEN_TRIES_MAX: usize = 10;

/// A stored array. Only the root opens it; the servers get [`Stored::target`].
pub struct Stored {
    schema: ArraySchema,
    target: Target,
    form: Form,
}

enum Form {
    Zarr(Box<Metadata>),
    Flat(Order),
    Parts,
}

impl Stored {
    /// Opens what is at `path`: of a group the array `name`, or the only one there is.
    ///
    /// # Errors
    /// [`Kind::Missing`] when nothing is there or no array of that name, [`Kind::Schema`] when
    /// there are several and no name says which, [`Kind::Damaged`] when it cannot be understood,
    /// [`Kind::Unsupported`] when it can and Penstock does not read it.
    pub fn open(path: &Path, name: Option<&str>) -> Result<Self> {
        let path = absolute(path)?;
        if is_template(&path) {
            let mut stored = Self::open(&of_server(&path, 0), name)?;
            stored.target.move_to(&path);
            return Ok(stored);
        }
        let found = std::fs::metadata(&path).map_err(|e| Error::io(&e, "opening", &path))?;
        if found.is_dir() {
            return open_directory(&path, name);
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

    /// The schemas of all arrays at `path`: those of a group, by name, or the only one.
    ///
    /// # Errors
    /// As [`Stored::open`]; a group without arrays is none.
    pub fn all(path: &Path) -> Result<Vec<ArraySchema>> {
        let path = absolute(path)?;
        let first = of_server(&path, 0);
        let is_group = match zarr_node(&first)? {
            Some((file, json)) => !is_array(&file, &json)?,
            None => false,
        };
        if !is_group {
            return Ok(vec![Self::open(&path, None)?.schema]);
        }
        let names = arrays_in(&first)?;
        let open = |name: &String| Ok(Self::open(&path, Some(name))?.schema);
        names.iter().map(open).collect()
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
        let element = schema.element;
        let files = Files::Flat {
            file: path,
            header_bytes,
            element,
            order,
        };
        Ok(Self {
            schema,
            target: Target::of(files),
            form: Form::Flat(layout),
        })
    }
}

fn raw() -> Disk {
    Disk::RowMajor {
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

fn open_file(path: &Path, name: Option<&str>) -> Result<Stored> {
    let sidecar_path = sidecar::beside(path);
    let sidecar = Sidecar::read(&sidecar_path).map(|found| found.map(|s| s.of_file(path)));
    if let Ok(Some(sidecar)) = &sidecar {
        let schema = sidecar.array.clone();
        let flat = (0, sidecar.byte_order, Order::RowMajor);
        let is_raw = schema.disk == raw();
        let stored = Stored::flat_file(path.to_path_buf(), schema, flat, true);
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
    let length = file::length(&file, path)?.min(start.len() as u64);
    start.truncate(length as usize);
    file::read_at(&file, &mut start, 0, path)?;
    Ok((file, start))
}

fn begins_as_npy(path: &Path) -> Result<bool> {
    Ok(start_of(path)?.1.starts_with(npy::MAGIC))
}

fn open_npy(path: &Path, name: Option<&str>) -> Result<Stored> {
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
    let disk = Disk::RowMajor {
        format: Format::Npy,
    };
    let schema = ArraySchema::new(&name, &header.shape, header.element, disk);
    let layout = if header.fortran {
        Order::ColumnMajor
    } else {
        Order::RowMajor
    };
    Stored::flat_file(
        path.to_path_buf(),
        schema,
        (range.end as u64, header.order, layout),
        false,
    )
}

/// Metadata of a Zarr node: the file and its JSON.
fn zarr_node(directory: &Path) -> Result<Option<(PathBuf, Value)>> {
    for name in ["zarr.json", ".zarray", ".zgroup"] {
        let file = directory.join(name);
        if let Some(json) = read_json(&file)? {
            return Ok(Some((file, json)));
        }
    }
    Ok(None)
}

/// A file of metadata, if it is there.
///
/// # Errors
/// [`Kind::Damaged`] when it is not a JSON object.
pub(super) fn read_json(path: &Path) -> Result<Option<Value>> {
    let Some(bytes) = read_if_there(path)? else {
        return Ok(None);
    };
    let json: Value = serde_json::from_slice(&bytes)
        .map_err(|e| damaged(path, format!("it is not JSON: {e}")))?;
    if json.is_object() {
        Ok(Some(json))
    } else {
        Err(damaged(path, "it is not a JSON object"))
    }
}

/// Whether a node is an array. What is neither array nor group is damaged.
fn is_array(file: &Path, json: &Value) -> Result<bool> {
    let format = &json["zarr_format"];
    let second = file.file_name().is_some_and(|name| name != "zarr.json");
    if *format != if second { 2 } else { 3 } {
        return Err(damaged(file, format!("it says \"zarr_format\": {format}")));
    }
    match json["node_type"].as_str() {
        _ if second => Ok(file.ends_with(".zarray")),
        Some("array") => Ok(true),
        Some("group") => Ok(false),
        _ => Err(damaged(
            file,
            "its \"node_type\" is neither array nor group",
        )),
    }
}

fn open_directory(path: &Path, name: Option<&str>) -> Result<Stored> {
    if let Some((file, json)) = zarr_node(path)? {
        if !is_array(&file, &json)? {
            return open_in_group(path, name);
        }
        let own = path.file_name().unwrap_or_default().to_string_lossy();
        return match name {
            Some(name) if name != own => Err(no_such_array(path, name, &[own.into_owned()])),
            _ => open_array(path, &own, &file, json),
        };
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

fn open_in_group(path: &Path, name: Option<&str>) -> Result<Stored> {
    if let Some(name) = name {
        let array = path.join(name);
        if let Some((file, json)) = zarr_node(&array)?
            && is_array(&file, &json)?
        {
            // After a crash an array that is saved with others may not yet know of the last timestep.
            let json = group::saved_array(path, name)?.unwrap_or(json);
            return open_array(&array, name, &file, json);
        }
        return Err(no_such_array(path, name, &arrays_in(path)?));
    }
    let arrays = arrays_in(path)?;
    match arrays.as_slice() {
        [only] => open_in_group(path, Some(only)),
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

/// The names of the arrays directly in a group. One whose metadata are damaged counts.
fn arrays_in(group: &Path) -> Result<Vec<String>> {
    let looking = |e: std::io::Error| Error::io(&e, "looking into", group);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(group).map_err(looking)? {
        let path = entry.map_err(looking)?.path();
        let array = match zarr_node(&path) {
            Ok(Some((file, json))) => is_array(&file, &json).unwrap_or(true),
            Ok(None) => false,
            Err(error) => error.kind == Kind::Damaged,
        };
        if let (true, Some(name)) = (array, path.file_name()) {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn open_array(directory: &Path, name: &str, file: &Path, json: Value) -> Result<Stored> {
    let metadata = Metadata::parse(json, file)?;
    let attributes = match read_json(&directory.join(".zattrs"))? {
        Some(Value::Object(attributes)) => attributes,
        _ => Map::new(),
    };
    let mut schema = metadata.schema(name, attributes);
    // What does not fit together is found now, by the root, not later by every server.
    metadata.disk_schema(1).map_err(|e| e.at(file))?;
    metadata.check().map_err(|e| e.at(file))?;
    let spread = spread_of(schema.attributes.remove(SPREAD), file)?;
    let files = ZarrFiles {
        spread: spread.map(|spread| SpreadArray::new(name, spread)),
        ..ZarrFiles::new(directory.to_path_buf(), metadata.chunk_form())
    };
    Ok(Stored {
        schema,
        target: Target::of(Files::Zarr(files)),
        form: Form::Zarr(Box::new(metadata)),
    })
}

/// What metadata that stand in `file` say of how an array is spread.
pub(super) fn spread_of(mark: Option<Value>, file: &Path) -> Result<Option<Spread>> {
    mark.map(serde_json::from_value)
        .transpose()
        .map_err(|e| damaged(file, format!("its \"{SPREAD}\" makes no sense: {e}")))
}

fn open_parts(path: &Path, sidecar: Sidecar) -> Result<Stored> {
    let (schema, spread) = (sidecar.array, sidecar.spread);
    let schema_file = path.join("schema.json");
    let Disk::Parts(dists, mesh) = &schema.disk else {
        return Err(damaged(&schema_file, "it does not describe parts"));
    };
    let (mesh, stem) = (part_mesh(dists, mesh), path.join(&schema.name));
    let bytes = match &spread {
        None => super::pending::part_bytes(&schema, &mesh)?,
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
    let files = PartFiles {
        stem,
        mesh,
        element,
        order,
        base: None,
        spread: spread.map(|spread| SpreadArray::new(&schema.name, spread)),
    };
    Ok(Stored {
        schema,
        target: Target::of(Files::Parts(files)),
        form: Form::Parts,
    })
}
