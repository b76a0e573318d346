//! Shows a progress bar on standard error if it is a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// The progress bar and the clock of a running command.
pub(crate) struct Progress {
    bar: ProgressBar,
    start: Instant,
}

impl Progress {
    /// Counts bytes. Without a total (a pipe), shows the bytes processed.
    pub(crate) fn bytes(total: Option<u64>) -> Self {
        let template = match total {
            Some(_) => "{bar:30} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left {msg}",
            None => "{spinner} {bytes} {bytes_per_sec} {msg}",
        };
        Self::new(total, template)
    }

    /// Counts rows.
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

    /// Prints a line on standard error without disturbing the bar.
    pub(crate) fn note(&self, text: &str) {
        self.bar.suspend(|| output::print_message(text));
    }

    /// Removes the bar and returns the elapsed time.
    pub(crate) fn finish(self) -> Duration {
        self.bar.finish_and_clear();
        self.start.elapsed()
    }
}
