//! Latencies: a histogram for each command, and events that took long.
//!
//! Buckets are eighths of a power of two, so a reported value is at most 12.5 % too large.

use std::collections::{BTreeMap, VecDeque};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Buckets for each power of two.
const STEPS: u64 = 8;
/// Enough for 2^36 microseconds, which is 19 hours.
const BUCKETS: usize = 280;
/// Maximum number of recorded occurrences of each event.
const MOMENTS_MAX: usize = 160;

fn bucket_of(micros: u64) -> usize {
    if micros < STEPS {
        return micros as usize;
    }
    let power = u64::from(micros.ilog2());
    let step = (micros >> (power - 3)) % STEPS;
    (((power - 2) * STEPS + step) as usize).min(BUCKETS - 1)
}

/// Returns the largest value of a bucket.
fn bucket_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let (power, step) = (bucket / STEPS + 2, bucket % STEPS);
    ((STEPS + step + 1) << (power - 3)) - 1
}

/// Counts durations in microseconds. Relaxed: statistics. Allocated on first use.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: OnceLock<Box<[AtomicU64]>>,
}

impl Histogram {
    /// Records a duration that occurred `times` times.
    pub fn add(&self, micros: u64, times: u64) {
        let buckets = self.buckets.get_or_init(|| (0..BUCKETS).map(|_| AtomicU64::new(0)).collect());
        buckets[bucket_of(micros)].fetch_add(times, Ordering::Relaxed);
    }

    /// Clears all counts.
    pub fn reset(&self) {
        self.buckets.get().into_iter().flatten().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
    }

    /// Returns the ends and counts of the non-empty buckets.
    fn filled(&self) -> Vec<(u64, u64)> {
        let counts = self.buckets.get().into_iter().flatten().map(|bucket| bucket.load(Ordering::Relaxed));
        counts
            .enumerate()
            .filter(|(_, count)| *count > 0)
            .map(|(at, count)| (bucket_end(at), count))
            .collect()
    }

    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.filled().iter().map(|(_, count)| count).sum()
    }

    /// Returns the duration that this percentage did not exceed. `None` if nothing was recorded.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let filled = self.filled();
        let count: u64 = filled.iter().map(|(_, count)| count).sum();
        let wanted = ((count as f64 * percent / 100.0).ceil() as u64).max(1);
        let mut below = 0;
        filled.iter().find_map(|(end, count)| {
            below += count;
            (below >= wanted).then_some(*end)
        })
    }

    /// Returns the cumulative counts by powers of two, without powers that add none.
    pub fn powers(&self) -> Vec<(u64, u64)> {
        let mut powers: Vec<(u64, u64)> = Vec::new();
        let mut below = 0;
        for (end, count) in self.filled() {
            below += count;
            let power = (end + 1).next_power_of_two();
            match powers.last_mut() {
                Some(last) if last.0 == power => last.1 = below,
                _ => powers.push((power, below)),
            }
        }
        powers
    }
}

/// An occurrence: Unix seconds, and its duration in milliseconds.
pub type Moment = (u64, u64);

/// The newest occurrences of an event, and the longest of all.
#[derive(Clone, Debug, Default)]
pub struct Event {
    /// Newest last. Only the longest of each second.
    pub moments: VecDeque<Moment>,
    /// The longest duration so far, in milliseconds.
    pub max_ms: u64,
}

/// Events that took longer than `latency-monitor-threshold`.
#[derive(Debug, Default)]
pub struct LatencyEvents(Mutex<BTreeMap<&'static str, Event>>);

impl LatencyEvents {
    /// Records an occurrence.
    pub fn add(&self, name: &'static str, second: u64, ms: u64) {
        let mut events = self.0.lock();
        let event = events.entry(name).or_default();
        event.max_ms = event.max_ms.max(ms);
        match event.moments.back_mut() {
            Some(last) if last.0 == second => last.1 = last.1.max(ms),
            _ => event.moments.push_back((second, ms)),
        }
        if event.moments.len() > MOMENTS_MAX {
            event.moments.pop_front();
        }
    }

    /// Returns all events by name.
    pub fn all(&self) -> Vec<(&'static str, Event)> {
        self.0.lock().iter().map(|(name, event)| (*name, event.clone())).collect()
    }

    /// Clears the events for which `is_meant` holds. Returns their number.
    pub fn reset(&self, is_meant: impl Fn(&str) -> bool) -> usize {
        let mut events = self.0.lock();
        let before = events.len();
        events.retain(|name, _| !is_meant(name));
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_lies_in_a_bucket_that_ends_little_beyond() {
        let mut last = 0;
        for n in (0..5000).chain([1 << 20, (1 << 30) + 7, (1 << 36) - 1]) {
            let (bucket, end) = (bucket_of(n), bucket_end(bucket_of(n)));
            assert!(end >= n && end - n <= n / 8, "{n} ends at {end}");
            assert!(bucket >= last, "{n}");
            last = bucket;
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn shares_and_powers_are_shown() {
        let histogram = Histogram::default();
        assert_eq!((histogram.percentile(50.0), histogram.count()), (None, 0));
        (1..=100).for_each(|n| histogram.add(n, 1));
        histogram.add(1000, 100);
        assert_eq!(histogram.count(), 200);
        assert_eq!((histogram.percentile(25.0), histogram.percentile(50.0)), (Some(51), Some(103)));
        assert_eq!(histogram.percentile(99.0), Some(1023));
        assert_eq!(
            histogram.powers(),
            [(2, 1), (4, 3), (8, 7), (16, 15), (32, 31), (64, 63), (128, 100), (1024, 200)]
        );
        histogram.reset();
        assert_eq!(histogram.count(), 0);
    }

    #[test]
    fn events_keep_the_longest_of_a_second() {
        let events = LatencyEvents::default();
        for (second, ms) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            events.add("command", second, ms);
        }
        let event = events.all().remove(0).1;
        assert_eq!((event.moments, event.max_ms), ([(1, 9), (2, 3)].into(), 9));
        (3..1000).for_each(|second| events.add("command", second, 1));
        let moments = events.all().remove(0).1.moments;
        assert_eq!((moments.len(), moments.back()), (MOMENTS_MAX, Some(&(999, 1))));
        assert_eq!((events.reset(|_| true), events.all().len()), (1, 0));
    }
}
