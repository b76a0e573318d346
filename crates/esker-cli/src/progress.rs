//! A progress bar on standard error; nothing where that is not a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// A running command: its bar and its clock.
pub(crate) struct Progress {
    bar: ProgressBar,
    start: Instant,
}

impl Progress {
    /// By bytes; without a total (a pipe) it shows what went through.
    pub(crate) fn bytes(total: Option<u64>) -> Self {
        let template = match total {
            Some(_) => "{bar:30} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left {msg}",
            None => "{spinner} {bytes} {bytes_per_sec} {msg}",
        };
        Self::new(total, template)
    }

    /// By rows.
    pub(crate) fn rows(total: Option<u64>) -> Self {
        let template = match total {
            Some(_) => "{bar:30} {human_pos}/{human_len} rows {per_sec}, {eta} left",
            None => "{spinner} {human_pos} rows {per_sec}",
        };
        Self::new(total, template)
    }

    fn new(total: Option<u64>, template: &str) -> Self {
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        bar.set_style(ProgressStyle::with_template(template).expect("the templates above are valid"));
        Progress { bar, start: Instant::now() }
    }

    pub(crate) fn set(&self, position: u64, message: impl FnOnce() -> String) {
        self.bar.set_position(position);
        if !self.bar.is_hidden() {
            self.bar.set_message(message());
        }
    }

    /// Prints a line on standard error without tearing the bar.
    pub(crate) fn note(&self, text: &str) {
        self.bar.suspend(|| output::print_message(text));
    }

    /// Removes the bar; the time since the start.
    pub(crate) fn finish(self) -> Duration {
        self.bar.finish_and_clear();
        self.start.elapsed()
    }
}
