//! The throttle: makes writers wait while compaction is behind.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::compaction::pacing::Backlog;

/// Shorter waits are saved up, because the system's timers are too coarse for them.
const DELAY_MIN: Duration = Duration::from_millis(1);

/// Maximum wait of a single write.
const DELAY_MAX: Duration = Duration::from_secs(1);

/// Makes writers wait while compaction is behind.
#[derive(Default)]
pub(crate) struct Throttle {
    /// How far compaction is behind, as of the last change of the version.
    backlog: Mutex<Backlog>,
    /// Whether `backlog` makes writers wait. Relaxed: a hint that spares them the lock.
    is_on: AtomicBool,
    /// Waiting time that commits have saved up.
    saved_ns: AtomicU64,
}

impl Throttle {
    /// Sets how far compaction is behind. If writers begin or cease to wait, returns whether they wait.
    pub(in crate::engine) fn set(&self, backlog: Backlog) -> Option<bool> {
        let mut last = self.backlog.lock();
        *last = backlog;
        let is_on = backlog.pressure > 0.0;
        (self.is_on.swap(is_on, Ordering::Relaxed) != is_on).then_some(is_on)
    }

    /// Returns how far compaction is behind.
    pub(in crate::engine) fn backlog(&self) -> Backlog {
        *self.backlog.lock()
    }

    /// Returns whether writers wait for compaction.
    pub(in crate::engine) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Adds a writer's delay. Returns how long the writer waits now; `None` while too little has been saved
    /// up.
    pub(in crate::engine) fn take(&self, delay: Duration) -> Option<Duration> {
        // Swapped atomically: of concurrent writers each waits for its own delay, and one also for the saved
        // time.
        let saved = self.saved_ns.swap(0, Ordering::Relaxed) + delay.as_nanos() as u64;
        if saved < DELAY_MIN.as_nanos() as u64 {
            self.saved_ns.fetch_add(saved, Ordering::Relaxed);
            return None;
        }
        // The rest of a large commit's delay is left to other writers.
        let now = Duration::from_nanos(saved).min(DELAY_MAX);
        self.saved_ns.fetch_add(saved - now.as_nanos() as u64, Ordering::Relaxed);
        Some(now)
    }
}
