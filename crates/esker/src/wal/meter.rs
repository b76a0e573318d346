//! Counters of one log: bytes written, sync times, and whether segment files could be made.
//!
//! ```text
//!   WalWriter --bytes--> Meter <--times-- syncs of any thread
//!   WalPool   --files made, or not--^
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_env::Clock;

use crate::types::Result;
use crate::types::latency::Recorder;
use crate::types::outcomes::Outcomes;

/// Counters of one log.
#[derive(Debug)]
pub(crate) struct Meter {
    clock: Arc<dyn Clock>,
    /// Duration of each sync.
    pub(crate) syncs: Recorder,
    /// Successes and failures of making segment files.
    pub(crate) files: Outcomes,
    /// Relaxed, like `live`: it orders nothing.
    written: AtomicU64,
    live: AtomicU64,
}

impl Meter {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Meter> {
        Arc::new(Meter {
            clock,
            syncs: Recorder::default(),
            files: Outcomes::default(),
            written: AtomicU64::new(0),
            live: AtomicU64::new(0),
        })
    }

    /// Runs and measures a sync.
    pub(super) fn sync<T>(&self, sync: impl FnOnce() -> T) -> T {
        let start = self.clock.monotonic();
        let synced = sync();
        self.syncs.record(self.clock.monotonic().saturating_sub(start), 1);
        synced
    }

    /// Records the outcome of making segment files.
    pub(super) fn note_files<T>(&self, made: &Result<T>) {
        self.files.note(made, self.clock.monotonic());
    }

    /// Adds to the bytes written.
    pub(super) fn add_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sets the bytes of the log that recovery needs.
    pub(super) fn set_live(&self, bytes: u64) {
        self.live.store(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of records and headers written since the log was opened.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the segments that the next opening would read. Segments of earlier processes
    /// count with their file size.
    pub(crate) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }
}
