//! Figures 4 to 15 of Kotz, TOCS 1997.
//!
//! | figures | variable |
//! |---|---|
//! | 4 to 7 | the pattern; random-blocks and contiguous layout, records of 8 and of 8192 bytes |
//! | 8, 9 | clients; the other numbers are fixed |
//! | 10 | I/O nodes, and with them buses |
//! | 11, 12 | disks, on one I/O node; contiguous and random-blocks layout |
//! | 13, 14 | the size of the file; contiguous and random-blocks layout |
//! | 15 | the size of records, for traditional caching of `rc` |
//!
//! Throughput of `ra` is divided by the number of clients, as in the article. A cache has a number
//! of buffers for each disk and client, so that it keeps its size when only I/O nodes vary.

use penstock_layout::exact;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::text::{Grid, rate, trials};
use super::{Case, MB, Measured, StudyError, names, table};
use crate::experiment::Method;
use penstock_sim::machine::Layout;
use penstock_sim::preset::{DiskKind, Preset};

/// The scale of the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// The places are names.
    Category,
    /// The places are powers of two.
    Log2,
    /// The places are powers of ten.
    Log10,
}

/// A place on the horizontal axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum X {
    /// A pattern.
    Name(String),
    /// A count, such as of clients.
    Count(u64),
}

/// A point of a line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The place along the axis.
    pub x: X,
    /// The throughput, MB/s.
    pub y: f64,
    /// The coefficient of variation, if measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cv: Option<f64>,
}

/// A line of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The method, or method and pattern.
    pub name: String,
    /// The points from left to right.
    pub points: Vec<Point>,
}

/// A number or range that a paper gives, for a place of a figure or for all of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Published {
    /// The name in the plot: "the paper", "paper: 85 to 98%".
    pub name: String,
    /// The line of the number; without one it belongs to all lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<String>,
    /// The place along the axis; without one the number holds everywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x: Option<X>,
    /// The least, in units of the vertical axis.
    pub low: f64,
    /// The greatest: equal to the least, if the paper has one number.
    pub high: f64,
    /// Whether the paper has a percentage of another line. The number is then that percentage of
    /// the simulated line.
    pub is_relative: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The number, or other words that follow "Figure".
    pub figure: String,
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub x_scale: Scale,
    /// The measured lines.
    pub series: Vec<Line>,
    /// The limits of the hardware.
    pub limits: Vec<Line>,
    /// The numbers of a paper.
    pub published: Vec<Published>,
    pub preset: String,
    /// The trials of each point.
    pub trials: u64,
}

impl Figure {
    /// The number of the figure, without words that follow it.
    pub fn number(&self) -> &str {
        let number = self.figure.split(' ').next();
        number.unwrap_or(&self.figure)
    }
}

/// A figure, not yet measured.
pub struct Plan {
    figure: Figure,
    /// The cases of all points of all series.
    cases: Vec<Case>,
}

/// The record size of the figures that vary the machine.
const SENSITIVITY_RECORD: u64 = 8192;

/// The part of a machine that a figure varies.
#[derive(Clone, Copy)]
enum Variable {
    Clients,
    IoNodes,
    /// The disks on one I/O node.
    Disks,
    /// The file, in MB.
    File,
}

impl Variable {
    fn label(self) -> &'static str {
        match self {
            Variable::Clients => "clients",
            Variable::IoNodes => "I/O nodes and buses",
            Variable::Disks => "disks, on one I/O node and bus",
            Variable::File => "file size (MB)",
        }
    }

    fn apply(self, preset: &Preset, count: u64) -> Preset {
        let mut preset = preset.clone();
        match self {
            Variable::Clients => preset.nodes.clients = exact::<usize>(count),
            Variable::IoNodes => preset.nodes.io_nodes = exact::<usize>(count),
            Variable::Disks => {
                preset.nodes.io_nodes = 1;
                preset.nodes.disks = exact::<usize>(count);
            }
            Variable::File => preset.file.bytes = count << 20,
        }
        preset
    }
}

/// The runs of a figure that varies the machine, at each count.
struct Sweep<'a> {
    title: &'a str,
    varied: Variable,
    counts: &'a [u64],
    layout: Layout,
    methods: &'a [Method],
    patterns: &'a [&'a str],
    /// Whether the limits of the hardware are drawn.
    has_limits: bool,
}

const FOUR: [&str; 4] = ["ra", "rn", "rb", "rc"];
const TO_16: [u64; 5] = [1, 2, 4, 8, 16];
const TO_32: [u64; 6] = [1, 2, 4, 8, 16, 32];
const FILES: [u64; 3] = [10, 100, 1000];
const CACHING_DDIO: [Method; 2] = [Method::Caching, Method::DdioSort];

impl Plan {
    /// Plans figure `number` on the machine of `preset`.
    ///
    /// # Errors
    /// When there is no such figure.
    pub fn new(number: u8, preset: &Arc<Preset>) -> Result<Self, StudyError> {
        let sweep = match number {
            4..=7 => return Self::by_pattern(number, preset),
            8 => Sweep {
                title: "Throughput as the number of clients varies: disk-directed I/O and caching",
                varied: Variable::Clients,
                counts: &TO_16,
                layout: Layout::Contiguous,
                methods: &CACHING_DDIO,
                patterns: &["ra", "rb", "rc"],
                has_limits: false,
            },
            9 => Sweep {
                title: "Throughput as the number of clients varies: two-phase I/O and caching",
                varied: Variable::Clients,
                counts: &TO_16,
                layout: Layout::Contiguous,
                methods: &[Method::Caching, Method::TwoPhase],
                patterns: &FOUR,
                has_limits: false,
            },
            10 => Sweep {
                title: "Throughput as the number of I/O nodes and buses varies",
                varied: Variable::IoNodes,
                counts: &TO_16,
                layout: Layout::Contiguous,
                methods: &CACHING_DDIO,
                patterns: &FOUR,
                has_limits: true,
            },
            11 | 12 => Sweep {
                title: "Throughput as the number of disks on one I/O node varies",
                varied: Variable::Disks,
                counts: &TO_32,
                layout: either(number == 11),
                methods: &CACHING_DDIO,
                patterns: &FOUR,
                has_limits: true,
            },
            13 | 14 => Sweep {
                title: "Throughput as the size of the file varies",
                varied: Variable::File,
                counts: &FILES,
                layout: either(number == 13),
                methods: &CACHING_DDIO,
                patterns: &FOUR,
                has_limits: false,
            },
            15 => return Self::by_record(preset),
            _ => {
                return Err(StudyError::Input(format!(
                    "there is no figure {number}: take 4 to 15"
                )));
            }
        };
        Self::sweep(number, preset, &sweep)
    }

    /// The cases to measure.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// Plans a figure of throughput by pattern.
    fn by_pattern(number: u8, preset: &Arc<Preset>) -> Result<Self, StudyError> {
        let layout = either(number >= 6);
        let record_bytes = if number.is_multiple_of(2) { 8 } else { 8192 };
        let methods: &[Method] = match layout {
            // Presorting changes nothing if blocks lie in their order.
            Layout::Contiguous => &[Method::Caching, Method::TwoPhase, Method::DdioSort],
            _ => &[
                Method::Caching,
                Method::TwoPhase,
                Method::Ddio,
                Method::DdioSort,
            ],
        };
        let title = format!(
            "Throughput by pattern, {} layout, {record_bytes}-byte records",
            names::layout(layout)
        );
        let mut plan = Self::empty(number, preset, title, "pattern", Scale::Category);
        for &method in methods {
            let mut line = line(names::method(method));
            for pattern in table::PATTERNS {
                if !table::is_listed(pattern, record_bytes) {
                    continue;
                }
                line.points.push(point(X::Name(pattern.into()), 0.0));
                plan.cases.push(Case {
                    preset: preset.clone(),
                    pattern: pattern.parse()?,
                    record_bytes,
                    layout,
                    method,
                });
            }
            plan.figure.series.push(line);
        }
        if layout == Layout::Contiguous {
            let mut limit = line("disks");
            let at = |point: &Point| self::point(point.x.clone(), disks_mb_s(preset));
            limit.points = plan.figure.series[0].points.iter().map(at).collect();
            plan.figure.limits.push(limit);
        }
        Ok(plan)
    }

    /// Plans a figure of the throughput of caching by the size of records.
    fn by_record(preset: &Arc<Preset>) -> Result<Self, StudyError> {
        let title = "Throughput of caching for rc as the size of records varies".into();
        let mut plan = Self::empty(15, preset, title, "record size (bytes)", Scale::Log2);
        for layout in [Layout::Contiguous, Layout::RandomBlocks] {
            let mut line = line(&format!("caching {}", names::layout(layout)));
            for record_bytes in (3..=13).map(|exponent| 1 << exponent) {
                line.points.push(point(X::Count(record_bytes), 0.0));
                plan.cases.push(Case {
                    preset: preset.clone(),
                    pattern: "rc".parse()?,
                    record_bytes,
                    layout,
                    method: Method::Caching,
                });
            }
            plan.figure.series.push(line);
        }
        Ok(plan)
    }

    /// Plans a figure of throughput as the machine varies.
    fn sweep(number: u8, preset: &Arc<Preset>, sweep: &Sweep) -> Result<Self, StudyError> {
        let scale = match sweep.varied {
            Variable::File => Scale::Log10,
            _ => Scale::Log2,
        };
        let title = format!("{}, {} layout", sweep.title, names::layout(sweep.layout));
        let mut plan = Self::empty(number, preset, title, sweep.varied.label(), scale);
        let machines: Vec<(u64, Arc<Preset>)> = sweep
            .counts
            .iter()
            .map(|&count| (count, Arc::new(sweep.varied.apply(preset, count))))
            .collect();
        for &method in sweep.methods {
            for pattern in sweep.patterns {
                let mut line = line(&format!("{} {pattern}", names::method(method)));
                for (count, machine) in &machines {
                    line.points.push(point(X::Count(*count), 0.0));
                    plan.cases.push(Case {
                        preset: machine.clone(),
                        pattern: pattern.parse()?,
                        record_bytes: SENSITIVITY_RECORD,
                        layout: sweep.layout,
                        method,
                    });
                }
                plan.figure.series.push(line);
            }
        }
        if sweep.has_limits {
            for (name, mb_s) in [
                ("buses", buses_mb_s as fn(&Preset) -> f64),
                ("disks", disks_mb_s),
            ] {
                let mut limit = line(name);
                let at =
                    |(count, machine): &(u64, Arc<Preset>)| point(X::Count(*count), mb_s(machine));
                limit.points = machines.iter().map(at).collect();
                plan.figure.limits.push(limit);
            }
        }
        Ok(plan)
    }

    fn empty(number: u8, preset: &Preset, title: String, x_label: &str, x_scale: Scale) -> Self {
        let figure = Figure {
            figure: number.to_string(),
            title,
            x_label: x_label.into(),
            y_label: "throughput (MB/s)".into(),
            x_scale,
            series: Vec::new(),
            limits: Vec::new(),
            published: Vec::new(),
            preset: preset.name.clone(),
            trials: 0,
        };
        Self {
            figure,
            cases: Vec::new(),
        }
    }

    /// Makes the figure from the results of its cases, in their order.
    pub fn figure(self, measured: &[Measured]) -> Figure {
        let mut figure = self.figure;
        figure.trials = measured.first().map_or(0, |m| m.outcomes.len() as u64);
        let mut measured = self.cases.iter().zip(measured);
        for line in &mut figure.series {
            for (point, (case, measured)) in line.points.iter_mut().zip(&mut measured) {
                let rate = measured.throughput();
                let copies = case.pattern.copies(case.preset.nodes.clients) as f64;
                point.y = rate.mean / copies;
                point.cv = Some(rate.cv);
                let cell = table::published_of(case).map(|mb_s| Published {
                    name: "published".into(),
                    series: Some(line.name.clone()),
                    x: Some(point.x.clone()),
                    low: mb_s / copies,
                    high: mb_s / copies,
                    is_relative: false,
                });
                figure.published.extend(cell);
            }
        }
        figure
    }
}

fn either(is_contiguous: bool) -> Layout {
    if is_contiguous {
        Layout::Contiguous
    } else {
        Layout::RandomBlocks
    }
}

fn line(name: &str) -> Line {
    Line {
        name: name.into(),
        points: Vec::new(),
    }
}

fn point(x: X, y: f64) -> Point {
    Point { x, y, cv: None }
}

/// The rate of all buses.
fn buses_mb_s(preset: &Preset) -> f64 {
    preset.nodes.io_nodes as f64 * preset.bus.bytes_per_second as f64 / MB
}

/// The rate of all disks, track after track: the papers' peak, 2.11 MB/s an HP 97560.
fn disks_mb_s(preset: &Preset) -> f64 {
    let one = match &preset.disk {
        DiskKind::Flash(flash) => flash.read_bytes_per_second as f64,
        DiskKind::Rotating(disk) => disk.regions.first().map_or(0.0, |region| {
            let sectors = f64::from(region.sectors_per_track);
            let passed = sectors + f64::from(region.track_skew_sectors);
            let raw = sectors * f64::from(disk.sector_bytes) * disk.rotations_per_minute / 60.0;
            raw * sectors / passed
        }),
    };
    preset.nodes.disks as f64 * one / MB
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Figure {}: {}", self.figure, self.title)?;
        writeln!(f, "MB/s on {}, {}", self.preset, trials(self.trials))?;
        writeln!(f)?;
        let mut grid = Grid::default();
        let lines = || self.series.iter().chain(&self.limits);
        let limit = |line: &Line| format!("({})", line.name);
        let heads = self.series.iter().map(|line| line.name.clone());
        let heads = heads.chain(self.limits.iter().map(limit));
        grid.row([self.x_label.clone()].into_iter().chain(heads));
        let places = self.series.first().map_or(&[][..], |line| &line.points);
        for (row, place) in places.iter().enumerate() {
            let x = match &place.x {
                X::Name(name) => name.clone(),
                X::Count(count) => count.to_string(),
            };
            let values =
                lines().map(|line| line.points.get(row).map_or(String::new(), |p| rate(p.y)));
            grid.row([x].into_iter().chain(values));
        }
        write!(f, "{grid}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(number: u8) -> Result<Plan, StudyError> {
        Plan::new(number, &Arc::new(Preset::find("tocs97")?))
    }

    #[test]
    fn each_figure_has_its_runs() -> Result<(), StudyError> {
        let expected = [
            (4, 4 * 16),
            (5, 4 * 19),
            (6, 3 * 16),
            (7, 3 * 19),
            (8, 2 * 3 * 5),
            (9, 2 * 4 * 5),
            (10, 2 * 4 * 5),
            (11, 2 * 4 * 6),
            (12, 2 * 4 * 6),
            (13, 2 * 4 * 3),
            (14, 2 * 4 * 3),
            (15, 2 * 11),
        ];
        for (number, count) in expected {
            let plan = plan(number)?;
            let points: usize = plan.figure.series.iter().map(|l| l.points.len()).sum();
            assert_eq!(
                (plan.cases.len(), points),
                (count, count),
                "figure {number}"
            );
            for case in plan.cases() {
                case.weigh()?;
            }
        }
        assert!(plan(3).is_err() && plan(16).is_err());
        Ok(())
    }

    #[test]
    fn hardware_limits() -> Result<(), StudyError> {
        let limits = |number| -> Result<Vec<(String, Vec<f64>)>, StudyError> {
            let lines = plan(number)?.figure.limits.into_iter();
            let rounded = |line: Line| {
                let ys = line.points.iter().map(|p| (p.y * 10.0).round() / 10.0);
                (line.name, ys.collect())
            };
            Ok(lines.map(rounded).collect())
        };
        let buses = vec![10.0, 20.0, 40.0, 80.0, 160.0];
        let ten = limits(10)?;
        assert_eq!(
            ten,
            [("buses".into(), buses), ("disks".into(), vec![33.8; 5])]
        );
        let eleven = limits(11)?;
        assert_eq!(eleven[0].1, [10.0; 6]);
        assert_eq!(eleven[1].1, [2.1, 4.2, 8.4, 16.9, 33.8, 67.5]);
        assert_eq!(limits(7)?[0].1, [33.8; 19]);
        Ok(())
    }

    #[test]
    fn machines_vary_as_they_should() -> Result<(), StudyError> {
        let nodes = |number| -> Result<Vec<(usize, usize, usize)>, StudyError> {
            let cases = plan(number)?.cases;
            let nodes = cases.iter().map(|case| &case.preset.nodes);
            Ok(nodes
                .take(2)
                .map(|n| (n.clients, n.io_nodes, n.disks))
                .collect())
        };
        assert_eq!(nodes(8)?, [(1, 16, 16), (2, 16, 16)]);
        assert_eq!(nodes(10)?, [(16, 1, 16), (16, 2, 16)]);
        assert_eq!(nodes(11)?, [(16, 1, 1), (16, 1, 2)]);
        Ok(())
    }
}
