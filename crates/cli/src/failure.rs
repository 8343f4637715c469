//! The reason why a command failed, in one line, and its exit code.

use std::fmt::Display;
use std::io::Write;

use penstock_experiments::StudyError;

const FAILED: u8 = 1;
const BAD_INPUT: u8 = 2;

/// The reason why a command ends early.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    message: Option<String>,
    code: u8,
}

impl Failure {
    /// A failure of the work itself.
    pub(crate) fn failed(message: impl Display) -> Self {
        Self {
            message: Some(message.to_string()),
            code: FAILED,
        }
    }

    /// A failure of bad input.
    pub(crate) fn input(message: impl Display) -> Self {
        Self {
            message: Some(message.to_string()),
            code: BAD_INPUT,
        }
    }

    /// A failure without a message.
    pub(crate) fn silent(code: u8) -> Self {
        Self {
            message: None,
            code,
        }
    }

    /// The message.
    pub(crate) fn text(&self) -> String {
        self.message.clone().unwrap_or_default()
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Prints the message on the standard error, and gives the exit code.
    pub(crate) fn report(&self) -> u8 {
        if let Some(message) = &self.message {
            // A failure to print cannot be reported.
            let _ = writeln!(std::io::stderr(), "penstock: error: {}", one_line(message));
        }
        self.code
    }
}

impl From<penstock_engine::Error> for Failure {
    fn from(error: penstock_engine::Error) -> Self {
        match error.kind {
            penstock_engine::Kind::Schema => Self::input(error),
            _ => Self::failed(error),
        }
    }
}

impl From<StudyError> for Failure {
    fn from(error: StudyError) -> Self {
        match error.is_input() {
            true => Self::input(error),
            false => Self::failed(error),
        }
    }
}

/// A message without line breaks and other characters that move a terminal's cursor.
fn one_line(message: &str) -> String {
    let plain = message.replace(|char: char| char.is_control(), " ");
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The complaint and the tips of clap's message.
pub(crate) fn without_usage(message: &str) -> String {
    let message = message.strip_prefix("error:").unwrap_or(message);
    let lines = message.lines().map(str::trim);
    let lines = lines.take_while(|line| !line.starts_with("Usage:"));
    let told = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let mut all = String::new();
    for line in told {
        match (all.is_empty(), line.strip_prefix("tip: ")) {
            (true, _) => {}
            (false, Some(_)) => all.push_str("; "),
            (false, None) => all.push(' '),
        }
        all.push_str(line.strip_prefix("tip: ").unwrap_or(line));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_whatever_comes() {
        assert_eq!(one_line("a\nb\r\n  c\u{1b}[31m"), "a b c [31m");
        let clap = "error: unexpected argument '--pre' found\n\n  tip: a similar argument exists: \
                    '--preset'\n\nUsage: penstock sim run [OPTIONS]\n\nFor more information, try \
                    '--help'.\n";
        let expected = "unexpected argument '--pre' found; a similar argument exists: '--preset'";
        assert_eq!(without_usage(clap), expected);
    }
}
