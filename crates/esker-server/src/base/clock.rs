//! Time: the wall clock for expiry, and a monotonic clock for measurements.
#![expect(clippy::disallowed_methods, reason = "a server around the engine: its time is that of its clients")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Unix milliseconds.
pub fn now_ms() -> u64 {
    since_1970().as_millis() as u64
}

/// Unix microseconds.
pub fn now_us() -> u64 {
    since_1970().as_micros() as u64
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The current moment of the monotonic clock.
pub fn moment() -> Instant {
    Instant::now()
}
