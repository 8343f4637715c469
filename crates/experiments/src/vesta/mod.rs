//! The experiments of P. F. Corbett and D. G. Feitelson, "The Vesta Parallel File System", ACM TOCS
//! 14(3), 1996, section 5, with Penstock's files on a simulated SP1, beside the paper's numbers.
//!
//! | figure | variable | shown |
//! |---|---|---|
//! | 10, Table I | the size of an access | one client and one I/O node; messages, small files, big ones |
//! | 11 | the data set | writes of 64 KB, which the cache takes until it is full |
//! | 12 | I/O nodes | one client uses all of them at once |
//! | 13 | the system | three I/O nodes a client |
//! | 14 | the size of an access | one client, four I/O nodes: cell after cell, cyclic, striped |
//! | 16 | the size of an access | four clients, four I/O nodes: a subfile a cell, or striped |
//! | 17 | I/O nodes | FastMeshSort, with blocks of 512 to 16K records |
//!
//! Servers and clients are those of `penstock-files`. 1 MB/s is 10^6 bytes/s, as in the paper;
//! sizes are powers of two.

mod fit;
mod messages;
mod plan;
mod published;
mod run;
mod sort;
mod volume;

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

use penstock_engine::Error;
use penstock_sim::preset::Preset;
use serde::Serialize;

use super::figure::{Figure, X};
use super::text::{Grid, bytes};
use super::{StudyError, Trials, threads};
use plan::{Results, Sizes};

pub use fit::Fit;
pub use published::{Number, Statement};
pub use run::{CACHE_BYTES, Case, Part, Seconds, Way};
pub use sort::{RECORDS, SortCase};

/// The preset of the machine that the paper measured on.
pub const PRESET: &str = "sp1-vesta";

/// The MB of a cell of a big file (section 5.2).
pub const CELL_MB: u64 = 128;

/// The greatest distance from a number of Table I, as a part of it.
const NEAR: f64 = 0.1;

/// A plan of the figures.
#[derive(Clone, Debug)]
pub struct Plan {
    preset: Preset,
    figures: Vec<u8>,
    sizes: Sizes,
}

/// A line of Table I.
#[derive(Clone, Debug, Serialize)]
pub struct TableLine {
    pub operation: &'static str,
    /// The numbers of the paper, if it has such a line.
    pub paper: Option<Fit>,
    pub simulated: Fit,
    /// Whether the machine has its numbers from this line.
    pub is_input: bool,
    /// Whether the simulated numbers are near the paper's. A negative `C` is an artefact of the
    /// fit, as the paper says, and does not count.
    pub is_near: bool,
}

/// The figures, with the paper's claims about them.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub preset: String,
    pub figures: Vec<Figure>,
    /// Table I, if Figure 10 was measured.
    pub table: Vec<TableLine>,
    pub numbers: Vec<Number>,
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
        if let Some(other) = figures.iter().find(|figure| !plan::is_there(**figure)) {
            return Err(StudyError::Input(format!(
                "there is no figure {other}: take 10 to 14, 16 or 17"
            )));
        }
        let all = match figures {
            [] => &published::FIGURES,
            some => some,
        };
        let sizes = Sizes {
            cell_mb: CELL_MB,
            records: RECORDS,
        };
        Ok(Self {
            preset,
            figures: all.into(),
            sizes,
        })
    }

    /// Makes files of another length: cells of this number of MB, and files to be sorted in
    /// proportion.
    pub fn with_cells(mut self, cell_mb: u64) -> Self {
        let records = RECORDS * cell_mb / CELL_MB;
        self.sizes = Sizes {
            cell_mb,
            records: records.next_multiple_of(64),
        };
        self
    }

    /// Runs all cases, as one trial.
    ///
    /// # Errors
    /// The first error of a run.
    pub fn measure(&self, trials: &Trials) -> Result<Measured, StudyError> {
        let figures = || self.figures.iter().copied();
        let mut cases = once(figures().flat_map(|figure| self.sizes.cases(figure)));
        cases.sort_by_key(|case: &Case| std::cmp::Reverse(case.weight()));
        let ran = threads::run_all(&cases, trials.threads, |case| {
            case.run(&self.preset, trials.first)
        });
        let sorts = once(figures().flat_map(|figure| self.sizes.sorts(figure)));
        let sorted = threads::run_all(&sorts, trials.threads, |case| {
            case.run(&self.preset, trials.first)
        });
        let results = Results {
            cases: collected(cases, ran)?.collect(),
            sorts: collected(sorts, sorted)?.collect(),
        };
        let (name, sizes) = (&self.preset.name, &self.sizes);
        Ok(Measured {
            preset: name.clone(),
            figures: figures()
                .map(|figure| sizes.figure(figure, &results, name))
                .collect(),
            table: match self.figures.contains(&10) {
                true => self.table(&results)?,
                false => Vec::new(),
            },
            numbers: figures()
                .flat_map(|figure| sizes.numbers(figure, &results))
                .collect(),
            statements: figures()
                .flat_map(|figure| sizes.statements(figure, &results))
                .collect(),
        })
    }

    /// Table I.
    fn table(&self, results: &Results) -> Result<Vec<TableLine>, StudyError> {
        let all = || (8..=20).map(|exponent| 1u64 << exponent);
        let of_files = |case: &dyn Fn(u64) -> Case, part: Part| {
            let point = |bytes| {
                let case = case(bytes);
                let seconds = results.cases.get(&case);
                (
                    bytes,
                    case.access_ms(seconds.map_or(f64::NAN, |s| part.of(s))),
                )
            };
            Fit::of(&all().map(point).collect::<Vec<_>>())
        };
        let of_messages = |pattern| -> Result<Fit, Error> {
            let point = |bytes| Ok((bytes, messages::milliseconds(&self.preset, pattern, bytes)?));
            let points: Result<Vec<_>, Error> = all().map(point).collect();
            Ok(Fit::of(&points?))
        };
        let mut lines = Vec::new();
        for line in published::TABLE {
            let simulated = match line.measured {
                published::Measured::Messages(pattern) => of_messages(pattern)?,
                published::Measured::Small(part) => of_files(&|n| self.sizes.small(n), part),
                published::Measured::Big(part) => of_files(&|n| self.sizes.big_alone(n), part),
            };
            let is_near = |simulated: f64, paper: f64| (simulated - paper).abs() <= NEAR * paper;
            lines.push(TableLine {
                operation: line.name,
                paper: Some(Fit {
                    c: line.c,
                    b: line.b,
                }),
                simulated,
                is_input: line.is_input,
                is_near: (line.c < 0.0 || is_near(simulated.c, line.c))
                    && is_near(simulated.b, line.b),
            });
        }
        let inside = |bytes| Case {
            is_inside: true,
            ..self.sizes.small(bytes)
        };
        for (operation, simulated) in [
            (
                "wr mp, data inside",
                of_messages(messages::Pattern::WriteInside)?,
            ),
            ("1st wr small, inside", of_files(&inside, Part::FirstWrite)),
        ] {
            lines.push(TableLine {
                operation,
                paper: None,
                simulated,
                is_input: false,
                is_near: true,
            });
        }
        Ok(lines)
    }
}

/// Each item once, in the order of their first places.
fn once<T: Copy + Eq + Hash>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = HashSet::new();
    items.filter(|item| seen.insert(*item)).collect()
}

/// The cases with their results, or the first error.
fn collected<C, R>(
    cases: Vec<C>,
    results: Vec<Option<Result<R, Error>>>,
) -> Result<impl Iterator<Item = (C, R)>, StudyError> {
    let pairs = cases.into_iter().zip(results);
    let ran = pairs.filter_map(|(case, result)| Some((case, result?)));
    let ran: Result<Vec<(C, R)>, Error> = ran.map(|(case, result)| Ok((case, result?))).collect();
    Ok(ran?.into_iter())
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for figure in &self.figures {
            writeln!(f, "{}", Rows(figure))?;
        }
        if !self.table.is_empty() {
            writeln!(f, "Table I, T = C + B n: ms, and ns a byte\n")?;
            writeln!(f, "{}", Lines(&self.table))?;
        }
        let mark = |is_well: bool| if is_well { "" } else { "*" }.to_string();
        if !self.numbers.is_empty() {
            let mut grid = Grid::default();
            grid.row(["MB/s", "paper", "simulated", ""].map(String::from));
            for number in &self.numbers {
                grid.row([
                    format!("Figure {}: {}", number.figure, number.what),
                    format!("{:.2}", number.paper),
                    format!("{:.2}", number.simulated),
                    mark(number.is_near),
                ]);
            }
            writeln!(f, "{grid}")?;
        }
        for statement in &self.statements {
            let mark = if statement.holds { "holds" } else { "*" };
            let Statement {
                figure,
                what,
                found,
                ..
            } = statement;
            writeln!(f, "Figure {figure}: {what}: {found}: {mark}")?;
        }
        let lines = self.table.iter().filter(|line| line.paper.is_some());
        let near = |is_near: &mut dyn Iterator<Item = bool>| is_near.filter(|near| *near).count();
        writeln!(
            f,
            "\n{} of {} lines of Table I are near, {} of {} numbers, {} of {} rules hold",
            near(&mut lines.clone().map(|line| line.is_near)),
            lines.count(),
            near(&mut self.numbers.iter().map(|number| number.is_near)),
            self.numbers.len(),
            near(&mut self.statements.iter().map(|statement| statement.holds)),
            self.statements.len()
        )
    }
}

/// A figure as text.
struct Rows<'a>(&'a Figure);

impl fmt::Display for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figure {
            figure,
            title,
            y_label,
            preset,
            x_label,
            series,
            published,
            ..
        } = self.0;
        writeln!(f, "Figure {figure} on {preset}: {title}; {y_label}\n")?;
        let mut grid = Grid::default();
        let heads = series.iter().map(|line| line.name.clone());
        let model = published.first().map(|number| number.name.clone());
        grid.row([x_label.clone()].into_iter().chain(heads).chain(model));
        let places = series.first().map_or(&[][..], |line| &line.points);
        for (row, place) in places.iter().enumerate() {
            let x = match &place.x {
                X::Name(name) => name.clone(),
                X::Count(count) if x_label.ends_with("(bytes)") => bytes(*count),
                X::Count(count) => count.to_string(),
            };
            let cells = series.iter().filter_map(|line| line.points.get(row));
            let cells = cells.map(|point| format!("{:.2}", point.y));
            let model = published
                .get(row)
                .map(|number| format!("{:.2}", number.high));
            grid.row([x].into_iter().chain(cells).chain(model));
        }
        write!(f, "{grid}")
    }
}

/// Table I as text.
struct Lines<'a>(&'a [TableLine]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut grid = Grid::default();
        grid.row(["", "paper C", "B", "simulated C", "B", ""].map(String::from));
        for line in self.0 {
            let both = |fit: Fit| [format!("{:.3}", fit.c), format!("{:.1}", 1e6 * fit.b)];
            let [paper_c, paper_b] = line.paper.map(both).unwrap_or_default();
            let [c, b] = both(line.simulated);
            let mark = match (line.is_input, line.is_near) {
                (_, false) => "*",
                (true, true) => "input",
                (false, true) => "",
            };
            grid.row([line.operation.into(), paper_c, paper_b, c, b, mark.into()]);
        }
        write!(f, "{grid}")
    }
}
