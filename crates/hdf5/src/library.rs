//! What the crate of bindings has no safe function for.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use hdf5_metno::plist::{DatasetCreate, GroupCreate, PropertyList};
use hdf5_metno::{
    Attribute, Dataset, Dataspace, Datatype, Group, IndexType, IterationOrder, LinkType, Location,
    from_id, h5check, sync,
};
use hdf5_metno_sys::h5::herr_t;
use hdf5_metno_sys::h5a::{
    H5Aclose, H5Acreate2, H5Adelete, H5Aget_space, H5Aget_type, H5Aopen, H5Aread, H5Awrite,
};
use hdf5_metno_sys::h5d::{
    H5D_alloc_time_t, H5Dcreate2, H5Dget_space, H5Dget_storage_size, H5Dget_type, H5Dread,
    H5Dset_extent, H5Dvlen_get_buf_size, H5Dwrite, H5Dwrite_chunk,
};
use hdf5_metno_sys::h5g::H5Gcreate2;
use hdf5_metno_sys::h5i::hid_t;
use hdf5_metno_sys::h5l::H5Lcopy;
use hdf5_metno_sys::h5o::{H5O_COPY_WITHOUT_ATTR_FLAG, H5Ocopy};
use hdf5_metno_sys::h5p::{
    H5P_CLS_DATASET_CREATE, H5P_CLS_GROUP_CREATE, H5P_CLS_OBJECT_COPY, H5P_CRT_ORDER_INDEXED,
    H5P_CRT_ORDER_TRACKED, H5P_DEFAULT, H5Pcreate, H5Pget_fill_value, H5Pget_filter2,
    H5Pget_nfilters, H5Pset_alloc_time, H5Pset_attr_creation_order, H5Pset_chunk,
    H5Pset_copy_object, H5Pset_fill_value, H5Pset_filter, H5Pset_link_creation_order,
    H5Pset_obj_track_times,
};
use hdf5_metno_sys::h5s::{
    H5S_ALL, H5S_UNLIMITED, H5S_class_t, H5S_seloper_t, H5Sclose, H5Scopy, H5Screate,
    H5Screate_simple, H5Sget_simple_extent_ndims, H5Sget_simple_extent_npoints,
    H5Sselect_hyperslab,
};
use hdf5_metno_sys::h5t::{
    H5T_class_t, H5T_order_t, H5Tclose, H5Tcopy, H5Tcreate, H5Tdetect_class, H5Tget_class,
    H5Tget_size, H5Tinsert, H5Tis_variable_str, H5Treclaim, H5Tset_order,
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
    fn H5DSget_scale_name(scale: hid_t, name: *mut c_char, bytes: usize) -> isize;
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

/// A box of the elements of a dataset, which is at the beginning of a row-major box in memory.
struct Selection {
    file: Dataspace,
    memory: Dataspace,
}

impl Selection {
    /// Selects the box of `shape` at `start`; the box in memory has `extents`. The library is
    /// locked.
    fn new(dataset: &Dataset, (start, shape): (&[u64], &[u64]), extents: &[u64]) -> Outcome<Self> {
        let stored = dataset.space()?;
        if [start.len(), shape.len(), extents.len()] != [stored.ndim(); 3] {
            return Err("there are other dimensions".into());
        }
        // SAFETY: the space is open, and the slices have a number for each dimension.
        unsafe {
            let file: Dataspace = from_id(h5check(H5Scopy(stored.id()))?)?;
            let memory = match c_int::try_from(extents.len()).map_err(|e| e.to_string())? {
                0 => H5Screate(H5S_class_t::H5S_SCALAR),
                dimensions => H5Screate_simple(dimensions, extents.as_ptr(), ptr::null()),
            };
            let memory: Dataspace = from_id(h5check(memory)?)?;
            if !extents.is_empty() {
                let zeros = vec![0; extents.len()];
                for (space, start) in [(&file, start), (&memory, zeros.as_slice())] {
                    let (start, shape) = (start.as_ptr(), shape.as_ptr());
                    let (set, every) = (H5S_seloper_t::H5S_SELECT_SET, ptr::null());
                    h5check(H5Sselect_hyperslab(
                        space.id(),
                        set,
                        start,
                        every,
                        shape,
                        every,
                    ))?;
                }
            }
            Ok(Self { file, memory })
        }
    }
}

/// Reads a box of elements as elements of a type, which has no pointers, to the beginning of a
/// row-major box of `extents`, in which it fits.
pub(crate) fn read_box(
    dataset: &Dataset,
    element: &Datatype,
    place: (&[u64], &[u64]),
    extents: &[u64],
    data: &mut [u8],
) -> Outcome<()> {
    check_bytes(element, extents, data.len())?;
    sync::sync(|| {
        let selected = Selection::new(dataset, place, extents)?;
        let (memory, file) = (selected.memory.id(), selected.file.id());
        let data = data.as_mut_ptr().cast();
        // SAFETY: all identifiers are open, and the buffer has room for the box of `extents`, in
        // which the selected one lies.
        h5check(unsafe { H5Dread(dataset.id(), element.id(), memory, file, H5P_DEFAULT, data) })
            .map(drop)
    })
}

/// Writes a box of elements of a type, which has no pointers.
pub(crate) fn write_box(
    dataset: &Dataset,
    element: &Datatype,
    (start, shape): (&[u64], &[u64]),
    data: &[u8],
) -> Outcome<()> {
    check_bytes(element, shape, data.len())?;
    sync::sync(|| {
        let selected = Selection::new(dataset, (start, shape), shape)?;
        let (memory, file) = (selected.memory.id(), selected.file.id());
        let data = data.as_ptr().cast();
        // SAFETY: all identifiers are open, and the data are all of the elements.
        h5check(unsafe { H5Dwrite(dataset.id(), element.id(), memory, file, H5P_DEFAULT, data) })
            .map(drop)
    })
}

fn check_bytes(element: &Datatype, extents: &[u64], bytes: usize) -> Outcome<()> {
    let elements = extents.iter().product::<u64>();
    match elements.checked_mul(element.size() as u64) == Some(bytes as u64) {
        true => Ok(()),
        false => Err("there is another number of elements".into()),
    }
}

/// Gives a dataset other extents.
pub(crate) fn resize(dataset: &Dataset, shape: &[u64]) -> Outcome<()> {
    if shape.len() != dataset.ndim() {
        return Err("there are other dimensions".into());
    }
    // SAFETY: the dataset is open, and there is an extent for each dimension.
    call(|| unsafe { H5Dset_extent(dataset.id(), shape.as_ptr()) }).map(drop)
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
    Ok(visit_scales(dataset, dimension, FIRST)?.pop())
}

/// The paths of all scales of a dimension.
pub(crate) fn scales_of(dataset: &Dataset, dimension: u32) -> Outcome<Vec<String>> {
    visit_scales(dataset, dimension, ALL)
}

/// Whether a visit ends with the first scale.
const FIRST: herr_t = 1;
const ALL: herr_t = 0;

fn visit_scales(dataset: &Dataset, dimension: u32, end: herr_t) -> Outcome<Vec<String>> {
    struct Visit {
        found: Vec<String>,
        end: herr_t,
    }
    unsafe extern "C" fn visit(_: hid_t, _: c_uint, scale: hid_t, data: *mut c_void) -> herr_t {
        // SAFETY: the call below gives `data`, and the scale is open.
        unsafe {
            let visit = &mut *data.cast::<Visit>();
            visit
                .found
                .extend(name_of(|name, bytes| H5Iget_name(scale, name, bytes)));
            visit.end
        }
    }
    let mut visited = Visit {
        found: Vec::new(),
        end,
    };
    // SAFETY: the dataset is open, and `visited` lives as long as the call.
    let seen = call(|| unsafe {
        let data = (&raw mut visited).cast();
        H5DSiterate_scales(dataset.id(), dimension, ptr::null_mut(), visit, data)
    });
    seen.map(|_| visited.found)
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

/// The filters of a dataset, in the order in which they are applied. Of more than 256 parameters,
/// which only records have, there are the first ones.
pub(crate) fn filters_of(list: &DatasetCreate) -> Outcome<Vec<Filter>> {
    let mut filters = Vec::new();
    sync::sync(|| {
        // SAFETY: the list is open, and the buffer has as many parameters as the call says.
        unsafe {
            for number in 0..h5check(H5Pget_nfilters(list.id()))? {
                let number = c_uint::try_from(number).map_err(|e| e.to_string())?;
                let (mut flags, mut config) = (0, 0);
                let mut values: Vec<c_uint> = vec![0; PARAMETERS_MAX];
                let mut count = values.len();
                let found = H5Pget_filter2(
                    list.id(),
                    number,
                    &raw mut flags,
                    &raw mut count,
                    values.as_mut_ptr(),
                    0,
                    ptr::null_mut(),
                    &raw mut config,
                );
                values.truncate(count);
                filters.push(Filter {
                    number: h5check(found)?,
                    parameters: values,
                });
            }
            Ok(filters)
        }
    })
}

/// The most parameters of a filter that the library tells.
const PARAMETERS_MAX: usize = 256;

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

/// Makes a dataset. The library writes a fill value into it only if there is one, and gives zeros
/// for chunks that are not stored.
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

/// The names of the links of a group, and their kinds, in the order in which they were made if the
/// group keeps it, and otherwise in the order of the names.
pub(crate) fn members_of(group: &Group) -> Outcome<Vec<(String, LinkType)>> {
    let visit = |index| {
        let mut members = Vec::new();
        let visited = group.iter_visit(index, IterationOrder::Increasing, |name, link| {
            members.push((name.to_string(), link.link_type));
            Ok(())
        });
        visited.map(|()| members)
    };
    visit(IndexType::CreationOrder).or_else(|_| visit(IndexType::Name))
}

/// The order in which things were made is kept, and can be looked up.
pub(crate) const CREATION_ORDER: c_uint = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;

/// What an attribute holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttributeKind {
    /// Numbers or texts: one, a list, or none.
    Simple,
    /// Something that refers to objects of its own file.
    Reference,
    /// Anything else.
    Other,
}

/// The identifiers of an attribute, its type and its space, which are closed with this.
struct OpenAttribute {
    attribute: hid_t,
    element: hid_t,
    space: hid_t,
}

impl OpenAttribute {
    /// Opens an attribute. The library is locked.
    fn new(object: &Location, name: &CStr) -> Outcome<Self> {
        // SAFETY: the object is open, and the name ends with a zero.
        unsafe {
            let attribute = h5check(H5Aopen(object.id(), name.as_ptr(), H5P_DEFAULT))?;
            Ok(Self {
                attribute,
                element: H5Aget_type(attribute),
                space: H5Aget_space(attribute),
            })
        }
    }
}

impl Drop for OpenAttribute {
    fn drop(&mut self) {
        // SAFETY: nobody else has the identifiers.
        unsafe {
            H5Sclose(self.space);
            H5Tclose(self.element);
            H5Aclose(self.attribute);
        }
    }
}

/// The kind of an attribute.
pub(crate) fn kind_of_attribute(object: &Location, name: &str) -> Outcome<AttributeKind> {
    let name = text(name)?;
    sync::sync(|| {
        let open = OpenAttribute::new(object, &name)?;
        // SAFETY: type and space are open.
        unsafe {
            if h5check(H5Tdetect_class(open.element, H5T_class_t::H5T_REFERENCE))? > 0 {
                return Ok(AttributeKind::Reference);
            }
            let is_known = matches!(
                H5Tget_class(open.element),
                H5T_class_t::H5T_INTEGER | H5T_class_t::H5T_FLOAT | H5T_class_t::H5T_STRING
            );
            let is_list = H5Sget_simple_extent_ndims(open.space) <= 1;
            Ok(match is_known && is_list {
                true => AttributeKind::Simple,
                false => AttributeKind::Other,
            })
        }
    })
}

/// Copies an attribute in its type to an object of another file, in the place of one of that name.
/// It refers to no object.
pub(crate) fn copy_attribute(from: &Location, to: &Location, name: &str) -> Outcome<()> {
    let name = text(name)?;
    let is_there = to
        .attr_names()?
        .iter()
        .any(|n| n.as_bytes() == name.as_bytes());
    sync::sync(|| {
        let open = OpenAttribute::new(from, &name)?;
        // SAFETY: all identifiers are open, and the buffer has room for all elements in the type
        // in which they are read and written.
        unsafe {
            if is_there {
                h5check(H5Adelete(to.id(), name.as_ptr()))?;
            }
            let element = h5check(H5Tcopy(open.element))?; // one that has a name belongs to its file
            let (lists, access) = (H5P_DEFAULT, H5P_DEFAULT);
            let new = H5Acreate2(to.id(), name.as_ptr(), element, open.space, lists, access);
            let new = OpenAttribute {
                attribute: h5check(new)?,
                element,
                space: H5Scopy(open.space),
            };
            let elements = H5Sget_simple_extent_npoints(open.space);
            let elements = usize::try_from(elements).map_err(|e| e.to_string())?;
            let mut data = vec![0u64; (elements * H5Tget_size(element)).div_ceil(8)];
            if elements == 0 {
                return Ok(());
            }
            let data = data.as_mut_ptr().cast();
            h5check(H5Aread(open.attribute, element, data))?;
            let written = h5check(H5Awrite(new.attribute, element, data));
            h5check(H5Treclaim(element, open.space, H5P_DEFAULT, data))?;
            written.map(drop)
        }
    })
}

/// Copies an object to a group of another file, without its attributes.
pub(crate) fn copy_object(from: (&Group, &str), to: (&Group, &str)) -> Outcome<()> {
    if let Ok(dataset) = from.0.dataset(from.1)
        && has_lists(&dataset)?
    {
        return copy_lists(&dataset, to);
    }
    let (old, new) = (text(from.1)?, text(to.1)?);
    sync::sync(|| {
        // SAFETY: the groups are open, and the names end with zeros.
        unsafe {
            let list: PropertyList = from_id(h5check(H5Pcreate(*H5P_CLS_OBJECT_COPY))?)?;
            h5check(H5Pset_copy_object(list.id(), H5O_COPY_WITHOUT_ATTR_FLAG))?;
            let (source, target) = (from.0.id(), to.0.id());
            let (old, new) = (old.as_ptr(), new.as_ptr());
            h5check(H5Ocopy(source, old, target, new, list.id(), H5P_DEFAULT)).map(drop)
        }
    })
}

/// Whether elements of a dataset are of variable length.
fn has_lists(dataset: &Dataset) -> Outcome<bool> {
    let element = dataset.dtype()?;
    sync::sync(|| {
        // SAFETY: the type is open.
        unsafe {
            let kind = element.id();
            if H5Tget_class(kind) == H5T_class_t::H5T_STRING {
                return Ok(H5Tis_variable_str(kind) > 0);
            }
            // A text in a field may be of variable length, too.
            let has = |class| H5Tdetect_class(kind, class) > 0;
            Ok(has(H5T_class_t::H5T_VLEN) || has(H5T_class_t::H5T_STRING))
        }
    })
}

/// Copies a dataset of elements of variable length: the library's copy of an object would leave its
/// fill value in the other file.
fn copy_lists(dataset: &Dataset, (group, name): (&Group, &str)) -> Outcome<()> {
    let name = text(name)?;
    let (element, space, list) = (dataset.dtype()?, dataset.space()?, dataset.dcpl()?);
    sync::sync(|| {
        // SAFETY: all is open, and the buffer has room for all elements in the type in which they
        // are read and written.
        unsafe {
            let element: Datatype = from_id(h5check(H5Tcopy(element.id()))?)?;
            let (links, access) = (H5P_DEFAULT, H5P_DEFAULT);
            let (place, made, kind) = (group.id(), name.as_ptr(), element.id());
            let made = H5Dcreate2(place, made, kind, space.id(), links, list.id(), access);
            let made: Dataset = from_id(h5check(made)?)?;
            let elements = H5Sget_simple_extent_npoints(space.id());
            let elements = usize::try_from(elements).map_err(|e| e.to_string())?;
            if elements == 0 {
                return Ok(());
            }
            let mut data = vec![0u64; (elements * H5Tget_size(kind)).div_ceil(8)];
            let data = data.as_mut_ptr().cast();
            let (all, lists) = (H5S_ALL, H5P_DEFAULT);
            h5check(H5Dread(dataset.id(), kind, all, all, lists, data))?;
            let written = h5check(H5Dwrite(made.id(), kind, all, all, lists, data));
            h5check(H5Treclaim(kind, space.id(), lists, data))?;
            written.map(drop)
        }
    })
}

/// Copies a link that leads to a path.
pub(crate) fn copy_link(from: (&Group, &str), to: (&Group, &str)) -> Outcome<()> {
    let (old, new) = (text(from.1)?, text(to.1)?);
    // SAFETY: the groups are open, and the names end with zeros.
    let copied = call(|| unsafe {
        let (source, target) = (from.0.id(), to.0.id());
        let (lists, access) = (H5P_DEFAULT, H5P_DEFAULT);
        H5Lcopy(source, old.as_ptr(), target, new.as_ptr(), lists, access)
    });
    copied.map(drop)
}

/// The bytes that the elements of a dataset take, with those of variable length.
pub(crate) fn stored_bytes(dataset: &Dataset) -> Outcome<u64> {
    sync::sync(|| {
        // SAFETY: the dataset is open.
        unsafe {
            let stored = H5Dget_storage_size(dataset.id());
            let (element, space) = (H5Dget_type(dataset.id()), H5Dget_space(dataset.id()));
            let mut apart = 0;
            let has_lists = H5Tdetect_class(element, H5T_class_t::H5T_VLEN) > 0
                || H5Tis_variable_str(element) > 0;
            let looked = match has_lists {
                true => h5check(H5Dvlen_get_buf_size(
                    dataset.id(),
                    element,
                    space,
                    &raw mut apart,
                )),
                false => Ok(0),
            };
            H5Sclose(space);
            H5Tclose(element);
            looked.map(|_| stored.saturating_add(apart))
        }
    })
}

/// The name of a scale, if it has one.
pub(crate) fn scale_name(scale: &Dataset) -> Option<String> {
    sync::sync(|| {
        // SAFETY: the scale is open, and the buffer has these bytes.
        name_of(|name, bytes| unsafe { H5DSget_scale_name(scale.id(), name, bytes) })
    })
}
