//! Where results go: text, JSON, plots.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufWriter, Error, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::Surroundings;
use crate::arguments::Output;
use crate::failure::Failure;

/// The program that draws: it needs nothing but matplotlib.
const PLOTS: &str = include_str!("../../../python/penstock/_plots.py");

/// What `_plots.py` can draw.
#[derive(Clone, Copy)]
pub(crate) enum Plot {
    Table,
    Figure,
    Summary,
    Scale,
    Seeks,
}

impl Plot {
    fn kind(self) -> &'static str {
        match self {
            Plot::Table => "table",
            Plot::Figure => "figure",
            Plot::Summary => "summary",
            Plot::Scale => "scale",
            Plot::Seeks => "seeks",
        }
    }
}

/// So many of something, in words: `1 timestep`, `2 timesteps`.
pub(crate) fn counted(count: u64, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    }
}

impl Output {
    /// Whether it can be written where it is to go, as far as can be seen before.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let plot = self.plot.as_deref();
        for path in self.json_file().into_iter().chain(plot) {
            let directory = match path.parent() {
                Some(parent) if parent != Path::new("") => parent,
                _ => Path::new("."),
            };
            if !directory.is_dir() {
                return Err(Failure::failed(format!(
                    "cannot write {}: there is no directory {}",
                    path.display(),
                    directory.display()
                )));
            }
        }
        Ok(())
    }

    fn json_file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|path| *path != Path::new("-"))
    }

    /// Whether JSON goes to the standard output, in place of text.
    fn json_is_text(&self) -> bool {
        self.json.is_some() && self.json_file().is_none()
    }

    /// The same, but for a longer name of the plot, if there is to be one.
    pub(crate) fn with_stem(&self, more: &str) -> Self {
        let longer = |stem: &PathBuf| {
            let mut name = stem.clone().into_os_string();
            name.push(more);
            PathBuf::from(name)
        };
        Self {
            json: self.json.clone(),
            plot: self.plot.as_ref().map(longer),
        }
    }

    /// Text and JSON, to where they are to go.
    pub(crate) fn write(&self, text: &impl Display, json: &impl Serialize) -> Result<(), Failure> {
        if let Some(path) = self.json_file() {
            let written = File::create(path).and_then(|file| write_json(file, json));
            written.map_err(|error| {
                Failure::failed(format!("cannot write {}: {error}", path.display()))
            })?;
        }
        let out = std::io::stdout().lock();
        let written = match self.json_is_text() {
            true => write_json(out, json),
            false => write_text(out, text),
        };
        written.or_else(|error| match to_stdout(error) {
            quiet if quiet == Failure::silent(0) => Ok(()),
            failure => Err(failure),
        })
    }

    /// Draws `data`, if that is asked for.
    pub(crate) fn plot(
        &self,
        plot: Plot,
        data: &impl Serialize,
        surroundings: &Surroundings,
    ) -> Result<(), Failure> {
        let Some(stem) = &self.plot else {
            return Ok(());
        };
        let json = serde_json::to_vec(data).map_err(Failure::failed)?;
        let python = &surroundings.python;
        let no_python = |error: Error| {
            Failure::failed(format!(
                "no plot: cannot run {}: {error}; PENSTOCK_PYTHON names another Python",
                python.display()
            ))
        };
        let mut child = Command::new(python)
            .args(["-c", PLOTS, plot.kind()])
            .arg(stem)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(no_python)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read has something to say on its standard error.
            let _ = stdin.write_all(&json);
        }
        let ended = child.wait_with_output().map_err(no_python)?;
        if ended.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty());
        let last = last.map(|line| line.strip_prefix("penstock: ").unwrap_or(line));
        let why = last.map_or_else(|| ended.status.to_string(), str::to_owned);
        Err(Failure::failed(format!("no plot: {why}")))
    }
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

/// Why the standard output cannot be written. A reader that has gone has had enough: no error.
pub(crate) fn to_stdout(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::silent(0),
        _ => Failure::failed(format!("cannot write the standard output: {error}")),
    }
}
