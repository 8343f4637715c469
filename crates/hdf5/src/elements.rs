//! Element types: HDF5's beside NumPy's, as h5py pairs them.

use hdf5_metno::datatype::ByteOrder;
use hdf5_metno::types::{FloatSize, IntSize, TypeDescriptor};
use hdf5_metno::{Datatype, h5check, sync};
use hdf5_metno_sys::h5t::{
    H5T_class_t, H5T_sign_t, H5Tget_class, H5Tget_fields, H5Tget_precision, H5Tget_sign,
};

use crate::library::{Outcome, big_endian, compound_of};

/// The bits of exponent and mantissa of NumPy's floating-point numbers, by their bytes.
const FLOATS: [(usize, usize, usize); 3] = [(2, 5, 10), (4, 8, 23), (8, 11, 52)];

/// What the elements of a dataset are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Element {
    /// As NumPy has them, such as `<f8`.
    Stored(String),
    /// Numbers of another form, such as integers of 12 bits. The library makes numbers of this type
    /// of them, in the byte order of the machine, and each has the same value.
    Converted(String),
    /// Anything else, in words that follow \"elements are\".
    Other(String),
}

/// The elements of this type.
pub(crate) fn element_of(stored: &Datatype) -> Outcome<Element> {
    if let Some(word) = numpy_of(stored) {
        return Ok(Element::Stored(word));
    }
    // SAFETY: the type is open.
    let class = sync::sync(|| unsafe { H5Tget_class(stored.id()) });
    let (letter, bytes) = match class {
        H5T_class_t::H5T_INTEGER => integers(stored),
        H5T_class_t::H5T_FLOAT => ('f', floats(stored)?),
        class => return Ok(Element::Other(words_of(class, stored))),
    };
    let Some(bytes) = bytes else {
        let words = format!("numbers of {} bytes", stored.size());
        return Ok(Element::Other(words));
    };
    let sign = match bytes {
        1 => '|',
        _ if cfg!(target_endian = "big") => '>',
        _ => '<',
    };
    Ok(Element::Converted(format!("{sign}{letter}{bytes}")))
}

/// The kind of integers, and the bytes that the bits that count take.
fn integers(stored: &Datatype) -> (char, Option<usize>) {
    // SAFETY: the type is open, and one of integers.
    let (sign, bits) =
        sync::sync(|| unsafe { (H5Tget_sign(stored.id()), H5Tget_precision(stored.id())) });
    let letter = match sign {
        H5T_sign_t::H5T_SGN_NONE => 'u',
        _ => 'i',
    };
    (
        letter,
        [1, 2, 4, 8].into_iter().find(|bytes| bits <= bytes * 8),
    )
}

/// The bytes of the smallest floating-point numbers that have all those of a stored type.
fn floats(stored: &Datatype) -> Outcome<Option<usize>> {
    let (mut exponent, mut mantissa) = (0, 0);
    let (mut sign, mut first, mut low) = (0, 0, 0);
    sync::sync(|| {
        // SAFETY: the type is open, and one of floating-point numbers.
        h5check(unsafe {
            H5Tget_fields(
                stored.id(),
                &raw mut sign,
                &raw mut first,
                &raw mut exponent,
                &raw mut low,
                &raw mut mantissa,
            )
        })
    })?;
    let mut wide = FLOATS.into_iter();
    let wide = wide.find(|&(_, e, m)| exponent <= e && mantissa <= m);
    Ok(wide.map(|(bytes, ..)| bytes))
}

/// What elements of this class are, in words.
fn words_of(class: H5T_class_t, stored: &Datatype) -> String {
    let words = match class {
        H5T_class_t::H5T_STRING => "texts",
        H5T_class_t::H5T_BITFIELD => "bit fields",
        H5T_class_t::H5T_OPAQUE => "opaque bytes",
        H5T_class_t::H5T_REFERENCE => "references to objects",
        H5T_class_t::H5T_ENUM => "words of an enumeration",
        H5T_class_t::H5T_VLEN => "lists of any length",
        H5T_class_t::H5T_ARRAY => "arrays",
        H5T_class_t::H5T_COMPOUND => {
            let Ok(TypeDescriptor::Compound(record)) = stored.to_descriptor() else {
                return "records".to_string();
            };
            let fields: Vec<_> = record.fields.into_iter().map(|field| field.name).collect();
            return format!("records of {}", fields.join(", "));
        }
        _ => "of a type that has no name",
    };
    words.to_string()
}

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
