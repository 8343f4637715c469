//! Table III of Kotz, TOCS 1997: the speed of each method over traditional caching, over all
//! patterns of Figures 4 to 7, as the least, the geometric mean and the greatest ratio.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::figure::Plan;
use super::text::{Grid, record, trials};
use super::{Case, Measured, StudyError, names};
use crate::experiment::Method;
use penstock_sim::machine::Layout;
use penstock_sim::preset::Preset;

/// The least, the geometric mean and the greatest of ratios.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    pub min: f64,
    pub mean: f64,
    pub max: f64,
}

/// The rows of the article's table. Disk-directed I/O without presorting has the random-blocks
/// layout only: on the contiguous layout presorting changes nothing.
const PUBLISHED: [(Method, Range); 3] = [
    (Method::DdioSort, range(1.00, 1.64, 18.10)),
    (Method::Ddio, range(1.00, 1.18, 5.88)),
    (Method::TwoPhase, range(0.44, 1.20, 17.83)),
];

const fn range(min: f64, mean: f64, max: f64) -> Range {
    Range { min, mean, max }
}

/// The ratio of one pattern of one method.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The pattern, such as "8-byte wbc, contiguous".
    pub pattern: String,
    /// The throughput over caching's.
    pub ratio: f64,
}

/// The row of one method.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub method: &'static str,
    /// The measured range.
    #[serde(flatten)]
    pub measured: Range,
    /// The pattern of the least ratio.
    pub min_pattern: String,
    /// The pattern of the greatest ratio.
    pub max_pattern: String,
    /// The article's range.
    pub published: Range,
    /// The ratios of all patterns.
    pub ratios: Vec<Ratio>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub preset: String,
    /// The trials of each pattern.
    pub trials: u64,
    /// The row of each method.
    pub rows: Vec<Row>,
}

/// The cases to measure.
///
/// # Errors
/// No error, except by a mistake in this crate.
pub fn cases(preset: &Arc<Preset>) -> Result<Vec<Case>, StudyError> {
    let mut cases = Vec::new();
    for figure in 4..=7 {
        cases.extend_from_slice(Plan::new(figure, preset)?.cases());
    }
    Ok(cases)
}

impl Summary {
    /// Makes the table from the measured `cases`. A method without cases is left out.
    pub fn new(preset: &Preset, cases: &[Case], measured: &[Measured]) -> Self {
        let rows = PUBLISHED.iter().filter_map(|&(method, published)| {
            let ratios = ratios(method, cases, measured);
            let logs: f64 = ratios.iter().map(|ratio| ratio.ratio.ln()).sum();
            let least = ratios.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
            let greatest = ratios.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
            Some(Row {
                method: names::method(method),
                measured: Range {
                    min: least.ratio,
                    mean: (logs / ratios.len() as f64).exp(),
                    max: greatest.ratio,
                },
                min_pattern: least.pattern.clone(),
                max_pattern: greatest.pattern.clone(),
                published,
                ratios: ratios.clone(),
            })
        });
        Self {
            preset: preset.name.clone(),
            trials: measured.first().map_or(0, |m| m.outcomes.len() as u64),
            rows: rows.collect(),
        }
    }
}

fn ratios(method: Method, cases: &[Case], measured: &[Measured]) -> Vec<Ratio> {
    let of = |case: &Case, method: Method| {
        let same = |other: &Case| {
            other.method == method
                && other.pattern == case.pattern
                && other.record_bytes == case.record_bytes
                && other.layout == case.layout
        };
        let found = cases.iter().position(same)?;
        measured.get(found).map(|m| m.throughput().mean)
    };
    let ours = cases.iter().filter(|case| case.method == method);
    let ratios = ours.filter_map(|case| {
        Some(Ratio {
            pattern: format!(
                "{} {}, {}",
                record(case.record_bytes),
                case.pattern,
                layout_word(case.layout)
            ),
            ratio: of(case, method)? / of(case, Method::Caching)?,
        })
    });
    ratios.collect()
}

fn layout_word(layout: Layout) -> &'static str {
    match layout {
        Layout::RandomBlocks => "random",
        other => names::layout(other),
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Throughput relative to caching, over all patterns of Figures 4 to 7: measured \
             (published)"
        )?;
        writeln!(f, "on {}, {}", self.preset, trials(self.trials))?;
        writeln!(f)?;
        let mut grid = Grid::default();
        let heads = [
            "method",
            "minimum",
            "geometric mean",
            "maximum",
            "minimum at",
            "maximum at",
        ];
        grid.row(heads.map(String::from));
        for row in &self.rows {
            let both = |of: fn(&Range) -> f64| {
                format!("{:.2} ({:.2})", of(&row.measured), of(&row.published))
            };
            grid.row([
                row.method.to_string(),
                both(|range| range.min),
                both(|range| range.mean),
                both(|range| range.max),
                row.min_pattern.clone(),
                row.max_pattern.clone(),
            ]);
        }
        write!(f, "{grid}")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::experiment::Outcome;
    use penstock_sim::time::Span;

    fn measured(ms: u64) -> Measured {
        let outcome = Outcome {
            elapsed: Span::from_ms(ms),
            bytes: 10 << 20,
            events: 1,
            trace_hash: 1,
            messages: 0,
            message_bytes: 0,
            blocks: 0,
            buffer_bytes: 0,
            buffer_bytes_max: 0,
        };
        Measured {
            outcomes: vec![outcome],
            walls: vec![Duration::ZERO],
        }
    }

    #[test]
    fn ratios_to_caching() -> Result<(), StudyError> {
        let preset = Arc::new(Preset::find("tocs97")?);
        let cases = cases(&preset)?;
        assert_eq!(cases.len(), 4 * (16 + 19) + 3 * (16 + 19));
        // Everything takes a second, except two cells of the presorted method.
        let of = |case: &Case| {
            let is_sorted = case.method == Method::DdioSort && case.record_bytes == 8;
            match (is_sorted, case.pattern.to_string().as_str(), case.layout) {
                (true, "wbc", Layout::Contiguous) => measured(250),
                (true, "rb", Layout::RandomBlocks) => measured(2000),
                _ => measured(1000),
            }
        };
        let measured: Vec<Measured> = cases.iter().map(of).collect();
        let summary = Summary::new(&preset, &cases, &measured);
        let sorted = &summary.rows[0];
        assert_eq!((sorted.method, sorted.ratios.len()), ("ddio-sort", 70));
        assert_eq!((sorted.measured.min, sorted.measured.max), (0.5, 4.0));
        let two = std::f64::consts::LN_2;
        assert!((sorted.measured.mean - (two / 70.0).exp()).abs() < 1e-9);
        assert_eq!(sorted.min_pattern, "8-byte rb, random");
        assert_eq!(sorted.max_pattern, "8-byte wbc, contiguous");
        let counts: Vec<usize> = summary.rows.iter().map(|row| row.ratios.len()).collect();
        assert_eq!(counts, [70, 35, 70]);
        assert!(summary.to_string().contains("4.00 (18.10)"));
        Ok(())
    }
}
