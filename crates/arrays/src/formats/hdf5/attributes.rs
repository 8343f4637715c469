//! Attributes as JSON, and the other way.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use penstock_engine::{Error, Kind, Result};
use penstock_hdf5::{Attribute, FileForm, Values};
use serde_json::{Map, Value};

use crate::dtype::ElementType;
use crate::fill::Fill;
use crate::json;

/// The attributes in JSON. Those of types that JSON does not have are left out. NetCDF makes no
/// difference between a value and a list of one.
pub(crate) fn to_json(
    attributes: Vec<(String, Option<Attribute>)>,
    is_netcdf: bool,
) -> Map<String, Value> {
    let known = attributes.into_iter().filter_map(|(name, attribute)| {
        let Attribute { mut shape, values } = attribute?;
        if is_netcdf && shape == [1] {
            shape.clear();
        }
        let values = match values {
            Values::Bools(values) => values.into_iter().map(Value::from).collect(),
            Values::Integers(values) => values.into_iter().map(Value::from).collect(),
            Values::Naturals(values) => values.into_iter().map(Value::from).collect(),
            Values::Floats(values) => values.into_iter().map(json::number).collect(),
            Values::Texts(values) => values.into_iter().map(json::string).collect(),
            Values::Elements(..) => return None,
        };
        Some((name, nested(&shape, values)))
    });
    known.collect()
}

/// Values in row-major order as lists in lists.
fn nested(shape: &[usize], mut values: Vec<Value>) -> Value {
    match shape {
        [] => values.pop().unwrap_or_default(),
        [_] => Value::Array(values),
        [_, inner @ ..] => {
            let size = inner.iter().product::<usize>().max(1);
            let parts = values.chunks(size).map(|part| nested(inner, part.to_vec()));
            Value::Array(parts.collect())
        }
    }
}

/// The attributes as HDF5 has them.
///
/// # Errors
/// [`Kind::Unsupported`] for what such a file has no type for: objects, null, and lists of several
/// types or of lists; in NetCDF-4, truth values.
pub(crate) fn of_json(
    attributes: &Map<String, Value>,
    form: FileForm,
) -> Result<Vec<(String, Attribute)>> {
    let one = |(name, value): (&String, &Value)| match of_value(value, form) {
        Some(attribute) => Ok((name.clone(), attribute)),
        None => {
            let doing = format!("writing the attribute {name:?}");
            let cause = match form {
                FileForm::Hdf5 => {
                    "HDF5 has texts, numbers and truth values, and lists of one of these"
                }
                FileForm::NetCdf => "NetCDF has texts and numbers, and lists of one of these",
            };
            Err(Error::new(Kind::Unsupported, doing, cause))
        }
    };
    attributes.iter().map(one).collect()
}

/// The attributes of an array as HDF5 has them: NetCDF wants the fill value to be an element.
///
/// # Errors
/// As [`of_json`].
pub(crate) fn of_array(
    attributes: &Map<String, Value>,
    element: &ElementType,
    form: FileForm,
) -> Result<Vec<(String, Attribute)>> {
    let mut attributes = attributes.clone();
    let fill = match form {
        FileForm::NetCdf => attributes
            .get(FILL)
            .and_then(|value| fill_of(value, element)),
        FileForm::Hdf5 => None,
    };
    if fill.is_some() {
        attributes.remove(FILL);
    }
    let mut all = of_json(&attributes, form)?;
    all.extend(fill.map(|values| {
        let shape = Vec::new();
        (FILL.to_string(), Attribute { shape, values })
    }));
    Ok(all)
}

/// Removes the attributes for which such a file has no type.
pub(crate) fn drop_unfit(attributes: &mut Map<String, Value>, form: FileForm) {
    attributes.retain(|_, value| of_value(value, form).is_some());
}

/// The attribute of a variable's fill value, in NetCDF and for xarray.
const FILL: &str = "_FillValue";

/// The attribute `_FillValue` as xarray stores it in Zarr: numbers of floating point are eight
/// bytes in Base64.
pub(crate) fn for_xarray(attributes: &mut Map<String, Value>, element: &ElementType) {
    if let Some(value) = attributes.get_mut(FILL)
        && is_float(element)
        && let Some(number) = json::as_number(value)
    {
        *value = STANDARD.encode(number.to_le_bytes()).into();
    }
}

fn is_float(element: &ElementType) -> bool {
    matches!(element, ElementType::F2 | ElementType::F4 | ElementType::F8)
}

/// The fill value of an attribute as an element: a number, or one as xarray stores it.
fn fill_of(value: &Value, element: &ElementType) -> Option<Values> {
    let number = match value {
        Value::String(text) if is_float(element) && json::as_number(value).is_none() => {
            let bytes = STANDARD.decode(text).ok()?;
            Some(f64::from_le_bytes(bytes.try_into().ok()?))
        }
        value => json::as_number(value),
    }?;
    let value = match number {
        _ if !is_float(element) => value.clone(),
        number if number.is_nan() => "NaN".into(),
        number if number.is_infinite() && number > 0.0 => "Infinity".into(),
        number if number.is_infinite() => "-Infinity".into(),
        number => number.into(),
    };
    let fill = Fill::of_zarr(element, &value).ok()?;
    Some(Values::Elements(element.numpy(), fill.element(element)))
}

fn of_value(value: &Value, form: FileForm) -> Option<Attribute> {
    let (shape, values) = match value {
        Value::Array(values) => (vec![values.len()], values.as_slice()),
        value => (Vec::new(), std::slice::from_ref(value)),
    };
    let values = of_values(values)?;
    let is_fit = form == FileForm::Hdf5 || !matches!(values, Values::Bools(_));
    is_fit.then_some(Attribute { shape, values })
}

fn of_values(values: &[Value]) -> Option<Values> {
    let all = values.iter();
    if values.iter().any(|value| json::as_number(value).is_some()) {
        if let Some(integers) = all.clone().map(Value::as_i64).collect() {
            return Some(Values::Integers(integers));
        }
        if let Some(naturals) = all.clone().map(Value::as_u64).collect() {
            return Some(Values::Naturals(naturals));
        }
        return all
            .map(json::as_number)
            .collect::<Option<_>>()
            .map(Values::Floats);
    }
    if let Some(bools) = all.clone().map(Value::as_bool).collect::<Option<Vec<_>>>()
        && !bools.is_empty()
    {
        return Some(Values::Bools(bools));
    }
    all.map(json::as_string)
        .collect::<Option<_>>()
        .map(Values::Texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_the_same_there_and_back() {
        let text = r#"{"a": 1, "b": -1.5, "c": NaN, "d": [1, 2], "e": [1.0, 2.5, -Infinity], "f": "x",
            "g": ["x", ""], "h": true, "i": [], "j": 18446744073709551615, "k": [false],
            "l": "\ue000NaN"}"#;
        let all = json::parse(text.as_bytes()).unwrap();
        let all = all.as_object().unwrap();
        let there = of_json(all, FileForm::Hdf5).unwrap();
        let back = there.into_iter().map(|(name, value)| (name, Some(value)));
        assert_eq!(to_json(back.collect(), false), *all);
    }

    #[test]
    fn what_hdf5_has_no_type_for_is_refused() {
        for text in [
            r#"{"a": {}}"#,
            r#"{"a": null}"#,
            r#"{"a": [1, "x"]}"#,
            r#"{"a": [[1]]}"#,
        ] {
            let all = json::parse(text.as_bytes()).unwrap();
            let error = of_json(all.as_object().unwrap(), FileForm::Hdf5).unwrap_err();
            assert_eq!(error.kind, Kind::Unsupported, "{text}");
        }
    }

    #[test]
    fn arrays_of_several_dimensions_are_lists_in_lists() {
        let attribute = Attribute {
            shape: vec![2, 3],
            values: Values::Integers((0..6).collect()),
        };
        let json = to_json(
            vec![("a".to_string(), Some(attribute)), ("b".to_string(), None)],
            true,
        );
        assert_eq!(
            Value::from(json),
            serde_json::json!({"a": [[0, 1, 2], [3, 4, 5]]})
        );
    }
}
