//! Slow operations: those that take longer than the user allows are reported with where their time went.

use std::sync::Arc;
use std::time::Duration;

use esker_env::Clock;

use super::event::Event;
use super::events::Events;
use super::slow_operation::{Operation, SlowOperation, SlowPart};
use crate::types::parts::{Parts, traced};

/// Parts of less than 1 / this of the time are left out.
const PART_MIN: u32 = 1000;

/// Watches operations and reports the slow ones.
pub(crate) struct SlowWatch {
    after: Duration,
    events: Events,
    clock: Arc<dyn Clock>,
}

impl SlowWatch {
    pub(in crate::engine) fn new(after: Duration, events: Events, clock: Arc<dyn Clock>) -> Self {
        SlowWatch { after, events, clock }
    }

    /// Begins to watch a scan of a keyspace.
    pub(crate) fn scan(self: &Arc<Self>, keyspace: String) -> ScanWatch {
        ScanWatch { watch: self.clone(), keyspace, entries: 0, time: Duration::ZERO, parts: Parts::default() }
    }

    /// Runs an operation and reports it if it is slow. `items` counts its items.
    pub(crate) fn watch<T>(
        &self,
        operation: Operation,
        keyspace: Option<&dyn Fn() -> String>,
        run: impl FnOnce() -> T,
        items: impl FnOnce(&T) -> u64,
    ) -> T {
        let (done, time, parts) = traced(&self.clock, run);
        if time >= self.after {
            self.report(operation, keyspace.map(|name| name()), items(&done), (time, &parts));
        }
        done
    }

    #[cold]
    fn report(
        &self,
        operation: Operation,
        keyspace: Option<String>,
        items: u64,
        (time, parts): (Duration, &Parts),
    ) {
        let parts = parts.at_least(time / PART_MIN).map(|(part, time, times)| SlowPart { part, time, times });
        let parts = parts.collect();
        self.events.report(|| Event::Slow(SlowOperation { operation, keyspace, items, time, parts }));
    }
}

/// A watched scan. It is reported when it is dropped.
pub(crate) struct ScanWatch {
    watch: Arc<SlowWatch>,
    keyspace: String,
    entries: u64,
    time: Duration,
    parts: Parts,
}

impl ScanWatch {
    /// Runs a step of the scan, which returns how many entries it has passed.
    pub(crate) fn step<T>(&mut self, run: impl FnOnce() -> T, entries: impl FnOnce(&T) -> u64) -> T {
        let (done, time, parts) = traced(&self.watch.clock, run);
        self.entries += entries(&done);
        self.time += time;
        self.parts.add(&parts);
        done
    }
}

impl Drop for ScanWatch {
    fn drop(&mut self) {
        if self.time >= self.watch.after {
            let keyspace = Some(std::mem::take(&mut self.keyspace));
            self.watch.report(Operation::Scan, keyspace, self.entries, (self.time, &self.parts));
        }
    }
}
