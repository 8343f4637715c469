//! Attributes: numbers and texts, single and in arrays.

use std::str::FromStr;

use hdf5_metno::types::{TypeDescriptor, VarLenAscii, VarLenUnicode};
use hdf5_metno::{Attribute as Stored, Extents, IndexType, IterationOrder, Location};

use crate::elements::datatype_of;
use crate::library::{Outcome, attribute_bytes, fill_attribute};

/// An attribute: its elements, and how they lie.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// The extents; none for a single value.
    pub shape: Vec<usize>,
    /// The values in row-major order.
    pub values: Values,
}

/// The values of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Truth values.
    Bools(Vec<bool>),
    /// Signed integers.
    Integers(Vec<i64>),
    /// Unsigned integers.
    Naturals(Vec<u64>),
    /// Floating-point numbers.
    Floats(Vec<f64>),
    /// Texts.
    Texts(Vec<String>),
    /// Values of an element type as NumPy writes it, such as `<f4`, as they lie in memory. (What is
    /// read is one of the others.)
    Elements(String, Vec<u8>),
}

/// How texts are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextForm {
    /// Of any length, in UTF-8, as h5py writes them.
    Any,
    /// Of fixed length where the text is a single one, as NetCDF's programs write them.
    Fixed,
}

impl Attribute {
    /// A single text.
    pub fn text(text: &str) -> Self {
        Self {
            shape: Vec::new(),
            values: Values::Texts(vec![text.to_string()]),
        }
    }

    /// A single integer.
    pub fn integer(number: i64) -> Self {
        Self {
            shape: Vec::new(),
            values: Values::Integers(vec![number]),
        }
    }
}

/// The names of the attributes of an object, in the order in which they were made if the object
/// keeps it, and otherwise in the order of the names.
pub(crate) fn names_of(object: &Location) -> Outcome<Vec<String>> {
    let mut names = Vec::new();
    object.iter_attrs(IndexType::Name, IterationOrder::Increasing, |name, info| {
        names.push((info.creation_order, name.to_string()));
        Ok(())
    })?;
    if names.iter().all(|(order, _)| order.is_some()) {
        names.sort_by_key(|(order, _)| *order);
    }
    Ok(names.into_iter().map(|(_, name)| name).collect())
}

/// The attributes of an object but for those that `is_own` names, in their order. An attribute of
/// another type than these is `None`.
pub(crate) fn attributes_of(
    object: &Location,
    is_own: impl Fn(&str) -> bool,
) -> Outcome<Vec<(String, Option<Attribute>)>> {
    let names = names_of(object)?.into_iter();
    let others = names.filter(|name| !is_own(name));
    let read = |name: String| {
        let attribute = read(&object.attr(&name)?)?;
        Ok((name, attribute))
    };
    others.map(read).collect()
}

/// Reads an attribute.
fn read(stored: &Stored) -> Outcome<Option<Attribute>> {
    let Ok(described) = stored.dtype()?.to_descriptor() else {
        return Ok(None);
    };
    if stored.space()?.is_null() {
        return Ok(None);
    }
    let texts = |texts: Vec<&str>| Values::Texts(texts.into_iter().map(str::to_string).collect());
    let values = match described {
        TypeDescriptor::Boolean => Values::Bools(stored.read_raw()?),
        TypeDescriptor::Integer(_) => Values::Integers(stored.read_raw()?),
        TypeDescriptor::Unsigned(_) => Values::Naturals(stored.read_raw()?),
        TypeDescriptor::Float(_) => Values::Floats(stored.read_raw()?),
        TypeDescriptor::VarLenUnicode => {
            let read: Vec<VarLenUnicode> = stored.read_raw()?;
            texts(read.iter().map(VarLenUnicode::as_str).collect())
        }
        TypeDescriptor::VarLenAscii => {
            let read: Vec<VarLenAscii> = stored.read_raw()?;
            let text = |text: &VarLenAscii| String::from_utf8_lossy(text.as_bytes()).into_owned();
            Values::Texts(read.iter().map(text).collect())
        }
        TypeDescriptor::FixedAscii(width) | TypeDescriptor::FixedUnicode(width) if width > 0 => {
            let bytes = attribute_bytes(stored, width * stored.size())?;
            let text = |text: &[u8]| {
                let end = text.iter().position(|&byte| byte == 0);
                String::from_utf8_lossy(&text[..end.unwrap_or(width)]).into_owned()
            };
            Values::Texts(bytes.chunks_exact(width).map(text).collect())
        }
        _ => return Ok(None),
    };
    Ok(Some(Attribute {
        shape: stored.shape(),
        values,
    }))
}

/// Gives an object an attribute.
pub(crate) fn write(
    object: &Location,
    name: &str,
    attribute: &Attribute,
    form: TextForm,
) -> Outcome<()> {
    let shape = attribute.shape.as_slice();
    let extents = || match shape {
        [] => Extents::Scalar,
        shape => Extents::from(shape),
    };
    match &attribute.values {
        Values::Bools(values) => {
            let new = object.new_attr::<bool>().shape(extents()).create(name)?;
            new.write_raw(values.as_slice())
        }
        Values::Integers(values) => {
            let new = object.new_attr::<i64>().shape(extents()).create(name)?;
            new.write_raw(values.as_slice())
        }
        Values::Naturals(values) => {
            let new = object.new_attr::<u64>().shape(extents()).create(name)?;
            new.write_raw(values.as_slice())
        }
        Values::Floats(values) => {
            let new = object.new_attr::<f64>().shape(extents()).create(name)?;
            new.write_raw(values.as_slice())
        }
        Values::Elements(element, bytes) => {
            let described = &datatype_of(element)?.to_descriptor()?;
            let builder = object.new_attr_builder().empty_as(described);
            fill_attribute(&builder.shape(extents()).create(name)?, bytes)
        }
        Values::Texts(texts) => match (texts.as_slice(), form) {
            ([text], TextForm::Fixed) if shape.is_empty() && !text.is_empty() => {
                let fixed = &TypeDescriptor::FixedUnicode(text.len());
                let new = object.new_attr_builder().empty_as(fixed).create(name)?;
                fill_attribute(&new, text.as_bytes())
            }
            _ => {
                let text = |text: &String| VarLenUnicode::from_str(text).map_err(|e| e.to_string());
                let texts = texts.iter().map(text).collect::<Result<Vec<_>, _>>()?;
                let new = object.new_attr::<VarLenUnicode>().shape(extents());
                new.create(name)?.write_raw(texts.as_slice())
            }
        },
    }
}
