//! Time: a monotonic clock, the wall clock and sleeping.
//!
//! wasm32-unknown-unknown has no time source, so [`SystemClock`] is a [`CountingClock`] there.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A source of time.
pub trait Clock: Send + Sync + Debug + 'static {
    /// Time since an arbitrary fixed start. Never goes back.
    fn monotonic(&self) -> Duration;
    /// Time since 1970-01-01 UTC according to the system. May jump.
    fn unix_time(&self) -> Duration;
    /// Sleeps for at least `duration`.
    fn sleep(&self, duration: Duration);
}

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub use CountingClock as SystemClock;
#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub use system::SystemClock;

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
#[expect(clippy::disallowed_methods, reason = "this is the system clock")]
mod system {
    use super::{Clock, Duration};

    /// The operating system's clock.
    #[derive(Debug)]
    pub struct SystemClock {
        start: std::time::Instant,
    }

    impl SystemClock {
        /// Returns a clock whose monotonic time starts at zero.
        pub fn new() -> Self {
            SystemClock { start: std::time::Instant::now() }
        }
    }

    impl Default for SystemClock {
        fn default() -> Self {
            Self::new()
        }
    }

    impl Clock for SystemClock {
        fn monotonic(&self) -> Duration {
            self.start.elapsed()
        }
        fn unix_time(&self) -> Duration {
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
        }
        fn sleep(&self, duration: Duration) {
            std::thread::sleep(duration);
        }
    }
}

/// A clock that moves only by [`advance`](ManualClock::advance), [`set_wall`](ManualClock::set_wall) and by
/// sleeping.
#[derive(Debug, Default)]
pub struct ManualClock {
    /// Relaxed: independent of other memory.
    nanos: AtomicU64,
    /// Offset of the wall clock. Relaxed: independent of other memory.
    wall_off_nanos: AtomicI64,
}

impl ManualClock {
    /// A clock at time zero.
    pub fn new() -> Self {
        Self::default()
    }
    /// Moves time forward.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }
    /// Moves the wall clock forward or back by milliseconds, like a user who sets it. Monotonic time is not
    /// affected.
    pub fn set_wall(&self, by_ms: i64) {
        self.wall_off_nanos.fetch_add(by_ms.saturating_mul(1_000_000), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
    fn unix_time(&self) -> Duration {
        let wall = Duration::from_secs(1_700_000_000) + self.monotonic();
        let off = self.wall_off_nanos.load(Ordering::Relaxed);
        let by = Duration::from_nanos(off.unsigned_abs());
        if off < 0 { wall.saturating_sub(by) } else { wall + by }
    }
    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}

/// A clock for platforms without time. Each reading advances it by a millisecond, and sleeping advances it at
/// once, so that polling for a time terminates.
#[derive(Debug, Default)]
pub struct CountingClock(ManualClock);

impl CountingClock {
    const TICK: Duration = Duration::from_millis(1);

    /// A clock at time zero.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Clock for CountingClock {
    fn monotonic(&self) -> Duration {
        self.0.advance(Self::TICK);
        self.0.monotonic()
    }
    fn unix_time(&self) -> Duration {
        self.0.advance(Self::TICK);
        self.0.unix_time()
    }
    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_is_set_and_time_goes_on() {
        let clock = ManualClock::new();
        let start = clock.unix_time();
        clock.set_wall(-5000);
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.unix_time(), start - Duration::from_secs(4));
        assert_eq!(clock.monotonic(), Duration::from_secs(1));
    }

    #[test]
    fn a_counting_clock_goes_on_by_being_looked_at() {
        let clock = CountingClock::new();
        let start = clock.monotonic();
        let looks = (1..).find(|_| clock.monotonic() >= start + Duration::from_secs(1));
        assert_eq!(looks, Some(1000));
        clock.sleep(Duration::from_secs(5));
        assert!(clock.monotonic() >= start + Duration::from_secs(6));
    }
}
