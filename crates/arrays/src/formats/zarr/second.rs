//! Translates metadata of the second format into the third.

use base64::Engine;
use penstock_engine::Result;
use serde_json::{Map, Value, json};
use zarrs::array::ArrayMetadataV2;
use zarrs::convert::array_metadata_v2_to_v3;

use super::data_type;
use crate::dtype::{ByteOrder, ElementType, StoredElement};
use crate::fill::Fill;

/// The attribute in which xarray keeps an array's dimension names in the second format.
const DIMENSIONS: &str = "_ARRAY_DIMENSIONS";
/// The attribute in which xarray keeps the missing value in the third format.
const MISSING: &str = "_FillValue";
/// The bytes of a character in NumPy's strings.
const CHARACTER_BYTES: u64 = 4;

/// The codecs from array to array, as the third format names them: they come before the codec that
/// makes bytes of the array, and all others after it.
const OF_ARRAYS: [&str; 7] = [
    "transpose",
    "numcodecs.astype",
    "numcodecs.bitround",
    "numcodecs.delta",
    "numcodecs.fixedscaleoffset",
    "numcodecs.packbits",
    "numcodecs.quantize",
];
/// The codecs that make bytes of an array.
const OF_ELEMENTS: [&str; 3] = ["bytes", "vlen-bytes", "vlen-utf8"];

/// Replaces what `zarrs` does not take. A null fill value of complex numbers becomes zero, as NumPy
/// has it: `zarrs` does so for other numbers. An array without dimensions gets C order: for
/// Fortran's, `zarrs` takes it for granted that there are dimensions, and has undefined behaviour.
pub(super) fn suited(raw: &Value) -> Value {
    let mut raw = raw.clone();
    let is_complex = raw["dtype"]
        .as_str()
        .is_some_and(|dtype| dtype.trim_start_matches(['<', '>']).starts_with('c'));
    if raw["fill_value"].is_null() && is_complex {
        raw["fill_value"] = json!([0.0, 0.0]);
    }
    if raw["shape"].as_array().is_some_and(Vec::is_empty) {
        raw["order"] = "C".into();
    }
    raw
}

/// The fill value of records: the bytes of one, as base64, or nothing for zeros.
///
/// # Errors
/// [`Kind::Schema`](penstock_engine::Kind::Schema) for anything else.
pub(super) fn fill_of(element: &StoredElement, value: &Value) -> Result<Fill> {
    let bytes = match value {
        Value::Null => return Ok(Fill::default()),
        // zarr-python 2 writes a zero for zeros.
        zero if *zero == 0 => return Ok(Fill::default()),
        value => value
            .as_str()
            .and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok()),
    };
    match bytes {
        Some(bytes) => Fill::of_stored(element, &bytes),
        None => Fill::of_zarr(element.element(), value),
    }
}

/// The codecs of the third format that do what the metadata of the second describe, if there are
/// such.
pub(super) fn codecs(raw: &Value) -> Option<Vec<Value>> {
    let mut known = suited(raw);
    if raw["dtype"].is_array() {
        // Codecs depend on the width of records alone.
        let width = data_type::of_second(&raw["dtype"]).ok()?.width();
        (known["dtype"], known["fill_value"]) = (format!("|V{width}").into(), Value::Null);
    }
    let filters = raw["filters"].as_array().cloned().unwrap_or_default();
    let makes_bytes = |filter: &Value| OF_ELEMENTS.iter().any(|name| filter["id"] == *name);
    let (of_elements, others): (Vec<Value>, Vec<Value>) =
        filters.into_iter().partition(makes_bytes);
    if !of_elements.is_empty() {
        // `zarrs` would leave out the compressor after such a filter.
        known["filters"] = others.into();
        (known["dtype"], known["fill_value"]) = ("|u1".into(), 0.into());
    }
    let metadata: ArrayMetadataV2 = serde_json::from_value(known).ok()?;
    let third = array_metadata_v2_to_v3(&metadata).ok()?;
    let codecs = third.codecs.iter().map(serde_json::to_value);
    let mut codecs: Vec<Value> = codecs.collect::<serde_json::Result<_>>().ok()?;
    if let [filter] = of_elements.as_slice()
        && let Some(bytes) = codecs.iter_mut().find(|codec| codec["name"] == "bytes")
    {
        *bytes = json!({ "name": filter["id"], "configuration": {} });
    }
    sort(&mut codecs);
    Some(codecs)
}

/// The codecs of the third format for codecs that Penstock does not know, under the names that
/// zarr-python gives to numcodecs' codecs.
fn foreign_codecs(raw: &Value, dims: usize) -> Option<Vec<Value>> {
    let mut codecs = Vec::new();
    if raw["order"] == "F" {
        let order: Vec<usize> = (0..dims).rev().collect();
        codecs.push(json!({ "name": "transpose", "configuration": { "order": order } }));
    }
    let filters = raw["filters"].as_array().map_or(&[][..], Vec::as_slice);
    let compressor = Some(&raw["compressor"]).filter(|compressor| !compressor.is_null());
    for codec in filters.iter().chain(compressor) {
        let mut configuration = codec.as_object()?.clone();
        let id = configuration.remove("id")?;
        let id = id.as_str()?;
        let name = match OF_ELEMENTS.contains(&id) {
            true => id.to_string(),
            false => format!("numcodecs.{id}"),
        };
        codecs.push(json!({ "name": name, "configuration": configuration }));
    }
    if !codecs.iter().any(|codec| class(codec) == 1) {
        codecs.push(json!({ "name": "bytes", "configuration": { "endian": "little" } }));
    }
    sort(&mut codecs);
    Some(codecs)
}

/// The class of a codec: from array to array (0), from array to bytes (1), or from bytes to bytes
/// (2).
fn class(codec: &Value) -> usize {
    let is_in = |names: &[&str]| names.iter().any(|name| codec["name"] == *name);
    match (is_in(&OF_ARRAYS), is_in(&OF_ELEMENTS)) {
        (true, _) => 0,
        (_, true) => 1,
        _ => 2,
    }
}

/// Sorts codecs by class: the second format may filter bytes before a codec makes bytes.
fn sort(codecs: &mut [Value]) {
    codecs.sort_by_key(class);
}

/// The dimension names and attributes, by xarray's conventions: an attribute holds the names, and
/// the fill value of an array with names means what `_FillValue` means in the third format.
/// `missing` is this fill value, as the third format writes it.
pub(super) fn names_and_attributes(
    mut attributes: Map<String, Value>,
    missing: Option<Value>,
) -> (Option<Vec<String>>, Map<String, Value>) {
    let names = attributes.remove(DIMENSIONS);
    if names.is_some()
        && let Some(missing) = missing
    {
        attributes.entry(MISSING).or_insert(missing);
    }
    let names = names.and_then(|names| serde_json::from_value(names).ok());
    (names, attributes)
}

/// An element as xarray writes it in an attribute `_FillValue` of the third format: floating-point
/// numbers are the base64 of a little-endian double, so that no bit is lost.
pub(super) fn missing_value(element: &ElementType, bytes: &[u8]) -> Value {
    let double = |value: &Value| {
        let number = match value.as_str() {
            None => value.as_f64().unwrap_or_default(),
            Some("Infinity") => f64::INFINITY,
            Some("-Infinity") => f64::NEG_INFINITY,
            Some(_) => f64::NAN,
        };
        json!(base64::engine::general_purpose::STANDARD.encode(number.to_le_bytes()))
    };
    let value = Fill::new(element, bytes).unwrap_or_default().zarr(element);
    match element {
        ElementType::F2 | ElementType::F4 | ElementType::F8 => double(&value),
        ElementType::C8 | ElementType::C16 => json!([double(&value[0]), double(&value[1])]),
        _ => value,
    }
}

/// The `zarr.json` of an array of the second format whose elements Penstock does not understand,
/// such as strings and moments: its chunks can stay as they are. `None` if the third format has no
/// word for it.
pub(crate) fn array_json(raw: &Value, attributes: Map<String, Value>) -> Option<Value> {
    let dtype = raw["dtype"].as_str()?;
    let foreign = Foreign::of(dtype);
    let mut known = raw.clone();
    if let Some(foreign) = &foreign {
        // Codecs depend on the width alone.
        known["dtype"] = format!("|V{}", foreign.width.max(1)).into();
        known["fill_value"] = Value::Null;
    }
    let codecs = codecs(&known);
    if codecs.is_none() {
        (known["filters"], known["compressor"]) = (Value::Null, Value::Null);
    }
    let metadata: ArrayMetadataV2 = serde_json::from_value(suited(&known)).ok()?;
    let third = array_metadata_v2_to_v3(&metadata).ok()?;
    let mut json = serde_json::to_value(third).ok()?;
    let dims = json["shape"].as_array()?.len();
    let mut codecs = codecs.or_else(|| foreign_codecs(raw, dims))?;
    if dtype == "|O" && codecs.iter().any(|codec| codec["name"] == "bytes") {
        return None; // Python's objects
    }
    let order = match dtype.starts_with('>') {
        true => ByteOrder::Big,
        false => ByteOrder::Little,
    };
    if let Some(bytes) = codecs.iter_mut().find(|codec| codec["name"] == "bytes") {
        bytes["configuration"] = json!({ "endian": order.name() });
    }
    json["codecs"] = codecs.into();
    let missing = Some(raw["fill_value"].clone()).filter(|fill| !fill.is_null());
    if let Some(foreign) = foreign {
        json["fill_value"] = missing.clone().unwrap_or(foreign.empty);
        json["data_type"] = foreign.data_type;
    }
    let missing = match ElementType::parse(dtype) {
        // The element type is known, but not the codec.
        Ok((element, _)) => Fill::of_zarr(&element, &json["fill_value"])
            .ok()
            .filter(|_| missing.is_some())
            .map(|fill| missing_value(&element, &fill.element(&element))),
        Err(_) => missing,
    };
    let (names, attributes) = names_and_attributes(attributes, missing);
    json["attributes"] = attributes.into();
    if let Some(names) = names {
        json["dimension_names"] = names.into();
    }
    Some(json)
}

/// A type of NumPy's without words in `zarrs`, in the words of zarr-python.
struct Foreign {
    data_type: Value,
    width: u64,
    /// The empty value of the type.
    empty: Value,
}

impl Foreign {
    /// The type for `<U12`, `|S3`, `<M8[ns]` and the like.
    fn of(dtype: &str) -> Option<Self> {
        let (_, rest) = dtype.split_at_checked(1)?;
        let (kind, rest) = rest.split_at_checked(1)?;
        let named = |name: &str, configuration: Value| json!({ "name": name, "configuration": configuration });
        let of_width = |name: &str, width: u64| named(name, json!({ "length_bytes": width }));
        let (data_type, width, empty) = match kind {
            "U" => {
                let width = rest.parse::<u64>().ok()?.checked_mul(CHARACTER_BYTES)?;
                (of_width("fixed_length_utf32", width), width, json!(""))
            }
            "S" => {
                let width = rest.parse().ok()?;
                (of_width("null_terminated_bytes", width), width, json!(""))
            }
            "V" => {
                let width: u64 = rest.parse().ok()?;
                let zeros = vec![0; usize::try_from(width).ok()?];
                let zeros = base64::engine::general_purpose::STANDARD.encode(zeros);
                (of_width("raw_bytes", width), width, json!(zeros))
            }
            "M" | "m" => {
                let name = match kind {
                    "M" => "numpy.datetime64",
                    _ => "numpy.timedelta64",
                };
                let unit = rest.strip_prefix("8[")?.strip_suffix(']')?;
                let letters = unit.trim_start_matches(|c: char| c.is_ascii_digit());
                let factor = &unit[..unit.len() - letters.len()];
                let factor = if factor.is_empty() {
                    1
                } else {
                    factor.parse().ok()?
                };
                let unit = json!({ "unit": letters, "scale_factor": factor });
                (named(name, unit), 8, json!("NaT"))
            }
            _ => return None,
        };
        Some(Self {
            data_type,
            width,
            empty,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(dtype: &str, fill_value: Value) -> Value {
        json!({
            "zarr_format": 2, "shape": [5], "chunks": [2], "dtype": dtype, "order": "C",
            "fill_value": fill_value, "filters": null,
            "compressor": { "id": "zlib", "level": 1 },
        })
    }

    #[test]
    fn numpys_types_have_the_words_of_zarr_python() {
        for (dtype, data_type, empty) in [
            (
                "<U2",
                json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}),
                "",
            ),
            (
                "|S3",
                json!({"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}}),
                "",
            ),
            (
                "|V2",
                json!({"name": "raw_bytes", "configuration": {"length_bytes": 2}}),
                "AAA=",
            ),
            (
                "<M8[10us]",
                json!({"name": "numpy.datetime64", "configuration": {"unit": "us", "scale_factor": 10}}),
                "NaT",
            ),
            (
                ">m8[s]",
                json!({"name": "numpy.timedelta64", "configuration": {"unit": "s", "scale_factor": 1}}),
                "NaT",
            ),
        ] {
            let attributes = Map::from_iter([(DIMENSIONS.to_string(), json!(["x"]))]);
            let json = array_json(&raw(dtype, Value::Null), attributes).unwrap();
            assert_eq!(json["data_type"], data_type);
            assert_eq!(json["fill_value"], empty);
            assert_eq!(json["dimension_names"], json!(["x"]));
            assert_eq!(json["attributes"], json!({}));
            let endian = if dtype.starts_with('>') {
                "big"
            } else {
                "little"
            };
            assert_eq!(json["codecs"][0]["configuration"]["endian"], endian);
        }
        let attributes = Map::from_iter([(DIMENSIONS.to_string(), json!(["x"]))]);
        let json = array_json(&raw("<U2", json!("-")), attributes).unwrap();
        assert_eq!(json["attributes"], json!({ "_FillValue": "-" }));
    }

    #[test]
    fn codecs_come_in_the_order_of_the_third_format() {
        let mut known = raw("<f8", json!(0.0));
        known["filters"] = json!([{ "id": "shuffle", "elementsize": 8 }]);
        let names = |codecs: Vec<Value>| {
            let names = codecs
                .into_iter()
                .map(|codec| codec["name"].as_str().unwrap().to_string());
            names.collect::<Vec<_>>().join(" ")
        };
        let found = codecs(&known).unwrap();
        assert_eq!(names(found), "bytes numcodecs.shuffle numcodecs.zlib");
        known["filters"] = json!([{ "id": "vlen-utf8" }]);
        known["dtype"] = "|O".into();
        assert_eq!(names(codecs(&known).unwrap()), "vlen-utf8 numcodecs.zlib");
        known["dtype"] = "<f8".into();
        known["filters"] = json!([{ "id": "delta", "dtype": "<f8" }]);
        known["compressor"] = json!({ "id": "lzma", "preset": 1 });
        known["order"] = "F".into();
        let json = array_json(&known, Map::new()).unwrap();
        let found = json["codecs"].as_array().unwrap().clone();
        assert_eq!(
            names(found),
            "transpose numcodecs.delta bytes numcodecs.lzma"
        );
        assert_eq!(json["codecs"][3]["configuration"], json!({ "preset": 1 }));
    }

    #[test]
    fn what_has_no_word_is_not_taken() {
        for dtype in [
            "",
            "<",
            "é",
            "<Ux",
            "<M8",
            "<M8[",
            "|O",
            "<U99999999999999999999",
        ] {
            assert_eq!(
                array_json(&raw(dtype, Value::Null), Map::new()),
                None,
                "{dtype}"
            );
        }
        let mut records = raw("", Value::Null);
        records["dtype"] = json!([["a", "<f8"]]);
        assert_eq!(array_json(&records, Map::new()), None);
    }
}
