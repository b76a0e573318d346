//! Rates per second, averaged over the last 1, 60, 300 and 900 seconds.
//!
//! ```text
//!   once a second: counters --> samples of the last 900 s --> INFO, the status page
//! ```

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::base::clock;
use crate::observe::stats::Stats;

/// Lengths in seconds of the averages.
pub const WINDOWS: [u64; 4] = [1, 60, 300, 900];
/// Number of samples: one a second, and the one before the first.
const SAMPLES_MAX: usize = 901;

/// A sampled counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Commands.
    Commands,
    /// Commits.
    Commits,
    /// Changes of keys.
    Changes,
    /// Bytes received.
    BytesIn,
    /// Bytes sent.
    BytesOut,
    /// Error replies.
    Errors,
}

impl Rate {
    /// All counters.
    pub const ALL: [Rate; 6] =
        [Rate::Commands, Rate::Commits, Rate::Changes, Rate::BytesIn, Rate::BytesOut, Rate::Errors];

    /// Its name in `INFO`.
    pub fn name(self) -> &'static str {
        match self {
            Rate::Commands => "ops",
            Rate::Commits => "commits",
            Rate::Changes => "changes",
            Rate::BytesIn => "input_bytes",
            Rate::BytesOut => "output_bytes",
            Rate::Errors => "errors",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ms: u64,
    counts: [u64; Rate::ALL.len()],
}

/// The samples of the last quarter of an hour.
#[derive(Default)]
pub struct Rates(Mutex<VecDeque<Sample>>);

impl Rates {
    /// Takes a sample. Called once a second.
    pub fn note(&self, stats: &Stats) {
        let counters = [
            &stats.commands,
            &stats.commits,
            &stats.changes,
            &stats.bytes_in,
            &stats.bytes_out,
            &stats.errors,
        ];
        self.add(Sample { at_ms: clock::now_ms(), counts: counters.map(|counter| counter.get()) });
    }

    fn add(&self, sample: Sample) {
        let mut samples = self.0.lock();
        samples.push_back(sample);
        if samples.len() > SAMPLES_MAX {
            samples.pop_front();
        }
    }

    /// Clears the samples, because the counters were cleared.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// Returns the average rate over the last `seconds`, or over as many as there are samples for.
    pub fn average(&self, rate: Rate, seconds: u64) -> f64 {
        let samples = self.0.lock();
        let Some(last) = samples.back() else { return 0.0 };
        let first = samples[samples.len().saturating_sub(seconds as usize + 1)];
        per_second(rate, &first, last)
    }

    /// Returns the number of seconds covered by samples.
    pub fn seconds(&self) -> u64 {
        self.0.lock().len().saturating_sub(1) as u64
    }

    /// Returns the rates at `points` moments of the covered time, newest last.
    pub fn series(&self, rate: Rate, points: usize) -> Vec<f64> {
        let samples = self.0.lock();
        let step = (samples.len().saturating_sub(1)).div_ceil(points.max(1)).max(1);
        let first = samples.len().saturating_sub(1) % step;
        let chosen: Vec<_> = samples.iter().skip(first).step_by(step).collect();
        chosen.windows(2).map(|pair| per_second(rate, pair[0], pair[1])).collect()
    }
}

fn per_second(rate: Rate, first: &Sample, last: &Sample) -> f64 {
    let at = rate as usize;
    let ms = last.at_ms.saturating_sub(first.at_ms);
    match ms {
        0 => 0.0,
        ms => last.counts[at].saturating_sub(first.counts[at]) as f64 * 1000.0 / ms as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_of_their_windows() {
        let rates = Rates::default();
        assert_eq!(rates.average(Rate::Commands, 60), 0.0);
        // 100 a second for 60 s, then 1000 a second for one second.
        for second in 0..=61 {
            let commands = if second <= 60 { 100 * second } else { 7000 };
            rates.add(Sample { at_ms: second * 1000, counts: [commands, 0, 0, 0, 0, 0] });
        }
        assert_eq!(rates.average(Rate::Commands, 1), 1000.0);
        assert_eq!(rates.average(Rate::Commands, 60), 115.0);
        assert_eq!(rates.average(Rate::Commands, 900), 7000.0 / 61.0);
        assert_eq!(rates.average(Rate::Errors, 60), 0.0);
        let series = rates.series(Rate::Commands, 10);
        assert!(series.len() <= 10 && series[0] == 100.0 && rates.seconds() == 61, "{series:?}");
        assert_eq!(series.last(), Some(&(1600.0 / 7.0)), "the newest is the last");
        for second in 62..2000 {
            rates.add(Sample { at_ms: second * 1000, counts: [7000, 0, 0, 0, 0, 0] });
        }
        assert_eq!((rates.average(Rate::Commands, 900), rates.seconds()), (0.0, 900));
    }
}
