//! How long a campaign goes on, and a bar that shows it.
#![expect(clippy::disallowed_methods, reason = "campaigns last for so long in real time")]

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How much a campaign does: it ends with the first limit that is reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    /// Rounds or runs; no limit if there is none.
    pub rounds: Option<u64>,
    /// Time; no limit if there is none.
    pub time: Option<Duration>,
}

/// A campaign on its way.
pub struct Progress {
    budget: Budget,
    start: Instant,
    done: u64,
    bar: ProgressBar,
}

impl Progress {
    /// At its beginning.
    pub fn new(budget: Budget) -> Self {
        let bar = match budget {
            Budget { rounds: Some(rounds), .. } => {
                ProgressBar::new(rounds).with_style(style("{bar:30} {pos}/{len}, {eta} left  {msg}"))
            }
            Budget { time: Some(time), .. } => {
                ProgressBar::new(time.as_secs().max(1)).with_style(style("{bar:30} {pos}/{len} s  {msg}"))
            }
            Budget { rounds: None, time: None } => {
                ProgressBar::no_length().with_style(style("{spinner} {pos}, {elapsed}  {msg}"))
            }
        };
        Progress { budget, start: Instant::now(), done: 0, bar }
    }

    /// Whether there is more to do.
    pub fn goes_on(&self) -> bool {
        self.budget.rounds.is_none_or(|rounds| self.done < rounds)
            && self.budget.time.is_none_or(|time| self.start.elapsed() < time)
    }

    /// One more is done.
    pub fn advance(&mut self, message: impl FnOnce() -> String) {
        self.done += 1;
        let by_time = self.budget.rounds.is_none() && self.budget.time.is_some();
        self.bar.set_position(if by_time { self.start.elapsed().as_secs() } else { self.done });
        if !self.bar.is_hidden() {
            self.bar.set_message(message());
        }
    }

    /// Rounds done.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
