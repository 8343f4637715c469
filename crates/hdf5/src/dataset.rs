//! What a dataset is, and where its elements lie.

use hdf5_metno::dataset::Layout;
use hdf5_metno::{Dataset as Opened, Datatype};

use crate::attributes::{Attribute, Values, attributes_of};
use crate::elements::{Element, datatype_of, element_of};
use crate::library::{self, Filter, Outcome, fill_of, label_of, scale_of};

/// A dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// The elements.
    pub element: Element,
    /// The extents.
    pub shape: Vec<u64>,
    /// The dimensions that may grow without limit.
    pub grows: Vec<bool>,
    /// How the elements are stored.
    pub storage: Storage,
    /// What is done to each chunk, in this order, when it is written.
    pub filters: Vec<Filter>,
    /// The bytes of one element, as it is stored or converted, where nothing was written; empty for
    /// zeros.
    pub fill: Vec<u8>,
    /// The names of the dimensions, if any has one.
    pub dimensions: Vec<Option<String>>,
    /// The attributes but for those of dimensions and of NetCDF; `None` for one of a type that is
    /// not read.
    pub attributes: Vec<(String, Option<Attribute>)>,
}

/// How the elements of a dataset are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// One behind the other from this byte on; `None` where nothing is stored.
    Contiguous(Option<u64>),
    /// In chunks.
    Chunked {
        /// The extents of a chunk.
        chunk: Vec<u64>,
        /// The chunks that are stored.
        chunks: Vec<Chunk>,
    },
    /// Within the metadata, where only the library finds them.
    Compact,
    /// In other files, of these names.
    External(Vec<String>),
    /// In datasets of other files.
    Virtual,
    /// There are none: the dataset has no space.
    Other,
}

/// A chunk that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The first element.
    pub start: Vec<u64>,
    /// The first byte in the file.
    pub place: u64,
    /// The encoded bytes.
    pub bytes: u64,
    /// The filters that were not applied: the bit of each filter's number.
    pub skipped: u32,
}

/// A chunk that is entered into the index of a dataset, and the one whose place it takes.
pub type ChunkEntry = (Chunk, Option<Chunk>);

/// The attributes by which HDF5 and NetCDF describe dimensions.
pub(crate) fn is_of_dimensions(name: &str) -> bool {
    let own = [
        "CLASS",
        "NAME",
        "DIMENSION_LIST",
        "REFERENCE_LIST",
        "DIMENSION_LABELS",
        "_Netcdf4Dimid",
        "_Netcdf4Coordinates",
        "_nc3_strict",
    ];
    own.contains(&name)
}

/// The name of a scale without variable; the length of the dimension follows, in ten columns.
pub(crate) const NO_VARIABLE: &str = "This is a netCDF dimension but not a netCDF variable.";

/// Describes an open dataset.
pub(crate) fn describe(opened: &Opened) -> Outcome<Dataset> {
    let mut described = outline(opened)?;
    if let Storage::Chunked { chunks, .. } = &mut described.storage {
        *chunks = chunks_of(opened)?;
    }
    Ok(described)
}

/// Describes an open dataset without its chunks, which may be many.
pub(crate) fn outline(opened: &Opened) -> Outcome<Dataset> {
    let space = opened.space()?;
    let shape: Vec<u64> = space.shape().iter().map(|&n| n as u64).collect();
    let grows = space.maxdims().iter().map(Option::is_none).collect();
    let stored = opened.dtype()?;
    let element = element_of(&stored)?;
    let list = opened.dcpl()?;
    let outside = list.get_external()?;
    let storage = match list.get_layout()? {
        _ if space.is_null() => Storage::Other,
        _ if !outside.is_empty() => {
            Storage::External(outside.into_iter().map(|file| file.name).collect())
        }
        Layout::Contiguous => Storage::Contiguous(opened.offset()),
        Layout::Chunked => {
            let chunk = opened.chunk().unwrap_or_default();
            Storage::Chunked {
                chunk: chunk.iter().map(|&n| n as u64).collect(),
                chunks: Vec::new(),
            }
        }
        Layout::Compact => Storage::Compact,
        Layout::Virtual => Storage::Virtual,
    };
    let dimensions = (0..shape.len())
        .map(|d| name_of(opened, d))
        .collect::<Outcome<Vec<_>>>()?;
    Ok(Dataset {
        grows,
        storage,
        filters: library::filters_of(&list)?,
        fill: match &element {
            Element::Stored(_) => fill_bytes(opened, &stored)?,
            Element::Converted(word) => fill_bytes(opened, &datatype_of(word)?)?,
            Element::Other(_) => Vec::new(),
        },
        element,
        dimensions,
        attributes: attributes_of(opened, is_of_dimensions)?,
        shape,
    })
}

/// The chunks that are stored.
pub(crate) fn chunks_of(opened: &Opened) -> Outcome<Vec<Chunk>> {
    let mut chunks = Vec::new();
    opened.chunks_visit(|chunk| {
        chunks.push(Chunk {
            start: chunk.offset.to_vec(),
            place: chunk.addr,
            bytes: chunk.size,
            skipped: chunk.filter_mask,
        });
        0
    })?;
    Ok(chunks)
}

fn fill_bytes(opened: &Opened, element: &Datatype) -> Outcome<Vec<u8>> {
    let fill = fill_of(opened, element)?;
    match fill.iter().all(|&byte| byte == 0) {
        true => Ok(Vec::new()),
        false => Ok(fill),
    }
}

/// The name of a dimension: its scale's name, or else its label, or else the variable's own name.
fn name_of(opened: &Opened, dimension: usize) -> Outcome<Option<String>> {
    let Ok(dimension) = u32::try_from(dimension) else {
        return Ok(None);
    };
    if let Some(path) = scale_of(opened, dimension)? {
        return Ok(path.rsplit('/').next().map(str::to_string));
    }
    if let Some(label) = label_of(opened, dimension) {
        return Ok(Some(label));
    }
    // A scale is the variable of its own dimension.
    let is_own = opened.ndim() == 1 && library::is_scale(opened)?;
    let path = opened.name();
    let name = path.rsplit('/').next().filter(|_| is_own);
    Ok(name.map(str::to_string))
}

/// Whether a dataset stands for a dimension without variable.
pub(crate) fn is_bare(opened: &Opened) -> Outcome<bool> {
    if !library::is_scale(opened)? {
        return Ok(false);
    }
    let name = attributes_of(opened, |name| name != "NAME")?;
    let is_bare = |attribute: &Option<Attribute>| {
        matches!(attribute, Some(Attribute { values: Values::Texts(texts), .. })
            if texts.iter().any(|text| text.starts_with(NO_VARIABLE)))
    };
    Ok(name.iter().any(|(_, attribute)| is_bare(attribute)))
}
