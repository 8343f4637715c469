//! Element types in the words of Zarr's metadata.
//!
//! | | the second format | the third format |
//! |---|---|---|
//! | a number | `"<f8"` | `"float64"` |
//! | a record | `[["x", "<f8"], ["n", "<i4"]]` | `{"name": "structured", "configuration": {"fields": [["x", "float64"], ["n", "int32"]]}}` |
//! | | | `{"name": "struct", "configuration": {"fields": [{"name": "x", "data_type": "float64"}, ...]}}` |
//!
//! Of the two forms of records `structured` is written, which zarr-python reads since 3.1, and
//! TensorStore; `struct` is that of Zarr's registry, and both are read. Chunks have records packed.
//! Fields that are small arrays have no word in the third format.

use std::sync::Arc;

use penstock_engine::{Error, Kind, Result};
use serde_json::{Value, json};

use crate::dtype::{ElementType, Field, Record, StoredElement};
use crate::literal::quoted;

/// The names of records in the third format: what is written, and the other.
const NAMES: [&str; 2] = ["structured", "struct"];

/// The `data_type` of an element type.
///
/// # Errors
/// [`Kind::Unsupported`] for a field that is an array.
pub(super) fn to_json(element: &ElementType) -> Result<Value> {
    let Some(record) = element.record() else {
        return Ok(json!(element.name()));
    };
    let field = |field: &Field| match field.shape.is_empty() {
        true => Ok(json!([field.name, to_json(&field.element)?])),
        false => {
            let cause = format!(
                "the field {:?} is an array of shape {:?}, for which Zarr has no data type: a .npy \
                 file can hold it",
                field.name, field.shape
            );
            Err(Error::new(Kind::Unsupported, "describing a record", cause))
        }
    };
    let fields: Vec<Value> = record.fields().iter().map(field).collect::<Result<_>>()?;
    Ok(json!({ "name": NAMES[0], "configuration": { "fields": fields } }))
}

/// The element type of a `data_type` of the third format.
///
/// # Errors
/// [`Kind::Unsupported`] for what is none; [`Kind::Schema`] for fields that make no record.
pub(super) fn of_third(data_type: &Value) -> Result<ElementType> {
    let unknown = || {
        let cause = format!("the element type {data_type}");
        Error::new(Kind::Unsupported, "reading", cause)
    };
    if let Some(name) = data_type.as_str() {
        let known = ElementType::all().find(|element| element.name() == Some(name));
        return known.ok_or_else(unknown);
    }
    let configuration = &data_type["configuration"];
    let fields = configuration["fields"].as_array();
    let is_record = NAMES.iter().any(|name| data_type["name"] == *name);
    match fields.filter(|_| is_record) {
        Some(fields) => {
            let fields = fields.iter().map(|field| {
                let (name, data_type) = match field.as_array().map(Vec::as_slice) {
                    Some([name, data_type]) => (name, data_type),
                    Some(_) => return Err(unknown()),
                    None => (&field["name"], &field["data_type"]),
                };
                Ok(Field {
                    name: name.as_str().ok_or_else(unknown)?.to_string(),
                    element: of_third(data_type)?,
                    shape: Vec::new(),
                })
            });
            let record = Record::new(fields.collect::<Result<_>>()?)?;
            Ok(ElementType::Record(Arc::new(record)))
        }
        // A type without a configuration may be written as an object, too.
        None => match data_type["name"].as_str() {
            Some(name) if configuration.as_object().is_none_or(|c| c.is_empty()) => {
                of_third(&json!(name)).map_err(|_| unknown())
            }
            _ => Err(unknown()),
        },
    }
}

/// The element of a `dtype` of the second format.
///
/// # Errors
/// [`Kind::Unsupported`] for what is none, and for padding.
pub(super) fn of_second(dtype: &Value) -> Result<StoredElement> {
    let unknown = |cause: String| Error::new(Kind::Unsupported, "reading", cause);
    let other = || unknown(format!("the element type {dtype}"));
    let text = match dtype.as_str() {
        Some(text) => text.to_string(),
        None => numpy_of(dtype).ok_or_else(other)?,
    };
    let stored = StoredElement::parse(&text).map_err(|_| other())?;
    match stored.has_padding() {
        true => Err(unknown(format!("padding in records, {dtype},"))),
        false => Ok(stored),
    }
}

/// NumPy's spelling of a `dtype` that is a list of fields.
fn numpy_of(dtype: &Value) -> Option<String> {
    let fields = dtype.as_array()?.iter().map(|field| {
        let parts = field.as_array()?;
        let (name, kind) = (parts.first()?.as_str()?, parts.get(1)?);
        let kind = match kind.as_str() {
            Some(kind) => quoted(kind),
            None => numpy_of(kind)?,
        };
        let shape = match parts.get(2..) {
            None | Some([]) => String::new(),
            Some([Value::Number(extent)]) => format!(", ({extent},)"),
            Some([shape]) => {
                let extents = shape.as_array()?.iter();
                let extents: Option<String> = extents
                    .map(|n| Some(format!("{}, ", n.as_u64()?)))
                    .collect();
                format!(", ({})", extents?)
            }
            Some(_) => return None,
        };
        Some(format!("({}, {kind}{shape})", quoted(name)))
    });
    let fields: Option<Vec<String>> = fields.collect();
    Some(format!("[{}]", fields?.join(", ")))
}
