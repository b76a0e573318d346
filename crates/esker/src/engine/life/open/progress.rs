//! Reports the progress of a replay that takes long.

use std::sync::Arc;
use std::time::Duration;

use esker_env::Clock;

use crate::engine::base::event::Event;
use crate::engine::base::events::Events;

/// Minimum time between two reports.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// Replayed bytes between two looks at the clock.
const LOOK_EVERY_BYTES: u64 = 1 << 20;

/// The progress of a replay.
pub(in crate::engine::life) struct Progress {
    events: Events,
    clock: Arc<dyn Clock>,
    /// When the opening began.
    begun: Duration,
    done_bytes: u64,
    /// Bytes of the log's files.
    total_bytes: u64,
    commits: u64,
    /// When to look at the clock again, and when to report.
    look_at_bytes: u64,
    report_at: Duration,
}

impl Progress {
    /// Creates the progress of an opening that began at `begun`.
    pub(super) fn new(events: Events, clock: Arc<dyn Clock>, begun: Duration) -> Self {
        Progress {
            events,
            clock,
            begun,
            done_bytes: 0,
            total_bytes: 0,
            commits: 0,
            look_at_bytes: LOOK_EVERY_BYTES,
            report_at: begun + REPORT_EVERY,
        }
    }

    /// Returns whether anything listens.
    pub(in crate::engine::life) fn is_on(&self) -> bool {
        self.events.is_on()
    }

    /// Sets the size of the log.
    pub(in crate::engine::life) fn begin(&mut self, total_bytes: u64) {
        self.total_bytes = total_bytes;
    }

    /// Records a replayed commit.
    pub(in crate::engine::life) fn add(&mut self, bytes: u64) {
        self.done_bytes += bytes;
        self.commits += 1;
        if self.done_bytes >= self.look_at_bytes && self.is_on() {
            self.look_at_bytes = self.done_bytes + LOOK_EVERY_BYTES;
            let now = self.clock.monotonic();
            if now >= self.report_at {
                self.report_at = now + REPORT_EVERY;
                self.report(now.saturating_sub(self.begun));
            }
        }
    }

    fn report(&self, time: Duration) {
        let &Progress { done_bytes, total_bytes, commits, .. } = self;
        self.events.report(|| Event::Opening { done_bytes, total_bytes, commits, time });
    }
}
