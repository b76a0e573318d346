//! The lowest layer of the running database: what every other layer reads or reports to.

pub(crate) mod allowances;
pub(crate) mod event;
pub(crate) mod events;
pub(crate) mod file_sizes;
pub(crate) mod health;
pub(crate) mod info;
pub(crate) mod options;
pub(in crate::engine) mod panics;
pub(crate) mod signal;
pub(crate) mod slow;
pub(crate) mod slow_operation;
pub(crate) mod stats;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::event::Event;
use self::events::Events;
use self::health::Watch;
use self::options::Options;
use self::signal::Signal;
use self::slow::SlowWatch;
use self::stats::Counters;
use crate::types::{Error, Result};

/// Options, statistics, health, signals and events.
pub(crate) struct Base {
    pub(crate) options: Options,
    pub(crate) counters: Counters,
    /// Outcomes of work that is retried.
    pub(crate) watch: Watch,
    pub(crate) signal: Signal,
    pub(crate) events: Events,
    /// Reports slow operations, if the user wants that.
    pub(crate) slow: Option<Arc<SlowWatch>>,
    /// Shared with all views (view.2).
    pub(crate) closed: Arc<AtomicBool>,
}

impl Base {
    pub(in crate::engine) fn new(options: Options, closed: Arc<AtomicBool>, events: Events) -> Self {
        let slow = options
            .slow_after()
            .filter(|_| events.is_on())
            .map(|after| Arc::new(SlowWatch::new(after, events.clone(), options.env().clock.clone())));
        Base {
            options,
            counters: Counters::default(),
            watch: Watch::default(),
            signal: Signal::default(),
            events,
            slow,
            closed,
        }
    }

    /// Does work between the events of its beginning and its end.
    pub(in crate::engine) fn between<T>(
        &self,
        begun: impl FnOnce() -> Event,
        work: impl FnOnce() -> Result<T>,
        ended: impl FnOnce(Duration, &Result<T>) -> Event,
    ) -> Result<T> {
        if !self.events.is_on() {
            return work();
        }
        let clock = &self.options.env().clock;
        let start = clock.monotonic();
        self.events.report(begun);
        let done = work();
        self.events.report(|| ended(clock.monotonic().saturating_sub(start), &done));
        done
    }

    /// Fails once the database is closed.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }
}
