//! Time: a monotonic clock, the wall clock and sleeping.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A source of time.
pub trait Clock: Send + Sync + Debug + 'static {
    /// Time since an arbitrary fixed start; never goes back.
    fn monotonic(&self) -> Duration;
    /// Time since 1970-01-01 UTC, as the system believes it; may jump.
    fn unix_time(&self) -> Duration;
    /// Lets at least `duration` pass.
    fn sleep(&self, duration: Duration);
}

/// The operating system's clock.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

#[expect(clippy::disallowed_methods, reason = "this is the system clock")]
impl SystemClock {
    /// A clock whose monotonic time starts now.
    pub fn new() -> Self {
        SystemClock { start: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the system clock")]
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

/// A clock that moves only by [`advance`](ManualClock::advance) and by sleeping.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: AtomicU64,
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
}

impl Clock for ManualClock {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
    fn unix_time(&self) -> Duration {
        Duration::from_secs(1_700_000_000) + self.monotonic()
    }
    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}
