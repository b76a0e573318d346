//! What operators see of the server: counters, rates, latencies, slow commands, traces.

pub mod latency;
pub mod process;
pub mod rates;
pub mod slow_log;
pub mod stats;
pub mod trace;

use self::latency::{Histogram, LatencyEvents};
use self::rates::Rates;
use self::slow_log::SlowLog;
use self::stats::Stats;

/// What a server counts and measures.
#[derive(Default)]
pub struct Observed {
    /// Counters.
    pub stats: Stats,
    /// Commands that took long.
    pub slow_log: SlowLog,
    /// Events per second.
    pub rates: Rates,
    /// Events that took long.
    pub latency_events: LatencyEvents,
    /// How long commits took.
    pub commit_latency: Histogram,
}
