//! Counters of the server. Relaxed: they are statistics.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::base::counter::Counter;
use crate::observe::latency::Histogram;

/// Statistics of one command.
#[derive(Debug, Default)]
pub struct CommandStats {
    /// Calls.
    pub calls: Counter,
    /// Their total duration in microseconds.
    pub micros: Counter,
    /// Durations of calls. Of fast commands one call in 16 is measured, and counts for all of them.
    pub latency: Histogram,
    /// Calls refused before they ran.
    pub rejected: Counter,
    /// Calls that failed.
    pub failed: Counter,
}

/// Statistics of the server.
#[derive(Debug, Default)]
pub struct Stats {
    /// Connections accepted.
    pub connections: Counter,
    /// Connections refused.
    pub refused: Counter,
    /// Connections ended because of the memory that all of them use.
    pub ended_for_memory: Counter,
    /// Commands run.
    pub commands: Counter,
    /// Bytes received.
    pub bytes_in: Counter,
    /// Bytes sent.
    pub bytes_out: Counter,
    /// Keys removed because they had expired.
    pub expired: Counter,
    /// Fields removed because they had expired.
    pub expired_fields: Counter,
    /// Lookups that found their key.
    pub hits: Counter,
    /// Lookups that did not.
    pub misses: Counter,
    /// Commits.
    pub commits: Counter,
    /// Error replies.
    pub errors: Counter,
    /// Number of error replies by code.
    codes: Mutex<BTreeMap<String, u64>>,
    /// Changes of keys.
    pub changes: Counter,
}

/// Maximum number of codes. Errors with further codes are counted together, because scripts invent codes.
const CODES_MAX: usize = 128;
const FURTHER_CODES: &str = "ERRORSTATS_OVERFLOW";

impl Stats {
    /// Counts an error reply.
    pub fn note_error(&self, message: &str) {
        self.errors.add(1);
        let code = message.split(' ').next().unwrap_or_default();
        let mut codes = self.codes.lock();
        let is_kept = codes.contains_key(code) || codes.len() < CODES_MAX;
        *codes.entry(if is_kept { code } else { FURTHER_CODES }.to_owned()).or_default() += 1;
    }

    /// Returns the number of error replies by code.
    pub fn error_codes(&self) -> BTreeMap<String, u64> {
        self.codes.lock().clone()
    }

    /// Clears all counters.
    pub fn reset(&self) {
        let all = [
            &self.connections,
            &self.refused,
            &self.commands,
            &self.bytes_in,
            &self.bytes_out,
            &self.expired,
            &self.expired_fields,
            &self.hits,
            &self.misses,
            &self.commits,
            &self.errors,
        ];
        all.iter().for_each(|counter| counter.reset());
        self.codes.lock().clear();
    }
}
