//! What operators see of the server: counters, rates, latencies, slow commands, traces.

pub mod latency;
pub mod process;
pub mod rates;
pub mod slow_log;
pub mod stats;
pub mod trace;
