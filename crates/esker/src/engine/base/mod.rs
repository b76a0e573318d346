//! The lowest layer of the running database: what every other layer reads or reports to.

pub(crate) mod health;
pub(crate) mod info;
pub(crate) mod options;
pub(in crate::engine) mod panics;
pub(crate) mod signal;
pub(crate) mod stats;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use self::health::Watch;
use self::options::Options;
use self::signal::Signal;
use self::stats::Counters;
use crate::types::{Error, Result};

/// Options, statistics, health and signals.
pub(crate) struct Base {
    pub(crate) options: Options,
    pub(crate) counters: Counters,
    /// Outcomes of work that is retried.
    pub(crate) watch: Watch,
    pub(crate) signal: Signal,
    /// Shared with all views (view.2).
    pub(crate) closed: Arc<AtomicBool>,
}

impl Base {
    pub(in crate::engine) fn new(options: Options, closed: Arc<AtomicBool>) -> Self {
        Base {
            options,
            counters: Counters::default(),
            watch: Watch::default(),
            signal: Signal::default(),
            closed,
        }
    }

    /// Fails once the database is closed.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }
}
