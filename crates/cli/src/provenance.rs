//! The provenance of a result, from which it can be made again: version, preset, changes from the
//! preset, trials, seed.
//!
//! Provenance is in a line under every text, as `provenance` in all JSON, and at the foot of every
//! plot.
//!
//! Changes are found by comparison, not from options: a preset that was printed, changed and given
//! as a file keeps its name, and is compared with the built-in preset of that name.

use std::fmt;

use penstock_experiments::Trials;
use penstock_sim::preset::Preset;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::failure::Failure;

/// The provenance of a result.
#[derive(Clone, Debug)]
pub(crate) struct Provenance {
    preset: String,
    /// The file of the preset, if it is not built in.
    file: Option<String>,
    overrides: Vec<Override>,
    trials: u64,
    seed: u64,
}

/// A change from the preset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Override {
    /// A key of the preset, or an option.
    key: String,
    value: Value,
    /// The value in the preset; `None` if it has no such key.
    #[serde(skip_serializing_if = "Option::is_none")]
    preset: Option<Value>,
}

/// A preset as it was found and as it is simulated.
pub(crate) struct Machine<'a> {
    /// The name or path under which it was found.
    pub(crate) given: &'a str,
    /// The preset as it was found.
    pub(crate) found: &'a Preset,
    /// The preset as it is simulated.
    pub(crate) simulated: &'a Preset,
}

impl Provenance {
    /// Compares `machine` with the built-in preset of its name, or else with the file that it is
    /// from.
    pub(crate) fn new(machine: &Machine, trials: &Trials) -> Result<Self, Failure> {
        let name = &machine.simulated.name;
        let original = match Preset::names().contains(&name.as_str()) {
            true => &Preset::find(name).map_err(Failure::input)?,
            false => machine.found,
        };
        let tree = |preset: &Preset| serde_json::to_value(preset).map_err(Failure::failed);
        let mut overrides = Vec::new();
        compare(
            "",
            Some(&tree(original)?),
            Some(&tree(machine.simulated)?),
            &mut overrides,
        );
        // A preset's description in words changes no result.
        overrides.retain(|change| change.key != "about");
        overrides.sort_by(|a, b| a.key.cmp(&b.key));
        let is_built_in = Preset::names().contains(&machine.given);
        Ok(Self {
            preset: name.clone(),
            file: (!is_built_in).then(|| machine.given.into()),
            overrides,
            trials: trials.count,
            seed: trials.first,
        })
    }

    /// Adds an option that changes the run and has no key in a preset, if it was given.
    pub(crate) fn with_option(mut self, option: &str, value: Option<impl Into<Value>>) -> Self {
        self.overrides.extend(value.map(|value| Override {
            key: option.into(),
            value: value.into(),
            preset: None,
        }));
        self
    }

    /// Puts the provenance beside `result`.
    pub(crate) fn of<'a, T>(&'a self, result: &'a T) -> Finding<'a, T> {
        Finding {
            result,
            provenance: self,
        }
    }
}

/// Lists the changes, by the paths of their keys. Lists of the same length are compared element by
/// element.
fn compare(path: &str, old: Option<&Value>, new: Option<&Value>, overrides: &mut Vec<Override>) {
    let below = |key: &str| match path {
        "" => key.to_string(),
        path => format!("{path}.{key}"),
    };
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            for (key, value) in new {
                compare(&below(key), old.get(key), Some(value), overrides);
            }
            for (key, value) in old.iter().filter(|(key, _)| !new.contains_key(*key)) {
                compare(&below(key), Some(value), None, overrides);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                compare(&format!("{path}[{index}]"), Some(old), Some(new), overrides);
            }
        }
        (old, new) if old == new => {}
        (old, new) => overrides.push(Override {
            key: path.into(),
            value: new.cloned().unwrap_or_default(),
            preset: old.cloned(),
        }),
    }
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, shown(&self.value))?;
        match &self.preset {
            Some(preset) => write!(f, " (preset: {})", shown(preset)),
            None => Ok(()),
        }
    }
}

/// A value in a line of text.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::String(text) => text.clone(),
        Value::Object(_) => "a section".into(),
        Value::Array(values) if values.iter().any(Value::is_object) => "a list".into(),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(shown).collect();
            values.join(",")
        }
        value => value.to_string(),
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = env!("CARGO_PKG_VERSION");
        let s = if self.trials == 1 { "" } else { "s" };
        write!(
            f,
            "penstock {version}; {} trial{s}, seed {}; preset {}",
            self.trials, self.seed, self.preset
        )?;
        if let Some(file) = &self.file {
            write!(f, " from {file}")?;
        }
        for (index, change) in self.overrides.iter().enumerate() {
            let joint = if index == 0 { " with" } else { "," };
            write!(f, "{joint} {change}")?;
        }
        Ok(())
    }
}

impl Serialize for Provenance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Members<'a> {
            text: String,
            version: &'static str,
            preset: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            file: Option<&'a str>,
            overrides: &'a [Override],
            trials: u64,
            seed: u64,
        }
        let members = Members {
            text: self.to_string(),
            version: env!("CARGO_PKG_VERSION"),
            preset: &self.preset,
            file: self.file.as_deref(),
            overrides: &self.overrides,
            trials: self.trials,
            seed: self.seed,
        };
        members.serialize(serializer)
    }
}

/// A result and its provenance.
#[derive(Serialize)]
pub(crate) struct Finding<'a, T> {
    #[serde(flatten)]
    result: &'a T,
    provenance: &'a Provenance,
}

impl<T: fmt::Display> fmt::Display for Finding<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.result.to_string();
        writeln!(f, "{}\n\n{}", text.trim_end(), self.provenance)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn provenance(given: &str, found: &Preset, simulated: &Preset) -> Provenance {
        let machine = Machine {
            given,
            found,
            simulated,
        };
        Provenance::new(&machine, &Trials::new(5)).unwrap()
    }

    #[test]
    fn a_preset_as_it_is_has_no_overrides() {
        for name in Preset::names() {
            let preset = Preset::find(name).unwrap();
            let provenance = provenance(name, &preset, &preset);
            assert_eq!(provenance.overrides, []);
            let version = env!("CARGO_PKG_VERSION");
            assert_eq!(
                provenance.to_string(),
                format!("penstock {version}; 5 trials, seed 0; preset {name}")
            );
        }
    }

    #[test]
    fn what_differs_is_told_with_what_the_preset_has() {
        let found = Preset::find("tr94").unwrap();
        let mut changed = found.clone();
        changed.nodes.clients = 8;
        changed.costs.send_us = 4.5;
        changed.about = "Mine".into();
        let provenance = provenance("tr94", &found, &changed).with_option("--array-mb", Some(7));
        assert_eq!(
            provenance.to_string().split_once("seed 0; ").unwrap().1,
            "preset tr94 with costs.send_us 4.5 (preset: 4.25), nodes.clients 8 (preset: 16), \
             --array-mb 7"
        );
        let json = serde_json::to_value(&provenance).unwrap();
        assert_eq!(
            json["overrides"],
            json!([
                {"key": "costs.send_us", "value": 4.5, "preset": 4.25},
                {"key": "nodes.clients", "value": 8, "preset": 16},
                {"key": "--array-mb", "value": 7},
            ])
        );
        assert_eq!(json["text"], provenance.to_string());
    }

    /// A file that was printed by `penstock sim preset` keeps the name of its preset.
    #[test]
    fn a_file_is_compared_with_the_preset_of_its_name() {
        let text = Preset::text("tr94").unwrap();
        let text = text.replace("heads = 19", "heads = 20");
        let text = text.replacen("sectors_per_track = 72", "sectors_per_track = 71", 1);
        let mine = Preset::from_toml(&text, "mine.toml").unwrap();
        let same_name = provenance("mine.toml", &mine, &mine);
        assert_eq!(
            same_name.to_string().split_once("seed 0; ").unwrap().1,
            "preset tr94 from mine.toml with disk.heads 20 (preset: 19), \
             disk.regions[0].sectors_per_track 71 (preset: 72)"
        );
        let mut named = mine.clone();
        named.name = "mine".into();
        let mut changed = named.clone();
        changed.file.bytes /= 2;
        let own_name = provenance("mine.toml", &named, &changed);
        assert_eq!(
            own_name.to_string().split_once("seed 0; ").unwrap().1,
            "preset mine from mine.toml with file.bytes 5242880 (preset: 10485760)"
        );
    }

    #[test]
    fn other_kinds_of_parts_are_told_too() {
        let found = Preset::find("tr94").unwrap();
        let mut changed = found.clone();
        changed.disk = Preset::find("nvme-server").unwrap().disk;
        let text = provenance("tr94", &found, &changed).to_string();
        for expected in [
            "disk.kind flash (preset: rotating)",
            "disk.heads none (preset: 19)",
            "disk.regions none (preset: a list)",
            "disk.channels 128,",
        ] {
            assert!(text.contains(expected), "{text}");
        }
    }
}
