//! Fill values: the value of elements that were never written.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zarrs::array::{DataType, FillValue};
use zarrs::metadata::v3::MetadataV3;

use crate::dtype::{ByteOrder, ElementType, StoredElement};

/// The fill value: the bytes of one element, in the machine's byte order. The default is zero.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Fill(Vec<u8>);

impl Fill {
    /// The fill value with the bytes of one element.
    ///
    /// # Errors
    /// [`Kind::Schema`] when the number of bytes is not the element's width.
    pub fn new(element: &ElementType, bytes: &[u8]) -> Result<Self> {
        if bytes.len() as u64 != element.width() {
            let cause = format!("{} bytes for an element of {element}", bytes.len());
            return Err(Error::new(Kind::Schema, "reading a fill value", cause));
        }
        let is_zero = bytes.iter().all(|&byte| byte == 0);
        Ok(Self(if is_zero { Vec::new() } else { bytes.to_vec() }))
    }

    /// The element's bytes; none if it is zero.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the fill value is zero.
    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of one element, zeros included.
    pub fn element(&self, element: &ElementType) -> Vec<u8> {
        match self.is_zero() {
            true => vec![0; exact::<usize>(element.width())],
            false => self.0.clone(),
        }
    }

    /// The fill value of elements as a file has them.
    ///
    /// # Errors
    /// [`Kind::Schema`] when the number of bytes is not the element's width there.
    pub(crate) fn of_stored(stored: &StoredElement, bytes: &[u8]) -> Result<Self> {
        let element = stored.element();
        if bytes.len() as u64 != stored.width() {
            let cause = format!("{} bytes for an element of {element}", bytes.len());
            return Err(Error::new(Kind::Schema, "reading a fill value", cause));
        }
        let mut fill = vec![0; exact::<usize>(element.width())];
        stored.pack(bytes, &mut fill);
        Self::new(element, &fill)
    }

    /// The fill value as Zarr's metadata have it. Of a record these are its bytes in little-endian
    /// order, as base64.
    pub fn zarr(&self, element: &ElementType) -> Value {
        match element.record() {
            None => self.shown(element),
            Some(_) => {
                let little = StoredElement::of(element, ByteOrder::Little);
                STANDARD
                    .encode(little.stored(&self.element(element)))
                    .into()
            }
        }
    }

    /// The fill value in JSON: as Zarr has numbers, and of records an object with their fields.
    pub fn shown(&self, element: &ElementType) -> Value {
        shown(element, &self.element(element))
    }

    /// The fill value in words, also where it is no element: a rank may have sent it.
    pub(crate) fn words(&self, element: &ElementType) -> String {
        match Self::new(element, &self.element(element)) {
            Ok(fill) => fill.shown(element).to_string(),
            Err(_) => format!("{:?}", self.0),
        }
    }

    /// Reads the fill value of Zarr's metadata: of a record base64, or an object of its fields.
    ///
    /// # Errors
    /// [`Kind::Schema`] when the value is no such element.
    pub fn of_zarr(element: &ElementType, value: &Value) -> Result<Self> {
        let wrong = || {
            let cause = format!("{value} is no element of {element}");
            Error::new(Kind::Schema, "reading a fill value", cause)
        };
        if element.record().is_some()
            && let Some(text) = value.as_str()
        {
            let bytes = STANDARD.decode(text).map_err(|_| wrong())?;
            let little = StoredElement::of(element, ByteOrder::Little);
            return Self::of_stored(&little, &bytes).map_err(|_| wrong());
        }
        Self::new(element, &bytes_of(element, value).ok_or_else(wrong)?)
    }
}

/// The bytes of the element that a value of Zarr's metadata is. A field without a value is zero, as
/// zarr-python has it.
fn bytes_of(element: &ElementType, value: &Value) -> Option<Vec<u8>> {
    let Some(record) = element.record() else {
        let value = serde_json::from_value(value.clone()).ok()?;
        let fill = data_type(element)?.fill_value_v3(&value).ok()?;
        return Some(fill.as_ne_bytes().to_vec());
    };
    let values = value.as_object()?;
    let is_field = |name: &String| record.fields().iter().any(|field| field.name == *name);
    if !values.keys().all(is_field) {
        return None;
    }
    let mut bytes = Vec::new();
    for field in record.fields() {
        let element = &field.element;
        let of_field = match values.get(&field.name) {
            None => vec![0; exact::<usize>(element.width() * field.count())],
            Some(value) if field.shape.is_empty() => bytes_of(element, value)?,
            Some(_) => return None, // Zarr has no word for it
        };
        bytes.extend(of_field);
    }
    Some(bytes)
}

/// An element in JSON.
fn shown(element: &ElementType, bytes: &[u8]) -> Value {
    let Some(record) = element.record() else {
        let value = data_type(element).and_then(|data_type| {
            let fill = FillValue::new(bytes.to_vec());
            let value = data_type.metadata_fill_value(&fill).ok()?;
            serde_json::to_value(value).ok()
        });
        return value.unwrap_or_default(); // every element type is one of Zarr's
    };
    let mut rest = bytes;
    let fields = record.fields().iter().map(|field| {
        let width = exact::<usize>(field.element.width());
        let count = exact::<usize>(field.count());
        let (own, others) = rest.split_at(width * count);
        rest = others;
        let value = match field.shape.as_slice() {
            [] => shown(&field.element, own),
            _ => own
                .chunks_exact(width)
                .map(|bytes| shown(&field.element, bytes))
                .collect(),
        };
        (field.name.clone(), value)
    });
    fields.collect()
}

/// What `zarrs` has for elements of this type: for records, their bytes without a meaning.
pub(crate) fn data_type(element: &ElementType) -> Option<DataType> {
    let name = match element.name() {
        Some(name) => name.to_string(),
        None => format!("r{}", element.width() * 8),
    };
    DataType::from_metadata(&MetadataV3::new(name)).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_zarr_says_comes_back() {
        for (element, value) in [
            (ElementType::Bool, json!(true)),
            (ElementType::I2, json!(-9999)),
            (ElementType::U8, json!(u64::MAX)),
            (ElementType::F2, json!(1.5)),
            (ElementType::F4, json!("NaN")),
            (ElementType::F8, json!("-Infinity")),
            (ElementType::F8, json!("0x7ff8000000000001")),
            (ElementType::C16, json!([1.0, "NaN"])),
        ] {
            let fill = Fill::of_zarr(&element, &value).unwrap();
            assert_eq!(fill.zarr(&element), value, "{element}");
            assert_eq!(Fill::new(&element, fill.bytes()), Ok(fill));
        }
        for element in ElementType::all() {
            let zero = Fill::of_zarr(&element, &Fill::default().zarr(&element));
            assert_eq!(zero, Ok(Fill::default()), "{element}");
        }
    }

    #[test]
    fn what_is_no_element_is_refused() {
        for (element, value) in [
            (ElementType::U1, json!(-1)),
            (ElementType::F8, json!("x")),
            (ElementType::C8, json!(1)),
            (ElementType::I4, json!(null)),
        ] {
            let error = Fill::of_zarr(&element, &value).unwrap_err();
            assert_eq!(error.kind, Kind::Schema, "{element} {value}");
        }
        assert!(Fill::new(&ElementType::F8, &[0; 4]).is_err());
    }
}
