//! Counters of the server. Relaxed: they are figures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::observe::latency::Histogram;

/// A number that grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// What it is.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Begins anew.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// What one command has done.
#[derive(Debug, Default)]
pub struct CommandStats {
    /// Calls.
    pub calls: Counter,
    /// Microseconds of them.
    pub micros: Counter,
    /// How long calls took; of fast commands one in 16 is measured, and counts for all of them.
    pub latency: Histogram,
    /// Calls that were not begun.
    pub rejected: Counter,
    /// Calls that failed.
    pub failed: Counter,
}

/// What the server has done.
#[derive(Debug, Default)]
pub struct Stats {
    /// Connections taken.
    pub connections: Counter,
    /// Connections refused.
    pub refused: Counter,
    /// Commands done.
    pub commands: Counter,
    /// Bytes received.
    pub bytes_in: Counter,
    /// Bytes sent.
    pub bytes_out: Counter,
    /// Keys removed because they had expired.
    pub expired: Counter,
    /// Keys that were found.
    pub hits: Counter,
    /// Keys that were not.
    pub misses: Counter,
    /// Commits.
    pub commits: Counter,
    /// Error replies.
    pub errors: Counter,
    /// How many there were of each code.
    codes: Mutex<BTreeMap<String, u64>>,
    /// Changes of keys since the start.
    pub changes: Counter,
}

/// Errors of further codes are counted together: scripts make their own.
const CODES_MAX: usize = 128;
const FURTHER_CODES: &str = "ERRORSTATS_OVERFLOW";

impl Stats {
    /// An error was replied.
    pub fn note_error(&self, message: &str) {
        self.errors.add(1);
        let code = message.split(' ').next().unwrap_or_default();
        let mut codes = self.codes.lock();
        let is_kept = codes.contains_key(code) || codes.len() < CODES_MAX;
        *codes.entry(if is_kept { code } else { FURTHER_CODES }.to_owned()).or_default() += 1;
    }

    /// How many errors of each code were replied.
    pub fn error_codes(&self) -> BTreeMap<String, u64> {
        self.codes.lock().clone()
    }

    /// All counters.
    pub fn reset(&self) {
        let all = [
            &self.connections,
            &self.refused,
            &self.commands,
            &self.bytes_in,
            &self.bytes_out,
            &self.expired,
            &self.hits,
            &self.misses,
            &self.commits,
            &self.errors,
        ];
        all.iter().for_each(|counter| counter.reset());
        self.codes.lock().clear();
    }
}
