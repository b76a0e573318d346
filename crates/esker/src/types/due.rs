//! When a source is due for a sweep: the earliest expiry in it that no sweep has seen.
//!
//! ```text
//!   commit --lower(expiry)--> Due <--take, lower(remaining)-- sweep
//! ```
//!
//! - A sweep takes the time before it scans the source. Entries added meanwhile lower it again.

use std::sync::atomic::{AtomicU64, Ordering};

use super::expiry::Expiry;

/// The time at which a source is due. At first nothing is due.
#[derive(Debug)]
pub(crate) struct Due(AtomicU64);

impl Default for Due {
    fn default() -> Self {
        Due::at_ms(u64::MAX)
    }
}

impl Due {
    /// Due at this time in Unix milliseconds. `u64::MAX`: never.
    pub(crate) const fn at_ms(ms: u64) -> Self {
        Due(AtomicU64::new(ms))
    }

    /// Makes the source due at this time or earlier. Release: a thread that takes the time sees the entries
    /// added before.
    pub(crate) fn lower(&self, expiry: Expiry) {
        self.0.fetch_min(expiry.ms(), Ordering::Release);
    }

    /// When the source is due.
    #[inline]
    pub(crate) fn get(&self) -> Expiry {
        Expiry::at_ms(self.0.load(Ordering::Acquire))
    }

    /// Returns when the source is due, and makes it not due.
    pub(crate) fn take(&self) -> Expiry {
        Expiry::at_ms(self.0.swap(u64::MAX, Ordering::AcqRel))
    }
}
