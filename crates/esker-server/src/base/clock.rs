//! Time: of the day for what expires, and since a start for what is measured.
#![expect(clippy::disallowed_methods, reason = "a server around the engine: its time is that of its clients")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    since_1970().as_millis() as u64
}

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    since_1970().as_micros() as u64
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A moment, to measure from.
pub fn moment() -> Instant {
    Instant::now()
}
