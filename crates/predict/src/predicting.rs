//! The prediction of a question: by simulation where that is short, by the closed form where not.

use penstock_engine::{Request, Result};
use penstock_sim::preset::Preset;

use crate::closed::{self, Estimate};
use crate::load::{self, Load};
use crate::prediction::{By, Prediction};
use crate::question::{Question, cut, unfit};
use crate::simulated;

/// Predicts what a call costs on a machine. The machine's own numbers of nodes and disks do not
/// count: it is cut to the question.
///
/// # Errors
/// [`Kind::Schema`] if the question makes no sense or the machine cannot be so large;
/// [`Kind::Unsupported`] if ranks hold lists that the question does not have.
pub fn predict(machine: &Preset, question: &Question<'_>) -> Result<Prediction> {
    predict_by(machine, question, None)
}

/// Predicts in the way that is asked for, whatever that takes.
///
/// # Errors
/// Like [`predict`]; [`Kind::Unsupported`] also for a simulation of ranks that hold lists.
pub fn predict_by(
    machine: &Preset,
    question: &Question<'_>,
    wanted: Option<By>,
) -> Result<Prediction> {
    let first = question.check()?;
    let load = load::of(question)?;
    let is_short = load.lists == 0.0 && load.steps(&first.strategy) <= simulated::STEPS_MAX;
    let by = wanted.unwrap_or(match is_short {
        true => By::Simulation,
        false => By::ClosedForm,
    });
    let middle = cut(machine, question)?;
    let estimate = closed::estimate(&middle, question, &load);
    let ends = [machine.fastest(), machine.slowest()];
    let ends = ends.map(|end| end.map_err(unfit).and_then(|end| cut(&end, question)));
    let seconds = |machine: &Preset| match by {
        By::Simulation => simulated::seconds(machine, question),
        By::ClosedForm => Ok(closed::estimate(machine, question, &load).seconds),
    };
    let seconds_at_middle = match by {
        By::Simulation => simulated::seconds(&middle, question)?,
        By::ClosedForm => estimate.seconds,
    };
    let [low, high] = match machine.spread.is_empty() {
        true => [seconds_at_middle; 2],
        false => {
            let [fast, slow] = ends;
            [seconds(&fast?)?, seconds(&slow?)?]
        }
    };
    Ok(answer(
        first,
        &load,
        &estimate,
        (seconds_at_middle, low, high),
        by,
    ))
}

fn answer(
    request: &Request,
    load: &Load,
    estimate: &Estimate,
    (seconds, low, high): (f64, f64, f64),
    by: By,
) -> Prediction {
    Prediction {
        strategy: request.strategy.name(),
        servers: request.servers,
        seconds,
        // Waits for one another can make a faster machine a little slower.
        low: low.min(seconds),
        high: high.max(seconds),
        bytes: load.bytes,
        disk_bytes: load.disk_bytes(),
        messages: estimate.messages,
        memory_bytes: estimate.memory_bytes,
        bottleneck: estimate.times.bottleneck(),
        times: estimate.times,
        by,
    }
}
