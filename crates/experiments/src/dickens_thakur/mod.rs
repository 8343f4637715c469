//! Figures 2 to 7 of P. Dickens and R. Thakur, "Evaluation of Collective I/O Implementations on
//! Parallel Architectures", on the four machines of the paper, beside its text.
//!
//! | figure | variable | shown |
//! |---|---|---|
//! | 2 | processors; 64 MB | MB/s, non-collective and by the steps of two-phase I/O |
//! | 3 | the file; as many processors as there are | as in Figure 2 |
//! | 4 | processors, 4 MB each | seconds of computing and writing, one after the other and at once |
//! | 5, 6 | processors; 64 MB by Step 5 | as in Figure 4; the disks alone in the background (6) |
//! | 7 | processors; 64 MB by Step 5 | as in Figure 5, with O_DIRECT, on the Origin |
//!
//! A computation takes as long as the writing beside it takes with 64 processors.

mod published;
pub mod run;

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;

use super::figure::{Figure, Line, Point, Published, Scale, X};
use super::text::Grid;
use super::{StudyError, Trials, threads};
use penstock_sim::preset::Preset;

pub use published::{Aim, Machine, Value};
pub use run::{Background, Case, RunResult, Way};

/// The numbers of the figures.
pub const FIGURES: [u8; 6] = [2, 3, 4, 5, 6, 7];

/// The greatest distance from a number of the paper: as a part of it, and in points of a
/// percentage.
const NEAR: f64 = 0.25;
const NEAR_POINTS: f64 = 10.0;

/// The files of Figure 3, MB.
const FILES: [u64; 5] = [4, 16, 64, 256, 1024];

/// A plan of the figures of one machine.
#[derive(Clone, Debug)]
pub struct Plan {
    machine: Machine,
    preset: Preset,
    figures: Vec<u8>,
    has_curves: bool,
}

/// A number of the paper, beside the simulated one.
#[derive(Clone, Debug, Serialize)]
pub struct Number {
    pub figure: u8,
    /// The quantity, in words.
    pub what: &'static str,
    pub unit: &'static str,
    /// The number of the paper.
    pub paper: f64,
    /// The simulated number.
    pub simulated: f64,
    /// The aim: near the paper's number, or below it.
    pub aim: Aim,
    /// Whether the simulated number meets the aim.
    pub is_near: bool,
}

/// A comparison of the paper, with its simulation.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub figure: u8,
    /// The comparison, in words: the first is the slower one.
    pub what: &'static str,
    /// The processors of both runs.
    pub clients: [usize; 2],
    /// The seconds of both runs.
    pub seconds: [f64; 2],
    /// Whether the comparison holds.
    pub holds: bool,
}

/// The figures of one machine, with the paper's numbers and comparisons.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub preset: String,
    pub figures: Vec<Figure>,
    pub numbers: Vec<Number>,
    pub comparisons: Vec<Comparison>,
}

/// A series of a figure: its name, and the case at each place.
type Series = (&'static str, Vec<(u64, Case)>);

impl Plan {
    /// Plans the figures of the machine that `preset` describes or varies: all figures, if none is
    /// named.
    ///
    /// # Errors
    /// When there is no such figure or machine.
    pub fn new(preset: Preset, figures: &[u8]) -> Result<Self, StudyError> {
        let is_meant = |machine: &Machine| machine.preset() == preset.name;
        let Some(machine) = Machine::ALL.into_iter().find(is_meant) else {
            return Err(StudyError::Input(format!(
                "preset {} is none of the paper's machines: take {}",
                preset.name,
                Machine::ALL.map(Machine::preset).join(", ")
            )));
        };
        if let Some(other) = figures.iter().find(|figure| !FIGURES.contains(figure)) {
            return Err(StudyError::Input(format!(
                "there is no figure {other}: take 2 to 7"
            )));
        }
        let all = match figures {
            [] => &FIGURES,
            some => some,
        };
        if let ([figure], false) = (figures, figures.iter().any(|&f| machine.has(f))) {
            return Err(StudyError::Input(format!(
                "figure {figure} is not of {}: take another, or {}",
                preset.name,
                Machine::Origin.preset()
            )));
        }
        Ok(Self {
            machine,
            preset,
            figures: all.iter().copied().filter(|&f| machine.has(f)).collect(),
            has_curves: true,
        })
    }

    /// Leaves the figures out: only the paper's numbers and comparisons are measured.
    pub fn without_curves(mut self) -> Self {
        self.has_curves = false;
        self
    }

    /// The cases to run, each once.
    fn cases(&self) -> Vec<Case> {
        let of_figures = self.curves().flat_map(|figure| self.series(figure));
        let mut cases: Vec<Case> = of_figures
            .flat_map(|(_, points)| points.into_iter().map(|(_, case)| case))
            .collect();
        for number in self.numbers() {
            cases.extend(number.value.cases());
        }
        for comparison in self.comparisons() {
            cases.extend([comparison.slower, comparison.faster]);
        }
        let yardsticks = cases.iter().filter(|case| case.computes.is_some());
        let yardsticks: Vec<Case> = yardsticks.map(Case::yardstick).collect();
        cases.extend(yardsticks);
        let mut seen = std::collections::HashSet::new();
        cases.retain(|case| seen.insert(*case));
        cases
    }

    /// The figures that are drawn.
    fn curves(&self) -> impl Iterator<Item = u8> {
        self.figures.iter().copied().filter(|_| self.has_curves)
    }

    fn numbers(&self) -> impl Iterator<Item = published::Number> {
        let all = self.machine.numbers().into_iter();
        all.filter(|number| self.figures.contains(&number.figure))
    }

    fn comparisons(&self) -> impl Iterator<Item = published::Comparison> {
        let all = self.machine.comparisons().into_iter();
        all.filter(|comparison| self.figures.contains(&comparison.figure))
    }

    fn series(&self, figure: u8) -> Vec<Series> {
        let rates = [
            ("non-collective", Way::NonCollective),
            ("step 1", Way::Step(1)),
            ("step 2", Way::Step(2)),
            ("step 3", Way::Step(3)),
            ("step 4", Way::Step(4)),
            ("step 5", Way::Step(5)),
            ("conforming", Way::Conforming),
        ];
        let places = |counts: &[usize], case: &dyn Fn(usize) -> Case| {
            let place = |&count: &usize| (count as u64, case(count));
            counts.iter().map(place).collect::<Vec<_>>()
        };
        let computing = |counts: &[usize], case: &dyn Fn(usize) -> Case, shown: &[Background]| {
            let series = shown.iter().map(|&background| {
                let name = match background {
                    Background::None => "in sequence",
                    Background::Disk => "disk in background",
                    Background::All => "all in background",
                };
                let case = |count| Case {
                    computes: Some(background),
                    ..case(count)
                };
                (name, places(counts, &case))
            });
            series.collect()
        };
        let machine = self.machine;
        let five = |count| Case::new(count, 64, Way::Step(5));
        let five_buffered = |count| machine.buffered(five(count));
        match figure {
            2 => rates
                .map(|(name, way)| {
                    let case = |count| Case::new(count, 64, way);
                    (name, places(machine.clients(), &case))
                })
                .into(),
            3 => {
                // The text gives the other steps for Figure 2 alone.
                let shown = rates
                    .into_iter()
                    .filter(|(_, way)| !matches!(way, Way::Step(3 | 4)));
                shown
                    .map(|(name, way)| {
                        let place = |mb| (mb, Case::new(machine.clients_max(), mb, way));
                        (name, FILES.map(place).into())
                    })
                    .collect()
            }
            4 => {
                let plain = |count: usize| {
                    machine.buffered(Case::new(count, 4 * count as u64, Way::Conforming))
                };
                computing(
                    &[8, 16, 32, 64],
                    &plain,
                    &[Background::None, Background::All],
                )
            }
            5 => computing(
                machine.clients_computing(),
                &five_buffered,
                &[Background::None, Background::All],
            ),
            6 => computing(
                machine.clients_computing(),
                &five_buffered,
                &[Background::None, Background::All, Background::Disk],
            ),
            _ => computing(
                machine.clients_computing(),
                &five,
                &[Background::None, Background::All, Background::Disk],
            ),
        }
    }

    /// Runs all cases, as one trial.
    ///
    /// # Errors
    /// The first error of a run.
    pub fn measure(&self, trials: &Trials) -> Result<Measured, StudyError> {
        let (computing, plain): (Vec<Case>, Vec<Case>) = self
            .cases()
            .into_iter()
            .partition(|case| case.computes.is_some());
        let mut seconds = HashMap::new();
        run_all(&self.preset, plain, trials, &mut seconds)?;
        run_all(&self.preset, computing, trials, &mut seconds)?;
        let of = |case: &Case| seconds.get(case).copied().unwrap_or(f64::NAN);
        let numbers = self.numbers().map(|number| {
            let simulated = number.value.of(of);
            let off = (simulated - number.paper).abs();
            let is_near = match number.aim {
                Aim::Below => simulated < number.paper,
                Aim::Near if number.value.unit() == "%" => {
                    off <= (NEAR * number.paper.abs()).max(NEAR_POINTS)
                }
                Aim::Near => off <= NEAR * number.paper,
            };
            Number {
                figure: number.figure,
                what: number.what,
                unit: number.value.unit(),
                paper: number.paper,
                simulated,
                aim: number.aim,
                is_near,
            }
        });
        let comparisons = self.comparisons().map(|comparison| {
            let per_mb = |case: &Case| of(case) / case.file_mb as f64;
            let both = [comparison.slower, comparison.faster];
            Comparison {
                figure: comparison.figure,
                what: comparison.what,
                clients: both.map(|case| case.clients),
                seconds: both.map(|case| of(&case)),
                holds: per_mb(&both[0]) > per_mb(&both[1]),
            }
        });
        Ok(Measured {
            preset: self.preset.name.clone(),
            figures: self
                .curves()
                .map(|figure| self.figure(figure, of))
                .collect(),
            numbers: numbers.collect(),
            comparisons: comparisons.collect(),
        })
    }

    fn figure(&self, figure: u8, seconds: impl Fn(&Case) -> f64) -> Figure {
        let is_rate = figure <= 3;
        let published = self.published(figure, &seconds);
        let series = self.series(figure).into_iter().map(|(name, points)| {
            let point = |(x, case): (u64, Case)| Point {
                x: X::Count(x),
                y: match is_rate {
                    true => case.file_mb as f64 / seconds(&case),
                    false => seconds(&case),
                },
                cv: None,
            };
            Line {
                name: name.into(),
                points: points.into_iter().map(point).collect(),
            }
        });
        Figure {
            figure: format!("{figure} of Dickens and Thakur"),
            title: match figure {
                2 => "64 MB, processors vary".into(),
                3 => format!("{} processors, the file varies", self.machine.clients_max()),
                4 => "Computation and a conforming write of 4 MB a processor".into(),
                7 => "Computation and a collective write of 64 MB, with O_DIRECT".into(),
                _ => "Computation and a collective write of 64 MB".to_string(),
            },
            x_label: match figure {
                3 => "file size (MB)".into(),
                _ => "processors".into(),
            },
            y_label: match is_rate {
                true => "throughput (MB/s)".into(),
                false => "seconds".into(),
            },
            x_scale: Scale::Log2,
            series: series.collect(),
            limits: Vec::new(),
            published,
            preset: self.preset.name.clone(),
            trials: 1,
        }
    }

    /// The paper's numbers of a figure, at their places. Two sorts are left out: percentages at
    /// places where the paper has a rate, too, and numbers of cases that the figure does not show.
    fn published(&self, figure: u8, seconds: impl Fn(&Case) -> f64) -> Vec<Published> {
        let series = self.series(figure);
        let place = |case: &Case| {
            series.iter().find_map(|(name, points)| {
                let (x, _) = points.iter().find(|(_, other)| other == case)?;
                Some((*name, *x))
            })
        };
        let mut all: Vec<Published> = Vec::new();
        let numbers = self.numbers().filter(|number| number.figure == figure);
        let (rates, percentages): (Vec<_>, Vec<_>) =
            numbers.partition(|number| matches!(number.value, Value::Rate(_)));
        for number in rates.into_iter().chain(percentages) {
            let (case, y) = number.value.implied(number.paper, &seconds);
            let Some((name, x)) = place(&case) else {
                continue;
            };
            let published = Published {
                name: "the paper".into(),
                series: Some(name.into()),
                x: Some(X::Count(x)),
                low: match number.aim {
                    Aim::Below => 0.0,
                    Aim::Near => y,
                },
                high: y,
                is_relative: !matches!(number.value, Value::Rate(_)),
            };
            let is_there =
                |other: &Published| (&other.series, &other.x) == (&published.series, &published.x);
            if !all.iter().any(is_there) {
                all.push(published);
            }
        }
        all
    }
}

/// Runs `cases`, the largest first, and notes their seconds. Cases that compute look their time of
/// computing up in `seconds`.
fn run_all(
    preset: &Preset,
    mut cases: Vec<Case>,
    trials: &Trials,
    seconds: &mut HashMap<Case, f64>,
) -> Result<(), StudyError> {
    cases.sort_by_key(|case| std::cmp::Reverse(case.weight()));
    let known = &*seconds;
    let ran = threads::run_all(&cases, trials.threads, |case| {
        let computing = match case.computes {
            Some(_) => known.get(&case.yardstick()).copied().unwrap_or(0.0),
            None => 0.0,
        };
        case.run(preset, trials.first, computing)
    });
    for (case, result) in cases.into_iter().zip(ran) {
        if let Some(result) = result {
            seconds.insert(case, result?.seconds);
        }
    }
    Ok(())
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for figure in &self.figures {
            writeln!(f, "{}", Shown(figure))?;
        }
        let mut grid = Grid::default();
        let heads = ["the paper says", "figure", "paper", "simulated", "", ""];
        grid.row(heads.map(String::from));
        for number in &self.numbers {
            let shown = |value: f64| match number.unit {
                "%" => format!("{value:.0}"),
                _ => format!("{value:.1}"),
            };
            let is_below = number.aim == Aim::Below;
            grid.row([
                number.what.to_string(),
                number.figure.to_string(),
                format!(
                    "{}{}",
                    if is_below { "< " } else { "" },
                    shown(number.paper)
                ),
                shown(number.simulated),
                number.unit.into(),
                if number.is_near { "" } else { "*" }.into(),
            ]);
        }
        writeln!(f, "{grid}")?;
        let broken: Vec<&Comparison> = self.comparisons.iter().filter(|c| !c.holds).collect();
        writeln!(
            f,
            "{} of {} comparisons hold",
            self.comparisons.len() - broken.len(),
            self.comparisons.len()
        )?;
        for comparison in broken {
            let [slower, faster] = comparison.seconds;
            writeln!(
                f,
                "* figure {}: {} ({:?} processors: {slower:.3} s and {faster:.3} s)",
                comparison.figure, comparison.what, comparison.clients
            )?;
        }
        Ok(())
    }
}

/// A figure as text.
struct Shown<'a>(&'a Figure);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figure = self.0;
        writeln!(
            f,
            "Figure {} on {}: {}, {}",
            figure.figure, figure.preset, figure.title, figure.y_label
        )?;
        writeln!(f)?;
        let mut grid = Grid::default();
        let names = figure.series.iter().map(|line| line.name.clone());
        grid.row([figure.x_label.clone()].into_iter().chain(names));
        let places = figure.series.first().map_or(&[][..], |line| &line.points);
        for (row, place) in places.iter().enumerate() {
            let x = match &place.x {
                X::Name(name) => name.clone(),
                X::Count(count) => count.to_string(),
            };
            let cells = figure.series.iter().map(|line| {
                let y = line.points.get(row).map_or(f64::NAN, |point| point.y);
                match y {
                    small if small < 10.0 => format!("{small:.2}"),
                    large => format!("{large:.0}"),
                }
            });
            grid.row([x].into_iter().chain(cells));
        }
        write!(f, "{grid}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of a figure's numbers if every run takes two seconds.
    fn published(preset: &str, figure: u8) -> Result<Vec<(String, u64, f64, bool)>, StudyError> {
        let plan = Plan::new(Preset::find(preset)?, &[figure])?;
        let all = plan.published(figure, |_| 2.0).into_iter();
        Ok(all
            .map(|one| {
                let x = match one.x {
                    Some(X::Count(count)) => count,
                    _ => 0,
                };
                (one.series.unwrap_or_default(), x, one.high, one.is_relative)
            })
            .collect())
    }

    #[test]
    fn numbers_of_the_paper_have_their_places() -> Result<(), StudyError> {
        let at = |series: &str, x, y, is_relative| (series.to_string(), x, y, is_relative);
        // 64 MB in two seconds are 32 MB/s, the base of percentages.
        assert_eq!(
            published("sp2-anl", 2)?,
            [
                at("non-collective", 64, 5.0, false),
                at("step 5", 64, 68.0, false),
                at("step 5", 32, 79.0, false),
                at("step 1", 32, 32.0 * 4.1, true),
                at("step 2", 32, 32.0 * 1.95, true),
                at("step 1", 64, 32.0 * 8.4, true),
                at("step 2", 64, 32.0 * 1.62, true),
            ]
        );
        assert_eq!(
            published("sp2-anl", 6)?,
            [
                at("disk in background", 64, 2.0 * 0.55, true),
                at("all in background", 64, 2.0 * 0.55, true),
            ]
        );
        let share = published("origin2000-anl", 3)?;
        assert_eq!(share, [at("step 5", 1024, 512.0 * 0.65, true)]);
        // No line of the figure has staggered writes.
        assert_eq!(published("exemplar-caltech", 3)?.len(), 4);
        Ok(())
    }

    #[test]
    fn below_a_number_is_a_range() -> Result<(), StudyError> {
        let plan = Plan::new(Preset::find("exemplar-caltech")?, &[2])?;
        let all = plan.published(2, |_| 2.0);
        let below: Vec<_> = all.iter().filter(|one| one.low < one.high).collect();
        assert_eq!(below.len(), 1);
        assert_eq!((below[0].low, below[0].high), (0.0, 1.0));
        assert_eq!(below[0].x, Some(X::Count(128)));
        Ok(())
    }
}
