//! The destinations of results: text, JSON, plots.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufWriter, Error, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::arguments::{self, Output, Plot};
use crate::failure::Failure;

/// The program that draws: it needs nothing but matplotlib.
const PLOTS: &str = include_str!("../assets/plots.py");

/// A number of things in words: `1 timestep`, `2 timesteps`.
pub(crate) fn counted(count: u64, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    }
}

/// The endings of plots that Penstock draws. A name with one of them is one file.
const WRITTEN: [&str; 3] = ["png", "svg", "pdf"];

/// The endings of other pictures. A name with one of them is a mistake, not a stem.
const OTHERS: [&str; 17] = [
    "jpg", "jpeg", "jpe", "gif", "tif", "tiff", "bmp", "webp", "avif", "heic", "eps", "ps", "pgf",
    "svgz", "raw", "rgba", "emf",
];

/// The path of a plot without its ending, the ending, and the ending in small letters.
fn ending(plot: &Path) -> Option<(PathBuf, &str, String)> {
    let suffix = plot.extension()?.to_str()?;
    Some((plot.with_extension(""), suffix, suffix.to_lowercase()))
}

/// The path of one plot of several: its `name` comes before the ending.
fn named(plot: &Path, name: &str) -> PathBuf {
    let longer = |stem: &Path, rest: &str| {
        let mut longer = stem.to_path_buf().into_os_string();
        longer.push(format!("-{name}{rest}"));
        PathBuf::from(longer)
    };
    match ending(plot) {
        Some((stem, suffix, known)) if WRITTEN.contains(&known.as_str()) => {
            longer(&stem, &format!(".{suffix}"))
        }
        _ => longer(plot, ""),
    }
}

/// Whether `plot` names one file rather than a stem.
fn is_one_file(plot: &Path) -> bool {
    ending(plot).is_some_and(|(.., known)| WRITTEN.contains(&known.as_str()))
}

/// The complaint about the name of a plot, if there is one.
fn complaint(plot: &Path) -> Option<String> {
    let shown = plot.display();
    let text = plot.to_string_lossy();
    if text.ends_with('/') || plot.file_name().is_none() {
        return Some(format!("{shown} names no file"));
    }
    let (.., known) = ending(plot)?;
    OTHERS.contains(&known.as_str()).then(|| {
        format!(
            "{shown}: plots are .png, .svg or .pdf; a name with none of these endings is the stem of \
             a .png and a .svg"
        )
    })
}

/// Whether a file can be written to its directory, as far as can be seen before.
fn check_directory(path: &Path) -> Result<(), Failure> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    match directory.is_dir() {
        true => Ok(()),
        false => Err(Failure::failed(format!(
            "cannot write {}: there is no directory {}",
            path.display(),
            directory.display()
        ))),
    }
}

/// Whether a plot can be written where it is to go, as far as can be seen before.
fn check_plot(plot: &Path) -> Result<(), Failure> {
    match complaint(plot) {
        Some(complaint) => Err(Failure::input(complaint)),
        None => check_directory(plot),
    }
}

impl Output {
    /// Checks that the files can be written, as far as can be seen before the work.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.plot.as_deref().map_or(Ok(()), check_plot)?;
        self.json_file().map_or(Ok(()), check_directory)
    }

    fn json_file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|path| *path != Path::new("-"))
    }

    /// Whether JSON goes to the standard output, in place of text.
    fn json_is_text(&self) -> bool {
        self.json.is_some() && self.json_file().is_none()
    }

    /// Writes a result as text and as JSON to the destinations.
    pub(crate) fn write(&self, result: &(impl Display + Serialize)) -> Result<(), Failure> {
        if let Some(path) = self.json_file() {
            let written = File::create(path).and_then(|file| write_json(file, result));
            written.map_err(|error| {
                Failure::failed(format!("cannot write {}: {error}", path.display()))
            })?;
        }
        let out = std::io::stdout().lock();
        let written = match self.json_is_text() {
            true => write_json(out, result),
            false => write_text(out, result),
        };
        written.or_else(|error| match to_stdout(error) {
            quiet if quiet == Failure::silent(0) => Ok(()),
            failure => Err(failure),
        })
    }

    /// Draws `data`, if the options name a plot.
    pub(crate) fn plot(
        &self,
        plot: Plot,
        data: &impl Serialize,
        python: &Path,
    ) -> Result<(), Failure> {
        match &self.plot {
            Some(target) => self.draw(plot, target, data, python),
            None => Ok(()),
        }
    }

    /// Draws several plots, if the options name a plot. The path of each has its name in it, unless
    /// there is only one plot and the path is one file.
    pub(crate) fn plots(
        &self,
        plot: Plot,
        all: &[(String, impl Serialize)],
        python: &Path,
    ) -> Result<(), Failure> {
        let Some(target) = &self.plot else {
            return Ok(());
        };
        for (name, data) in all {
            let target = match all.len() == 1 && is_one_file(target) {
                true => target.clone(),
                false => named(target, name),
            };
            self.draw(plot, &target, data, python)?;
        }
        Ok(())
    }

    fn draw(
        &self,
        plot: Plot,
        target: &Path,
        data: &impl Serialize,
        python: &Path,
    ) -> Result<(), Failure> {
        let json = serde_json::to_vec(data).map_err(Failure::failed)?;
        draw(plot, target, &json, self.no_title, python)
    }
}

/// Runs `penstock plot`: draws JSON that comes from a file or from the standard input.
pub(crate) fn plot(asked: &arguments::Draw, python: &Path) -> Result<(), Failure> {
    check_plot(&asked.out)?;
    let mut json = Vec::new();
    match &asked.data {
        Some(path) => {
            json = std::fs::read(path).map_err(|error| {
                Failure::failed(format!("cannot read {}: {error}", path.display()))
            })?;
        }
        None => {
            let read = std::io::stdin().lock().read_to_end(&mut json);
            read.map_err(|error| {
                Failure::failed(format!("cannot read the standard input: {error}"))
            })?;
        }
    }
    draw(asked.kind, &asked.out, &json, asked.no_title, python)
}

/// The exit code of `plots.py` for data that it cannot draw.
const BAD_DATA: i32 = 2;

/// Draws `json` into the file `target`; a name without an ending becomes two files.
fn draw(
    plot: Plot,
    target: &Path,
    json: &[u8],
    no_title: bool,
    python: &Path,
) -> Result<(), Failure> {
    let no_python = |error: Error| {
        Failure::failed(format!(
            "no plot: cannot run {}: {error}; PENSTOCK_PYTHON names another Python",
            python.display()
        ))
    };
    let mut child = Command::new(python)
        .args(["-c", PLOTS, plot.kind()])
        .arg(target)
        .args(no_title.then_some("--no-title"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(no_python)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read has something to say on its standard error.
        let _ = stdin.write_all(json);
    }
    let ended = child.wait_with_output().map_err(no_python)?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    let last = last.map(|line| line.strip_prefix("penstock: ").unwrap_or(line));
    let why = last.map_or_else(|| ended.status.to_string(), str::to_owned);
    let why = format!("no plot: {why}");
    Err(match ended.status.code() {
        Some(BAD_DATA) => Failure::input(why),
        _ => Failure::failed(why),
    })
}

fn write_json(out: impl Write, json: &impl Serialize) -> Result<(), Error> {
    let mut out = BufWriter::new(out);
    serde_json::to_writer_pretty(&mut out, json)?;
    out.write_all(b"\n")?;
    out.flush()
}

fn write_text(out: impl Write, text: &impl Display) -> Result<(), Error> {
    let mut out = BufWriter::new(out);
    writeln!(out, "{}", text.to_string().trim_end())?;
    out.flush()
}

/// Writes a text to the standard output.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(to_stdout)
}

/// The failure of a write to the standard output. A reader that has gone is no error.
pub(crate) fn to_stdout(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::silent(0),
        _ => Failure::failed(format!("cannot write the standard output: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_figure_stands_before_the_ending() {
        for (plot, expected) in [
            ("p.png", "p-3.png"),
            ("a.b/p.SVG", "a.b/p-3.SVG"),
            ("p.pdf", "p-3.pdf"),
            ("p", "p-3"),
            ("p.v2", "p.v2-3"),
            (".png", ".png-3"),
        ] {
            assert_eq!(named(Path::new(plot), "3"), Path::new(expected));
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_told_from_a_stem() {
        for good in ["p", "p.png", "p.PDF", "a.jpg/p", "p.v2", "p.1"] {
            assert_eq!(complaint(Path::new(good)), None, "{good}");
        }
        for bad in ["p.jpg", "p.JPEG", "p.tiff", "p.eps", "out/", "..", "/"] {
            assert!(complaint(Path::new(bad)).is_some(), "{bad}");
        }
    }
}
