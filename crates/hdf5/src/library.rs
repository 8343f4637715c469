//! What the crate of bindings has no safe function for.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use hdf5_metno::plist::{DatasetCreate, GroupCreate};
use hdf5_metno::{
    Attribute, Dataset, Dataspace, Datatype, Group, LinkType, from_id, h5check, sync,
};
use hdf5_metno_sys::h5::herr_t;
use hdf5_metno_sys::h5a::{H5Aget_type, H5Aread, H5Awrite};
use hdf5_metno_sys::h5d::{H5D_alloc_time_t, H5D_fill_time_t, H5Dcreate2, H5Dwrite_chunk};
use hdf5_metno_sys::h5g::H5Gcreate2;
use hdf5_metno_sys::h5i::hid_t;
use hdf5_metno_sys::h5p::{
    H5P_CLS_DATASET_CREATE, H5P_CLS_GROUP_CREATE, H5P_CRT_ORDER_INDEXED, H5P_CRT_ORDER_TRACKED,
    H5P_DEFAULT, H5Pcreate, H5Pget_fill_value, H5Pset_alloc_time, H5Pset_attr_creation_order,
    H5Pset_chunk, H5Pset_fill_time, H5Pset_fill_value, H5Pset_filter, H5Pset_link_creation_order,
    H5Pset_obj_track_times,
};
use hdf5_metno_sys::h5s::{H5S_UNLIMITED, H5S_class_t, H5Screate, H5Screate_simple};
use hdf5_metno_sys::h5t::{
    H5T_class_t, H5T_order_t, H5Tclose, H5Tcopy, H5Tcreate, H5Tinsert, H5Tset_order,
};
use hdf5_metno_sys::h5z::H5Z_FLAG_OPTIONAL;

/// The result of a call of the library.
pub(crate) type Outcome<T> = hdf5_metno::Result<T>;

// The high-level library, of which the crate of bindings has nothing.
unsafe extern "C" {
    fn H5DSset_scale(dataset: hid_t, name: *const c_char) -> herr_t;
    fn H5DSattach_scale(dataset: hid_t, scale: hid_t, dimension: c_uint) -> herr_t;
    fn H5DSdetach_scale(dataset: hid_t, scale: hid_t, dimension: c_uint) -> herr_t;
    fn H5DSis_scale(dataset: hid_t) -> c_int;
    fn H5DSset_label(dataset: hid_t, dimension: c_uint, label: *const c_char) -> herr_t;
    fn H5DSget_label(dataset: hid_t, dimension: c_uint, label: *mut c_char, bytes: usize) -> isize;
    fn H5DSiterate_scales(
        dataset: hid_t,
        dimension: c_uint,
        index: *mut c_int,
        visit: unsafe extern "C" fn(hid_t, c_uint, hid_t, *mut c_void) -> herr_t,
        data: *mut c_void,
    ) -> herr_t;
    fn H5Iget_name(object: hid_t, name: *mut c_char, bytes: usize) -> isize;
}

/// Calls a function that gives a negative number when it fails, alone.
pub(crate) fn call(function: impl FnOnce() -> herr_t) -> Outcome<herr_t> {
    sync::sync(|| h5check(function()))
}

/// Enters a chunk of as many encoded bytes as `nothing` has. The driver places the chunk, and drops
/// these bytes.
pub(crate) fn enter_chunk(dataset: &Dataset, start: &[u64], nothing: &[u8]) -> Outcome<()> {
    // SAFETY: the dataset is open; there is a coordinate for each dimension, and the library hands
    // the bytes on to the driver.
    let entered = call(|| unsafe {
        let (start, bytes, data) = (start.as_ptr(), nothing.len(), nothing.as_ptr().cast());
        H5Dwrite_chunk(dataset.id(), H5P_DEFAULT, 0, start, bytes, data)
    });
    entered.map(drop)
}

pub(crate) fn text(text: &str) -> Outcome<CString> {
    CString::new(text).map_err(|_| format!("{text:?} has a zero byte").into())
}

/// Makes a dataset a dimension scale. `name` is in its attribute `NAME`.
pub(crate) fn make_scale(dataset: &Dataset, name: &str) -> Outcome<()> {
    let name = text(name)?;
    // SAFETY: the dataset is open, and the name ends with a zero.
    call(|| unsafe { H5DSset_scale(dataset.id(), name.as_ptr()) }).map(drop)
}

/// Whether a dataset is a dimension scale.
pub(crate) fn is_scale(dataset: &Dataset) -> Outcome<bool> {
    // SAFETY: the dataset is open.
    call(|| unsafe { H5DSis_scale(dataset.id()) }).map(|is| is > 0)
}

/// Attaches a scale to a dimension.
pub(crate) fn attach_scale(dataset: &Dataset, scale: &Dataset, dimension: u32) -> Outcome<()> {
    // SAFETY: both are open.
    let attached = call(|| unsafe { H5DSattach_scale(dataset.id(), scale.id(), dimension) });
    attached.map(drop)
}

/// Detaches a scale from a dimension.
pub(crate) fn detach_scale(dataset: &Dataset, scale: &Dataset, dimension: u32) -> Outcome<()> {
    // SAFETY: both are open.
    let detached = call(|| unsafe { H5DSdetach_scale(dataset.id(), scale.id(), dimension) });
    detached.map(drop)
}

/// Names a dimension.
pub(crate) fn set_label(dataset: &Dataset, dimension: u32, label: &str) -> Outcome<()> {
    let label = text(label)?;
    // SAFETY: the dataset is open, and the label ends with a zero.
    let set = call(|| unsafe { H5DSset_label(dataset.id(), dimension, label.as_ptr()) });
    set.map(drop)
}

/// The path of the first scale of a dimension.
pub(crate) fn scale_of(dataset: &Dataset, dimension: u32) -> Outcome<Option<String>> {
    unsafe extern "C" fn visit(_: hid_t, _: c_uint, scale: hid_t, found: *mut c_void) -> herr_t {
        // SAFETY: `found` is that of the call below, and the scale is open.
        unsafe {
            *found.cast::<Option<String>>() =
                name_of(|name, bytes| H5Iget_name(scale, name, bytes));
        }
        1
    }
    let mut found: Option<String> = None;
    // SAFETY: the dataset is open, and `found` lives as long as the call.
    let seen = call(|| unsafe {
        let data = (&raw mut found).cast();
        H5DSiterate_scales(dataset.id(), dimension, ptr::null_mut(), visit, data)
    });
    seen.map(|_| found)
}

/// The label of a dimension; `None` if it has none.
pub(crate) fn label_of(dataset: &Dataset, dimension: u32) -> Option<String> {
    sync::sync(|| {
        // SAFETY: the dataset is open, and the buffer has these bytes.
        name_of(|name, bytes| unsafe { H5DSget_label(dataset.id(), dimension, name, bytes) })
    })
    .filter(|label| !label.is_empty())
}

/// A text that the library copies into a buffer, after it has told the length.
fn name_of(get: impl Fn(*mut c_char, usize) -> isize) -> Option<String> {
    let length = usize::try_from(get(ptr::null_mut(), 0)).ok()?;
    let mut name = vec![0u8; length + 1];
    get(name.as_mut_ptr().cast(), name.len());
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// The bytes of an attribute, as they are stored. Its type has no pointers.
pub(crate) fn attribute_bytes(attribute: &Attribute, bytes: usize) -> Outcome<Vec<u8>> {
    let mut data = vec![0; bytes];
    // SAFETY: the attribute is open, and the buffer has room for all of its elements.
    let read = call(|| unsafe {
        let stored = H5Aget_type(attribute.id());
        let read = H5Aread(attribute.id(), stored, data.as_mut_ptr().cast());
        H5Tclose(stored);
        read
    });
    read.map(|_| data)
}

/// Fills an attribute with bytes of its own type, which has no pointers.
pub(crate) fn fill_attribute(attribute: &Attribute, data: &[u8]) -> Outcome<()> {
    // SAFETY: the attribute is open, and the data are all of its elements.
    let written = call(|| unsafe {
        let stored = H5Aget_type(attribute.id());
        let written = H5Awrite(attribute.id(), stored, data.as_ptr().cast());
        H5Tclose(stored);
        written
    });
    written.map(drop)
}

/// The same type with the most significant byte first.
pub(crate) fn big_endian(native: &Datatype) -> Outcome<Datatype> {
    sync::sync(|| {
        // SAFETY: the type is open, and its copy has no other owner.
        unsafe {
            let copy = H5Tcopy(native.id());
            h5check(H5Tset_order(copy, H5T_order_t::H5T_ORDER_BE))?;
            from_id(copy)
        }
    })
}

/// A type of these fields, which are all of the same type, one behind the other.
pub(crate) fn compound_of(part: &Datatype, fields: &[&str]) -> Outcome<Datatype> {
    sync::sync(|| {
        // SAFETY: the part is open, and the new type has no other owner.
        unsafe {
            let whole = H5Tcreate(H5T_class_t::H5T_COMPOUND, part.size() * fields.len());
            for (number, field) in fields.iter().enumerate() {
                let field = text(field)?;
                h5check(H5Tinsert(
                    whole,
                    field.as_ptr(),
                    number * part.size(),
                    part.id(),
                ))?;
            }
            from_id(whole)
        }
    })
}

/// The fill value of a dataset, in its own type, which has no pointers.
pub(crate) fn fill_of(dataset: &Dataset, element: &Datatype) -> Outcome<Vec<u8>> {
    let mut fill = vec![0; element.size()];
    let list = dataset.dcpl()?;
    // SAFETY: the list and the type are open, and the buffer has room for one element.
    let got =
        call(|| unsafe { H5Pget_fill_value(list.id(), element.id(), fill.as_mut_ptr().cast()) });
    got.map(|_| fill)
}

/// A filter: its number in the registry of HDF5, and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// The registered number.
    pub number: i32,
    /// The parameters.
    pub parameters: Vec<u32>,
}

impl Filter {
    /// The number of deflate.
    pub const DEFLATE: i32 = 1;
    /// The number of shuffle.
    pub const SHUFFLE: i32 = 2;
    /// The number of the checksum of Fletcher.
    pub const FLETCHER32: i32 = 3;
}

/// How a dataset is made.
pub(crate) struct Creation<'a> {
    pub(crate) element: &'a Datatype,
    pub(crate) shape: &'a [u64],
    pub(crate) grows: &'a [bool],
    pub(crate) chunk: Option<&'a [u64]>,
    pub(crate) filters: &'a [Filter],
    pub(crate) fill: &'a [u8],
    /// Whether all elements have their places from the beginning.
    pub(crate) is_placed: bool,
    /// Whether attributes are in the order in which they were made, as NetCDF wants it.
    pub(crate) keeps_order: bool,
}

/// Makes a dataset. The library writes no fill value into it.
pub(crate) fn create_dataset(group: &Group, name: &str, new: &Creation<'_>) -> Outcome<Dataset> {
    let name = text(name)?;
    let dimensions = c_int::try_from(new.shape.len()).map_err(|e| e.to_string())?;
    let limit = |(n, &grows): (&u64, &bool)| if grows { H5S_UNLIMITED } else { *n };
    let limits: Vec<u64> = new.shape.iter().zip(new.grows).map(limit).collect();
    sync::sync(|| {
        // SAFETY: the lists, the space and the group are open; extents and parameters are as many
        // as the calls say; the fill value is one element of the type.
        unsafe {
            let list: DatasetCreate = from_id(h5check(H5Pcreate(*H5P_CLS_DATASET_CREATE))?)?;
            h5check(H5Pset_fill_time(
                list.id(),
                H5D_fill_time_t::H5D_FILL_TIME_NEVER,
            ))?;
            h5check(H5Pset_obj_track_times(list.id(), 0))?;
            if new.keeps_order {
                h5check(H5Pset_attr_creation_order(list.id(), CREATION_ORDER))?;
            }
            if new.is_placed {
                h5check(H5Pset_alloc_time(
                    list.id(),
                    H5D_alloc_time_t::H5D_ALLOC_TIME_EARLY,
                ))?;
            }
            if let Some(chunk) = new.chunk {
                h5check(H5Pset_chunk(list.id(), dimensions, chunk.as_ptr()))?;
            }
            for filter in new.filters {
                let (values, count) = (filter.parameters.as_ptr(), filter.parameters.len());
                let flags = H5Z_FLAG_OPTIONAL; // nobody but servers applies it, which have it
                h5check(H5Pset_filter(
                    list.id(),
                    filter.number,
                    flags,
                    count,
                    values,
                ))?;
            }
            if !new.fill.is_empty() {
                let fill = new.fill.as_ptr().cast();
                h5check(H5Pset_fill_value(list.id(), new.element.id(), fill))?;
                h5check(H5Pset_fill_time(
                    list.id(),
                    H5D_fill_time_t::H5D_FILL_TIME_IFSET,
                ))?;
            }
            let space = match dimensions {
                0 => H5Screate(H5S_class_t::H5S_SCALAR),
                _ => H5Screate_simple(dimensions, new.shape.as_ptr(), limits.as_ptr()),
            };
            let space: Dataspace = from_id(h5check(space)?)?;
            let (links, access) = (H5P_DEFAULT, H5P_DEFAULT);
            let element = new.element.id();
            let (place, made) = (group.id(), name.as_ptr());
            let made = H5Dcreate2(place, made, element, space.id(), links, list.id(), access);
            from_id(h5check(made)?)
        }
    })
}

/// Makes a group.
pub(crate) fn make_group(above: &Group, name: &str, keeps_order: bool) -> Outcome<Group> {
    let name = text(name)?;
    sync::sync(|| {
        // SAFETY: the list and the group above are open, and the name ends with a zero.
        unsafe {
            let list: GroupCreate = from_id(h5check(H5Pcreate(*H5P_CLS_GROUP_CREATE))?)?;
            if keeps_order {
                h5check(H5Pset_link_creation_order(list.id(), CREATION_ORDER))?;
                h5check(H5Pset_attr_creation_order(list.id(), CREATION_ORDER))?;
            }
            let (links, access) = (H5P_DEFAULT, H5P_DEFAULT);
            let made = H5Gcreate2(above.id(), name.as_ptr(), links, list.id(), access);
            from_id(h5check(made)?)
        }
    })
}

/// The names of the links of a group, and their kinds, in the order of the names.
pub(crate) fn members_of(group: &Group) -> Outcome<Vec<(String, LinkType)>> {
    let mut members = Vec::new();
    group.iter_visit_default(|name, link| {
        members.push((name.to_string(), link.link_type));
        Ok(())
    })?;
    Ok(members)
}

/// The order in which things were made is kept, and can be looked up.
pub(crate) const CREATION_ORDER: c_uint = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
