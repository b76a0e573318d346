//! Latencies: how long operations take, as quantiles of a sample.
//!
//! ```text
//!   operation --measured?--> Recorder (an HDR histogram of nanoseconds, 2 significant digits) --> Latency
//! ```

use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

/// Significant digits of the times. They are exact within one per cent.
const DIGITS: u8 = 2;

/// How long operations of one kind took since the database was opened, from a sample. All times are exact
/// within one per cent. They are zero while `samples` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// Measured operations.
    pub samples: u64,
    /// Half of all operations took at most this long.
    pub p50: Duration,
    /// 99 of 100 took at most this long.
    pub p99: Duration,
    /// 999 of 1000 took at most this long.
    pub p99_9: Duration,
    /// The slowest measured operation.
    pub max: Duration,
}

impl Latency {
    /// The quantiles, as shares of all operations, and their times.
    pub fn quantiles(&self) -> [(f64, Duration); 3] {
        [(0.5, self.p50), (0.99, self.p99), (0.999, self.p99_9)]
    }
}

/// Collects measured times.
pub(crate) struct Recorder(Mutex<Samples>);

struct Samples {
    times: Histogram<u64>,
    count: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        let times = Histogram::new(DIGITS).expect("a histogram may have two digits");
        Recorder(Mutex::new(Samples { times, count: 0 }))
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.latency().fmt(f)
    }
}

impl Recorder {
    /// Records an operation that stands for `weight` operations.
    pub(crate) fn record(&self, time: Duration, weight: u64) {
        self.0.lock().record(time, weight);
    }

    /// Records an operation, unless another thread is recording: for callers that must not wait.
    pub(crate) fn offer(&self, time: Duration) {
        if let Some(mut samples) = self.0.try_lock() {
            samples.record(time, 1);
        }
    }

    /// Returns the quantiles so far.
    pub(crate) fn latency(&self) -> Latency {
        let samples = self.0.lock();
        let at = |quantile| Duration::from_nanos(samples.times.value_at_quantile(quantile));
        Latency {
            samples: samples.count,
            p50: at(0.5),
            p99: at(0.99),
            p99_9: at(0.999),
            max: Duration::from_nanos(samples.times.max()),
        }
    }
}

impl Samples {
    fn record(&mut self, time: Duration, weight: u64) {
        // The histogram grows as needed. That cannot fail for 64-bit nanoseconds.
        let _ = self.times.record_n(time.as_nanos() as u64, weight);
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_count_weights_and_are_right_within_a_per_cent() {
        let recorder = Recorder::default();
        assert_eq!(recorder.latency(), Latency::default());
        (1..=990).for_each(|_| recorder.record(Duration::from_micros(10), 1));
        recorder.record(Duration::from_millis(5), 8);
        recorder.offer(Duration::from_secs(70));
        recorder.offer(Duration::from_secs(80));
        let latency = recorder.latency();
        assert_eq!(latency.samples, 993);
        let is_near =
            |time: Duration, micros: f64| (time.as_nanos() as f64 / micros / 1e3 - 1.0).abs() < 0.01;
        assert!(is_near(latency.p50, 10.0) && is_near(latency.p99, 10.0), "{latency:?}");
        // The operation of weight 8 is 0.8 % of all.
        assert!(is_near(latency.p99_9, 70e6) && is_near(latency.max, 80e6), "{latency:?}");
        assert!(latency.max >= Duration::from_secs(80));
    }
}
