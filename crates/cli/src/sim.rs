//! `penstock sim`.

use std::fmt::{self, Write};
use std::path::Path;
use std::sync::Arc;

use penstock_experiments::dickens_thakur::{self, Machine};
use penstock_experiments::expand;
use penstock_experiments::experiment::Outcome;
use penstock_experiments::figure::Plan;
use penstock_experiments::run::Report;
use penstock_experiments::summary::Summary;
use penstock_experiments::table::Table;
use penstock_experiments::trace::{Chrome, Seeks, Shares, busy};
use penstock_experiments::{Case, StudyError, measure, scale, summary, table};
use penstock_experiments::{panda, vesta};
use penstock_sim::preset::Preset;
use serde::{Serialize, Serializer};

use crate::arguments::{self, Plot, Sim};
use crate::failure::Failure;
use crate::output;
use crate::progress::Bar;
use crate::provenance::Finding;

const REPORT: &str = "tr94";
const ARTICLE: &str = "tocs97";
const TODAY: &str = "nvme-server";

pub(crate) fn run(sim: &Sim, python: &Path) -> Result<(), Failure> {
    match sim {
        Sim::Run(asked) => one(asked, python),
        Sim::Table(asked) => table(asked, python),
        Sim::Figure(asked) => figure(asked, python),
        Sim::Summary(asked) => summary(asked, python),
        Sim::Trace(asked) => trace(asked, python),
        Sim::Scale(asked) => scale(asked, python),
        Sim::Expand(asked) => expand(asked, python),
        Sim::DickensThakur(asked) => dickens_thakur(asked, python),
        Sim::Panda(asked) => panda(asked, python),
        Sim::Vesta(asked) => vesta(asked, python),
        Sim::Preset(asked) => preset(asked),
    }
}

fn one(asked: &arguments::Run, python: &Path) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = asked.repeat.trials()?;
    let (preset, provenance) = asked.machine.preset(REPORT, &trials)?;
    let case = asked.transfer.case(&preset)?;
    let measured = measure(std::slice::from_ref(&case), &trials, &Bar::new())?;
    for measured in &measured {
        let report = Report::new(&case, &trials, measured);
        asked.output.write(&provenance.of(&report))?;
        let figure = report.figure(&case);
        let figure = provenance.of(&figure);
        asked.output.plot(Plot::Figure, &figure, python)?;
    }
    Ok(())
}

fn table(asked: &arguments::Table, python: &Path) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = asked.repeat.trials()?;
    let (preset, provenance) = asked.machine.preset(REPORT, &trials)?;
    let cases = table::cases(asked.number, &preset)?;
    let measured = measure(&cases, &trials, &Bar::new())?;
    let table = Table::new(asked.number, &preset, &cases, &measured);
    let table = provenance.of(&table);
    asked.output.write(&table)?;
    asked.output.plot(Plot::Table, &table, python)
}

fn figure(asked: &arguments::Figure, python: &Path) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = asked.repeat.trials()?;
    let (preset, provenance) = asked.machine.preset(ARTICLE, &trials)?;
    let plan = Plan::new(asked.number, &preset)?;
    let measured = measure(plan.cases(), &trials, &Bar::new())?;
    let figure = plan.figure(&measured);
    let figure = provenance.of(&figure);
    asked.output.write(&figure)?;
    asked.output.plot(Plot::Figure, &figure, python)
}

fn summary(asked: &arguments::Summary, python: &Path) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = asked.repeat.trials()?;
    let (preset, provenance) = asked.machine.preset(ARTICLE, &trials)?;
    let cases = summary::cases(&preset)?;
    let measured = measure(&cases, &trials, &Bar::new())?;
    let summary = Summary::new(&preset, &cases, &measured);
    let summary = provenance.of(&summary);
    asked.output.write(&summary)?;
    asked.output.plot(Plot::Summary, &summary, python)
}

fn trace(asked: &arguments::Trace, python: &Path) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = arguments::trials(1, asked.seed, None)?;
    let (preset, provenance) = asked.machine.preset(REPORT, &trials)?;
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
    let title = format!("{} on {}", case.describe(), preset.name);
    let chrome = Chrome {
        trace: &trace,
        clients: preset.nodes.clients,
    };
    let traced = TraceReport {
        title: &title,
        outcome: &outcome,
        chrome: &chrome,
    };
    asked.output.write(&provenance.of(&traced))?;
    if asked.output.plot.is_some() {
        let seeks = Seeks::new(&trace, asked.disk, title)?;
        let seeks = provenance.of(&seeks);
        asked.output.plot(Plot::Seeks, &seeks, python)?;
    }
    Ok(())
}

/// The report of a trace: as text the run and how busy its parts were, as JSON the whole trace.
struct TraceReport<'a> {
    title: &'a str,
    outcome: &'a Outcome,
    chrome: &'a Chrome<'a>,
}

impl Serialize for TraceReport<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.chrome.serialize(serializer)
    }
}

impl fmt::Display for TraceReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceReport {
            title,
            outcome,
            chrome,
        } = self;
        let elapsed = outcome.elapsed;
        writeln!(f, "{title}")?;
        writeln!(f)?;
        writeln!(
            f,
            "{:.2} MB/s, {:.6} s, {} records",
            outcome.throughput_mb_s(),
            elapsed.as_seconds_f64(),
            chrome.trace.records.len()
        )?;
        writeln!(f)?;
        let busy = &busy(chrome.trace, elapsed);
        write!(f, "{}", Shares { busy, elapsed })
    }
}

fn dickens_thakur(asked: &arguments::DickensThakur, python: &Path) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = arguments::trials(1, asked.seed, asked.jobs)?;
    let presets: Vec<&str> = match &asked.preset {
        Some(preset) => vec![preset],
        None => {
            let all = Machine::ALL.into_iter();
            let meant = all.filter(|machine| asked.figure.is_none_or(|figure| machine.has(figure)));
            meant.map(Machine::preset).collect()
        }
    };
    // Bad arguments are refused before anything is run.
    let plans = presets.into_iter().map(|preset| {
        let (preset, provenance) = arguments::unchanged(preset, &trials)?;
        let plan = dickens_thakur::Plan::new(preset, asked.figure.as_slice())?;
        Ok((plan, provenance))
    });
    let plans = plans.collect::<Result<Vec<_>, Failure>>()?;
    let mut machines = Vec::new();
    for (plan, provenance) in &plans {
        machines.push((plan.measure(&trials)?, provenance));
    }
    let findings = machines
        .iter()
        .map(|(machine, provenance)| provenance.of(machine));
    asked.output.write(&Findings(findings.collect()))?;
    let figures = machines.iter().flat_map(|(machine, provenance)| {
        let figures = machine.figures.iter();
        figures.map(|figure| {
            let name = format!("{}-{}", figure.number(), figure.preset);
            (name, provenance.of(figure))
        })
    });
    let figures: Vec<_> = figures.collect();
    asked.output.plots(Plot::Figure, &figures, python)
}

/// Several results, one below the other.
#[derive(Serialize)]
struct Findings<'a, T>(Vec<Finding<'a, T>>);

impl<T: fmt::Display> fmt::Display for Findings<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|finding| writeln!(f, "{finding}"))
    }
}

fn panda(asked: &arguments::Panda, python: &Path) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = arguments::trials(asked.trials, asked.seed, asked.jobs)?;
    let given = asked.preset.as_deref().unwrap_or(panda::PRESET);
    let (preset, provenance) = arguments::unchanged(given, &trials)?;
    let provenance = provenance
        .with_option("--clients", asked.clients)
        .with_option("--array-mb", asked.array_mb);
    let mut plan = panda::Plan::new(preset, asked.figure.as_slice())?;
    if let Some(clients) = asked.clients {
        plan = plan.with_clients(clients)?;
    }
    if let Some(array_mb) = asked.array_mb {
        plan = plan.with_arrays(&[array_mb]);
    }
    let measured = plan.measure(&trials)?;
    asked.output.write(&provenance.of(&measured))?;
    let figures = measured.figures.iter();
    let figures = figures.map(|figure| (figure.number().into(), provenance.of(figure)));
    let figures: Vec<_> = figures.collect();
    asked.output.plots(Plot::Figure, &figures, python)
}

fn vesta(asked: &arguments::Vesta, python: &Path) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = arguments::trials(1, asked.seed, asked.jobs)?;
    let given = asked.preset.as_deref().unwrap_or(vesta::PRESET);
    let (preset, provenance) = arguments::unchanged(given, &trials)?;
    let provenance = provenance.with_option("--cell-mb", asked.cell_mb);
    let mut plan = vesta::Plan::new(preset, asked.figure.as_slice())?;
    if let Some(cell_mb) = asked.cell_mb {
        plan = plan.with_cells(cell_mb);
    }
    let measured = plan.measure(&trials)?;
    asked.output.write(&provenance.of(&measured))?;
    let figures = measured.figures.iter();
    let figures = figures.map(|figure| (figure.number().into(), provenance.of(figure)));
    let figures: Vec<_> = figures.collect();
    asked.output.plots(Plot::Figure, &figures, python)
}

fn scale(asked: &arguments::Scale, python: &Path) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = arguments::trials(asked.trials, asked.seed, asked.jobs)?;
    let given = asked.preset.as_deref().unwrap_or(TODAY);
    let (preset, provenance) = arguments::unchanged(given, &trials)?;
    let provenance = asked.note(provenance);
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
    let scale = provenance.of(&scale);
    asked.output.write(&scale)?;
    asked.output.plot(Plot::Scale, &scale, python)
}

fn expand(asked: &arguments::Expand, python: &Path) -> Result<(), Failure> {
    asked.output.check()?;
    let trials = arguments::trials(asked.trials, asked.seed, asked.jobs)?;
    let presets = match &asked.preset {
        Some(preset) => vec![preset.as_str()],
        None => vec![ARTICLE, TODAY],
    };
    let mut machines = Vec::new();
    for preset in presets {
        let (preset, provenance) = arguments::unchanged(preset, &trials)?;
        let options = expand::Options {
            preset,
            layout: arguments::layout(&asked.layout)?,
            record_bytes: asked.record,
            percents: asked.percent.clone().unwrap_or(expand::PERCENTS.into()),
            slower: asked.slower.clone().unwrap_or(expand::SLOWER.into()),
        };
        machines.push((options.measure(&trials)?, asked.note(provenance)));
    }
    let findings = machines
        .iter()
        .map(|(machine, provenance)| provenance.of(machine));
    asked.output.write(&Findings(findings.collect()))?;
    let drawn: Vec<_> = machines
        .iter()
        .map(|(machine, _)| machine.figure())
        .collect();
    let figures = drawn.iter().zip(&machines);
    let figures =
        figures.map(|(figure, (_, provenance))| (figure.preset.clone(), provenance.of(figure)));
    let figures: Vec<_> = figures.collect();
    asked.output.plots(Plot::Figure, &figures, python)
}

/// Prints the text of one machine, or a line for each.
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
