//! A counter. Relaxed: for statistics.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it to zero.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
