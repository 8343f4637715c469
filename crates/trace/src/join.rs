//! One trace of several: of clients and servers, on one host or more.
//!
//! The times of a file count from its beginning, whose time by the clock of its host is in it. What
//! an arrow ends at cannot come before what it begins at: where the clocks of two hosts say that it
//! does, one file is moved against the other. With arrows in both directions between the two, as of
//! questions and answers, the truth lies between two bounds, and the middle is taken:
//!
//! ```text
//! client   ask |- - - - - - - - - - - -| answered         lower bound: the question comes after
//! server          come |.......| answer    (its clock)    upper bound: the answer goes before
//! ```

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use penstock_engine::{Error, Kind, Result};
use serde_json::{Value, json};

use super::file::{BEGIN, END, STEP_NS, microseconds};
use crate::failure::{DOING, failed};

/// The steps by which an arrow may seem to go back in time although clocks agree: what the reading
/// of a clock takes.
const SLACK: i128 = 16;

/// A file that is joined.
struct Source {
    path: PathBuf,
    /// The step of its beginning since 1970, by the clock of its host.
    began: i128,
    /// The steps by which it is moved.
    moved: i128,
    is_whole: bool,
}

/// The ends of arrows in one file: the name and number of each, and its time.
type Ends = HashMap<(String, u64), i128>;

/// The arrows of one file.
#[derive(Default)]
struct Arrows {
    out: Ends,
    into: Ends,
}

/// The events of a file, one after the other. The last line of a file whose writer was killed may
/// be a part of one: it is left out.
fn events(path: &Path, mut take: impl FnMut(Value) -> Result<()>) -> Result<()> {
    let wrong = |cause| failed(path, cause);
    let file = File::open(path).map_err(wrong)?;
    for line in BufReader::new(file).split(b'\n') {
        let line = line.map_err(wrong)?;
        let line = line.strip_suffix(b",").unwrap_or(&line);
        if let Ok(event @ Value::Object(_)) = serde_json::from_slice::<Value>(line) {
            take(event)?;
        }
    }
    Ok(())
}

/// The steps of a time in microseconds.
fn steps(time: &Value) -> Option<i128> {
    let text = time.as_number()?.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let whole: i128 = whole.parse().ok()?;
    let part: i128 = format!("{part:0<3}").get(..3)?.parse().ok()?;
    Some((whole * 1000 + part) / i128::from(STEP_NS))
}

impl Source {
    /// Looks through a file.
    fn look(path: &Path) -> Result<(Self, Arrows)> {
        let (mut began, mut is_whole) = (None, false);
        let mut arrows = Arrows::default();
        events(path, |event| {
            match (event["ph"].as_str(), event["name"].as_str()) {
                (Some("M"), Some(BEGIN)) => {
                    let told = event["args"]["began_ns"].as_str();
                    began = told.and_then(|told| told.parse::<i128>().ok());
                }
                (Some("M"), Some(END)) => is_whole = true,
                (Some(phase @ ("s" | "f")), Some(name)) => {
                    let (id, at) = (event["id"].as_u64(), steps(&event["ts"]));
                    if let (Some(id), Some(at)) = (id, at) {
                        let name = (name.to_string(), id);
                        match phase {
                            "s" => arrows.out.entry(name).or_insert(at),
                            _ => arrows.into.entry(name).or_insert(at),
                        };
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        let no_trace = || Error::new(Kind::Schema, DOING, "it is no trace of ours").at(path);
        let source = Self {
            path: path.to_path_buf(),
            began: began.ok_or_else(no_trace)? / i128::from(STEP_NS),
            moved: 0,
            is_whole,
        };
        Ok((source, arrows))
    }

    /// The step of a time in the file since 1970.
    fn at(&self, time: i128) -> i128 {
        self.began + self.moved + time
    }
}

/// The steps by which a file may be moved against others, and the arrows that say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    least: Option<i128>,
    most: Option<i128>,
    arrows: usize,
}

impl Bounds {
    const NONE: Self = Self {
        least: None,
        most: None,
        arrows: 0,
    };

    /// The bounds of one file by another that is in its place.
    fn of((source, own): (&Source, &Arrows), (other, others): (&Source, &Arrows)) -> Self {
        let mut bounds = Self::NONE;
        for (name, &ends) in &own.into {
            if let Some(&begins) = others.out.get(name) {
                let least = other.at(begins) - source.at(ends);
                bounds.least = Some(bounds.least.map_or(least, |bound| bound.max(least)));
                bounds.arrows += 1;
            }
        }
        for (name, &begins) in &own.out {
            if let Some(&ends) = others.into.get(name) {
                let most = other.at(ends) - source.at(begins);
                bounds.most = Some(bounds.most.map_or(most, |bound| bound.min(most)));
                bounds.arrows += 1;
            }
        }
        bounds
    }

    fn and(self, other: Self) -> Self {
        let both = |one: Option<i128>, other: Option<i128>, better: fn(i128, i128) -> i128| {
            one.zip(other)
                .map(|(one, other)| better(one, other))
                .or(one)
                .or(other)
        };
        Self {
            least: both(self.least, other.least, i128::max),
            most: both(self.most, other.most, i128::min),
            arrows: self.arrows + other.arrows,
        }
    }

    /// The steps by which the file is moved: none, if that may be.
    fn choice(self) -> i128 {
        let is_late = self.least.is_some_and(|least| least > SLACK);
        let is_early = self.most.is_some_and(|most| most < -SLACK);
        match (self.least, self.most) {
            _ if !is_late && !is_early => 0,
            (Some(least), Some(most)) => (least + most) / 2,
            (least, most) => least.or(most).unwrap_or(0),
        }
    }
}

/// Moves files against the first: next is always the one with the most arrows from or to those that
/// are in their places.
fn align(sources: &mut [(Source, Arrows)]) {
    let mut left: BTreeSet<usize> = (1..sources.len()).collect();
    while !left.is_empty() {
        let bounds = left.iter().map(|&nth| {
            let (source, arrows) = &sources[nth];
            let placed = sources.iter().enumerate();
            let placed = placed.filter(|(other, _)| !left.contains(other));
            let bounds =
                placed.map(|(_, (other, others))| Bounds::of((source, arrows), (other, others)));
            (nth, bounds.fold(Bounds::NONE, Bounds::and))
        });
        let best = bounds.max_by_key(|(nth, bounds)| (bounds.arrows, std::cmp::Reverse(*nth)));
        let Some((nth, bounds)) = best else {
            return;
        };
        sources[nth].0.moved = bounds.choice();
        left.remove(&nth);
    }
}

/// Writes one trace of several.
///
/// # Errors
/// [`Kind::Schema`] when a file is no trace; [`Kind::Io`] when one cannot be read, or the new one
/// cannot be written.
pub fn join(paths: &[PathBuf], output: &Path) -> Result<()> {
    let sources = paths.iter().map(|path| Source::look(path));
    let mut sources: Vec<_> = sources.collect::<Result<_>>()?;
    align(&mut sources);
    let wrong = |error: std::io::Error| failed(output, error);
    let began = sources.iter().map(|(source, _)| source.at(0)).min();
    let began = began.unwrap_or(0);
    let mut out = BufWriter::new(File::create(output).map_err(wrong)?);
    out.write_all(b"[\n").map_err(wrong)?;
    let mut is_first = true;
    for (nth, (source, _)) in sources.iter().enumerate() {
        events(&source.path, |mut event| {
            let shift = source.at(0) - began;
            event["pid"] = json!(nth + 1);
            if let Some(at) = steps(&event["ts"]) {
                let at = microseconds(u64::try_from(at + shift).unwrap_or(0));
                event["ts"] = serde_json::from_str(&at).unwrap_or_default();
            }
            let comma = if std::mem::take(&mut is_first) {
                ""
            } else {
                ",\n"
            };
            write!(out, "{comma}{event}").map_err(wrong)
        })?;
    }
    out.write_all(b"\n]\n")
        .and_then(|()| out.flush())
        .map_err(wrong)?;
    for (source, _) in &sources {
        let mut notes = Vec::new();
        if source.moved != 0 {
            let ms = source.moved as f64 * STEP_NS as f64 / 1e6;
            notes.push(format!("its clock was moved by {ms:.6} ms"));
        }
        if !source.is_whole {
            notes.push("it has no end: its process was killed, or goes on".to_string());
        }
        if !notes.is_empty() {
            eprintln!("penstock: {}: {}", source.path.display(), notes.join("; "));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose clock is some steps ahead: `arrows` go out or come in at steps of a true one.
    fn write(path: &Path, ahead: i128, arrows: &[Arrow<'_>]) {
        let began_ns = (1_000_000 + ahead) * i128::from(STEP_NS);
        let mut lines = format!(
            "[\n{{\"ph\":\"M\",\"name\":\"{BEGIN}\",\"pid\":9,\"args\":{{\"began_ns\":\"{began_ns}\"}}}},\n"
        );
        for (name, id, phase, at) in arrows {
            let at = microseconds(u64::try_from(*at).unwrap());
            lines.push_str(&format!(
                "{{\"ph\":\"{phase}\",\"name\":\"{name}\",\"id\":{id},\"pid\":9,\"tid\":1,\"ts\":{at}}},\n"
            ));
        }
        std::fs::write(path, lines + "{\"ph\":\"X\",\"na").unwrap();
    }

    /// An arrow's name, number, phase and time.
    type Arrow<'a> = (&'a str, u64, &'a str, i128);

    fn joined(files: &[(i128, &[Arrow<'_>])]) -> Vec<(u64, String, i128)> {
        let directory = tempfile::tempdir().unwrap();
        let paths = files.iter().enumerate().map(|(nth, (ahead, arrows))| {
            let path = directory.path().join(format!("{nth}.json"));
            write(&path, *ahead, arrows);
            path
        });
        let paths: Vec<_> = paths.collect();
        let output = directory.path().join("all.json");
        join(&paths, &output).unwrap();
        let all: Vec<Value> =
            serde_json::from_str(&std::fs::read_to_string(&output).unwrap()).unwrap();
        let arrows = all.iter().filter(|event| event["ph"] != "M");
        let told = arrows.map(|event| {
            let (process, phase) = (event["pid"].as_u64(), event["ph"].as_str());
            let at = steps(&event["ts"]).unwrap();
            (process.unwrap(), phase.unwrap().to_string(), at)
        });
        told.collect()
    }

    const CLIENT: &[(&str, u64, &str, i128)] =
        &[("question", 1, "s", 100), ("answer", 2, "f", 300)];
    const SERVER: &[(&str, u64, &str, i128)] =
        &[("question", 1, "f", 150), ("answer", 2, "s", 250)];

    #[test]
    fn clocks_that_agree_are_left_alone() {
        let told = joined(&[(0, CLIENT), (20, SERVER)]);
        let times: Vec<i128> = told.iter().map(|(_, _, at)| *at).collect();
        assert_eq!(times, [100, 300, 170, 270]);
    }

    #[test]
    fn a_clock_that_is_wrong_is_moved() {
        for ahead in [-1_000_000, -50 - SLACK - 1, 50 + SLACK + 1, 90_000] {
            let told = joined(&[(0, CLIENT), (ahead, SERVER)]);
            let of = |process, phase: &str| {
                let mut all = told.iter();
                let found = all.find(|(of, is, _)| *of == process && is == phase);
                found.unwrap().2
            };
            let asked = of(1, "s");
            assert_eq!(
                [of(2, "f"), of(2, "s"), of(1, "f")].map(|at| at - asked),
                [50, 150, 200],
                "{ahead}"
            );
        }
    }

    #[test]
    fn files_follow_one_another() {
        // The second server has arrows with the first alone.
        let first: &[(&str, u64, &str, i128)] = &[
            ("question", 1, "f", 150),
            ("answer", 2, "s", 250),
            ("token", 3, "s", 200),
        ];
        let second: &[(&str, u64, &str, i128)] = &[("token", 3, "f", 210)];
        let told = joined(&[(0, CLIENT), (-5000, second), (7000, first)]);
        let token: Vec<i128> = told
            .iter()
            .filter(|(process, phase, _)| (*process, phase.as_str()) == (2, "f"))
            .map(|(_, _, at)| *at)
            .collect();
        let sent = told
            .iter()
            .filter(|(process, ..)| *process == 3)
            .map(|(_, _, at)| *at);
        let sent: Vec<i128> = sent.collect();
        assert_eq!(token, [sent[2]]);
    }

    #[test]
    fn something_else_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.json");
        std::fs::write(&path, "[]").unwrap();
        let refused = join(&[path], &directory.path().join("y.json")).unwrap_err();
        assert!(refused.to_string().contains("is no trace"));
    }
}
