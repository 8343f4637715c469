//! Fill values: the value of elements that were never written.

use penstock_engine::{Error, Kind, Result};
use penstock_layout::exact;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zarrs::array::{DataType, FillValue};
use zarrs::metadata::v3::MetadataV3;

use crate::dtype::ElementType;

/// The fill value: the bytes of one element, in the machine's byte order. The default is zero.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Fill(Vec<u8>);

impl Fill {
    /// The fill value with the bytes of one element.
    ///
    /// # Errors
    /// [`Kind::Schema`] when the number of bytes is not the element's width.
    pub fn new(element: ElementType, bytes: &[u8]) -> Result<Self> {
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
    pub fn element(&self, element: ElementType) -> Vec<u8> {
        match self.is_zero() {
            true => vec![0; exact::<usize>(element.width())],
            false => self.0.clone(),
        }
    }

    /// The fill value as Zarr's metadata have it.
    pub fn zarr(&self, element: ElementType) -> Value {
        let value = data_type(element).and_then(|data_type| {
            let fill = FillValue::new(self.element(element));
            let value = data_type.metadata_fill_value(&fill).ok()?;
            serde_json::to_value(value).ok()
        });
        value.unwrap_or_default() // every element type is one of Zarr's
    }

    /// The fill value in words, also where it is no element: a rank may have sent it.
    pub(crate) fn words(&self, element: ElementType) -> String {
        match Self::new(element, &self.element(element)) {
            Ok(fill) => fill.zarr(element).to_string(),
            Err(_) => format!("{:?}", self.0),
        }
    }

    /// Reads the fill value of Zarr's metadata.
    ///
    /// # Errors
    /// [`Kind::Schema`] when the value is no such element.
    pub fn of_zarr(element: ElementType, value: &Value) -> Result<Self> {
        let fill = data_type(element).and_then(|data_type| {
            let value = serde_json::from_value(value.clone()).ok()?;
            data_type.fill_value_v3(&value).ok()
        });
        let wrong = || {
            let cause = format!("{value} is no element of {element}");
            Error::new(Kind::Schema, "reading a fill value", cause)
        };
        Self::new(element, fill.ok_or_else(wrong)?.as_ne_bytes())
    }
}

pub(crate) fn data_type(element: ElementType) -> Option<DataType> {
    DataType::from_metadata(&MetadataV3::new(element.zarr())).ok()
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
            let fill = Fill::of_zarr(element, &value).unwrap();
            assert_eq!(fill.zarr(element), value, "{element}");
            assert_eq!(Fill::new(element, fill.bytes()), Ok(fill));
        }
        for element in ElementType::all() {
            let zero = Fill::of_zarr(element, &Fill::default().zarr(element));
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
            let error = Fill::of_zarr(element, &value).unwrap_err();
            assert_eq!(error.kind, Kind::Schema, "{element} {value}");
        }
        assert!(Fill::new(ElementType::F8, &[0; 4]).is_err());
    }
}
