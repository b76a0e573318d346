//! The length of a campaign, and its progress bar.
#![expect(clippy::disallowed_methods, reason = "campaigns are limited in real time")]

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Limits of a campaign, which ends at the first one reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    /// Number of rounds or runs, if limited.
    pub rounds: Option<u64>,
    /// Time, if limited.
    pub time: Option<Duration>,
}

/// The progress of a campaign.
pub struct Progress {
    budget: Budget,
    start: Instant,
    done: u64,
    bar: ProgressBar,
}

impl Progress {
    /// Starts a campaign.
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

    /// Returns whether the campaign continues.
    pub fn goes_on(&self) -> bool {
        self.budget.rounds.is_none_or(|rounds| self.done < rounds)
            && self.budget.time.is_none_or(|time| self.start.elapsed() < time)
    }

    /// Counts a finished round.
    pub fn advance(&mut self, message: impl FnOnce() -> String) {
        self.done += 1;
        let by_time = self.budget.rounds.is_none() && self.budget.time.is_some();
        self.bar.set_position(if by_time { self.start.elapsed().as_secs() } else { self.done });
        if !self.bar.is_hidden() {
            self.bar.set_message(message());
        }
    }

    /// Returns the number of finished rounds.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Returns the time since the start.
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
