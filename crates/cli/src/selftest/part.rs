//! The processes that checks start: this program in other parts, and programs of others.
//!
//! A process ends with the check that has started it: the check kills and reaps it. If the
//! self-test itself is killed, a part hears that its standard input has ended, and ends, too. The
//! ranks of a job have no such input; they end after a time.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;

use clap::ValueEnum;
use signal_hook::consts::{SIGKILL, SIGTERM};
use signal_hook::low_level::raise;

use super::site::{Site, failed};
use crate::failure::Failure;

/// The time after which a rank ends that nobody has ended: longer than any check takes.
const RANK_TIME: Duration = Duration::from_secs(60);
/// The most characters of another program's complaint that are shown.
const COMPLAINT_CHARS: usize = 240;

/// The part that a process plays in a self-test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Replaces an array again and again.
    Writer,
    /// Serves a volume.
    Server,
    /// Mounts a volume.
    Mount,
    /// Lends memory to other processes.
    Lender,
    /// Reaches the memory that another process lends.
    Borrower,
    /// Writes and reads an array as a rank of a job.
    Rank,
}

impl Part {
    /// The words by which this program plays the part.
    pub(super) fn words(self, site: &Site) -> Result<Vec<std::ffi::OsString>, Failure> {
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let directory = site.directory().as_os_str().to_os_string();
        let words = ["selftest".into(), directory, "--part".into()];
        let words = std::iter::once(program.into_os_string()).chain(words);
        Ok(words.chain([self.name().into()]).collect())
    }

    /// Starts this program in the part.
    pub(super) fn start(self, site: &Site) -> Result<Process, Failure> {
        Process::start(site, &self.name(), &self.words(site)?)
    }

    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_string())
    }
}

/// Waits until the process that has started this one wants its end, or has ended.
pub(super) fn wait_for_parent() {
    // An error of the input is its end, too.
    let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
}

/// Lets this process get a SIGTERM once its parent wants its end, or has ended.
pub(super) fn end_with_parent() -> Result<(), Failure> {
    let end = || {
        wait_for_parent();
        raise(SIGTERM)
    };
    let started = std::thread::Builder::new().spawn(end);
    started.map(drop).map_err(Failure::failed)
}

/// Lets this process end after a time, whatever it does.
pub(super) fn end_in_time() -> Result<(), Failure> {
    let end = || {
        std::thread::sleep(RANK_TIME);
        raise(SIGKILL)
    };
    let started = std::thread::Builder::new().spawn(end);
    started.map(drop).map_err(Failure::failed)
}

/// A process that a check has started; it is killed and reaped when this is dropped.
pub(super) struct Process {
    name: String,
    child: Child,
    /// The lines of its standard output.
    lines: Receiver<String>,
    /// The file of its standard error.
    errors: PathBuf,
}

impl Process {
    /// Starts a process. Signals of the terminal do not reach it: the check ends it.
    pub(super) fn start(
        site: &Site,
        name: &str,
        words: &[std::ffi::OsString],
    ) -> Result<Self, Failure> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(Failure::failed(format!("there is no command for {name}")));
        };
        let errors = site.path(&format!("{name}.stderr"));
        let to = File::create(&errors).map_err(|error| failed("making", &errors, &error))?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(to)
            .process_group(0)
            .spawn()
            .map_err(|error| failed("running", Path::new(program), &error))?;
        let (sender, lines) = mpsc::channel();
        let output = child.stdout.take();
        let process = Self {
            name: name.to_string(),
            child,
            lines,
            errors,
        };
        let read = move || {
            let lines = output
                .into_iter()
                .flat_map(|out| BufReader::new(out).lines());
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().spawn(read);
        started.map(|_| process).map_err(Failure::failed)
    }

    /// The next line that the process says, or nothing if it has said its last.
    fn next_line(&self, site: &Site, awaited: &str) -> Result<Option<String>, Failure> {
        site.wait_for(awaited, || match self.lines.try_recv() {
            Ok(line) => Ok(Some(Some(line))),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Ok(Some(None)),
        })
    }

    /// Waits for the next line that the process says.
    ///
    /// # Errors
    /// When it ends without one.
    pub(super) fn line(&self, site: &Site, awaited: &str) -> Result<String, Failure> {
        let line = self.next_line(site, awaited)?;
        line.ok_or_else(|| self.gone("has ended"))
    }

    /// Waits for all lines that the process has yet to say.
    pub(super) fn last_lines(&self, site: &Site) -> Result<Vec<String>, Failure> {
        let awaited = format!("the last words of the {}", self.name);
        let lines = std::iter::from_fn(|| self.next_line(site, &awaited).transpose());
        lines.collect()
    }

    /// Fails if the process has ended.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.gone(&format!("has ended, {status}"))),
            Err(error) => Err(self.gone(&format!("cannot be asked: {error}"))),
        }
    }

    /// Kills the process by SIGKILL, and gives the lines that nobody has heard yet.
    pub(super) fn kill(mut self, site: &Site) -> Result<Vec<String>, Failure> {
        self.check()?;
        self.child.kill().map_err(Failure::failed)?;
        self.wait(site)?;
        self.last_lines(site)
    }

    /// Lets the process end, by the end of its standard input, and waits for that.
    ///
    /// # Errors
    /// When it does not end well.
    pub(super) fn end(&mut self, site: &Site) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        match self.wait(site)? {
            status if status.success() => Ok(()),
            status => Err(self.gone(&format!("has ended badly, {status}"))),
        }
    }

    /// Waits for the end of the process.
    pub(super) fn wait(&mut self, site: &Site) -> Result<ExitStatus, Failure> {
        let (child, name) = (&mut self.child, &self.name);
        site.wait_for(&format!("the end of the {name}"), || {
            child.try_wait().map_err(Failure::failed)
        })
    }

    fn gone(&self, how: &str) -> Failure {
        let reason = self.complaint();
        let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
        Failure::failed(format!("the {} {how}{reason}", self.name))
    }

    /// The complaint on the standard error: this program's own, or else all words, if not many.
    pub(super) fn complaint(&self) -> Option<String> {
        let said = std::fs::read(&self.errors).unwrap_or_default();
        complaint_in(&String::from_utf8_lossy(&said))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn complaint_in(said: &str) -> Option<String> {
    let own = said
        .lines()
        .find_map(|line| line.split_once("penstock: error: "));
    if let Some((_, reason)) = own {
        return Some(reason.trim().to_string());
    }
    let has_words = |line: &&str| line.contains(char::is_alphanumeric);
    let lines: Vec<&str> = said.lines().map(str::trim).filter(has_words).collect();
    let all = lines.join(" ");
    match all.char_indices().nth(COMPLAINT_CHARS) {
        Some((end, _)) => Some(format!("{} ...", &all[..end])),
        None => Some(all).filter(|all| !all.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_complaint_comes_first() {
        for (said, expected) in [
            ("", None),
            ("--\nno slots:\n  ask\n---\n", Some("no slots: ask")),
            ("[0] penstock: error: full\nkilled\n", Some("full")),
        ] {
            assert_eq!(complaint_in(said).as_deref(), expected, "{said}");
        }
    }

    #[test]
    fn a_long_complaint_is_cut() {
        let cut = complaint_in(&"\u{e4}".repeat(1000)).unwrap();
        assert_eq!(cut.chars().count(), COMPLAINT_CHARS + 4);
    }

    #[test]
    fn each_part_has_a_name() {
        assert_eq!(Part::Writer.name(), "writer");
        assert_eq!(Part::Borrower.name(), "borrower");
    }
}
