//! Tables 3 and 4 of Kotz, PCS-TR94-226: throughput by pattern, measured beside published.
//!
//! Table 3 has the random-blocks layout and caching, disk-directed I/O and presorted disk-directed
//! I/O. Table 4 has the contiguous layout, in which presorting changes nothing, and the first two
//! methods. `ra`, `rn` and `wn` do not depend on the size of records and stand with the larger.
//! `ra` counts every client's copy.
//!
//! The published cells are in `data/tr94_cells.csv`; some of the report's cells are kept back
//! there, to check that the model generalises.

use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::Serialize;

use super::text::{Grid, rate, record, trials};
use super::{Case, Measured, StudyError, names};
use crate::experiment::Method;
use crate::pattern::Pattern;
use penstock_sim::machine::Layout;
use penstock_sim::preset::Preset;

/// The published cells.
const PUBLISHED: &str = include_str!("../data/tr94_cells.csv");

/// The patterns, in the order of the tables.
pub const PATTERNS: [&str; 19] = [
    "ra", "rn", "rb", "rc", "rnb", "rbb", "rcb", "rbc", "rcc", "rcn", "wn", "wb", "wc", "wnb",
    "wbb", "wcb", "wbc", "wcc", "wcn",
];

/// The sizes of records.
pub const RECORDS: [u64; 2] = [8, 8192];

/// The greatest distance of an unmarked cell from the published one, as a part of it.
const NEAR: f64 = 0.10;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The layout: `random` or `contiguous`.
    pub layout: &'static str,
    /// The pattern, which is the row.
    pub pattern: Pattern,
    /// The bytes of a record.
    pub record: u64,
    /// The method, which is the column.
    #[serde(serialize_with = "by_name")]
    pub method: Method,
    /// The measured throughput.
    pub mb_s: f64,
    /// The published throughput, MB/s.
    pub published: Option<f64>,
    /// The coefficient of variation of the measured throughput.
    pub cv: f64,
    /// The measured throughput over the published.
    pub ratio: Option<f64>,
}

fn by_name<S: serde::Serializer>(method: &Method, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(names::method(*method))
}

impl Cell {
    /// Whether the cell is not near the published one.
    pub fn is_off(&self) -> bool {
        self.ratio.is_some_and(|ratio| (ratio - 1.0).abs() > NEAR)
    }
}

/// A table, filled in.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The number of the table, 3 or 4.
    pub number: u8,
    pub preset: String,
    /// The trials of each cell.
    pub trials: u64,
    /// The cells, row by row.
    pub cells: Vec<Cell>,
}

/// Whether a pattern is listed with records of this size.
pub fn is_listed(pattern: &str, record: u64) -> bool {
    record != 8 || !["ra", "rn", "wn"].contains(&pattern)
}

/// The cases of table `number`, row by row.
///
/// # Errors
/// When there is no such table.
pub fn cases(number: u8, preset: &Arc<Preset>) -> Result<Vec<Case>, StudyError> {
    let (layout, methods) = columns(number)?;
    let mut cases = Vec::new();
    for pattern in PATTERNS {
        for record in RECORDS {
            if !is_listed(pattern, record) {
                continue;
            }
            for &method in methods {
                cases.push(Case {
                    preset: preset.clone(),
                    pattern: pattern.parse()?,
                    record_bytes: record,
                    layout,
                    method,
                });
            }
        }
    }
    Ok(cases)
}

fn columns(number: u8) -> Result<(Layout, &'static [Method]), StudyError> {
    match number {
        3 => Ok((
            Layout::RandomBlocks,
            &[Method::Caching, Method::Ddio, Method::DdioSort],
        )),
        4 => Ok((Layout::Contiguous, &[Method::Caching, Method::Ddio])),
        _ => Err(StudyError::Input(format!(
            "there is no table {number}: take 3 or 4"
        ))),
    }
}

/// The tables' name of a layout.
fn layout_name(layout: Layout) -> &'static str {
    match layout {
        Layout::RandomBlocks => "random",
        other => names::layout(other),
    }
}

/// The published throughput of a cell, MB/s.
pub fn published(layout: &str, pattern: &str, record: u64, method: &str) -> Option<f64> {
    let record = record.to_string();
    let key = [layout, pattern, &record, method];
    let found = PUBLISHED.lines().find_map(|line| {
        let (_, cell) = line.trim().split_once(',')?;
        let (names, mb_s) = cell.rsplit_once(',')?;
        names.split(',').eq(key).then_some(mb_s)
    });
    found?.parse().ok()
}

/// The published throughput of `case`, MB/s, if the report has a cell for it: on the unchanged
/// machine of the report.
pub fn published_of(case: &Case) -> Option<f64> {
    static REPORT: LazyLock<Option<Preset>> = LazyLock::new(|| Preset::find("tr94").ok());
    if REPORT.as_ref() != Some(&*case.preset) {
        return None;
    }
    let (layout, method) = (layout_name(case.layout), names::method(case.method));
    published(layout, &case.pattern.to_string(), case.record_bytes, method)
}

impl Table {
    /// Makes table `number` from the measured `cases`.
    pub fn new(number: u8, preset: &Preset, cases: &[Case], measured: &[Measured]) -> Self {
        let cells = cases.iter().zip(measured).map(|(case, measured)| {
            let layout = layout_name(case.layout);
            let rate = measured.throughput();
            let (pattern, method) = (case.pattern.to_string(), names::method(case.method));
            let published = published(layout, &pattern, case.record_bytes, method);
            Cell {
                layout,
                pattern: case.pattern,
                record: case.record_bytes,
                method: case.method,
                mb_s: rate.mean,
                published,
                cv: rate.cv,
                ratio: published.map(|published| rate.mean / published),
            }
        });
        Self {
            number,
            preset: preset.name.clone(),
            trials: measured.first().map_or(0, |m| m.outcomes.len() as u64),
            cells: cells.collect(),
        }
    }

    fn cell(&self, pattern: &str, record: u64, method: Method) -> Option<&Cell> {
        self.cells.iter().find(|cell| {
            cell.record == record && cell.method == method && cell.pattern.to_string() == pattern
        })
    }

    /// Says how near the table came to the published one.
    fn verdict(&self) -> String {
        let off = |cell: &Cell| cell.ratio.map(|ratio| (ratio - 1.0).abs());
        let mut errors: Vec<f64> = self.cells.iter().filter_map(off).collect();
        errors.sort_by(f64::total_cmp);
        let worst = self.cells.iter().filter(|cell| cell.ratio.is_some());
        let worst =
            worst.max_by(|a, b| f64::total_cmp(&off(a).unwrap_or(0.0), &off(b).unwrap_or(0.0)));
        let Some(worst) = worst else {
            return "no cell to compare with".into();
        };
        format!(
            "{} of {} cells compared: median error {:.1} %, largest {:.0} % ({}, {} records, {}), \
             {} out of 10 %",
            errors.len(),
            self.cells.len(),
            100.0 * median(&errors),
            100.0 * errors.last().copied().unwrap_or(0.0),
            worst.pattern,
            record(worst.record),
            names::method(worst.method),
            self.cells.iter().filter(|cell| cell.is_off()).count()
        )
    }
}

/// The median of sorted values, one at least.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    } else {
        sorted[middle]
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok((layout, methods)) = columns(self.number) else {
            return Err(fmt::Error);
        };
        writeln!(
            f,
            "Table {}: throughput in MB/s, {} layout, {}, {}; measured (published)",
            self.number,
            names::layout(layout),
            self.preset,
            trials(self.trials)
        )?;
        writeln!(f)?;
        let columns = || {
            RECORDS
                .iter()
                .flat_map(|&record| methods.iter().map(move |&m| (record, m)))
        };
        let mut grid = Grid::default();
        let heads = columns().map(|(size, _)| record(size));
        grid.row([String::new()].into_iter().chain(heads));
        let heads = columns().map(|(_, method)| format!("{} ", names::method(method)));
        grid.row(["pattern".to_string()].into_iter().chain(heads));
        for pattern in PATTERNS {
            let cells = columns().map(|(size, method)| match self.cell(pattern, size, method) {
                None => "- ".to_string(),
                Some(cell) => {
                    let published = cell.published.map(|mb_s| format!("{mb_s:.1}"));
                    format!(
                        "{} ({}){}",
                        rate(cell.mb_s),
                        published.as_deref().unwrap_or("?"),
                        if cell.is_off() { "*" } else { " " }
                    )
                }
            });
            grid.row([pattern.to_string()].into_iter().chain(cells));
        }
        writeln!(f, "{grid}")?;
        writeln!(f, "{}", self.verdict())?;
        write!(
            f,
            "* more than 10 % from the published cell; ? kept back; ra counts every copy"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn published_cells() {
        assert_eq!(published("random", "ra", 8192, "caching"), Some(66.7));
        assert_eq!(published("contiguous", "wcn", 8192, "ddio"), Some(34.7));
        assert_eq!(published("random", "rbb", 8, "ddio"), None);
        assert_eq!(published("contiguous", "rb", 8, "ddio-sort"), None);
    }

    #[test]
    fn only_the_machine_of_the_report_has_published_cells() -> Result<(), StudyError> {
        let of = |preset: Preset| -> Result<Option<f64>, StudyError> {
            Ok(published_of(&Case {
                preset: Arc::new(preset),
                pattern: "rn".parse()?,
                record_bytes: 8192,
                layout: Layout::RandomBlocks,
                method: Method::Caching,
            }))
        };
        let report = Preset::find("tr94")?;
        assert_eq!(of(report.clone())?, Some(4.3));
        assert_eq!(of(Preset::find("tocs97")?)?, None);
        let mut changed = report;
        changed.nodes.clients = 8;
        assert_eq!(of(changed)?, None);
        Ok(())
    }

    #[test]
    fn every_published_cell_is_measured() -> Result<(), StudyError> {
        let preset = Arc::new(Preset::find("tr94")?);
        for (number, count) in [(3u8, 105), (4, 70)] {
            let cases = cases(number, &preset)?;
            let keys: HashSet<String> = cases
                .iter()
                .map(|case| {
                    format!(
                        "{number},{},{},{},{}",
                        layout_name(case.layout),
                        case.pattern,
                        case.record_bytes,
                        names::method(case.method)
                    )
                })
                .collect();
            assert_eq!((cases.len(), keys.len()), (count, count));
            for line in PUBLISHED.lines().skip(1) {
                let (key, _) = line.rsplit_once(',').unwrap();
                let is_of_this = key.starts_with(&number.to_string());
                assert_eq!(keys.contains(key), is_of_this, "{line}");
            }
        }
        assert!(cases(5, &preset).is_err());
        Ok(())
    }

    #[test]
    fn cells_out_of_ten_percent_are_marked() -> Result<(), StudyError> {
        let cell = |pattern: &str, mb_s: f64, published: Option<f64>| -> Result<Cell, StudyError> {
            Ok(Cell {
                layout: "contiguous",
                pattern: pattern.parse()?,
                record: 8192,
                method: Method::Caching,
                mb_s,
                published,
                cv: 0.0,
                ratio: published.map(|published| mb_s / published),
            })
        };
        let table = Table {
            number: 4,
            preset: "tr94".into(),
            trials: 5,
            cells: vec![
                cell("rn", 31.5, Some(31.4))?,
                cell("rbb", 7.0, Some(8.3))?,
                cell("rcb", 7.0, None)?,
            ],
        };
        let text = table.to_string();
        for expected in [
            "31.5 (31.4) ",
            "7.00 (8.3)*",
            "7.00 (?) ",
            "2 of 3 cells compared: median error 8.0 %, largest 16 % (rbb, 8192-byte records, \
             caching), 1 out of 10 %",
        ] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
        Ok(())
    }
}
