//! When something of a source is due to be swept: the earliest expiry of it that no sweep has looked at.
//!
//! ```text
//!   commit --lower(expiry)--> Due <--take, lower(what is left)-- sweep
//! ```
//!
//! due.1. A sweep takes the time before it looks at the source: what comes to the source meanwhile lowers it again.

use std::sync::atomic::{AtomicU64, Ordering};

use super::expiry::Expiry;

/// See the module's text. Nothing is due at first.
#[derive(Debug)]
pub(crate) struct Due(AtomicU64);

impl Default for Due {
    fn default() -> Self {
        Due::at_ms(u64::MAX)
    }
}

impl Due {
    /// Something is due then, in milliseconds since 1970; `u64::MAX`: nothing is.
    pub(crate) const fn at_ms(ms: u64) -> Self {
        Due(AtomicU64::new(ms))
    }

    /// Something is due then, or earlier. Release: who takes it finds what was put into the source before.
    pub(crate) fn lower(&self, expiry: Expiry) {
        self.0.fetch_min(expiry.ms(), Ordering::Release);
    }

    /// When something is due.
    #[inline]
    pub(crate) fn get(&self) -> Expiry {
        Expiry::at_ms(self.0.load(Ordering::Acquire))
    }

    /// The same, and nothing is from now on (due.1).
    pub(crate) fn take(&self) -> Expiry {
        Expiry::at_ms(self.0.swap(u64::MAX, Ordering::AcqRel))
    }
}
