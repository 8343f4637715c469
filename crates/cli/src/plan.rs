//! `penstock plan`: the chunks, the servers and the strategy that a collective call would best
//! have.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use penstock_predict::description::{Description, Direction};
use penstock_predict::plan::{Candidate, plan};
use serde::Serialize;

use crate::arguments::{Plan, Plot};
use crate::failure::Failure;
use crate::predict::{of, range, remarks, seconds};

pub(crate) fn run(asked: &Plan, python: &Path) -> Result<(), Failure> {
    asked.output.check()?;
    let (machine, description) = of(&asked.asked)?;
    let candidates = plan(&machine, &description)?;
    let answer = Answer {
        preset: &machine.name,
        description: &description,
        remarks: remarks(&machine),
        candidates: &candidates,
        rows: asked.rows,
    };
    asked.output.write(&answer)?;
    asked.output.plot(Plot::Figure, &answer.figure(), python)
}

/// The candidates, with what they are of.
#[derive(Serialize)]
struct Answer<'a> {
    preset: &'a str,
    description: &'a Description,
    remarks: Vec<&'a str>,
    /// The fastest first.
    candidates: &'a [Candidate],
    #[serde(skip)]
    rows: usize,
}

impl Answer<'_> {
    /// The seconds over the bytes of a chunk, of each strategy with its best number of servers; of
    /// one flat file as a limit.
    fn figure(&self) -> Figure {
        let mut best: BTreeMap<(&str, u64), f64> = BTreeMap::new();
        let mut flat: BTreeMap<&str, f64> = BTreeMap::new();
        for candidate in self.candidates {
            let (strategy, seconds) = (candidate.prediction.strategy, candidate.prediction.seconds);
            let known = match candidate.chunks {
                Some(_) => best.entry((strategy, candidate.chunk_bytes)),
                None => {
                    flat.entry(strategy).or_insert(seconds);
                    continue;
                }
            };
            known.or_insert(seconds); // the fastest comes first
        }
        let mut lines: BTreeMap<&str, Vec<Point>> = BTreeMap::new();
        for ((strategy, bytes), seconds) in best {
            let x = bytes as f64 / f64::from(1 << 20);
            lines
                .entry(strategy)
                .or_default()
                .push(Point { x, y: seconds });
        }
        let all = lines.values().flatten().map(|point| point.x);
        let ends = [
            all.clone().fold(f64::INFINITY, f64::min),
            all.fold(0.0, f64::max),
        ];
        let limit = |(strategy, &seconds): (&&str, &f64)| Line {
            name: format!("{strategy}, one flat file"),
            points: ends.map(|x| Point { x, y: seconds }).to_vec(),
        };
        let has_chunks = !lines.is_empty();
        Figure {
            figure: "plan",
            title: format!(
                "{} on {}: {} ranks, {} hosts",
                match self.description.operation {
                    Direction::Write => "Write",
                    Direction::Read => "Read",
                },
                self.preset,
                self.description.ranks,
                self.description.hosts
            ),
            x_label: "chunk, MiB",
            y_label: "predicted seconds",
            x_scale: "log2",
            limits: match has_chunks {
                true => flat.iter().map(limit).collect(),
                false => Vec::new(),
            },
            series: match has_chunks {
                true => lines.into_iter().map(Line::from).collect(),
                false => flat
                    .into_iter()
                    .map(|(name, y)| Line::from((name, vec![Point { x: 1.0, y }])))
                    .collect(),
            },
        }
    }
}

/// A figure, as `penstock plot figure` takes it.
#[derive(Serialize)]
struct Figure {
    figure: &'static str,
    title: String,
    x_label: &'static str,
    y_label: &'static str,
    x_scale: &'static str,
    series: Vec<Line>,
    limits: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    points: Vec<Point>,
}

impl From<(&str, Vec<Point>)> for Line {
    fn from((name, points): (&str, Vec<Point>)) -> Self {
        let name = name.to_string();
        Self { name, points }
    }
}

#[derive(Clone, Serialize)]
struct Point {
    x: f64,
    y: f64,
}

impl fmt::Display for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<24} {:>9} {:>8} {:>8}  {:<14} {:>9} {:>21} {:>10} {:>9}  bottleneck",
            "chunks",
            "MiB",
            "objects",
            "servers",
            "strategy",
            "seconds",
            "range",
            "MB/s",
            "memory MB"
        )?;
        for candidate in self.candidates.iter().take(self.rows) {
            let prediction = &candidate.prediction;
            let chunks = match &candidate.chunks {
                Some(extents) => extents
                    .iter()
                    .map(u64::to_string)
                    .collect::<Vec<_>>()
                    .join(","),
                None => "one flat file".to_string(),
            };
            writeln!(
                f,
                "{chunks:<24} {:>9.1} {:>8} {:>8}  {:<14} {:>9} {:>21} {:>10.1} {:>9.1}  {}",
                candidate.chunk_bytes as f64 / f64::from(1 << 20),
                candidate.objects,
                prediction.servers,
                prediction.strategy,
                seconds(prediction.seconds),
                range(prediction),
                prediction.bytes as f64 / 1e6 / prediction.seconds.max(1e-12),
                prediction.memory_bytes as f64 / 1e6,
                prediction.bottleneck,
            )?;
        }
        let more = self.candidates.len().saturating_sub(self.rows);
        let more = match more {
            0 => String::new(),
            more => format!("; {more} more are slower"),
        };
        writeln!(f)?;
        write!(f, "on {}, in closed form{more}", self.preset)
    }
}
