//! What the server demands of its replicas before and after a write.

use std::sync::atomic::{AtomicU64, Ordering};

/// What the server demands of its replicas. Relaxed: each command reads it again.
pub struct Safety {
    replicas_min: AtomicU64,
    lag_seconds_max: AtomicU64,
    quorum: AtomicU64,
    /// The quorum of the ballot, below which the parameter has no effect.
    quorum_min: AtomicU64,
    quorum_ms: AtomicU64,
}

impl Default for Safety {
    fn default() -> Self {
        let [replicas_min, lag_seconds_max, quorum, quorum_min, quorum_ms] =
            [0, 10, 0, 0, 1000].map(AtomicU64::new);
        Safety { replicas_min, lag_seconds_max, quorum, quorum_min, quorum_ms }
    }
}

impl Safety {
    /// Sets a parameter, if it is one of these.
    pub(super) fn set(&self, name: &str, value: u64) {
        let field = match name {
            "min-replicas-to-write" => &self.replicas_min,
            "min-replicas-max-lag" => &self.lag_seconds_max,
            "write-quorum" => &self.quorum,
            "write-quorum-timeout" => &self.quorum_ms,
            _ => return,
        };
        field.store(value, Ordering::Relaxed);
    }

    /// Returns the number of replicas without which no command writes, and the milliseconds within which each
    /// must have reported. `None`: no replicas are needed.
    #[inline]
    pub fn replicas_min(&self) -> Option<(usize, u64)> {
        let count = self.replicas_min.load(Ordering::Relaxed);
        let seconds = self.lag_seconds_max.load(Ordering::Relaxed);
        (count > 0 && seconds > 0).then_some((count as usize, seconds.saturating_mul(1000)))
    }

    /// Sets the quorum that an election demands.
    pub fn demand_quorum(&self, quorum: u32) {
        self.quorum_min.store(quorum.into(), Ordering::Relaxed);
    }

    /// Returns the number of replicas that must have a write on their disks before its reply; 0: none.
    #[inline]
    pub fn quorum(&self) -> usize {
        self.quorum.load(Ordering::Relaxed).max(self.quorum_min.load(Ordering::Relaxed)) as usize
    }

    /// Returns the milliseconds after which a reply does not wait for replicas any more.
    pub fn quorum_ms(&self) -> u64 {
        self.quorum_ms.load(Ordering::Relaxed)
    }
}
