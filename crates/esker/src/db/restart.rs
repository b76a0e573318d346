//! Whether a transaction has to run again.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::types::{Error, Result};

/// Whether the last operation of a transaction failed with a conflict or deadlock. Relaxed: it orders no
/// other memory.
#[derive(Debug, Default)]
pub(super) struct Restart(AtomicU8);

impl Restart {
    const NONE: u8 = 0;
    const CONFLICT: u8 = 1;
    const DEADLOCK: u8 = 2;

    /// Returns whether the transaction has to run again.
    pub(super) fn is_due(&self) -> bool {
        self.0.load(Ordering::Relaxed) != Self::NONE
    }

    /// Returns whether the reason is a deadlock.
    pub(super) fn is_after_deadlock(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::DEADLOCK
    }

    /// Begins an operation.
    pub(super) fn forget(&self) {
        self.0.store(Self::NONE, Ordering::Relaxed);
    }

    /// Ends an operation that may have failed in such a way.
    pub(super) fn note<T>(&self, done: &Result<T>) {
        let restart = match done {
            Err(Error::Conflict { .. }) => Self::CONFLICT,
            Err(Error::Deadlock(_)) => Self::DEADLOCK,
            _ => Self::NONE,
        };
        self.0.store(restart, Ordering::Relaxed);
    }
}
