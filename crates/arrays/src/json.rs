//! JSON as people's programs write it: with `NaN`, `Infinity` and `-Infinity` among the numbers.
//!
//! Python's `json` writes these numbers, and so do zarr-python and xarray in attributes; the
//! standard has none of them. A [`Value`] cannot hold such a number. Here a string takes its place,
//! which begins with a mark: a character that Unicode leaves to private use. A string that begins
//! with that character itself gets one more.
//!
//! ```text
//! text      {"missing": NaN, "name": "NaN"}
//! value     {"missing": "\u{e000}NaN", "name": "NaN"}
//! ```
//!
//! [`parse`] and [`text`] undo each other. All JSON that other programs may have written, or will
//! read, goes through these two.

use memchr::memmem;
use serde_json::Value;

/// The mark before the words of a number that JSON does not have.
const MARK: char = '\u{e000}';
/// The numbers that JSON does not have, as Python writes them.
const NUMBERS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// Reads JSON, with the numbers that the standard does not have.
///
/// # Errors
/// When the text is not JSON.
pub fn parse(text: &[u8]) -> serde_json::Result<Value> {
    // Most texts have neither such a number nor such a string, and are read as they are.
    let has_any = ["Infinity", "NaN", &mark()].map(|word| contains(text, word.as_bytes()));
    if has_any == [false; 3] && !contains_escape(text) {
        return serde_json::from_slice(text);
    }
    serde_json::from_slice(&marked(text))
}

/// Writes JSON on several lines, with a newline at the end.
pub fn text(value: &Value) -> Vec<u8> {
    // A value has string keys, and writing to memory does not fail.
    let mut text = unmarked(serde_json::to_vec_pretty(value).unwrap_or_default());
    text.push(b'\n');
    text
}

/// Writes JSON on one line.
pub fn line(value: &Value) -> String {
    let text = unmarked(serde_json::to_vec(value).unwrap_or_default());
    String::from_utf8_lossy(&text).into_owned()
}

/// A number as a value, also one that the standard does not have.
pub(crate) fn number(number: f64) -> Value {
    let word = match number {
        _ if number.is_nan() => "NaN",
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        number => return Value::from(number),
    };
    Value::from(format!("{MARK}{word}"))
}

/// The number that a value is.
pub(crate) fn as_number(value: &Value) -> Option<f64> {
    let word = match value {
        Value::String(text) => text.strip_prefix(MARK)?,
        value => return value.as_f64(),
    };
    // Rust reads these words, too.
    NUMBERS.contains(&word).then(|| word.parse().ok())?
}

/// A string as a value.
pub(crate) fn string(text: String) -> Value {
    match text.starts_with(MARK) {
        true => Value::from(format!("{MARK}{text}")),
        false => Value::from(text),
    }
}

/// The string that a value is.
pub(crate) fn as_string(value: &Value) -> Option<String> {
    let text = value.as_str()?;
    match text.strip_prefix(MARK) {
        Some(_) if as_number(value).is_some() => None,
        Some(rest) => Some(rest.to_string()),
        None => Some(text.to_string()),
    }
}

/// A value that is encoded as its JSON text.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(bound = "T: serde::Serialize + serde::de::DeserializeOwned")]
pub(crate) struct AsText<T>(#[serde(with = "as_text")] pub(crate) T);

/// JSON as a field of an encoded value, which has its text: the encoding does not say what follows,
/// as reading JSON wants it.
pub(crate) mod as_text {
    use serde::de::{DeserializeOwned, Error as _};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes a value as its text.
    pub(crate) fn serialize<T, S>(value: &T, serializer: S) -> Result<S::Ok, S::Error>
    where
        T: Serialize,
        S: Serializer,
    {
        let text = serde_json::to_string(value).map_err(S::Error::custom)?;
        serializer.serialize_str(&text)
    }

    /// Reads a value from its text.
    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: DeserializeOwned,
        D: Deserializer<'de>,
    {
        let text = String::deserialize(deserializer)?;
        serde_json::from_str(&text).map_err(D::Error::custom)
    }
}

fn mark() -> String {
    MARK.to_string()
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    memmem::find(text, word).is_some()
}

/// Whether a text has the mark as an escape, as programs write it that keep to ASCII.
fn contains_escape(text: &[u8]) -> bool {
    let mut escapes = memmem::find_iter(text, b"\\u");
    escapes.any(|at| text.get(at..at + 6).is_some_and(is_escape))
}

fn is_escape(window: &[u8]) -> bool {
    window.eq_ignore_ascii_case(b"\\ue000")
}

/// Marks a text: puts marked strings in the place of numbers that JSON does not have, and adds a
/// mark to strings that begin with one.
fn marked(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 64);
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'"' {
            let (string, after) = rest.split_at(string_bytes(rest));
            out.push(b'"');
            let inside = &string[1..];
            if inside.starts_with(mark().as_bytes()) || inside.get(..6).is_some_and(is_escape) {
                out.extend_from_slice(mark().as_bytes());
            }
            out.extend_from_slice(inside);
            rest = after;
        } else if let Some(number) = NUMBERS
            .iter()
            .find(|number| rest.starts_with(number.as_bytes()))
        {
            out.extend_from_slice(format!("\"{MARK}{number}\"").as_bytes());
            rest = &rest[number.len()..];
        } else {
            out.push(byte);
            rest = after;
        }
    }
    out
}

/// Undoes the marks in a text that `serde_json` has written: it writes the mark as it is.
fn unmarked(text: Vec<u8>) -> Vec<u8> {
    let marked = format!("\"{MARK}");
    if !contains(&text, marked.as_bytes()) {
        return text;
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_slice();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'"' {
            out.push(byte);
            rest = after;
            continue;
        }
        let (string, after) = rest.split_at(string_bytes(rest));
        rest = after;
        match string.strip_prefix(marked.as_bytes()) {
            None => out.extend_from_slice(string),
            Some(inside) => {
                let word = inside.strip_suffix(b"\"").unwrap_or(inside);
                match NUMBERS.iter().any(|number| number.as_bytes() == word) {
                    true => out.extend_from_slice(word),
                    false => {
                        out.push(b'"');
                        out.extend_from_slice(inside);
                    }
                }
            }
        }
    }
    out
}

/// The length of the string at the beginning of a text, with both quotation marks; the length of
/// the text if the string does not end.
fn string_bytes(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_was_read() {
        for (given, kept) in [
            (r#"{"a":NaN,"b":[Infinity,-Infinity,-1.5]}"#, true),
            (r#"{"a":"NaN","b":"-Infinity"}"#, true),
            ("{\"a\":\"\u{e000}NaN\",\"\u{e000}b\":1,\"c\":NaN}", true),
            (r#"{"a":"\ue000NaN","c":NaN}"#, false),
            (r#"{"a":"say \"NaN\"","b\\":NaN}"#, true),
            (r#""plain""#, true),
        ] {
            let value = parse(given.as_bytes()).unwrap();
            let written = line(&value);
            assert_eq!(parse(written.as_bytes()).unwrap(), value, "{given}");
            assert_eq!(written == given, kept, "{given} {written}");
            assert_eq!(parse(&text(&value)).unwrap(), value, "{given}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in [
            "",
            "{",
            "NaN1",
            "\"NaN",
            "nan",
            "-NaN",
            "\"\\",
            "\"\u{e000}",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
