//! Failures of background work: counted, and reported to the threads that wait for the work.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use esker_env::panic_text;

use super::Base;
use super::stats::add;
use crate::types::{Error, Result};

impl Base {
    /// Runs a piece of background work in the thread that asks for it. After a panic no other piece runs
    /// (engine_background.2).
    pub(in crate::engine) fn in_this_thread<T>(&self, work: impl FnOnce() -> T) -> T {
        let thread = std::thread::current();
        self.ending_with_panic(thread.name().unwrap_or("without a name"), work)
    }

    /// Runs work of a thread. A panic ends all background work (engine_background.2), and then continues.
    pub(in crate::engine) fn ending_with_panic<T>(&self, thread: &str, work: impl FnOnce() -> T) -> T {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let cause = Error::Panicked(format!("the thread {thread} panicked: {}", panic_text(&*panic)));
            self.counters.note_error(&cause);
            self.signal.die(Arc::new(cause));
            resume_unwind(panic)
        })
    }

    /// Counts an error that is not returned to a caller.
    pub(in crate::engine) fn note_error<T>(&self, outcome: Result<T>) {
        if let Err(error) = outcome {
            self.counters.note_error(&error);
        }
    }

    /// Counts a failed compaction in the statistics.
    pub(in crate::engine) fn count_failed_compaction(&self, error: &Error) {
        add(&self.counters.compaction.failed, 1);
        self.counters.note_error(error);
    }
}
