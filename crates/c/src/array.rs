//! Arrays: `penstock_array`.
//!
//! An array is an [`ArrayCall`]: what it is, how it lies in the memories of the ranks, and how on
//! disk. What does not fit together is found where it is said, if that takes no more than the
//! array; a mesh that does not fit the number of ranks, and codecs, are found by the call.

use std::ffi::{CString, c_char, c_int};

use penstock_arrays::calls::array::{ArrayCall, Memory};
use penstock_arrays::{
    ArraySchema, ByteOrder, ElementType, Fill, Format, Storage, json, of_layout,
};
use penstock_engine::{Error, Kind, Result};
use penstock_layout::{Distribution, Dists, Edges, Region, exact};
use serde_json::{Map, Value};

use crate::border::{Many, Place, Text, answer, c_text, enter, give_text, needed, wrong};
use crate::list::{self, List};

/// `PENSTOCK_ROWS`.
const ROWS: u64 = u64::MAX;
/// More dimensions are a mistake.
const DIMS_MAX: usize = 64;

/// `penstock_array`.
#[derive(Clone)]
pub struct Array {
    pub call: ArrayCall,
    name: CString,
    dtype: CString,
    /// The shape as C sees it, with [`ROWS`] for rows.
    shape: Vec<u64>,
}

impl Array {
    /// An array as a call takes it.
    pub fn new(call: ArrayCall) -> Self {
        let mut shape = call.schema.shape.clone();
        if let (true, Some(first)) = (call.is_ragged(), shape.first_mut()) {
            *first = ROWS;
        }
        Self {
            name: c_text(&call.schema.name),
            dtype: c_text(&call.schema.element.word()),
            shape,
            call,
        }
    }

    /// An array as it is stored. In memory, rank 0 holds all of it.
    pub fn stored(schema: ArraySchema) -> Self {
        let memory = memory_of_one(schema.shape.len());
        Self::new(ArrayCall { schema, memory })
    }

    fn dims(&self) -> usize {
        self.call.schema.shape.len()
    }

    /// The extents of sub-chunks, if C gives some.
    fn subchunks_of(&self, subchunks: Many<'_, u64>) -> Result<Option<Vec<u64>>> {
        match subchunks.is_null() {
            true => Ok(None),
            false => extents_of(subchunks, self.dims(), "a sub-chunk's extents").map(Some),
        }
    }

    /// The shapes of the local arrays of a rank.
    ///
    /// # Errors
    /// [`Kind::Schema`] for an array of rows, and when the schema does not fit the array.
    pub fn local_shapes(&self, rank: i64) -> Result<Vec<Vec<u64>>> {
        if self.call.is_ragged() {
            let name = &self.call.schema.name;
            return Err(wrong(format!(
                "a rank holds as many rows of '{name}' as it brings"
            )));
        }
        self.call.local_shapes(rank_of(rank)?)
    }

    /// Puts another memory schema in the place of this one.
    fn set_memory(&mut self, memory: Memory) -> Result<()> {
        if self.call.is_ragged() {
            let cause = "an array of rows has no memory schema: each rank brings its rows";
            return Err(wrong(cause));
        }
        self.call.memory = memory;
        Ok(())
    }
}

/// An element type by its word.
///
/// # Errors
/// [`Kind::Schema`] for what is none, or is not in the machine's byte order.
pub fn element_of(word: Text<'_>) -> Result<ElementType> {
    let word = word.needed("dtype")?;
    let (element, order) = ElementType::parse(word)?;
    if order != ByteOrder::NATIVE && element.width() > 1 {
        let cause = format!("{word} is not in the machine's byte order");
        return Err(Error::new(Kind::Schema, "reading a dtype", cause));
    }
    Ok(element)
}

/// The memory schema that gives all of the array to rank 0.
fn memory_of_one(dims: usize) -> Memory {
    Memory::Distribution {
        dists: Dists(vec![penstock_layout::Dist::Whole; dims]),
        mesh: Vec::new(),
        halo: Vec::new(),
    }
}

/// Attributes from JSON.
///
/// # Errors
/// [`Kind::Schema`] for what is no object of JSON.
pub fn attributes_of(text: &str) -> Result<Map<String, Value>> {
    let wrong = |cause: String| Error::new(Kind::Schema, "reading attributes", cause);
    match json::parse(text.as_bytes()).map_err(|e| wrong(e.to_string()))? {
        Value::Object(attributes) => Ok(attributes),
        other => Err(wrong(format!("{other} is no object"))),
    }
}

fn rank_of(rank: i64) -> Result<usize> {
    usize::try_from(rank).map_err(|_| wrong(format!("{rank} is no rank")))
}

/// Extents that C gives.
///
/// # Errors
/// [`Kind::Schema`] when there are none, or when one is 2^63 or more.
fn extents_of(extents: Many<'_, u64>, dims: usize, what: &str) -> Result<Vec<u64>> {
    let extents = extents.needed(dims, what)?;
    match extents
        .iter()
        .find(|extent| i64::try_from(**extent).is_err())
    {
        None => Ok(extents.to_vec()),
        Some(large) => Err(wrong(format!(
            "{what} must be from 0 to 2^63 - 1, and one is {large}"
        ))),
    }
}

/// A halo that C gives; empty where there is none.
fn halo_of(halo: Many<'_, u64>, dims: usize) -> Result<Vec<(u64, u64)>> {
    if halo.is_null() {
        return Ok(Vec::new());
    }
    let widths = extents_of(halo, 2 * dims, "the halo's widths")?;
    let pairs = widths.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    let pairs: Vec<(u64, u64)> = pairs.collect();
    match pairs.iter().any(|pair| *pair != (0, 0)) {
        true => Ok(pairs),
        false => Ok(Vec::new()),
    }
}

/// Distributions, and the mesh over which they deal.
fn dealt(
    shape: &[u64],
    dists: Text<'_>,
    mesh_dims: usize,
    mesh: Many<'_, u64>,
) -> Result<(Dists, Vec<u64>)> {
    let dists: Dists = dists.needed("dists")?.parse().map_err(of_layout)?;
    check_dims(mesh_dims)?;
    let mesh = extents_of(mesh, mesh_dims, "the mesh's extents")?;
    Distribution::new(shape, &dists, &mesh).map_err(of_layout)?;
    Ok((dists, mesh))
}

fn check_dims(dims: usize) -> Result<()> {
    match dims <= DIMS_MAX {
        true => Ok(()),
        false => Err(wrong(format!("{dims} dimensions are too many"))),
    }
}

/// This rank's boxes.
fn boxes_of(
    dims: usize,
    count: usize,
    starts: Many<'_, u64>,
    shapes: Many<'_, u64>,
) -> Result<Vec<Region>> {
    let numbers = count.checked_mul(dims);
    let numbers = numbers.ok_or_else(|| wrong(format!("{count} boxes are too many")))?;
    let starts = extents_of(starts, numbers, "starts")?;
    let shapes = extents_of(shapes, numbers, "shapes")?;
    let of_box = |numbers: &[u64], nth: usize| numbers[nth * dims..(nth + 1) * dims].to_vec();
    let boxes = (0..count).map(|nth| Region {
        start: of_box(&starts, nth),
        shape: of_box(&shapes, nth),
    });
    Ok(boxes.collect())
}

// --- making --------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_create(
    name: Text<'_>,
    dims: usize,
    shape: Many<'_, u64>,
    dtype: Text<'_>,
    mut array: Place<'_, Option<Box<Array>>>,
) -> c_int {
    enter(|| {
        array.put(None);
        array.check("the array")?;
        check_dims(dims)?;
        let given = shape.needed(dims, "shape")?;
        let is_ragged = given.first() == Some(&ROWS);
        let mut shape = given.to_vec();
        if let (true, Some(first)) = (is_ragged, shape.first_mut()) {
            *first = 0;
        }
        if let Some(large) = shape.iter().find(|extent| i64::try_from(**extent).is_err()) {
            let cause = format!("an array's shape must be from 0 to 2^63 - 1, and one is {large}");
            return Err(wrong(cause));
        }
        let element = element_of(dtype)?;
        let schema = ArraySchema::new(name.needed("name")?, &shape, element, Storage::Natural);
        let memory = match is_ragged {
            true => Memory::Rows { count: 0 },
            false => memory_of_one(dims),
        };
        array.put_handle(Array::new(ArrayCall { schema, memory }));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_copy(
    array: Option<&Array>,
    mut copy: Place<'_, Option<Box<Array>>>,
) -> c_int {
    enter(|| {
        copy.put(None);
        copy.check("the copy")?;
        copy.put_handle(needed(array, "the array")?.clone());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_free(array: Option<Box<Array>>) {
    answer((), || drop(array));
}

// --- in memory -----------------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_set_distribution(
    array: Option<&mut Array>,
    dists: Text<'_>,
    mesh_dims: usize,
    mesh: Many<'_, u64>,
    halo: Many<'_, u64>,
) -> c_int {
    enter(|| {
        let array = needed(array, "the array")?;
        let halo = halo_of(halo, array.dims())?;
        let (dists, mesh) = dealt(&array.call.schema.shape, dists, mesh_dims, mesh)?;
        array.set_memory(Memory::Distribution { dists, mesh, halo })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_set_boxes(
    array: Option<&mut Array>,
    count: usize,
    starts: Many<'_, u64>,
    shapes: Many<'_, u64>,
    halo: Many<'_, u64>,
) -> c_int {
    enter(|| {
        let array = needed(array, "the array")?;
        let halo = halo_of(halo, array.dims())?;
        let own = boxes_of(array.dims(), count, starts, shapes)?;
        array.set_memory(Memory::Boxes {
            own,
            halo,
            is_region: false,
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_set_region_boxes(
    array: Option<&mut Array>,
    count: usize,
    starts: Many<'_, u64>,
    shapes: Many<'_, u64>,
) -> c_int {
    enter(|| {
        let array = needed(array, "the array")?;
        let own = boxes_of(array.dims(), count, starts, shapes)?;
        array.set_memory(Memory::Boxes {
            own,
            halo: Vec::new(),
            is_region: true,
        })
    })
}

fn set_list(
    array: Option<&mut Array>,
    list: Option<&List>,
    places: Option<&List>,
    is_region: bool,
) -> Result<()> {
    let array = needed(array, "the array")?;
    let own = list::for_shape(&array.call.schema.shape, list, places)?;
    array.set_memory(Memory::List {
        own,
        is_region,
        thinning: None,
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_set_list(
    array: Option<&mut Array>,
    list: Option<&List>,
    places: Option<&List>,
) -> c_int {
    enter(|| set_list(array, list, places, false))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_set_region_list(
    array: Option<&mut Array>,
    list: Option<&List>,
    places: Option<&List>,
) -> c_int {
    enter(|| set_list(array, list, places, true))
}

// --- on disk -------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_set_chunks(
    array: Option<&mut Array>,
    chunk: Many<'_, u64>,
    subchunks: Many<'_, u64>,
    codec: Text<'_>,
) -> c_int {
    enter(|| {
        let array = needed(array, "the array")?;
        let chunk = extents_of(chunk, array.dims(), "a chunk's extents")?;
        let subchunks = array.subchunks_of(subchunks)?;
        let codec = codec.optional("codec")?.unwrap_or("none").to_string();
        array.call.schema.disk = Storage::Chunks {
            chunk: Edges::regular(&chunk),
            subchunks,
            codec,
        };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_set_row_major(
    array: Option<&mut Array>,
    format: Text<'_>,
) -> c_int {
    enter(|| {
        let array = needed(array, "the array")?;
        let format = match format.needed("format")? {
            "raw" => Format::Raw,
            "npy" => Format::Npy,
            other => {
                let cause =
                    format!("'{other}' is no format of a row-major file: use \"raw\" or \"npy\"");
                return Err(wrong(cause));
            }
        };
        array.call.schema.disk = Storage::RowMajor { format };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_set_dataset(
    array: Option<&mut Array>,
    format: Text<'_>,
    dataset: Text<'_>,
    chunk: Many<'_, u64>,
    filters: Text<'_>,
) -> c_int {
    enter(|| {
        let array = needed(array, "the array")?;
        let is_netcdf = match format.needed("format")? {
            "hdf5" => false,
            "netcdf" => true,
            other => {
                let cause = format!("'{other}' is no format: use \"hdf5\" or \"netcdf\"");
                return Err(wrong(cause));
            }
        };
        let chunk = match chunk.is_null() {
            true => None,
            false => Some(extents_of(chunk, array.dims(), "a chunk's extents")?),
        };
        array.call.schema.disk = Storage::Hdf5 {
            dataset: dataset.optional("dataset")?.unwrap_or_default().to_string(),
            chunk,
            filters: filters.optional("filters")?.unwrap_or("none").to_string(),
            is_netcdf,
        };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_set_parts(
    array: Option<&mut Array>,
    dists: Text<'_>,
    mesh_dims: usize,
    mesh: Many<'_, u64>,
) -> c_int {
    enter(|| {
        let array = needed(array, "the array")?;
        let (dists, mesh) = dealt(&array.call.schema.shape, dists, mesh_dims, mesh)?;
        array.call.schema.disk = Storage::Parts(dists, mesh);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_set_natural(array: Option<&mut Array>) -> c_int {
    enter(|| {
        needed(array, "the array")?.call.schema.disk = Storage::Natural;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_set_shares(
    array: Option<&mut Array>,
    subchunks: Many<'_, u64>,
    codec: Text<'_>,
) -> c_int {
    enter(|| {
        let array = needed(array, "the array")?;
        let subchunks = array.subchunks_of(subchunks)?;
        let codec = codec.optional("codec")?.unwrap_or("none").to_string();
        array.call.schema.disk = Storage::Shares { subchunks, codec };
        Ok(())
    })
}

/// Texts that C gives behind one another.
///
/// # Errors
/// [`Kind::Schema`] when there are none, or one is none.
pub fn texts_of(texts: Many<'_, Text<'_>>, count: usize, what: &str) -> Result<Vec<String>> {
    let texts = texts.needed(count, what)?.iter();
    let texts = texts.map(|text| text.needed(what).map(str::to_string));
    texts.collect()
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_set_dimension_names(
    array: Option<&mut Array>,
    names: Many<'_, Text<'_>>,
) -> c_int {
    enter(|| {
        let array = needed(array, "the array")?;
        let names = texts_of(names, array.dims(), "a dimension's name")?;
        array.call.schema.dimension_names = Some(names);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_set_attributes(
    array: Option<&mut Array>,
    json: Text<'_>,
) -> c_int {
    enter(|| {
        let array = needed(array, "the array")?;
        array.call.schema.attributes = attributes_of(json.needed("attributes")?)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_set_fill(array: Option<&mut Array>, value: Many<'_, u8>) -> c_int {
    enter(|| {
        let array = needed(array, "the array")?;
        let element = &array.call.schema.element;
        let bytes = value.needed(exact(element.width()), "the fill value")?;
        if *element == ElementType::Bool && bytes.iter().any(|&byte| byte > 1) {
            return Err(wrong("the fill value is neither true nor false"));
        }
        array.call.schema.fill = Fill::new(element, bytes)?;
        Ok(())
    })
}

// --- asking --------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_name(array: Option<&Array>) -> *const c_char {
    array.map_or(std::ptr::null(), |array| array.name.as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_dims(array: Option<&Array>) -> usize {
    array.map_or(0, Array::dims)
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_shape(array: Option<&Array>) -> *const u64 {
    array.map_or(std::ptr::null(), |array| array.shape.as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_dtype(array: Option<&Array>) -> *const c_char {
    array.map_or(std::ptr::null(), |array| array.dtype.as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_element_bytes(array: Option<&Array>) -> usize {
    array.map_or(0, |array| exact(array.call.schema.element.width()))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_attributes(
    array: Option<&Array>,
    json: Place<'_, *mut c_char>,
) -> c_int {
    give_text(json, || {
        let attributes = &needed(array, "the array")?.call.schema.attributes;
        Ok(json::line(&attributes.clone().into()))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_disk(
    array: Option<&Array>,
    text: Place<'_, *mut c_char>,
) -> c_int {
    give_text(text, || {
        Ok(needed(array, "the array")?.call.schema.disk.to_string())
    })
}

/// The extents of one local array of a rank.
fn part_of(array: Option<&Array>, rank: i64, part: usize) -> Result<Vec<u64>> {
    let mut shapes = needed(array, "the array")?.local_shapes(rank)?;
    match part < shapes.len() {
        true => Ok(shapes.swap_remove(part)),
        false => Err(no_part(part, shapes.len())),
    }
}

fn no_part(part: usize, count: usize) -> Error {
    wrong(format!(
        "there is no local array {part}: this rank has {count}"
    ))
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_local_count(
    array: Option<&Array>,
    rank: i64,
    mut count: Place<'_, usize>,
) -> c_int {
    enter(|| {
        count.check("the count")?;
        count.put(needed(array, "the array")?.local_shapes(rank)?.len());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_local_shape(
    array: Option<&Array>,
    rank: i64,
    part: usize,
    mut shape: Place<'_, u64>,
) -> c_int {
    enter(|| {
        let extents = part_of(array, rank, part)?;
        if !extents.is_empty() {
            shape.check("the shape")?;
        }
        for (dim, extent) in extents.into_iter().enumerate() {
            shape.put_nth(dim, extent);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_local_bytes(
    array: Option<&Array>,
    rank: i64,
    mut bytes: Place<'_, u64>,
) -> c_int {
    enter(|| {
        bytes.check("the bytes")?;
        let array = needed(array, "the array")?;
        let width = array.call.schema.element.width();
        let mut all = Some(0u64);
        for shape in array.local_shapes(rank)? {
            let of_part = shape.iter().try_fold(width, |all, &n| all.checked_mul(n));
            all = all
                .zip(of_part)
                .and_then(|(all, more)| all.checked_add(more));
        }
        bytes.put(all.ok_or_else(|| wrong("a rank has more than 2^64 bytes"))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn penstock_array_local_indices(
    array: Option<&Array>,
    rank: i64,
    part: usize,
    dim: usize,
    mut first: Place<'_, u64>,
    mut block: Place<'_, u64>,
    mut stride: Place<'_, u64>,
    mut extent: Place<'_, u64>,
) -> c_int {
    enter(|| {
        for (place, what) in [
            (&first, "first"),
            (&block, "block"),
            (&stride, "stride"),
            (&extent, "extent"),
        ] {
            place.check(what)?;
        }
        let array = needed(array, "the array")?;
        array.local_shapes(rank)?;
        let shares = array.call.shares(rank_of(rank)?)?;
        let share = shares
            .get(part)
            .ok_or_else(|| no_part(part, shares.len()))?;
        let of_array = share.dims().iter().take(array.dims()).nth(dim);
        let known = of_array.ok_or_else(|| wrong(format!("there is no dimension {dim}")))?;
        let numbers = known.comb();
        first.put(numbers.0);
        block.put(numbers.1);
        stride.put(numbers.2);
        extent.put(numbers.3);
        Ok(())
    })
}
