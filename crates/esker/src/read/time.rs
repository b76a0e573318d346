//! The engine's time, which decides when versions expire: the system clock, but it never goes back.
//!
//! ```text
//!   Env's wall clock  ----------.    .------       jumps back
//!   engine's time     ----------'----------        follows the monotonic clock until then
//!   stored marks --minimum at opening--^
//! ```
//!
//! time.1. Time never goes back for any reader: an expired key stays expired. The only exception is
//!     [`Time::reset`], by which a user recovers from a clock that was ahead.
//! time.2. Opening a database starts no earlier than the last mark stored before (engine/writes/sweep.rs), so
//!     time does not go back across a restart. The time since that mark may be lost if the process or machine
//!     dies, or if nothing was committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker_env::Clock;
use parking_lot::Mutex;

use super::swept::SweptRanges;
use crate::types::canary::{self, Canary};
use crate::types::expiry::Expiry;

/// The engine's time, shared by all views of a database.
#[derive(Debug)]
pub struct Time {
    clock: Arc<dyn Clock>,
    /// The latest time returned, in milliseconds since 1970. Relaxed: a single number that only grows.
    latest: AtomicU64,
    /// Set while the wall clock is behind the latest time. Relaxed: written under the lock of `back`.
    is_behind: AtomicBool,
    back: Mutex<Option<Back>>,
    /// Sweeps made at this time.
    pub(crate) swept: SweptRanges,
}

/// The moment at which the wall clock was found to have gone back.
#[derive(Clone, Copy, Debug)]
struct Back {
    /// The engine's time at that moment.
    ms: u64,
    /// The monotonic clock at that moment.
    at: Duration,
}

impl Time {
    /// Creates the engine's time from a clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (latest, is_behind) = (AtomicU64::new(0), AtomicBool::new(false));
        Time { clock, latest, is_behind, back: Mutex::new(None), swept: SweptRanges::default() }
    }

    /// Raises the time to at least `ms` milliseconds since 1970.
    pub fn raise(&self, ms: u64) {
        self.latest.fetch_max(ms, Ordering::Relaxed);
    }

    /// Returns the time in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        let wall = ms(self.clock.unix_time());
        if self.is_behind.load(Ordering::Relaxed) || wall < self.latest.load(Ordering::Relaxed) {
            return self.now_behind(wall);
        }
        wall.max(self.latest.fetch_max(wall, Ordering::Relaxed))
    }

    /// Returns the time while the wall clock is behind the latest time (time.1).
    #[cold]
    fn now_behind(&self, wall: u64) -> u64 {
        let mut back = self.back.lock();
        let (latest, at) = (self.latest.load(Ordering::Relaxed), self.clock.monotonic());
        let since = *back.get_or_insert(Back { ms: latest, at });
        let mut ran = since.ms.saturating_add(ms(at.saturating_sub(since.at)));
        if ran < latest {
            // The wall clock was ahead in between.
            *back = Some(Back { ms: latest, at });
            ran = latest;
        }
        let now = wall.max(ran);
        let is_behind = now > wall;
        if !is_behind {
            *back = None;
        }
        self.is_behind.store(is_behind, Ordering::Relaxed);
        now.max(self.latest.fetch_max(now, Ordering::Relaxed))
    }

    /// Sets the time to the wall clock even if that is earlier. Returns the new time.
    pub(crate) fn reset(&self) -> u64 {
        let mut back = self.back.lock();
        let wall = ms(self.clock.unix_time());
        self.latest.store(wall, Ordering::Relaxed);
        self.is_behind.store(false, Ordering::Relaxed);
        *back = None;
        wall
    }

    /// Returns whether a moment has passed.
    #[inline]
    pub(crate) fn has_come(&self, expiry: Expiry) -> bool {
        if canary::is_set(Canary::ExpiredReturned) {
            return false;
        }
        expiry.ms() <= self.latest.load(Ordering::Relaxed) || expiry.ms() <= self.now_ms()
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two clocks set by the test.
    #[derive(Debug, Default)]
    struct Set {
        wall: AtomicU64,
        monotonic: AtomicU64,
    }

    impl Clock for Set {
        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.monotonic.load(Ordering::Relaxed))
        }
        fn unix_time(&self) -> Duration {
            Duration::from_millis(self.wall.load(Ordering::Relaxed))
        }
        fn sleep(&self, _: Duration) {}
    }

    #[test]
    fn time_1_time_2_it_goes_on_where_it_was_when_the_wall_clock_goes_back() {
        let clock = Arc::new(Set::default());
        let time = Time::new(clock.clone());
        let at = |wall, monotonic| {
            clock.wall.store(wall, Ordering::Relaxed);
            clock.monotonic.store(monotonic, Ordering::Relaxed);
            time.now_ms()
        };
        assert_eq!([at(1000, 0), at(1010, 10)], [1000, 1010]);
        assert_eq!([at(500, 20), at(600, 120)], [1010, 1110], "time.1: it goes on");
        assert_eq!(at(1105, 120), 1110, "time.1: caught up, nearly");
        assert_eq!([at(5000, 130), at(5010, 140), at(4000, 150), at(4010, 160)], [5000, 5010, 5010, 5020]);
        assert_eq!(
            [at(4020, 10_000), at(14_000, 10_010)],
            [14_860, 14_870],
            "time.1: the time was not read for a while"
        );
        assert!(time.has_come(Expiry::at_ms(14_870)) && !time.has_come(Expiry::at_ms(14_871)));
        time.raise(20_000);
        assert!(time.has_come(Expiry::at_ms(20_000)), "time.2");
        assert_eq!([at(15_000, 10_020), at(15_010, 10_030)], [20_000, 20_010], "time.2");
        assert_eq!((time.reset(), time.now_ms()), (15_010, 15_010), "the time follows the wall clock");
        assert_eq!([at(15_020, 10_040), at(15_015, 10_050)], [15_020, 15_020], "time.1");
    }
}
