//! The memory of a NumPy array, used in place.

use numpy::npyffi::NPY_ARRAY_WRITEABLE;
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use penstock_arrays::calls::array::LocalPart;
use penstock_arrays::{ByteOrder, ElementType};
use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;
use penstock_machines::ClientMemory;
use pyo3::prelude::*;

/// This rank's parts of an array.
pub fn locals_of(locals: &[Bound<'_, PyUntypedArray>]) -> Result<Vec<LocalPart>> {
    locals.iter().map(local_of).collect()
}

/// NumPy's description of a dtype with fields.
fn descr_of(dtype: &Bound<'_, PyArrayDescr>) -> Result<String> {
    let described = dtype.getattr("descr").and_then(|descr| descr.repr());
    described.map(|text| text.to_string()).map_err(|_| {
        let cause = format!("its fields do not lie one behind the other: {dtype}");
        Error::new(Kind::Schema, "bringing a local array", cause)
    })
}

pub fn local_of(array: &Bound<'_, PyUntypedArray>) -> Result<LocalPart> {
    let dtype = array.dtype();
    let (sign, letter) = (dtype.byteorder() as char, dtype.kind() as char);
    let text = match dtype.has_fields() {
        true => descr_of(&dtype)?,
        false => format!("{sign}{letter}{}", dtype.itemsize()),
    };
    let element = ElementType::parse(&text);
    let (element, order) = element.map_err(|e| Error {
        doing: format!("reading the dtype {dtype}"),
        ..e
    })?;
    if order != ByteOrder::NATIVE && element.width() > 1 {
        let cause = format!("its elements are {dtype}: give them in the machine's byte order");
        return Err(Error::new(Kind::Schema, "bringing a local array", cause));
    }
    // SAFETY: the array object is alive, and so is the struct behind the pointer.
    let fields = unsafe { &(*array.as_array_ptr()).fields };
    let (base, is_writable) = (
        fields.data.cast::<u8>(),
        fields.flags & NPY_ARRAY_WRITEABLE != 0,
    );
    let memory = ClientMemory {
        base,
        extents: array.shape().iter().map(|&extent| extent as u64).collect(),
        strides: array.strides().to_vec(),
        width: exact::<usize>(element.width()),
    };
    Ok(LocalPart {
        memory,
        element,
        is_writable,
    })
}
