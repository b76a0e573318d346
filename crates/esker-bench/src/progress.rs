//! Shows the progress of a run and the remaining time.
//!
//!   runner --row began, row ended--> Progress --> one line on a terminal, or a line per child in a log

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Progress over all children of a run, in the weights of their rows.
pub(crate) struct Progress {
    bar: ProgressBar,
    total: u64,
    done: u64,
    start: Instant,
    is_terminal: bool,
}

impl Progress {
    /// Returns the progress of a run of `total` units of weight.
    pub(crate) fn new(total: u64) -> Self {
        let style = ProgressStyle::with_template("{bar:30.green} {percent:>3} %  {msg}");
        let bar = ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_secs(1));
        Self { bar, total, done: 0, start: Instant::now(), is_terminal: std::io::stderr().is_terminal() }
    }

    /// Shows what is running.
    pub(crate) fn now(&self, what: &str) {
        self.bar.set_message(format!("{what}{}", self.time_left()));
    }

    /// Counts work of this weight as done.
    pub(crate) fn advance(&mut self, weight: u64) {
        self.done += weight;
        self.bar.set_position(self.done);
    }

    /// Prints a line that stays: in a log always, on a terminal only if `matters` is set.
    pub(crate) fn note(&self, line: &str, matters: bool) {
        if !self.is_terminal {
            eprintln!("{line}");
        } else if matters {
            self.bar.println(line);
        }
    }

    /// Clears the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn time_left(&self) -> String {
        // An estimate means nothing before a few percent are done.
        if self.done * 50 < self.total {
            return String::new();
        }
        let remaining = self.total.saturating_sub(self.done) as f64 / self.done as f64;
        let seconds = (self.start.elapsed().as_secs_f64() * remaining).round() as u64;
        format!(", {}:{:02} left", seconds / 60, seconds % 60)
    }
}
