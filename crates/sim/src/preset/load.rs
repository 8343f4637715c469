//! Loading of a [`Preset`] from a name or a text. A mistake is told in one line.

use std::fmt::Display;
use std::io::ErrorKind;
use std::ops::Range;

use serde::de::Unexpected;
use thiserror::Error;
use toml::de::{DeTable, DeValue};

use super::Preset;

/// The presets of Penstock.
const BUILT_IN: [(&str, &str); 11] = [
    ("tr94", include_str!("../../presets/tr94.toml")),
    ("tocs97", include_str!("../../presets/tocs97.toml")),
    ("hdd-server", include_str!("../../presets/hdd-server.toml")),
    (
        "nvme-server",
        include_str!("../../presets/nvme-server.toml"),
    ),
    ("cloud-vm", include_str!("../../presets/cloud-vm.toml")),
    ("sp2-anl", include_str!("../../presets/sp2-anl.toml")),
    ("sp1-vesta", include_str!("../../presets/sp1-vesta.toml")),
    ("sp2-nas", include_str!("../../presets/sp2-nas.toml")),
    (
        "paragon-caltech",
        include_str!("../../presets/paragon-caltech.toml"),
    ),
    (
        "origin2000-anl",
        include_str!("../../presets/origin2000-anl.toml"),
    ),
    (
        "exemplar-caltech",
        include_str!("../../presets/exemplar-caltech.toml"),
    ),
];

static NAMES: [&str; BUILT_IN.len()] = {
    let mut names = [""; BUILT_IN.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = BUILT_IN[index].0;
        index += 1;
    }
    names
};

/// The error of a preset that cannot be used. Its text is one line, whatever the file has in it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("preset {preset}: {what}")]
pub struct PresetError {
    preset: String,
    what: String,
}

impl PresetError {
    pub(super) fn new(preset: &str, what: impl Display) -> PresetError {
        PresetError {
            preset: one_line(preset),
            what: one_line(&what.to_string()),
        }
    }
}

impl Preset {
    /// The names of Penstock's presets.
    pub fn names() -> &'static [&'static str] {
        &NAMES
    }

    /// The TOML of Penstock's preset of that name, comments and all.
    ///
    /// # Errors
    /// When there is no such preset.
    pub fn text(name: &str) -> Result<&'static str, PresetError> {
        let found = BUILT_IN.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| {
            let what = format!("there is none: take one of {}", NAMES.join(", "));
            PresetError::new(name, what)
        })?;
        Ok(text)
    }

    /// Finds the preset of that name or, if there is none, in the file at that path.
    ///
    /// # Errors
    /// When there is neither, or the file cannot be read or describes no possible machine.
    pub fn find(name_or_path: &str) -> Result<Preset, PresetError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
            return Preset::from_toml(text, name);
        }
        let text = std::fs::read_to_string(name_or_path).map_err(|error| {
            let what = match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => format!(
                    "there is none, nor a file at that path: take one of {}, or the path of a TOML \
                     file",
                    NAMES.join(", ")
                ),
                ErrorKind::InvalidData => "the file is not text in UTF-8: give a TOML file".into(),
                _ => format!("the file cannot be read: {error}"),
            };
            PresetError::new(name_or_path, what)
        })?;
        Preset::from_toml(&text, name_or_path)
    }

    /// Reads a preset from a text; errors name `origin`, the source of the text.
    ///
    /// # Errors
    /// When the text is not TOML, not a preset, or describes no possible machine.
    pub fn from_toml(text: &str, origin: &str) -> Result<Preset, PresetError> {
        let preset: Preset = toml::from_str(text)
            .map_err(|error| PresetError::new(origin, explain(text, &error)))?;
        preset
            .first_complaint()
            .map_err(|what| PresetError::new(origin, what))?;
        Ok(preset)
    }
}

/// An entry is a value or a key of a text.
struct Entry<'a> {
    path: String,
    key: &'a str,
    key_span: Range<usize>,
    value: &'a DeValue<'a>,
    value_span: Range<usize>,
}

/// Tells the place, the key and the kind of an error: "line 3, column 9: costs.send_us: ...".
///
/// Sections with a `kind` are read into memory before they are understood, so errors in them point
/// at the whole section: the text that the message quotes is then looked for within.
fn explain(text: &str, error: &toml::de::Error) -> String {
    let Some(mut span) = error.span() else {
        return in_words(error.message());
    };
    let mut path = String::new();
    if let Ok(table) = DeTable::parse(text) {
        let mut entries = Vec::new();
        list(table.get_ref(), "", &mut entries);
        let around = innermost(&entries, &span);
        let quoted = entries
            .iter()
            .filter(|entry| around.is_none_or(|around| entry.is_within(around)))
            .find_map(|entry| {
                let at = entry.quoted(text, error.message());
                let at = at.or_else(|| entry.lacks(text, error.message()));
                Some((entry, at?))
            });
        match (quoted, around) {
            (Some((entry, at)), _) => (path, span) = (format!("{}: ", entry.path), at),
            (None, Some(around)) => path = format!("{}: ", around.path),
            (None, None) => {}
        }
    }
    let before = &text[..span.start.min(text.len())];
    let line = before.matches('\n').count() + 1;
    let column = before
        .chars()
        .rev()
        .take_while(|&char| char != '\n')
        .count()
        + 1;
    let what = match error.message() {
        "duplicate key" => format!("the key `{}` is there twice: give it once", &text[span]),
        message => in_words(message),
    };
    format!("line {line}, column {column}: {path}{what}")
}

/// The entry that stands at a place, the innermost of several; a section stands at its heading.
fn innermost<'a, 'b>(entries: &'b [Entry<'a>], span: &Range<usize>) -> Option<&'b Entry<'a>> {
    let covers = |of: &Range<usize>| of.start <= span.start && span.end <= of.end;
    let at = entries
        .iter()
        .filter(|entry| covers(&entry.key_span) || covers(&entry.value_span));
    at.max_by_key(|entry| entry.path.len())
}

fn list<'a>(table: &'a DeTable<'a>, above: &str, entries: &mut Vec<Entry<'a>>) {
    for (key, value) in table {
        let dot = if above.is_empty() { "" } else { "." };
        let entry = Entry {
            path: format!("{above}{dot}{}", key.get_ref()),
            key: key.get_ref(),
            key_span: key.span(),
            value: value.get_ref(),
            value_span: value.span(),
        };
        list_below(entry, entries);
    }
}

fn list_below<'a>(entry: Entry<'a>, entries: &mut Vec<Entry<'a>>) {
    let (path, value, key) = (entry.path.clone(), entry.value, entry.key);
    entries.push(entry);
    match value {
        DeValue::Table(table) => list(table, &path, entries),
        DeValue::Array(array) => {
            for (index, element) in array.iter().enumerate() {
                let entry = Entry {
                    path: format!("{path}[{index}]"),
                    key,
                    key_span: element.span(),
                    value: element.get_ref(),
                    value_span: element.span(),
                };
                list_below(entry, entries);
            }
        }
        _ => {}
    }
}

impl Entry<'_> {
    fn is_within(&self, section: &Entry<'_>) -> bool {
        let below = self.path.strip_prefix(&section.path);
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }

    /// The place of this entry in the text, if serde's message quotes it as an unknown key or as a
    /// value. Other keys may have that value too; but if this one is meant, then with another value
    /// here the message would quote that one.
    fn quoted(&self, text: &str, message: &str) -> Option<Range<usize>> {
        if message.starts_with(&format!("unknown field `{}`", self.key)) {
            return Some(self.key_span.clone());
        }
        let is_meant = match self.value {
            DeValue::Array(_) => message.starts_with("invalid type: sequence"),
            DeValue::Table(_) | DeValue::Datetime(_) => message.starts_with("invalid type: map"),
            value => variations(value).into_iter().any(|variation| {
                let expected = message.replacen(&variation.shown, &variation.instead, 1);
                let Range { start, end } = self.value_span;
                let changed = [&text[..start], &variation.literal, &text[end..]].concat();
                expected != message
                    && toml::from_str::<Preset>(&changed)
                        .is_err_and(|error| error.message() == expected)
            }),
        };
        is_meant.then(|| self.value_span.clone())
    }

    /// The place of this section in the text, if serde's message says that it lacks a key: the
    /// section in which serde takes notice of such a key.
    fn lacks(&self, text: &str, message: &str) -> Option<Range<usize>> {
        let (key, _) = message.strip_prefix("missing field `")?.split_once('`')?;
        let DeValue::Table(_) = self.value else {
            return None;
        };
        let Range { start, end } = self.value_span;
        let changed = match text[start..].starts_with('{') {
            true => [&text[..=start], key, " = \"'\", ", &text[start + 1..]].concat(),
            false => [&text[..end], "\n", key, " = \"'\" #", &text[end..]].concat(),
        };
        let instead = toml::from_str::<Preset>(&changed).err()?;
        let is_noticed = ["string \"'\"", "unknown variant `'`"]
            .iter()
            .any(|shown| instead.message().contains(shown));
        is_noticed.then(|| self.value_span.clone())
    }
}

/// A variation is another value of the same type.
struct Variation {
    /// The value as serde shows it.
    shown: String,
    /// The other value as serde would show it.
    instead: String,
    /// The other value in TOML.
    literal: String,
}

fn variations(value: &DeValue<'_>) -> Vec<Variation> {
    let one = |value: Unexpected<'_>, other: Unexpected<'_>, literal: String| {
        vec![Variation {
            shown: value.to_string(),
            instead: other.to_string(),
            literal,
        }]
    };
    match value {
        DeValue::String(text) => {
            let other = format!("{text}'");
            let literal = format!("{other:?}");
            let mut all = one(
                Unexpected::Str(text),
                Unexpected::Str(&other),
                literal.clone(),
            );
            all.push(Variation {
                shown: format!("unknown variant `{text}`"),
                instead: format!("unknown variant `{other}`"),
                literal,
            });
            all
        }
        DeValue::Integer(digits) => {
            let value = i64::from_str_radix(digits.as_str(), digits.radix());
            value.map_or(vec![], |value| {
                let other = value ^ 1;
                one(
                    Unexpected::Signed(value),
                    Unexpected::Signed(other),
                    other.to_string(),
                )
            })
        }
        DeValue::Float(digits) => digits.as_str().parse().map_or(vec![], |value: f64| {
            let other = value / 2.0 + 1.0;
            one(
                Unexpected::Float(value),
                Unexpected::Float(other),
                format!("{other:?}"),
            )
        }),
        DeValue::Boolean(value) => one(
            Unexpected::Bool(*value),
            Unexpected::Bool(!value),
            (!value).to_string(),
        ),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => vec![],
    }
}

/// Puts serde's words into TOML's.
fn in_words(message: &str) -> String {
    let words = [
        ("unknown field", "unknown key"),
        ("missing field", "missing key"),
        ("unknown variant", "unknown value"),
        ("invalid type: map", "invalid type: a section"),
        ("invalid type: sequence", "invalid type: a list"),
        ("expected a sequence", "expected a list"),
        ("wanted string or table", "expected a word in quotes"),
        ("expected variant identifier", "expected a word in quotes"),
        ("expected struct Region", "expected a section in braces"),
    ];
    let mut message = message.to_string();
    for (theirs, ours) in words {
        message = message.replacen(theirs, ours, 1);
    }
    for (kinds, ours) in [
        (&["f64"][..], "a number"),
        (&["usize", "u64", "u32"], "a whole number, 0 or more"),
        (&["a boolean"], "true or false"),
    ] {
        for kind in kinds {
            if let Some(rest) = message.strip_suffix(&format!("expected {kind}")) {
                message = format!("{rest}expected {ours}");
            }
        }
    }
    message
}

/// Removes line ends and other control characters.
fn one_line(text: &str) -> String {
    let is_break = |char: char| char.is_control() || matches!(char, '\u{2028}' | '\u{2029}');
    let lines = text.split(is_break).map(str::trim);
    lines
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}
