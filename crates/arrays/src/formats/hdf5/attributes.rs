//! Attributes as JSON, and the other way.

use penstock_engine::{Error, Kind, Result};
use penstock_hdf5::{Attribute, Values};
use serde_json::{Map, Value};

use crate::json;

/// The attributes in JSON. Those of types that JSON does not have are left out.
pub(crate) fn to_json(attributes: Vec<(String, Option<Attribute>)>) -> Map<String, Value> {
    let known = attributes.into_iter().filter_map(|(name, attribute)| {
        let Attribute { shape, values } = attribute?;
        let values = match values {
            Values::Bools(values) => values.into_iter().map(Value::from).collect(),
            Values::Integers(values) => values.into_iter().map(Value::from).collect(),
            Values::Naturals(values) => values.into_iter().map(Value::from).collect(),
            Values::Floats(values) => values.into_iter().map(json::number).collect(),
            Values::Texts(values) => values.into_iter().map(json::string).collect(),
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
/// [`Kind::Unsupported`] for what HDF5 has no type for: objects, null, and lists of several types
/// or of lists.
pub(crate) fn of_json(attributes: &Map<String, Value>) -> Result<Vec<(String, Attribute)>> {
    let one = |(name, value): (&String, &Value)| {
        let (shape, values) = match value {
            Value::Array(values) => (vec![values.len()], values.as_slice()),
            value => (Vec::new(), std::slice::from_ref(value)),
        };
        match of_values(values) {
            Some(values) => Ok((name.clone(), Attribute { shape, values })),
            None => {
                let doing = format!("writing the attribute {name:?}");
                let cause = "HDF5 has texts, numbers and truth values, and lists of one of these";
                Err(Error::new(Kind::Unsupported, doing, cause))
            }
        }
    };
    attributes.iter().map(one).collect()
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
        let there = of_json(all).unwrap();
        let back = there.into_iter().map(|(name, value)| (name, Some(value)));
        assert_eq!(to_json(back.collect()), *all);
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
            let error = of_json(all.as_object().unwrap()).unwrap_err();
            assert_eq!(error.kind, Kind::Unsupported, "{text}");
        }
    }

    #[test]
    fn arrays_of_several_dimensions_are_lists_in_lists() {
        let attribute = Attribute {
            shape: vec![2, 3],
            values: Values::Integers((0..6).collect()),
        };
        let json = to_json(vec![
            ("a".to_string(), Some(attribute)),
            ("b".to_string(), None),
        ]);
        assert_eq!(
            Value::from(json),
            serde_json::json!({"a": [[0, 1, 2], [3, 4, 5]]})
        );
    }
}
