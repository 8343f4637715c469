//! Reads references in one JSON file, of version 1 of the format and of version 0.
//!
//! ```text
//! version 1   {"version": 1, "templates": {"a": "s3://bucket"}, "refs": {key: reference, ...}}
//! version 0   {key: reference, ...}
//! reference   "text" | "base64:..." | {...} | ["{{a}}/file"] | ["file", offset, length]
//! ```
//!
//! The text is read in one pass, without a tree of values: a set has millions of keys. Templates
//! are names that are put in place of `{{name}}`; expressions, and references that a program is to
//! generate (`gen`), are refused.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use base64::Engine;
use penstock_engine::{Error, Kind, Result};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::reference::{FileNames, Reference};
use crate::fs::files::damaged;

/// The beginning of bytes that are no text.
const BASE64: &str = "base64:";
/// The ends of the keys of metadata.
const METADATA: [&str; 3] = [".zgroup", ".zarray", "zarr.json"];

/// The references by their keys, and their files; `None` if the text is JSON of another kind.
///
/// # Errors
/// [`Kind::Damaged`] when it is no JSON, or not of the format; [`Kind::Unsupported`] for other
/// versions, generated references and expressions in templates.
pub(super) fn parse(
    text: &[u8],
    path: &Path,
) -> Result<Option<(BTreeMap<String, Reference>, FileNames)>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut set = Set::default();
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = reader.deserialize_map(Whole(&mut set));
    let read = read.and_then(|()| reader.end());
    read.map_err(|e| damaged(path, format!("it holds no references: {e}")))?;
    let refused =
        |cause: String| Error::new(Kind::Unsupported, "reading references", cause).at(path);
    match &set.version {
        None if !set.is_wrapped => {}
        Some(version) if *version == 1 && set.is_wrapped => {}
        Some(version) if set.is_wrapped => {
            return Err(refused(format!("references of version {version}")));
        }
        _ => return Ok(None),
    }
    let is_metadata = |key: &String| METADATA.iter().any(|name| key.ends_with(name));
    if !set.is_wrapped && !set.keys.keys().any(is_metadata) {
        return Ok(None);
    }
    if let Some(cause) = set.odd {
        return Err(damaged(path, cause));
    }
    if set.has_generated {
        let cause = "references that a program is to generate (\"gen\"): write each of them out";
        return Err(refused(cause.to_string()));
    }
    let mut files = set.files;
    if !set.templates.is_empty() {
        let names = files.names.iter();
        let names = names.map(|name| filled_in(name, &set.templates));
        let names = names
            .collect::<std::result::Result<_, _>>()
            .map_err(refused)?;
        files = FileNames::of(names);
    }
    Ok(Some((set.keys, files)))
}

/// A name with templates in the places of `{{name}}`.
fn filled_in(
    name: &str,
    templates: &BTreeMap<String, String>,
) -> std::result::Result<String, String> {
    let mut filled = String::new();
    let mut rest = name;
    while let Some((before, behind)) = rest.split_once("{{") {
        let found = behind.split_once("}}");
        let found = found.and_then(|(word, after)| Some((templates.get(word.trim())?, after)));
        let Some((template, after)) = found.filter(|(template, _)| !template.contains("{{")) else {
            return Err(format!("the template in {name:?}"));
        };
        filled.push_str(before);
        filled.push_str(template);
        rest = after;
    }
    Ok(filled + rest)
}

/// What a text says, while it is read.
#[derive(Default)]
struct Set {
    version: Option<Value>,
    /// Whether the references are in a field of their own.
    is_wrapped: bool,
    has_generated: bool,
    templates: BTreeMap<String, String>,
    keys: BTreeMap<String, Reference>,
    files: FileNames,
    /// The first value that is no reference.
    odd: Option<String>,
}

/// All of a text.
struct Whole<'a>(&'a mut Set);

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("references by their keys")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "version" => self.0.version = Some(map.next_value()?),
                "templates" => self.0.templates = map.next_value()?,
                "gen" => {
                    let generated: Vec<IgnoredAny> = map.next_value()?;
                    self.0.has_generated = !generated.is_empty();
                }
                "refs" => {
                    if !std::mem::replace(&mut self.0.is_wrapped, true) {
                        self.0.keys.clear(); // what comes beside them is none
                        self.0.odd = None;
                    }
                    map.next_value_seed(Refs(self.0))?;
                }
                _ if self.0.is_wrapped => drop(map.next_value::<IgnoredAny>()?),
                _ => map.next_value_seed(One { set: self.0, key })?,
            }
        }
        Ok(())
    }
}

/// References by their keys.
struct Refs<'a>(&'a mut Set);

impl<'de> DeserializeSeed<'de> for Refs<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Refs<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("references by their keys")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            map.next_value_seed(One { set: self.0, key })?;
        }
        Ok(())
    }
}

/// The reference under a key.
struct One<'a> {
    set: &'a mut Set,
    key: String,
}

impl One<'_> {
    /// Keeps the reference under the key.
    fn keep(self, reference: Reference) {
        self.set.keys.insert(self.key, reference);
    }

    /// Notes that there is no reference under the key.
    fn refuse(self) {
        let cause = format!("under {:?} is no reference", self.key);
        self.set.odd.get_or_insert(cause);
    }
}

impl<'de> DeserializeSeed<'de> for One<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for One<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a reference")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<(), E> {
        let bytes = match text.strip_prefix(BASE64) {
            None => text.as_bytes().to_vec(),
            Some(encoded) => {
                let decoded = base64::engine::general_purpose::STANDARD.decode(encoded);
                match decoded {
                    Ok(bytes) => bytes,
                    Err(_) => {
                        self.refuse();
                        return Ok(());
                    }
                }
            }
        };
        self.keep(Reference::Inline(bytes));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<(), A::Error> {
        let json = serde_json::Map::deserialize(MapAccessDeserializer::new(map))?;
        self.keep(Reference::Inline(
            Value::Object(json).to_string().into_bytes(),
        ));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<(), A::Error> {
        let name = list.next_element::<String>()?.unwrap_or_default();
        let at = list.next_element::<u64>()?;
        let bytes = list.next_element::<u64>()?;
        let more = list.next_element::<IgnoredAny>()?;
        if name.is_empty() || at.is_some() != bytes.is_some() || more.is_some() {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            self.refuse();
            return Ok(());
        }
        let file = self.set.files.number(name).map_err(A::Error::custom)?;
        self.keep(match at.zip(bytes) {
            None => Reference::File(file),
            Some((at, bytes)) => Reference::Part { file, at, bytes },
        });
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<(), E> {
        self.refuse();
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<(), E> {
        self.refuse();
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<(), E> {
        self.refuse();
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<(), E> {
        self.refuse();
        Ok(())
    }

    fn visit_unit<E>(self) -> std::result::Result<(), E> {
        self.refuse();
        Ok(())
    }
}
