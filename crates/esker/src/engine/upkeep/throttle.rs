//! The throttle: how far compaction is behind, and how long writers wait because of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::compaction::pacing::Debt;

/// Shorter waits are saved up: the system's timers are too coarse for them.
const DELAY_MIN: Duration = Duration::from_millis(1);

/// No single write waits longer.
const DELAY_MAX: Duration = Duration::from_secs(1);

/// Makes writers wait while compaction is behind.
#[derive(Default)]
pub(crate) struct Throttle {
    /// How far compaction is behind, as of the last change of the version.
    debt: Mutex<Debt>,
    /// Whether `debt` makes writers wait. Relaxed: a hint that spares them the lock.
    is_on: AtomicBool,
    /// Waiting time that small commits have saved up.
    owed_ns: AtomicU64,
}

impl Throttle {
    /// Compaction is this far behind.
    pub(in crate::engine) fn set(&self, debt: Debt) {
        self.is_on.store(debt.pressure > 0.0, Ordering::Relaxed);
        *self.debt.lock() = debt;
    }

    /// How far compaction is behind.
    pub(in crate::engine) fn debt(&self) -> Debt {
        *self.debt.lock()
    }

    /// Whether writers wait for compaction.
    pub(in crate::engine) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// How long a writer waits who owes this delay; none while too little has been saved up.
    pub(in crate::engine) fn take(&self, delay: Duration) -> Option<Duration> {
        // Taken at once: of writers that come together each waits for its own delay, and one for what is left of others.
        let owed = self.owed_ns.swap(0, Ordering::Relaxed) + delay.as_nanos() as u64;
        if owed < DELAY_MIN.as_nanos() as u64 {
            self.owed_ns.fetch_add(owed, Ordering::Relaxed);
            return None;
        }
        // Of a large commit others pay the rest.
        let now = Duration::from_nanos(owed).min(DELAY_MAX);
        self.owed_ns.fetch_add(owed - now.as_nanos() as u64, Ordering::Relaxed);
        Some(now)
    }
}
