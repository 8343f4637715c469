//! Figures 3 to 9 of K. Seamons, Y. Chen, P. Jones, J. Jozwiak and M. Winslett, "Server-Directed
//! Collective I/O in Panda", SC '95, on a simulated SP2 of NASA Ames, beside the paper's text.
//!
//! | figures | compute nodes | on disk | 100% of an I/O node |
//! |---|---|---|---|
//! | 3, 4: reads, writes | 8 | natural chunking | its file system |
//! | 5, 6 | 32 | natural chunking, infinitely fast disk | messages |
//! | 7, 8 | 32 | traditional order | its file system |
//! | 9: writes | 16 | traditional order, infinitely fast disk | messages |
//!
//! Arrays of 16 to 512 MB, of 64-bit numbers in three dimensions, BLOCK in each; 2, 4 and 8 I/O
//! nodes. The paper also ran other numbers of compute nodes, and says that their results are alike:
//! see [`Plan::with_clients`].

mod published;
pub mod run;

use std::collections::{HashMap, HashSet};
use std::fmt;

use penstock_engine::{Error, Operation};
use serde::Serialize;

use super::figure::{Figure, Line, Point, Scale, X};
use super::text::Grid;
use super::{StudyError, Trials, threads};
use penstock_sim::preset::Preset;

pub use published::{ARRAYS_MB, NEAR_POINTS, Says};
use published::{MESSAGE_US, MESSAGES_MB_S, READ_MB_S, STARTUP_SECONDS, Shown, WRITE_MB_S};
pub use run::{Case, RunResult, Schema};
use run::{SUB_CHUNK_BYTES, message_seconds, peak_mb_s, rate_mb_s};

/// The preset of the machine that the paper measured on.
pub const PRESET: &str = "sp2-nas";

/// The greatest distance from the machine's own numbers, as a part of them.
const NEAR: f64 = 0.05;

/// The files that measure the peak, MB (section 3).
const PEAK_FILES_MB: [u64; 2] = [32, 64];

/// A plan of the figures.
#[derive(Clone, Debug)]
pub struct Plan {
    preset: Preset,
    figures: Vec<Shown>,
    arrays_mb: Vec<u64>,
}

/// A number of the machine that the paper gives, beside the simulated one.
#[derive(Clone, Debug, Serialize)]
pub struct Number {
    /// The quantity, in words.
    pub what: &'static str,
    pub unit: &'static str,
    /// The number of the paper.
    pub paper: f64,
    /// The simulated number.
    pub simulated: f64,
    /// Whether the simulated number is near the paper's.
    pub is_near: bool,
}

/// A cell is one run of a figure.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cell {
    /// The number of I/O nodes.
    pub servers: usize,
    /// The size of the array, in units of 2^20 bytes.
    pub array_mb: u64,
    /// The throughput of all I/O nodes together, MB/s.
    pub mb_s: f64,
    /// The throughput as a percentage of the I/O nodes' peak.
    pub percent: f64,
}

/// A comparison of the paper's text on a figure with the simulation.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub figure: u8,
    pub title: String,
    /// The text's range or number, percent of the peak.
    pub paper: Says,
    /// The least simulated percentage.
    pub least: f64,
    /// The middle simulated percentage.
    pub middle: f64,
    /// The greatest simulated percentage.
    pub most: f64,
    /// The number of runs inside the range, or near the one number, within 5 points.
    pub near: usize,
    /// The number of runs.
    pub runs: usize,
    /// Whether all runs are near, or most if the text says so.
    pub holds: bool,
}

/// A statement is another claim of the text.
#[derive(Clone, Debug, Serialize)]
pub struct Statement {
    /// The claim, in words.
    pub what: &'static str,
    /// Whether the claim holds.
    pub holds: bool,
}

/// The figures, with the paper's claims about them.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub preset: String,
    /// The machine's own numbers.
    pub numbers: Vec<Number>,
    /// The runs of each figure.
    pub cells: Vec<Vec<Cell>>,
    /// The figures as they are drawn.
    pub figures: Vec<Figure>,
    /// The comparison of each figure with the text.
    pub comparisons: Vec<Comparison>,
    /// The text's claims about several figures.
    pub statements: Vec<Statement>,
}

impl Plan {
    /// Plans the figures on the machine that `preset` describes: all figures, if none is named.
    ///
    /// # Errors
    /// When there is no such figure, or the preset describes another machine.
    pub fn new(preset: Preset, figures: &[u8]) -> Result<Self, StudyError> {
        if preset.name != PRESET {
            return Err(StudyError::Input(format!(
                "preset {} is not the paper's machine: take {PRESET}",
                preset.name
            )));
        }
        let is_there = |number: &u8| Shown::ALL.iter().any(|shown| shown.number == *number);
        if let Some(other) = figures.iter().find(|number| !is_there(number)) {
            return Err(StudyError::Input(format!(
                "there is no figure {other}: take 3 to 9"
            )));
        }
        let is_meant = |shown: &Shown| figures.is_empty() || figures.contains(&shown.number);
        Ok(Self {
            preset,
            figures: Shown::ALL.into_iter().filter(is_meant).collect(),
            arrays_mb: ARRAYS_MB.into(),
        })
    }

    /// Sets the number of compute nodes, if the paper ran that number without showing it.
    ///
    /// # Errors
    /// When the paper ran none of the figures with that number.
    pub fn with_clients(mut self, clients: usize) -> Result<Self, StudyError> {
        self.figures.retain(|shown| shown.has(clients));
        if self.figures.is_empty() {
            return Err(StudyError::Input(format!(
                "there is no figure of {clients} compute nodes: take 8, 16 or 32, or in traditional order 24"
            )));
        }
        for shown in &mut self.figures {
            shown.clients = clients;
        }
        Ok(self)
    }

    /// Keeps only arrays of these sizes, in MB.
    pub fn with_arrays(mut self, arrays_mb: &[u64]) -> Self {
        self.arrays_mb = arrays_mb.into();
        self
    }

    /// The cases of a figure, by I/O nodes and then by arrays.
    fn cases(&self, shown: &Shown) -> Vec<Case> {
        let of_servers = |servers| {
            self.arrays_mb
                .iter()
                .map(move |&mb| shown.case(servers, mb))
        };
        shown.servers().into_iter().flat_map(of_servers).collect()
    }

    /// Runs all cases. The paper says: "We repeated each test 5 times and use the average elapsed
    /// time" (section 3); here `trials` sets the number.
    ///
    /// # Errors
    /// The first error of a run.
    pub fn measure(&self, trials: &Trials) -> Result<Measured, StudyError> {
        let all = self.figures.iter().flat_map(|shown| self.cases(shown));
        let mut seen = HashSet::new();
        let all = all.filter(|case| seen.insert(*case)).collect();
        let seconds = run_all(&self.preset, all, trials)?;
        let cells: Vec<Vec<Cell>> = self
            .figures
            .iter()
            .map(|shown| {
                let cases = self.cases(shown).into_iter();
                cases.map(|case| cell(shown, &case, &seconds)).collect()
            })
            .collect();
        let both = || self.figures.iter().zip(&cells);
        Ok(Measured {
            preset: self.preset.name.clone(),
            numbers: self.numbers(trials)?,
            figures: both()
                .map(|(shown, cells)| self.figure(shown, cells, trials.count))
                .collect(),
            comparisons: both()
                .map(|(shown, cells)| compared(shown, cells))
                .collect(),
            statements: statements(&both().collect::<Vec<_>>()),
            cells,
        })
    }

    /// The paper's numbers of the machine without Panda, and of a call that moves nothing.
    fn numbers(&self, trials: &Trials) -> Result<Vec<Number>, StudyError> {
        let peak = |operation| -> Result<f64, Error> {
            let of = |mb| peak_mb_s(&self.preset, operation, mb, trials.first);
            let peaks: Result<Vec<f64>, Error> = PEAK_FILES_MB.map(of).into_iter().collect();
            Ok(peaks?.into_iter().fold(0.0, f64::max))
        };
        let call = Case {
            operation: Operation::Write,
            schema: Schema::Natural,
            is_disk_free: true,
            clients: 32,
            servers: 8,
            array_mb: 16,
        };
        let startup = call.run_empty(&self.preset, trials.first)?.seconds;
        let latency = message_seconds(&self.preset, 0)?;
        let message = message_seconds(&self.preset, SUB_CHUNK_BYTES)?;
        let number = |what, unit, paper: f64, simulated: f64| Number {
            what,
            unit,
            paper,
            simulated,
            is_near: (simulated - paper).abs() <= NEAR * paper,
        };
        Ok(vec![
            number(
                "peak of the file system, read",
                "MB/s",
                READ_MB_S,
                peak(Operation::Read)?,
            ),
            number(
                "the same, written",
                "MB/s",
                WRITE_MB_S,
                peak(Operation::Write)?,
            ),
            number("latency of a message", "us", MESSAGE_US, 1e6 * latency),
            number(
                "bandwidth of messages of 1 MB",
                "MB/s",
                MESSAGES_MB_S,
                1.0 / message,
            ),
            number(
                "start-up of a call",
                "ms",
                1e3 * STARTUP_SECONDS,
                1e3 * startup,
            ),
        ])
    }

    fn figure(&self, shown: &Shown, cells: &[Cell], trials: u64) -> Figure {
        let line = |&array_mb: &u64| Line {
            name: format!("{array_mb} MB"),
            points: cells
                .iter()
                .filter(|cell| cell.array_mb == array_mb)
                .map(|cell| Point {
                    x: X::Count(cell.servers as u64),
                    y: cell.percent,
                    cv: None,
                })
                .collect(),
        };
        Figure {
            figure: format!("{} of Panda", shown.number),
            title: shown.title(),
            x_label: "I/O nodes".into(),
            y_label: format!("of {} MB/s an I/O node (%)", shown.peak_mb_s()),
            x_scale: Scale::Log2,
            series: self.arrays_mb.iter().map(line).collect(),
            limits: Vec::new(),
            published: vec![shown.says.published()],
            preset: self.preset.name.clone(),
            trials,
        }
    }
}

fn cell(shown: &Shown, case: &Case, seconds: &HashMap<Case, f64>) -> Cell {
    let seconds = seconds.get(case).copied().unwrap_or(f64::NAN);
    let mb_s = rate_mb_s(case, seconds);
    Cell {
        servers: case.servers,
        array_mb: case.array_mb,
        mb_s,
        percent: 100.0 * mb_s / case.servers as f64 / shown.peak_mb_s(),
    }
}

/// Compares a figure with the text. A range holds if nothing lies outside; "near 90% in most cases"
/// holds if most runs are near and none is further above.
fn compared(shown: &Shown, cells: &[Cell]) -> Comparison {
    let mut percent: Vec<f64> = cells.iter().map(|cell| cell.percent).collect();
    percent.sort_by(f64::total_cmp);
    let at = |place: usize| percent.get(place).copied().unwrap_or(f64::NAN);
    let last = percent.len().saturating_sub(1);
    let (least, middle, most) = (at(0), at(percent.len() / 2), at(last));
    let (from, to) = match shown.says {
        Says::Range(from, to) => (from, to),
        Says::Most(paper) => (paper, paper),
    };
    let inside = from - NEAR_POINTS..=to + NEAR_POINTS;
    let near = percent
        .iter()
        .filter(|&percent| inside.contains(percent))
        .count();
    let holds = match shown.says {
        Says::Range(..) => near == percent.len(),
        Says::Most(_) => 2 * near > percent.len() && most <= to + NEAR_POINTS,
    };
    Comparison {
        figure: shown.number,
        title: shown.title(),
        paper: shown.says,
        least,
        middle,
        most,
        near,
        runs: percent.len(),
        holds,
    }
}

/// Whether the text's range of these figures together is reached at both ends.
fn reaches(figures: &[(&Shown, &Vec<Cell>)], numbers: &[u8]) -> Option<bool> {
    let meant = figures
        .iter()
        .filter(|(shown, _)| numbers.contains(&shown.number));
    let meant: Vec<_> = meant.collect();
    let (shown, _) = meant.first().filter(|_| meant.len() == numbers.len())?;
    let Says::Range(from, to) = shown.says else {
        return None;
    };
    let percent = || {
        meant
            .iter()
            .flat_map(|(_, cells)| cells.iter().map(|cell| cell.percent))
    };
    let least = percent().fold(f64::INFINITY, f64::min);
    let most = percent().fold(f64::NEG_INFINITY, f64::max);
    let is_near = |simulated: f64, paper: f64| (simulated - paper).abs() <= NEAR_POINTS;
    Some(is_near(least, from) && is_near(most, to))
}

/// The text's claims about several figures together, as far as the figures that were run show them.
fn statements(figures: &[(&Shown, &Vec<Cell>)]) -> Vec<Statement> {
    let of = |number: u8| figures.iter().find(|(shown, _)| shown.number == number);
    let mut all = Vec::new();
    let mut say = |what, holds| all.push(Statement { what, holds });
    for (numbers, what) in [
        (
            &[3, 4][..],
            "Figures 3 and 4: 85 to 98% is reached at both ends",
        ),
        (
            &[7, 8],
            "Figures 7 and 8: 68 to 95% is reached at both ends",
        ),
        (&[9], "Figure 9: 38 to 86% is reached at both ends"),
    ] {
        if let Some(holds) = reaches(figures, numbers) {
            say(what, holds);
        }
    }
    if let (Some((_, reads)), Some((_, writes))) = (of(5), of(6)) {
        let mut pairs = reads.iter().zip(writes.iter());
        say(
            "Figures 5 and 6: reads and writes are very similar",
            pairs.all(|(read, write)| (read.percent - write.percent).abs() <= NEAR_POINTS),
        );
    }
    for (figure, what) in [
        (
            3,
            "Figure 3: the less there is for an I/O node, the lower its throughput",
        ),
        (4, "Figure 4: the same"),
        (5, "Figure 5: the same"),
        (6, "Figure 6: the same"),
        (7, "Figure 7: the same"),
        (8, "Figure 8: the same"),
        (9, "Figure 9: the same"),
    ] {
        if let Some((_, cells)) = of(figure) {
            say(what, declines(cells));
        }
    }
    for (natural, traditional, what) in [
        (3, 7, "Figure 7 is below Figure 3, in the mean"),
        (4, 8, "Figure 8 is below Figure 4, in the mean"),
        (6, 9, "Figure 9 is below Figure 6, in the mean"),
    ] {
        if let (Some((_, above)), Some((_, below))) = (of(natural), of(traditional)) {
            let mean = |cells: &[Cell]| {
                cells.iter().map(|cell| cell.percent).sum::<f64>() / cells.len() as f64
            };
            say(what, mean(below) < mean(above));
        }
    }
    all
}

/// Whether, with any number of I/O nodes, a smaller array is not faster than a larger one, up to a
/// point, by which the starting angles of disks differ.
fn declines(cells: &[Cell]) -> bool {
    let mut pairs = cells
        .windows(2)
        .filter(|pair| pair[0].servers == pair[1].servers);
    pairs.all(|pair| pair[0].percent <= pair[1].percent + 1.0)
}

/// Runs `cases`, the largest first, and notes the mean of their seconds.
fn run_all(
    preset: &Preset,
    mut cases: Vec<Case>,
    trials: &Trials,
) -> Result<HashMap<Case, f64>, StudyError> {
    cases.sort_by_key(|case| std::cmp::Reverse(case.array_mb));
    let ran = threads::run_all(&cases, trials.threads, |case| -> Result<f64, Error> {
        let all = (0..trials.count).map(|trial| case.run(preset, trials.first + trial));
        let seconds = all.map(|ran| ran.map(|ran| ran.seconds));
        Ok(seconds.sum::<Result<f64, _>>()? / trials.count as f64)
    });
    let ran = cases.into_iter().zip(ran);
    ran.filter_map(|(case, seconds)| Some((case, seconds?)))
        .map(|(case, seconds)| Ok((case, seconds?)))
        .collect()
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (figure, cells) in self.figures.iter().zip(&self.cells) {
            writeln!(f, "{}", Rows { figure, cells })?;
        }
        let mut grid = Grid::default();
        let heads = [
            "of the peak (%)",
            "paper",
            "simulated",
            "middle",
            "within 5 points",
            "",
        ];
        grid.row(heads.map(String::from));
        for comparison in &self.comparisons {
            grid.row([
                format!("Figure {}: {}", comparison.figure, comparison.title),
                comparison.paper.to_string(),
                format!("{:.1} to {:.1}", comparison.least, comparison.most),
                format!("{:.1}", comparison.middle),
                format!("{} of {}", comparison.near, comparison.runs),
                if comparison.holds { "holds" } else { "*" }.into(),
            ]);
        }
        writeln!(f, "{grid}")?;
        let mut grid = Grid::default();
        grid.row(["the machine", "paper", "simulated", "", ""].map(String::from));
        for number in &self.numbers {
            grid.row([
                number.what.into(),
                format!("{:.2}", number.paper),
                format!("{:.2}", number.simulated),
                number.unit.into(),
                if number.is_near { "" } else { "*" }.into(),
            ]);
        }
        writeln!(f, "{grid}")?;
        let count = |holds: &mut dyn Iterator<Item = bool>| holds.filter(|holds| *holds).count();
        writeln!(
            f,
            "{} of {} figures hold, {} of {} statements",
            count(&mut self.comparisons.iter().map(|c| c.holds)),
            self.comparisons.len(),
            count(&mut self.statements.iter().map(|s| s.holds)),
            self.statements.len()
        )?;
        for broken in self.statements.iter().filter(|statement| !statement.holds) {
            writeln!(f, "* {}", broken.what)?;
        }
        Ok(())
    }
}

/// A figure as text: the throughput of all I/O nodes together, and of each as a part of the peak.
struct Rows<'a> {
    figure: &'a Figure,
    cells: &'a [Cell],
}

impl fmt::Display for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rows { figure, cells } = self;
        writeln!(
            f,
            "Figure {} on {}: {}; MB/s, and {}",
            figure.figure, figure.preset, figure.title, figure.y_label
        )?;
        writeln!(f)?;
        let mut servers: Vec<usize> = cells.iter().map(|cell| cell.servers).collect();
        servers.dedup();
        let mut grid = Grid::default();
        let heads = servers
            .iter()
            .flat_map(|n| [format!("{n} I/O nodes"), "%".into()]);
        grid.row(["array".to_string()].into_iter().chain(heads));
        for line in &figure.series {
            let of_line = |cell: &&Cell| format!("{} MB", cell.array_mb) == line.name;
            let shown = cells.iter().filter(of_line);
            let shown = shown.flat_map(|c| [format!("{:.2}", c.mb_s), format!("{:.0}", c.percent)]);
            grid.row([line.name.clone()].into_iter().chain(shown));
        }
        write!(f, "{grid}")
    }
}
