//! The spread of a preset's numbers, and the machine at either end of it.
//!
//! ```toml
//! [spread]
//! "costs.send_us" = { low = 0.4, high = 0.9 }
//! "disk.read_bytes_per_second" = { low = 900000000, high = 1200000000 }
//! "host.stretch_ns[3]" = { low = 2.5, high = 4.0 }
//! ```
//!
//! Keys are paths of numbers in the preset. The number itself lies between `low` and `high`. Of a
//! rate or a count of what works at once, more is faster; of all else, which are times, bytes and
//! parts, less.

use serde::{Deserialize, Serialize};
use toml::Value;

use super::check::{Complaint, ensure};
use super::{Preset, PresetError};

/// The spread of a number: its 10th and 90th percentile, if it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    pub low: f64,
    pub high: f64,
}

/// An end of the spread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Fast,
    Slow,
}

impl Preset {
    /// The machine with each number at the end of its spread that is faster.
    ///
    /// # Errors
    /// When the numbers together describe no possible machine.
    pub fn fastest(&self) -> Result<Preset, PresetError> {
        self.at(End::Fast)
    }

    /// The machine with each number at the end of its spread that is slower.
    ///
    /// # Errors
    /// When the numbers together describe no possible machine.
    pub fn slowest(&self) -> Result<Preset, PresetError> {
        self.at(End::Slow)
    }

    /// The preset as TOML.
    ///
    /// # Errors
    /// When a number is beyond what TOML has, such as a count of more than 63 bits.
    pub fn to_toml(&self) -> Result<String, PresetError> {
        toml::to_string(self).map_err(|error| PresetError::new(&self.name, error))
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a number that a preset cannot have is refused below"
    )]
    fn at(&self, end: End) -> Result<Preset, PresetError> {
        if self.spread.is_empty() {
            return Ok(self.clone());
        }
        let failed = |what: String| PresetError::new(&self.name, what);
        let mut tree = Value::try_from(self).map_err(|error| failed(error.to_string()))?;
        for (key, spread) in &self.spread {
            let more_is_faster = is_rate(key);
            let value = match (end == End::Fast) == more_is_faster {
                true => spread.high,
                false => spread.low,
            };
            let number = number(&mut tree, key).ok_or_else(|| failed(unknown(key)))?;
            match number {
                // A whole number stays one.
                Value::Integer(whole) => *whole = value.round() as i64,
                number => *number = Value::Float(value),
            }
        }
        if let Value::Table(table) = &mut tree {
            table.remove("spread");
        }
        let preset: Preset = tree
            .try_into()
            .map_err(|error: toml::de::Error| failed(error.message().into()))?;
        preset.validate()?;
        Ok(preset)
    }

    pub(super) fn check_spread(&self) -> Complaint {
        if self.spread.is_empty() {
            return Ok(());
        }
        let mut tree = Value::try_from(self).map_err(|error| error.to_string())?;
        for (key, Spread { low, high }) in &self.spread {
            let number = number(&mut tree, key).ok_or_else(|| unknown(key))?;
            let value = match number {
                Value::Integer(whole) => *whole as f64,
                Value::Float(value) => *value,
                _ => return Err(unknown(key)),
            };
            ensure(
                *low >= 0.0 && *low <= value && value <= *high && high.is_finite(),
                || {
                    format!(
                        "spread.{key} is {low} to {high}, and {key} is {value}: give a range with it in it"
                    )
                },
            )?;
        }
        Ok(())
    }
}

/// Whether more of this number makes the machine faster.
fn is_rate(key: &str) -> bool {
    key.ends_with("_per_second") || key.ends_with("channels") || key.ends_with("processors")
}

fn unknown(key: &str) -> String {
    format!("spread.{key} is the spread of no number: give the path of one, such as costs.send_us")
}

/// The number at a path such as `host.stretch_ns[3]`.
fn number<'a>(tree: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let mut found = tree;
    for word in key.split('.') {
        let (name, place) = match word.strip_suffix(']').and_then(|word| word.split_once('[')) {
            Some((name, place)) => (name, Some(place.parse::<usize>().ok()?)),
            None => (word, None),
        };
        found = found.as_table_mut()?.get_mut(name)?;
        if let Some(place) = place {
            found = found.as_array_mut()?.get_mut(place)?;
        }
    }
    matches!(found, Value::Integer(_) | Value::Float(_)).then_some(found)
}
