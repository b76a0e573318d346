//! Measures the speed of flushes and compactions, and limits the speed of compactions and writers.
//!
//! ```text
//!   flushes, compactions --bytes, time--> Speed: input of a writer's delay (pacing.rs, admission.rs)
//!   compaction --each MiB of input--> Allowance: a pause, if it is ahead of its share of disk or processor
//!   commit --bytes--> Rate: a pause, if the writers are ahead of the configured rate
//! ```
//!
//! A rate holds for all writers of the database together. At most [`BURST`] of idle time is saved up.
//!
//! Flushes never pause, because writers would wait for them. A pause ends early when the database closes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::engine::base::allowances::Allowances;
use crate::engine::upkeep::Upkeep;
use crate::engine::upkeep::compact::COMPACTION_BYTES_PER_SECOND;

/// Less work is not measured: its speed is not significant.
const MEASURED_BYTES_MIN: u64 = 4 << 20;
/// Maximum idle time that writers save up.
const BURST: Duration = Duration::from_millis(10);
/// Maximum sleep of a compaction at a time, so that closing does not wait long.
const NAP_MAX: Duration = Duration::from_millis(50);

/// Bytes per second of the last flushes or compactions; zero before the first. Relaxed: an estimate.
#[derive(Debug, Default)]
pub(in crate::engine) struct Speed(AtomicU64);

impl Speed {
    /// Returns bytes per second.
    pub(in crate::engine) fn now(&self) -> u64 {
        match self.0.load(Ordering::Relaxed) {
            0 => COMPACTION_BYTES_PER_SECOND,
            speed => speed,
        }
    }

    /// Records that `bytes` took `time`.
    pub(in crate::engine) fn note(&self, bytes: u64, time: Duration) {
        if bytes < MEASURED_BYTES_MIN || time.is_zero() {
            return;
        }
        let speed = (bytes as f64 / time.as_secs_f64()) as u64;
        self.0.store(((3 * self.now() + speed) / 4).max(1), Ordering::Relaxed);
    }
}

/// The measured speeds, and the time of the next write.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Speed at which compactions write.
    pub(in crate::engine) compactions: Speed,
    /// Speed at which flushes write memtables.
    pub(in crate::engine) flushes: Speed,
    /// Earliest time of the next commit.
    next_write: Mutex<Duration>,
}

impl Pace {
    /// Returns how long a commit of `bytes` waits, so that writers keep to a rate.
    fn wait_to_write(&self, bytes: u64, rate: u64, now: Duration) -> Duration {
        let mut next = self.next_write.lock();
        let begin = (*next).max(now.saturating_sub(BURST));
        *next = begin + time_of(bytes, rate);
        begin.saturating_sub(now)
    }
}

/// Returns how long `bytes` take at a rate in bytes per second.
pub(in crate::engine) fn time_of(bytes: u64, rate: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64)
}

/// Limits the speed of one compaction, so that all that run keep to the limits together.
pub(in crate::engine) struct Allowance<'a> {
    upkeep: &'a Upkeep,
    /// When it began or last paused.
    since: Mutex<Duration>,
}

impl Upkeep {
    /// Makes a writer of `bytes` wait for the configured rate.
    pub(in crate::engine) fn keep_write_rate(&self, bytes: u64) {
        let Some(rate) = self.options.allowances().write_rate else { return };
        let wait = self.pace.wait_to_write(bytes, rate, self.env.clock.monotonic());
        if !wait.is_zero() {
            self.env.clock.sleep(wait);
        }
    }

    /// Returns the allowance of a compaction that begins.
    pub(in crate::engine) fn compaction_allowance(&self) -> Allowance<'_> {
        Allowance { upkeep: self, since: Mutex::new(self.env.clock.monotonic()) }
    }
}

impl Allowance<'_> {
    /// Records `bytes` more of input, and pauses if the compaction is ahead of its share. Returns false if it
    /// must end.
    pub(in crate::engine) fn go_on(&self, bytes: u64) -> bool {
        let Upkeep { turns, state: disk, .. } = self.upkeep;
        let Allowances { compaction_rate, compaction_percent, .. } = disk.options.allowances();
        let is_stopped = || disk.signal.stop_flag().load(Ordering::Relaxed);
        if compaction_rate.is_none() && compaction_percent.is_none() {
            return !is_stopped();
        }
        let mut since = self.since.lock();
        let now = disk.env.clock.monotonic();
        let running = turns.compact.count().max(1) as u64;
        let took = now.saturating_sub(*since);
        let mut rest = pause((bytes, took), running, compaction_rate, compaction_percent);
        while !rest.is_zero() && !is_stopped() {
            let nap = rest.min(NAP_MAX);
            disk.env.clock.sleep(nap);
            rest -= nap;
        }
        *since = disk.env.clock.monotonic();
        !is_stopped()
    }
}

/// Returns how long one of `running` compactions pauses after it took `took` for `bytes`.
fn pause((bytes, took): (u64, Duration), running: u64, rate: Option<u64>, percent: Option<u64>) -> Duration {
    let for_disk = rate.map_or(Duration::ZERO, |rate| time_of(bytes * running, rate).saturating_sub(took));
    let for_processor = percent.map_or(Duration::ZERO, |percent| {
        let rest = u128::from((100 * running).saturating_sub(percent));
        Duration::from_nanos((took.as_nanos() * rest / u128::from(percent.max(1))) as u64)
    });
    for_disk.max(for_processor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn writers_keep_to_a_rate_and_save_up_a_burst_at_the_most() {
        let pace = Pace::default();
        let mut now = Duration::from_secs(100);
        // One byte per millisecond.
        let mut wait = |bytes, pass: u32| {
            now += pass * MS;
            pace.wait_to_write(bytes, 1000, now).as_millis()
        };
        assert_eq!([wait(10, 0), wait(30, 0), wait(1, 0)], [0, 0, 30]);
        assert_eq!([wait(1, 40), wait(20, 1000), wait(1, 1)], [0, 0, 9]);
    }

    #[test]
    fn merges_pause_for_the_disk_or_for_the_processor_whichever_is_longer() {
        for (took_ms, running, rate, percent, expected_ms) in [
            (10, 1, None, None, 0),
            (10, 1, Some(50_000), None, 10),
            (30, 1, Some(50_000), None, 0),
            (10, 1, Some(50_000), Some(25), 30),
            (10, 1, None, Some(100), 0),
            // Each of two gets half of the rate and of the processor.
            (10, 2, Some(50_000), None, 30),
            (10, 2, None, Some(100), 10),
            (10, 2, None, Some(25), 70),
            (10, 4, Some(50_000), Some(25), 150),
        ] {
            let found = pause((1000, took_ms * MS), running, rate, percent);
            assert_eq!(found, expected_ms * MS, "{took_ms} {running} {rate:?} {percent:?}");
        }
    }

    #[test]
    fn a_speed_follows_what_was_measured() {
        let speed = Speed::default();
        speed.note(1, MS);
        assert_eq!(speed.now(), COMPACTION_BYTES_PER_SECOND);
        (0..40).for_each(|_| speed.note(100 << 20, Duration::from_secs(10)));
        assert!((10 << 20..11 << 20).contains(&speed.now()), "{}", speed.now());
    }
}
