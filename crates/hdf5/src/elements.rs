//! Element types: HDF5's beside NumPy's, as h5py pairs them.

use hdf5_metno::Datatype;
use hdf5_metno::datatype::ByteOrder;
use hdf5_metno::types::{FloatSize, IntSize, TypeDescriptor};

use crate::library::{Outcome, big_endian, compound_of};

/// The element type of NumPy, such as `<f8`, for an HDF5 type; `None` if NumPy has none without
/// fields, or one that is stored otherwise.
pub(crate) fn numpy_of(stored: &Datatype) -> Option<String> {
    // Where there is no description, only the library itself understands the type.
    let letter = match stored.to_descriptor().ok()? {
        TypeDescriptor::Boolean => 'b',
        TypeDescriptor::Integer(_) => 'i',
        TypeDescriptor::Unsigned(_) => 'u',
        TypeDescriptor::Float(_) => 'f',
        TypeDescriptor::Compound(_) => 'c',
        _ => return None,
    };
    let width = stored.size();
    let is_big = stored.byte_order() == ByteOrder::BigEndian;
    let sign = match (width, is_big) {
        (1, _) => '|',
        (_, true) => '>',
        (_, false) => '<',
    };
    let word = format!("{sign}{letter}{width}");
    // Types of another form, such as integers of 8 bits of which 5 count, are not what the word
    // says.
    let is_same = datatype_of(&word).is_ok_and(|same| same == *stored);
    is_same.then_some(word)
}

/// The HDF5 type for NumPy's word of an element type, such as `<f8`.
pub(crate) fn datatype_of(word: &str) -> Outcome<Datatype> {
    let unknown = || format!("no element type of HDF5 is like {word:?}");
    let (sign, rest) = word.split_at_checked(1).ok_or_else(unknown)?;
    let (letter, width) = rest.split_at_checked(1).ok_or_else(unknown)?;
    let width: usize = width.parse().map_err(|_| unknown())?;
    let float = |bytes| FloatSize::from_int(bytes).ok_or_else(unknown);
    let int = |bytes| IntSize::from_int(bytes).ok_or_else(unknown);
    let described = match letter {
        "b" => TypeDescriptor::Boolean,
        "i" => TypeDescriptor::Integer(int(width)?),
        "u" => TypeDescriptor::Unsigned(int(width)?),
        "f" => TypeDescriptor::Float(float(width)?),
        "c" => {
            let part = datatype_of(&format!("{sign}f{}", width / 2))?;
            return compound_of(&part, &["r", "i"]); // as h5py has it
        }
        _ => return Err(unknown().into()),
    };
    let native = Datatype::from_descriptor(&described)?;
    match sign == ">" && cfg!(target_endian = "little") && width > 1 {
        true => big_endian(&native),
        false => Ok(native),
    }
}
