//! A progress bar on the standard error, if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use penstock_arrays::Progress;
use penstock_experiments::{Case, Watch};

/// The time between two updates of the bar without progress.
const TICK: Duration = Duration::from_millis(500);

/// A progress bar, which appears when there is work.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // A template that does not parse leaves the style of the library.
        let template = "{bar:30} {percent:>3} %  {elapsed} of about {duration}  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }
}

impl Watch for Bar {
    fn begin(&self, total: u64) {
        self.0.set_length(total);
        if !self.0.is_hidden() {
            self.0.enable_steady_tick(TICK);
        }
    }

    fn done(&self, units: u64, case: &Case) {
        self.0.set_message(case.describe());
        self.0.inc(units);
    }
}

impl Bar {
    /// Shows the progress of the bytes.
    pub(crate) fn tell(&self, progress: Progress) {
        match progress {
            Progress::All(bytes) => self.begin_bytes(bytes),
            Progress::More(bytes) => self.0.inc(bytes),
        }
    }

    /// Shows what has been done so far, of nobody knows how much.
    pub(crate) fn tell_text(&self, text: String) {
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed}  {wide_msg}") {
            self.0.set_style(style);
        }
        if !self.0.is_hidden() {
            self.0.enable_steady_tick(TICK);
        }
        self.0.set_message(text);
    }

    /// Shows how many bytes of all have been moved so far.
    pub(crate) fn tell_position(&self, done: u64, all: u64) {
        if self.0.length() != Some(all) {
            self.begin_bytes(all);
        }
        self.0.set_position(done);
    }

    fn begin_bytes(&self, bytes: u64) {
        let template =
            "{bar:30} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style);
        }
        self.0.set_length(bytes);
        if !self.0.is_hidden() {
            self.0.enable_steady_tick(TICK);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
