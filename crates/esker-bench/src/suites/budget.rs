//! When a row ends whose value is a rate.

use std::time::Duration;

use crate::scale::Scale;

/// Shortest and longest time over which a curve of such a row takes a mean.
const PERIODS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Points of a curve, as far as `PERIODS` allow.
const POINTS: u32 = 60;

/// The row ends when either is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) time: Duration,
    pub(crate) ops: u64,
}

impl Budget {
    /// The time that a row of this scale takes. A test does `test_ops` and no more, that a traced run and an untraced one do the same.
    pub(crate) fn of(scale: Scale, test_ops: u64) -> Self {
        let (seconds, ops) = match scale {
            Scale::Quick => (2, u64::MAX),
            Scale::Seed => (20, u64::MAX),
            Scale::Full => (300, u64::MAX),
            Scale::Test => (3600, test_ops),
        };
        Self { time: Duration::from_secs(seconds), ops }
    }

    /// So many operations, however long they take.
    pub(crate) fn of_ops(ops: u64) -> Self {
        Self { time: Duration::MAX, ops }
    }

    /// The time over which a point of the row's curves is a mean.
    pub(crate) fn period(&self) -> Duration {
        (self.time / POINTS).clamp(PERIODS.0, PERIODS.1)
    }
}
