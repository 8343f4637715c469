//! `penstock sim`.

use std::fmt::Write;
use std::sync::Arc;

use penstock_sim::preset::Preset;
use penstock_sim::study::dickens_thakur::{self, Machine};
use penstock_sim::study::figure::Plan;
use penstock_sim::study::panda;
use penstock_sim::study::run::Report;
use penstock_sim::study::summary::Summary;
use penstock_sim::study::table::Table;
use penstock_sim::study::trace::{Chrome, Seeks, Shares, busy};
use penstock_sim::study::{Case, StudyError, measure, scale, summary, table};

use crate::Surroundings;
use crate::arguments::{self, Sim};
use crate::failure::Failure;
use crate::output::{self, Plot};
use crate::progress::Bar;

const REPORT: &str = "tr94";
const ARTICLE: &str = "tocs97";
const TODAY: &str = "nvme-server";

pub(crate) fn run(sim: &Sim, surroundings: &Surroundings) -> Result<(), Failure> {
    match sim {
        Sim::Run(asked) => one(asked, surroundings),
        Sim::Table(asked) => table(asked, surroundings),
        Sim::Figure(asked) => figure(asked, surroundings),
        Sim::Summary(asked) => summary(asked, surroundings),
        Sim::Trace(asked) => trace(asked, surroundings),
        Sim::Scale(asked) => scale(asked, surroundings),
        Sim::DickensThakur(asked) => dickens_thakur(asked, surroundings),
        Sim::Panda(asked) => panda(asked, surroundings),
        Sim::Preset(asked) => preset(asked),
    }
}

fn one(asked: &arguments::Run, surroundings: &Surroundings) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = asked.repeat.trials()?;
    let case = asked.transfer.case(&asked.machine.preset(REPORT)?)?;
    let measured = measure(std::slice::from_ref(&case), &trials, &Bar::new())?;
    for measured in &measured {
        let report = Report::new(&case, &trials, measured);
        asked.output.write(&report, &report)?;
        let figure = report.figure(&case);
        asked.output.plot(Plot::Figure, &figure, surroundings)?;
    }
    Ok(())
}

fn table(asked: &arguments::Table, surroundings: &Surroundings) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = asked.repeat.trials()?;
    let preset = asked.machine.preset(REPORT)?;
    let cases = table::cases(asked.number, &preset)?;
    let measured = measure(&cases, &trials, &Bar::new())?;
    let table = Table::new(asked.number, &preset, &cases, &measured);
    asked.output.write(&table, &table.cells)?;
    #[derive(serde::Serialize)]
    struct Drawn<'a> {
        rows: &'a [table::Cell],
        preset: &'a str,
        trials: u64,
    }
    let drawn = Drawn {
        rows: &table.cells,
        preset: &table.preset,
        trials: table.trials,
    };
    asked.output.plot(Plot::Table, &drawn, surroundings)
}

fn figure(asked: &arguments::Figure, surroundings: &Surroundings) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = asked.repeat.trials()?;
    let plan = Plan::new(asked.number, &asked.machine.preset(ARTICLE)?)?;
    let measured = measure(plan.cases(), &trials, &Bar::new())?;
    let figure = plan.figure(&measured);
    asked.output.write(&figure, &figure)?;
    asked.output.plot(Plot::Figure, &figure, surroundings)
}

fn summary(asked: &arguments::Summary, surroundings: &Surroundings) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = asked.repeat.trials()?;
    let preset = asked.machine.preset(ARTICLE)?;
    let cases = summary::cases(&preset)?;
    let measured = measure(&cases, &trials, &Bar::new())?;
    let summary = Summary::new(&preset, &cases, &measured);
    asked.output.write(&summary, &summary)?;
    asked.output.plot(Plot::Summary, &summary, surroundings)
}

fn trace(asked: &arguments::Trace, surroundings: &Surroundings) -> Result<(), Failure> {
    asked.output.check()?;
    let preset = asked.machine.preset(REPORT)?;
    if asked.disk >= preset.nodes.disks {
        return Err(Failure::input(format!(
            "--disk is {}: the machine has {} disks, counted from 0",
            asked.disk, preset.nodes.disks
        )));
    }
    let case = asked.transfer.case(&preset)?;
    let (outcome, trace) = case
        .experiment(asked.seed)
        .run_traced()
        .map_err(StudyError::from)?;
    let mut text = format!("{} on {}\n\n", case.describe(), preset.name);
    let _ = writeln!(
        text,
        "{:.2} MB/s, {:.6} s, {} records",
        outcome.throughput_mb_s(),
        outcome.elapsed.as_seconds_f64(),
        trace.records.len()
    );
    let shares = Shares {
        busy: &busy(&trace, outcome.elapsed),
        elapsed: outcome.elapsed,
    };
    let _ = write!(text, "\n{shares}");
    let chrome = Chrome {
        trace: &trace,
        clients: preset.nodes.clients,
    };
    asked.output.write(&text, &chrome)?;
    if asked.output.plot.is_some() {
        let title = format!("{} on {}", case.describe(), preset.name);
        let seeks = Seeks::new(&trace, asked.disk, title)?;
        asked.output.plot(Plot::Seeks, &seeks, surroundings)?;
    }
    Ok(())
}

fn dickens_thakur(
    asked: &arguments::DickensThakur,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = arguments::trials(1, asked.seed, asked.jobs)?;
    let presets = match &asked.preset {
        Some(preset) => vec![arguments::find(preset)?],
        None => {
            let all = Machine::ALL.into_iter();
            let meant = all.filter(|machine| asked.figure.is_none_or(|figure| machine.has(figure)));
            let found = meant.map(|machine| arguments::find(machine.preset()));
            found.collect::<Result<Vec<_>, _>>()?
        }
    };
    let plans = presets.into_iter().map(|preset| {
        let figures = asked.figure.as_slice();
        dickens_thakur::Plan::new(preset, figures)
    });
    // What cannot be is said before anything is run.
    let plans = plans.collect::<Result<Vec<_>, _>>()?;
    let mut machines = Vec::new();
    for plan in &plans {
        machines.push(plan.measure(&trials)?);
    }
    let text: Vec<String> = machines.iter().map(ToString::to_string).collect();
    asked.output.write(&text.join("\n"), &machines)?;
    for figure in machines.iter().flat_map(|machine| &machine.figures) {
        let name = format!("-{}-{}", figure.number(), figure.preset);
        asked
            .output
            .with_stem(&name)
            .plot(Plot::Figure, figure, surroundings)?;
    }
    Ok(())
}

fn panda(asked: &arguments::Panda, surroundings: &Surroundings) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = arguments::trials(asked.trials, asked.seed, asked.jobs)?;
    let preset = arguments::find(asked.preset.as_deref().unwrap_or(panda::PRESET))?;
    let mut plan = panda::Plan::new(preset, asked.figure.as_slice())?;
    if let Some(clients) = asked.clients {
        plan = plan.with_clients(clients)?;
    }
    if let Some(array_mb) = asked.array_mb {
        plan = plan.with_arrays(&[array_mb]);
    }
    let measured = plan.measure(&trials)?;
    asked.output.write(&measured, &measured)?;
    for figure in &measured.figures {
        let name = format!("-{}", figure.number());
        asked
            .output
            .with_stem(&name)
            .plot(Plot::Figure, figure, surroundings)?;
    }
    Ok(())
}

fn scale(asked: &arguments::Scale, surroundings: &Surroundings) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = arguments::trials(asked.trials, asked.seed, asked.jobs)?;
    let preset = arguments::find(asked.preset.as_deref().unwrap_or(TODAY))?;
    let options = scale::Options {
        preset: Arc::new(preset),
        pattern: arguments::pattern(&asked.pattern)?,
        record_bytes: asked.record,
        layout: arguments::layout(&asked.layout)?,
        file_bytes: asked.file_mb.map(arguments::file_bytes).transpose()?,
        clients: asked.clients.clone().unwrap_or(scale::CLIENTS.into()),
        servers: asked.servers.clone().unwrap_or(scale::SERVERS.into()),
    };
    let cases: Vec<Case> = scale::cases(&options)?;
    let measured = measure(&cases, &trials, &Bar::new())?;
    let scale = scale::Scale::new(&options, &cases, &measured)?;
    asked.output.write(&scale, &scale)?;
    asked.output.plot(Plot::Scale, &scale, surroundings)
}

/// The text of one machine, or a line for each.
fn preset(asked: &arguments::PresetName) -> Result<(), Failure> {
    if let Some(name) = &asked.name {
        return output::text(Preset::text(name).map_err(Failure::input)?);
    }
    let names = Preset::names();
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
    let mut lines = String::new();
    for name in names {
        let _ = writeln!(lines, "{name:width$}  {}", arguments::find(name)?.about);
    }
    output::text(&lines)
}
