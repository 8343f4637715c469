//! `penstock predict`: what a collective call will cost, before it is made.

use std::fmt;
use std::io::Read;
use std::path::Path;

use penstock_predict::description::{Array, BLOCK_BYTES, Description, Direction};
use penstock_predict::{Prediction, predict_all};
use penstock_sim::preset::Preset;
use penstock_trace::sizes;
use serde::Serialize;

use crate::arguments::{self, Call, Predict};
use crate::failure::Failure;

pub(crate) fn run(asked: &Predict) -> Result<(), Failure> {
    let output = asked.output.output();
    output.check()?;
    let (machine, description) = of(&asked.asked)?;
    let predictions = predict_all(&machine, &description)?;
    output.write(&Answer {
        preset: &machine.name,
        description: &description,
        best: best(&predictions),
        remarks: remarks(&machine),
        predictions: &predictions,
    })
}

/// The machine and the call that the options name.
pub(crate) fn of(asked: &Call) -> Result<(Preset, Description), Failure> {
    let machine = arguments::find(&asked.preset)?;
    let description = match &asked.call {
        Some(path) => read(path)?,
        None => described(asked)?,
    };
    Ok((machine, description))
}

/// The strategy that is fastest.
fn best(predictions: &[Prediction]) -> Option<&'static str> {
    let fastest = predictions
        .iter()
        .min_by(|a, b| a.seconds.total_cmp(&b.seconds));
    fastest.map(|prediction| prediction.strategy)
}

pub(crate) fn remarks(machine: &Preset) -> Vec<&str> {
    let measured = machine.measured.iter();
    measured
        .flat_map(|measured| measured.remarks.iter().map(String::as_str))
        .collect()
}

/// Reads a description from a file, or with `-` from the standard input.
fn read(path: &Path) -> Result<Description, Failure> {
    let text = match path == Path::new("-") {
        true => {
            let mut text = String::new();
            std::io::stdin()
                .lock()
                .read_to_string(&mut text)
                .map(|_| text)
        }
        false => std::fs::read_to_string(path),
    };
    let text =
        text.map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display())))?;
    toml::from_str(&text)
        .map_err(|error| Failure::input(format!("{}: {}", path.display(), error.message())))
}

/// The description that the options make.
fn described(asked: &Call) -> Result<Description, Failure> {
    let lacks = |option: &str| {
        Failure::input(format!(
            "{option} is missing: give it, or the file of a description"
        ))
    };
    let memory = asked.memory.clone().ok_or_else(|| lacks("--memory"))?;
    let shape = asked.shape.clone().ok_or_else(|| lacks("--shape"))?;
    let ranks = asked.ranks.ok_or_else(|| lacks("--ranks"))?;
    let dealt = memory.split(',').filter(|word| word.trim() != "*").count();
    let mesh = match (&asked.mesh, dealt) {
        (Some(mesh), _) => mesh.clone(),
        (None, 0) => Vec::new(),
        (None, 1) => vec![ranks as u64],
        (None, _) => return Err(lacks("--mesh")),
    };
    Ok(Description {
        operation: match asked.read {
            true => Direction::Read,
            false => Direction::Write,
        },
        ranks,
        hosts: asked.hosts,
        servers: asked.servers,
        strategies: asked.strategy.clone(),
        direct: asked.direct,
        sync: !asked.no_sync,
        block_bytes: match &asked.block_bytes {
            Some(size) => sizes::bytes(size)?,
            None => BLOCK_BYTES,
        },
        arrays: vec![Array {
            shape,
            dtype: asked.dtype.clone(),
            memory,
            mesh,
            lists: Vec::new(),
            chunks: asked.chunks.clone(),
        }],
    })
}

/// The predictions, with what they are of.
#[derive(Serialize)]
struct Answer<'a> {
    preset: &'a str,
    description: &'a Description,
    /// The strategy that is fastest.
    best: Option<&'static str>,
    remarks: Vec<&'a str>,
    predictions: &'a [Prediction],
}

impl fmt::Display for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<14} {:>9} {:>21} {:>10} {:>9} {:>9} {:>9}  {:<10} by",
            "strategy",
            "seconds",
            "range",
            "MB/s",
            "messages",
            "disk MB",
            "memory MB",
            "bottleneck"
        )?;
        for prediction in self.predictions {
            let mb = |bytes: u64| bytes as f64 / 1e6;
            writeln!(
                f,
                "{:<14} {:>9} {:>21} {:>10.1} {:>9} {:>9.1} {:>9.1}  {:<10} {}",
                prediction.strategy,
                seconds(prediction.seconds),
                range(prediction),
                mb(prediction.bytes) / prediction.seconds.max(1e-12),
                prediction.messages,
                mb(prediction.disk_bytes),
                mb(prediction.memory_bytes),
                prediction.bottleneck,
                prediction.by,
            )?;
        }
        writeln!(f)?;
        write!(f, "on {}", self.preset)?;
        if let Some(best) = self.best {
            write!(f, "; fastest: {best}")?;
        }
        Ok(())
    }
}

/// The range of the seconds.
pub(crate) fn range(prediction: &Prediction) -> String {
    format!(
        "{} to {}",
        seconds(prediction.low),
        seconds(prediction.high)
    )
}

/// Three digits of seconds.
pub(crate) fn seconds(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value if value >= 0.1 => format!("{value:.3}"),
        value => format!("{value:.5}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_their_digits() {
        for (value, text) in [
            (1234.5, "1234"),
            (12.345, "12.35"),
            (0.123_45, "0.123"),
            (0.001_234_5, "0.00123"),
        ] {
            assert_eq!(seconds(value), text);
        }
    }

    #[test]
    fn the_fastest_is_named() {
        assert_eq!(best(&[]), None);
    }
}
